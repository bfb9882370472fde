"""What runs in a process of the cluster: the engine, with the jobs that are told."""

from __future__ import annotations

import os
import socket
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import tidemill
from tidemill import _tidemill
from tidemill.ray._files import MachineFolder, SharedFile

#: So many jobs are kept; the one that was told first is let go of.
_JOBS_MAX = 16

#: Of so many jobs it is known that they have ended, if what they are comes later.
_ENDED_MAX = 256


class Worker:
    """The engine in a process of the cluster, kept for all jobs of a session.

    Tasks are done one after the other; what is asked beside them is answered by another thread.
    """

    def __init__(
        self,
        version: str,
        memory: int | None,
        threads: int,
        confined: tuple[list[str], bool] | None = None,
    ) -> None:
        if tidemill.__version__ != version:
            msg = (
                f"tidemill {tidemill.__version__} is on {socket.gethostname()}, not {version}: "
                "the same release has to be on all machines"
            )
            raise RuntimeError(msg)
        if confined is not None:
            _tidemill.confine(*confined)
        # Half of the machine's memory is its workers', by their cores.
        all_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        share = threads / max(os.cpu_count() or 1, threads)
        self._memory = memory or max(int(all_bytes / 2 * share), 64 << 20)
        self._threads = threads
        self._jobs: dict[int, _tidemill.RawWorker] = {}
        self._ended: deque[int] = deque(maxlen=_ENDED_MAX)
        # Made when a job has files.
        self._folder: MachineFolder | None = None

    def ready(self) -> tuple[str, int, str]:
        """Give the name of its machine, its process, and the node of the cluster."""
        import ray

        return socket.gethostname(), os.getpid(), ray.get_runtime_context().get_node_id()

    def missing(self, paths: Sequence[str]) -> list[str]:
        """Give those of the paths that are not on its machine."""
        return [path for path in paths if not os.path.exists(path)]

    def begin(
        self,
        job: int,
        description: Sequence[Any],
        secrets: Mapping[str, str],
        files: Sequence[SharedFile] = (),
    ) -> None:
        """Take the job that tasks behind this are of; its description is an object of the store."""
        if job in self._ended:
            return
        import ray

        # What there is too much of is let go of first.
        while len(self._jobs) >= _JOBS_MAX:
            self._jobs.pop(next(iter(self._jobs)))
        paths = [(file.name, self._path(file)) for file in files]
        content = bytes(ray.get(description[0]))
        limits = (self._memory, self._threads)
        worker = _tidemill.RawWorker(content, *limits, [], dict(secrets), paths)
        self._jobs[job] = worker

    def _path(self, file: SharedFile) -> str:
        """Give where a file is on the machine."""
        import ray

        if self._folder is None:
            self._folder = MachineFolder(ray.get_runtime_context().get_node_id())
        return self._folder.path(file, ray.get)

    def written(self) -> dict[str, float]:
        """Give the files that it has put together for its machine, and the seconds that took."""
        return {} if self._folder is None else self._folder.written

    def leave(self) -> None:
        """Let go of the machine's files: no job needs them any more."""
        if self._folder is not None:
            self._folder.leave()
            self._folder = None

    def run(self, job: int, tasks: Sequence[bytes], copies: Sequence[int]) -> list[bytes] | None:
        """Do tasks of a job; None where it does not know the job, or that has ended.

        Behind the tasks it is said how many others were told to do each before.
        """
        parts = []
        for task, copy in zip(tasks, copies, strict=True):
            worker = self._jobs.get(job)
            if worker is None or job in self._ended:
                return None
            parts.append(worker.run(task, copy))
        return parts

    def end(self, job: int) -> None:
        """End what is done for a job: nobody waits for it any more."""
        self._ended.append(job)
        worker = self._jobs.pop(job, None)
        if worker is not None:
            worker.cancel()
