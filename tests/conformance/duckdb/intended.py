"""Differences from DuckDB that are intended, each with its reason and a page of the docs.

An entry covers a different answer only if all of it matches: the file, the text of the query, the
types of the columns or the `places` in the pinned commit, and `is_alike` for all rows that differ.
So another difference in the same query stays unexplained.
"""

from __future__ import annotations

import decimal
import fnmatch
import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from .rows import DAY_NANOS, Row, is_number, is_same

# The page of differences that are none of the product: what DuckDB's tables and settings lose on
# their way to Tidemill.
HAND_OVER = "../tests/conformance/duckdb/README.md#Limits"
# Unmatched rows of an answer up to which an entry may cover a difference.
EXPLAINED_ROWS_MAX = 2_000

# Returns whether DuckDB's value and Tidemill's, which are not the same, differ as an entry says.
ValueRule = Callable[[Any, Any], bool]
# The same for DuckDB's and Tidemill's unmatched rows.
RowsRule = Callable[[Sequence[Row], Sequence[Row]], bool]


@dataclass(frozen=True)
class Intended:
    """A kind of difference; every matcher that is given must match."""

    reason: str
    # A page of `docs`, with a heading behind `#`, or `HAND_OVER`.
    page: str
    is_alike: RowsRule
    # A query of our own for one value, DuckDB's answer and Tidemill's, as Python's text of them.
    example: tuple[str, str, str] | None = None
    # A pattern of the file's path below `test/sql`.
    file: str = "*"
    # A regular expression that is searched in the query.
    sql: str = ""
    # One that is searched in the types of both answers: `int32, float; int64, double`.
    types: str = ""
    # Files and lines: `cast/a.test:12,15`.
    places: str = ""

    def covers(self, verdict: dict[str, Any]) -> bool:
        """Return whether all of a different answer is of this kind."""
        if not fnmatch.fnmatchcase(verdict["file"], self.file):
            return False
        if self.places and (verdict["file"], verdict["line"]) not in parse_places(self.places):
            return False
        if self.sql and not re.search(self.sql, verdict["sql"], re.IGNORECASE | re.DOTALL):
            return False
        types = "; ".join(", ".join(kinds) for kinds in verdict.get("types", []))
        if self.types and not re.search(self.types, types):
            return False
        # An answer with too many unmatched rows has none in its verdict.
        unmatched = verdict.get("unmatched")
        return unmatched is not None and self.is_alike(*unmatched)


def parse_places(places: str) -> set[tuple[str, int]]:
    """The files and lines of places that are separated by spaces."""
    parsed = set()
    for place in places.split():
        file, _, lines = place.rpartition(":")
        parsed |= {(file, int(line)) for line in lines.split(",")}
    return parsed


def by_value(rule: ValueRule) -> RowsRule:
    """Return a rule for rows that are pairwise the same, except for values that follow a rule."""

    def is_alike(expected: Sequence[Row], actual: Sequence[Row]) -> bool:
        rest = list(actual)
        for row in expected:
            place = next((i for i, it in enumerate(rest) if are_alike(row, it, rule)), None)
            if place is None:
                return False
            del rest[place]
        return not rest

    return is_alike


def are_alike(theirs: Any, ours: Any, rule: ValueRule) -> bool:
    """Return whether two values are the same, or they or their parts follow a rule."""
    if is_same(theirs, ours) or rule(theirs, ours):
        return True
    if isinstance(theirs, tuple) and isinstance(ours, tuple) and len(theirs) == len(ours):
        return all(are_alike(a, b, rule) for a, b in zip(theirs, ours, strict=True))
    return False


def one_of(*pairs: tuple[Any, Any]) -> RowsRule:
    """Return a rule for rows that are the same but for some pairs of values."""

    def is_pair(theirs: Any, ours: Any) -> bool:
        return any(is_same(theirs, one) and is_same(ours, other) for one, other in pairs)

    return by_value(is_pair)


def exactly(expected: Sequence[Row], actual: Sequence[Row]) -> RowsRule:
    """Return a rule for these unmatched rows and no others."""

    def is_alike(theirs: Sequence[Row], ours: Sequence[Row]) -> bool:
        return list(theirs) == list(expected) and list(ours) == list(actual)

    return is_alike


def numbers_within(distance: float | str) -> ValueRule:
    """Return a rule for finite numbers that are no further apart than a distance."""

    def is_alike(theirs: Any, ours: Any) -> bool:
        if not all(is_number(it) and math.isfinite(it) for it in (theirs, ours)):
            return False
        return abs(Fraction(theirs) - Fraction(ours)) <= Fraction(distance)

    return is_alike


def same_after(change: Callable[[str], str]) -> ValueRule:
    """Return a rule for texts that are the same after a change to DuckDB's."""

    def is_alike(theirs: Any, ours: Any) -> bool:
        return isinstance(theirs, str) and change(theirs) == ours

    return is_alike


def is_cut(theirs: Any, ours: Any) -> bool:
    """Return whether two whole numbers may be one number, rounded and cut."""
    if not isinstance(theirs, int) or not isinstance(ours, int) or theirs == 0:
        return False
    return ours == theirs - (1 if theirs > 0 else -1)


