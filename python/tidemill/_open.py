"""``open``: a file or an object as Python's own file objects are, read ahead of whoever reads."""

from __future__ import annotations

import asyncio
import ctypes
import io
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any

from tidemill import _options, _tidemill
from tidemill._words import counted, grouped, human_bytes

if TYPE_CHECKING:
    from typing_extensions import Buffer, Self

    from tidemill._tidemill import RawFile

Path = str | os.PathLike[str]


@dataclass(frozen=True)
class ReadStats:
    """What reading remote files did.

    One taken from another, ``after - before``, is what was done in between.

    Attributes
    ----------
    asked_bytes : int
        Bytes that were asked for and given.
    fetched_bytes, requests : int
        Bytes that came over the network, and in how many requests for bytes; what lists, or asks
        for a size, is not among them.
    disk_bytes, disk_reads : int
        Bytes that came from the read cache, and in how many reads of it.
    wasted_bytes : int
        Bytes that came, from either, and were dropped before anybody read them.
    reads, hits, stalls : int
        Reads of what is fetched ahead; those whose bytes were in memory already, and those that
        waited.
    stall_seconds : float
        For how long they did.
    retries : int
        Requests that were made again: refused, lost, or cut off, and then from there.
    throttled : int
        Answers that the server is asked too much: 429 and 503.
    hedges, hedges_won : int
        Requests that were sent a second time as the first was slow, and those of them that were
        answered first.
    taken_back : int
        Blocks that were given up for want of memory.
    block_bytes, window_bytes : int
        The block and the window that the object opened last was read by; 0 where there was none.
        A difference has those of ``after``.
    past_runs : int
        From how many past runs they were chosen, where ``"auto"`` was asked for.

    Examples
    --------
    >>> import tidemill as tm
    >>> before = tm.read_stats()
    >>> _ = tm.query("SELECT 1 AS one").to_pylist()
    >>> (tm.read_stats() - before).requests
    0
    """

    asked_bytes: int = 0
    fetched_bytes: int = 0
    disk_bytes: int = 0
    wasted_bytes: int = 0
    requests: int = 0
    disk_reads: int = 0
    reads: int = 0
    hits: int = 0
    stalls: int = 0
    stall_seconds: float = 0.0
    retries: int = 0
    throttled: int = 0
    hedges: int = 0
    hedges_won: int = 0
    taken_back: int = 0
    block_bytes: int = 0
    window_bytes: int = 0
    past_runs: int = 0

    def __sub__(self, before: ReadStats) -> ReadStats:
        """Say what was done in between."""
        # How an object is read is no number of things that were done.
        kept = {"block_bytes", "window_bytes", "past_runs"}
        names = [field.name for field in fields(self) if field.name not in kept]
        done = {name: getattr(self, name) - getattr(before, name) for name in names}
        return replace(self, **done)

    def __str__(self) -> str:
        """Say it in words."""
        disk = f", {human_bytes(self.disk_bytes)} from the read cache" if self.disk_reads else ""
        return (
            f"{human_bytes(self.asked_bytes)} read, {human_bytes(self.fetched_bytes)} fetched in "
            f"{counted(self.requests, 'request')}{disk}, {human_bytes(self.wasted_bytes)} of it in "
            f"vain; {grouped(self.hits)} of {counted(self.reads, 'read')} had their bytes in "
            f"memory, the others waited {self.stall_seconds:.2f} s"
        )


def read_stats() -> ReadStats:
    """Tell what reading remote files did in this process.

    `open`, `query` and all others that read them share one memory and one set of connections, and
    count together; `File.stats` and `Result.stats` are those of one.

    Returns
    -------
    ReadStats

    Examples
    --------
    >>> import tidemill as tm
    >>> tm.read_stats().stall_seconds >= 0
    True
    """
    return ReadStats(**_tidemill.read_stats())


