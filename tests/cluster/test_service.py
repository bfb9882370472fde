"""Tests of a master's service: clients that stop reading, limits, tokens. Needs no cluster.

A script replaces the engine, and the clock stands still unless a test moves it.
"""

import contextlib
import fcntl
import http.client
import json
import logging
import resource
import socket
import ssl
import subprocess
import threading
import time

import pytest

from tidemill.ray import _service
from tidemill.ray._delivery import ClientGoneError, ClientStalledError, Delivery
from tidemill.ray._job_queue import Asker, JobQueue, QueueLimits, RefusedError, peer_of
from tidemill.ray._service import Service, ServiceLimits

QUERY, ADMIN = "query-token", "admin-token"
MEBIBYTE = 1 << 20


class Clock:
    """A clock that the test moves."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


class ScriptedAnswering:
    """A scripted run of the engine: pieces of a mebibyte, an optional wait, then the end."""

    def __init__(self, question, may_run_programs):
        script = json.loads(question)
        self.verb, self.shown = "query", script["sql"]
        self.priority = script.get("priority", 1)
        self.pieces = script.get("pieces", 1)
        #: Name of the gate that the test opens to let the run end.
        self.gate = script.get("gate")
        self.is_taken = threading.Event()
        self.is_cancelled = threading.Event()
        self.given = 0
        self.ended = False

    def begin(self, workers, memory_bytes):
        workers.events.append(f"begin {self.shown}")
        workers.statement = self.shown
        self.workers = workers

    def next(self, seconds):
        if self.ended or self.is_cancelled.is_set():
            return None
        if self.given < self.pieces:
            self.given += 1
            piece = bytes([self.given % 256]) * MEBIBYTE
        elif self.gate is not None and not self.workers.gates[self.gate].wait(seconds):
            return b""
        else:
            piece = b"end"
            self.ended = True
            self.workers.events.append(f"end {self.shown}")
        return piece

    def cancel(self):
        self.is_cancelled.set()

    def is_enough(self):
        self.is_taken.set()

    def has_ended(self):
        return self.ended

    def has_failed(self):
        return False

    def began(self, number):
        return b"began"

    def waiting(self, before):
        return b"waiting"

    def failed(self, why):
        return why.encode()


def content(pieces):
    """Return the bytes that a client reads from a script."""
    return b"".join([b"began", *(bytes([1 + n]) * MEBIBYTE for n in range(pieces)), b"end"])


class JobWorkers:
    """The workers of a job; they record calls of `suspend` and `resume`."""

    def __init__(self, gates, events):
        self.gates, self.events = gates, events
        self.statement = None

    def suspend(self):
        self.events.append(f"suspend {self.statement}")

    def resume(self):
        self.events.append(f"resume {self.statement}")


class Workers:
    def __init__(self):
        self.gates = {"gate": threading.Event()}
        self.events = []

    def reach(self):
        return 1, 1, 1, True

    def job(self, priority=1):
        return JobWorkers(self.gates, self.events)


class Running:
    """A service that listens, and its clients."""

    def __init__(self, stack, limits, certificate=None, key=None):
        self.stack, self.clock, self.workers = stack, Clock(), Workers()
        self.has_ended = threading.Event()
        self.service = Service(
            self.workers,
            QUERY,
            ADMIN,
            host="127.0.0.1",
            port=0,
            certificate=certificate,
            key=key,
            may_run_programs=False,
            end=self.has_ended.set,
            limits=limits,
            answering=ScriptedAnswering,
            clock=self.clock,
        )
        self.place = self.service.server_address
        self.queue = self.service.queue
        stack.callback(self.service.server_close)
        stack.callback(self.service.shutdown)
        thread = threading.Thread(target=self.service.serve_forever, args=(0.01,), daemon=True)
        thread.start()

    def client(self, context=None, **script):
        """Post a question without reading the answer.

        Uses a pair of sockets, because their buffers do not grow.
        """
        ours, connection = socket.socketpair()
        connection.settimeout(60)
        self.stack.callback(connection.close)
        self.service.process_request(ours, ("127.0.0.1", 0))
        if context is not None:
            connection = context.wrap_socket(connection)
            self.stack.callback(connection.close)
        connection.sendall(request("POST", "/v1/jobs", script))
        return connection

    def asks(self, method, path, body=None, token=QUERY, client_id=None):
        """Send a request, and return the status and the whole answer."""
        connection = http.client.HTTPConnection(*self.place, timeout=60)
        self.stack.callback(connection.close)
        headers = {"Authorization": f"Bearer {token}"}
        if client_id is not None:
            headers["Tidemill-Client-Id"] = client_id
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        return answer.status, answer.read()

    def states(self):
        described = self.queue.described(Asker("", is_admin=True))
        return {job["shown"]: job["state"] for job in described}

    def until(self, condition):
        """Wait until a condition holds."""
        give_up = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < give_up, (self.states(), self.workers.events)
            time.sleep(0.005)

    def until_state(self, statement, state):
        self.until(lambda: self.states().get(statement) == state)


def request(method, path, body, token=QUERY):
    text = json.dumps(body)
    return (
        f"{method} {path} HTTP/1.1\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Length: {len(text)}\r\n\r\n{text}"
    ).encode()


def read_all(connection):
    """Return the content of a chunked answer."""
    answer = http.client.HTTPResponse(connection)
    answer.begin()
    assert answer.status == 200
    return answer.read()


@pytest.fixture
def start():
    with contextlib.ExitStack() as stack:

        def start(limits=None, **keywords):
            return Running(stack, limits or ServiceLimits(grace_seconds=0.0), **keywords)

        yield start


#: Number of pieces that exceeds the buffers of a pair of sockets.
LARGE = 8


def test_clients_that_do_not_read_block_nobody(start):
    running = start()
    statements = [f"large {number}" for number in range(12)]
    clients = [running.client(sql=sql, pieces=LARGE, priority=2) for sql in statements]
    running.until(lambda: running.queue.counts()["suspended"] == 12)
    status, body = running.asks("POST", "/v1/jobs", {"sql": "small", "priority": 0})
    assert (status, body) == (200, content(1))
    running.until_state("small", "done")
    assert {running.states()[sql] for sql in statements} == {"suspended"}
    counts = running.queue.counts()
    assert counts == {"running": 0, "suspended": 12, "waiting": 0, "ended": 1}
    # Clients that read again get the whole answer.
    for client, sql in zip(clients, statements, strict=True):
        assert read_all(client) == content(LARGE)
        running.until_state(sql, "done")


def test_client_that_reads_within_the_grace_is_not_suspended(start):
    running = start(ServiceLimits(grace_seconds=5.0, read_seconds=float("inf")))
    client = running.client(sql="large", pieces=LARGE)
    # The clock stands still, so that the grace never ends.
    assert read_all(client) == content(LARGE)
    running.until_state("large", "done")
    assert "suspend large" not in running.workers.events
    running.client(sql="slow", pieces=LARGE)

    def is_suspended_later():
        running.clock.now += 5.0
        return running.states().get("slow") == "suspended"

    running.until(is_suspended_later)


def test_suspended_job_has_its_place_before_later_ones(start):
    running = start(ServiceLimits(QueueLimits(running=(1, 1, 1)), grace_seconds=0.0))
    first = running.client(sql="first", pieces=LARGE)
    running.until_state("first", "suspended")
    second = running.client(sql="second", pieces=0, gate="gate")
    running.until_state("second", "running")
    third = running.client(sql="third", pieces=0)
    running.until_state("third", "waiting")
    came = []
    reader = threading.Thread(target=lambda: came.append(read_all(first)))
    reader.start()
    # The client reads, and its job waits for a place, before the third.
    running.until_state("first", "waiting")
    assert running.states()["third"] == "waiting"
    running.workers.gates["gate"].set()
    reader.join(60)
    assert came == [content(LARGE)]
    assert read_all(second) == content(0)
    assert read_all(third) == content(0)
    events = running.workers.events
    assert events.index("resume first") > events.index("end second")
    assert events.index("begin third") > events.index("resume first")
    assert [event for event in events if "first" in event][:2] == ["begin first", "suspend first"]


def test_answer_that_is_complete_waits_for_no_place(start):
    running = start(ServiceLimits(QueueLimits(running=(1, 1, 1)), grace_seconds=0.0))
    # The answer is a single piece together with its end.
    large = LARGE * MEBIBYTE

    class Whole(ScriptedAnswering):
        def next(self, seconds):
            if self.shown != "whole":
                return super().next(seconds)
            self.given, self.ended = self.given + 1, True
            return b"x" * large if self.given == 1 else None

    running.service.answering = Whole
    first = running.client(sql="whole")
    running.until_state("whole", "suspended")
    running.client(sql="second", pieces=0, gate="gate")
    running.until_state("second", "running")
    assert read_all(first) == b"began" + b"x" * large
    running.until_state("whole", "done")
    assert running.states()["second"] == "running"
    assert "resume whole" not in running.workers.events


def test_client_that_never_reads_is_disconnected(start, caplog):
    running = start()
    client = running.client(sql="large", pieces=LARGE)
    running.until_state("large", "suspended")
    running.clock.now += 599.0
    status, body = running.asks("POST", "/v1/jobs", {"sql": "small"})
    assert (status, body) == (200, content(1))
    assert running.states()["large"] == "suspended"
    with caplog.at_level(logging.WARNING, logger="tidemill.ray"):
        running.clock.now += 1.0
        running.until_state("large", "cancelled")
        running.until(lambda: caplog.records)
    assert caplog.messages == [
        "job 1 of 127.0.0.1: its client has not read what was sent for 600 s; disconnected"
    ]
    with pytest.raises((ConnectionError, http.client.IncompleteRead)):
        read_all(client)


def test_beyond_the_maximum_of_suspended_jobs_the_longest_is_ended(start, caplog):
    running = start(ServiceLimits(QueueLimits(suspended=2), grace_seconds=0.0))
    for sql in ["first", "second", "third"]:
        running.client(sql=sql, pieces=LARGE)
        running.until_state(sql, "suspended")
        running.clock.now += 1.0
    running.until_state("first", "cancelled")
    assert running.states() == {"first": "cancelled", "second": "suspended", "third": "suspended"}
    running.until(lambda: caplog.records)
    assert "2 jobs, the maximum, are suspended already" in caplog.messages[0]


def test_client_that_closes_while_it_is_suspended_ends_its_job(start):
    running = start()
    client = running.client(sql="large", pieces=LARGE)
    running.until_state("large", "suspended")
    client.close()
    running.until_state("large", "cancelled")
    assert running.queue.counts()["suspended"] == 0


def test_more_jobs_than_the_maximum_of_a_peer_are_refused(start):
    limits = QueueLimits(running=(1, 1, 1), per_peer=3)
    running = start(ServiceLimits(limits, grace_seconds=0.0))
    running.client(sql="suspended", pieces=LARGE)
    running.until_state("suspended", "suspended")
    running.client(sql="running", pieces=0, gate="gate")
    running.until_state("running", "running")
    running.client(sql="waiting", pieces=0)
    running.until_state("waiting", "waiting")
    status, body = running.asks("POST", "/v1/jobs", {"sql": "one more"})
    assert status == 429
    told = json.loads(body)
    expected = "`127.0.0.1` has 3 jobs at this master; the maximum per peer is 3"
    assert told["message"] == expected
    assert "--max-jobs-per-peer" in told["hint"]
    # The address may ask again once a job has ended.
    running.workers.gates["gate"].set()
    running.until_state("running", "done")
    assert running.asks("POST", "/v1/jobs", {"sql": "again"})[0] == 200


def test_more_requests_than_the_maximum_of_a_peer_are_refused(start):
    running = start(ServiceLimits(requests_per_peer=2))
    for sql in ["first", "second"]:
        running.client(sql=sql, pieces=0, gate="gate")
        running.until_state(sql, "running")
    status, body = running.asks("GET", "/v1/status")
    assert status == 429
    told = json.loads(body)["message"]
    assert told == "`127.0.0.1` has 2 requests at this master; the maximum per peer is 2"
    assert running.asks("GET", "/v1/status", token=ADMIN)[0] == 200


def test_query_token_does_not_end_the_master(start):
    running = start()
    status, body = running.asks("POST", "/v1/down", {})
    assert status == 403
    told = json.loads(body)
    assert "query token" in told["message"] and "admin token" in told["hint"]
    assert not running.has_ended.is_set()
    assert running.asks("POST", "/v1/down", {}, token="query-tokem")[0] == 401
    assert running.asks("POST", "/v1/down", {}, token=ADMIN) == (200, b'{"ended": true}')
    assert running.has_ended.wait(60)


def test_statements_of_others_are_shown_to_the_admin_token_alone(start):
    running = start()
    for client_id, sql in [("a" * 64, "of a"), ("b" * 64, "of b"), (None, "of nobody")]:
        asked = running.asks("POST", "/v1/jobs", {"sql": sql}, client_id=client_id)
        assert asked == (200, content(1))
        running.until_state(sql, "done")

    def shown(token=QUERY, client_id=None):
        status, body = running.asks("GET", "/v1/jobs", token=token, client_id=client_id)
        assert status == 200
        return [(job["shown"], job["peer"]) for job in json.loads(body)]

    hidden, here = (None, None), "127.0.0.1"
    assert shown() == [hidden] * 3
    assert shown(client_id="a" * 64) == [hidden, hidden, ("of a", here)]
    assert shown(client_id="b" * 64) == [hidden, ("of b", here), hidden]
    assert shown(client_id="c" * 64) == [hidden] * 3
    everything = [("of nobody", here), ("of b", here), ("of a", here)]
    assert shown(token=ADMIN) == everything


def test_answer_is_enough_when_its_own_client_says_so(start):
    running = start()
    taken = []

    class Noted(ScriptedAnswering):
        def is_enough(self):
            taken.append(self.shown)

    running.service.answering = Noted
    body = {"sql": "long", "pieces": 0, "gate": "gate"}
    asked = threading.Thread(
        target=running.asks, args=("POST", "/v1/jobs", body), kwargs={"client_id": "a" * 64}
    )
    asked.start()
    running.until_state("long", "running")
    path = "/v1/jobs/1/enough"
    for client_id in [None, "", "b" * 64]:
        status, refusal = running.asks("POST", path, {}, client_id=client_id)
        assert status == 403 and b"another client" in refusal
    assert taken == []
    assert running.asks("POST", path, {}, client_id="a" * 64)[0] == 200
    assert running.asks("POST", path, {}, token=ADMIN)[0] == 200
    assert taken == ["long", "long"]
    running.workers.gates["gate"].set()
    asked.join(60)
    running.until_state("long", "done")
    assert running.asks("POST", path, {}, client_id="a" * 64)[0] == 404


@pytest.fixture
def high_descriptors():
    """Allow descriptors above 1023; return a function that moves a socket there."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2048
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))

    def move(connection):
        number = fcntl.fcntl(connection.fileno(), fcntl.F_DUPFD, 1500)
        assert number >= 1500
        connection.close()
        return socket.socket(fileno=number)

    yield move
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_connection_may_have_a_descriptor_above_1023(start, high_descriptors):
    running = start()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname(), timeout=60)
        connection, address = listener.accept()
    with client:
        client.sendall(request("POST", "/v1/jobs", {"sql": "high", "pieces": 2, "gate": "gate"}))
        running.service.process_request(high_descriptors(connection), address)
        # The service polls the client's socket while it waits for the engine.
        running.until_state("high", "running")
        running.workers.gates["gate"].set()
        assert read_all(client) == content(2)


