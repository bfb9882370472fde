"""Lines in order."""

import os
import sys

from tidemill import _tidemill
from tidemill._errors import UsageError


def sort(*words: str | os.PathLike[str]) -> bytes | bool:
    r"""Sort lines, in memory or beyond it, as ``tidemill sort`` and GNU sort do.

    Parameters
    ----------
    *words : str or path
        Options and files, each a word, as on the command line: ``"-k2,2nr"``, ``"-t,"``,
        ``"-S", "256M"``, ``"-o", "out.txt"``. `docs/sort.md` has all of them. Standard input is
        not read.

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
