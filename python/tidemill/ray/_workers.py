"""Tasks on their way to actors of a Ray cluster, and what becomes of them.

Each actor has two tasks at hand, so that it does not wait for the next; of those that wait, the
largest is dealt first. An actor that is gone (its process was killed, its machine is down) is
started anew by Ray, on any machine that has room; what it had at hand is told to have been lost,
and is dealt again by the engine, which counts how often.
"""

from __future__ import annotations

import contextlib
import heapq
import importlib
import itertools
import os
import sys
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tidemill._errors import MissingPackageError, UsageError

if TYPE_CHECKING:
    from types import ModuleType

#: An actor has so many tasks at hand: one that it does, and the next.
_AT_HAND = 2

#: An actor has so many cores, unless a machine has fewer.
_CORES = 4

#: A look at an actor that is being started anew is repeated so often.
_RETRIES = 3

#: The first actor is waited for so many seconds …
_START_SECONDS = 30.0

#: … and all others so many more: the cluster may have no core for them now.
_OTHERS_SECONDS = 5.0

_sessions = itertools.count()
_connected: dict[str, RayWorkers] = {}


def _ray() -> ModuleType:
    """Ray, or what to do about it."""
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise MissingPackageError(
            f"Ray is not installed for {sys.executable}\nhint: pip install 'tidemill[ray]'"
        ) from error


def connect(on: str, *, memory: int | None) -> RayWorkers:
    """Give the workers of a cluster: those of an earlier query, or new ones.

    Parameters
    ----------
    on : str
        ``ray`` for the cluster that ``RAY_ADDRESS`` or the surrounding process names, or else one
        that is started here; ``ray://host:port`` for another.
    memory : int, optional
        What each worker may take, in bytes. Half of its machine's memory by its share of the
        cores, if left out.
    """
    key = f"{on} {memory} {os.getpid()}"
    workers = _connected.get(key)
    if workers is None or not workers.is_connected():
        workers = RayWorkers(on, memory=memory)
        _connected[key] = workers
    return workers


def disconnect() -> None:
    """Give back the cores that this process has on clusters; the next query takes some again."""
    while _connected:
        _, workers = _connected.popitem()
        workers.close()