@pytest.fixture
def tls(tmp_path):
    """Return the files of a service with TLS, and the context of its clients."""
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    openssl = subprocess.run(
        [
            *["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"],
            *["-nodes", "-days", "2", "-subj", "/CN=localhost", "-keyout", key],
            *["-out", certificate],
        ],
        capture_output=True,
    )
    assert openssl.returncode == 0, openssl.stderr
    context = ssl.create_default_context(cafile=str(certificate))
    context.check_hostname = False
    return {"certificate": str(certificate), "key": str(key)}, context


def connected(stack, running, context=None):
    """Return a client's connection to a service, after the handshake of TLS if it has a context."""
    client = stack.enter_context(socket.create_connection(running.place, timeout=60))
    return client if context is None else stack.enter_context(context.wrap_socket(client))


def is_closed(client):
    """Return true once the service has closed a connection: it is reset by more input."""
    try:
        client.send(b"x")
    except OSError:
        return True
    return False


@pytest.mark.parametrize("has_handshake", [False, True])
def test_idle_clients_of_tls_have_a_limit(start, tls, monkeypatch, has_handshake):
    monkeypatch.setattr(_service, "_STRANGERS_MAX", 2)
    # The limit alone closes a connection, not the time.
    monkeypatch.setattr(_service, "_REQUEST_SECONDS", 3600.0)
    files, context = tls
    running = start(**files)
    with contextlib.ExitStack() as stack:
        idle = []
        for number in range(4):
            idle.append(connected(stack, running, context if has_handshake else None))
            running.until(lambda: len(running.service._strangers) == min(len(idle), 2))
            if number >= 2:
                with contextlib.suppress(ConnectionError):
                    assert idle[number - 2].recv(1) == b""
        # The next client takes the place of an idle one, and is answered.
        client = connected(stack, running, context)
        client.sendall(request("POST", "/v1/jobs", {"sql": "small"}))
        assert read_all(client) == content(1)
        with contextlib.suppress(ConnectionError):
            assert idle[2].recv(1) == b""


