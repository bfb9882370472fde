"""Tasks on their way to actors of a Ray cluster, and what becomes of them.

Each actor has two calls at hand, so that it does not wait for the next; of the tasks that wait, the
largest is dealt first. A call is a task, or several that take no time. An actor that is gone (its
process was killed, its machine is down) is started anew by Ray, on any machine that has room; what
it had at hand is told to have been lost, and is dealt again by the engine, which counts how often.
When an actor has nothing to do, tasks that have been at hand elsewhere for much longer than others
took are given to it as well; the first to end counts.

Several queries of a process may be on a cluster at once, in threads of their own: the actors are
theirs together. Of those whose tasks wait the one of the highest priority is dealt next, and among
these the one that has the fewest calls in work. One of the threads waits for calls to end and sees
to all that have; the others wait for it.
"""

from __future__ import annotations

import atexit
import contextlib
import heapq
import importlib
import itertools
import os
import socket
import statistics
import sys
import threading
import time
import warnings
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tidemill._errors import MissingPackageError, UsageError
from tidemill.ray._files import NamedFile, SharedFile, Shelf

if TYPE_CHECKING:
    from types import ModuleType

#: An actor has so many calls at hand: one that it does, and the next.
_AT_HAND = 2

#: A call has so many tasks at most, …
_TASKS_MAX = 32

#: … that are expected to take so many seconds together, if it has more than one.
_CALL_SECONDS = 0.02

#: An actor has so many cores, unless a machine has fewer.
_CORES = 4

#: It is looked for machines that have come to the cluster after so many seconds.
_NEW_SECONDS = 5.0

#: What is asked of an actor that is being started anew is asked so often.
_RETRIES = 3

#: The first actor is waited for so many seconds …
_START_SECONDS = 30.0

#: … where a core is free for it, so many, …
_FREE_START_SECONDS = 180.0

#: … and all others so many more: the cluster may have no core for them now.
_OTHERS_SECONDS = 5.0

#: An actor that does not answer for so many seconds is given nothing until it does.
_ANSWER_SECONDS = 2.0

#: A task is slow after so many times what tasks take in the middle, …
_SLOW_FACTOR = 3.0

#: … and so many seconds at least; while none has ended, after so many.
_SLOW_SECONDS = 1.0
_SLOW_FIRST_SECONDS = 10.0

#: One that is larger than others may take up to so many times as long.
_SLOW_LARGE = 4.0

#: What tasks take in the middle is that of so many.
_TOOK = 64

#: Where several queries wait, what others have dealt is looked at after so many seconds.
_TOGETHER_SECONDS = 0.005

#: Threads of an actor that answer beside its tasks.
_CONTROL = "control"

_sessions = itertools.count()
_connected: dict[str, RayWorkers] = {}
# Held while workers start: queries may ask for the same ones on threads of their own.
_connecting = threading.Lock()


def _ray() -> ModuleType:
    """Ray, or what to do about it."""
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise MissingPackageError(
            f"Ray is not installed for {sys.executable}\nhint: pip install 'tidemill[ray]'"
        ) from error


def _start_ray(ray: ModuleType, address: str | None, *, may_start: bool = True) -> None:
    """Connect this process to a cluster; to one that is started here, if that may be."""
    # A cluster that is started here tells nobody of it.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if ray.is_initialized():
        return
    address = address or os.environ.get("RAY_ADDRESS") or (None if may_start else "auto")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            ray.init(
                address=address,
                namespace="tidemill",
                log_to_driver=False,
                logging_level="error",
                include_dashboard=False if address is None else None,
            )
        except (ConnectionError, RuntimeError) as error:
            if not _asks_for_token(error):
                raise
            raise UsageError(
                f"the Ray cluster at `{address}` asks for its token\nhint: set "
                "RAY_AUTH_MODE=token, with the token in ~/.ray/auth_token or in RAY_AUTH_TOKEN; "
                "Ray sends none to an address that is named unless it is told to"
            ) from None


