"""``convert``, ``check``, ``salvage`` and ``check_schema``."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict

from tidemill import _options, _tidemill
from tidemill._result import Written
from tidemill._schema import Schema

Path = str | os.PathLike[str]


def convert(
    inputs: Path | Sequence[Path],
    output: Path,
    *,
    select: str | None = None,
    where: str | None = None,
    promote: str | Sequence[str] = (),
    recover: bool = False,
    skip_existing: bool = False,
    format: str | None = None,
    compression: str | None = None,
    overwrite: bool | None = None,
    max_files: int | None = None,
    sink_exec: str | Sequence[str] = (),
    no_header: bool = False,
    source_format: str | None = None,
    schema: str | Mapping[str, str] | Schema | None = None,
    layouts: str | None = None,
    null: str | Sequence[str] = (),
    header: bool | None = None,
    delimiter: str | None = None,
    quote: str | None = None,
    escape: str | None = None,
    comment: str | None = None,
    skip_lines: int | None = None,
    header_row: int | None = None,
    strict: bool | None = None,
    mismatch: str | None = None,
    framing: str | None = None,
    log_format: str | None = None,
    source_exec: str | Sequence[str] = (),
    files: Path | Sequence[Path] = (),
    storage_options: Mapping[str, object] | None = None,
    read_block: str | int | None = None,
    read_window: str | int | None = None,
    read_memory: str | int | None = None,
    read_cache: str | int | None = None,
    read_cache_dir: str | os.PathLike[str] | None = None,
    memory: str | int | None = None,
    spill_dir: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
    threads: int | None = None,
    priority: str | None = None,
    max_bad: str | int | None = None,
    on: str | None = None,
    max_attempts: int | None = None,
    scratch: str | os.PathLike[str] | None = None,
    scratch_above: str | int | None = None,
    progress: bool | None = None,
) -> Written:
    r"""Convert files from one format to another, record by record.

    With a file as ``output`` all inputs are one table, whose rows are written in their order;
    columns in braces make a file per value. With a folder, which ends with ``/`` or exists, each
    input is written to a file of its own.

    Parameters
    ----------
    inputs : path, str, or sequence of these
        Files, URLs, patterns, folders.
    output : path or str
        The file or folder to write.
    select : str, optional
        Columns and expressions to write, as SQL has them behind ``SELECT``. Default: all columns.
    where : str, optional
        Which records to write, as SQL has it behind ``WHERE``. Default: all.
    promote, recover : optional
        As in `query`.
    skip_existing : bool
        Leave inputs whose output exists in the folder, as after a conversion that was stopped.
        Default: false.
    format : str, optional
        How ``output`` is written. Default: what its suffix says; a folder needs it.
    compression : str, optional
        As in `query`. The names of compressed text in a folder end so: ``a.csv.gz``.
    overwrite : bool, optional
        Replace existing files of the names that are written. Default: false.
    max_files : int, optional
        The most files that a name with columns may stand for. Default: 10,000.
    no_header : bool, optional
        As in `query`.
    sink_exec, source_exec : str or sequence of str, optional
        As in `query`.
    files : path or sequence of paths, optional
        As in `query`: what programs find by name.
    source_format, schema, layouts : optional
        As in `query`.
    null, header, delimiter, quote, escape, comment, strict, mismatch : optional
        As in `query`.
    framing, log_format, skip_lines, header_row : optional
        As in `query`.
    storage_options : mapping, optional
        As in `query`.
    memory, spill_dir, threads, priority, max_bad, progress : optional
        As in `query`; with a folder as the output, ``max_bad`` is for each input.
    on, max_attempts : optional
        As in `query`.
    scratch, scratch_above : optional
        As in `query`, with one file or pattern as the output.

    Returns
    -------
    Written

    Raises
    ------
    UsageError
        For options that cannot be carried out, and what does not see one record at a time.
    OutputExistsError
        If an output is there already.
    TidemillError
        If some of many files could not be converted; the others are.

    Examples
    --------
    >>> import pathlib, tempfile, tidemill as tm
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "hits.csv").write_text("page,ms\n/,20\n/buy,7\n")
    >>> written = tm.convert(folder / "hits.csv", folder / "hits.rowfile", where="ms > 10")
    >>> written.rows
    1
    >>> tm.head(folder / "hits.rowfile").to_pylist()
    [{'page': '/', 'ms': 20}]
    """
    source = _options.source(
        source_format=source_format,
        schema=schema,
        layouts=layouts,
        promote=promote,
        recover=recover,
        null=null,
        header=header,
        delimiter=delimiter,
        quote=quote,
        escape=escape,
        comment=comment,
        skip_lines=skip_lines,
        header_row=header_row,
        strict=strict,
        mismatch=mismatch,
        framing=framing,
        log_format=log_format,
        source_exec=source_exec,
        files=files,
        storage_options=_options.read_ahead(
            storage_options, read_block, read_window, read_memory, read_cache, read_cache_dir
        ),
    )
    sink = _options.sink(
        output=output,
        format=format,
        compression=compression,
        overwrite=overwrite,
        max_files=max_files,
        sink_exec=sink_exec,
        no_header=no_header,
        storage_options=storage_options,
    )
    limits = _options.limits(
        memory, threads, max_bad, progress, spill_dir=spill_dir, priority=priority
    )
    elsewhere = _options.on(on, memory, max_attempts, scratch, scratch_above)
    raw, _ = _tidemill.convert(
        _paths(inputs), select, where, skip_existing, source, sink, limits, elsewhere
    )
    return Written._of(raw)


class Damage(TypedDict):
    """A damaged place of a file."""

    offset: int
    reason: str


@dataclass(frozen=True)
class Checked:
    """What `check` found of a rowfile.

    Attributes
    ----------
    path : str
        The path or URL.
    whole : bool
        Whether every byte is what it was when it was written.
    bytes : int
        Its size.
    blocks, rows : int
        Whole blocks, and their rows.
    codec : str or None
        ``none``, ``lz4`` or ``zstd:1``.
    unfinished_bytes : int
        Bytes behind the end, of an append that is under way or was killed; they do no harm.
    damages : list of Damage
        Each with ``offset``, in bytes, and ``reason``.

    Examples
    --------
    >>> import pathlib, tempfile, tidemill as tm
    >>> path = pathlib.Path(tempfile.mkdtemp(), "one.rowfile")
    >>> _ = tm.query("SELECT 1 AS one", output=path)
    >>> [found] = tm.check(path)
    >>> found.blocks, found.rows, found.codec, found.damages
    (1, 1, 'zstd:1', [])
    """

    path: str
    whole: bool
    bytes: int
    blocks: int
    rows: int
    codec: str | None
    unfinished_bytes: int
    damages: list[Damage]


@dataclass(frozen=True)
class Salvaged:
    """What `salvage` kept of a rowfile.

    Attributes
    ----------
    blocks, rows : int
        Blocks that were whole, and their rows.
    damages : list of Damage
        What was not kept: each with ``offset``, in bytes, and ``reason``.

    Examples
    --------
    >>> import pathlib, tempfile, tidemill as tm
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = tm.query("SELECT 1 AS one", output=folder / "one.rowfile")
    >>> tm.salvage(folder / "one.rowfile", folder / "kept.rowfile")
    Salvaged(blocks=1, rows=1, damages=[])
    """

    blocks: int
    rows: int
    damages: list[Damage]


def check(
    files: Path | Sequence[Path], *, storage_options: Mapping[str, object] | None = None
) -> list[Checked]:
    r"""Check that rowfiles are whole: read every byte, look at every checksum.

    Parameters
    ----------
    files : path, str, or sequence of these
        Files, URLs, patterns, folders.
    storage_options : mapping, optional
        As in `query`.

    Returns
    -------
    list of Checked
        One for each file.

    Raises
    ------
    CorruptFileError
        If a file is no rowfile, or its header is damaged.

    Examples
    --------
    >>> import pathlib, tempfile, tidemill as tm
    >>> path = pathlib.Path(tempfile.mkdtemp(), "one.rowfile")
    >>> _ = tm.query("SELECT 1 AS one", output=path)
    >>> [found.whole for found in tm.check(path)]
    [True]
    """
    found = _tidemill.check(_paths(files), _options.storage(storage_options))
    return [Checked(**json.loads(one)) for one in found]


def salvage(
    file: Path,
    output: Path,
    *,
    overwrite: bool = False,
    storage_options: Mapping[str, object] | None = None,
) -> Salvaged:
    r"""Write every whole block of a damaged rowfile to a new one.

    Parameters
    ----------
    file : path or str
        The damaged file.
    output : path or str
        The new file, on this machine.
    overwrite : bool
        Replace an existing file of that name. Default: false.
    storage_options : mapping, optional
        As in `query`.

    Returns
    -------
    Salvaged

    Raises
    ------
    CorruptFileError
        If it is no rowfile, or its header is damaged.
    OutputExistsError
        If ``output`` is there already.

    Examples
    --------
    >>> import pathlib, tempfile, tidemill as tm
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = tm.query("SELECT 1 AS one", output=folder / "one.rowfile")
    >>> whole = (folder / "one.rowfile").read_bytes()
    >>> _ = (folder / "cut.rowfile").write_bytes(whole[:-10])
    >>> tm.salvage(folder / "cut.rowfile", folder / "kept.rowfile").rows
    1
    """
    options = _options.storage(storage_options)
    kept = _tidemill.salvage(os.fspath(file), os.fspath(output), overwrite, options)
    return Salvaged(**json.loads(kept))


def check_schema(
    old: Path,
    new: Path,
    *,
    source_format: str | None = None,
    storage_options: Mapping[str, object] | None = None,
) -> list[tuple[str, str]]:
    r"""Tell whether a reader with the schema of ``new`` reads the data of ``old``.

    Parameters
    ----------
    old, new : path or str
        Data of any format, or schemas: of rowfiles (``.schema.json``) or of Avro (``.avsc``).
    source_format : str, optional
        The format of both, where the suffix does not tell.
    storage_options : mapping, optional
        As in `query`.

    Returns
    -------
    list of tuple of str
        Every column that keeps it from that, and why. Empty: it reads them.

    Examples
    --------
    >>> import pathlib, tempfile, tidemill as tm
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = tm.query("SELECT 1 AS n", output=folder / "old.rowfile")
    >>> _ = tm.query("SELECT 'one' AS n", output=folder / "new.rowfile")
    >>> tm.check_schema(folder / "old.rowfile", folder / "old.rowfile")
    []
    >>> [column for column, reason in
    ...  tm.check_schema(folder / "old.rowfile", folder / "new.rowfile")]
    ['n']
    """
    options = [
        _options.source(
            source_format=source_format,
            schema=None,
            layouts=None,
            promote=(),
            recover=False,
            null=(),
            header=None,
            delimiter=None,
            quote=None,
            escape=None,
            comment=None,
            skip_lines=None,
            header_row=None,
            strict=None,
            mismatch=None,
            framing=None,
            log_format=None,
            source_exec=(),
            storage_options=storage_options,
        )
        for _ in range(2)
    ]
    return _tidemill.check_schema(os.fspath(old), os.fspath(new), options[0], options[1])


def _paths(paths: Path | Sequence[Path]) -> list[str]:
    if isinstance(paths, str | os.PathLike):
        return [os.fspath(paths)]
    return [os.fspath(path) for path in paths]