@pytest.mark.parametrize("with_tls", [False, True])
@pytest.mark.parametrize(("token", "status"), [("wrong", 401), (QUERY, 429)])
def test_refused_clients_that_stay_have_a_limit(start, tls, monkeypatch, with_tls, token, status):
    monkeypatch.setattr(_service, "_STRANGERS_MAX", 1)
    monkeypatch.setattr(_service, "_LINGER_SECONDS", 3600.0)
    files, context = tls if with_tls else ({}, None)
    running = start(ServiceLimits(requests_per_peer=1), **files)
    running.client(context, sql="running", pieces=0, gate="gate")
    running.until_state("running", "running")
    with contextlib.ExitStack() as stack:
        refused = connected(stack, running, context)
        refused.sendall(request("GET", "/v1/status", {}, token=token))
        answer = http.client.HTTPResponse(refused)
        answer.begin()
        assert answer.status == status
        connected(stack, running, context)
        running.until(lambda: is_closed(refused))


def test_client_of_tls_that_does_not_read_is_suspended_too(start, tls):
    files, context = tls
    running = start(**files)
    client = running.client(context, sql="large", pieces=LARGE)
    running.until_state("large", "suspended")
    small = running.client(context, sql="small")
    assert read_all(small) == content(1)
    assert read_all(client) == content(LARGE)
    running.until_state("large", "done")
    # A client that closes its connection cancels its job.
    client = running.client(context, sql="gone", pieces=LARGE)
    running.until_state("gone", "suspended")
    client.close()
    running.until_state("gone", "cancelled")


