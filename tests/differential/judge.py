"""Cases, and whether anything differs in them.

A case is tables, a statement, and two ways to answer it, or a way and DuckDB. What is asked of a
case is a check by name, so that a difference can be shown again from a few words.
"""

from __future__ import annotations

import base64
import decimal
import json
import pathlib
import random
import shutil
import tempfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import duckdb
import pyarrow as pa

import tidemill as tm

from . import compare, grammar, values
from .grammar import E, Grammar, Joined, Select, Statement
from .intended import explained
from .known import known
from .values import Table
from .ways import FORMATS, NOT_IN_AVRO, Place, Way, beside, connect, random_way, tables_of

PARQUET = Way()


@dataclass(frozen=True)
class Case:
    """Something that can be asked twice."""

    check: str
    tables: dict[str, Table]
    statement: Statement
    way: Way
    other: Way = PARQUET

    def smaller(self) -> Iterator[Case]:
        """Simpler ones: ways, statement, rows, columns."""
        for way in self.way.smaller():
            yield replace(self, way=way)
        for other in self.other.smaller():
            yield replace(self, other=other)
        used = tables_of(self.statement, self.tables)
        if len(used) < len(self.tables):
            yield replace(self, tables={name: self.tables[name] for name in used})
        for name in used:
            table = self.tables[name]
            count = len(table.rows)
            size = count
            while size:
                for start in range(0, count, size):
                    rows = table.rows[:start] + table.rows[start + size :]
                    yield self._with(name, replace(table, rows=rows))
                if count > 200 and size < count // 16:
                    break
                size //= 2
        for statement in self.statement.smaller():
            if grammar.is_determined(statement):
                yield replace(self, statement=statement)
        text = self.statement.sql(grammar.TIDEMILL)
        for name in used:
            table = self.tables[name]
            for at, (column, _) in enumerate(table.columns):
                if f".{column}" not in text and len(table.columns) > 1:
                    columns = table.columns[:at] + table.columns[at + 1 :]
                    rows = tuple(row[:at] + row[at + 1 :] for row in table.rows)
                    yield self._with(name, Table(columns, rows))

    def _with(self, name: str, table: Table) -> Case:
        return replace(self, tables=self.tables | {name: table})

    def text(self) -> str:
        """The case in words that can be pasted."""
        plain = json.dumps(_plain(self), separators=(",", ":"), ensure_ascii=True)
        return base64.b85encode(zlib.compress(plain.encode(), 9)).decode()

    @staticmethod
    def from_text(text: str) -> Case:
        """The case of such words."""
        found = _object(json.loads(zlib.decompress(base64.b85decode(text))))
        assert isinstance(found, Case)
        return found


_CLASSES = {kind.__name__: kind for kind in (Case, Table, Way, E, Joined, Select, grammar.Compound)}


def _plain(value: Any) -> Any:
    name = type(value).__name__
    if name in _CLASSES:
        return {"": name} | {key: _plain(part) for key, part in vars(value).items()}
    if isinstance(value, (tuple, list)):
        return {"": type(value).__name__, "of": [_plain(part) for part in value]}
    if isinstance(value, dict):
        return {"": "dict", "of": [[key, _plain(part)] for key, part in value.items()]}
    if isinstance(value, float):
        return {"": "float", "of": value.hex()}
    if isinstance(value, decimal.Decimal):
        return {"": "decimal", "of": str(value)}
    return value


def _object(plain: Any) -> Any:
    if not isinstance(plain, dict):
        return plain
    name = plain[""]
    if name in _CLASSES:
        return _CLASSES[name](**{key: _object(part) for key, part in plain.items() if key})
    if name in ("tuple", "list"):
        parts = [_object(part) for part in plain["of"]]
        return tuple(parts) if name == "tuple" else parts
    if name == "dict":
        return {key: _object(part) for key, part in plain["of"]}
    if name == "float":
        return float.fromhex(plain["of"])
    return decimal.Decimal(plain["of"])


