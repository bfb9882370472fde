"""Answers as they stand while a query runs."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING

from tidemill._result import Result
from tidemill._tidemill import RawAnswers

if TYPE_CHECKING:
    from typing_extensions import Self


class Answers(Iterator[Result]):
    """The answers of a query as they stand while it runs; the last is the result.

    Where the query is one aggregation over files of this machine, there is an answer every tenth
    of a second or two: each rests on more of the input than the one before, has ``x_low`` and
    ``x_high`` beside each estimate ``x``, and ``coverage["complete"]`` is false. The last one is
    what the query gives without ``progressive``. Of any other query, and of one that takes less
    than a third of a second, there is that alone.

    Each is the newest: whoever takes longer than that for one is not given those that another has
    taken the place of meanwhile. The last one always comes, with all its rows if they are few.

    As the last line of a notebook's cell the table is shown, and sharpens in place.

    Examples
    --------
    >>> import tidemill as tm
    >>> for answer in tm.query("SELECT 1 AS one", progressive=True):
    ...     print(answer.to_pylist(), answer.coverage["complete"])
    [{'one': 1}] True
    """

    def __init__(self, raw: RawAnswers) -> None:
        self._raw = raw
        self._last: Result | None = None

    def __iter__(self) -> Self:
        """Give the answers that have not been given yet."""
        return self

    def __next__(self) -> Result:
        """Wait for the next answer."""
        found = self._raw.next()
        if found is None:
            raise StopIteration
        raw, is_last = found
        answer = Result(raw)
        if is_last:
            self._last = answer
        return answer

    def result(self) -> Result:
        """Wait for the last answer, the result."""
        for answer in self:
            self._last = answer
        if self._last is None:
            message = "these answers were closed before the result was there"
            raise ValueError(message)
        return self._last

    def close(self) -> None:
        """Stop the query; there are no more answers."""
        self._raw.close()

    def __enter__(self) -> Self:
        """Give the answers, which are closed in the end."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop the query, if it still runs."""
        self.close()

    def _ipython_display_(self) -> None:
        display = importlib.import_module("IPython.display").display
        handle = None
        for answer in self:
            if handle is None:
                handle = display(answer, display_id=True)
            else:
                handle.update(answer)
