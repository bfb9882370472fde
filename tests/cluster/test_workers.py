"""Tests of dealing tasks to workers, on a fake Ray."""

import threading

import pytest

from tidemill.ray import _workers


class Call:
    """The result of an actor's call, which may not be ready."""

    def __init__(self, result=None, is_ready=True):
        self.result, self.is_ready = result, is_ready


class Method:
    """A method of an actor, which returns the result of a function."""

    def __init__(self, give):
        self.give = give

    def options(self, **_):
        return self

    def remote(self, *arguments):
        return self.give(*arguments)


class Actor:
    """A worker that finishes each task at once, unless it hangs."""

    def __init__(self, place):
        self.is_hung = False
        self.done = []
        self.ready = Method(lambda: Call(("here", place, "node")))
        self.begin = Method(lambda *_: Call())
        self.end = Method(lambda *_: Call())
        self.missing = Method(lambda paths: Call([], is_ready=not self.is_hung))
        self.run = Method(self._run)

    def _run(self, job, tasks, copies):
        self.done += tasks
        return Call([b"part of " + task for task in tasks])


class Remote:
    """The class of actors, which creates an `Actor` at each call."""

    def __init__(self, ray):
        self.ray = ray

    def options(self, **_):
        return self

    def remote(self, *_):
        self.ray.actors.append(Actor(len(self.ray.actors)))
        return self.ray.actors[-1]


class Ray:
    """A fake of Ray for `_workers`, without timeouts: a wait for a hung call ends at `go_on`."""

    class exceptions:  # noqa: N801
        class RayActorError(Exception):
            pass

        class ObjectLostError(Exception):
            pass

        class ActorUnavailableError(RayActorError):
            pass

    def __init__(self):
        self.actors = []
        self.hangs = threading.Event()
        self.go_on = threading.Event()

    def is_initialized(self):
        return True

    def available_resources(self):
        return {"CPU": 2}

    def nodes(self):
        names = [f"{number:056x}" for number in (1, 2)]
        return [{"NodeID": name, "Alive": True, "Resources": {"CPU": 1}} for name in names]

    def remote(self, **_):
        return lambda _: Remote(self)

    def put(self, value):
        return value

    def get(self, call):
        return call.result

    def kill(self, actor):
        pass

    def wait(self, calls, num_returns=1, timeout=None):
        ready = [call for call in calls if call.is_ready]
        if len(ready) < min(num_returns, len(calls)) and timeout != 0:
            self.hangs.set()
            assert self.go_on.wait(60)
        return ready, [call for call in calls if not call.is_ready]


@pytest.fixture
def ray(monkeypatch):
    ray = Ray()
    monkeypatch.setattr(_workers, "_ray", lambda: ray)
    yield ray
    ray.go_on.set()


@pytest.fixture
def workers(ray):
    return _workers.RayWorkers("ray", memory=None)


def test_queries_go_on_while_a_job_waits_for_a_worker_that_hangs(ray, workers):
    first, second = workers.job(), workers.job()
    first.begin(b"first", {}, [])
    ray.actors[1].is_hung = True
    begins = threading.Thread(target=second.begin, args=(b"second", {}, ["/data"]))
    begins.start()
    assert ray.hangs.wait(60)
    came = []

    def goes_on():
        for number in range(3):
            first.submit(number, 0, 1, "task", b"%d" % number)
        came.extend(first.next(0.0) for _ in range(3))
        came.append(workers.reach()[:3])

    other = threading.Thread(target=goes_on, daemon=True)
    other.start()
    other.join(30)
    has_gone_on, begins_still = not other.is_alive(), begins.is_alive()
    ray.go_on.set()
    begins.join(60)
    other.join(60)
    assert has_gone_on and begins_still
    parts = sorted(part for _, _, part, _, _ in came[:3])
    assert parts == [b"part of 0", b"part of 1", b"part of 2"]
    assert came[3] == (1, 2, 2)
    # A worker that has not answered gets no tasks.
    assert workers.reach()[1] == 1
    before = len(ray.actors[1].done)
    for number in range(4):
        second.submit(number, 0, 1, "task", b"more")
        assert second.next(0.0)[2] == b"part of more"
    assert len(ray.actors[1].done) == before


