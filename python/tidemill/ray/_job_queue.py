"""The queue of a master's jobs, with priorities, limits and suspension.

::

    waiting ──► running ──► done, failed, cancelled
       ▲           │
       │           ▼
       └────── suspended

A job waits for a place, and the highest priority goes first. Higher priorities have more places, so
that jobs of lower priorities never block them. A running job whose client does not read is
suspended, which frees its place for the next job. Once the client has read all sent bytes, the job
waits again, before later jobs of its priority. Suspended jobs keep their memory, so their number is
limited. Beyond the limit the queue evicts a job of the peer with the most suspended jobs: the one
whose client has not read for the longest.

A peer is the address of a client's machine. Each peer has a maximum number of jobs in any state.
"""

from __future__ import annotations

import collections
import hmac
import ipaddress
import itertools
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

#: Number of running jobs at which no further job of priority low, normal or high starts.
RUNNING_MAX = (4, 8, 12)

#: Maximum number of jobs that wait for their first turn.
WAITING_MAX = 64

#: Maximum number of jobs that are suspended, or wait again after a suspension.
SUSPENDED_MAX = 12

#: Maximum number of jobs of a peer. Further requests are refused with 429.
JOBS_PER_PEER_MAX = 32

#: Maximum number of ended jobs that are listed.
ENDED_MAX = 100

PRIORITIES = ("low", "normal", "high")


class RefusedError(Exception):
    """A refused request: an HTTP status, a message and a hint."""

    def __init__(self, status: int, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.hint = hint


class Answering(Protocol):
    """A run of the engine whose messages are frames."""

    @property
    def priority(self) -> int:
        """0, 1 or 2; the highest goes first."""

    @property
    def verb(self) -> str:
        """``query``, ``run`` or ``convert``."""

    @property
    def shown(self) -> str:
        """The statement, without secrets."""

    def begin(self, workers: object, memory_bytes: int) -> None:
        """Begin the run."""

    def next(self, seconds: float) -> bytes | None:
        """Return the next frames; empty bytes if there are none yet, None after the last."""

    def cancel(self) -> None:
        """End the run."""

    def is_enough(self) -> None:
        """Take the answer as it stands for the result."""

    def has_ended(self) -> bool:
        """Return true once `next` has returned the last frame."""

    def has_failed(self) -> bool:
        """Return true if the last frame is an error."""

    def began(self, id: int, /) -> bytes:
        """Return the frame with a job's number."""

    def waiting(self, before: int, /) -> bytes:
        """Return the frame with the number of jobs that come first."""

    def failed(self, why: str, /) -> bytes:
        """Return the frame with an error of the master."""


@dataclass(frozen=True)
class Asker:
    """The client behind a request."""

    #: The address of the client's machine; for IPv6, its /64 network.
    peer: str
    #: Secret that identifies the client's own jobs; empty if the client sent none.
    client_id: str = ""
    #: True if the request has the admin token.
    is_admin: bool = False

    def owns(self, job: Job) -> bool:
        """Return true if a job is this client's own."""
        mine, theirs = self.client_id.encode(), job.asker.client_id.encode()
        return bool(mine) and hmac.compare_digest(mine, theirs)

    def may_change(self, job: Job) -> bool:
        """Return true if this client may see and end a job."""
        return self.is_admin or self.owns(job)


def peer_of(address: str) -> str:
    """Return the peer of an IP address: the address; for IPv6, its /64 network.

    One machine may have all addresses of such a network, so they count as one peer. So do all
    addresses of the loopback network.
    """
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address):
        found = found.ipv4_mapped or found
    if found.is_loopback:
        return "127.0.0.1"
    if isinstance(found, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((found, 64), strict=False))
    return str(found)


@dataclass(eq=False)
class Job:
    """A question, from its arrival until it leaves the list of ended jobs."""

    number: int
    asker: Asker
    verb: str
    priority: int
    shown: str
    #: The run; None once the job has ended.
    answering: Answering | None
    came: float
    state: str = "waiting"
    ended: float | None = None
    #: Time of the suspension, while the job is suspended.
    suspended_since: float | None = None
    #: True if the job was suspended and waits for a place again.
    is_resuming: bool = False
    #: The reason why the queue ends the job; None unless it does.
    eviction: str | None = None

    def described(self, asker: Asker, now: float) -> dict[str, Any]:
        """Return a description for an asker, without statement and peer unless it may see them."""
        until = now if self.ended is None else self.ended
        is_seen = asker.may_change(self)
        return {
            "id": self.number,
            "verb": self.verb,
            "state": self.state,
            "priority": PRIORITIES[self.priority],
            "seconds": round(until - self.came, 3),
            "peer": self.asker.peer if is_seen else None,
            "shown": self.shown if is_seen else None,
        }


def _order(job: Job) -> tuple[int, int]:
    return -job.priority, job.number


@dataclass(frozen=True)
class QueueLimits:
    """Maximum numbers of jobs."""

    running: tuple[int, int, int] = RUNNING_MAX
    waiting: int = WAITING_MAX
    suspended: int = SUSPENDED_MAX
    per_peer: int = JOBS_PER_PEER_MAX