class RayWorkers:
    """Actors of a cluster, each of which holds the engine."""

    def __init__(self, on: str, *, memory: int | None) -> None:
        self._ray = _ray()
        self._secrets: dict[str, str] = {}
        self._job = -1
        self._description: list[Any] = []
        self._waiting: list[tuple[int, int, int, str, bytes]] = []
        self._running: dict[Any, tuple[int, int, int]] = {}
        self._actors: list[Any] = []
        self._at_hand: list[int] = []
        self._threads: list[int] = []
        self._places: list[tuple[str, int]] = []
        # Actors that are being started anew, by the call that tells when they are there.
        self._coming: dict[Any, int] = {}
        self._start(on, memory)

    def _start(self, on: str, memory: int | None) -> None:
        ray = self._ray
        address = None if on == "ray" else on
        # A cluster that is started here tells nobody of it.
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        if not ray.is_initialized():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                ray.init(
                    address=address or os.environ.get("RAY_ADDRESS"),
                    namespace="tidemill",
                    log_to_driver=False,
                    logging_level="error",
                    include_dashboard=False if address is None else None,
                )
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        from tidemill.ray._actor import Worker

        remote = ray.remote(Worker)
        version = _version()
        for node in ray.nodes():
            cores = int(node["Resources"].get("CPU", 0)) if node["Alive"] else 0
            strategy = NodeAffinitySchedulingStrategy(node["NodeID"], soft=True)
            while cores > 0:
                threads = min(cores, _CORES)
                cores -= threads
                actor = remote.options(
                    num_cpus=threads,
                    max_restarts=-1,
                    scheduling_strategy=strategy,
                ).remote(version, memory, threads)
                self._actors.append(actor)
                self._at_hand.append(0)
                self._threads.append(threads)
        self._keep_ready()

    def _keep_ready(self) -> None:
        """Wait for the actors, and go without those for which the cluster has no core now."""
        ray = self._ray
        ready = [actor.ready.remote() for actor in self._actors]
        first, _ = ray.wait(ready, num_returns=1, timeout=_START_SECONDS)
        if first:
            ray.wait(ready, num_returns=len(ready), timeout=_OTHERS_SECONDS)
        there, _ = ray.wait(ready, num_returns=len(ready), timeout=0)
        is_there = [ref in there for ref in ready]
        for actor, is_it in zip(self._actors, is_there, strict=True):
            if not is_it:
                ray.kill(actor)
        self._actors = list(itertools.compress(self._actors, is_there))
        self._threads = list(itertools.compress(self._threads, is_there))
        self._at_hand = [0] * len(self._actors)
        if not self._actors:
            cores = int(ray.cluster_resources().get("CPU", 0))
            raise UsageError(
                f"no core of the cluster is free: all {cores} are reserved by others\nhint: wait "
                "for them; in Python, tidemill.ray.disconnect() gives back what a session has"
            )
        self._places = ray.get(list(itertools.compress(ready, is_there)))

    def close(self) -> None:
        """End the actors, whose cores are others' then."""
        self.end()
        for actor in self._actors:
            with contextlib.suppress(Exception):
                self._ray.kill(actor)
        self._actors = []
        self._threads = []

    def look(self) -> None:
        """See which processes the workers are now: one that was killed is another."""
        self._places = self._ray.get(
            [self._is_ready(place) for place in range(len(self._actors))], timeout=_START_SECONDS
        )

    def _is_ready(self, actor: int) -> Any:
        """Ask whether an actor is there; one that is being started anew answers when it is."""
        return self._actors[actor].ready.options(max_task_retries=_RETRIES).remote()

    def is_connected(self) -> bool:
        """Whether the cluster is still there."""
        return bool(self._ray.is_initialized())

    def places(self) -> list[tuple[str, int]]:
        """Give the machine and the process of each."""
        return self._places

    def threads(self) -> int:
        """How many threads there are together."""
        return sum(self._threads)

    def begin(self, job: bytes, secrets: Mapping[str, str], paths: Sequence[str]) -> None:
        """Say what all tasks that follow are of, and how stores are reached.

        Secrets go to the workers with each task, where they are in memory alone: what is put into
        the store may be spilled.
        """
        self.end()
        self._check(paths)
        self._secrets = dict(secrets)
        self._job = next(_sessions)
        # In a list it is not fetched with each call, but by a worker that does not know it yet.
        self._description = [self._ray.put(job)]

    def _check(self, paths: Sequence[str]) -> None:
        """Refuse paths that a machine does not see."""
        if not paths:
            return
        missing = self._ray.get(
            [
                actor.missing.options(max_task_retries=_RETRIES).remote(list(paths))
                for actor in self._actors
            ]
        )
        for (machine, _), theirs in zip(self._places, missing, strict=True):
            if theirs:
                raise UsageError(
                    f"`{theirs[0]}` is not on `{machine}`, where a worker would read it\nhint: a "
                    "path has to be seen by every machine, as in a network file system; or read "
                    "from a bucket"
                )

    def submit(self, number: int, attempt: int, size: int, name: str, content: bytes) -> None:
        """Hand in a task."""
        heapq.heappush(self._waiting, (-size, number, attempt, name, content))
        self._deal()

    def _deal(self) -> None:
        coming = set(self._coming.values())
        there = [place for place in range(len(self._actors)) if place not in coming]
        while self._waiting and there:
            actor = min(there, key=lambda place: (self._at_hand[place], -self._threads[place]))
            if self._at_hand[actor] >= _AT_HAND:
                return
            _, number, attempt, name, content = heapq.heappop(self._waiting)
            call = self._actors[actor].run.options(name=f"tidemill {name}")
            running = call.remote(self._job, self._description, self._secrets, content)
            self._at_hand[actor] += 1
            self._running[running] = (actor, number, attempt)

    def next(self, seconds: float) -> tuple[int, int, bytes | None, str | None] | None:
        """Give what became of a task; None where nothing has after so long."""
        ray = self._ray
        if not self._running and not self._coming:
            return None
        ready, _ = ray.wait([*self._running, *self._coming], num_returns=1, timeout=seconds)
        if not ready:
            return None
        if ready[0] in self._coming:
            actor = self._coming.pop(ready[0])
            self._places[actor] = ray.get(ready[0])
            self._deal()
            return None
        actor, number, attempt = self._running.pop(ready[0])
        self._at_hand[actor] -= 1
        try:
            return number, attempt, ray.get(ready[0]), None
        except (ray.exceptions.RayActorError, ray.exceptions.ObjectLostError) as error:
            # Whatever it is dealt before it is there again would be lost as well.
            if actor not in self._coming.values():
                self._coming[self._is_ready(actor)] = actor
            return number, attempt, None, str(error).strip().splitlines()[0]
        finally:
            self._deal()

    def end(self) -> None:
        """End all tasks of the job."""
        self._waiting.clear()
        for running in self._running:
            with contextlib.suppress(Exception):
                self._ray.cancel(running, force=False)
        self._running.clear()
        self._at_hand = [0] * len(self._actors)
        self._description = []


def _version() -> str:
    import tidemill

    return tidemill.__version__
