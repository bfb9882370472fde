"""Sets of ids in files."""

from __future__ import annotations

import os
from array import array
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, overload

from tidemill import _options, _tidemill
from tidemill._errors import UsageError

if TYPE_CHECKING:
    from typing_extensions import Unpack

Path = str | os.PathLike[str]
Combining = Literal["union", "intersect", "diff", "xor"]


@overload
def ids(operation: Literal["count"], *files: Path, **options: Unpack[_options.IdFiles]) -> int: ...
@overload
def ids(
    operation: Combining,
    *files: Path,
    output: None = None,
    **options: Unpack[_options.IdFiles],
) -> array[int]: ...
@overload
def ids(
    operation: Combining,
    *files: Path,
    output: Path,
    format: str | None = None,
    overwrite: bool = False,
    **options: Unpack[_options.IdFiles],
) -> int: ...
def ids(
    operation: str,
    *files: Path,
    output: Path | None = None,
    format: str | None = None,
    input_format: str | None = None,
    column: str | None = None,
    signed: bool = False,
    sorted: bool = False,
    overwrite: bool = False,
    storage_options: Mapping[str, object] | None = None,
    memory: str | int | None = None,
    spill_dir: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
    threads: int | None = None,
    progress: bool | None = None,
) -> array[int] | int:
    r"""Combine sets of 64-bit ids in files, larger than memory if need be.

    Parameters
    ----------
    operation : {"union", "intersect", "diff", "xor", "count"}
        Which ids are wanted: those in any file, in all, in the first and no other, in an odd number
        of them; or how many there are in any.
    *files : path
        Each a set, in which an id counts once. Text has a number a line; ``.raw``, ``.bin`` and
        ``.u64`` have eight bytes each, little-endian; of a table in any format that queries read a
        column has the ids. Tables may be patterns and URLs; their nulls are passed over. Text and
        raw files may be compressed, with ``.gz``, ``.zst``, ``.bz2`` or ``.xz`` behind the name.
    output : path, optional
        The file to write, which appears whole or not at all.
    format : str, optional
        ``"text"``, ``"raw"`` or a table's format. Default: as the name of ``output`` says, or
        text.
    input_format : {"text", "raw", "table"}, optional
        How all files are stored. Default: as the name of each says.
    column : str, optional
        The column of tables. Default: the only one that they have.
    signed : bool, default False
        Whether ids are numbers in two's complement, of which negative ones come first.
    sorted : bool, default False
        Whether all files are in order, which is checked: nothing is sorted.
    overwrite : bool, default False
        Whether an existing output may be replaced.
    storage_options, memory, spill_dir, threads, progress : optional
        As in `query`.

    Returns
    -------
    array.array or int
        The ids in order, eight bytes each, as NumPy takes them without a copy
        (``numpy.frombuffer(found, dtype="u8")``); with ``output`` or ``"count"`` how many there
        are.

    Raises
    ------
    UsageError
        If there is no such operation, or a table has several columns and none is named.
    CorruptBytesError
        If something is no id, or files are not in order that are said to be.
    OutputExistsError
        If the output exists without ``overwrite``.

    Examples
    --------
    >>> import pathlib, tempfile, tidemill as tm
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "monday.txt").write_text("7\n3\n3\n")
    >>> _ = (folder / "tuesday.txt").write_text("5\n7\n")
    >>> tm.ids("union", folder / "monday.txt", folder / "tuesday.txt")
    array('Q', [3, 5, 7])
    >>> tm.ids("count", folder / "monday.txt", folder / "tuesday.txt")
    3
    """
    if output is None and format is not None:
        raise UsageError("`format` means nothing without `output`: ids are an array then")
    names = [_named(file) for file in files]
    if "-" in names:
        raise UsageError("the standard input of a Python process is not read: name a file")
    found, count = _tidemill.combine_ids(
        operation,
        names,
        None if output is None else os.fspath(output),
        "raw" if output is None else format,
        input_format,
        column,
        (bool(signed), bool(sorted), bool(overwrite)),
        _options.storage(storage_options),
        _options.limits(memory, threads, progress=progress, what="ids", spill_dir=spill_dir),
    )
    if output is not None or operation == "count":
        return count
    combined = array("q" if signed else "Q")
    combined.frombytes(found)
    return combined


def _named(file: object) -> str:
    """Give the name of a file of ids; what is none is answered with what to write."""
    if isinstance(file, str | os.PathLike):
        return os.fsdecode(file)
    kind = type(file).__name__
    if isinstance(file, list | tuple) and all(isinstance(one, str | os.PathLike) for one in file):
        raise UsageError(
            f"each set of ids is a file, and this is a {kind} of files\n"
            "hint: tm.ids('union', *files) names each of them"
        )
    raise UsageError(
        f"each set of ids is a file, and this is of type {kind}\n"
        "hint: tm.IdSpace().set(x) makes a set of ids in memory, to be combined by |, &, - and ^"
    )
