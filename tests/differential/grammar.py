"""Random statements, each with a rendering for tidemill and one for DuckDB.

An expression is a form with places for others (`({0} + {1})`); where the two dialects differ in
words, and not in meaning, it has a second form. LIMIT and OFFSET stand at every level. Both engines
keep the order of a source through conditions, expressions and UNION ALL, so a limit there keeps the
same rows in both; elsewhere a statement sorts by all columns before it limits.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from .values import INTEGERS

TIDEMILL, DUCKDB = "tidemill", "duckdb"
# DuckDB, with the conditions of an AND or OR in the order in which they are written.
IN_ORDER = "duckdb in order"
_IN_ORDER = {
    "({0} AND {1})": "CASE WHEN {0} IS FALSE THEN false ELSE ({0} AND {1}) END",
    "({0} OR {1})": "CASE WHEN {0} THEN true ELSE ({0} OR {1}) END",
    "({0} IS DISTINCT FROM {1} AND {2})": (
        "CASE WHEN {0} IS NOT DISTINCT FROM {1} THEN false ELSE {2} END"
    ),
    "({0} IS NOT DISTINCT FROM {1} OR {2})": (
        "CASE WHEN {0} IS NOT DISTINCT FROM {1} THEN true ELSE {2} END"
    ),
}


@dataclass(frozen=True)
class E:
    """An expression of a kind."""

    kind: str
    form: str
    parts: tuple[E | Select, ...] = ()
    duckdb: str | None = None

    def sql(self, dialect: str) -> str:
        """Its text."""
        form = self.duckdb if dialect != TIDEMILL and self.duckdb is not None else self.form
        if dialect == IN_ORDER:
            form = _IN_ORDER.get(form, form)
        if not self.parts:
            return form
        texts = [part.sql(dialect) for part in self.parts]
        pieces = form.split("{")
        return pieces[0] + "".join(
            texts[int(piece.partition("}")[0])] + piece.partition("}")[2] for piece in pieces[1:]
        )

    def smaller(self) -> Iterator[E]:
        """Simpler ones of its kind."""
        for part in self.parts:
            if isinstance(part, E) and part.kind == self.kind:
                yield part
        if self.parts and self.kind in _SIMPLEST and not self.is_aggregate():
            yield E(self.kind, _SIMPLEST[self.kind])
        for at, part in enumerate(self.parts):
            for other in part.smaller():
                yield replace(self, parts=(*self.parts[:at], other, *self.parts[at + 1 :]))

    def is_aggregate(self) -> bool:
        """Whether an aggregate or a window is in it."""
        return self.form.startswith(_AGGREGATES) or any(
            isinstance(part, E) and part.is_aggregate() for part in self.parts
        )


_AGGREGATES = (
    "count(", "sum(", "avg(", "min(", "max(", "unique(", "quantile(", "bool_", "row_number(",
    "rank(", "dense_rank(", "lag(", "lead(", "first_value(", "stddev(",
    "var_pop(", "regr_count(", "median(",
)  # fmt: skip
_SIMPLEST = {"calm": "1", "flag": "true", "text": "'a'", "word": "'a'", "tame": "0.5e0"}


@dataclass(frozen=True)
class Joined:
    """An item of a FROM clause; `how` is its join to the items before it.

    A table may be limited to its first rows.
    """

    what: str | Select | Compound
    alias: str
    how: str = ""
    on: E | None = None
    limit: int | None = None
    offset: int = 0

    def sql(self, dialect: str) -> str:
        """Its text."""
        what = self.what if isinstance(self.what, str) else f"({self.what.sql(dialect)})"
        # A name of a table is put in later: where it stands depends on who is asked.
        what = "{" + what + "}" if isinstance(self.what, str) else what
        if self.limit is not None or self.offset:
            what = f"(SELECT * FROM {what}{_limit(self)})"
        text = f"{self.how} {what} AS {self.alias}".strip()
        return f"{text} ON {self.on.sql(dialect)}" if self.on else text


@dataclass(frozen=True)
class Select:
    """A SELECT; its first `keys` items are what it groups by, where it groups."""

    items: tuple[E, ...]
    sources: tuple[Joined, ...]
    where: E | None = None
    keys: int = 0
    having: E | None = None
    qualify: E | None = None
    distinct: bool = False
    ordered: bool = False
    descending: int = 0
    limit: int | None = None
    offset: int = 0
    kind: str = "rows"
    # ROLLUP or CUBE of the keys, by their names or places.
    sets: str | None = None
    by_place: bool = False

    def sql(self, dialect: str) -> str:
        """Its text."""
        items = ", ".join(f"{item.sql(dialect)} AS c{at}" for at, item in enumerate(self.items))
        text = f"SELECT {'DISTINCT ' if self.distinct else ''}{items} FROM "
        text += " ".join(source.sql(dialect) for source in self.sources)
        if self.where:
            text += f" WHERE {self.where.sql(dialect)}"
        if self.keys and self.sets:
            keys = ", ".join(
                str(at + 1) if self.by_place else key.sql(dialect)
                for at, key in enumerate(self.items[: self.keys])
            )
            text += f" GROUP BY {self.sets} ({keys})"
        elif self.keys:
            text += " GROUP BY " + ", ".join(str(at + 1) for at in range(self.keys))
        if self.having:
            text += f" HAVING {self.having.sql(dialect)}"
        if self.qualify:
            text += f" QUALIFY {self.qualify.sql(dialect)}"
        return text + _order(self, len(self.items))

    def is_aggregate(self) -> bool:
        """A part that has aggregates of its own is none of the whole."""
        return False

    def smaller(self) -> Iterator[Select]:
        """Simpler ones."""
        for name in ("where", "having", "qualify", "limit", "sets"):
            if getattr(self, name) is not None:
                yield replace(self, **{name: None})
        if self.distinct:
            yield replace(self, distinct=False)
        if self.offset:
            yield replace(self, offset=0)
        if self.descending:
            yield replace(self, descending=0)
        if self.ordered:
            yield replace(self, ordered=False)
        if len(self.sources) > 1:
            yield replace(self, sources=self.sources[:-1])
        for at in range(len(self.items)):
            if len(self.items) > 1 and not (at < self.keys and self.keys == 1):
                items = self.items[:at] + self.items[at + 1 :]
                yield replace(self, items=items, keys=self.keys - (at < self.keys))
        if 0 < self.keys < len(self.items):
            yield replace(self, items=self.items[self.keys :], keys=0)
        for at, source in enumerate(self.sources):
            if source.limit is not None or source.offset:
                for changed in (replace(source, limit=None), replace(source, offset=0)):
                    if changed != source:
                        yield replace(
                            self, sources=(*self.sources[:at], changed, *self.sources[at + 1 :])
                        )
            if not isinstance(source.what, str):
                inner = source.what
                for other in inner.smaller():
                    changed = replace(source, what=other)
                    yield replace(
                        self, sources=(*self.sources[:at], changed, *self.sources[at + 1 :])
                    )
            if source.on:
                for on in source.on.smaller():
                    changed = replace(source, on=on)
                    yield replace(
                        self, sources=(*self.sources[:at], changed, *self.sources[at + 1 :])
                    )
        for at, item in enumerate(self.items):
            for other in item.smaller():
                yield replace(self, items=(*self.items[:at], other, *self.items[at + 1 :]))
        for name in ("where", "having", "qualify"):
            if getattr(self, name):
                for other in getattr(self, name).smaller():
                    yield replace(self, **{name: other})

    def beside(self, extra: E) -> Select:
        """The same with another column, which is the last and takes no part in the order."""
        return replace(self, items=(*self.items, extra))


@dataclass(frozen=True)
class Compound:
    """Two selects put together."""

    how: str
    left: Select
    right: Select
    ordered: bool = False
    descending: int = 0
    limit: int | None = None
    offset: int = 0
    kind: str = field(default="compound")

    @property
    def items(self) -> tuple[E, ...]:
        """What it gives."""
        return self.left.items

    def sql(self, dialect: str) -> str:
        """Its text."""
        sides = []
        for side in (self.left, self.right):
            is_plain = not side.ordered and side.limit is None and not side.offset
            sides.append(side.sql(dialect) if is_plain else f"({side.sql(dialect)})")
        return f" {self.how} ".join(sides) + _order(self, len(self.left.items))

    def smaller(self) -> Iterator[Select | Compound]:
        """Simpler ones."""
        yield self.left
        yield self.right
        if self.limit is not None:
            yield replace(self, limit=None)
        if self.offset:
            yield replace(self, offset=0)
        if self.ordered:
            yield replace(self, ordered=False)
        for at in range(len(self.left.items)):
            if len(self.left.items) > 1:
                sides = [
                    replace(
                        side,
                        items=side.items[:at] + side.items[at + 1 :],
                        keys=side.keys - (at < side.keys),
                    )
                    for side in (self.left, self.right)
                ]
                yield replace(self, left=sides[0], right=sides[1])
        for left in self.left.smaller():
            if len(left.items) == len(self.left.items):
                yield replace(self, left=left)
        for right in self.right.smaller():
            if len(right.items) == len(self.right.items):
                yield replace(self, right=right)


Statement = Select | Compound


def _order(statement: Statement, columns: int) -> str:
    text = ""
    if statement.ordered:
        columns -= getattr(statement.items[-1], "kind", "") == "beside"
        keys = [
            f"{at + 1} {'DESC' if statement.descending >> at & 1 else 'ASC'} NULLS LAST"
            for at in range(columns)
        ]
        text += " ORDER BY " + ", ".join(keys)
    return text + _limit(statement)


def _limit(part: Statement | Joined) -> str:
    text = "" if part.limit is None else f" LIMIT {part.limit}"
    return f"{text} OFFSET {part.offset}" if part.offset else text


def _selects(part: E) -> Iterator[Select | Compound]:
    """Return the subqueries of an expression."""
    for inner in part.parts:
        if isinstance(inner, E):
            yield from _selects(inner)
        else:
            yield inner


def _has_window(part: E) -> bool:
    """Return true if an expression calls a function over a window, which may reorder the rows."""
    inner = (inner for inner in part.parts if isinstance(inner, E))
    return "OVER (" in part.form or any(_has_window(each) for each in inner)


def _has_order(statement: Statement) -> bool:
    """Return true if both engines output a statement's rows in one order without its ORDER BY."""
    if isinstance(statement, Compound):
        sides = (statement.left, statement.right)
        return statement.how == "UNION ALL" and all(_keeps_order(side) for side in sides)
    expressions = [*statement.items, *([statement.where] if statement.where else [])]
    if (
        statement.keys
        or statement.distinct
        or statement.having
        or statement.qualify
        or len(statement.sources) > 1
        or any(item.is_aggregate() or _has_window(item) for item in statement.items)
        or any(True for part in expressions for _ in _selects(part))
    ):
        return False
    inner = statement.sources[0].what
    return isinstance(inner, str) or _keeps_order(inner)


