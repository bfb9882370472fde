"""Differences from DuckDB that are intended, each with its reason and a page of the docs.

An entry says where a difference is expected, and covers no other: its files, its queries, or the
`places` of them in the pinned commit; what differs; and, by `is_alike`, how far apart both are.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

# Not a difference of the product: what DuckDB's tables and settings lose on their way to Tidemill.
HAND_OVER = "../tests/conformance/duckdb/README.md#Limits"
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")


@dataclass(frozen=True)
class Intended:
    """A kind of difference; every matcher that is given must match."""

    reason: str
    # A page of `docs`, with a heading behind `#`, or `HAND_OVER`.
    page: str
    # A query of our own for one value, DuckDB's answer and Tidemill's, as Python's text of them.
    example: tuple[str, str, str] | None = None
    # A pattern of the file's path below `test/sql`.
    file: str = "*"
    # A regular expression that is searched in the query.
    sql: str = ""
    # One that is searched in what differs, with the types and rows of both answers.
    found: str = ""
    # Files and lines: `cast/a.test:12,15`.
    places: str = ""
    # Whether DuckDB's rows and Tidemill's, as texts, differ in this way only.
    is_alike: Callable[[Sequence[str], Sequence[str]], bool] | None = None

    def covers(self, verdict: dict[str, Any]) -> bool:
        """Return whether a different answer is of this kind."""
        if not fnmatch.fnmatchcase(verdict["file"], self.file):
            return False
        if self.places and (verdict["file"], verdict["line"]) not in locations(self.places):
            return False
        if self.sql and not re.search(self.sql, verdict["sql"], re.IGNORECASE | re.DOTALL):
            return False
        if self.is_alike and not self.is_alike(verdict["expected"], verdict["actual"]):
            return False
        return not self.found or re.search(self.found, details(verdict)) is not None


def locations(places: str) -> set[tuple[str, int]]:
    """The files and lines of places that are separated by spaces."""
    found = set()
    for place in places.split():
        file, _, lines = place.rpartition(":")
        found |= {(file, int(line)) for line in lines.split(",")}
    return found


def details(verdict: dict[str, Any]) -> str:
    """The difference as text: the sentence, the types, DuckDB's rows and Tidemill's."""
    expected, actual = verdict.get("types", [[], []])
    return "\n".join(
        [
            verdict["message"],
            f"types: {', '.join(expected)}; {', '.join(actual)}",
            *(f"duckdb: {row}" for row in verdict["expected"]),
            *(f"tidemill: {row}" for row in verdict["actual"]),
        ]
    )


def after(change: Callable[[str], str]) -> Callable[[Sequence[str], Sequence[str]], bool]:
    """Return whether rows are the same after a change to their text."""

    def is_alike(expected: Sequence[str], actual: Sequence[str]) -> bool:
        return sorted(map(change, expected)) == sorted(map(change, actual))

    return is_alike


def within(distance: float) -> Callable[[Sequence[str], Sequence[str]], bool]:
    """Return whether rows are the same but for numbers that are no further apart."""

    def is_alike(expected: Sequence[str], actual: Sequence[str]) -> bool:
        one, other = "\n".join(expected), "\n".join(actual)
        if NUMBER.sub("0", one) != NUMBER.sub("0", other):
            return False
        pairs = zip(NUMBER.findall(one), NUMBER.findall(other), strict=True)
        return all(abs(float(a) - float(b)) <= distance for a, b in pairs)

    return is_alike


def dates_as_times(row: str) -> str:
    """Write dates as the times that they begin at."""
    day = 86_400 * 10**9
    return re.sub(r"\('date', (-?\d+)\)", lambda it: f"('timestamp', {int(it[1]) * day})", row)


def times_with_spaces(row: str) -> str:
    """Write times in texts as DuckDB does: with a space, and without a fraction of zero."""
    row = re.sub(r"(\d-\d\d)T(\d\d:)", r"\1 \2", row)
    return re.sub(r"(\d\d:\d\d:\d\d(?:\.\d*[1-9])?)\.?0*(?:\+00(?::00)?|Z)?(?!\d)", r"\1", row)


def infinities_as_null(row: str) -> str:
    return re.sub(r"\bnan\b", "NULL", row)


# The first entry that matches counts.
INTENDED: tuple[Intended, ...] = (
    Intended(
        "a cast to a whole number cuts what is behind the point, and DuckDB rounds it",
        "coming-from.md#DuckDB",
        example=("SELECT 1.5::INT", "2", "1"),
        sql=r"(::|\bas\s+)(u?(tiny|small|big)?int(eger)?|int[1248]|long|short)\b",
        is_alike=within(1),
    ),
    Intended(
        "a value that is cut fits a whole number where DuckDB's, which is rounded, does not",
        "coming-from.md#DuckDB",
        example=("SELECT TRY_CAST(127.6::DOUBLE AS TINYINT)", "None", "127"),
        places="cast/float_integer_cast.test:109",
    ),
    Intended(
        "a FLOAT beside a number of another type is a DOUBLE, and DuckDB's stays a FLOAT",
        "sql.md#Numbers",
        example=("SELECT 2e38::FLOAT / 0.1", "inf", "1.9999999360571385e+39"),
        places="overflow/double_float_overflow.test:43 window/test_boundary_expr.test:96",
    ),
    Intended(
        "a time as a text has a T, and DuckDB's a space",
        "coming-from.md#DuckDB",
        example=(
            "SELECT TIMESTAMP '2026-02-01 11:00:00'::VARCHAR",
            "2026-02-01 11:00:00",
            "2026-02-01T11:00:00",
        ),
        found=r"tidemill: .*\d-\d\dT\d\d:",
        is_alike=after(times_with_spaces),
    ),
    Intended(
        "`quantile` interpolates, and DuckDB's gives a value of the column",
        "coming-from.md#DuckDB",
        example=("SELECT quantile(x, 0.5) FROM (VALUES (1), (2)) t(x)", "1", "1.5"),
        sql=r"\bquantile\s*\(",
    ),
    Intended(
        "`date_diff` counts the Mondays between two dates, and DuckDB weeks of seven days",
        "coming-from.md#DuckDB",
        example=("SELECT date_diff('week', DATE '2026-02-01', DATE '2026-02-03')", "0", "1"),
        sql=r"\bdate_?diff\s*\(\s*'weeks?'",
        is_alike=within(1),
    ),
    Intended(
        "a list that is null adds nothing to another",
        "coming-from.md#DuckDB",
        example=("SELECT [1] || NULL", "None", "[1, None]"),
        places="",
        sql=r"\|\|",
        found=r"duckdb: \(NULL\)\n(.*\n)*tidemill: \(\(",
    ),
    Intended(
        "`typeof` has this product's names of types, and numbers with a point are DOUBLEs",
        "sql.md#Numbers",
        example=("SELECT typeof(1.5)", "DECIMAL(2,1)", "DOUBLE"),
        sql=r"\b(pg_)?typeof\s*\(|\bdescribe\b|\bsummarize\b",
    ),
    Intended(
        "a DATE plus days is a DATE, and DuckDB's is a TIMESTAMP",
        "decisions.md#Queries",
        example=(
            "SELECT DATE '2026-01-01' + INTERVAL 1 DAY",
            "2026-01-02 00:00:00",
            "2026-01-02",
        ),
        found=r"types: .*timestamp.*; .*date32",
        is_alike=after(dates_as_times),
    ),
    Intended(
        "`json_value` is without quotes, and DuckDB's has them",
        "decisions.md#Queries",
        example=("""SELECT json_value('{"a":"b"}', '$.a')""", '"b"', "b"),
        sql=r"\bjson_value\s*\(",
    ),
    Intended(
        "a median of a DECIMAL has one place more",
        "decisions.md#Queries",
        example=("SELECT median(1.0::DECIMAL(3, 1))::VARCHAR", "1.0", "1.00"),
        sql=r"\b(median|mad)\s*\(",
        found=r"decimal128|'\d+\.\d+0'",
        is_alike=within(0.5),
    ),
    Intended(
        "a correlation of what does not vary is null, and NaN in DuckDB",
        "sql.md#Aggregate functions",
        example=("SELECT corr(1, 1)", "nan", "None"),
        sql=r"\b(corr|regr_r2|regr_slope|regr_intercept)\s*\(",
        is_alike=after(infinities_as_null),
    ),
    Intended(
        "estimates come of other sketches",
        "sql.md#Aggregate functions",
        sql=r"\b(approx_count_distinct|approx_quantile|approx_top_k|reservoir_quantile)\s*\(",
        found=r"duckdb: .*\d",
    ),
    Intended(
        "`histogram` counts the values of bars, and DuckDB's those of each value",
        "tables.md",
        sql=r"\bhistogram\s*\(",
    ),
    Intended(
        "a null is one of a list's values, which `list_distinct` keeps",
        "sql.md#Nested data",
        example=("SELECT list_distinct([1, NULL, 1])", "[1]", "[1, None]"),
        sql=r"\b(list|array)_distinct\s*\(",
        found=r"NULL",
    ),
    Intended(
        "`IN` a list with a null is null where no value decides, as for any other IN",
        "sql.md#Nested data",
        example=("SELECT 3 IN l FROM (SELECT [1, NULL] AS l)", "False", "None"),
        places="function/generic/test_in.test:223",
    ),
    Intended(
        "`substr` of a negative start begins before the text, as in PostgreSQL",
        "sql.md#Often used",
        example=("SELECT substr('abc', -2)", "bc", "abc"),
        sql=r"\bsubstr(ing)?\s*\(",
        file="function/string/*",
    ),
    Intended(
        "`quantile_cont` is a DOUBLE, and DuckDB's a DECIMAL of its column's places",
        "sql.md#Aggregate functions",
        example=("SELECT quantile_cont(x::DECIMAL(2, 1), 0.25) FROM range(4) t(x)", "0.7", "0.75"),
        sql=r"\b(quantile|percentile)_cont\s*\(",
        found=r"types: .*decimal128",
        is_alike=within(0.1),
    ),
    Intended(
        "a mean is the exact sum divided by the count",
        "sql.md#Numbers",
        places="aggregate/aggregates/test_bigint_avg.test:14",
    ),
    Intended(
        "an infinite DATE or TIMESTAMP is a very large one in Arrow",
        HAND_OVER,
        found=r"-?\b(2147483647|9223372036854775807(000){0,3})\b",
        file="function/date/*",
    ),
    Intended(
        "an infinite DATE or TIMESTAMP is a very large one in Arrow",
        HAND_OVER,
        found=r"-?\b(2147483647|9223372036854775807(000){0,3})\b",
        file="function/timestamp/*",
    ),
    Intended(
        "all of an interval in seconds has years of 365.25 days, in every function",
        "sql.md#Times",
        example=("SELECT epoch_ms(INTERVAL 1 YEAR)", "31104000000", "31557600000"),
        sql=r"\bepoch_[mun]s\s*\(",
    ),
    Intended(
        "hashes are other numbers, which stay the same in every release",
        "reference/functions.md",
        example=("SELECT hash(1)", "4717996019076358352", "8872220978401710467"),
        sql=r"\bhash\s*\(",
    ),
    Intended(
        "`formatReadableSize` and `formatReadableDecimalSize` are ClickHouse's, of two digits",
        "reference/functions.md",
        example=("SELECT formatReadableSize(500)", "500 bytes", "500.00 B"),
        sql=r"\bformatReadable(Decimal)?Size\s*\(",
    ),
    Intended(
        "`SIMILAR TO` is SQL's, with % and _, and DuckDB's takes a regular expression",
        "decisions.md#Queries",
        example=("SELECT 'abc' SIMILAR TO 'a%'", "False", "True"),
        sql=r"\bsimilar\s+to\b",
    ),
    Intended(
        "a `bar` has no spaces behind it",
        "reference/functions.md",
        example=("SELECT length(bar(1, 0, 10, 10))", "10", "1"),
        sql=r"\bbar\s*\(",
        is_alike=after(lambda row: re.sub(r" +'", "'", row)),
    ),
    Intended(
        "`regexp_escape` leaves `<` and `>`: `\\<` and `\\>` are the edges of words in a pattern",
        "reference/functions.md",
        example=("SELECT regexp_escape('a<b')", "a\\<b", "a<b"),
        sql=r"\bregexp_escape\s*\(",
    ),
    Intended(
        "columns have no collation in Arrow",
        HAND_OVER,
        places="setops/test_except.test:41,47 window/test_window_order_collate.test:30",
    ),
    Intended("a TIMETZ is a TIME in Arrow, without its offset", HAND_OVER, sql=r"timetz|time with"),
    Intended(
        "a BIT is bytes in Arrow",
        HAND_OVER,
        places="cast/test_bit_cast.test:198",
    ),
    Intended(
        "an infinite DATE or TIMESTAMP is a very large one in Arrow",
        HAND_OVER,
        places="function/date/date_part_stats.test:161 "
        "function/date/test_date_part.test:313,326,388",
    ),
    Intended(
        "an ENUM is a text in Arrow, without an order of its own",
        HAND_OVER,
        places="function/list/list_distinct.test:241",
    ),
)
