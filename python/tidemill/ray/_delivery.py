"""Non-blocking delivery of an answer to a client that may stop reading at any time.

A `Delivery` keeps bytes that the client's socket does not take, and sends them later. No call
blocks for longer than its caller allows. A client that does not take the bytes within a limit is
stalled. A client that closes the connection, or its half of it, is gone: it has sent all of its
request before.

It waits with ``poll``, because ``select`` does not support descriptors above 1023.
"""

from __future__ import annotations

import collections
import select
import socket
import ssl
import time
from collections.abc import Callable

#: A client that takes this many bytes within the limit is not stalled.
_PROGRESS_BYTES = 1 << 20

#: Maximum number of bytes received and discarded at once after the request.
_DISCARD_BYTES = 64 << 10


class ClientGoneError(Exception):
    """The client has closed its connection."""


class ClientStalledError(Exception):
    """The client did not read in time."""


class Delivery:
    """The client's side of an answer: pending bytes, sent without blocking.

    Parameters
    ----------
    connection : socket
        A connection, plain or with TLS, whose request was read. It becomes non-blocking.
    limit_seconds : float
        Maximum time for a client to take all pending bytes, or a mebibyte of them.
    clock : callable, optional
        A monotonic clock, in seconds.
    """

    def __init__(
        self,
        connection: socket.socket,
        limit_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._connection = connection
        self._limit_seconds = limit_seconds
        self._clock = clock
        self._pending: collections.deque[memoryview] = collections.deque()
        self._pending_since = 0.0
        self._taken_bytes = 0
        # True if TLS has to receive data before it can send more.
        self._needs_input = False
        self._poll = select.poll()
        connection.setblocking(False)

    @property
    def is_pending(self) -> bool:
        """True while bytes wait for the client."""
        return bool(self._pending)

    def add(self, data: bytes) -> None:
        """Append bytes to the pending ones."""
        if not self._pending:
            self._pending_since, self._taken_bytes = self._clock(), 0
        if data:
            self._pending.append(memoryview(data))

    def flush(self) -> bool:
        """Send as many bytes as the socket takes; return true if no bytes are pending any more.

        Raises `ClientGoneError` for a lost connection, and `ClientStalledError` past the limit.
        """
        while self._pending:
            first = self._pending[0]
            try:
                sent = self._connection.send(first)
            except ssl.SSLWantReadError:
                self._needs_input = True
                break
            except (BlockingIOError, ssl.SSLWantWriteError):
                break
            except OSError as error:
                raise ClientGoneError from error
            self._needs_input = False
            self._pending.popleft()
            if sent < len(first):
                self._pending.appendleft(first[sent:])
            self._taken_bytes += sent
            if self._taken_bytes >= _PROGRESS_BYTES:
                self._pending_since, self._taken_bytes = self._clock(), 0
        if not self._pending:
            return True
        if self._clock() - self._pending_since >= self._limit_seconds:
            raise ClientStalledError(
                f"its client has not read what was sent for {self._limit_seconds:g} s"
            )
        return False

    def wait(self, seconds: float) -> None:
        """Wait until the socket takes more bytes, the client is gone, or the time is over.

        Raises `ClientGoneError`.
        """
        events = select.POLLIN
        if self._pending and not self._needs_input:
            events |= select.POLLOUT
        for happened in self._polled(events, seconds):
            if happened & ~select.POLLOUT:
                self._discard_input()

    def check(self) -> None:
        """Check that the client is still connected, without waiting.

        Raises `ClientGoneError`.
        """
        for _ in self._polled(select.POLLIN, 0):
            self._discard_input()

    def _polled(self, events: int, seconds: float) -> list[int]:
        self._poll.register(self._connection.fileno(), events)
        return [happened for _, happened in self._poll.poll(seconds * 1000)]

    def _discard_input(self) -> None:
        """Discard bytes that the client sends after its request; detect that it is gone."""
        self._needs_input = False
        try:
            received = self._connection.recv(_DISCARD_BYTES)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return
        except OSError as error:
            raise ClientGoneError from error
        if not received:
            raise ClientGoneError