def pair():
    """Two ends of a connection with small buffers."""
    ours, theirs = socket.socketpair()
    for end in (ours, theirs):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    theirs.settimeout(60)
    return ours, theirs


def test_delivery_is_stalled_after_its_limit_unless_bytes_are_taken():
    ours, theirs = pair()
    clock = Clock()
    with ours, theirs:
        delivery = Delivery(ours, 10.0, clock)
        delivery.add(b"x" * (4 * MEBIBYTE))
        assert not delivery.flush()
        clock.now += 9.0
        # Taking less than a mebibyte does not extend the limit.
        assert theirs.recv(1000)
        assert not delivery.flush()
        clock.now += 1.0
        with pytest.raises(ClientStalledError, match="for 10 s"):
            delivery.flush()
        clock.now -= 1.0
        taken = 0
        while taken < 2 * MEBIBYTE:
            taken += len(theirs.recv(1 << 16))
            delivery.flush()
        clock.now += 9.0
        assert not delivery.flush()
        while not delivery.flush():
            theirs.recv(1 << 16)
        assert not delivery.is_pending
        # Bytes added later have the whole limit again.
        clock.now += 100.0
        delivery.add(b"x" * MEBIBYTE)
        assert not delivery.flush()


def test_delivery_notices_the_end_of_its_client_and_ignores_more_input():
    for closes in ["close", "shutdown"]:
        ours, theirs = pair()
        with ours, theirs:
            delivery = Delivery(ours, 10.0, Clock())
            delivery.check()
            theirs.sendall(b"more")
            delivery.wait(60)
            delivery.check()
            delivery.add(b"x" * MEBIBYTE)
            assert not delivery.flush()
            theirs.close() if closes == "close" else theirs.shutdown(socket.SHUT_WR)
            with pytest.raises(ClientGoneError):
                delivery.wait(60)