class File(io.BufferedIOBase):
    r"""A file or an object, open to be read; `open` opens it.

    It is what ``open(path, "rb")`` gives: ``read``, ``readinto``, ``readline``, lines by iteration,
    ``seek``, ``tell``, a context manager. So it goes where such files go: PyArrow, pandas, Polars,
    ``zipfile``, ``gzip``, ``io.TextIOWrapper``. It may be used by several threads, one call at a
    time; where each seeks before it reads, as DuckDB's do, they need no lock. A call that waits
    lets other threads run, and Ctrl-C ends it. After a call that was ended or that failed the file
    is where it was before, and can be read on. In a coroutine ``async with`` closes it, and
    ``await asyncio.to_thread(file.read)`` reads it beside the event loop.

    Examples
    --------
    >>> import pathlib, tempfile, tidemill as tm
    >>> path = pathlib.Path(tempfile.mkdtemp(), "a.csv")
    >>> _ = path.write_text("n\n1\n2\n")
    >>> with tm.open(path) as file:
    ...     file.seek(2), list(file), file.tell(), file.size
    (2, [b'1\n', b'2\n'], 6, 6)

    Text is read as of any file:

    >>> import io
    >>> with io.TextIOWrapper(tm.open(path), encoding="utf-8") as text:
    ...     text.readline()
    'n\n'
    """

    def __init__(self, raw: RawFile) -> None:
        self._raw = raw

    @property
    def name(self) -> str:
        """Its URL or path, without what may be secret in it."""
        return self._raw.name

    @property
    def mode(self) -> str:
        """How it is open: ``"rb"``."""
        return "rb"

    @property
    def size(self) -> int | None:
        """Its bytes; None of what a web server does not say the size of."""
        return self._raw.size

    @property
    def e_tag(self) -> str | None:
        """What tells this version of an object from others, where its server says so."""
        return self._raw.e_tag

    @property
    def stats(self) -> ReadStats:
        """What reading it did; also once it is closed."""
        return ReadStats(**self._raw.stats())

    def readable(self) -> bool:
        """Say that it can be read."""
        self._check()
        return True

    def seekable(self) -> bool:
        """Say that it can be read from any place, if at the cost of fetching it again."""
        self._check()
        return True

    def read(self, size: int | None = -1, /) -> bytes:
        """Read so many bytes, or all; fewer only at the end."""
        return self._raw.read(-1 if size is None else size)

    def read1(self, size: int = -1, /) -> bytes:
        """Read some bytes, of which the first need not be waited for twice."""
        return self._raw.read1(size)

    def readinto(self, buffer: Buffer, /) -> int:
        """Fill a buffer without a copy in between; less than all of it only at the end."""
        with memoryview(buffer) as view, view.cast("B") as bytes_of:
            if not bytes_of.nbytes:
                self._check()
                return 0
            # Holds the buffer where it is, and says where.
            anchor = ctypes.c_char.from_buffer(bytes_of)
            try:
                return self._raw.readinto(ctypes.addressof(anchor), bytes_of.nbytes)
            finally:
                del anchor

    def readinto1(self, buffer: Buffer, /) -> int:
        """Fill a buffer as far as one wait goes."""
        with memoryview(buffer) as view, view.cast("B") as bytes_of:
            some = self._raw.read1(bytes_of.nbytes)
            bytes_of[: len(some)] = some
            return len(some)

    def peek(self, size: int = 0, /) -> bytes:
        """Look at what comes next, a byte at least but at the end, without reading on."""
        return self._raw.peek()

    def readline(self, size: int | None = -1, /) -> bytes:
        r"""Read up to and with the next ``\n``, so many bytes at most."""
        return self._raw.readline(-1 if size is None else size)

    def __iter__(self) -> Iterator[bytes]:
        """Give the lines."""
        self._check()
        return self

    def __next__(self) -> bytes:
        """Give the next line."""
        line = self._raw.readline()
        if not line:
            raise StopIteration
        return line

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Go to a place: from the start, with ``whence`` 1 from here, with 2 from the end.

        What was fetched stays where it is.
        """
        return self._raw.seek(offset, whence)

    def tell(self) -> int:
        """Say where it is."""
        return self._raw.tell()

    def read_ranges(self, ranges: list[tuple[int, int]]) -> list[bytes]:
        r"""Read several ranges, fetched at once, neighbours together. Where it is stays.

        Parameters
        ----------
        ranges : list of (int, int)
            From which byte up to before which.

        Returns
        -------
        list of bytes
            Of each as much as there is.

        Examples
        --------
        >>> import pathlib, tempfile, tidemill as tm
        >>> path = pathlib.Path(tempfile.mkdtemp(), "a.csv")
        >>> _ = path.write_text("n\n1\n2\n")
        >>> with tm.open(path) as file:
        ...     file.read_ranges([(2, 3), (4, 100)])
        [b'1', b'2\n']
        """
        return self._raw.ranges(ranges)

    def close(self) -> None:
        """Close it, and give up what is on its way. A read on another thread ends with an error."""
        raw = getattr(self, "_raw", None)
        if raw is not None and not self.closed:
            raw.close()
        super().close()

    async def __aenter__(self) -> Self:
        """Give the file, to be closed at the end of the block."""
        self._check()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the file; an event loop goes on meanwhile."""
        await asyncio.get_running_loop().run_in_executor(None, self.close)

    def __repr__(self) -> str:
        """Show its name."""
        return f"<tidemill.File {'closed ' if self.closed else ''}{self.name!r}>"

    def __reduce__(self) -> Any:
        """Refuse: a copy would be another version's."""
        raise TypeError(f"cannot pickle {type(self).__name__!r} object")

    def _check(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file")


def open(
    url: Path,
    mode: str = "rb",
    *,
    storage_options: Mapping[str, object] | None = None,
    read_block: str | int | None = None,
    read_window: str | int | None = None,
    read_memory: str | int | None = None,
    read_cache: str | int | None = None,
    read_cache_dir: Path | None = None,
) -> File:
    r"""Open a file or an object to be read, in binary.

    What lies ahead of where it is read is fetched meanwhile, more of it the longer it is read on
    from there; reads here and there fetch what they ask for. All files of a process share one
    memory.

    Parameters
    ----------
    url : path or str
        A file, ``file://``, ``s3://``, ``http://`` or ``https://``; by its own name, and no
        pattern.
    mode : str, default "rb"
        Only that: bytes, to be read. ``io.TextIOWrapper`` makes text of them.
    storage_options, read_block, read_window, read_memory, read_cache, read_cache_dir : optional
        As in `query`.

    Returns
    -------
    File

    Raises
    ------
    NotFoundError
        If there is no such file.
    UsageError
        For a folder, and for a pattern.
    ValueError
        For another mode.
    CorruptFileError
        From then on, if an object changes while it is read: bytes of two versions are never mixed.
    InputOutputError
        If the operating system, or a store, refuses.

    Examples
    --------
    >>> import pathlib, tempfile, tidemill as tm
    >>> path = pathlib.Path(tempfile.mkdtemp(), "a.csv")
    >>> _ = path.write_text("n\n1\n2\n")
    >>> with tm.open(path) as file:
    ...     file.read()
    b'n\n1\n2\n'
    """
    if mode != "rb":
        raise ValueError(f"mode {mode!r} is not there: files are read as bytes, 'rb'")
    options = _options.read_ahead(
        storage_options, read_block, read_window, read_memory, read_cache, read_cache_dir
    )
    store = _tidemill.RawStore(_options.storage(options), False)
    return File(store.open(os.fspath(url)))
