"""What a master answers over HTTP (``docs/formats/posted.md``).

A request is read within a time and a size, its token is compared before anything else of it is
looked at, and a connection has one request. What is posted is judged by the engine, waits for its
turn, and is answered in pieces while it runs; a client that closes its connection ends it.

- ``_job_queue``: the queue of jobs, with priorities, limits and suspension.
- ``_delivery``: non-blocking delivery of an answer to a client that may stop reading.

There are two tokens. The query token allows queries; the admin token also allows ending the master
and reading the statements and addresses of all clients.
"""

from __future__ import annotations

import collections
import contextlib
import hmac
import json
import logging
import math
import re
import socket
import socketserver
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from tidemill import _tidemill
from tidemill._errors import TidemillError
from tidemill.ray._delivery import ClientGoneError, ClientStalledError, Delivery
from tidemill.ray._job_queue import (
    Answering,
    Asker,
    Job,
    JobQueue,
    QueueLimits,
    RefusedError,
    peer_of,
)
from tidemill.ray._workers import _version

_LOG = logging.getLogger("tidemill.ray")

#: A request's line and headers have so many bytes at most, …
_HEAD_BYTES_MAX = 16 << 10

#: … and its body: a question.
_BODY_BYTES_MAX = 1 << 20

#: A request is there within so many seconds.
_REQUEST_SECONDS = 10.0

#: Timeout for a client to take an answer other than a job's, in seconds.
_ANSWER_SECONDS = 10.0

#: Maximum time that a refusal waits for the rest of its request, in seconds.
_LINGER_SECONDS = 2.0

#: Maximum number of connections without a valid token. Of more, the oldest is closed.
_STRANGERS_MAX = 64

#: How often it is looked whether a client is still there, in seconds.
_TICK = 0.05

#: How often a client that waits for its turn hears of it.
_WAITING_SECONDS = 1.0

#: Where it is said that what a job has is enough.
_ENOUGH = re.compile(r"/v1/jobs/([0-9]{1,15})/enough")

_REASONS = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    411: "Length Required",
    413: "Content Too Large",
    429: "Too Many Requests",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}


@dataclass(frozen=True)
class ServiceLimits:
    """Limits of a service on its clients."""

    queue: QueueLimits = field(default_factory=QueueLimits)
    #: Maximum number of a peer's open requests, including those of its jobs.
    requests_per_peer: int = 128
    #: Time that a client may leave bytes unread before its job is suspended.
    grace_seconds: float = 1.0
    #: Time after which a client that does not read is disconnected. It is long, because a user may
    #: look at the first page in between.
    read_seconds: float = 600.0


class _JobWorkers(Protocol):
    def suspend(self) -> None: ...
    def resume(self) -> None: ...


