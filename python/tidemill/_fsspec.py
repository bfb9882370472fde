"""File systems for fsspec: what reads through fsspec reads ahead, from buckets and the web.

They read, and do not write. Listings are not kept: what is listed is what is there. Files of many
are read at once, by threads, over the connections that the file system has open.
"""

from __future__ import annotations

import datetime
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from fsspec.callbacks import DEFAULT_CALLBACK, NoOpCallback
from fsspec.spec import AbstractFileSystem

from tidemill import _options, _tidemill
from tidemill._errors import NotFoundError, UsageError
from tidemill._open import File

if TYPE_CHECKING:
    from tidemill._tidemill import RawFile, RawStore

T = TypeVar("T")
U = TypeVar("U")

#: So many files are read, or asked about, at once.
_AT_ONCE = 16

#: What `s3fs` calls our options.
_OF_S3FS = {
    "key": "access_key_id",
    "secret": "secret_access_key",
    "token": "session_token",
    "anon": "skip_signature",
}
_OF_ITS_CLIENT = {
    "aws_access_key_id": "access_key_id",
    "aws_secret_access_key": "secret_access_key",
    "aws_session_token": "session_token",
    "endpoint_url": "endpoint_url",
    "region_name": "region",
}
#: What fsspec gives to every file system. It is about listings that are kept, and about writing.
_OF_FSSPEC = {"use_listings_cache", "listings_expiry_time", "max_paths", "asynchronous", "loop"}


class _Opened(File):
    """A file that knows its file system."""

    def __init__(self, raw: RawFile, fs: TidemillFileSystem, path: str) -> None:
        super().__init__(raw)
        self.fs = fs
        self.path = path

    def info(self) -> dict[str, Any]:
        """Tell what is known of it."""
        info: dict[str, Any] = self.fs.info(self.path)
        return info


