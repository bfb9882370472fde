"""What a master answers over HTTP (``docs/formats/posted.md``).

A request is read within a time and a size, its token is compared before anything else of it is
looked at, and a connection has one request. What is posted is judged by the engine, waits for its
turn, and is answered in pieces while it runs; a client that closes its connection ends it.

Jobs of a higher priority have more places, so that one is never kept from starting by those below.
"""

from __future__ import annotations

import collections
import contextlib
import hmac
import itertools
import json
import math
import re
import select
import socket
import socketserver
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tidemill import _tidemill
from tidemill._errors import TidemillError
from tidemill.ray._workers import RayWorkers, _version

#: A request's line and headers have so many bytes at most, …
_HEAD_BYTES_MAX = 16 << 10

#: … and its body: a question.
_BODY_BYTES_MAX = 1 << 20

#: A request is there within so many seconds.
_REQUEST_SECONDS = 10.0

#: A client that takes nothing for so many seconds is gone: somebody may look at the first page.
_TAKE_SECONDS = 600.0

#: So many connections may be without a token that was looked at; of more, the first is closed.
_STRANGERS_MAX = 64

#: So many jobs run at once, by priority: low, normal, high; and so many wait.
_RUNNING_MAX = (4, 8, 12)
_WAITING_MAX = 64

#: So many jobs that have ended are told of.
_ENDED_MAX = 100

#: How often it is looked whether a client is still there, in seconds.
_TICK = 0.05

#: How often a client that waits for its turn hears of it.
_WAITING_SECONDS = 1.0

#: Where it is said that what a job has is enough.
_ENOUGH = re.compile(r"/v1/jobs/([0-9]{1,15})/enough")

_PRIORITIES = ("low", "normal", "high")

_REASONS = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    411: "Length Required",
    413: "Content Too Large",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}