class _Workers(Protocol):
    def reach(self) -> tuple[int, int, int, bool]: ...
    def job(self, priority: int = 1) -> _JobWorkers: ...


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
        """Read a request, and answer it.

        A connection is always one of two limited numbers: the connections without a valid token, or
        the open requests of its peer. That includes the time of a refusal.
        """
        until = time.monotonic() + _REQUEST_SECONDS
        ends = (OSError, ClientGoneError, RefusedError)
        with contextlib.suppress(*ends), contextlib.ExitStack() as counting:
            with self.server.stranger(self.request), self._refusals():
                self._secure(until)
                request = self._read_head(until)
                asker = self._judge_token(request)
                counting.enter_context(self.server.counted(asker))
            with self._refusals():
                self._answer(request, asker, until)

    @contextlib.contextmanager
    def _refusals(self) -> Iterator[None]:
        """Send the client a `RefusedError` of the body, and raise it again."""
        try:
            yield
        except RefusedError as refused:
            self._tell(refused.status, {"message": refused.message, "hint": refused.hint})
            self._linger()
            raise

    def _secure(self, until: float) -> None:
        """Make the handshake of TLS, within a time."""
        if isinstance(self.request, ssl.SSLSocket):
            self.request.settimeout(max(until - time.monotonic(), 0.1))
            self.request.do_handshake()

    def _answer(self, request: _Request, asker: Asker, until: float) -> None:
        match request.method, request.path:
            case "GET", "/v1/status":
                self._tell(200, self.server.status())
            case "GET", "/v1/jobs":
                self._tell(200, self.server.queue.described(asker))
            case "POST", "/v1/jobs":
                self._run(self._read_body(request, until), asker)
            case "POST", path if enough := _ENOUGH.fullmatch(path):
                self._read_body(request, until)
                self.server.queue.is_enough(int(enough[1]), asker)
                self._tell(200, {"enough": True})
            case "POST", "/v1/down":
                self._read_body(request, until)
                if not asker.is_admin:
                    raise RefusedError(
                        403,
                        "this is the query token, which does not end a master",
                        "the admin token does: --admin-token-file FILE, or the variable "
                        "TIDEMILL_ADMIN_TOKEN; `tidemill cluster token --admin` shows it where the "
                        "master was started",
                    )
                self._tell(200, {"ended": True})
                self._linger()
                self.server.end()
            case _, "/v1/status" | "/v1/jobs" | "/v1/down":
                raise RefusedError(405, f"{request.path} is not asked so")
            case _:
                raise RefusedError(404, "there is nothing at this path")

    def _receive(self, until: float) -> bytes:
        """Take what has come, within a time."""
        left = until - time.monotonic()
        if left <= 0:
            raise RefusedError(408, "the request was not there in time")
        self.request.settimeout(left)
        try:
            received = self.request.recv(64 << 10)
        except TimeoutError:
            raise RefusedError(408, "the request was not there in time") from None
        if not received:
            raise ClientGoneError
        return received

    def _read_head(self, until: float) -> _Request:
        head = bytearray()
        while (end := head.find(b"\r\n\r\n")) < 0:
            if len(head) > _HEAD_BYTES_MAX:
                raise RefusedError(431, "the request's head is too long")
            head += self._receive(until)
        if end > _HEAD_BYTES_MAX:
            raise RefusedError(431, "the request's head is too long")
        lines = head[:end].decode("latin-1").split("\r\n")
        words = lines[0].split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            raise RefusedError(400, "this is no request of HTTP/1.1")
        headers: dict[str, str] = {}
        for line in lines[1:]:
            name, colon, value = line.partition(":")
            name = name.lower()
            if not colon or not name or name != name.strip() or name in headers:
                raise RefusedError(400, "a header is malformed, or is there twice")
            headers[name] = value.strip()
        return _Request(words[0], words[1], headers, bytes(head[end + 4 :]))

    def _judge_token(self, request: _Request) -> Asker:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        given = token.strip().encode("latin-1")
        # Compare with both tokens, so that the time does not reveal which one matched.
        is_query = hmac.compare_digest(given, self.server.token)
        is_admin = hmac.compare_digest(given, self.server.admin_token)
        if scheme.lower() != "bearer" or not (is_query or is_admin):
            raise RefusedError(401, "the token is wrong, or there is none")
        client_id = request.headers.get("tidemill-client-id", "")
        return Asker(peer_of(self.client_address[0]), client_id, is_admin)

    def _read_body(self, request: _Request, until: float) -> bytes:
        if "transfer-encoding" in request.headers:
            raise RefusedError(411, "the body's length is to be said")
        length = request.headers.get("content-length", "")
        if not length.isascii() or not length.isdecimal():
            raise RefusedError(411, "the body's length is to be said")
        if len(length) > 12 or int(length) > _BODY_BYTES_MAX:
            raise RefusedError(
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

    def _tell(self, status: int, told: object) -> None:
        body = json.dumps(told).encode()
        self.request.settimeout(_ANSWER_SECONDS)
        length = f"Content-Length: {len(body)}"
        self.request.sendall(_answer_head(status, "application/json", length) + body)

    def _linger(self) -> None:
        """Take what is still coming: a connection that is closed before loses its answer."""
        until = time.monotonic() + _LINGER_SECONDS
        with contextlib.suppress(OSError, RefusedError, ClientGoneError):
            self.request.shutdown(socket.SHUT_WR)
            left = 2 * _BODY_BYTES_MAX
            while left > 0:
                left -= len(self._receive(until))

    def _run(self, question: bytes, asker: Asker) -> None:
        """Run what is asked, and answer while it runs."""
        service = self.server
        try:
            answering = service.answering(question, service.may_run_programs)
        except TidemillError as error:
            message, _, hint = str(error).partition("\nhint: ")
            raise RefusedError(400, message, hint or None) from None
        job = service.queue.enter(answering, asker)
        try:
            _JobAnswer(service, self.request, job, answering).run()
        except ClientStalledError as stalled:
            _LOG.warning("job %d of %s: %s; disconnected", job.number, asker.peer, stalled)
            # Reset the connection, so that the system discards the unread bytes instead of keeping
            # them for the client.
            reset = struct.pack("ii", 1, 0)
            self.request.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)


