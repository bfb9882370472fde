"""A process whose operations on files below some folders are seen before they are done.

Each waits until it is let go on, so that a process can be killed at its n-th: what the sink's own
tests do by counting in `crates/sink/src/commit/fs.rs`, and here with the program as it is built. A seccomp
filter that the process sets for itself before it begins tells them to its parent (Linux; no rights
are needed). What other files and what processes that it starts do goes on at once.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import platform
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

_MACHINES = {
    "x86_64": (
        0xC000003E,
        317,
        {
            257: "openat", 83: "mkdir", 258: "mkdirat", 82: "rename", 264: "renameat",
            316: "renameat2", 87: "unlink", 263: "unlinkat", 84: "rmdir", 74: "fsync",
            75: "fdatasync", 306: "syncfs",
        },
    ),
    "aarch64": (
        0xC00000B7,
        277,
        {
            56: "openat", 34: "mkdirat", 38: "renameat", 276: "renameat2", 35: "unlinkat",
            82: "fsync", 83: "fdatasync", 267: "syncfs",
        },
    ),
}  # fmt: skip

#: Which argument is the path; of others it is a descriptor, the first.
_PATH = {"mkdir": 0, "rename": 0, "unlink": 0, "rmdir": 0}
_PATH |= dict.fromkeys(("openat", "mkdirat", "renameat", "renameat2", "unlinkat"), 1)

_ALLOW, _TELL = 0x7FFF0000, 0x7FC00000
_NEW_LISTENER = 1 << 3
_NO_NEW_PRIVS = 38
_RECEIVE, _SEND = 0xC0502100, 0xC0182101
_CONTINUE = 1


def _filter() -> bytes:
    """A program that tells of these calls, of `openat` where it makes a file."""
    architecture, _, calls = _MACHINES[platform.machine()]
    opens = next(number for number, name in calls.items() if name == "openat")
    others = [number for number in calls if number != opens]
    instruction = lambda code, then, other, k: struct.pack("<HBBI", code, then, other, k)  # noqa: E731
    load, equal, bits, give = 0x20, 0x15, 0x45, 0x06
    # Behind the calls: what allows, what tells, and the look at the flags of `openat`.
    count = len(others)
    program = [instruction(load, 0, 0, 4), instruction(equal, 0, count + 2, architecture)]
    program.append(instruction(load, 0, 0, 0))
    program.append(instruction(equal, count + 2, 0, opens))
    program += [instruction(equal, count - at, 0, number) for at, number in enumerate(others)]
    program.append(instruction(give, 0, 0, _ALLOW))
    program.append(instruction(give, 0, 0, _TELL))
    # The third argument, low half.
    program.append(instruction(load, 0, 0, 16 + 2 * 8))
    program.append(instruction(bits, 0, 1, os.O_CREAT))
    program.append(instruction(give, 0, 0, _TELL))
    program.append(instruction(give, 0, 0, _ALLOW))
    return b"".join(program)


def is_there() -> bool:
    """Whether this machine can do it."""
    if sys.platform != "linux" or platform.machine() not in _MACHINES:
        return False
    try:
        actions = Path("/proc/sys/kernel/seccomp/actions_avail").read_text().split()
    except OSError:
        return False
    return "user_notif" in actions


def _confine(there: socket.socket, program: bytes, number: int) -> None:
    """In the new process: set the filter, and give away what tells of it."""
    libc = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer(program, len(program))

    class Program(ctypes.Structure):
        _fields_ = (("count", ctypes.c_ushort), ("first", ctypes.c_void_p))

    given = Program(len(program) // 8, ctypes.addressof(buffer))
    libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0)
    listener = libc.syscall(number, 1, _NEW_LISTENER, ctypes.byref(given))
    if listener < 0:
        raise OSError(ctypes.get_errno(), "seccomp")
    socket.send_fds(there, [b"."], [listener])


class Watched:
    """A process that is watched, and killed before an operation.

    Which one, says its number, the first being 0, or a function of the call's name and the path.
    """

    def __init__(
        self,
        words: Sequence[str],
        folders: Sequence[Path],
        *,
        environment: Mapping[str, str],
        kill_at: int | Callable[[str, str], bool] | None = None,
        log: Path,
    ) -> None:
        self._folders = [str(folder) for folder in folders]
        self._kill_at = kill_at
        #: What it has done: a call's name, and the path.
        self.operations: list[tuple[str, str]] = []
        self.was_killed = False
        here, there = socket.socketpair()
        program = _filter()
        number = _MACHINES[platform.machine()][1]
        with log.open("wb") as said:
            self.process = subprocess.Popen(
                list(words),
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                preexec_fn=lambda: _confine(there, program, number),
            )
        there.close()
        _, (self._listener,), _, _ = socket.recv_fds(here, 1, 1)
        here.close()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def wait(self) -> int:
        """Wait until it has ended, and all that it started; give its status."""
        status = self.process.wait()
        self._thread.join()
        os.close(self._listener)
        return status

    def _serve(self) -> None:
        poll = select.poll()
        poll.register(self._listener, select.POLLIN)
        while True:
            ready = poll.poll()
            if any(event & select.POLLHUP for _, event in ready):
                # Nobody has the filter any more.
                return
            told = bytearray(80)
            try:
                fcntl.ioctl(self._listener, _RECEIVE, told, True)
            except OSError:
                # Who asked is gone by now.
                continue
            identifier, thread, _, number = struct.unpack_from("<QIIi", told)
            arguments = struct.unpack_from("<6Q", told, 32)
            if self._is_killed_at(thread, number, arguments):
                self.was_killed = True
                os.kill(self.process.pid, signal.SIGKILL)
                continue
            answer = bytearray(struct.pack("<QqiI", identifier, 0, 0, _CONTINUE))
            with contextlib.suppress(OSError):
                fcntl.ioctl(self._listener, _SEND, answer, True)

    def _is_killed_at(self, thread: int, number: int, arguments: Sequence[int]) -> bool:
        name = _MACHINES[platform.machine()][2][number]
        if self.was_killed or not Path(f"/proc/{self.process.pid}/task/{thread}").exists():
            return False
        path = self._path(thread, name, arguments)
        if path is None or not any(
            path == folder or path.startswith(f"{folder}/") for folder in self._folders
        ):
            return False
        self.operations.append((name, path))
        if callable(self._kill_at):
            return self._kill_at(name, path)
        return len(self.operations) - 1 == self._kill_at

    def _path(self, thread: int, name: str, arguments: Sequence[int]) -> str | None:
        try:
            if name not in _PATH:
                return os.readlink(f"/proc/{thread}/fd/{arguments[0]}")
            with open(f"/proc/{thread}/mem", "rb", buffering=0) as memory:
                # A path may end where memory does.
                memory.seek(arguments[_PATH[name]])
                text = b""
                while b"\0" not in text and len(text) < 4096:
                    text += memory.read(256 - (memory.tell() % 256))
            path = text.partition(b"\0")[0].decode(errors="replace")
            return os.path.normpath(os.path.join(os.readlink(f"/proc/{thread}/cwd"), path))
        except OSError:
            return None