def test_paths_that_a_late_worker_does_not_see_refuse_the_job(ray, workers):
    actor = ray.actors[1]
    late = Call(["/data"], is_ready=False)
    actor.missing = Method(lambda paths: late)
    ray.go_on.set()
    job = workers.job()
    job.begin(b"job", {}, ["/data"])
    late.is_ready = True
    with pytest.raises(_workers.UsageError, match="`/data` is not on `here`"):
        job.next(0.0)


def test_tasks_of_a_suspended_job_are_not_dealt_until_it_is_resumed(ray, workers):
    suspended, other = workers.job(), workers.job()
    # A job may be suspended before it begins.
    suspended.suspend()
    suspended.begin(b"suspended", {}, [])
    other.begin(b"other", {}, [])
    suspended.submit(0, 0, 1, "task", b"suspended")
    for number in range(3):
        other.submit(number, 0, 1, "task", b"other")
        assert other.next(0.0)[2] == b"part of other"
    done = [task for actor in ray.actors for task in actor.done]
    assert done == [b"other"] * 3
    assert suspended.next(0.0) is None
    suspended.resume()
    assert suspended.next(0.0)[2] == b"part of suspended"


class NotedCondition(threading.Condition):
    """A condition that tells when somebody waits for it."""

    def __init__(self):
        super().__init__(threading.RLock())
        self.is_waited = threading.Event()

    def wait(self, timeout=None):
        self.is_waited.set()
        return super().wait(timeout)


class Asking(threading.Thread):
    """A thread that asks a job for its next task until there is one, or the job has ended."""

    def __init__(self, job):
        super().__init__(daemon=True)
        self.job, self.has_ended = job, threading.Event()
        self.calls = 0
        self.came = None
        self.start()

    def run(self):
        while self.came is None and not self.has_ended.is_set():
            self.calls += 1
            self.came = self.job.next(3600.0)

    def joined(self):
        self.join(60)
        assert not self.is_alive()
        return self.came


def test_job_without_calls_waits_until_something_happens(ray, workers):
    def begun(name):
        workers._lock = NotedCondition()
        job = workers.job()
        job.begin(name, {}, [])
        return job

    # A suspended job with a task.
    job = begun(b"suspended")
    job.suspend()
    job.submit(0, 0, 1, "task", b"one")
    asking = Asking(job)
    assert workers._lock.is_waited.wait(60)
    job.resume()
    assert asking.joined()[2] == b"part of one"
    # One call that waits, and one that takes the task.
    assert asking.calls == 2
    # A job without a task.
    workers._lock.is_waited.clear()
    asking = Asking(job)
    assert workers._lock.is_waited.wait(60)
    job.submit(1, 0, 1, "task", b"two")
    assert asking.joined()[2] == b"part of two"
    assert asking.calls == 2
    # The end of the job.
    workers._lock.is_waited.clear()
    asking = Asking(job)
    assert workers._lock.is_waited.wait(60)
    asking.has_ended.set()
    job.end()
    assert asking.joined() is None
    assert asking.calls == 1


def test_slow_tasks_are_started_again_while_a_suspended_job_has_some(ray, workers, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(_workers.time, "monotonic", lambda: now[0])
    suspended, other = workers.job(), workers.job()
    suspended.begin(b"suspended", {}, [])
    other.begin(b"other", {}, [])
    suspended.suspend()
    suspended.submit(0, 0, 1, "task", b"suspended")
    slow = ray.actors[0]
    slow.run = Method(lambda *_: Call(is_ready=False))
    other.submit(0, 0, 1, "task", b"slow")
    assert ray.actors[1].done == []
    now[0] += 60.0
    ray.go_on.set()
    assert other.next(0.0) is None
    assert other.next(0.0)[2] == b"part of slow"
    assert ray.actors[1].done == [b"slow"]