class _RefusedError(Exception):
    """That a request is refused: the status, and why."""

    def __init__(self, status: int, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.hint = hint


class _GoneError(Exception):
    """That whoever has asked is gone."""


@dataclass(eq=False)
class _Job:
    """A question, from when it came until it is forgotten."""

    number: int
    verb: str
    priority: int
    shown: str
    answering: _tidemill.RawAnswering | None
    state: str = "waiting"
    came: float = field(default_factory=time.monotonic)
    ended: float | None = None

    def told(self) -> dict[str, Any]:
        """Tell of it."""
        until = time.monotonic() if self.ended is None else self.ended
        return {
            "id": self.number,
            "verb": self.verb,
            "state": self.state,
            "priority": _PRIORITIES[self.priority],
            "seconds": round(until - self.came, 3),
            "shown": self.shown,
        }


class _Book:
    """Which jobs there are, and whose turn it is."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._numbers = itertools.count(1)
        self._waiting: list[_Job] = []
        self._running: list[_Job] = []
        self._ended: collections.deque[_Job] = collections.deque(maxlen=_ENDED_MAX)
        self._count = 0

    def enter(self, answering: _tidemill.RawAnswering) -> _Job:
        """Take a job that waits for its turn."""
        with self._changed:
            if len(self._waiting) >= _WAITING_MAX:
                raise _RefusedError(
                    503,
                    f"{_WAITING_MAX} jobs wait for their turn, and no more are taken",
                    "ask again once some have ended: tidemill cluster jobs",
                )
            told = (answering.verb, answering.priority, answering.shown)
            job = _Job(next(self._numbers), *told, answering)
            self._waiting.append(job)
            return job

    def before(self, job: _Job, seconds: float) -> int | None:
        """Wait for a job's turn for a while; None once it has come, else how many are before."""
        with self._changed:
            if not self._starts(job):
                self._changed.wait(seconds)
                if not self._starts(job):
                    return sum(_order(other) < _order(job) for other in self._waiting)
            return None

    def _starts(self, job: _Job) -> bool:
        most = _RUNNING_MAX[job.priority]
        if min(self._waiting, key=_order) is not job or len(self._running) >= most:
            return False
        self._waiting.remove(job)
        self._running.append(job)
        job.state = "running"
        # The next may have room, too.
        self._changed.notify_all()
        return True

    def leave(self, job: _Job, state: str) -> None:
        """Note that a job has ended."""
        with self._changed:
            for jobs in (self._waiting, self._running):
                if job in jobs:
                    jobs.remove(job)
            job.state, job.ended, job.answering = state, time.monotonic(), None
            self._ended.append(job)
            self._count += 1
            self._changed.notify_all()

    def is_enough(self, number: int) -> bool:
        """Have a job take its answer as it stands; tell whether it is there."""
        with self._changed:
            jobs = [job for job in (*self._waiting, *self._running) if job.number == number]
            for job in jobs:
                if job.answering is not None:
                    job.answering.is_enough()
            return bool(jobs)

    def told(self) -> list[dict[str, Any]]:
        """Tell of all that are known, the newest first."""
        with self._changed:
            jobs = [*self._waiting, *self._running, *self._ended]
            return [job.told() for job in sorted(jobs, key=lambda job: -job.number)]

    def counts(self) -> dict[str, int]:
        """Tell how many there are."""
        with self._changed:
            return {
                "running": len(self._running),
                "waiting": len(self._waiting),
                "ended": self._count,
            }


def _order(job: _Job) -> tuple[int, int]:
    return -job.priority, job.number


@dataclass
class _Request:
    """A request, without its body."""

    method: str
    path: str
    headers: dict[str, str]
    #: What of its body came with it.
    rest: bytes


class _Handler(socketserver.BaseRequestHandler):
    """A connection."""

    server: Service
    request: socket.socket

    def handle(self) -> None:
        """Read a request, and answer it."""
        until = time.monotonic() + _REQUEST_SECONDS
        with contextlib.suppress(OSError, _GoneError):
            try:
                with self.server.stranger(self.request):
                    self.server.secure(self, until)
                    request = self._read_head(until)
                    self._judge_token(request)
                self._answer(request, until)
            except _RefusedError as refused:
                told = {"message": refused.message, "hint": refused.hint}
                self._tell(refused.status, told)
                self._linger()

    def _answer(self, request: _Request, until: float) -> None:
        match request.method, request.path:
            case "GET", "/v1/status":
                self._tell(200, self.server.status())
            case "GET", "/v1/jobs":
                self._tell(200, self.server.book.told())
            case "POST", "/v1/jobs":
                self._run(self._read_body(request, until))
            case "POST", path if enough := _ENOUGH.fullmatch(path):
                self._read_body(request, until)
                if not self.server.book.is_enough(int(enough[1])):
                    raise _RefusedError(404, "the job has ended")
                self._tell(200, {"enough": True})
            case "POST", "/v1/down":
                self._read_body(request, until)
                self._tell(200, {"ended": True})
                self._linger()
                self.server.end()
            case _, "/v1/status" | "/v1/jobs" | "/v1/down":
                raise _RefusedError(405, f"{request.path} is not asked so")
            case _:
                raise _RefusedError(404, "there is nothing at this path")

    def _receive(self, until: float) -> bytes:
        """Take what has come, within a time."""
        left = until - time.monotonic()
        if left <= 0:
            raise _RefusedError(408, "the request was not there in time")
        self.request.settimeout(left)
        try:
            received = self.request.recv(64 << 10)
        except TimeoutError:
            raise _RefusedError(408, "the request was not there in time") from None
        if not received:
            raise _GoneError
        return received

    def _read_head(self, until: float) -> _Request:
        head = bytearray()
        while (end := head.find(b"\r\n\r\n")) < 0:
            if len(head) > _HEAD_BYTES_MAX:
                raise _RefusedError(431, "the request's head is too long")
            head += self._receive(until)
        if end > _HEAD_BYTES_MAX:
            raise _RefusedError(431, "the request's head is too long")
        lines = head[:end].decode("latin-1").split("\r\n")
        words = lines[0].split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            raise _RefusedError(400, "this is no request of HTTP/1.1")
        headers: dict[str, str] = {}
        for line in lines[1:]:
            name, colon, value = line.partition(":")
            name = name.lower()
            if not colon or not name or name != name.strip() or name in headers:
                raise _RefusedError(400, "a header is malformed, or is there twice")
            headers[name] = value.strip()
        return _Request(words[0], words[1], headers, bytes(head[end + 4 :]))

    def _judge_token(self, request: _Request) -> None:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        is_it = hmac.compare_digest(token.strip().encode("latin-1"), self.server.token)
        if scheme.lower() != "bearer" or not is_it:
            raise _RefusedError(401, "the token is wrong, or there is none")

    def _read_body(self, request: _Request, until: float) -> bytes:
        if "transfer-encoding" in request.headers:
            raise _RefusedError(411, "the body's length is to be said")
        length = request.headers.get("content-length", "")
        if not length.isascii() or not length.isdecimal():
            raise _RefusedError(411, "the body's length is to be said")
        if len(length) > 12 or int(length) > _BODY_BYTES_MAX:
            raise _RefusedError(
                413,
                f"what is asked has more than {_BODY_BYTES_MAX} bytes",
                "put what is large into files that the cluster reads",
            )
        if request.headers.get("expect", "").lower() == "100-continue":
            self.request.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = bytearray(request.rest)
        while len(body) < int(length):
            body += self._receive(until)
        return bytes(body[: int(length)])

    def _begin(self, status: int, kind: str, length: str) -> None:
        self.request.settimeout(_TAKE_SECONDS)
        head = (
            f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {kind}\r\n{length}\r\n"
            "Cache-Control: no-store\r\nConnection: close\r\n\r\n"
        )
        self.request.sendall(head.encode())

    def _tell(self, status: int, told: object) -> None:
        body = json.dumps(told).encode()
        self._begin(status, "application/json", f"Content-Length: {len(body)}")
        self.request.sendall(body)

    def _linger(self) -> None:
        """Take what is still coming: a connection that is closed before loses its answer."""
        until = time.monotonic() + 2.0
        with contextlib.suppress(OSError, _RefusedError, _GoneError):
            self.request.shutdown(socket.SHUT_WR)
            left = 2 * _BODY_BYTES_MAX
            while left > 0:
                left -= len(self._receive(until))

    def _piece(self, frames: bytes) -> None:
        self.request.sendall(b"%x\r\n" % len(frames) + frames + b"\r\n")

    def _look(self) -> None:
        """Look whether the client is still there: it sends nothing more, but its end."""
        if isinstance(self.request, ssl.SSLSocket):
            self.request.settimeout(0)
            try:
                is_gone = self.request.recv(1) == b""
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                is_gone = False
            self.request.settimeout(_TAKE_SECONDS)
        else:
            ready, _, _ = select.select([self.request], [], [], 0)
            is_gone = bool(ready) and self.request.recv(1, socket.MSG_PEEK) == b""
        if is_gone:
            raise _GoneError

    def _run(self, question: bytes) -> None:
        """Run what is asked, and answer while it runs."""
        try:
            answering = _tidemill.RawAnswering(question, self.server.may_run_programs)
        except TidemillError as error:
            message, _, hint = str(error).partition("\nhint: ")
            raise _RefusedError(400, message, hint or None) from None
        book = self.server.book
        job = book.enter(answering)
        state = "cancelled"
        try:
            self._begin(200, "application/octet-stream", "Transfer-Encoding: chunked")
            self._piece(answering.began(job.number))
            heard = time.monotonic()
            while (before := book.before(job, _TICK)) is not None:
                self._look()
                if time.monotonic() - heard >= _WAITING_SECONDS:
                    heard = time.monotonic()
                    self._piece(answering.waiting(before))
            try:
                workers = self.server.workers.job(answering.priority)
                answering.begin(workers, self.server.memory_bytes)
                while (frames := answering.next(_TICK)) is not None:
                    if frames:
                        self._piece(frames)
                    else:
                        self._look()
                state = "failed" if answering.has_failed() else "done"
            except TidemillError as error:
                state = "failed"
                self._piece(answering.failed(str(error)))
            self.request.sendall(b"0\r\n\r\n")
        finally:
            answering.cancel()
            # It has its place until what it does has ended.
            with contextlib.suppress(TidemillError):
                while answering.next(_TICK) is not None:
                    pass
            book.leave(job, state)


class Service(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """Listens, and answers each connection in a thread of its own."""

    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(
        self,
        workers: RayWorkers,
        token: str,
        *,
        host: str,
        port: int,
        certificate: str | None,
        key: str | None,
        may_run_programs: bool,
        end: Callable[[], None],
    ) -> None:
        self._context: ssl.SSLContext | None = None
        if certificate is not None:
            self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            self._context.minimum_version = ssl.TLSVersion.TLSv1_2
            self._context.load_cert_chain(certificate, key)
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        self.address_family, _, _, _, place = found[0]
        super().__init__(place[:2], _Handler)  # type: ignore[arg-type]
        scheme = "http" if self._context is None else "https"
        # Of all addresses of the machine none can be asked at, but by its name.
        host = socket.getfqdn() if host in ("0.0.0.0", "::") else host
        shown = f"[{host}]" if ":" in host else host
        self.address = f"{scheme}://{shown}:{self.server_address[1]}"
        self.workers = workers
        self.token = token.encode()
        self.may_run_programs = may_run_programs
        self.book = _Book()
        # Each merges within its share; the workers have memory of their own.
        share = _tidemill.memory_bytes("50%") // max(_RUNNING_MAX)
        self.memory_bytes = max(share, 64 << 20)
        self._end = end
        self._began = time.monotonic()
        self._strangers: collections.deque[socket.socket] = collections.deque()
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def stranger(self, connection: socket.socket) -> Iterator[None]:
        """Hold a place of those without a token that was looked at; of many, the first loses it."""
        with self._lock:
            self._strangers.append(connection)
            first = self._strangers.popleft() if len(self._strangers) > _STRANGERS_MAX else None
            if first is not None:
                # Its thread hears of it, and closes it.
                with contextlib.suppress(OSError):
                    first.shutdown(socket.SHUT_RDWR)
        try:
            yield
        finally:
            with self._lock, contextlib.suppress(ValueError):
                self._strangers.remove(connection)

    def secure(self, handler: _Handler, until: float) -> None:
        """Agree on TLS, within a time."""
        if self._context is not None:
            handler.request.settimeout(max(until - time.monotonic(), 0.1))
            handler.request = self._context.wrap_socket(handler.request, server_side=True)

    def status(self) -> dict[str, Any]:
        """Tell how it goes."""
        machines, workers, threads, _ = self.workers.reach()
        return {
            "address": self.address,
            "release": _version(),
            "up_seconds": math.floor((time.monotonic() - self._began) * 10) / 10,
            "machines": machines,
            "workers": workers,
            "threads": threads,
            **self.book.counts(),
        }

    def end(self) -> None:
        """End all of it, beside whoever asked for it."""
        threading.Thread(target=self._end, name="end", daemon=True).start()

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: what went wrong may have in it what was sent."""
