"""Answers as they stand while a query runs."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import AsyncIterator, Iterator
from types import TracebackType
from typing import TYPE_CHECKING

from tidemill._result import Result
from tidemill._tidemill import RawAnswers

if TYPE_CHECKING:
    from typing_extensions import Self


class Answers(Iterator[Result], AsyncIterator[Result]):
    """The answers of a query as they stand while it runs; the last is the result.

    Where the query is one aggregation over files of this machine, there is an answer every tenth
    of a second or two: each rests on more of the input than the one before, and
    ``coverage["complete"]`` is false. All answers have the same columns: those that the query has
    without ``progressive``, of the same types, and ``x_low`` and ``x_high`` behind each ``x`` that
    is an estimate until the last answer, in which all three are the exact number. Of any other
    query, and of one that takes less than a third of a second, there is the last answer alone.

    Each is the newest: whoever takes longer than that for one is not given those that another has
    taken the place of meanwhile. The last one always comes, with all its rows if they are few.

    As the last line of a notebook's cell the table is shown, and sharpens in place.

    Examples
    --------
    >>> import tidemill as tm
    >>> for answer in tm.query("SELECT 1 AS one", progressive=True):
    ...     print(answer.to_pylist(), answer.coverage["complete"])
    [{'one': 1}] True

    In a coroutine ``async for`` waits without keeping an event loop from anything else:

    >>> import asyncio
    >>> async def watch():
    ...     async with tm.query("SELECT 1 AS one", progressive=True) as answers:
    ...         async for answer in answers:
    ...             print(answer.fetchall())
    >>> asyncio.run(watch())
    [(1,)]
    """

    def __init__(self, raw: RawAnswers) -> None:
        self._raw = raw
        self._last: Result | None = None

    def __iter__(self) -> Self:
        """Give the answers that have not been given yet."""
        return self

    def __next__(self) -> Result:
        """Wait for the next answer."""
        answer = self._next()
        if answer is None:
            raise StopIteration
        return answer

    def __aiter__(self) -> Self:
        """Give the answers that have not been given yet."""
        return self

    async def __anext__(self) -> Result:
        """Wait for the next answer; an event loop goes on meanwhile."""
        try:
            answer = await asyncio.get_running_loop().run_in_executor(None, self._next)
        except asyncio.CancelledError:
            # The thread that waits ends with the run.
            self.close()
            raise
        if answer is None:
            raise StopAsyncIteration
        return answer

    def _next(self) -> Result | None:
        found = self._raw.next()
        if found is None:
            return None
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

    async def __aenter__(self) -> Self:
        """Give the answers, which are closed in the end."""
        return self

    async def __aexit__(
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