class Judge:
    """Answers cases, and keeps count."""

    def __init__(self, folder: pathlib.Path | None = None):
        self.folder = folder or pathlib.Path(tempfile.gettempdir())
        self.connection = connect()
        self.counts: Counter[str] = Counter()
        self.place: tuple[dict[str, Table], Place] | None = None

    def close(self) -> None:
        """Remove what was written."""
        self.connection.close()
        self._leave()

    def _leave(self) -> None:
        if self.place:
            shutil.rmtree(self.place[1].folder, ignore_errors=True)
            self.place = None

    def at(self, tables: dict[str, Table]) -> Place:
        """A place with these tables."""
        if self.place is None or self.place[0] is not tables:
            self._leave()
            folder = tempfile.mkdtemp(prefix="differential-", dir=self.folder)
            self.place = (tables, Place(pathlib.Path(folder), tables))
        return self.place[1]

    def difference(self, case: Case) -> str | None:
        """What differs in a case, intended differences aside."""
        check: Callable[[Case, Place], str | None] = getattr(self, f"check_{case.check}")
        return check(case, self.at(case.tables))

    # Checks

    def _ours(self, place: Place, statement: Statement, way: Way) -> pa.Table | Exception:
        try:
            return place.ask(statement, way)
        except (tm.TidemillError, MemoryError, ValueError, pa.ArrowException) as error:
            return error

    def _theirs(
        self,
        place: Place,
        statement: Statement,
        way: Way,
        is_wide: bool = False,
        in_order: bool = False,
    ) -> pa.Table | Exception:
        try:
            return place.oracle(statement, way, self.connection, is_wide, in_order)
        except duckdb.Error as error:
            return error

    def check_oracle(self, case: Case, place: Place) -> str | None:
        """Tidemill against DuckDB."""
        ours = self._ours(place, case.statement, case.way)
        theirs = self._theirs(place, case.statement, case.way)
        if isinstance(ours, pa.Table) and "Overflow in" in str(theirs):
            # Which rows are computed with before a condition leaves them out is the plan's choice:
            # what there is of an answer is right if nothing in it is wrong where nothing overflows.
            theirs = self._theirs(place, case.statement, case.way, is_wide=True)
        if isinstance(ours, Exception) and isinstance(theirs, pa.Table):
            # Conditions are met here as they are written; DuckDB meets the one first that costs it
            # least, and may never come to the rows that another fails for.
            theirs = self._theirs(place, case.statement, case.way, in_order=True)
        says = self._compared(case, ours, theirs, "DuckDB", exactly=False)
        if says and isinstance(theirs, pa.Table):
            # It has been seen to answer differently when asked again (a RANGE frame that ends at
            # 0 PRECEDING, after other statements): what it says the second time holds.
            again = self._theirs(place, case.statement, case.way)
            if isinstance(again, pa.Table) and compare.difference(
                compare.rows(theirs), compare.rows(again), ordered=False, exactly=False
            ):
                self.counts["DuckDB has two answers"] += 1
                return self._compared(case, ours, again, "DuckDB", exactly=False)
        return says

    def check_ways(self, case: Case, place: Place) -> str | None:
        """Tidemill against itself."""
        ours = self._ours(place, case.statement, case.way)
        other = self._ours(place, case.statement, case.other)
        return self._compared(case, ours, other, str(case.other), exactly=True)

    def _compared(self, case: Case, ours: Any, theirs: Any, who: str, exactly: bool) -> str | None:
        ordered = case.statement.ordered and case.way.path == "own"
        if isinstance(ours, Exception) and isinstance(theirs, Exception):
            self.counts["both refuse"] += 1
            return None
        if isinstance(ours, Exception):
            says = f"error: {ours} ({who} answers)"
        elif isinstance(theirs, Exception):
            says = f"{who} refuses: {theirs}"
        else:
            difference = compare.difference(
                compare.rows(ours), compare.rows(theirs), ordered, exactly
            )
            if difference is None:
                self.counts["same"] += 1
                return None
            says = f"{difference} ({who})"
        if who == "DuckDB" or isinstance(ours, Exception) or isinstance(theirs, Exception):
            # Of two ways of ours, the one that refuses is to be explained.
            turned = who != "DuckDB" and isinstance(theirs, Exception)
            pair = (theirs, ours) if turned else (ours, theirs)
            name = explained(case.statement, case.way, *pair)
            if name:
                self.counts[f"intended: {name}"] += 1
                return None
        return says

    def check_where(self, case: Case, place: Place) -> str | None:
        """WHERE keeps the rows for which the predicate, as a column, is true."""
        statement = case.statement
        assert isinstance(statement, Select) and statement.where
        kept = self._ours(place, statement, case.way)
        as_column = replace(statement, where=None, items=(statement.items[0], statement.where))
        shown = self._ours(place, as_column, case.way)
        if isinstance(kept, Exception) or isinstance(shown, Exception):
            # Which rows an error is met in depends on the plan.
            self.counts["both refuse" if type(kept) is type(shown) else "one refuses"] += 1
            return None
        wanted = [row[:1] for row in compare.rows(shown) if row[1] is True]
        found = [row[:1] for row in compare.rows(kept)]
        difference = compare.difference(found, wanted, ordered=False, exactly=True)
        self.counts["same"] += difference is None
        return difference and f"{difference} (the predicate as a column)"

    def check_merged(self, case: Case, place: Place) -> str | None:
        """Partial tables of parts, merged, against one run, and that against the query."""
        statement = case.statement
        assert isinstance(statement, Select)
        job = _job(statement)
        options: dict[str, Any] = {"schema": place.schema_for(statement, case.way)}
        source = {name: value for name, value in options.items() if value}
        reading = place.reading(statement, case.way)
        if "skip_lines" in reading:
            source["options"] = {"skip_lines": reading.pop("skip_lines")}
        if "schema" in source:
            source["schema"] = ", ".join(f"{a} {b}" for a, b in source["schema"].items())
        parts = place.folder / "parts"
        shutil.rmtree(parts, ignore_errors=True)
        parts.mkdir()
        urls = [place.path("t0", case.way.format, 3).replace("*", str(cut)) for cut in range(3)]
        # An empty file may have other columns than the rest.
        try:
            names = []
            for number, url in enumerate(urls):
                name = parts / f"{number}.part"
                own = tm.Job(source={"url": url, **source}, **job)
                own.run(partial=name, progress=False, **reading)
                names.append(name)
            tm.merge([names[2], names[0]], partial=parts / "a.part", progress=False)
            merged: Any = tm.merge([parts / "a.part", names[1]], progress=False).to_arrow()
        except (tm.TidemillError, ValueError, pa.ArrowException) as error:
            merged = error
        whole = self._ours(place, statement, case.way)
        return self._compared(case, merged, whole, "one run", exactly=True)

    def check_converted(self, case: Case, place: Place) -> str | None:
        """A table through several formats and back."""
        first = place.path("t0", "parquet", 1)
        table = compare.rows(place.arrow["t0"])
        hops = [case.way.format, case.other.format]
        path = pathlib.Path(first)
        try:
            for number, format in enumerate(hops):
                target = place.folder / f"hop{number}.{format}"
                target.unlink(missing_ok=True)
                told = {}
                if path.suffix in (".csv", ".tsv", ".json"):
                    told["schema"] = place.schema("t0")
                tm.convert(path, target, progress=False, overwrite=True, **told)
                path = target
            told = {}
            if path.suffix in (".csv", ".tsv", ".json"):
                told["schema"] = place.schema("t0")
            back = compare.rows(
                tm.query(f"SELECT * FROM '{path}'", progress=False, **told).to_arrow()
            )
        except (tm.TidemillError, ValueError, pa.ArrowException) as error:
            return f"error: {error}"
        if "json" in hops:
            # It has no such numbers.
            table, back = compare.finite(table), compare.finite(back)
        difference = compare.difference(back, table, ordered=True, exactly=True)
        self.counts["same"] += difference is None
        return difference and f"{difference} (the table; {' to '.join(hops)})"


