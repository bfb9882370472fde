"""A result's rows as tuples, in the manner of Python's database API."""

from __future__ import annotations

import threading
from typing import Any

from tidemill._tidemill import RawResult

#: A row: its values in the order of the columns.
Row = tuple[Any, ...]


class Cursor:
    """A position among the rows of a result, which moves on with every row fetched.

    It holds the rows of one batch. Several threads that fetch by one cursor get each row once.
    """

    def __init__(self, raw: RawResult) -> None:
        self._raw = raw
        # Closing a result may happen inside of a fetch of the same thread.
        self._lock = threading.RLock()
        # The batch that is converted next, and the rows of the one before it, from `_at` on.
        self._batch = 0
        self._rows: list[Row] = []
        self._at = 0

    def fetch(self, size: int | None) -> list[Row]:
        """Fetch the next ``size`` rows, or all that are left; fewer only at the end.

        A call that fails fetches nothing: the cursor stays where it was.
        """
        fetched: list[Row] = []
        with self._lock:
            try:
                while size is None or len(fetched) < size:
                    if self._at == len(self._rows) and not self._convert_next():
                        break
                    end = None if size is None else self._at + size - len(fetched)
                    rows = self._rows[self._at : end]
                    self._at += len(rows)
                    fetched += rows
            except BaseException:
                self._rows, self._at = fetched + self._rows[self._at :], 0
                raise
        return fetched

    def clear(self) -> None:
        """Drop the rows that were converted and not fetched."""
        with self._lock:
            self._rows, self._at = [], 0

    def _convert_next(self) -> bool:
        """Convert the next batch; false after the last."""
        batch = self._raw.batch(self._batch)
        if batch is None:
            return False
        self._rows, self._at = batch.tuples(), 0
        self._batch += 1
        return True