def is_iso_time(theirs: Any, ours: Any) -> bool:
    """Return whether two texts differ only by the T in Tidemill's times."""
    if not isinstance(theirs, str) or not isinstance(ours, str):
        return False
    return re.sub(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d)", r"\1 \2", ours) == theirs


def is_mondays_for_weeks(theirs: Any, ours: Any) -> bool:
    """Return whether two numbers may be weeks of seven days, and the Mondays within them."""
    if not isinstance(theirs, int) or not isinstance(ours, int):
        return False
    return abs(ours) == abs(theirs) + 1 and theirs * ours >= 0


def is_date_of_time(theirs: Any, ours: Any) -> bool:
    """Return whether DuckDB's TIMESTAMP is the first instant of Tidemill's DATE."""
    if not all(isinstance(it, tuple) and len(it) == 2 for it in (theirs, ours)):
        return False
    return ours[0] == "date" and theirs == ("timestamp", ours[1] * DAY_NANOS)


def is_null_of_nan(theirs: Any, ours: Any) -> bool:
    return ours is None and isinstance(theirs, float) and math.isnan(theirs)


def is_estimate(theirs: Any, ours: Any) -> bool:
    """Return whether two counts that are not zero are at most 5 % apart."""
    if not isinstance(theirs, int) or not isinstance(ours, int) or min(theirs, ours) <= 0:
        return False
    return 20 * abs(theirs - ours) <= max(theirs, ours)


def is_histogram(theirs: Any, ours: Any) -> bool:
    """Return whether each bar of Tidemill's has the count of DuckDB's values within it."""
    if not isinstance(theirs, tuple) or not isinstance(ours, tuple) or not theirs or not ours:
        return False
    bars = [dict(bar) for bar in ours if isinstance(bar, tuple) and len(bar) == 3]
    if len(bars) != len(ours) or any(list(bar) != ["low", "high", "count"] for bar in bars):
        return False
    # A bar has the values below its end, the last one those at its end, too.
    in_bars = [0] * len(bars)
    for value, count in theirs:
        for place, bar in enumerate(bars):
            is_last = place == len(bars) - 1
            if bar["low"] <= value and (value < bar["high"] or (is_last and value == bar["high"])):
                in_bars[place] += count
    total = sum(count for _, count in theirs)
    return sum(in_bars) == total and in_bars == [bar["count"] for bar in bars]


def is_list_with_null(theirs: Any, ours: Any) -> bool:
    """Return whether two lists differ by one null, which DuckDB's does not have."""
    if not isinstance(theirs, tuple) or not isinstance(ours, tuple) or None in theirs:
        return False
    return ours.count(None) == 1 and theirs == tuple(it for it in ours if it is not None)


def is_truncated_tenth(theirs: Any, ours: Any) -> bool:
    """Return whether DuckDB's DECIMAL is the number, cut behind its first place."""
    if not isinstance(theirs, decimal.Decimal) or not isinstance(ours, float):
        return False
    return theirs == decimal.Decimal(ours).quantize(decimal.Decimal("0.1"), decimal.ROUND_DOWN)


INFINITE_DAYS, INFINITE_UNITS = 2**31 - 1, 2**63 - 1
INFINITE_TIMES = {("date", sign * INFINITE_DAYS) for sign in (1, -1)} | {
    ("timestamp", sign * INFINITE_UNITS * step) for sign in (1, -1) for step in (1, 10**3)
}


# Infinite times as their texts are cast to times of each unit.
PARSED_INFINITE_TIMES = {
    ("timestamp", sign * INFINITE_UNITS * 10**digits) for sign in (1, -1) for digits in (0, 3, 6, 9)
}


def is_row_of_infinite_time(theirs: Any, ours: Any) -> bool:
    """Return whether two rows have the same infinite time, of which DuckDB has null parts."""
    if not isinstance(theirs, tuple) or not isinstance(ours, tuple) or len(theirs) != len(ours):
        return False
    if not any(it in INFINITE_TIMES and it in ours for it in theirs if isinstance(it, tuple)):
        return False
    # A part is null in DuckDB's row, and `IS NULL` of it is true.
    return are_alike(theirs, ours, lambda a, b: a is None or (a is True and b is False))


