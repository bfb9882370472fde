"""Files that programs find by name, on their way to the machines of a cluster.

The driver reads a file once and puts it into Ray's object store in pieces; one worker of each
machine puts them together, in a folder that the machine's others see. Each machine asks for the
pieces in an order of its own, so that those which have some give them to others. A file is called
by the SHA-256 of its content, which is looked at, and is found again by it for later tasks and
jobs, whatever a program calls it::

    /tmp/tidemill-files-0/   of a user, who alone may look into it
      7f3c…/                 of a node of a cluster, by its identifier
        lock                 held by the workers there; a folder that nobody holds goes
        3b0c44298fc1….lock   held by who puts it together
        3b0c44298fc1…        a file, which may be read alone
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import random
import shutil
import stat
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidemill._errors import TidemillError, UsageError

if TYPE_CHECKING:
    from types import ModuleType

#: A piece has so many bytes: a few milliseconds of a fast network.
PIECE_BYTES = 4 << 20

#: Pieces on their way to a machine at once.
_AT_ONCE = 8

#: Files of earlier queries stay in the store up to so many bytes, the last that were asked for.
_KEPT_BYTES = 512 << 20

#: A name, a path, what messages call it, bytes, nanoseconds since 1970, whether it may be run.
NamedFile = tuple[str, str, str, int, int, bool]


@dataclass(frozen=True)
class SharedFile:
    """A file in the object store."""

    name: str
    digest: str
    size: int
    is_executable: bool
    #: Objects with its bytes, in their order.
    pieces: tuple[Any, ...]

    @property
    def kept_as(self) -> str:
        """Its name in a machine's folder: one that may be run is another file there."""
        return self.digest + (".run" if self.is_executable else "")


class Shelf:
    """Files that a process has put into the object store, each read once for all of its queries."""

    def __init__(self, ray: ModuleType) -> None:
        self._ray = ray
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[object, ...], tuple[str, int, tuple[Any, ...]]] = (
            OrderedDict()
        )
        #: How often a file was read.
        self.reads = 0

    def put(self, files: Sequence[NamedFile]) -> list[SharedFile]:
        """Give files as objects of the store."""
        with self._lock:
            shared = [self._put(file) for file in files]
            self._let_go()
        return shared

    def _put(self, file: NamedFile) -> SharedFile:
        name, path, shown, size, modified_ns, is_executable = file
        try:
            with open(path, "rb") as opened:
                found = os.fstat(opened.fileno())
                key = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
                if key[2:] != (size, modified_ns):
                    raise _changed(shown)
                if key not in self._kept:
                    self._kept[key] = self._read(opened, shown, size)
                    found = os.fstat(opened.fileno())
                    if key[2:] != (found.st_size, found.st_mtime_ns):
                        del self._kept[key]
                        raise _changed(shown)
        except OSError as error:
            raise UsageError(f"cannot read `{shown}`: {error.strerror}") from error
        self._kept.move_to_end(key)
        digest, size, pieces = self._kept[key]
        return SharedFile(name, digest, size, is_executable, pieces)

    def _read(self, opened: Any, shown: str, size: int) -> tuple[str, int, tuple[Any, ...]]:
        self.reads += 1
        digest, pieces, count = hashlib.sha256(), [], 0
        while piece := opened.read(PIECE_BYTES):
            digest.update(piece)
            count += len(piece)
            pieces.append(self._ray.put(piece))
        if count != size:
            raise _changed(shown)
        for kept in self._kept.values():
            # It is there under another name.
            if kept[:2] == (digest.hexdigest(), size):
                return kept
        return digest.hexdigest(), size, tuple(pieces)

    def _let_go(self) -> None:
        """Keep no more than some of the last; a job has hold of its own."""
        total = sum(size for _, size, _ in self._kept.values())
        while total > _KEPT_BYTES and len(self._kept) > 1:
            _, (_, size, _) = self._kept.popitem(last=False)
            total -= size


def _changed(shown: str) -> TidemillError:
    return UsageError(
        f"`{shown}` changed while it was read\nhint: run again once nothing writes to it"
    )


