"""What a result rests on."""

from __future__ import annotations

from typing import TypedDict


class Amount(TypedDict):
    """How much of a known total was read."""

    done: int
    total: int
    left_out: int


class RowAmount(TypedDict):
    """Records read and refused."""

    done: int
    rejected: int


class Estimate(TypedDict):
    """How far an estimated column may be off."""

    column: str
    method: str
    exact: bool
    interval: str
    error: float


class Salvaged(TypedDict):
    """What was read of a file that is not whole."""

    path: str
    blocks: int
    bytes_left_out: int
    places: int
    offset: int
    reason: str


class LeftOut(TypedDict):
    """Splits of which nothing is in a result."""

    splits: int
    bytes: int


class GivenUp(TypedDict):
    """A file of which splits were given up."""

    path: str
    splits: int
    reason: str


class Sampled(TypedDict):
    """Which part of the input a result rests on, and how the part was chosen."""

    seed: int
    confidence: float
    scaled: bool
    share: float
    in_flight: LeftOut
    given_up: LeftOut
    given_up_files: list[GivenUp]
    unseen_share: float | None
    wrong_starts: int
    by_estimates: list[str]
    late_seconds: float | None


class _FirstPlace(TypedDict, total=False):
    # There where several sources have such a key or column.
    source: str
    # The first has a line or a row, or its byte alone.
    line: int
    row: int


class ColumnMismatches(_FirstPlace):
    """Values of a column that became null because they are not of its type."""

    column: str
    count: int
    path: str
    offset: int


class Mismatches(TypedDict):
    """Values that became null because they are not of their column's type."""

    columns: list[ColumnMismatches]
    others: int


class _MaybeWithin(_FirstPlace, total=False):
    # The column that the key is within, unless it is a key of the record.
    within: str


class UnknownKey(_MaybeWithin):
    """A key that no column has."""

    key: str
    count: int
    path: str
    offset: int


class UnknownKeys(TypedDict):
    """Keys of JSON and logfmt that no column has."""

    keys: list[UnknownKey]
    others: int


class _MaybeSampled(TypedDict, total=False):
    # There where the result might have rested on a part of the input.
    sampled: Sampled
    # There where there are any.
    unknown_keys: UnknownKeys
    mismatches: Mismatches


class Coverage(_MaybeSampled):
    """What a result rests on; ``docs/coverage.md`` says what each key means.

    Examples
    --------
    >>> import tidemill as tm
    >>> result = tm.query("SELECT 1 AS one")
    >>> result.coverage["complete"], result.coverage["rows"]
    (True, {'done': 0, 'rejected': 0})
    """

    version: int
    complete: bool
    mergeable: bool
    files: int
    splits: Amount
    bytes: Amount
    rows: RowAmount
    stopped: str | None
    rejected_copy: str | None
    estimates: list[Estimate]
    salvaged: list[Salvaged]