def is_year_of_365_days(theirs: Any, ours: Any) -> bool:
    """Return whether two lengths differ by the 5.25 days that a year has beyond 12 months."""
    if not isinstance(theirs, int) or not isinstance(ours, int) or theirs == ours:
        return False
    days = (86_400 * 10**digits for digits in (3, 6, 9))
    return any(ours - theirs == theirs // (360 * day) * 21 * day // 4 for day in days)


def is_hash(theirs: Any, ours: Any) -> bool:
    """Return whether two values may be hashes; one that is small is no hash of Tidemill's."""
    if not isinstance(theirs, int) or not isinstance(ours, int):
        return False
    return 0 <= theirs < 2**64 and 2**48 < ours < 2**64


def is_offset_of_zero(theirs: Any, ours: Any) -> bool:
    """Return whether a field is a part of a time zone's offset, and 0 in Tidemill's answer."""
    if not isinstance(theirs, tuple) or len(theirs) != 2:
        return False
    return str(theirs[0]).startswith("timezone") and ours == (theirs[0], 0)


def json_text(text: str) -> str:
    """Write a text of JSON without its quotes."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, str) else text


# The first entry that matches counts.
INTENDED: tuple[Intended, ...] = (
    Intended(
        "a cast to a whole number cuts what is behind the point, and DuckDB rounds it",
        "coming-from.md#DuckDB",
        by_value(is_cut),
        example=("SELECT 1.5::INT", "2", "1"),
        places="aggregate/aggregate_state_export/test_combine_aggr.test:18 "
        "aggregate/aggregate_state_export/test_state_export_struct.test:13 "
        "cast/decimal_integer_cast.test:7,12 cast/float_integer_cast.test:16,21,31,36 "
        "function/numeric/test_floor_ceil.test:14,24,34,44,84,94,104,114 "
        "function/numeric/test_trigo.test:14,24,34,44,54,64,74,84,94,104,114,124,194,204,214,224,"
        "234,244,254,261,268,275,282,289,296,303,310,317,324,331,390,400,410,420,430,440 "
        "window/test_window_wisconsin.test:99,305",
    ),
    Intended(
        "a value that is cut fits a whole number where DuckDB's, which is rounded, does not",
        "coming-from.md#DuckDB",
        one_of((None, 127), (None, -128), (None, 0)),
        example=("SELECT TRY_CAST(127.6::DOUBLE AS TINYINT)", "None", "127"),
        places="cast/float_integer_cast.test:109",
    ),
    Intended(
        "a FLOAT beside a number of another type is a DOUBLE, and DuckDB's stays a FLOAT",
        "sql.md#Numbers",
        one_of((math.inf, 1.9999999360571385e39)),
        example=("SELECT 2e38::FLOAT / 0.1", "inf", "1.9999999360571385e+39"),
        places="overflow/double_float_overflow.test:43",
    ),
    Intended(
        "a FLOAT beside a number of another type is a DOUBLE, and DuckDB's stays a FLOAT",
        "sql.md#Numbers",
        # Half a unit in the last place of a FLOAT beside 1, for each of ten logarithms.
        by_value(numbers_within("6e-7")),
        places="window/test_boundary_expr.test:96",
        types="float, double, float; float, double, float",
    ),
    Intended(
        "a time as a text has a T, and DuckDB's a space",
        "coming-from.md#DuckDB",
        by_value(is_iso_time),
        example=(
            "SELECT TIMESTAMP '2026-02-01 11:00:00'::VARCHAR",
            "2026-02-01 11:00:00",
            "2026-02-01T11:00:00",
        ),
        types="string",
    ),
    Intended(
        "`quantile` and `approx_quantile` interpolate, and DuckDB's give a value of the column",
        "coming-from.md#DuckDB",
        one_of((2, 1.5), (1, 1.2), (0, 0.3)),
        example=("SELECT quantile(x, 0.5) FROM (VALUES (1), (2)) t(x)", "1", "1.5"),
        places="aggregate/aggregates/test_approx_quantile.test:158,164",
    ),
    Intended(
        "`date_diff` counts the Mondays between two dates, and DuckDB weeks of seven days",
        "coming-from.md#DuckDB",
        by_value(is_mondays_for_weeks),
        example=("SELECT date_diff('week', DATE '2026-02-01', DATE '2026-02-03')", "0", "1"),
        sql=r"\bdate_?diff\s*\(\s*'weeks?'",
    ),
    Intended(
        "a list that is null adds nothing to another",
        "coming-from.md#DuckDB",
        one_of((None, (1, 2, None)), (None, (1, 2)), (None, (1, 2, 3)), (None, (1, None))),
        example=("SELECT [1] || NULL", "None", "[1, None]"),
        sql=r"\|\|",
    ),
    Intended(
        "numbers with a point are DOUBLEs",
        "sql.md#Numbers",
        by_value(
            lambda theirs, ours: (
                ours == "DOUBLE" and re.fullmatch(r"DECIMAL\(\d+,\d+\)", str(theirs)) is not None
            )
        ),
        example=("SELECT typeof(1.5)", "DECIMAL(2,1)", "DOUBLE"),
        sql=r"\btypeof\s*\([^)]*\d\.\d",
    ),
    Intended(
        "`typeof` has this product's names of types",
        "reference/functions.md",
        by_value(same_after(lambda name: re.sub(r"\bINTEGER\b", "INT", name))),
        example=("SELECT typeof(1::INTEGER)", "INTEGER", "INT"),
        sql=r"\btypeof\s*\(",
    ),
    Intended(
        "`typeof` has this product's names of types",
        "reference/functions.md",
        one_of(("TIMESTAMP WITH TIME ZONE", "TIMESTAMP(6) WITH TIME ZONE")),
        example=(
            "SELECT typeof(now())",
            "TIMESTAMP WITH TIME ZONE",
            "TIMESTAMP(6) WITH TIME ZONE",
        ),
        sql=r"\btypeof\s*\(",
    ),
    Intended(
        "a DATE plus days is a DATE, and DuckDB's is a TIMESTAMP",
        "decisions.md#Queries",
        by_value(is_date_of_time),
        example=(
            "SELECT DATE '2026-01-01' + INTERVAL 1 DAY",
            "2026-01-02 00:00:00",
            "2026-01-02",
        ),
        types=r"timestamp\[us\].*; .*date32",
    ),
    Intended(
        "`json_value` is without quotes, and DuckDB's has them",
        "decisions.md#Queries",
        by_value(same_after(json_text)),
        example=("""SELECT json_value('{"a":"b"}', '$.a')""", '"b"', "b"),
        sql=r"\bjson_value\s*\(",
    ),
    Intended(
        "a median of a DECIMAL has one place more",
        "decisions.md#Queries",
        by_value(same_after(lambda text: text + "0")),
        example=("SELECT median(1.0::DECIMAL(3, 1))::VARCHAR", "1.0", "1.00"),
        sql=r"\bmedian\s*\([^)]*::decimal\(\d+,\d+\)\)::varchar",
    ),
    Intended(
        "a median of a DECIMAL has one place more",
        "decisions.md#Queries",
        one_of((decimal.Decimal(127), 127.5), (decimal.Decimal(32767), 32767.5)),
        places="aggregate/aggregates/test_mad.test:98,103",
    ),
    Intended(
        "a correlation of what does not vary is null, and NaN in DuckDB",
        "sql.md#Aggregate functions",
        by_value(is_null_of_nan),
        example=("SELECT corr(1, 1)", "nan", "None"),
        sql=r"\b(corr|regr_r2|regr_slope|regr_intercept)\s*\(",
    ),
    Intended(
        "estimates come of other sketches",
        "sql.md#Aggregate functions",
        by_value(is_estimate),
        places="aggregate/aggregates/test_approximate_distinct_count.test:59,64",
    ),
    Intended(
        "of values that are equally frequent, any may be among the most frequent ones",
        "sql.md#Aggregate functions",
        one_of(("val2", "val0")),
        places="aggregate/aggregate_state_export/approx_top_k_export_state.test:71",
    ),
    Intended(
        "`histogram` counts the values of bars, and DuckDB's those of each value",
        "tables.md",
        by_value(is_histogram),
        sql=r"\bhistogram\s*\(",
        types=r"map<.*; .*struct<low: double not null, high: double not null, count: int64",
    ),
    Intended(
        "`histogram` of no values is an empty list, and NULL in DuckDB",
        "tables.md",
        one_of((None, ())),
        sql=r"\bhistogram\s*\(",
        types=r"map<.*; .*struct<low: double not null, high: double not null, count: int64",
    ),
    Intended(
        "`histogram` counts the values of bars, of which NaN has none",
        "reference/functions.md#`histogram`",
        one_of(("{1.0=2, nan=2}", "[{'low': 1.0, 'high': 1.0, 'count': 2}]")),
        places="aggregate/aggregates/test_histogram.test:36,45,195",
    ),
    Intended(
        "a null is one of a list's values, which `list_distinct` keeps",
        "sql.md#Nested data",
        by_value(is_list_with_null),
        example=("SELECT list_distinct([1, NULL, 1])", "[1]", "[1, None]"),
        sql=r"\b(list|array)_distinct\s*\(",
    ),
    Intended(
        "a null is one of a list's values, which `list_distinct` keeps",
        "sql.md#Nested data",
        exactly([], [(None,)]),
        sql=r"\bunnest\s*\((list|array)_distinct\s*\(\[[^]]*\bnull\b",
    ),
    Intended(
        "`IN` a list with a null is null where no value decides, as for any other IN",
        "sql.md#Nested data",
        one_of((False, None)),
        example=("SELECT 3 IN l FROM (SELECT [1, NULL] AS l)", "False", "None"),
        places="function/generic/test_in.test:223",
    ),
    Intended(
        "`substr` of a negative start begins before the text, as in PostgreSQL",
        "sql.md#Often used",
        one_of(
            *((text, "") for text in ("lo", "ld", "b", "hello", "world", "\U0001f986end")),
            ("d", "abcd"),
        ),
        example=("SELECT substr('abc', -2)", "bc", "abc"),
        places="function/string/test_substring.test:129,207,235 "
        "function/string/test_substring_utf8.test:29",
    ),
    Intended(
        "`quantile_cont` is a DOUBLE, and DuckDB's a DECIMAL of its column's places",
        "sql.md#Aggregate functions",
        by_value(is_truncated_tenth),
        example=("SELECT quantile_cont(x::DECIMAL(2, 1), 0.25) FROM range(4) t(x)", "0.7", "0.75"),
        sql=r"\bquantile_cont\s*\(d::decimal\(\d+,1\)",
    ),
    Intended(
        "a mean is the exact sum divided by the count",
        "sql.md#Numbers",
        exactly([(-0.5,)], [(0.0,)]),
        places="aggregate/aggregates/test_bigint_avg.test:14",
    ),
    Intended(
        "an infinite DATE or TIMESTAMP is a very large one in Arrow",
        HAND_OVER,
        by_value(is_row_of_infinite_time),
        places="function/date/date_part_stats.test:143,149,155 "
        "function/date/test_date_part.test:455,467,495,510,525,545 "
        "function/timestamp/test_date_part.test:143,439,491,601,678,832",
    ),
    Intended(
        "an infinite DATE or TIMESTAMP is a very large one in Arrow",
        HAND_OVER,
        one_of(
            (("date", INFINITE_DAYS), ("date", INFINITE_DAYS - 4)),
            (False, True),
            *((None, name) for name in ("June", "July", "Wednesday", "Friday")),
            *((None, julian) for julian in (-2145043059.0, 2149924235.0)),
        ),
        places="function/date/date_part_stats.test:161 "
        "function/date/test_date_part.test:313,326,388 "
        "function/date/test_time_bucket_date.test:235",
    ),
    Intended(
        "all of an interval in seconds has years of 365.25 days, in every function",
        "sql.md#Times",
        by_value(is_year_of_365_days),
        example=("SELECT epoch_ms(INTERVAL 1 YEAR)", "31104000000", "31557600000"),
        sql=r"\bepoch_[mun]s\s*\(",
        types="^month_day_nano_interval, int64;",
    ),
    Intended(
        "hashes are other numbers, which stay the same in every release",
        "reference/functions.md",
        by_value(is_hash),
        example=("SELECT hash(1)", "4717996019076358352", "8872220978401710467"),
        file="function/generic/hash_func.test",
        sql=r"^SELECT ([a-z]+, )?hash\([^)]*(\(16,4\))?\)\s*(FROM [a-z_0-9]+)?\s*;?\s*$",
        types=r"\buint64; (.*, )?uint64$",
    ),
    Intended(
        "`formatReadableSize` and `formatReadableDecimalSize` are ClickHouse's, of two digits",
        "reference/functions.md",
        one_of(
            ("500 bytes", "500.00 B"),
            ("500.0 kB", "500.00 KB"),
            ("488.2 KiB", "488.28 KiB"),
            ("500.0 MB", "500.00 MB"),
            ("476.8 MiB", "476.84 MiB"),
        ),
        example=("SELECT formatReadableSize(500)", "500 bytes", "500.00 B"),
        sql=r"\bformatReadable(Decimal)?Size\s*\(500\b",
    ),
    Intended(
        "`SIMILAR TO` is SQL's, with % and _, and DuckDB's takes a regular expression",
        "decisions.md#Queries",
        one_of((True, False)),
        example=("SELECT 'abc' SIMILAR TO 'a%'", "False", "True"),
        sql=r"^SELECT 'aaa' SIMILAR TO '[a-z\[\]-]*\.\*a?'$",
    ),
    Intended(
        "`SIMILAR TO` is SQL's, with % and _, and DuckDB's takes a regular expression",
        "decisions.md#Queries",
        exactly([("abab",)], []),
        places="function/string/test_similar_to.test:114",
    ),
    Intended(
        "a `bar` has no spaces behind it",
        "reference/functions.md",
        by_value(same_after(lambda text: text.rstrip(" "))),
        example=("SELECT length(bar(1, 0, 10, 10))", "10", "1"),
        sql=r"^\s*SELECT bar\s*\(",
    ),
    Intended(
        "`regexp_escape` leaves `<` and `>`: `\\<` and `\\>` are the edges of words in a pattern",
        "reference/functions.md",
        by_value(same_after(lambda text: re.sub(r"\\([<>])", r"\1", text))),
        example=("SELECT regexp_escape('a<b')", "a\\<b", "a<b"),
        sql=r"\bregexp_escape\s*\(",
    ),
    Intended(
        "columns have no collation in Arrow",
        HAND_OVER,
        exactly([], [("ABC",), ("def",)]),
        places="setops/test_except.test:41",
    ),
    Intended(
        "columns have no collation in Arrow",
        HAND_OVER,
        exactly([("ABC",), ("def",)], []),
        places="setops/test_except.test:47",
    ),
    Intended(
        "columns have no collation in Arrow",
        HAND_OVER,
        exactly([("MonetDB", "amsterdam", 2)], [("MonetDB", "amsterdam", 1)]),
        places="window/test_window_order_collate.test:30",
    ),
    Intended(
        "a TIMETZ is a TIME in Arrow, without its offset",
        HAND_OVER,
        by_value(is_offset_of_zero),
        places="function/timetz/test_date_part.test:285",
    ),
    Intended(
        "a TIMETZ is a TIME in Arrow, without its offset",
        HAND_OVER,
        one_of(
            *((float(field), 0.0) for field in (57540, 15, 4, 30, -15, -57540)),
            ("TIME WITH TIME ZONE", "TIME(6)"),
            (("time", 53_096_193_041_000), ("time", 25_936_647_587_000)),
        ),
        places="function/timetz/test_date_part.test:106 function/timetz/timetz_group_by.test:12 "
        "aggregate/aggregates/test_avg.test:176",
    ),
    Intended(
        "a BIT is bytes in Arrow",
        HAND_OVER,
        one_of((b"\x0f", b"\x00\x0f")),
        places="cast/test_bit_cast.test:198",
    ),
    Intended(
        "an ENUM is a text in Arrow, without an order of its own",
        HAND_OVER,
        one_of((("ok", "happy"), ("happy", "ok"))),
        places="function/list/list_distinct.test:241",
    ),
    Intended(
        "NaN as a text is `NaN`",
        "sql.md#Numbers",
        by_value(same_after(lambda text: text.replace("nan", "NaN"))),
        example=("SELECT 'nan'::DOUBLE::VARCHAR", "nan", "NaN"),
        sql=r"'nan'::(DOUBLE|FLOAT)",
        types="string",
    ),
    Intended(
        "`DESCRIBE` has three columns, and `SUMMARIZE` numbers where DuckDB has texts",
        "sql.md#Often used",
        exactly(
            [("max(l)", "JSON", "YES", None, None, None)],
            [("max(l)", "TEXT", "YES")],
        ),
        places="aggregate/aggregates/test_minmax_14145.test:7",
    ),
    Intended(
        "`DESCRIBE` has three columns, and `SUMMARIZE` numbers where DuckDB has texts",
        "sql.md#Often used",
        lambda theirs, ours: (
            len(theirs) == len(ours)
            and all(a[0] == b[0] and len(a) != len(b) for a, b in zip(theirs, ours, strict=True))
        ),
        sql=r"^\s*(DESCRIBE|SUMMARIZE)\b",
    ),
    Intended(
        "a FLOAT in `printf` has the digits that tell it apart",
        "reference/functions.md",
        one_of(("1.00000002e-16", "1e-16")),
        places="cast/decimal_float_cast.test:54",
    ),
    Intended(
        "a cast to HUGEINT, a DECIMAL, rounds half away from zero, and DuckDB's to even",
        "sql.md#Numbers",
        one_of((decimal.Decimal(0), decimal.Decimal(1)), (decimal.Decimal(0), decimal.Decimal(-1))),
        example=("SELECT 0.5::DOUBLE::HUGEINT", "0", "1"),
        sql=r"^select cast\(-?0\.5::(FLOAT|DOUBLE) as HUGEINT\)",
    ),
    Intended(
        "a text with a fraction is no whole number, and DuckDB rounds it",
        "sql.md#Numbers",
        one_of((4, None)),
        example=("SELECT TRY_CAST('3.5' AS INT)", "4", "None"),
        places="cast/string_to_list_cast.test:347",
    ),
    Intended(
        "`\\b`, `\\n` and JSON's other escapes in double quotes are one character",
        "sql.md#Nested data",
        by_value(
            lambda theirs, ours: (
                isinstance(theirs, str)
                and isinstance(ours, str)
                and ours.replace("\b", "b") == theirs
            )
        ),
        example=("SELECT '[\"a\\nb\"]'::VARCHAR[]", "['anb']", "['a\\nb']"),
        sql=r"\$\$\{.*\\b",
    ),
    Intended(
        "there are no infinite times: their text is refused, and TRY_CAST of it is null",
        "sql.md#Times",
        by_value(lambda theirs, ours: ours is None and theirs in PARSED_INFINITE_TIMES),
        example=(
            "SELECT isfinite(TRY_CAST('infinity' AS TIMESTAMP))",
            "False",
            "None",
        ),
        sql="infinity",
    ),
    Intended(
        "`try_strptime` reads by its format alone, and DuckDB `epoch` by any",
        "sql.md#Times",
        one_of((("timestamp", 0), None)),
        example=("SELECT try_strptime('epoch', '%Y') IS NULL", "False", "True"),
        sql="try_strptime\\('epoch'",
    ),
    Intended(
        "a TIMESTAMP cast to a DATE is its day, to which DuckDB rounds nanoseconds",
        "sql.md#Times",
        one_of((("date", 1), ("date", 0))),
        places="cast/timestamp_casts.test:114",
    ),
    Intended(
        "vectors are calculated as DOUBLEs, and DuckDB's of FLOATs as FLOATs",
        "reference/functions.md",
        by_value(numbers_within("1e-6")),
        places="function/array/array_cosine_distance.test:24",
    ),
    Intended(
        "`%z` of a time without a zone is `+0000`, as in Python, and `%Z` is `UTC`",
        "sql.md#Times",
        one_of(("+00", "+0000"), ("", "UTC")),
        example=("SELECT strftime(DATE '2026-01-01', '%z')", "+00", "+0000"),
        sql=r"\bstrftime\s*\(",
    ),
    Intended(
        "distinct items of a list are counted, and DuckDB estimates them",
        "reference/functions.md",
        by_value(is_estimate),
        sql=r"\blist_approx_count_distinct\s*\(",
    ),
    Intended(
        "distances from a median are exact, and a DOUBLE for a DECIMAL",
        "reference/functions.md",
        one_of(
            (decimal.Decimal(127), 127.5),
            (decimal.Decimal(32767), 32767.5),
            (("interval", 43_200_000_000_000), ("interval", 43_199_999_999_500)),
        ),
        example=("SELECT list_mad([127::DECIMAL(3, 0), -128])", "127", "127.5"),
        sql=r"\blist_mad\s*\(",
    ),
    Intended(
        "a deviation is finite where its square is not",
        "reference/functions.md",
        one_of((math.inf, 1.414213562373095e301), (math.inf, 5e199)),
        example=(
            "SELECT list_aggr([1e301, -1e301], 'stddev')",
            "inf",
            "1.414213562373095e+301",
        ),
        sql=r"stddev",
    ),
    Intended(
        "a null separator of `array_to_string`, or group of `regexp_extract`, makes a null",
        "sql.md#Nested data",
        one_of(("1,2,3", None), ("", None)),
        example=("SELECT array_to_string([1, 2], NULL)", "1,2", "None"),
        places="function/list/array_to_string.test:20 function/string/regex_extract.test:96",
    ),
    Intended(
        "`flatten` of nulls without a type keeps them",
        "sql.md#Nested data",
        one_of(((), (None,))),
        example=("SELECT flatten([NULL])", "[]", "[None]"),
        places="function/list/flatten.test:48",
    ),
    Intended(
        "`list_concat` of null lists is null, and DuckDB's of such columns is empty",
        "sql.md#Nested data",
        one_of(((), None)),
        places="function/list/lambdas/arrow/transform_deprecated.test:131 "
        "function/list/lambdas/transform.test:134",
    ),
    Intended(
        "a null is one of a list's values, which `list_intersect` and `list_has_any` compare",
        "sql.md#Nested data",
        by_value(
            lambda theirs, ours: (
                is_list_with_null(theirs, ours)
                or (theirs, ours) in ((False, True), (True, False), ((), None))
            )
        ),
        example=("SELECT list_intersect([1, NULL], [NULL, 1])", "[1]", "[1, None]"),
        sql=r"\b(list_intersect|array_intersect|list_has_any|list_has_all)\s*\(",
    ),
    Intended(
        "the place of a null in a list of lists is null",
        "sql.md#Nested data",
        one_of((2, None)),
        places="function/list/list_position.test:420",
    ),
    Intended(
        "`list_where` has no items where its list has none, and DuckDB fills it up with nulls",
        "sql.md#Nested data",
        one_of((("1", None, None), ("1", None)), (4096, 1)),
        example=("SELECT list_where([1], [true, true])", "[1, None]", "[1]"),
        sql=r"\blist_where\s*\(",
    ),
    Intended(
        "`fmod` has the sign of its first argument, as in C",
        "reference/functions.md",
        one_of((-2.0, 1.0), (2.0, -1.0)),
        example=("SELECT fmod(-7.0, 3.0)", "2.0", "-1.0"),
        sql=r"\bfmod\s*\(",
    ),
    Intended(
        "`overlay` for a length below zero repeats what is before it, as in PostgreSQL",
        "reference/functions.md",
        one_of(("resource", "resou33333rce")),
        example=("SELECT overlay('abc' PLACING 'x' FROM 2 FOR -1)", "axc", "axabc"),
        sql=r"^SELECT overlay\('33333rce' placing 'resou' from 1 FOR -",
    ),
    Intended(
        "a `bar` of a range from a larger number to a smaller one grows towards the smaller",
        "reference/functions.md",
        by_value(
            lambda theirs, ours: all(
                isinstance(it, str) and not it.strip(" █") for it in (theirs, ours)
            )
        ),
        example=("SELECT length(bar(40, 20, 0))", "80", "0"),
        places="function/string/test_bar.test:30,35,40,89",
    ),
    Intended(
        "`reverse` turns code points round, as in PostgreSQL and Spark, and DuckDB graphemes",
        "reference/functions.md",
        by_value(
            lambda theirs, ours: (
                isinstance(theirs, str) and isinstance(ours, str) and sorted(theirs) == sorted(ours)
            )
        ),
        example=("SELECT reverse('e\u0301') = 'e\u0301'", "True", "False"),
        sql=r"^SELECT REVERSE\(",
    ),
    Intended(
        "bytes as a text are hexadecimal digits",
        "sql.md#Nested data",
        one_of(("\\x00hello", "0068656c6c6f"), ("\\x01\\xA0", "01a0")),
        example=("SELECT format('{}', '\\x00a'::BLOB)", "\\x00a", "0061"),
        sql=r"\b(format|printf)\s*\(",
    ),
    Intended(
        "`format('{:.3}', x)` has as many digits as the number needs",
        "reference/functions.md",
        one_of(("0.00", "0")),
        example=("SELECT format('{:.3}', 0.0)", "0.00", "0"),
        places="function/string/test_format.test:95",
    ),
    Intended(
        "a text that is split by nothing is one part",
        "reference/functions.md",
        one_of(("b", "")),
        example=("SELECT split_part('a,b,c', '', 3)", "b", ""),
        places="function/string/test_split_part.test:60",
    ),
    Intended(
        "groups of the pattern that a text is split by are no parts of it",
        "reference/functions.md",
        exactly([("",)] * 4, []),
        example=("SELECT string_split_regex('1,2', '(,|)')", "['1', '', '2']", "['1', '2']"),
        places="function/string/test_string_split.test:291",
    ),
    Intended(
        "an INTERVAL as a text names its units",
        "sql.md#Times",
        one_of(("00:00:00", "0 secs")),
        example=("SELECT INTERVAL 90 SECOND::VARCHAR", "00:01:30", "1 mins 30.000000000 secs"),
        sql=r"\bage\s*\(",
    ),
    Intended(
        "`current_time` is a TIME, and DuckDB's a TIMETZ",
        "sql.md#Times",
        one_of(("TIME WITH TIME ZONE", "TIME")),
        example=("SELECT typeof(current_time)", "TIME WITH TIME ZONE", "TIME"),
        sql=r"\btypeof\s*\(CURRENT_TIME",
    ),
    Intended(
        "the time is another one when the other engine is asked",
        HAND_OVER,
        by_value(
            lambda theirs, ours: (
                all(isinstance(it, tuple) and len(it) == 2 for it in (theirs, ours))
                and theirs[0] == ours[0]
                and abs(theirs[1] - ours[1]) < 600 * 10**9
            )
        ),
        places="function/timestamp/current_time.test:61,66",
    ),
    Intended(
        "whole ISO years and months between two times of UTC are those of UTC",
        "sql.md#Times",
        one_of((1, 0)),
        places="function/timestamp/test_icu_datesub.test:49,292",
    ),
    Intended(
        "a TIMESTAMPTZ keeps the zone that the session had at the hand-over",
        HAND_OVER,
        lambda theirs, ours: len(theirs) == len(ours),
        places="function/timestamp/test_icu_makedate.test:57,242,295",
    ),
    Intended(
        "`CNT`, `CTT` and other short names of zones stand for several, and are none",
        "sql.md#Times",
        lambda theirs, ours: (
            len(theirs) == len(ours)
            and all(row[0] is None for row in ours)
            and {row[1] for row in theirs} == {row[1] for row in ours}
        ),
        example=(
            "SELECT try_strptime('2022-03-05 IST', '%Y-%m-%d %Z') IS NULL",
            "False",
            "True",
        ),
        sql=r"\btry_strptime\s*\(.*%Z",
    ),
    Intended(
        "`strptime` reads microseconds, and DuckDB nanoseconds if the format has `%n`",
        "sql.md#Times",
        by_value(
            lambda theirs, ours: (
                isinstance(theirs, tuple)
                and isinstance(ours, tuple)
                and theirs[0] == ours[0] == "timestamp"
                and theirs[1] // 1000 * 1000 == ours[1]
            )
        ),
        example=(
            "SELECT nanosecond(strptime('0.123456789', '%S.%n'))",
            "123456789",
            "123456000",
        ),
        sql=r"\bstrptime\s*\(.*%n",
    ),
    Intended(
        "a second of 60 at 23:59 is a leap second",
        "sql.md#Times",
        one_of((None, ("timestamp", 970_444_800 * 10**9))),
        example=(
            "SELECT try_strptime('2000-10-01 23:59:60', '%Y-%m-%d %H:%M:%S')::DATE",
            "None",
            "2000-10-02",
        ),
        places="function/timestamp/test_try_strptime.test:423",
    ),
    Intended(
        "weeks that agree with each other are read, and a week of ISO 8601 is not left out",
        "sql.md#Times",
        one_of(
            (None, ("timestamp", -2_197_497_600 * 10**9)),
            (("timestamp", -631_152_000 * 10**9), None),
        ),
        places="function/timestamp/test_try_strptime.test:596,637",
    ),
    Intended(
        "`%p` beside `%H` is left out, as in Python",
        "sql.md#Times",
        one_of((None, ("timestamp", 1_924_891_385 * 10**9))),
        places="function/timestamp/test_try_strptime.test:648",
    ),
    Intended(
        "the end of a day, 24:00, is 00:00",
        "sql.md#Times",
        by_value(lambda theirs, ours: theirs == ("hour", 24) and ours == ("hour", 0)),
        places="function/timetz/test_date_part.test:266",
    ),
    Intended(
        "a column that a cast of COLUMNS makes is called as it is written",
        "sql.md#Often used",
        exactly(
            [("col1", "42"), ("col2", "woot")],
            [("CAST(col1 AS VARCHAR)", "42"), ("CAST(col2 AS VARCHAR)", "woot")],
        ),
        places="pivot/unpivot_unnamed_subquery.test:5",
    ),
    Intended(
        "two equal windows over random values are one",
        "sql.md#Often used",
        exactly([(0,)], [(4,)]),
        places="window/test_volatile_independence.test:22",
    ),
    Intended(
        "a cast to a whole number cuts what is behind the point, and DuckDB rounds it",
        "coming-from.md#DuckDB",
        lambda theirs, ours: len(theirs) == len(ours),
        places="window/test_window_wisconsin.test:114",
    ),
    Intended(
        "bytes are BYTEA, and `concat` of them is BYTEA",
        "reference/functions.md",
        one_of(("BLOB", "BYTEA")),
        example=("SELECT typeof('a'::BLOB)", "BLOB", "BYTEA"),
        sql=r"\btypeof\s*\(.*blob",
    ),
    Intended(
        "a backslash in a pattern of LIKE is its escape, as in PostgreSQL and Spark",
        "sql.md#Often used",
        one_of((True, False), (False, True)),
        example=("SELECT 'a_b' LIKE 'a\\_b'", "False", "True"),
        sql=r"LIKE\s+'[^']*\\",
    ),
    Intended(
        "an infinite DATE or TIMESTAMP is a very large one in Arrow",
        HAND_OVER,
        lambda theirs, ours: (
            {row[0] for row in theirs} == {None}
            and {row[0] for row in ours}
            <= {58816.0, -587764.0, 1, 0, 2149924235.0, -2145043059.0, 588158028, -587764126}
        ),
        places="function/date/test_date_part.test:107,119,131,339",
    ),
    Intended(
        "`histogram` counts the values of bars, and DuckDB's those of each value",
        "reference/functions.md#`histogram`",
        lambda theirs, ours: len(theirs) == len(ours),
        places="aggregate/aggregates/test_histogram.test:71",
    ),
    Intended(
        "`concat` of bytes is bytes, and DuckDB's a text",
        "sql.md#Nested data",
        lambda theirs, ours: len(theirs) == len(ours),
        sql=r"concat\s*\(blob",
    ),
)
