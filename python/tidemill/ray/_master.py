"""A master that stays on a cluster: started, asked and ended.

It is an actor of its own, which nobody's end takes with it, and the workers are its children: when
it ends, however that is, they do. What it answers over HTTP is in ``_service``.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import secrets
import socket
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tidemill import _tidemill
from tidemill._errors import UsageError
from tidemill.ray._workers import RayWorkers, _ray, _start_ray

#: By this name it is found on its cluster.
NAME = "tidemill-master"
NAMESPACE = "tidemill"

#: What is left of it in the state folder.
_LEFT = "master.json"

#: It is waited for so many seconds until it has workers.
_START_SECONDS = 120.0

#: Workers have so many seconds to end before it does.
_END_SECONDS = 5.0


@dataclass(frozen=True)
class Standing:
    """A master that was started: where it listens, and whom it has."""

    address: str
    machines: int
    workers: int
    threads: int


def up(
    on: str = "ray",
    *,
    workers: int | None = None,
    memory: str | int | None = None,
    listen: str | None = None,
    certificate: str | os.PathLike[str] | None = None,
    key: str | os.PathLike[str] | None = None,
    token_file: str | os.PathLike[str] | None = None,
    admin_token_file: str | os.PathLike[str] | None = None,
    max_jobs_per_peer: int | None = None,
    allow_programs: bool = False,
    allow_paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] = (),
) -> Standing:
    """Start a master and its workers on a cluster, which stay until `down`.

    Its two tokens are left in the state folder, where only you may read them, so that
    ``on="master"`` needs no token on this machine. The query token allows queries; the admin token
    also allows ending the master and reading the statements of others.

    Parameters
    ----------
    on : str, optional
        ``ray`` for the cluster that ``RAY_ADDRESS`` names, that the process is connected to or that
        runs on this machine; ``ray://host:port`` for another. Default: ``ray``.
    workers : int, optional
        How many workers at most. Default: one for each four cores.
    memory : str or int, optional
        What each worker may take. Default: half of its machine's memory by its share of the cores.
    listen : str, optional
        The address and port to listen at, beyond this machine with a certificate alone. Default:
        ``127.0.0.1`` and a free port.
    certificate, key : path or str, optional
        Files with the certificate for TLS, with those that vouch for it, and with its key.
    token_file : path or str, optional
        A file to write the query token to, for the users of the master. Only you may read it.
    admin_token_file : path or str, optional
        A file to write the admin token to, which only you may read.
    max_jobs_per_peer : int, optional
        Maximum number of jobs of one client address at the same time. Default: 32.
    allow_programs : bool, optional
        Let those who ask run programs (``exec``) on the cluster, as the user that it runs as.
        Default: false.
    allow_paths : path, str or sequence of them, optional
        Folders whose files on the cluster's machines those who ask may read. Default: none.

    Returns
    -------
    Standing
        Where it listens, and how many machines, workers and threads there are.

    Examples
    --------
    >>> import tidemill as tm
    >>> import tidemill.ray
    >>> standing = tidemill.ray.up(workers=1)  # doctest: +SKIP
    >>> sql = "SELECT count() AS n FROM 's3://logs/web.csv'"
    >>> tm.query(sql, on=standing.address).to_pylist()  # doctest: +SKIP
    [{'n': 1204}]
    >>> tidemill.ray.down()  # doctest: +SKIP
    """
    if workers is not None and workers < 1:
        raise UsageError(f"`workers={workers}` is no number of workers: at least 1")
    if max_jobs_per_peer is not None and max_jobs_per_peer < 1:
        raise UsageError(
            f"`max_jobs_per_peer={max_jobs_per_peer}` is no number of jobs: at least 1"
        )
    if (certificate is None) != (key is None):
        raise UsageError("a certificate and its key go together: `certificate` and `key`")
    if isinstance(allow_paths, str | os.PathLike):
        allow_paths = [allow_paths]
    host, port = _place(listen, has_certificate=certificate is not None)
    asked = {
        "workers": workers,
        "memory": None if memory is None else _tidemill.memory_bytes(str(memory)),
        "host": host,
        "port": port,
        "certificate": None if certificate is None else os.path.abspath(os.fspath(certificate)),
        "key": None if key is None else os.path.abspath(os.fspath(key)),
        "max_jobs_per_peer": max_jobs_per_peer,
        "allow_programs": allow_programs,
        "allow_paths": [os.path.abspath(os.fspath(path)) for path in allow_paths],
    }
    folder = _tidemill.state_folder()
    if folder is None and token_file is None:
        raise UsageError(
            "there is no state folder for the tokens\nhint: set TIDEMILL_HOME, or name a "
            "`token_file`"
        )
    _connect(on)
    ray = _ray()
    if _find() is not None:
        raise UsageError("the cluster has a master already\nhint: tidemill cluster down ends it")
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    actor = (
        ray.remote(Master)
        .options(
            name=NAME,
            namespace=NAMESPACE,
            lifetime="detached",
            num_cpus=0,
            max_restarts=0,
            max_concurrency=4,
            scheduling_strategy=here,
        )
        .remote()
    )
    try:
        told = ray.get(actor.start.remote(asked), timeout=_START_SECONDS)
        left = {name: told[name] for name in ("address", "token", "admin_token")}
        if folder is not None:
            _write_private(os.path.join(folder, _LEFT), json.dumps(left) + "\n")
        if token_file is not None:
            _write_private(os.fspath(token_file), told["token"] + "\n")
        if admin_token_file is not None:
            _write_private(os.fspath(admin_token_file), told["admin_token"] + "\n")
    except BaseException as error:
        with contextlib.suppress(Exception):
            ray.kill(actor)
        cause = getattr(error, "cause", None)
        if isinstance(error, ray.exceptions.RayTaskError) and isinstance(cause, UsageError):
            raise UsageError(str(cause)) from None
        raise
    return Standing(told["address"], told["machines"], told["workers"], told["threads"])


def down(
    on: str = "master",
    *,
    admin_token_file: str | os.PathLike[str] | None = None,
) -> None:
    """End a master, its workers and what they run.

    This needs the admin token, from `admin_token_file`, the variable ``TIDEMILL_ADMIN_TOKEN``, or
    the state folder, where `up` leaves it.

    Parameters
    ----------
    on : str, optional
        Its address; or the cluster, ``ray`` or ``ray://host:port``, for one that does not answer.
        Default: the one that was started on this machine.
    admin_token_file : path or str, optional
        A file with its admin token.

    Examples
    --------
    >>> import tidemill.ray
    >>> tidemill.ray.down()  # doctest: +SKIP
    """
    if on == "ray" or on.startswith("ray://"):
        if not kill(on):
            raise UsageError(f"there is no master on `{on}`\nhint: tidemill.ray.up() starts one")
    else:
        _tidemill.ask_master(on, "down", admin_token_file=_path(admin_token_file))


def status(on: str = "master") -> dict[str, Any]:
    """Tell whether a master answers, and what it has.

    Parameters
    ----------
    on : str, optional
        Its address. Default: the one that was started on this machine.

    Returns
    -------
    dict
        ``address``, ``release``, ``up_seconds``, ``machines``, ``workers``, ``threads``, and how
        many jobs are ``running``, ``suspended`` and ``waiting`` and have ``ended``.

    Examples
    --------
    >>> import tidemill.ray
    >>> tidemill.ray.status()["workers"]  # doctest: +SKIP
    3
    """
    told: dict[str, Any] = json.loads(_tidemill.ask_master(on, "status"))
    return told


def jobs(
    on: str = "master",
    *,
    admin_token_file: str | os.PathLike[str] | None = None,
) -> list[dict[str, Any]]:
    """List what a master runs, what waits for its turn, and the last that have ended.

    With the admin token the list has all statements and client addresses, with the query token
    only your own. The admin token comes from `admin_token_file`, the variable
    ``TIDEMILL_ADMIN_TOKEN``, or the state folder, where `up` leaves it.

    Parameters
    ----------
    on : str, optional
        Its address. Default: the one that was started on this machine.
    admin_token_file : path or str, optional
        A file with its admin token.

    Returns
    -------
    list of dict
        Each with ``id``, ``verb``, ``state``, ``priority``, ``seconds``, ``peer`` and ``shown``,
        the newest first. ``peer``, the address of a client's machine, and ``shown``, the statement,
        are None for the jobs of others, unless the admin token asks.

    Examples
    --------
    >>> import tidemill.ray
    >>> [job["state"] for job in tidemill.ray.jobs()]  # doctest: +SKIP
    ['running', 'done']
    """
    told: list[dict[str, Any]] = json.loads(
        _tidemill.ask_master(on, "jobs", admin_token_file=_path(admin_token_file))
    )
    return told


def token(*, admin: bool = False) -> str:
    """Give a token of the master that was started on this machine.

    Parameters
    ----------
    admin : bool, optional
        Give the admin token rather than the query token. Default: false.

    Examples
    --------
    >>> import tidemill.ray
    >>> token = tidemill.ray.token()  # doctest: +SKIP
    """
    left = _tidemill.master_token(admin)
    if left is None:
        raise UsageError(
            "no master was started on this machine\nhint: tidemill cluster up starts one"
        )
    return left


def _path(file: str | os.PathLike[str] | None) -> str | None:
    return None if file is None else os.fspath(file)


def kill(on: str) -> bool:
    """End the master of a Ray cluster, whether it answers or not; tell whether there was one."""
    _connect(on)
    actor = _find()
    if actor is None:
        return False
    with contextlib.suppress(Exception):
        _ray().get(actor.end.remote(), timeout=_END_SECONDS)
    with contextlib.suppress(Exception):
        _ray().kill(actor)
    folder = _tidemill.state_folder()
    if folder is not None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(folder, _LEFT))
    return True


def _connect(on: str) -> None:
    """Connect to a cluster that is there: one that is started here ends with this process."""
    if on != "ray" and not on.startswith("ray://"):
        raise UsageError(
            f"`on={on!r}` names no Ray cluster\nhint: ray, or ray:// with a host and its port"
        )
    try:
        _start_ray(_ray(), None if on == "ray" else on, may_start=False)
    except ConnectionError as error:
        raise UsageError(
            f"no Ray cluster is reached: {str(error).splitlines()[0]}\nhint: ray start --head "
            "starts one on this machine; or name one: ray://host:port"
        ) from error


def _find() -> Any:
    """Give the cluster's master, if it has one."""
    try:
        return _ray().get_actor(NAME, namespace=NAMESPACE)
    except ValueError:
        return None