class Question:
    """The attributes of a run that a queue uses."""

    verb = "query"

    def __init__(self, priority=1):
        self.priority, self.shown = priority, "SELECT 1"


def queue_of(**limits):
    return JobQueue(QueueLimits(**limits), Clock())


def test_higher_priorities_have_more_places_and_go_first():
    queue = queue_of(running=(1, 2, 3))
    asker = Asker("a")
    first = [queue.enter(Question(1), asker) for _ in range(3)]
    low, high = queue.enter(Question(0), asker), queue.enter(Question(2), asker)
    assert [job.state for job in (*first, low, high)] == [
        *["running", "running", "waiting"],
        *["waiting", "running"],
    ]
    another = queue.enter(Question(2), asker)
    assert queue.wait_for_turn(another, 0) == 0
    assert queue.wait_for_turn(low, 0) == 2
    # The next job gets the place at once, whether or not its thread waits for it.
    queue.leave(first[0], "done")
    assert another.state == "running"
    queue.leave(high, "done")
    queue.leave(another, "done")
    assert (first[2].state, low.state) == ("running", "waiting")
    queue.leave(first[1], "done")
    queue.leave(first[2], "done")
    assert queue.wait_for_turn(low, 0) is None


def test_job_of_the_peer_with_the_most_suspended_ones_is_evicted():
    queue = queue_of(running=(9, 9, 9), suspended=3)
    peers = ["a", "b", "b", "c"]
    jobs = [queue.enter(Question(), Asker(peer)) for peer in peers]
    for job in jobs:
        queue.suspend(job)
        queue.clock.now += 1.0
    assert [job.eviction is None for job in jobs] == [True, False, True, True]
    # An ended job does not count, so one more job can be suspended.
    queue.leave(jobs[1], "cancelled")
    queue.resume(jobs[0])
    assert jobs[0].state == "running"
    more = queue.enter(Question(), Asker("d"))
    queue.suspend(more)
    assert more.eviction is None
    # Jobs that wait for a place again keep their memory, so they count as suspended.
    full = queue_of(running=(1, 1, 1), suspended=1)
    jobs = [full.enter(Question(), Asker("a")) for _ in range(2)]
    full.suspend(jobs[0])
    full.resume(jobs[0])
    assert [job.state for job in jobs] == ["waiting", "running"]
    full.suspend(jobs[1])
    assert jobs[1].eviction is not None and jobs[0].state == "running"


