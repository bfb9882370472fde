"""Lines in order, and rows by their columns."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

from tidemill import _options, _tidemill
from tidemill._errors import UsageError
from tidemill._result import Written
from tidemill._schema import Schema

Path = str | os.PathLike[str]


def sort(*words: str | os.PathLike[str]) -> bytes | bool:
    r"""Sort lines, in memory or beyond it, as ``tidemill sort`` and GNU sort do.

    Parameters
    ----------
    *words : str or path
        Options and files, each a word, as on the command line: ``"-k2,2nr"``, ``"-t,"``,
        ``"-S", "256M"``, ``"--limit=10"``, ``"-o", "out.txt"``. `docs/sort.md` has all of them.
        Standard input is not read.

    Returns
    -------
    bytes or bool
        The sorted lines; none of them where ``-o`` names a file, which suits what is larger than
        memory. With ``-c`` or ``-C`` whether the input is in order.

    Raises
    ------
    UsageError
        If a word is not understood, no file is named, or the output exists without
        ``--overwrite``.
    InputOutputError
        If a file cannot be read or written.

    Examples
    --------
    >>> import pathlib, tempfile, tidemill as tm
    >>> path = pathlib.Path(tempfile.mkdtemp(), "lines.txt")
    >>> _ = path.write_text("b 2\na 10\n")
    >>> tm.sort("-k2n", path)
    b'b 2\na 10\n'
    >>> tm.sort("-C", path)
    False
    """
    given = [os.fspath(word) for word in words]
    is_sorted, lines, said, mistake = _tidemill.sort(given)
    if mistake is not None:
        raise UsageError(mistake)
    asks = any(
        word == "--check" or word.startswith("--check=") or _has(word, "cC") for word in given
    )
    if said:
        print(said, end="", file=sys.stderr)
    return is_sorted if asks else bytes(lines)


def sort_files(
    inputs: Path | Sequence[Path],
    output: Path,
    *,
    by: str | Sequence[str],
    limit: int | None = None,
    promote: str | Sequence[str] = (),
    recover: bool = False,
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
    progress: bool | None = None,
) -> Written:
    r"""Sort the rows of files by their columns, in memory or beyond it.

    All files are one table. In memory it is ``tm.query("SELECT * FROM … ORDER BY …")``.

    Parameters
    ----------
    inputs : path, str, or sequence of these
        Files, URLs, patterns, folders.
    output : path or str
        The file to write; columns in braces make a file per value.
    by : str or sequence of str
        Columns, with commas between them: ``"country,revenue:desc"``. ``:desc`` stands behind one
        whose largest values come first, ``:nulls-first`` and ``:nulls-last`` where the others do
        not. A name with a comma, a colon or a dot stands in double quotes. Rows that tie keep
        their order.
    limit : int, optional
        The first so many rows alone, without sorting the others.
    promote, recover : optional
        As in `query`.
    format, compression, overwrite, max_files, sink_exec, no_header : optional
        As in `query`.
    source_format, schema, layouts : optional
        As in `query`.
    null, header, delimiter, quote, escape, comment, strict, mismatch : optional
        As in `query`.
    framing, log_format, source_exec, skip_lines, header_row : optional
        As in `query`.
    storage_options : mapping, optional
        As in `query`.
    memory, spill_dir, threads, priority, max_bad, progress : optional
        As in `query`.

    Returns
    -------
    Written

    Raises
    ------
    UsageError
        For what is no order, and columns that are not there.
    OutputExistsError
        If the output is there already.

    Examples
    --------
    >>> import pathlib, tempfile, tidemill as tm
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "hits.csv").write_text("page,ms\n/,20\n/buy,7\n/,31\n")
    >>> written = tm.sort_files(folder / "hits.csv", folder / "sorted.csv", by="page,ms:desc")
    >>> (folder / "sorted.csv").read_text()
    'page,ms\n/,31\n/,20\n/buy,7\n'
    """
    if limit is not None and limit < 1:
        raise UsageError(f"limit={limit} is no number of rows: it is at least 1")
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
    paths = [inputs] if isinstance(inputs, str | os.PathLike) else list(inputs)
    order = by if isinstance(by, str) else ",".join(by)
    raw = _tidemill.sort_files(
        [os.fspath(path) for path in paths],
        order,
        limit,
        source,
        sink,
        _options.limits(memory, threads, max_bad, progress, spill_dir=spill_dir, priority=priority),
    )
    return Written._of(raw)


def _has(word: str, letters: str) -> bool:
    """Whether a cluster of short options has one of these, before an option with an argument."""
    if not word.startswith("-") or word.startswith("--"):
        return False
    for letter in word[1:]:
        if letter in letters:
            return True
        if letter in "ktoST":
            return False
    return False
