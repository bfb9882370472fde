"""Servers that misbehave on request.

A rule is a function that sees a `Request` and returns an action or `None`; the first action
wins. What is done is decided by what was asked, never by the clock.
"""

import http.client
import re
import threading
import urllib.parse
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Request:
    method: str
    path: str
    query: dict
    headers: dict
    number: int

    @property
    def is_read(self):
        """Whether it asks for bytes of a file."""
        return self.method == "GET" and "list-type" not in self.query


@dataclass
class Status:
    """Answers with a status, and S3's word for it."""

    status: int
    code: str = "SlowDown"
    message: str = "Please reduce your request rate."
    body: bytes | None = None
    headers: dict = field(default_factory=dict)


@dataclass
class Cut:
    """Promises the whole body and closes the connection after so many bytes of it."""

    after: int


@dataclass
class After:
    """Waits until a request has been answered, and then does `then`, or what was asked."""

    when: callable
    then: object = None


class Lost:
    """Does what is asked and closes the connection without an answer."""


class Stall:
    """Takes the request and never answers."""


class Deaf:
    """Does what is asked, and hears nothing more on that connection, which stays."""


@dataclass
class Hang:
    """Promises the whole body, and sends no more after so many bytes of it."""

    after: int


class Quiet(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def __getattr__(self, name):
        if name.startswith("do_"):
            return self.any_method
        raise AttributeError(name)

    def any_method(self):
        self.server.owner.answer(self)

    def parsed(self, number):
        path, _, query = self.path.partition("?")
        return Request(
            self.command,
            urllib.parse.unquote(path),
            dict(urllib.parse.parse_qsl(query, keep_blank_values=True)),
            {name.lower(): value for name, value in self.headers.items()},
            number,
        )

    def reply(self, status, headers, body):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def cut(self, status, headers, body, after):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body[:after])
        self.wfile.flush()
        self.close_connection = True


class Server:
    """A server on a free port of loopback, in threads of this process."""

    def __init__(self):
        self.rules = []
        self.requests = []
        self.answered = []
        self.told = threading.Condition()
        self.stalled = threading.Event()
        self.released = threading.Event()
        self.lock = threading.Lock()

    def __enter__(self):
        class Quietly(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request, client_address):
                pass  # A client that has gone.

        self.server = Quietly(("127.0.0.1", 0), Quiet)
        self.server.owner = self
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        return self

    def __exit__(self, *_):
        self.released.set()
        self.server.shutdown()
        self.server.server_close()

    def action(self, request):
        with self.lock:
            self.requests.append(request)
            for rule in self.rules:
                action = rule(request)
                if action is not None:
                    return action
        return None

    def answer(self, handler):
        length = int(handler.headers.get("content-length") or 0)
        sent = handler.rfile.read(length)
        request = handler.parsed(len(self.requests))
        action = self.action(request)
        if isinstance(action, After):
            with self.told:
                self.told.wait_for(lambda: any(map(action.when, self.answered)))
            action = action.then
        try:
            self.carry_out(action, handler, request, sent)
        finally:
            with self.told:
                self.answered.append(request)
                self.told.notify_all()

    def carry_out(self, action, handler, request, sent):
        if isinstance(action, Stall):
            self.stalled.set()
            self.released.wait()
            handler.close_connection = True
            return
        if isinstance(action, Status):
            body = action.body
            if body is None:
                body = (
                    f"<Error><Code>{action.code}</Code><Message>{action.message}</Message>"
                    "<AWSAccessKeyId>hush</AWSAccessKeyId></Error>"
                ).encode()
            headers = {"Content-Length": len(body), "Content-Type": "application/xml"}
            handler.reply(action.status, (headers | action.headers).items(), body)
            return
        status, headers, body = self.content(handler, request, sent)
        if isinstance(action, Lost):
            handler.close_connection = True
        elif isinstance(action, Cut):
            handler.cut(status, headers, body, action.after)
        elif isinstance(action, Hang):
            handler.cut(status, headers, body, action.after)
            self.released.wait()
        elif isinstance(action, Deaf):
            handler.reply(status, headers, body)
            handler.wfile.flush()
            self.released.wait()
            handler.close_connection = True
        else:
            handler.reply(status, headers, body)

    def reads(self, path=None):
        """The GETs of objects so far."""
        return [r for r in self.requests if r.is_read and path in (None, r.path)]


class Proxy(Server):
    """Passes everything on, but for what its rules say."""

    def __init__(self, upstream):
        super().__init__()
        self.upstream = urllib.parse.urlsplit(upstream).netloc

    def content(self, handler, request, sent):
        connection = http.client.HTTPConnection(self.upstream)
        try:
            headers = {
                name: value
                for name, value in handler.headers.items()
                if name.lower() not in ("host", "connection")
            }
            connection.request(handler.command, handler.path, sent, headers)
            answer = connection.getresponse()
            body = answer.read()
            drop = ("connection", "transfer-encoding", "content-length", "date", "server")
            kept = [(n, v) for n, v in answer.getheaders() if n.lower() not in drop]
            length = answer.getheader("content-length") if request.method == "HEAD" else None
            kept.append(("Content-Length", length or str(len(body))))
            return answer.status, kept, body
        finally:
            connection.close()


class Web(Server):
    """A web server whose files are in memory, with ranges and versions or without."""

    def __init__(self, files, ranges=True, e_tag=True, modified=True, length=True):
        super().__init__()
        self.files = files
        self.ranges, self.e_tag, self.modified, self.length = ranges, e_tag, modified, length
        self.version = 1

    def content(self, handler, request, sent):
        del handler, sent
        body = self.files.get(request.path)
        if body is None:
            return 404, [("Content-Length", "0")], b""
        headers = []
        if self.e_tag:
            headers.append(("ETag", f'"v{self.version}"'))
        if self.modified:
            headers.append(("Last-Modified", f"Sat, 21 Nov 2026 09:00:0{self.version} GMT"))
        expected = request.headers.get("if-match")
        if self.e_tag and expected is not None and expected != f'"v{self.version}"':
            return 412, [*headers, ("Content-Length", "0")], b""
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", request.headers.get("range", ""))
        if self.ranges and asked:
            first, last = int(asked[1]), min(int(asked[2]), len(body) - 1)
            if first >= len(body):
                headers.append(("Content-Range", f"bytes */{len(body)}"))
                return 416, [*headers, ("Content-Length", "0")], b""
            headers.append(("Content-Range", f"bytes {first}-{last}/{len(body)}"))
            part = body[first : last + 1]
            return 206, [*headers, ("Content-Length", str(len(part)))], part
        if not self.length:
            return 200, [*headers, ("Connection", "close")], body
        return 200, [*headers, ("Content-Length", str(len(body)))], body


def first(count, action, when=lambda request: request.is_read):
    """A rule for the first so many requests of a kind."""
    left = [count]

    def rule(request):
        if left[0] > 0 and when(request):
            left[0] -= 1
            return action
        return None

    return rule


def always(action, when=lambda request: request.is_read):
    """A rule for all requests of a kind."""
    return lambda request: action if when(request) else None


def before(number, act, when=lambda request: request.is_read):
    """Does something just before request `number` (from 0) of a kind is passed on."""
    seen = [0]

    def rule(request):
        if when(request):
            seen[0] += 1
            if seen[0] == number + 1:
                act()
        return None

    return rule