def _keeps_order(statement: Statement) -> bool:
    """Return true if both engines output a subquery's rows in one order.

    In a subquery, an ORDER BY without a limit sets no order.
    """
    if statement.ordered:
        return statement.limit is not None or statement.offset > 0
    return _has_order(statement)


def is_determined(statement: Statement) -> bool:
    """Return true if each limit in a statement applies to rows in a defined order."""
    if isinstance(statement, Compound):
        parts: list[Statement] = [statement.left, statement.right]
    else:
        expressions = [*statement.items, statement.where, statement.having, statement.qualify]
        expressions += [source.on for source in statement.sources]
        parts = [select for part in expressions if part for select in _selects(part)]
        parts += [source.what for source in statement.sources if not isinstance(source.what, str)]
    is_limited = statement.limit is not None or statement.offset > 0
    is_right = not is_limited or statement.ordered or _has_order(statement)
    return is_right and all(is_determined(part) for part in parts)


_GROUPS = {
    "int": tuple(INTEGERS),
    "float": ("double", "real", "tame"),
    "dec": ("price", "exact"),
    "text": ("text", "word"),
    "at": ("at", "at_s", "at_ms", "at_ns"),
}
_LITERALS = {
    "int": ("0", "1", "-1", "127", "128", "255", "256", "32768", "2147483648", "-2147483649",
            "4294967296", "9223372036854775807"),
    "calm": ("0", "1", "-1", "2", "7", "-3"),
    "tame": ("0.5e0", "-1.25e0", "3e0", "0e0"),
    "float": ("0e0", "-0e0", "0.1e0", "1e-20", "1e300", "5e-324", "1e16", "-1e26", "'NaN'::double",
              "'Infinity'::double", "'-Infinity'::double"),
    "dec": ("'0.00'::decimal(9, 2)", "'1.50'::decimal(9, 2)", "'-0.01'::decimal(9, 2)",
            "'9999999.99'::decimal(9, 2)", "'0.000001'::decimal(18, 6)"),
    "wide": ("'123456789012345678.1234567890'::decimal(38, 10)", "'0'::decimal(38, 10)"),
    "whole": ("'99999999999999999999999999999999999999'::decimal(38, 0)", "'1'::decimal(38, 0)"),
    "text": ("''", "'a'", "'ab'", "'A'", "'é'", "'日本語'", "'it''s'",
             "'a\nb'", "' '", "'\"'", "'%'"),
    "word": ("'ann'", "'a'", "''", "'rome'"),
    "day": ("DATE '2026-11-22'", "DATE '1970-01-01'", "DATE '0001-01-01'", "DATE '9999-12-31'",
            "DATE '2024-02-29'", "DATE '1677-09-20'", "DATE '2262-04-12'"),
    "at": ("TIMESTAMP '2026-11-22 10:00:00'", "TIMESTAMP '1969-12-31 23:59:59.999999'",
           "TIMESTAMP '1677-09-21 00:12:44'", "TIMESTAMP '2262-04-11 23:47:16'",
           "TIMESTAMP '9999-12-31 23:59:59'", "TIMESTAMP '0001-01-01 00:00:00'"),
    "flag": ("true", "false", "NULL::boolean"),
    "nums": ("[1, NULL]::bigint[]", "[NULL]::bigint[]", "[1, 2]::bigint[]", "[NULL, 1]::bigint[]"),
}  # fmt: skip