def _answer_head(status: int, kind: str, length: str) -> bytes:
    return (
        f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {kind}\r\n{length}\r\n"
        "Cache-Control: no-store\r\nConnection: close\r\n\r\n"
    ).encode()


class _JobAnswer:
    """The answer to a question, from its turn in the queue to its last byte."""

    def __init__(
        self,
        service: Service,
        connection: socket.socket,
        job: Job,
        answering: Answering,
    ) -> None:
        self._service = service
        self._job = job
        self._answering = answering
        self._delivery = Delivery(connection, service.limits.read_seconds, service.clock)

    def run(self) -> None:
        """Wait for the job's turn, run it, and send its frames.

        Raises `ClientGoneError` and `ClientStalledError`, after the job has left the queue.
        """
        service, job, answering = self._service, self._job, self._answering
        state = "cancelled"
        try:
            kind, length = "application/octet-stream", "Transfer-Encoding: chunked"
            self._delivery.add(_answer_head(200, kind, length))
            self._add(answering.began(job.number))
            self._delivery.flush()
            self._wait_for_turn()
            workers = service.workers.job(job.priority)
            try:
                answering.begin(workers, service.memory_bytes)
                while (frames := answering.next(_TICK)) is not None:
                    if frames:
                        self._add(frames)
                    else:
                        self._delivery.check()
                    self._deliver(workers, is_last=answering.has_ended())
                failed = answering.has_failed()
            except TidemillError as error:
                failed = True
                self._add(answering.failed(str(error)))
                self._deliver(workers, is_last=True)
            # Set the state first: a client may close its connection after the last frame.
            state = "failed" if failed else "done"
            self._delivery.add(b"0\r\n\r\n")
            self._deliver(workers, is_last=True)
        finally:
            answering.cancel()
            # It has its place until what it does has ended.
            with contextlib.suppress(TidemillError):
                while answering.next(_TICK) is not None:
                    pass
            service.queue.leave(job, state)

    def _add(self, frames: bytes) -> None:
        # Send one write: small writes would wait until the client acknowledges the previous one.
        self._delivery.add(b"%x\r\n" % len(frames) + frames + b"\r\n")

    def _wait_for_turn(self) -> None:
        clock = self._service.clock
        heard = clock()
        while (before := self._service.queue.wait_for_turn(self._job, _TICK)) is not None:
            self._delivery.check()
            if self._delivery.flush() and clock() - heard >= _WAITING_SECONDS:
                heard = clock()
                self._add(self._answering.waiting(before))
                self._delivery.flush()

    def _deliver(self, workers: _JobWorkers, *, is_last: bool) -> None:
        """Send the pending bytes; suspend the job while its client does not read.

        After the last frames the job does not wait for a place again.
        """
        if self._flush_within(self._service.limits.grace_seconds):
            return
        queue = self._service.queue
        if self._job.state == "running":
            queue.suspend(self._job)
            workers.suspend()
        while not self._delivery.flush():
            if self._job.eviction is not None:
                raise ClientStalledError(self._job.eviction)
            self._delivery.wait(_TICK)
        if not is_last:
            queue.resume(self._job)
            self._wait_for_turn()
            workers.resume()

    def _flush_within(self, seconds: float) -> bool:
        """Send the pending bytes within a time; return true if none are pending any more."""
        clock = self._service.clock
        until = clock() + seconds
        while not self._delivery.flush():
            left = until - clock()
            if left <= 0:
                return False
            self._delivery.wait(min(left, _TICK))
        return True