def _asks_for_token(error: BaseException | None) -> bool:
    """Whether a cluster was not reached for want of a token."""
    while error is not None:
        if type(error).__name__ == "AuthenticationError" or "InvalidAuthToken" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False


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
    with _connecting:
        workers = _connected.get(key)
        if workers is None or not workers.is_connected():
            # Those with other memory that nobody uses hold the cores that these need.
            for other, idle in list(_connected.items()):
                is_own = other.startswith(f"{on} ") and other.endswith(f" {os.getpid()}")
                if is_own and idle.is_idle():
                    del _connected[other]
                    idle.close()
            workers = RayWorkers(on, memory=memory)
            _connected[key] = workers
    return workers


def disconnect() -> None:
    """Give back the cores that this process has on clusters; the next query takes some again."""
    while _connected:
        _, workers = _connected.popitem()
        workers.close()


@dataclass(eq=False)
class _Job:
    """A query's tasks have it in common."""

    number: int
    #: The description as an object of the store. In a list it is fetched by an actor, once a
    #: machine, and does not come with the call.
    description: list[Any]
    secrets: dict[str, str]
    #: What its programs find by name, as objects of the store.
    files: list[SharedFile]
    #: The highest is dealt first.
    priority: int = 1
    #: The actors that were told of it, by the call that did.
    told: dict[int, Any] = field(default_factory=dict)
    #: Tasks that nobody does, the largest first.
    waiting: list[tuple[int, int, int, _Task]] = field(default_factory=list)
    #: Calls of actors that do tasks of it.
    in_work: int = 0
    #: What is to be told of tasks.
    done: deque[tuple[int, int, bytes | None, str | None, str]] = field(default_factory=deque)
    #: What tasks took lately, in seconds.
    took: deque[float] = field(default_factory=lambda: deque(maxlen=_TOOK))
    #: What calls took, and how large their tasks were.
    calls: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=_TOOK))
    #: Why it cannot be done, if an actor says so.
    refused: Exception | None = None
    #: Set while the job is suspended and none of its tasks are dealt.
    suspended: threading.Event = field(default_factory=threading.Event)

    @property
    def has_dealable_tasks(self) -> bool:
        """True if an actor may be given a task of this job."""
        return bool(self.waiting) and not self.suspended.is_set()

    def wait(self, task: _Task) -> None:
        """Put a task to those that nobody does."""
        heapq.heappush(self.waiting, (-task.size, task.number, task.attempt, task))

    def next_tasks(self, actors: int) -> list[_Task]:
        """Take the largest of the tasks that wait, and more if they take no time."""
        *_, first = heapq.heappop(self.waiting)
        tasks = [first]
        if first.attempt > 0 or not self.took:
            # One that was lost may take with it whatever it is called with.
            return tasks
        fitting = _CALL_SECONDS / max(statistics.median(self.took), 1e-6)
        most = min(_TASKS_MAX, int(fitting), len(self.waiting) // (_AT_HAND * actors))
        while len(tasks) < most and self.waiting[0][-1].attempt == 0:
            tasks.append(heapq.heappop(self.waiting)[-1])
        return tasks

    def slow_after(self, tasks: list[_Task]) -> float:
        """After how many seconds a call of tasks is slow: more for what is larger than others."""
        if not self.took:
            return _SLOW_FIRST_SECONDS
        usual = max(_SLOW_SECONDS, _SLOW_FACTOR * statistics.median(self.took) * len(tasks))
        seconds = sum(seconds for seconds, _ in self.calls)
        size = sum(size for _, size in self.calls)
        by_size = _SLOW_FACTOR * seconds * sum(task.size for task in tasks) / max(size, 1)
        # What small tasks took says little of a large one.
        return max(usual, min(by_size, _SLOW_LARGE * usual))


@dataclass(eq=False)
class _Task:
    """A task that was handed in."""

    job: _Job
    number: int
    attempt: int
    size: int
    name: str
    content: bytes
    #: Whether somebody has done it, or nobody waits for it any more.
    has_ended: bool = False
    #: The calls of actors that do it.
    calls: list[Any] = field(default_factory=list)
    #: How many actors were told to do it.
    told: int = 0


@dataclass
class _Call:
    """Tasks of one job at an actor."""

    actor: int
    tasks: list[_Task]
    began: float

    @property
    def job(self) -> _Job:
        """What they are of."""
        return self.tasks[0].job

    def in_work(self) -> list[_Task]:
        """Those of which somebody waits for the end."""
        return [task for task in self.tasks if not task.has_ended]


class RayJob:
    """A query's own side of the workers, which the engine asks."""

    def __init__(self, workers: RayWorkers, priority: int) -> None:
        self._workers = workers
        self._priority = priority
        self._suspended = threading.Event()
        self._job: _Job | None = None

    def suspend(self) -> None:
        """Deal none of the query's tasks until `resume`; actors finish the tasks that they have."""
        self._suspended.set()

    def resume(self) -> None:
        """Deal the query's tasks again."""
        self._suspended.clear()
        self._workers.deal()

    def reach(self) -> tuple[int, int, int, bool]:
        """Give how many machines, workers and threads there are; whether all are here."""
        return self._workers.reach()

    def begin(
        self,
        job: bytes,
        secrets: Mapping[str, str],
        paths: Sequence[str],
        files: Sequence[NamedFile] = (),
    ) -> None:
        """Say what all tasks that follow are of, how stores are reached, and what programs find.

        Secrets go to each worker with a call, and are in memory alone: what is put into the store
        may be spilled.
        """
        self.end()
        begun = self._workers.begin(job, secrets, paths, files, self._priority, self._suspended)
        self._job = begun

    def submit(self, number: int, attempt: int, size: int, name: str, content: bytes) -> None:
        """Hand in a task."""
        assert self._job is not None
        self._workers.submit(_Task(self._job, number, attempt, size, name, content))

    def next(self, seconds: float) -> tuple[int, int, bytes | None, str | None, str] | None:
        """Give what became of a task; None where nothing has after so long."""
        assert self._job is not None
        return self._workers.next(self._job, seconds)

    def end(self) -> None:
        """End all tasks of the job."""
        if self._job is not None:
            self._workers.end(self._job)
            self._job = None


class RayWorkers:
    """Actors of a cluster, each of which holds the engine."""

    def __init__(
        self,
        on: str,
        *,
        memory: int | None,
        most: int | None = None,
        confined: tuple[list[str], bool] | None = None,
    ) -> None:
        self._ray = _ray()
        # Held by the query that deals; it is let go of while it is waited for calls to end.
        self._lock = threading.Condition(threading.RLock())
        # Whether one of the queries waits for calls to end.
        self._is_waited = False
        self._jobs: list[_Job] = []
        self._running: dict[Any, _Call] = {}
        self._actors: list[Any] = []
        self._at_hand: list[int] = []
        self._threads: list[int] = []
        self._places: list[tuple[str, int, str]] = []
        # Actors that are being started anew or do not answer, by the call that tells when they are
        # there, with the job that asked for paths by it.
        self._coming: dict[Any, tuple[int, _Job | None]] = {}
        # The machines on which actors were started, when it was last looked for others, and how
        # many actors there are to be at most.
        self._nodes: set[str] = set()
        self._gone: set[int] = set()
        self._looked = 0.0
        self._most = most
        #: Files that were put into the store.
        self.shelf = Shelf(self._ray)
        self._start(on, memory, confined)

    def _start(
        self,
        on: str,
        memory: int | None,
        confined: tuple[list[str], bool] | None,
    ) -> None:
        ray = self._ray
        _start_ray(ray, None if on == "ray" else on)
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        from tidemill.ray._actor import Worker

        remote = ray.remote(concurrency_groups={_CONTROL: 1})(Worker)
        version = _version()

        def start(node: str, threads: int) -> Any:
            strategy = NodeAffinitySchedulingStrategy(node, soft=True)
            options = {"num_cpus": threads, "max_restarts": -1, "scheduling_strategy": strategy}
            return remote.options(**options).remote(version, memory, threads, confined)

        self._start_actor = start
        free = ray.available_resources().get("CPU", 0)
        self._looked = time.monotonic()
        self._add_new(ray.nodes())
        self._keep_ready(is_free=free >= 1)

    def _add_new(self, nodes: list[dict[str, Any]]) -> list[int]:
        """Start actors on machines on which none were started, and give their places."""
        first = len(self._actors)
        for node in nodes:
            name = node["NodeID"]
            if not node["Alive"] or name in self._nodes:
                continue
            self._nodes.add(name)
            cores = int(node["Resources"].get("CPU", 0))
            while cores > 0 and (self._most is None or len(self._actors) < self._most):
                threads = min(cores, _CORES)
                cores -= threads
                self._actors.append(self._start_actor(name, threads))
                self._at_hand.append(0)
                self._threads.append(threads)
        return list(range(first, len(self._actors)))

    def _look_for_new(self) -> None:
        """Use machines that have come to the cluster since it was last looked."""
        with self._lock:
            if time.monotonic() - self._looked < _NEW_SECONDS:
                return
            self._looked = time.monotonic()
        # Without the lock: the cluster's control store may be slow.
        nodes = self._ray.nodes()
        with self._lock:
            for actor in self._add_new(nodes):
                # A new actor gets no tasks until it has answered.
                self._places.append(("", 0, ""))
                self._coming[self._is_ready(actor)] = (actor, None)

    def _keep_ready(self, *, is_free: bool = False) -> None:
        """Wait for the actors, and go without those for which the cluster has no core now.

        Where a core was free, the first one is starting, which is waited for longer.
        """
        ray = self._ray
        asked = {actor.ready.remote(): place for place, actor in enumerate(self._actors)}
        seconds = _FREE_START_SECONDS if is_free else _START_SECONDS
        found = self._found(asked, seconds, _OTHERS_SECONDS)
        is_there = [place in found for place in range(len(self._actors))]
        for actor, is_it in zip(self._actors, is_there, strict=True):
            if not is_it:
                ray.kill(actor)
        self._actors = list(itertools.compress(self._actors, is_there))
        self._threads = list(itertools.compress(self._threads, is_there))
        self._at_hand = [0] * len(self._actors)
        if not self._actors and is_free:
            raise UsageError(
                f"no worker has started within {seconds:.0f} seconds, though a core of the cluster "
                "was free\nhint: its machines are busy, or read their Python slowly; try again"
            )
        if not self._actors:
            cores = int(ray.cluster_resources().get("CPU", 0))
            raise UsageError(
                f"no core of the cluster is free: all {cores} are reserved by others\nhint: wait "
                "for them; in Python, tidemill.ray.disconnect() gives back what a session has"
            )
        self._places = [found[place] for place in sorted(found)]

    def _found(
        self, asked: dict[Any, int], seconds: float, others: float
    ) -> dict[int, tuple[str, int, str]]:
        """Give where actors are that were asked; of the first it is waited for so long.

        One whose process was killed meanwhile is started anew by Ray, and is asked again.
        """
        ray = self._ray
        found: dict[int, tuple[str, int, str]] = {}
        until = time.monotonic() + seconds
        while asked and (left := until - time.monotonic()) > 0:
            calls, _ = ray.wait(list(asked), num_returns=1, timeout=left)
            for call in calls:
                place = asked.pop(call)
                try:
                    told = ray.get(call)
                except ray.exceptions.ActorUnavailableError:
                    asked[self._is_ready(place)] = place
                    continue
                if not found:
                    until = min(until, time.monotonic() + others)
                found[place] = told
        return found

    def close(self) -> None:
        """End the actors, whose cores are others' then."""
        for job in list(self._jobs):
            self.end(job)
        self._leave()
        for actor in self._actors:
            with contextlib.suppress(Exception):
                self._ray.kill(actor)
        self._actors = []
        self._threads = []

    def _leave(self) -> None:
        """Have the machines remove the files of this session."""
        if self.shelf.reads and self._actors and self.is_connected():
            with contextlib.suppress(Exception):
                asked = [self._ask(place, "leave").remote() for place in self._there()]
                self._ray.wait(asked, num_returns=len(asked), timeout=_ANSWER_SECONDS)

    def look(self) -> None:
        """See which processes the workers are now: one that was killed is another."""
        with self._lock:
            asked = {self._is_ready(place): place for place in self._there()}
        found = self._found(asked, _START_SECONDS, _START_SECONDS)
        with self._lock:
            for place, told in found.items():
                self._places[place] = told

    def _ask(self, actor: int, method: str) -> Any:
        """Give a method that is called beside tasks; of an actor that is being started anew too."""
        called = getattr(self._actors[actor], method)
        return called.options(concurrency_group=_CONTROL, max_task_retries=_RETRIES)

    def _is_ready(self, actor: int) -> Any:
        """Ask whether an actor is there; one that is being started anew answers when it is."""
        return self._ask(actor, "ready").remote()

    def is_idle(self) -> bool:
        """Whether nobody has anything done."""
        return not self._jobs

    def is_connected(self) -> bool:
        """Whether the cluster is still there."""
        return bool(self._ray.is_initialized())

    def places(self) -> list[tuple[str, int]]:
        """Give the machine and the process of each."""
        return [place[:2] for place in self._places if place[2]]

    def reach(self) -> tuple[int, int, int, bool]:
        """Give how many machines, workers and threads there are; whether all are here."""
        with self._lock:
            at = self._there()
            there = [self._places[actor] for actor in at]
            threads = [self._threads[actor] for actor in at]
        machines = {node for _, _, node in there}
        is_here = {name for name, _, _ in there} == {socket.gethostname()}
        return len(machines), len(there), sum(threads), is_here

    def job(self, priority: int = 1) -> RayJob:
        """Give a query its own side: tasks of the highest priority are dealt first."""
        return RayJob(self, priority)

    def begin(
        self,
        job: bytes,
        secrets: Mapping[str, str],
        paths: Sequence[str],
        files: Sequence[NamedFile] = (),
        priority: int = 1,
        suspended: threading.Event | None = None,
    ) -> _Job:
        """Add a job. Its tasks are submitted after this call.

        Waits for the cluster without holding the lock, so that other queries can deal tasks
        meanwhile.
        """
        if files and not self.shelf.reads:
            # Before Ray's own, which was told earlier.
            atexit.register(self._leave)
        shared = self.shelf.put(files)
        description = [self._ray.put(job)]
        begun = _Job(next(_sessions), description, dict(secrets), shared, priority)
        if suspended is not None:
            begun.suspended = suspended
        self._look_for_new()
        self._check(begun, paths)
        with self._lock:
            self._refuse(begun)
            self._jobs.append(begun)
            self._lock.notify_all()
        return begun

    def _check(self, job: _Job, paths: Sequence[str]) -> None:
        """Check that each machine sees the paths; actors that do not answer get no tasks yet.

        Waits for the actors without holding the lock; they can run tasks of other jobs meanwhile.
        """
        with self._lock:
            asked = {
                self._ask(actor, "missing").remote(list(paths)): actor for actor in self._there()
            }
        if not asked:
            return
        there, late = self._ray.wait(list(asked), num_returns=len(asked), timeout=_ANSWER_SECONDS)
        with self._lock:
            for call in late:
                self._coming[call] = (asked[call], job)
            for call in there:
                self._has_answered(call, asked[call], job)

    def _has_come(self, call: Any) -> None:
        """Handle the answer of an actor that was late."""
        actor, job = self._coming.pop(call)
        self._has_answered(call, actor, job)

    def _has_answered(self, call: Any, actor: int, job: _Job | None) -> None:
        """Handle an actor's answer: its place, or paths that it does not see."""
        try:
            told = self._ray.get(call)
        except self._ray.exceptions.RayActorError:
            if self._places[actor][2]:
                self._forgets(actor)
            else:
                # It has never been there, and will not be: another release is on its machine.
                self._gone.add(actor)
            return
        if isinstance(told, tuple):
            self._places[actor] = told
        elif told and job is not None:
            machine = self._places[actor][0]
            job.refused = UsageError(
                f"`{told[0]}` is not on `{machine}`, where a worker would read it\nhint: a path "
                "has to be seen by every machine, as in a network file system; or read from a "
                "bucket"
            )

    def _forgets(self, actor: int) -> None:
        """Note that an actor is being started anew, and knows no job then."""
        for job in self._jobs:
            job.told.pop(actor, None)
        if actor not in self._away():
            self._coming[self._is_ready(actor)] = (actor, None)

    def _refuse(self, job: _Job) -> None:
        if job.refused is not None:
            raise job.refused

    def _heard(self, job: _Job, told: Any) -> None:
        """Note what an actor says of the job that it was told, if it refused it."""
        try:
            self._ray.get(told)
        except self._ray.exceptions.RayActorError:
            pass
        except Exception as error:
            job.refused = error

    def _away(self) -> set[int]:
        return {actor for actor, _ in self._coming.values()}

    def _there(self) -> list[int]:
        away = self._away() | self._gone
        return [actor for actor in range(len(self._actors)) if actor not in away]

    def submit(self, task: _Task) -> None:
        """Hand in a task."""
        with self._lock:
            task.job.wait(task)
            self._deal()
            self._lock.notify_all()

    def deal(self) -> None:
        """Give waiting tasks to actors with free capacity."""
        with self._lock:
            self._deal()
            self._lock.notify_all()

    def _deal(self) -> None:
        there = self._there()
        while there:
            waiting = [job for job in self._jobs if job.has_dealable_tasks]
            actor = min(there, key=lambda place: (self._at_hand[place], -self._threads[place]))
            if not waiting or self._at_hand[actor] >= _AT_HAND:
                return
            job = min(waiting, key=lambda job: (-job.priority, job.in_work))
            self._call(actor, job.next_tasks(len(there)))

    def _call(self, actor: int, tasks: list[_Task]) -> None:
        job = tasks[0].job
        if actor not in job.told:
            # Before the tasks: calls of one caller are done in their order.
            told = self._actors[actor].begin
            of_job = (job.description, job.secrets, job.files)
            job.told[actor] = told.remote(job.number, *of_job)
        more = f" and {len(tasks) - 1} more" if len(tasks) > 1 else ""
        run = self._actors[actor].run.options(name=f"tidemill {tasks[0].name}{more}")
        # What two write at the same time must not be the same.
        copies = [task.told for task in tasks]
        call = run.remote(job.number, [task.content for task in tasks], copies)
        for task in tasks:
            task.calls.append(call)
            task.told += 1
        job.in_work += 1
        self._at_hand[actor] += 1
        self._running[call] = _Call(actor, tasks, time.monotonic())

    def _second_starts(self) -> None:
        """Have those without a task do what is slow elsewhere."""
        if any(job.has_dealable_tasks for job in self._jobs):
            return
        idle = [place for place in self._there() if self._at_hand[place] == 0]
        if not idle:
            return
        now = time.monotonic()
        once = [
            (call.began, [task for task in call.in_work() if len(task.calls) == 1])
            for call in self._running.values()
            if now - call.began > call.job.slow_after(call.tasks)
        ]
        slow = [(began, tasks) for began, tasks in once if tasks]
        slow.sort(key=lambda it: it[0])
        for actor, (_, tasks) in zip(idle, slow, strict=False):
            self._call(actor, tasks)

    def next(
        self, job: _Job, seconds: float
    ) -> tuple[int, int, bytes | None, str | None, str] | None:
        """Give what became of a task of a job; None where nothing has after so long."""
        with self._lock:
            if not job.done and job.refused is None:
                if self._is_waited:
                    # The thread that waits for calls handles those of all jobs.
                    self._lock.wait_for(lambda: self._is_over(job) or not self._is_waited, seconds)
                elif self._has_calls:
                    self._take_in(seconds)
                else:
                    # No actor has a task: the job is suspended, or has none.
                    self._lock.wait_for(lambda: self._is_over(job) or self._has_calls, seconds)
            self._refuse(job)
            return job.done.popleft() if job.done else None

    @property
    def _has_calls(self) -> bool:
        """True if an actor has tasks or is being waited for."""
        return bool(self._running or self._coming)

    def _is_over(self, job: _Job) -> bool:
        """Return true if the wait for a job's next task is over, or the job has ended."""
        return bool(job.done) or job.refused is not None or job not in self._jobs

    def _take_in(self, seconds: float) -> None:
        """Wait for calls to end, and see to those that have; others may deal meanwhile."""
        calls = [*self._running, *self._coming]
        if len(self._jobs) > 1:
            seconds = min(seconds, _TOGETHER_SECONDS)
        self._is_waited = True
        self._lock.release()
        try:
            ready = self._ready(calls, seconds)
        finally:
            self._lock.acquire()
            self._is_waited = False
        for call in ready:
            if call in self._coming:
                self._has_come(call)
            elif call in self._running:
                self._has_ended(call)
        self._deal()
        self._second_starts()
        self._lock.notify_all()

    def _ready(self, calls: list[Any], seconds: float) -> list[Any]:
        """Give the calls that have ended, once one has or the time is over."""
        ray = self._ray
        ready, _ = ray.wait(calls, num_returns=1, timeout=seconds)
        if ready:
            # Whatever else has ended is taken in at once.
            ready, _ = ray.wait(calls, num_returns=len(calls), timeout=0)
        return list(ready)

    def _has_ended(self, call: Any) -> None:
        """Take what came of tasks at an actor."""
        ray = self._ray
        ended = self._running.pop(call)
        job, where = ended.job, ":".join(map(str, self._places[ended.actor][:2]))
        job.in_work -= 1
        self._at_hand[ended.actor] -= 1
        for task in ended.tasks:
            task.calls.remove(call)
        tasks = ended.in_work()
        try:
            # What others have done by now is not fetched.
            parts = ray.get(call) if tasks else None
        except (ray.exceptions.RayActorError, ray.exceptions.ObjectLostError) as error:
            # Whatever it is dealt before it is there again would be lost as well.
            self._forgets(ended.actor)
            why = str(error).strip().splitlines()[0]
            for task in tasks:
                if not task.calls:
                    task.has_ended = True
                    job.done.append((task.number, task.attempt, None, why, where))
            return
        except Exception as error:
            # It is told to whoever asked, which may be another thread.
            job.refused = error
            return
        if not tasks:
            return
        if parts is None:
            # It was started anew and was not told of the job; or could not take it, and says why.
            told = job.told.pop(ended.actor, None)
            if told is not None:
                self._heard(job, told)
            for task in tasks:
                job.wait(task)
            return
        seconds = time.monotonic() - ended.began
        job.took.append(seconds / len(ended.tasks))
        job.calls.append((seconds, sum(task.size for task in ended.tasks)))
        for task, part in zip(ended.tasks, parts, strict=True):
            if not task.has_ended:
                task.has_ended = True
                job.done.append((task.number, task.attempt, part, None, where))

    def end(self, job: _Job) -> None:
        """End all tasks of a job."""
        with self._lock:
            if job in self._jobs:
                self._jobs.remove(job)
            job.waiting.clear()
            job.done.clear()
            # An actor has them at hand until it says that they ended, at once when told. Calls
            # are not cancelled: one that has not been sent yet leaves a gap behind, for which all
            # later calls of its actor wait half a minute.
            for running in self._running.values():
                if running.job is job:
                    for task in running.tasks:
                        task.has_ended = True
            for actor in job.told:
                with contextlib.suppress(Exception):
                    self._ask(actor, "end").remote(job.number)
            job.description = []
            job.files = []
            self._lock.notify_all()


def _version() -> str:
    import tidemill

    return tidemill.__version__