@dataclass(eq=False)
class JobQueue:
    """The queue of a master's jobs. Its methods are thread-safe."""

    limits: QueueLimits = field(default_factory=QueueLimits)
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._changed = threading.Condition()
        self._numbers = itertools.count(1)
        self._waiting: list[Job] = []
        self._running: list[Job] = []
        self._suspended: list[Job] = []
        self._ended: collections.deque[Job] = collections.deque(maxlen=ENDED_MAX)
        self._ended_count = 0

    def enter(self, answering: Answering, asker: Asker) -> Job:
        """Add a job, which waits for its turn.

        Raises `RefusedError` if the peer has too many jobs (429) or too many jobs wait (503).
        """
        with self._changed:
            own = sum(job.asker.peer == asker.peer for job in self._present())
            if own >= self.limits.per_peer and not asker.is_admin:
                raise RefusedError(
                    429,
                    f"`{asker.peer}` has {own} jobs at this master; the maximum per peer is "
                    f"{self.limits.per_peer}",
                    "ask again once some have ended: tidemill cluster jobs; or start the master "
                    "with more: tidemill cluster up --max-jobs-per-peer",
                )
            if sum(not job.is_resuming for job in self._waiting) >= self.limits.waiting:
                raise RefusedError(
                    503,
                    f"{self.limits.waiting} jobs wait for their turn, and no more are taken",
                    "ask again once some have ended: tidemill cluster jobs",
                )
            told = (answering.verb, answering.priority, answering.shown)
            job = Job(next(self._numbers), asker, *told, answering, self.clock())
            self._waiting.append(job)
            self._admit()
            return job

    def wait_for_turn(self, job: Job, seconds: float) -> int | None:
        """Wait for a job's turn for some time; return None if it has come, else the jobs before."""
        with self._changed:
            if job.state != "running":
                self._changed.wait(seconds)
            if job.state == "running":
                return None
            return sum(_order(other) < _order(job) for other in self._waiting)

    def suspend(self, job: Job) -> None:
        """Free the place of a running job whose client does not read.

        If too many jobs are suspended, one of them is evicted, possibly this one.
        """
        with self._changed:
            self._running.remove(job)
            self._suspended.append(job)
            job.state, job.suspended_since = "suspended", self.clock()
            resuming = sum(job.is_resuming for job in self._waiting)
            kept = [job for job in self._suspended if job.eviction is None]
            if len(kept) + resuming > self.limits.suspended:
                count = collections.Counter(job.asker.peer for job in kept)
                evicted = max(
                    kept,
                    key=lambda job: (
                        count[job.asker.peer],
                        -(job.suspended_since or 0.0),
                        -job.number,
                    ),
                )
                evicted.eviction = (
                    f"its client does not read, and {self.limits.suspended} jobs, the maximum, "
                    "are suspended already"
                )
            self._admit()
            self._changed.notify_all()

    def resume(self, job: Job) -> None:
        """Make a suspended job wait for a place again, before later jobs of its priority.

        Its client reads again, so an eviction that was not carried out yet does not apply.
        """
        with self._changed:
            self._suspended.remove(job)
            job.eviction = None
            job.state, job.suspended_since, job.is_resuming = "waiting", None, True
            self._waiting.append(job)
            self._admit()

    def _admit(self) -> None:
        """Start waiting jobs in order, as long as there are places."""
        for job in sorted(self._waiting, key=_order):
            if len(self._running) >= self.limits.running[job.priority]:
                # Later jobs have no higher priority, so they have no place either.
                break
            self._waiting.remove(job)
            self._running.append(job)
            job.state, job.is_resuming = "running", False
            self._changed.notify_all()

    def leave(self, job: Job, state: str) -> None:
        """Record the end of a job."""
        with self._changed:
            for jobs in (self._waiting, self._running, self._suspended):
                if job in jobs:
                    jobs.remove(job)
            job.state, job.ended, job.answering = state, self.clock(), None
            self._ended.append(job)
            self._ended_count += 1
            self._admit()

    def is_enough(self, number: int, asker: Asker) -> None:
        """Make a job stop reading and answer with the rows read so far.

        Raises `RefusedError` if there is no such job (404), or it is not the asker's (403).
        """
        with self._changed:
            job = next((job for job in self._present() if job.number == number), None)
            if job is None or job.answering is None:
                raise RefusedError(404, "the job has ended")
            if not asker.may_change(job):
                raise RefusedError(
                    403,
                    f"job {number} was asked by another client, and the query token does not end "
                    "the jobs of others",
                    "the admin token does: tidemill cluster token --admin shows it where the "
                    "master was started",
                )
            job.answering.is_enough()

    def described(self, asker: Asker) -> list[dict[str, Any]]:
        """Return descriptions of all known jobs for an asker, the newest first."""
        with self._changed:
            jobs = sorted([*self._present(), *self._ended], key=lambda job: -job.number)
            now = self.clock()
            return [job.described(asker, now) for job in jobs]

    def counts(self) -> dict[str, int]:
        """Count the jobs by their state."""
        with self._changed:
            return {
                "running": len(self._running),
                "suspended": len(self._suspended),
                "waiting": len(self._waiting),
                "ended": self._ended_count,
            }

    def _present(self) -> list[Job]:
        return [*self._waiting, *self._running, *self._suspended]