def _job(statement: Select) -> dict[str, Any]:
    """A job whose table is this statement."""
    alias = statement.sources[0].alias
    items = [
        f"{key.sql(grammar.TIDEMILL)} AS c{at}"
        for at, key in enumerate(statement.items[: statement.keys])
    ]
    tables: dict[str, Any] = {}
    if statement.keys:
        tables["by"] = [f"c{at}" for at in range(statement.keys)]
    for at in range(statement.keys, len(statement.items)):
        item = statement.items[at]
        names = [f"x{at}_{of}" for of in range(len(item.parts))]
        for name, part in zip(names, item.parts, strict=True):
            items.append(f"{part.sql(grammar.TIDEMILL)} AS {name}")
        tables[f"c{at}"] = item.form.format(*names).replace("count(*)", "count()")
    sql = f"SELECT {', '.join(items) or '1 AS one'} FROM source AS {alias}"
    if statement.where:
        sql += f" WHERE {statement.where.sql(grammar.TIDEMILL)}"
    return {"map": {"sql": sql}, "tables": tables}


def cases(seed: int, count: int) -> Iterator[Case]:
    """The cases of a seed: some tables, and statements over them."""
    chance = random.Random(seed)
    tables = {}
    for name in ("t0", "t1"):
        rows = chance.choice((0, 1, 2, 5, 20, 20, 60, 60, 200))
        tables[name] = values.table(chance, rows, nested=chance.random() < 0.25)
    if chance.random() < 0.03:
        tables["t0"] = values.table(chance, 5000, nested=False)
    columns = {name: table.columns for name, table in tables.items()}
    for _ in range(count):
        rows = max(len(table.rows) for table in tables.values())
        words = Grammar(chance, columns, joins_max=2 if rows < 100 else int(rows < 1000))
        pick = chance.random()
        if pick < 0.07:
            statement: Statement = words.mergeable()
            way = random_way(chance, statement, tables)
            if way.format == "object":
                way = replace(way, format="rowfile")
            yield Case("merged", tables, statement, replace(way, cuts=3, path="own", door="python"))
            continue
        statement = words.statement()
        way = random_way(chance, statement, tables)
        if pick < 0.09:
            hops = [name for name in FORMATS if name != "object"]
            if tables["t0"].kinds() & set(values.NESTED):
                hops = [name for name in hops if name not in ("csv", "tsv")]
            if tables["t0"].kinds() & NOT_IN_AVRO:
                hops = [name for name in hops if name != "avro"]
            one, two = chance.choice(hops), chance.choice(hops)
            select = Select((E("calm", "1"),), (Joined("t0", "a"),))
            yield Case("converted", tables, select, Way(one), Way(two))
            continue
        yield Case("oracle", tables, statement, way)
        other = random_way(chance, statement, tables)
        if "csv" in (way.format, other.format) or "tsv" in (way.format, other.format):
            other = replace(way, threads=other.threads, memory=other.memory, path=other.path)
        if other != way:
            yield Case("ways", tables, statement, way, other)
        if (
            isinstance(statement, Select)
            and statement.where
            and statement.kind == "rows"
            and not statement.distinct
            and statement.limit is None
            and not statement.offset
        ):
            yield Case("where", tables, replace(statement, ordered=False), way)


def name_of(case: Case, says: str) -> str | None:
    """The known fault that this looks like."""
    return known(case.statement.sql(grammar.TIDEMILL), f"{case.check}, {case.way}: {says}")


__all__ = ["Case", "Judge", "beside", "cases", "name_of"]