class TidemillFileSystem(AbstractFileSystem):  # type: ignore[misc]
    """Buckets for fsspec, read ahead: ``tidemill+s3://bucket/key``.

    Everything that takes an fsspec URL or file system reads by it: pandas, Polars, PyArrow, Dask.
    Names are ``bucket/key``, as those of `s3fs`, in whose place it can be put for all that reads::

        fsspec.register_implementation("s3", "tidemill.TidemillFileSystem", clobber=True)

    It reads: ``ls``, ``info``, ``find``, ``glob``, ``walk``, ``du``, ``open``, ``cat``,
    ``cat_ranges``, ``get`` and what fsspec makes of them. Writing is refused. ``get`` fetches into
    files that have their names once all of them is there.

    Parameters
    ----------
    **storage_options
        Those of `query`, and ``read_block``, ``read_window``, ``read_memory``, ``read_cache`` and
        ``read_cache_dir``; also by the names that `s3fs` has for them: ``key``, ``secret``,
        ``token``, ``anon``, and in ``client_kwargs`` ``endpoint_url`` and ``region_name``.

    Examples
    --------
    >>> import fsspec
    >>> fs = fsspec.filesystem("tidemill+s3", region="eu-central-1", read_cache="1G")
    >>> fs.unstrip_protocol("logs/2026/web.csv")
    'tidemill+s3://logs/2026/web.csv'
    """

    protocol: tuple[str, ...] = ("tidemill+s3", "s3", "s3a")

    def __init__(self, *args: object, **storage_options: Any) -> None:
        own = {name: storage_options.pop(name) for name in _OF_FSSPEC & set(storage_options)}
        super().__init__(*args, **own, **storage_options)
        self._store = _tidemill.RawStore(_options.storage(_renamed(storage_options)), True)

    @property
    def fsid(self) -> str:
        """What tells it from other kinds of file systems."""
        return "tidemill"

    def _url(self, path: str) -> str:
        path = self._strip_protocol(path)
        if not path:
            raise UsageError(
                "a bucket has to be named\n"
                "hint: `tidemill+s3://bucket/`; the buckets of an account are not listed"
            )
        return f"s3://{path}"

    def _info(self, entry: Mapping[str, Any]) -> dict[str, Any]:
        # What is named as a folder is one, also where it is an object without bytes.
        is_file = entry["kind"] == "file" and not entry["url"].endswith("/")
        info = {
            "name": self._strip_protocol(entry["url"]),
            "size": entry.get("size") if is_file else 0,
            "type": "file" if is_file else "directory",
        }
        if (modified := entry.get("modified")) is not None:
            time = datetime.datetime.fromisoformat(modified.replace("Z", "+00:00"))
            info |= {"LastModified": time, "mtime": time.timestamp()}
        for ours, name in (
            ("e_tag", "ETag"),
            ("storage_class", "StorageClass"),
            ("content_type", "ContentType"),
        ):
            if ours in entry:
                info[name] = entry[ours]
        return info

    def _listed(self, path: str, recursive: bool) -> list[dict[str, Any]]:
        found = self._store.ls(self._url(path), recursive)
        return [self._info(json.loads(entry)) for entry in found]

    def ls(self, path: str, detail: bool = True, **kwargs: object) -> list[Any]:
        """List a folder, or a file by itself; a request per 1,000 names."""
        found = self._listed(path, recursive=False)
        return found if detail else [info["name"] for info in found]

    def info(self, path: str, **kwargs: object) -> dict[str, Any]:
        """Tell what is known of a file, by one request, or of a folder, by two."""
        told = self._store.stat(self._url(path))
        if told is None:
            raise NotFoundError(f"no such file: `{path}`")
        info = self._info(json.loads(told))
        # As it was named: that of a folder ends with `/`.
        return {**info, "name": self._strip_protocol(path)}

    def exists(self, path: str, **kwargs: object) -> bool:
        """Say whether there is such a file or folder."""
        try:
            self.info(path)
        except FileNotFoundError:
            return False
        return True

    def isdir(self, path: str) -> bool:
        """Say whether it is a folder."""
        try:
            return bool(self.info(path)["type"] == "directory")
        except FileNotFoundError:
            return False

    def isfile(self, path: str) -> bool:
        """Say whether it is a file."""
        try:
            return bool(self.info(path)["type"] == "file")
        except FileNotFoundError:
            return False

    def find(
        self,
        path: str,
        maxdepth: int | None = None,
        withdirs: bool = False,
        detail: bool = False,
        **kwargs: object,
    ) -> Any:
        """List all files below a folder; a request per 1,000 of them, without a limit of depth."""
        path = self._strip_protocol(path)
        if maxdepth is not None:
            return super().find(path, maxdepth=maxdepth, withdirs=withdirs, detail=detail)
        try:
            found = self._listed(path, recursive=True)
        except FileNotFoundError:
            found = []
        out = {info["name"]: info for info in found if info["type"] == "file"}
        if withdirs:
            folders = {info["name"] for info in found if info["type"] == "directory"}
            folders |= {folder for info in found for folder in _above(info["name"], path)}
            for name in folders - set(out):
                out[name] = {"name": name, "size": 0, "type": "directory"}
        names = sorted(out)
        return {name: out[name] for name in names} if detail else names

    def du(
        self,
        path: str,
        total: bool = True,
        maxdepth: int | None = None,
        withdirs: bool = False,
        **kwargs: object,
    ) -> Any:
        """Sum the bytes below a folder, from its listing."""
        found = self.find(path, maxdepth=maxdepth, withdirs=withdirs, detail=True)
        sizes = {name: info.get("size") or 0 for name, info in found.items()}
        return sum(sizes.values()) if total else sizes

    def modified(self, path: str) -> datetime.datetime:
        """Say when it was last written."""
        info = self.info(path)
        if "LastModified" not in info:
            raise UsageError(f"nobody says when `{path}` was last written")
        time: datetime.datetime = info["LastModified"]
        return time

    def checksum(self, path: str) -> int:
        """Give a number that is another one once the file is."""
        info = self.info(path)
        version = info.get("ETag") or f"{info.get('mtime')} {info.get('size')}"
        return int.from_bytes(version.encode(), "big")

    def _open(self, path: str, mode: str = "rb", **kwargs: object) -> File:
        if mode != "rb":
            self._refuse(f"open `{path}` with mode {mode!r}")
        # Blocks and caches of fsspec's are not needed: what is ahead is fetched.
        return self._opened(self._store, path)

    def _opened(self, store: RawStore, path: str) -> File:
        return _Opened(store.open(self._url(path)), self, self._strip_protocol(path))

    def cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **kwargs: object
    ) -> bytes:
        """Read a file, or a range of it."""
        return self._cat_file(self._store, path, start, end)

    def _cat_file(
        self, store: RawStore, path: str, start: int | None = None, end: int | None = None
    ) -> bytes:
        with self._opened(store, path) as file:
            if start is None and end is None:
                return file.read()
            return file.read_ranges([_range(file, start, end)])[0]

    def cat(
        self, path: Any, recursive: bool = False, on_error: str = "raise", **kwargs: object
    ) -> Any:
        """Read a file, or several at once, by name."""
        paths = self.expand_path(path, recursive=recursive)
        if (
            len(paths) == 1
            and not isinstance(path, list)
            and paths[0] == self._strip_protocol(path)
        ):
            return self.cat_file(paths[0])
        read = self._each(
            lambda store, path: _caught(lambda: self._cat_file(store, path), on_error), paths
        )
        given = dict(zip(paths, read, strict=True))
        if on_error == "return":
            return given
        return {path: read for path, read in given.items() if not isinstance(read, Exception)}

    def cat_ranges(
        self,
        paths: list[str],
        starts: Any,
        ends: Any,
        max_gap: int | None = None,
        on_error: str = "return",
        **kwargs: object,
    ) -> list[Any]:
        """Read ranges of files, all at once; ``max_gap`` is ours to choose."""
        if not isinstance(paths, list):
            raise TypeError(f"paths must be a list, not {type(paths).__name__}")
        starts = starts if isinstance(starts, list) else [starts] * len(paths)
        ends = ends if isinstance(ends, list) else [ends] * len(paths)
        if not len(paths) == len(starts) == len(ends):
            raise ValueError("as many starts and ends are needed as paths")
        wanted: dict[str, list[int]] = {}
        for index, path in enumerate(paths):
            wanted.setdefault(path, []).append(index)

        def read(store: RawStore, path: str) -> list[Any] | Exception:
            def ranges() -> list[bytes]:
                with self._opened(store, path) as file:
                    places = wanted[path]
                    return file.read_ranges([_range(file, starts[i], ends[i]) for i in places])

            return _caught(ranges, on_error)

        out: list[Any] = [None] * len(paths)
        for places, given in zip(wanted.values(), self._each(read, wanted), strict=True):
            for number, index in enumerate(places):
                out[index] = given if isinstance(given, Exception) else given[number]
        return out

    def get_file(
        self,
        rpath: str,
        lpath: Any,
        callback: Any = DEFAULT_CALLBACK,
        outfile: Any = None,
        **kwargs: object,
    ) -> None:
        """Fetch a file; it has its name once all of it is there."""
        if outfile is not None or not isinstance(lpath, str | os.PathLike) or _is_told(callback):
            super().get_file(rpath, lpath, callback=callback, outfile=outfile, **kwargs)
            return
        self._get_file(self._store, rpath, os.fspath(lpath))

    def _get_file(self, store: RawStore, rpath: str, lpath: str) -> None:
        if self.isdir(rpath):
            os.makedirs(lpath, exist_ok=True)
            return
        os.makedirs(os.path.dirname(lpath) or ".", exist_ok=True)
        *_, failed = store.get(self._url(rpath), lpath)
        for _, said in failed:
            raise OSError(said)

    def get(
        self,
        rpath: Any,
        lpath: Any,
        recursive: bool = False,
        callback: Any = DEFAULT_CALLBACK,
        maxdepth: int | None = None,
        **kwargs: object,
    ) -> None:
        """Fetch files, many at once; with a callback, that is told of each, one after another."""
        if _is_told(callback):
            super().get(rpath, lpath, recursive, callback, maxdepth, **kwargs)
            return
        # fsspec says which file goes where.
        pairs: list[tuple[str, str]] = []
        told = _Told(self, pairs)
        AbstractFileSystem.get(told, rpath, lpath, recursive, callback, maxdepth, **kwargs)
        self._each(lambda store, pair: self._get_file(store, *pair), pairs)

    def _each(self, work: Callable[[RawStore, T], U], items: Iterable[T]) -> list[U]:
        """Do something to each, some at once; what goes wrong with one ends the others."""
        store = self._store.part()
        pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="tidemill-fs")
        try:
            return list(pool.map(lambda item: work(store, item), items))
        except BaseException:
            store.cancel()
            raise
        finally:
            pool.shutdown(cancel_futures=True)

    def _refuse(self, what: str) -> NoReturn:
        raise UsageError(
            f"cannot {what}: this file system only reads\n"
            "hint: `tidemill.put` sends files, and `tidemill.query(…, output=…)` writes results"
        )

    def mkdir(self, path: str, create_parents: bool = True, **kwargs: object) -> None:
        """Refuse."""
        self._refuse(f"make `{path}`")

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Refuse."""
        self._refuse(f"make `{path}`")

    def rmdir(self, path: str) -> None:
        """Refuse."""
        self._refuse(f"remove `{path}`")

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        """Refuse."""
        self._refuse(f"remove `{path}`")

    def rm_file(self, path: str) -> None:
        """Refuse."""
        self._refuse(f"remove `{path}`")

    def _rm(self, path: str) -> None:
        self._refuse(f"remove `{path}`")

    def cp_file(self, path1: str, path2: str, **kwargs: object) -> None:
        """Refuse."""
        self._refuse(f"copy to `{path2}`")

    def mv(self, path1: Any, path2: Any, *args: object, **kwargs: object) -> None:
        """Refuse."""
        self._refuse(f"move to `{path2}`")

    def touch(self, path: str, truncate: bool = True, **kwargs: object) -> None:
        """Refuse."""
        self._refuse(f"write `{path}`")

    def pipe_file(self, path: str, value: bytes, *args: object, **kwargs: object) -> None:
        """Refuse."""
        self._refuse(f"write `{path}`")

    def put_file(self, lpath: Any, rpath: str, *args: object, **kwargs: object) -> None:
        """Refuse."""
        self._refuse(f"write `{rpath}`")


class TidemillHttpFileSystem(TidemillFileSystem):
    """Files of web servers for fsspec, read ahead: ``tidemill+https://host/path``.

    Names are URLs. A server does not list its files, so that there are no folders and no patterns.

    Parameters
    ----------
    **storage_options
        As those of `TidemillFileSystem`.

    Examples
    --------
    >>> import fsspec
    >>> fs, path = fsspec.url_to_fs("tidemill+https://example.org/flights.csv?year=2026")
    >>> path
    'https://example.org/flights.csv?year=2026'
    """

    protocol = ("tidemill+https", "tidemill+http")

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        return os.fspath(path).removeprefix("tidemill+")

    def unstrip_protocol(self, name: str) -> str:
        """Give the URL by which fsspec comes here."""
        return f"tidemill+{self._strip_protocol(name)}"

    def _url(self, path: str) -> str:
        url: str = self._strip_protocol(path)
        return url

    def info(self, path: str, **kwargs: object) -> dict[str, Any]:
        """Tell what is known of a file, by one request."""
        return super().info(path)

    def ls(self, path: str, detail: bool = True, **kwargs: object) -> list[Any]:
        """List a file by itself."""
        return [self.info(path)] if detail else [self.info(path)["name"]]

    def find(self, path: str, *args: object, detail: bool = False, **kwargs: object) -> Any:
        """List a file by itself."""
        return self.glob(path, detail=detail)

    def glob(self, path: str, maxdepth: int | None = None, **kwargs: object) -> Any:
        """Give the file of this very name, if there is one."""
        path = self._strip_protocol(path)
        if "*" in path.partition("?")[0]:
            raise UsageError(f"`{path}`: a web server does not list its files\nhint: name them")
        try:
            found = {path: self.info(path)}
        except FileNotFoundError:
            found = {}
        return found if kwargs.get("detail") else list(found)


class _Told:
    """In the place of a file system that copies: which files, and where to."""

    def __init__(self, fs: TidemillFileSystem, pairs: list[tuple[str, str]]) -> None:
        self._fs = fs
        self._pairs = pairs

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fs, name)

    def get_file(self, rpath: str, lpath: str, **kwargs: object) -> None:
        self._pairs.append((rpath, lpath))


def _renamed(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options by our names.

    >>> _renamed({"key": "id", "client_kwargs": {"region_name": "eu-west-1"}, "read_cache": "1G"})
    {'access_key_id': 'id', 'region': 'eu-west-1', 'read_cache': '1G'}
    """
    given: dict[str, Any] = {}
    for name, value in options.items():
        if name == "client_kwargs":
            for inner, inner_value in (value or {}).items():
                given[_OF_ITS_CLIENT.get(inner, inner)] = inner_value
        else:
            given[_OF_S3FS.get(name, name)] = value
    for name in ("read_cache_dir",):
        if isinstance(given.get(name), os.PathLike):
            given[name] = os.fspath(given[name])
    return {name: value for name, value in given.items() if value is not None}


def _above(name: str, root: str) -> Iterable[str]:
    """Folders above a name, from ``root`` on.

    >>> sorted(_above("logs/2026/11/web.csv", "logs/2026"))
    ['logs/2026', 'logs/2026/11']
    """
    while "/" in name:
        name = name.rpartition("/")[0]
        if len(name) < len(root) or not name:
            return
        yield name


def _range(file: File, start: int | None, end: int | None) -> tuple[int, int]:
    """Find a range as Python's slices have them."""
    size = file.size
    if size is None:
        size = file.seek(0, os.SEEK_END)
    first, last, _ = slice(start, end).indices(size)
    return first, max(first, last)


def _caught(work: Callable[[], T], on_error: str) -> T | Exception:
    if on_error == "raise":
        return work()
    try:
        return work()
    except Exception as error:
        return error


def _is_told(callback: Any) -> bool:
    return not isinstance(callback, NoOpCallback)


__all__: Sequence[str] = ("TidemillFileSystem", "TidemillHttpFileSystem")
