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
        "an ORDER BY in a subquery without a LIMIT promises nothing to the query around it",
        "sql.md",
        lambda theirs, ours: len(theirs) == len(ours),
        places="cte/materialized/materialized_cte_order_preservation.test:175,212,226,239",
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
)
