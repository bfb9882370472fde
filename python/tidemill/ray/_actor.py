"""What runs in a process of the cluster: the engine, with one job at a time."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from typing import Any

import tidemill
from tidemill import _tidemill


class Worker:
    """The engine in a process of the cluster, kept for all jobs of a session.

    Tasks are done one after the other; what is asked beside them is answered by another thread.
    """

    def __init__(self, version: str, memory: int | None, threads: int) -> None:
        if tidemill.__version__ != version:
            msg = (
                f"tidemill {tidemill.__version__} is on {socket.gethostname()}, not {version}: "
                "the same release has to be on all machines"
            )
            raise RuntimeError(msg)
        # Half of the machine's memory is its workers', by their cores.
        all_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        share = threads / max(os.cpu_count() or 1, threads)
        self._memory = memory or max(int(all_bytes / 2 * share), 64 << 20)
        self._threads = threads
        self._job = -1
        self._ended = -1
        self._worker: _tidemill.RawWorker | None = None

    def ready(self) -> tuple[str, int, str]:
        """Give the name of its machine, its process, and the node of the cluster."""
        import ray

        return socket.gethostname(), os.getpid(), ray.get_runtime_context().get_node_id()

    def missing(self, paths: Sequence[str]) -> list[str]:
        """Give those of the paths that are not on its machine."""
        return [path for path in paths if not os.path.exists(path)]

    def begin(self, job: int, description: Sequence[Any], secrets: Mapping[str, str]) -> None:
        """Take the job that tasks behind this are of; its description is an object of the store."""
        if job <= self._ended:
            return
        import ray

        # What it had before is let go of first.
        self._worker = None
        content = bytes(ray.get(description[0]))
        self._worker = _tidemill.RawWorker(content, self._memory, self._threads, [], dict(secrets))
        self._job = job

    def run(self, job: int, tasks: Sequence[bytes]) -> list[bytes] | None:
        """Do tasks of a job; None where it was not told of the job, or the job has ended."""
        worker = self._worker
        parts = []
        for task in tasks:
            if worker is None or job != self._job or job <= self._ended:
                return None
            parts.append(worker.run(task))
        return parts

    def end(self, job: int) -> None:
        """End what is done for a job: nobody waits for it any more."""
        self._ended = max(self._ended, job)
        worker = self._worker
        if worker is not None and self._job <= job:
            worker.cancel()
