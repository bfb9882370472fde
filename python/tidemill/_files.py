"""``cat``, ``get``, ``put``, ``ls``, ``stat`` and ``du``: files and objects as they are."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidemill import _options, _progress, _tidemill
from tidemill._errors import TidemillError, in_python

Path = str | os.PathLike[str]


@dataclass(frozen=True)
class Entry:
    """A line of a listing.

    Attributes
    ----------
    name : str
        Its name below what was named; of a folder with a ``/`` at its end.
    url : str
        Its URL or path, by which it can be named again.
    kind : str
        ``"file"`` or ``"folder"``.
    size : int or None
        Its bytes; none of a folder.
    modified : str or None
        When it was last written, in UTC: ``"2026-11-20T21:20:55Z"``.
    e_tag, storage_class : str or None
        Its version in a bucket, in quotes, and how the bucket stores it.

    Examples
    --------
    >>> import tidemill as tm
    >>> tm.Entry("web.csv", "logs/web.csv", "file", size=3).size
    3
    """

    name: str
    url: str
    kind: str
    size: int | None = None
    modified: str | None = None
    e_tag: str | None = None
    storage_class: str | None = None


@dataclass(frozen=True)
class Usage:
    """How much is below a folder.

    Attributes
    ----------
    url : str
        The folder, or a file that was named by itself.
    files, bytes : int
        Files and objects below it, and their bytes.

    Examples
    --------
    >>> import tidemill as tm
    >>> tm.Usage("logs/", files=2, bytes=30).bytes
    30
    """

    url: str
    files: int
    bytes: int


@dataclass(frozen=True)
class Copied:
    """What became of files that were copied.

    Attributes
    ----------
    files, bytes : int
        How many are there now that were not, and their bytes.
    resumed_bytes : int
        How many of the bytes a run before had copied.
    skipped : int
        How many were there already, with ``skip_existing``.

    Examples
    --------
    >>> import tidemill as tm
    >>> tm.Copied(files=1, bytes=3, resumed_bytes=0, skipped=0).files
    1
    """

    files: int
    bytes: int
    resumed_bytes: int
    skipped: int


def ls(
    urls: Path | Sequence[Path],
    *,
    recursive: bool = False,
    storage_options: Mapping[str, object] | None = None,
) -> list[Entry]:
    r"""List files and objects.

    Parameters
    ----------
    urls : path, str, or sequence of these
        Files, URLs, patterns, folders. Of a folder its names are listed, of a pattern what it
        matches, in the order of their bytes.
    recursive : bool
        List all files below folders. Default: false.
    storage_options : mapping, optional
        As in `query`.

    Returns
    -------
    list of Entry

    Raises
    ------
    NotFoundError
        If one of the URLs names nothing.
    InputOutputError
        If the operating system, or a store, refuses.

    Examples
    --------
    >>> import pathlib, tempfile, tidemill as tm
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "a.csv").write_text("n\n1\n")
    >>> (folder / "logs").mkdir()
    >>> [(entry.name, entry.size) for entry in tm.ls(folder)]
    [('a.csv', 4), ('logs/', None)]
    """
    found = _tidemill.ls(_paths(urls), recursive, _options.storage(storage_options))
    return [Entry(**json.loads(entry)) for entry in found]


def stat(url: Path, *, storage_options: Mapping[str, object] | None = None) -> dict[str, Any]:
    r"""Tell all that is known of a file, an object or a folder.

    Parameters
    ----------
    url : path or str
        A file, URL or folder. Of a pattern the first is told of that it matches.
    storage_options : mapping, optional
        As in `query`.

    Returns
    -------
    dict
        ``url``, ``kind``, and as far as it is known ``size``, ``modified``, ``e_tag``,
        ``content_type``, ``storage_class``, ``metadata``, and in ``more`` what else a server says.

    Raises
    ------
    NotFoundError
        If there is no such thing.
    InputOutputError
        If the operating system, or a store, refuses.

    Examples
    --------
    >>> import pathlib, tempfile, tidemill as tm
    >>> path = pathlib.Path(tempfile.mkdtemp(), "a.csv")
    >>> _ = path.write_text("n\n1\n")
    >>> told = tm.stat(path)
    >>> told["kind"], told["size"]
    ('file', 4)
    """
    told = _tidemill.stat([os.fspath(url)], _options.storage(storage_options))
    first: dict[str, Any] = json.loads(told[0])
    return first


def du(
    urls: Path | Sequence[Path],
    *,
    depth: int = 1,
    storage_options: Mapping[str, object] | None = None,
) -> list[Usage]:
    r"""Sum the bytes and files below folders.

    On this machine a symbolic link counts as itself, and a file with several names once; a link
    that is named by itself is what it leads to.

    Parameters
    ----------
    urls : path, str, or sequence of these
        Files, URLs, patterns, folders.
    depth : int
        How far below each of them folders are told of; 0 for the sum of each alone. Default: 1.
    storage_options : mapping, optional
        As in `query`.

    Returns
    -------
    list of Usage
        Each folder after those in it, and at last what was named.

    Raises
    ------
    NotFoundError
        If one of the URLs names nothing.
    InputOutputError
        If the operating system, or a store, refuses.

    Examples
    --------
    >>> import pathlib, tempfile, tidemill as tm
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> (folder / "logs").mkdir()
    >>> _ = (folder / "logs" / "a.csv").write_text("n\n1\n")
    >>> [(usage.files, usage.bytes) for usage in tm.du(folder)]
    [(1, 4), (1, 4)]
    """
    sums = _tidemill.du(_paths(urls), depth, _options.storage(storage_options))
    return [Usage(**json.loads(usage)) for usage in sums]


def cat(
    urls: Path | Sequence[Path],
    *,
    range: str | None = None,
    storage_options: Mapping[str, object] | None = None,
    read_block: str | int | None = None,
    read_window: str | int | None = None,
    read_memory: str | int | None = None,
    read_cache: str | int | None = None,
    read_cache_dir: Path | None = None,
) -> bytes:
    r"""Read files and objects, one after another, as they are.

    Parameters
    ----------
    urls : path, str, or sequence of these
        Files, URLs, patterns, folders.
    range : str, optional
        Only the bytes from A up to before B of each: ``"0..100"``, ``"1M.."``, ``"..4096"``.
    storage_options, read_block, read_window, read_memory, read_cache, read_cache_dir : optional
        As in `query`.

    Returns
    -------
    bytes
        All of them, in memory: `get` fetches what is larger.

    Raises
    ------
    NotFoundError
        If one of the URLs names nothing.
    CorruptFileError
        If an object changes while it is read.
    InputOutputError
        If the operating system, or a store, refuses.

    Examples
    --------
    >>> import pathlib, tempfile, tidemill as tm
    >>> path = pathlib.Path(tempfile.mkdtemp(), "a.csv")
    >>> _ = path.write_text("n\n1\n")
    >>> tm.cat([path, path], range="2..")
    b'1\n1\n'
    """
    options = _options.read_ahead(
        storage_options, read_block, read_window, read_memory, read_cache, read_cache_dir
    )
    return _tidemill.cat(_paths(urls), range, _options.storage(options))


def get(
    urls: Path | Sequence[Path],
    output: Path | None = None,
    *,
    overwrite: bool = False,
    skip_existing: bool = False,
    parallel: int | None = None,
    verify: bool | None = None,
    storage_options: Mapping[str, object] | None = None,
    read_block: str | int | None = None,
    read_window: str | int | None = None,
    read_memory: str | int | None = None,
    read_cache: str | int | None = None,
    read_cache_dir: Path | None = None,
    progress: bool | None = None,
) -> Copied:
    """Fetch objects into files, many at once.

    A file has its name once all of it is there. What was stopped, or killed, is gone on with by
    the same call, as long as the object is of the same version.

    Parameters
    ----------
    urls : str, or sequence of these
        URLs, patterns, folders; of a folder all that is below it.
    output : path or str, optional
        The file to write, or the folder, which ends with ``/`` or exists or takes many. Default:
        the name of the file or folder; the folder one is in for a pattern.
    overwrite : bool
        Replace files that exist. Default: false.
    skip_existing : bool
        Leave files that exist in the size of their object and are not older. Default: false.
    parallel : int, optional
        How many files at once. Default: 32.
    verify : bool, optional
        Compare the MD5 sum of each file with an ETag that looks like one: always, or never.
        Default: on AWS, which documents that it is one where no key of a service or of yours
        encrypts.
    storage_options, read_block, read_window, read_memory, read_cache, read_cache_dir : optional
        As in `query`.
    progress : bool, optional
        As in `query`.

    Returns
    -------
    Copied

    Raises
    ------
    UsageError
        For what is on this machine already.
    NotFoundError
        If one of the URLs names nothing.
    OutputExistsError
        If the file exists.
    InputOutputError
        If the operating system, or a store, refuses.
    TidemillError
        If some of many files could not be fetched; the others are.

    Examples
    --------
    >>> import tidemill as tm
    >>> try:
    ...     tm.get("november/web.csv")
    ... except tm.TidemillError as error:
    ...     print(str(error).splitlines()[0])
    `november/web.csv` is neither a URL nor a file on this machine
    """
    options = _options.read_ahead(
        storage_options, read_block, read_window, read_memory, read_cache, read_cache_dir
    )
    to = None if output is None else os.fspath(output)
    raw = _tidemill.get(
        _paths(urls),
        to,
        overwrite,
        skip_existing,
        parallel,
        verify,
        _options.storage(options),
        _progress.display(progress, "files"),
    )
    return _copied("fetched", raw)


def put(
    paths: Path | Sequence[Path],
    url: str,
    *,
    overwrite: bool = False,
    skip_existing: bool = False,
    parallel: int | None = None,
    verify: bool | None = None,
    storage_options: Mapping[str, object] | None = None,
    progress: bool | None = None,
) -> Copied:
    """Send files to a bucket, many at once.

    An object is there once all of it is. What was killed, or lost its server, is gone on with by
    the same call; Ctrl-C leaves nothing in the bucket.

    Parameters
    ----------
    paths : path, str, or sequence of these
        Files, patterns, folders; of a folder all that is below it.
    url : str
        The key, or what keys begin with, which ends with ``/`` where there is one file.
    overwrite : bool
        Replace objects that exist. Default: false.
    skip_existing : bool
        Leave objects that exist in the size of their file and are not older, or have its MD5 sum.
        Default: false.
    parallel : int, optional
        How many files at once. Default: 32.
    verify : bool, optional
        Compare the MD5 sum of each file with an ETag that looks like one: always, or never.
        Default: on AWS, which documents that it is one where no key of a service or of yours
        encrypts.
    storage_options : mapping, optional
        As in `query`.
    progress : bool, optional
        As in `query`.

    Returns
    -------
    Copied

    Raises
    ------
    UsageError
        For what is not on this machine, and for another place than a bucket.
    NotFoundError
        If one of the paths names nothing.
    OutputExistsError
        If the object exists.
    InputOutputError
        If the operating system, or a store, refuses.
    TidemillError
        If some of many files could not be sent; the others are.

    Examples
    --------
    >>> import tidemill as tm
    >>> try:
    ...     tm.put("reports", "november/")
    ... except tm.TidemillError as error:
    ...     print(str(error).splitlines()[0])
    `november/` is on this machine
    """
    raw = _tidemill.put(
        _paths(paths),
        url,
        overwrite,
        skip_existing,
        parallel,
        verify,
        _options.storage(storage_options),
        _progress.display(progress, "files"),
    )
    return _copied("sent", raw)


def _copied(what: str, raw: tuple[int, int, int, int, list[tuple[str, str]]]) -> Copied:
    files, size, resumed, skipped, failed = raw
    if failed:
        first = "".join(f"\n  {in_python(said)}" for _, said in failed[:10])
        more = f"\n  … and {len(failed) - 10} more" if len(failed) > 10 else ""
        raise TidemillError(f"{len(failed)} files could not be {what}:{first}{more}")
    return Copied(files, size, resumed, skipped)


def _paths(paths: Path | Sequence[Path]) -> list[str]:
    if isinstance(paths, str | os.PathLike):
        return [os.fspath(paths)]
    return [os.fspath(path) for path in paths]