class MachineFolder:
    """The files of a machine, which its workers have together.

    Each worker holds a lock of the folder as long as it lives, so that whoever comes to the machine
    knows what is nobody's any more.
    """

    def __init__(self, node: str, parent: str | None = None) -> None:
        #: Files that this process has put together, and the seconds that it took.
        self.written: dict[str, float] = {}
        self._node = node
        root = os.path.join(parent or tempfile.gettempdir(), f"tidemill-files-{os.getuid()}")
        self._root = _own_folder(root)
        self._path = os.path.join(self._root, _safe(node))
        self._held = self._hold()
        _remove_left(self._root)

    def _hold(self) -> int:
        """Make the folder, and hold it."""
        while True:
            _own_folder(self._path)
            lock = os.path.join(self._path, "lock")
            try:
                held = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            except FileNotFoundError:
                continue
            fcntl.flock(held, fcntl.LOCK_SH)
            # Somebody may have removed it between the two.
            if _is_same(held, lock):
                return held
            os.close(held)

    def path(self, file: SharedFile, get: Callable[[Sequence[Any]], Sequence[Any]]) -> str:
        """Give where a file is, put together by this process if by no other.

        Parameters
        ----------
        file : SharedFile
            What it is.
        get : callable
            Gives the bytes of some pieces.
        """
        path = os.path.join(self._path, _safe(file.kept_as))
        if _is_whole(path, file.size):
            return path
        with _locked(path + ".lock"):
            # Whoever had the lock has written it, or was killed.
            if not _is_whole(path, file.size):
                began = time.monotonic()
                self._write(path, file, get)
                self.written[file.digest] = time.monotonic() - began
        return path

    def _write(
        self, path: str, file: SharedFile, get: Callable[[Sequence[Any]], Sequence[Any]]
    ) -> None:
        begun = path + ".begun"
        with open(begun, "w+b") as out:
            for some in _by(_order(self._node, file), _AT_ONCE):
                for place, piece in zip(some, get([file.pieces[at] for at in some]), strict=True):
                    out.seek(place * PIECE_BYTES)
                    out.write(piece)
            out.flush()
            out.seek(0)
            digest = hashlib.sha256()
            while piece := out.read(PIECE_BYTES):
                digest.update(piece)
            if digest.hexdigest() != file.digest:
                msg = f"`{file.name}` came as other bytes than were sent"
                raise RuntimeError(msg)
            os.fchmod(out.fileno(), 0o555 if file.is_executable else 0o444)
            # Whoever writes to it by now is seen by its time.
            os.utime(out.fileno(), ns=(0, 0))
        os.rename(begun, path)

    def leave(self) -> None:
        """Let go of the folder; the last one removes it."""
        if self._held < 0:
            return
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(self._held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(self._path, ignore_errors=True)
        os.close(self._held)
        self._held = -1


def _order(node: str, file: SharedFile) -> list[int]:
    """Give the places of pieces in an order of the machine's own: what one has it gives others."""
    places = list(range(len(file.pieces)))
    random.Random(node + file.digest).shuffle(places)
    return places


def _by(places: Sequence[int], count: int) -> Iterator[Sequence[int]]:
    for start in range(0, len(places), count):
        yield places[start : start + count]


def _safe(name: str) -> str:
    """Refuse what is no name that we give."""
    if not name or not all(letter.isalnum() or letter == "." for letter in name) or name[0] == ".":
        msg = f"`{name}` is no name of a folder"
        raise ValueError(msg)
    return name


def _own_folder(path: str) -> str:
    """Make a folder that is ours alone, where there is none."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
    found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        msg = f"`{path}` is somebody else's"
        raise PermissionError(msg)
    return path


def _is_same(descriptor: int, path: str) -> bool:
    try:
        there = os.stat(path)
    except FileNotFoundError:
        return False
    here = os.fstat(descriptor)
    return (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)


def _is_whole(path: str, size: int) -> bool:
    # It gets its name when all is there; somebody may have written to it since.
    with contextlib.suppress(FileNotFoundError):
        found = os.stat(path)
        return (found.st_size, found.st_mtime_ns) == (size, 0)
    return False


@contextlib.contextmanager
def _locked(path: str) -> Iterator[None]:
    """Hold a lock that others wait for, and that goes with the process that has it."""
    held = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        os.close(held)


def _remove_left(root: str) -> None:
    """Remove the folders that nobody holds."""
    for entry in os.scandir(root):
        lock = os.path.join(entry.path, "lock")
        try:
            # One that is being made has none yet, and stays.
            held = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_same(held, lock):
                shutil.rmtree(entry.path, ignore_errors=True)
        except BlockingIOError:
            pass
        finally:
            os.close(held)