def _place(listen: str | None, *, has_certificate: bool) -> tuple[str, int]:
    """Give host and port; what is beyond this machine needs a certificate."""
    if listen is None:
        return "127.0.0.1", 0
    host, colon, port = listen.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise UsageError(
            f"`{listen}` is no address to listen at\nhint: a host or an address, and a port: "
            "127.0.0.1:8080, [::1]:8080, 0.0.0.0:8443"
        )
    try:
        found = {str(it[4][0]) for it in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    except OSError as error:
        raise UsageError(f"`{host}` is not known: {error}") from None
    is_here = all(ipaddress.ip_address(it.split("%")[0]).is_loopback for it in found)
    if not is_here and not has_certificate:
        raise UsageError(
            f"`{listen}` can be reached from other machines, to which the token would be in plain "
            "sight\nhint: --certificate and --key; or listen at 127.0.0.1, and let others through "
            "a tunnel: ssh -L"
        )
    return host, int(port)


def _write_private(path: str, text: str) -> None:
    """Write a file that nobody but the user may read, in the place of one that is there."""
    folder = os.path.dirname(os.path.abspath(path))
    # It is made so that only the user may read it.
    handle, temporary = tempfile.mkstemp(dir=folder, prefix=".master-")
    try:
        with os.fdopen(handle, "w") as file:
            file.write(text)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


class Master:
    """The actor: workers of its own, and the service that they are asked by."""

    def __init__(self) -> None:
        self._workers: RayWorkers | None = None

    def start(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Start workers, and listen. Creates the tokens, and gives them to the caller alone."""
        from tidemill.ray._job_queue import JOBS_PER_PEER_MAX, QueueLimits
        from tidemill.ray._service import Service, ServiceLimits

        folders, may_run_programs = asked["allow_paths"], asked["allow_programs"]
        _tidemill.confine(folders, may_run_programs)
        workers = RayWorkers(
            "ray",
            memory=asked["memory"],
            most=asked["workers"],
            confined=(folders, may_run_programs),
        )
        self._workers = workers
        token, admin_token = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        per_peer = asked["max_jobs_per_peer"] or JOBS_PER_PEER_MAX
        service = Service(
            workers,
            token,
            admin_token,
            host=asked["host"],
            port=asked["port"],
            certificate=asked["certificate"],
            key=asked["key"],
            may_run_programs=may_run_programs,
            end=self._end_soon,
            limits=ServiceLimits(
                QueueLimits(per_peer=per_peer), requests_per_peer=max(128, 2 * per_peer)
            ),
        )
        threading.Thread(target=service.serve_forever, name="http", daemon=True).start()
        machines, processes, threads, _ = workers.reach()
        told = {"machines": machines, "workers": processes, "threads": threads}
        tokens = {"token": token, "admin_token": admin_token}
        return {"address": service.address, **tokens, **told}

    def end(self) -> None:
        """End the workers."""
        if self._workers is not None:
            self._workers.close()

    def _end_soon(self) -> None:
        """End the workers and this process; whoever has asked for it has its answer by then."""
        self.end()
        ray = _ray()
        with contextlib.suppress(Exception):
            ray.kill(ray.get_runtime_context().current_actor)
        os._exit(0)