class Grammar:
    """Statements over tables, whose columns it is told, from a source of chance."""

    def __init__(
        self,
        chance: random.Random,
        tables: dict[str, tuple[tuple[str, str], ...]],
        joins_max: int = 2,
    ):
        self.chance = chance
        # Each multiplies the rows, whose keys are few.
        self.joins_max = joins_max
        self.tables = tables
        self.count = 0

    # Expressions

    def columns(self, scope: list[tuple[str, str]], kind: str) -> list[E]:
        kinds = (kind,) if kind in ("calm", "tame", "word") else _GROUPS.get(kind, (kind,))
        return [E(kind, name) for name, other in scope if other in kinds]

    def literal(self, kind: str) -> E | None:
        texts = _LITERALS.get(kind)
        if texts is None:
            return None
        text = self.chance.choice(texts)
        if "::" in text:
            value, _, name = text.partition("::")
            text = f"CAST({value} AS {name.upper()})"
        return E(kind, text)

    def leaf(self, kind: str, scope: list[tuple[str, str]]) -> E:
        columns = self.columns(scope, kind)
        if columns and self.chance.random() < 0.8:
            return self.chance.choice(columns)
        found = self.literal(kind)
        if found is None and columns:
            return self.chance.choice(columns)
        return found or E(kind, "NULL")

    def expression(self, kind: str, scope: list[tuple[str, str]], depth: int) -> E:
        if depth <= 0 or self.chance.random() < 0.3:
            return self.leaf(kind, scope)
        more = lambda other: self.expression(other, scope, depth - 1)  # noqa: E731
        ways: list[Callable[[], E]] = [
            lambda: E(
                kind,
                "CASE WHEN {0} THEN {1} ELSE {2} END",
                (more("flag"), more(kind), more(kind)),
            ),
            lambda: E(kind, "coalesce({0}, {1})", (more(kind), more(kind))),
            lambda: E(kind, "nullif({0}, {1})", (more(kind), self.leaf(kind, scope))),
        ]
        if kind in ("nums", "record", "records", "zoned"):
            return self.leaf(kind, scope)
        if kind in ("wide", "whole"):
            return self.chance.choice(ways)()
        ways += getattr(self, f"_{kind}", lambda *_: [])(scope, depth, more)
        return self.chance.choice(ways)()

    def _calm(self, scope, depth, more):
        # Of leaves alone: products of products grow past 32 bits.
        leaf = lambda: E("calm", "CAST({0} AS BIGINT)", (self.leaf("calm", scope),))  # noqa: E731
        day = lambda: self.leaf("day", scope)  # noqa: E731
        ways = [
            lambda: E("calm", "({0} + {1})", (leaf(), leaf())),
            lambda: E("calm", "({0} - {1})", (leaf(), leaf())),
            lambda: E("calm", "({0} * {1})", (leaf(), leaf())),
            lambda: E("calm", "(- {0})", (leaf(),)),
            lambda: E("calm", "abs({0})", (leaf(),)),
            lambda: E("calm", "({0} % nullif({1}, 0))", (leaf(), leaf())),
            lambda: E("calm", "({0} // nullif({1}, 0))", (leaf(), leaf())),
            lambda: E(
                "calm",
                "CASE WHEN {0} BETWEEN -128 AND 127 THEN CAST({0} AS TINYINT) ELSE {1} END",
                (self.leaf("int", scope), leaf()),
            ),
            lambda: E("calm", "CAST(length({0}) AS BIGINT)", (more("text"),)),
            lambda: E("calm", "CAST(strpos({0}, {1}) AS BIGINT)", (more("text"), more("word"))),
        ]
        if self.columns(scope, "day"):
            part = self.chance.choice(("year", "month", "day", "quarter", "dow", "doy"))
            ways.append(lambda: E("calm", f"CAST(date_part('{part}', {{0}}) AS BIGINT)", (day(),)))
        if self.columns(scope, "at"):
            part = self.chance.choice(("year", "month", "day", "hour", "minute"))
            ways.append(
                lambda: E(
                    "calm", f"CAST(date_part('{part}', {{0}}) AS BIGINT)", (self.leaf("at", scope),)
                )
            )
            of_span = self.chance.choice(("day", "hour", "minute", "second", "microsecond"))
            ways.append(
                lambda: E(
                    "calm", f"CAST(extract({of_span} FROM {{0}}) AS BIGINT)", (self._span(scope),)
                )
            )
        if self.columns(scope, "record"):
            record = self.chance.choice(self.columns(scope, "record"))
            ways.append(lambda: E("calm", "{0}['a']", (record,)))
        if self.columns(scope, "nums"):
            nums = self.chance.choice(self.columns(scope, "nums"))
            ways.append(lambda: E("calm", "{0}[1]", (nums,)))
            ways.append(lambda: E("calm", "CAST(length({0}) AS BIGINT)", (nums,)))
        return ways

    def _micros(self, scope):
        """A time without nanoseconds."""
        times = [E("at", name) for name, kind in scope if kind in ("at", "at_ms", "at_s")]
        return self.chance.choice([*times, E("at", "TIMESTAMP '2026-11-22 10:00:00'")])

    def _span(self, scope):
        """How long it is between two times."""
        times = [E("at", name) for name, kind in scope if kind in ("at", "at_ms", "at_s")]
        times.append(self.literal("at"))
        return E("span", "({0} - {1})", (self.chance.choice(times), self.chance.choice(times)))

    def _int(self, scope, depth, more):
        return [
            lambda: E("int", "CAST({0} AS BIGINT)", (more("calm"),)),
            lambda: E(
                "int",
                self.chance.choice(("({0} + {1})", "({0} - {1})", "({0} * {1})")),
                (E("int", "CAST({0} AS BIGINT)", (more("calm"),)), self._big(scope)),
            ),
        ]

    def _big(self, scope):
        columns = [E("int", name) for name, kind in scope if kind in ("big", "id")]
        return self.chance.choice(columns or [E("int", "CAST(3 AS BIGINT)")])

    def _tame(self, scope, depth, more):
        return [
            lambda: E("tame", "({0} + {1})", (self.leaf("tame", scope), self.leaf("tame", scope))),
            lambda: E("tame", "({0} - {1})", (self.leaf("tame", scope), self.leaf("tame", scope))),
            lambda: E("tame", "CAST({0} AS DOUBLE)", (more("calm"),)),
            lambda: E("tame", "abs({0})", (more("tame"),)),
            lambda: E("tame", "floor({0})", (more("tame"),)),
            lambda: E("tame", "ceil({0})", (more("tame"),)),
        ]

    def _float(self, scope, depth, more):
        span = E("float", "extract(epoch FROM {0})", (self._span(scope),))
        return [
            *([lambda: span] if self.columns(scope, "at") else []),
            lambda: E("float", "({0} + {1})", (more("float"), more("float"))),
            lambda: E("float", "({0} * {1})", (more("float"), more("float"))),
            lambda: E("float", "({0} / {1})", (more("float"), more("float"))),
            lambda: E("float", "(- {0})", (more("float"),)),
            lambda: E("float", "abs({0})", (more("float"),)),
            lambda: E("float", "CAST({0} AS DOUBLE)", (more("int"),)),
            lambda: E(
                "float",
                self.chance.choice(("CAST({0} AS REAL)", "TRY_CAST({0} AS REAL)")),
                (more("float"),),
            ),
        ]

    def _dec(self, scope, depth, more):
        safe = self.columns(scope, "dec")
        if not safe:
            return []
        pick = lambda: self.chance.choice(safe)  # noqa: E731
        return [
            lambda: E("dec", "({0} + {1})", (pick(), pick())),
            lambda: E("dec", "({0} - {1})", (pick(), pick())),
            lambda: E("dec", "(- {0})", (pick(),)),
            lambda: E("dec", "abs({0})", (pick(),)),
            lambda: E("dec", f"round({{0}}, {self.chance.randint(0, 2)})", (pick(),)),
        ]

    def _text(self, scope, depth, more):
        ways = [
            lambda: E("text", "({0} || {1})", (more("text"), more("text"))),
            lambda: E("text", "concat({0}, {1})", (more("text"), more("text"))),
            lambda: E("text", "upper({0})", (self.leaf("word", scope),)),
            lambda: E("text", "replace({0}, 'a', 'bb')", (more("text"),)),
            lambda: E("text", f"substr({{0}}, {self.chance.randint(1, 4)}, 2)", (more("text"),)),
            lambda: E("text", f"left({{0}}, {self.chance.randint(0, 4)})", (more("text"),)),
            lambda: E("text", "trim({0})", (more("text"),)),
            lambda: E("text", "CAST({0} AS VARCHAR)", (more("calm"),)),
            lambda: E("text", "CAST({0} AS VARCHAR)", (more("flag"),)),
            lambda: E("text", "CAST({0} AS VARCHAR)", (self.leaf("int", scope),)),
        ]
        if self.columns(scope, "record"):
            record = self.chance.choice(self.columns(scope, "record"))
            ways.append(lambda: E("text", "{0}['b']", (record,)))
        return ways

    def _word(self, scope, depth, more):
        return [lambda: E("word", "lower({0})", (self.leaf("word", scope),))]

    def _day(self, scope, depth, more):
        days = self.chance.choice((1, 7, 31))
        ways = [
            lambda: E(
                "day",
                f"CAST({{0}} + INTERVAL '{days} day' AS DATE)",
                (E("day", "nullif({0}, DATE '9999-12-31')", (self.leaf("day", scope),)),),
            ),
            lambda: E(
                "day",
                "CAST({0} - INTERVAL '1 month' AS DATE)",
                (E("day", "nullif({0}, DATE '0001-01-01')", (self.leaf("day", scope),)),),
            ),
        ]
        if self.columns(scope, "at"):
            ways.append(lambda: E("day", "CAST({0} AS DATE)", (self.leaf("at", scope),)))
        return ways

    def _at(self, scope, depth, more):
        part = self.chance.choice(("year", "quarter", "month", "week", "day", "hour", "minute"))
        ways = []
        columns = [E("at", name) for name, kind in scope if kind in ("at", "at_ms", "at_s")]
        if columns:
            pick = lambda: self.chance.choice(columns)  # noqa: E731
            ways += [
                lambda: E("at", f"date_trunc('{part}', {{0}})", (pick(),)),
                lambda: E("at", "({0} + INTERVAL '90 minute')", (pick(),)),
                lambda: E("at", "({0} - INTERVAL '1 day')", (pick(),)),
                lambda: E(
                    "at",
                    f"({{0}} + {{1}} * INTERVAL '{self.chance.choice(('1 hour', '2 day'))}')",
                    (pick(), self.leaf("calm", scope)),
                ),
            ]
        if self.columns(scope, "day"):
            ways.append(lambda: E("at", "CAST({0} AS TIMESTAMP)", (self.leaf("day", scope),)))
        return ways

    def _flag(self, scope, depth, more):
        kinds = [
            kind
            for kind in ("calm", "int", "tame", "float", "dec", "wide", "whole", "text", "word",
                         "day", "at", "zoned")
            if self.columns(scope, kind)
        ]  # fmt: skip
        kind = self.chance.choice(kinds or ["calm"])
        compare = self.chance.choice(("=", "<>", "<", "<=", ">", ">="))
        leaf_calm = lambda: self.leaf("calm", scope)  # noqa: E731
        numbers = ("calm", "int", "tame", "float", "dec", "wide", "whole")
        numbers = [kind for kind in numbers if kind in kinds]
        ways = [
            lambda: E("flag", f"({{0}} {compare} {{1}})", (more(kind), more(kind))),
            lambda: E("flag", f"({{0}} {compare} {{1}})", (self.leaf(kind, scope), more(kind))),
            lambda: E("flag", "({0} AND {1})", (more("flag"), more("flag"))),
            lambda: E("flag", "({0} OR {1})", (more("flag"), more("flag"))),
            lambda: E("flag", "(NOT {0})", (more("flag"),)),
            lambda: E("flag", "({0} IS NULL)", (more(kind),)),
            lambda: E("flag", "({0} IS NOT NULL)", (more(kind),)),
            lambda: E("flag", "({0} IS DISTINCT FROM {1})", (more(kind), more(kind))),
            # Without brackets: what follows is a condition of its own.
            lambda: E(
                "flag",
                self.chance.choice(
                    ("({0} IS DISTINCT FROM {1} AND {2})", "({0} IS NOT DISTINCT FROM {1} OR {2})")
                ),
                (more(kind), more(kind), more("flag")),
            ),
            lambda: E("flag", "({0} IS TRUE)", (more("flag"),)),
            lambda: E(
                "flag",
                "({0} BETWEEN {1} AND {2})",
                (self.leaf(kind, scope), self.leaf(kind, scope), self.leaf(kind, scope)),
            ),
            lambda: E(
                "flag",
                self.chance.choice(("({0} IN ({1}, {2}))", "({0} NOT IN ({1}, {2}))")),
                (self.leaf(kind, scope), self.leaf(kind, scope), self.leaf(kind, scope)),
            ),
            lambda: E(
                "flag",
                self.chance.choice(
                    (
                        "({0} = ANY([{1}, {2}]))",
                        "({0} <> ALL([{1}, {2}]))",
                        "(NOT {0} = ANY([{1}, {2}]))",
                        f"({{0}} {compare} ANY([{{1}}, {{2}}]))",
                        f"({{0}} {compare} ALL([{{1}}, {{2}}]))",
                    )
                ),
                (self.leaf(kind, scope), self.leaf(kind, scope), self.leaf(kind, scope)),
            ),
            # What is computed, and lists long enough to stay lists.
            lambda: E(
                "flag",
                self.chance.choice(
                    (
                        "({0} IN ({1}, {2}, {3}, {4}))",
                        "({0} NOT IN ({1}, {2}, {3}, {4}))",
                        "({0} IN ({1}, NULL, {2}, {3}) OR {0} NOT IN ({4}, {2}))",
                        "({0} NOT IN ({1}, {2}) OR {0} NOT IN ({3}, {4}))",
                        "({0} IN ({1}, {2}, {3}) AND {0} NOT IN ({2}, {4}))",
                    )
                ),
                (
                    self.expression(kind, scope, 1),
                    *(self.expression(kind, scope, 1) for _ in range(4)),
                ),
            ),
            lambda: E(
                "flag",
                "({0} LIKE "
                + self.chance.choice(("'a%'", "'%b'", "'%a%'", "'_'", "'a_'", "''", "'%'", "'%é%'"))
                + ")",
                (more("text"),),
            ),
            lambda: E("flag", "starts_with({0}, {1})", (more("text"), self.leaf("word", scope))),
        ]
        if len(numbers) > 1:
            one, two = self.chance.sample(numbers, 2)
            ways.append(
                lambda: E(
                    "flag",
                    f"({{0}} {compare} {{1}})",
                    (self.leaf(one, scope), self.leaf(two, scope)),
                )
            )
        nested = [kind for kind in ("nums", "record") if self.columns(scope, kind)]
        if nested:
            # Which is larger may turn on a null within.
            of = self.chance.choice(nested)
            other = self.literal(of) if self.chance.random() < 0.5 else self.leaf(of, scope)
            sides = (self.leaf(of, scope), other or self.leaf(of, scope))
            ways += [lambda: E("flag", f"({{0}} {compare} {{1}})", sides)] * 3
        if "at" in kinds:
            ways.append(
                lambda: E(
                    "flag",
                    f"(CAST({{0}} AS TIME) {compare} TIME '12:00:00')",
                    (self._micros(scope),),
                )
            )
        if "int" in kinds:
            small = self.leaf("int", scope)
            ways.append(
                lambda: E(
                    "flag", f"(TRY_CAST({{0}} AS TINYINT) {compare} {{1}})", (small, leaf_calm())
                )
            )
            # What is left out by a condition is not computed.
            big = self.leaf("int", scope)
            ways.append(
                lambda: E(
                    "flag",
                    "CASE WHEN {0} BETWEEN -128 AND 127 THEN CAST({0} AS TINYINT) "
                    f"{compare} {{1}} ELSE {{2}} END",
                    (big, more("calm"), more("flag")),
                )
            )
        if "dec" in kinds:
            many = self.chance.choice(("9999999999999999.9999", "-12345678901234.567801"))
            ways.append(lambda: E("flag", f"({{0}} {compare} {many})", (self.leaf("dec", scope),)))
        if "at" in kinds:
            span = self.chance.choice(("36 hour", "1 day", "90 minute"))
            ways.append(
                lambda: E(
                    "flag",
                    f"(({{0}} - {{1}}) {compare} INTERVAL '{span}')",
                    (self.leaf("at", scope), self.leaf("at", scope)),
                )
            )
        if "day" in kinds and "at" in kinds:
            ways.append(
                lambda: E(
                    "flag",
                    f"(({{0}} + INTERVAL '12 hour') {compare} {{1}})",
                    (self.leaf("day", scope), self.leaf("at", scope)),
                )
            )
            ways.append(
                lambda: E(
                    "flag",
                    f"({{0}} {compare} {{1}})",
                    (self.leaf("day", scope), self.leaf("at", scope)),
                )
            )
        if depth > 1 and len(self.tables) > 1:
            ways.append(lambda: self._in_select(kind, scope))
            ways.append(lambda: self._exists(scope))
            ways.append(lambda: self._one_value(scope))
        return ways

    def _in_select(self, kind: str, scope: list[tuple[str, str]]) -> E:
        source, inner = self.table()
        columns = self.columns(inner, kind)
        if not columns:
            return self.leaf("flag", scope)
        asked = self.chance.choice(columns)
        select = Select((asked,), (source,))
        only = self.literal(kind)
        if only and self.chance.random() < 0.2:
            # A constant among rows that hold it alone.
            select = replace(select, where=E("flag", "({0} = {1})", (asked, only)))
            return E(
                "flag",
                self.chance.choice(("({0} IN ({1}))", "({0} NOT IN ({1}))")),
                (only, select),
            )
        if self.chance.random() < 0.7:
            select = replace(select, where=self.expression("flag", inner, 1))
        if self.chance.random() < 0.2 and _has_order(select):
            select = self._first(select)
        form = self.chance.choice(
            ("({0} IN ({1}))", "({0} NOT IN ({1}))", "(({0} IN ({1})) IS NULL)",
             "({0} <= ANY ({1}))", "({0} > ALL ({1}))")
        )  # fmt: skip
        return E("flag", form, (self.leaf(kind, scope), select))

    def _exists(self, scope: list[tuple[str, str]]) -> E:
        source, inner = self.table()
        kind = self.chance.choice(("calm", "word"))
        outer, own = self.columns(scope, kind), self.columns(inner, kind)
        if not outer or not own:
            return self.leaf("flag", scope)
        tie, other = self.chance.choice(own), self.chance.choice(outer)
        if self.chance.random() < 0.4:
            # Several values of the tie are one of what it is equal to.
            tie = E(kind, "upper({0})" if kind == "word" else "abs({0})", (tie,))
        equal = E("flag", "({0} = {1})", (tie, other))
        select = Select((E("calm", "1"),), (source,), where=equal)
        return E("flag", self.chance.choice(("EXISTS ({0})", "NOT EXISTS ({0})")), (select,))

    def _one_value(self, scope: list[tuple[str, str]]) -> E:
        """Return an expression over a scalar subquery, which has at most one row."""
        source, inner = self.table()
        count = E("calm", "count(*)")
        where = self.expression("flag", inner, 1)
        more = E("flag", "(count(*) > {0})", (E("calm", str(self.chance.randrange(40))),))
        outer, own = self.columns(scope, "calm"), self.columns(inner, "calm")
        if outer and own and self.chance.random() < 0.4:
            equal = (self.chance.choice(own), self.chance.choice(outer))
            where = E("flag", "({0} = {1})", equal)
            having = more if self.chance.random() < 0.5 else None
            select = Select((count,), (source,), where, having=having)
        elif self.chance.random() < 0.5:
            select = Select((count,), (source,), where, having=more)
        elif own and self.chance.random() < 0.5:
            select = Select((self.chance.choice(own),), (source,), limit=1)
            select = replace(select, offset=self.chance.randrange(5))
        else:
            select = Select((E("calm", "1"),), (source,), where, distinct=True)
        form = self.chance.choice(
            ("(({0}) IS NULL)", "(({0}) IS NOT NULL)", "(coalesce(({0}), 7) > 3)",
             "(({0}) IS DISTINCT FROM 1)", "(CASE WHEN ({0}) > 0 THEN true END)")
        )  # fmt: skip
        return E("flag", form, (select,))

    def aggregate(self, scope: list[tuple[str, str]], mergeable: bool = False) -> E:
        kinds = sorted({self._class(kind) for _, kind in scope} - {"nums", "record", "records"})
        kind = self.chance.choice(kinds)
        part = (
            self.expression(kind, scope, 1)
            if self.chance.random() < 0.4
            else self.leaf(kind, scope)
        )
        calm = self.leaf("calm", scope)
        tame = self.leaf("tame", scope)
        decimals = [E("dec", name) for name, other in scope if other in ("price", "exact")]
        exact = (
            [E("calm", "count({0})", (part,)), E("calm", "count(*)"),
             E("calm", "count(DISTINCT {0})", (part,)),
             E(kind, "min({0})", (part,)), E(kind, "max({0})", (part,)),
             E("calm", "sum({0})", (calm,), "CAST(sum({0}) AS DECIMAL(38, 0))"),
             E("int", "sum({0})", (self.leaf("int", scope),), "CAST(sum({0}) AS DECIMAL(38, 0))"),
             E("tame", "sum({0})", (tame,)), E("float", "avg({0})", (calm,)),
             E("float", "avg({0})", (tame,)),
             E("calm", "unique({0})", (part,), "count(DISTINCT {0})"),
             E("float", "quantile({0}, 0.5)", (calm,), "quantile_cont(CAST({0} AS DOUBLE), 0.5)"),
             E("float", "stddev({0})", (self.chance.choice((calm, tame)),)),
             E("float", "var_pop({0})", (self.chance.choice((calm, tame)),)),
             E("float", "median({0})", (self.chance.choice((calm, tame)),)),
             E("calm", "regr_count({0}, {1})", (calm, tame)),
             *[E("dec", "sum({0})", (each,)) for each in decimals]]
        )  # fmt: skip
        nested = [kind for kind in ("nums", "record") if self.columns(scope, kind)]
        if nested and self.chance.random() < 0.3:
            of = self.chance.choice(nested)
            return E(of, self.chance.choice(("min({0})", "max({0})")), (self.leaf(of, scope),))
        if "flag" in kinds:
            flag = self.leaf("flag", scope)
            exact += [E("flag", "bool_and({0})", (flag,)), E("flag", "bool_or({0})", (flag,))]
        found = self.chance.choice(exact)
        if not mergeable and self.chance.random() < 0.2:
            where = self.expression("flag", scope, 1)
            at = len(found.parts)
            ending = f" FILTER (WHERE {{{at}}})"
            if found.duckdb and found.duckdb.startswith("CAST("):
                duckdb = found.duckdb.replace("})", "})" + ending, 1)
            else:
                duckdb = found.duckdb and found.duckdb + ending
            return E(found.kind, found.form + ending, (*found.parts, where), duckdb)
        return found

    @staticmethod
    def _class(kind: str) -> str:
        if kind in ("calm", "tame", "word"):
            return kind
        return next((name for name, kinds in _GROUPS.items() if kind in kinds), kind)

    def window(self, scope: list[tuple[str, str]]) -> E:
        alias = scope[0][0].partition(".")[0]
        by = f"{alias}.id"
        word = self.leaf("word", scope).form
        calm = self.leaf("calm", scope)
        kinds = [
            self._class(kind) for _, kind in scope if kind not in ("nums", "record", "records")
        ]
        any_kind = self.chance.choice(kinds)
        any_part = self.leaf(any_kind, scope)
        descending = self.chance.choice(("", " DESC"))
        over = f"OVER (PARTITION BY {word} ORDER BY {by}{descending})"
        whole = f"OVER (PARTITION BY {any_part.form})"
        frame = f"OVER (ORDER BY {by} ROWS BETWEEN 2 PRECEDING AND 1 FOLLOWING)"
        ranked = f"OVER (ORDER BY {any_part.form}{descending} NULLS LAST)"
        ranked_in_parts = (
            f"OVER (PARTITION BY {word} ORDER BY {any_part.form}{descending} NULLS LAST)"
        )
        flag, key = self.expression("flag", scope, 1), self.expression("calm", scope, 1)
        # What is computed, as keys: of them all rows may be equal.
        computed = "OVER (PARTITION BY {1} ORDER BY {2} NULLS LAST)"
        framed = self._framed(scope)
        if framed and self.chance.random() < 0.4:
            return self.chance.choice([
                E("calm", f"sum({{0}}) {framed}", (calm,),
                  f"CAST(sum({{0}}) {framed} AS DECIMAL(38, 0))"),
                E("calm", f"count(*) {framed}"),
                E(any_kind, f"min({{0}}) {framed}", (any_part,)),
                E("float", f"avg({{0}}) {framed}", (calm,)),
            ])  # fmt: skip
        return self.chance.choice([
            E("calm", f"sum({{0}}) {computed}", (calm, flag, key),
              f"CAST(sum({{0}}) {computed} AS DECIMAL(38, 0))"),
            E("calm", f"rank() {computed}", (calm, flag, key)),
            E("calm", f"sum({{0}}) FILTER (WHERE {{1}}) {over}", (calm, flag),
              f"CAST(sum({{0}}) FILTER (WHERE {{1}}) {over} AS DECIMAL(38, 0))"),
            E("calm", f"count({{0}}) FILTER (WHERE {{1}}) {whole}", (any_part, flag)),
            E(any_kind, f"max({{0}}) FILTER (WHERE {{1}}) {ranked}", (any_part, flag)),
            E(any_kind, f"last_value({{0}}) IGNORE NULLS {over}", (any_part,),
              f"last_value({{0}} IGNORE NULLS) {over}"),
            E(any_kind, f"first_value({{0}}) IGNORE NULLS {over}", (any_part,),
              f"first_value({{0}} IGNORE NULLS) {over}"),
            E("text", f"string_agg({{0}}, '-') {over}", (self.leaf("word", scope),)),
            E("calm", f"row_number() {over}"),
            E("calm", f"rank() {ranked}"),
            E("calm", f"dense_rank() {ranked}"),
            E(any_kind, f"lag({{0}}) {over}", (any_part,)),
            E(any_kind, f"lead({{0}}, 2) {over}", (any_part,)),
            E(any_kind, f"first_value({{0}}) {over}", (any_part,)),
            E("calm", f"sum({{0}}) {over}", (calm,), f"CAST(sum({{0}}) {over} AS DECIMAL(38, 0))"),
            E("calm", f"sum({{0}}) {frame}", (calm,),
              f"CAST(sum({{0}}) {frame} AS DECIMAL(38, 0))"),
            E("calm", f"count(*) {whole}"),
            E("calm", f"count({{0}}) {over}", (any_part,)),
            E("calm", f"sum({{0}}) {ranked}", (calm,),
              f"CAST(sum({{0}}) {ranked} AS DECIMAL(38, 0))"),
            E("calm", f"count({{0}}) {ranked_in_parts}", (calm,)),
            E(any_kind, f"max({{0}}) {ranked_in_parts}", (any_part,)),
            E(any_kind, f"max({{0}}) {over}", (any_part,)),
            E("float", f"avg({{0}}) {frame}", (calm,)),
        ])  # fmt: skip

    def first_rows(self, scope: list[tuple[str, str]]) -> E:
        """A condition on the number of a row in its group."""
        alias = scope[0][0].partition(".")[0]
        flat = [kind for kind in self._kinds(scope) if kind not in ("nums", "record", "records")]
        values = []
        parts, orders = self.chance.randrange(3), self.chance.randrange(3)
        for _ in range(parts + orders):
            kind = self.chance.choice(flat)
            is_leaf = self.chance.random() < 0.7
            values.append(self.leaf(kind, scope) if is_leaf else self.expression(kind, scope, 1))
        by = ", ".join(f"{{{at}}}" for at in range(parts))
        ways = [f"{way} NULLS {nulls}" for way in ("", " DESC") for nulls in ("FIRST", "LAST")]
        order = [f"{{{at}}}{self.chance.choice(ways)}" for at in range(parts, parts + orders)]
        order = ", ".join([*order, f"{alias}.id{self.chance.choice(('', ' DESC'))}"])
        over = f"OVER ({f'PARTITION BY {by} ' if parts else ''}ORDER BY {order})"
        bound = self.chance.choice(("<= 1", "= 1", "< 3", "<= 4", "BETWEEN 2 AND 3", "= 2"))
        return E("flag", f"(row_number() {over} {bound})", tuple(values))

    def _framed(self, scope: list[tuple[str, str]]) -> str | None:
        """A window with a frame by distances."""
        distances = {
            "int": ("0", "1", "3", "200", "40000"),
            "dec": ("0", "0.25", "1", "1000000"),
            "day": ("INTERVAL '1 day'", "INTERVAL '36 hour'"),
            "at": ("INTERVAL '90 minute'", "INTERVAL '2 day'"),
        }
        # DuckDB has no distances of what has nanoseconds or a zone.
        columns = [
            (name, self._class(kind) if kind != "calm" else "int")
            for name, kind in scope
            if kind not in ("at_ns", "zoned", "wide", "whole", "ubig")
        ]
        columns = [(name, kind) for name, kind in columns if kind in distances]
        if not columns:
            return None
        name, kind = self.chance.choice(columns)
        units = self.chance.choice(("RANGE", "RANGE", "GROUPS"))
        far = lambda: self.chance.choice(distances[kind] if units == "RANGE" else ("1", "3"))  # noqa: E731
        bounds = [
            "UNBOUNDED PRECEDING", f"{far()} PRECEDING", "CURRENT ROW", f"{far()} FOLLOWING",
            "UNBOUNDED FOLLOWING",
        ]  # fmt: skip
        at = sorted(self.chance.choices(range(5), k=2))
        if at in ([0, 0], [4, 4]):
            at = [0, 4]
        order = self.chance.choice(("", " DESC")) + self.chance.choice(
            (" NULLS FIRST", " NULLS LAST")
        )
        parts = self.chance.choice(("", f"PARTITION BY {self.leaf('word', scope).form} "))
        frame = f"{units} BETWEEN {bounds[at[0]]} AND {bounds[at[1]]}"
        return f"OVER ({parts}ORDER BY {name}{order} {frame})"

    # Sources

    def table(self, name: str | None = None) -> tuple[Joined, list[tuple[str, str]]]:
        name = name or self.chance.choice(sorted(self.tables))
        alias = f"a{self.count}"
        self.count += 1
        scope = [(f"{alias}.{column}", kind) for column, kind in self.tables[name]]
        source = Joined(name, alias)
        if self.chance.random() < 0.2:
            source = replace(source, limit=self.chance.choice((None, 0, 1, 2, 5, 20)))
            source = replace(source, offset=self.chance.choice((0, 1, 3, 7)))
        return source, scope

    def _sources(self, depth: int) -> tuple[tuple[Joined, ...], list[tuple[str, str]]]:
        pick = self.chance.random()
        if pick < 0.15 and depth > 0:
            inner = self.statement(depth - 1)
            alias = f"a{self.count}"
            self.count += 1
            # What may have nanoseconds is not added to: DuckDB would round it.
            kinds = [
                "at_ns" if item.kind == "at" and "at_ns" in inner.sql(DUCKDB) else item.kind
                for item in inner.items
            ]
            scope = [
                (f"{alias}.c{at}", {"int": "big", "float": "double", "dec": "_"}.get(kind, kind))
                for at, kind in enumerate(kinds)
            ]
            if all(kind not in ("calm", "word") for kind in kinds):
                return self._sources(0)
            # What adds up to more than a small number is none any more.
            return (Joined(inner, alias),), [
                (name, "derived" if kind == "calm" else kind) for name, kind in scope
            ]
        first, scope = self.table("t0" if pick < 0.8 else None)
        sources = [first]
        while (
            len(sources) <= self.joins_max and self.chance.random() < 0.22 and len(self.tables) > 1
        ):
            source, more = self.table()
            kind = self.chance.choice(("calm", "word", "calm", "word", "int", "at", "day", "text"))
            left, right = self.columns(scope, kind), self.columns(more, kind)
            if not left or not right:
                continue
            equal = "=" if self.chance.random() < 0.7 else "IS NOT DISTINCT FROM"
            on = E(
                "flag",
                f"({{0}} {equal} {{1}})",
                (self.chance.choice(left), self.chance.choice(right)),
            )
            if self.chance.random() < 0.3:
                rest = self.expression("flag", scope + more, 1)
                on = E("flag", "({0} AND {1})", (on, rest))
            how = self.chance.choice(("JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"))
            sources.append(replace(source, how=how, on=on))
            scope = scope + more
        return tuple(sources), scope

    # Statements

    def _kinds(self, scope: list[tuple[str, str]]) -> list[str]:
        return sorted({self._class(kind) for _, kind in scope} - {"derived", "_"})

    def select(self, depth: int) -> Select:
        sources, scope = self._sources(depth)
        kinds = self._kinds(scope)
        if not kinds:
            return self.select(0)
        where = self.expression("flag", scope, 3) if self.chance.random() < 0.6 else None
        pick = self.chance.random()
        if pick < 0.45:
            keys = [
                self.chance.choice(self.columns(scope, kind)) if self.chance.random() < 0.7
                and self.columns(scope, kind) else self.expression(kind, scope, 1)
                for kind in (self.chance.choice(
                    [kind for kind in kinds if kind not in ("nums", "record", "records")]
                    or ["calm"]
                ) for _ in range(self.chance.randrange(3)))
            ]  # fmt: skip
            aggregates = [self.aggregate(scope) for _ in range(self.chance.randint(1, 3))]
            having = None
            if keys and self.chance.random() < 0.3:
                having = E("flag", "(count(*) > {0})", (E("calm", str(self.chance.randrange(4))),))
            made = Select((*keys, *aggregates), sources, where, len(keys), having, kind="tables")
            # DataFusion refuses a set that has a key twice.
            is_each_once = len({key.sql(TIDEMILL) for key in keys}) == len(keys)
            # A number is the place of a column.
            is_number = any(key.sql(TIDEMILL).isdigit() for key in keys)
            if keys and is_each_once and not is_number and self.chance.random() < 0.15:
                # One value below the sets is two above them.
                only = self.literal(keys[0].kind)
                if only and self.chance.random() < 0.5:
                    made = replace(made, where=E("flag", "({0} = {1})", (keys[0], only)))
                sets = self.chance.choice(("ROLLUP", "CUBE"))
                by_place = self.chance.random() < 0.3
                made = replace(made, sets=sets, by_place=by_place, kind="sets")
        elif pick < 0.6 and sources[0].what == "t0" and len(sources) == 1:
            items = [self.leaf(self.chance.choice(kinds), scope) for _ in range(2)]
            if self.chance.random() < 0.5:
                qualify = self.first_rows(scope)
                made = Select(tuple(items), sources, where, qualify=qualify, kind="firsts")
            else:
                items.append(self.window(scope))
                made = Select(tuple(items), sources, where, kind="windows")
        else:
            items = [
                self.expression(self.chance.choice(kinds), scope, self.chance.randint(0, 3))
                for _ in range(self.chance.randint(1, 4))
            ]
            nested = any(item.kind in ("nums", "record", "records") for item in items)
            distinct = not nested and self.chance.random() < 0.2
            made = Select(tuple(items), sources, where, distinct=distinct)
        return self._limited(made)

    def _limited(self, made):
        if any(item.kind == "records" for item in made.items):
            return made
        if self.chance.random() < 0.35:
            # DuckDB's order of nulls within is that of the column's nulls, ours PostgreSQL's.
            nested = [item.kind in ("nums", "record") for item in made.items]
            downwards = self.chance.getrandbits(4)
            downwards &= ~sum(1 << at for at, is_nested in enumerate(nested) if is_nested)
            made = replace(made, ordered=True, descending=downwards)
            if self.chance.random() < 0.6:
                made = self._first(made)
        elif self.chance.random() < 0.3 and _has_order(made):
            made = self._first(made)
        return made

    def _first(self, made):
        made = replace(made, limit=self.chance.choice((0, 1, 3, 10)))
        if self.chance.random() < 0.3:
            made = replace(made, offset=self.chance.randrange(5))
            if self.chance.random() < 0.2:
                made = replace(made, limit=None)
        return made

    def above_limits(self) -> Select:
        """Return a sort, a DISTINCT, an aggregate or a window over nested limits.

        Half of them have the unique number last: a sort by the columns before it decides which rows
        an inner limit keeps, and the statement around it may not use these columns.
        """
        source, scope = self.table("t0")
        kinds = [kind for kind in self._kinds(scope) if kind not in ("nums", "record", "records")]
        number = E("id", f"{source.alias}.id")
        items = (number, *(self.leaf(self.chance.choice(kinds), scope) for _ in range(2)))
        is_last = self.chance.random() < 0.5
        items = (*items[1:], number) if is_last else items
        where = self.expression("flag", scope, 1) if self.chance.random() < 0.3 else None
        inner = Select(items, (source,), where)
        if self.chance.random() < 0.5:
            inner = replace(inner, ordered=True, descending=self.chance.getrandbits(3))
        inner = self._first_of_many(inner)
        for _ in range(self.chance.choice((0, 0, 1, 2))):
            inner = self._over(inner)
            if self.chance.random() < 0.5:
                inner = replace(inner, ordered=True, descending=self.chance.getrandbits(3))
            inner = self._first_of_many(inner)
        outer = self._over(inner)
        *others, number = outer.items if is_last else (*outer.items[1:], outer.items[0])
        pick = self.chance.randrange(5)
        if pick == 0:
            outer = replace(outer, items=tuple(others), distinct=True)
        elif pick == 1:
            found = [E("calm", f"{name}({number.form})") for name in ("count", "min", "max")]
            outer = replace(outer, items=(others[0], *found), keys=1, kind="tables")
        elif pick == 2:
            by = self.chance.choice(("", f"PARTITION BY {others[1].form} "))
            way = self.chance.choice(("", " DESC"))
            rank = E("calm", f"row_number() OVER ({by}ORDER BY {number.form}{way})")
            outer = replace(outer, items=(*outer.items, rank), kind="windows")
        elif pick == 3:
            found = [E("calm", f"{name}({number.form})") for name in ("count", "sum", "min")]
            outer = replace(outer, items=tuple(found), kind="tables")
        outer = replace(outer, ordered=True, descending=self.chance.getrandbits(4))
        return self._first(outer) if self.chance.random() < 0.3 else outer

    def _over(self, inner: Select) -> Select:
        """Return a statement that selects all columns of another."""
        alias = f"a{self.count}"
        self.count += 1
        items = (E(item.kind, f"{alias}.c{at}") for at, item in enumerate(inner.items))
        return Select(tuple(items), (Joined(inner, alias),))

    def _first_of_many(self, made: Select) -> Select:
        limit = self.chance.choice((None, 2, 5, 20, 50))
        offset = self.chance.choice((0, 1, 2, 7)) if limit else self.chance.choice((1, 3))
        return replace(made, limit=limit, offset=offset)

    def statement(self, depth: int = 2) -> Statement:
        """A statement."""
        if depth > 1 and self.chance.random() < 0.1:
            return self.above_limits()
        if depth > 0 and self.chance.random() < 0.12:
            left = replace(self.select(depth - 1), ordered=False, limit=None, offset=0)
            right_sources, scope = self._sources(0)
            kinds = self._kinds(scope)
            if all(item.kind in kinds for item in left.items):
                items = tuple(self.expression(item.kind, scope, 1) for item in left.items)
                right = Select(items, right_sources)
                nested = any(item.kind in ("nums", "record", "records") for item in left.items)
                hows = ("UNION ALL",) if nested else (
                    "UNION ALL", "UNION ALL", "UNION", "INTERSECT", "EXCEPT")  # fmt: skip
                left, right = (
                    self._first(side) if self.chance.random() < 0.2 and _has_order(side) else side
                    for side in (left, right)
                )
                return self._limited(Compound(self.chance.choice(hows), left, right))
        return self.select(depth)

    def mergeable(self) -> Select:
        """A statement over one table that can be a job with a partial table."""
        source, scope = self.table("t0")
        source = replace(source, limit=None, offset=0)
        kinds = [kind for kind in self._kinds(scope) if kind not in ("nums", "record", "records")]
        keys = tuple(
            self.expression(self.chance.choice(kinds), scope, 1)
            for _ in range(self.chance.randrange(3))
        )
        found = [self.aggregate(scope, mergeable=True) for _ in range(self.chance.randint(1, 3))]
        # A source of its own has no place in a job.
        where = self.expression("flag", scope, 1) if self.chance.random() < 0.5 else None
        return Select((*keys, *found), (source,), where, len(keys), kind="merged")