def test_client_that_reads_again_before_its_eviction_keeps_its_job():
    queue = queue_of(running=(9, 9, 9), suspended=1)
    first, second = (queue.enter(Question(), Asker("a")) for _ in range(2))
    queue.suspend(first)
    queue.clock.now += 1.0
    queue.suspend(second)
    assert first.eviction is not None
    queue.resume(first)
    assert (first.state, first.eviction) == ("running", None)
    # The next suspension ends whichever job has been suspended for the longest.
    queue.clock.now += 1.0
    queue.suspend(first)
    assert first.eviction is None and second.eviction is not None


def test_admin_token_is_exempt_from_the_maximum_of_a_peer():
    queue = queue_of(running=(1, 1, 1), per_peer=1)
    queue.enter(Question(), Asker("a"))
    queue.enter(Question(), Asker("b"))
    with pytest.raises(RefusedError) as refused:
        queue.enter(Question(), Asker("a"))
    assert refused.value.status == 429
    queue.enter(Question(), Asker("a", is_admin=True))


def test_jobs_that_wait_again_leave_room_for_new_ones():
    queue = queue_of(running=(1, 1, 1), waiting=1)
    first = queue.enter(Question(), Asker("a"))
    queue.suspend(first)
    queue.enter(Question(), Asker("b"))
    queue.resume(first)
    assert first.state == "waiting"
    queue.enter(Question(), Asker("c"))
    with pytest.raises(RefusedError, match="1 jobs wait for their turn") as refused:
        queue.enter(Question(), Asker("d"))
    assert refused.value.status == 503


@pytest.mark.parametrize(
    ("address", "peer"),
    [
        ("10.1.2.3", "10.1.2.3"),
        ("127.0.0.1", "127.0.0.1"),
        ("127.7.7.7", "127.0.0.1"),
        ("::1", "127.0.0.1"),
        ("::ffff:10.1.2.3", "10.1.2.3"),
        ("::ffff:127.0.0.9", "127.0.0.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
    ],
)
def test_peer_is_an_address_that_a_machine_cannot_multiply(address, peer):
    assert peer_of(address) == peer