class Service(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """Listens, and answers each connection in a thread of its own."""

    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(
        self,
        workers: _Workers,
        token: str,
        admin_token: str,
        *,
        host: str,
        port: int,
        certificate: str | None,
        key: str | None,
        may_run_programs: bool,
        end: Callable[[], None],
        limits: ServiceLimits | None = None,
        answering: Callable[[bytes, bool], Answering] = _tidemill.RawAnswering,
        clock: Callable[[], float] = time.monotonic,
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
        self.admin_token = admin_token.encode()
        self.may_run_programs = may_run_programs
        self.limits = limits or ServiceLimits()
        self.answering = answering
        self.clock = clock
        self.queue = JobQueue(self.limits.queue, clock)
        # Each running or suspended job merges within its share of the memory; the workers have
        # memory of their own.
        begun_max = max(self.limits.queue.running) + self.limits.queue.suspended
        share = _tidemill.memory_bytes("50%") // begun_max
        self.memory_bytes = max(share, 64 << 20)
        self._end = end
        self._began = time.monotonic()
        self._requests: collections.Counter[str] = collections.Counter()
        self._strangers: collections.deque[socket.socket] = collections.deque()
        self._lock = threading.Lock()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Handle a connection in a thread of its own, which makes the handshake of TLS.

        Wrapping a socket detaches it from its descriptor, so all code below holds the wrapped one.
        """
        if self._context is not None:
            request = self._context.wrap_socket(
                request, server_side=True, do_handshake_on_connect=False
            )
        super().process_request(request, client_address)

    @contextlib.contextmanager
    def stranger(self, connection: socket.socket) -> Iterator[None]:
        """Count a connection without a valid token, and close the oldest if there are too many."""
        with self._lock:
            self._strangers.append(connection)
            first = self._strangers.popleft() if len(self._strangers) > _STRANGERS_MAX else None
            if first is not None:
                # The thread of the connection notices that, and closes it. The method of an
                # `SSLSocket` would also drop the TLS state that the thread uses.
                with contextlib.suppress(OSError):
                    socket.socket.shutdown(first, socket.SHUT_RDWR)
        try:
            yield
        finally:
            with self._lock, contextlib.suppress(ValueError):
                self._strangers.remove(connection)

    @contextlib.contextmanager
    def counted(self, asker: Asker) -> Iterator[None]:
        """Count a request of a peer, and refuse it if the peer has too many."""
        most = self.limits.requests_per_peer
        with self._lock:
            if self._requests[asker.peer] >= most and not asker.is_admin:
                raise RefusedError(
                    429,
                    f"`{asker.peer}` has {self._requests[asker.peer]} requests at this master; the "
                    f"maximum per peer is {most}",
                    "ask again once some have been answered",
                )
            self._requests[asker.peer] += 1
        try:
            yield
        finally:
            with self._lock:
                self._requests[asker.peer] -= 1
                if self._requests[asker.peer] == 0:
                    del self._requests[asker.peer]

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
            **self.queue.counts(),
        }

    def end(self) -> None:
        """End all of it, beside whoever asked for it."""
        threading.Thread(target=self._end, name="end", daemon=True).start()

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: what went wrong may have in it what was sent."""
