"""Rowfiles: whatever is written is read, or said to be wrong."""

import collections
import dataclasses
import datetime
import enum
import gc
import http.server
import io
import json
import os
import pathlib
import random
import struct
import subprocess
import sys
import textwrap
import threading
from decimal import Decimal
from typing import Annotated, Literal

import pandas
import polars
import pyarrow as pa
import pytest

import tidemill as tm
from processes import run_script

UTC = datetime.timezone.utc
IDS = {"fields": [{"name": "id", "type": "int64"}]}


def write(path, rows, schema=None, **options):
    with tm.RowFileWriter(path, schema, **options) as writer:
        writer.write(rows)
    return path


def ids(path, count, **options):
    return write(path, ({"id": number} for number in range(count)), IDS, **options)


def read_ids(path, **options):
    return tm.read_rowfile(path, **options).to_arrow()["id"].to_pylist()


# Every type, against what was given


def text(rng):
    return "".join(rng.choice("aZ0 é漢😀\n\0") for _ in range(rng.choice([0, 1, 3, 13, 40])))


def moment(rng, micros):
    return datetime.timedelta(
        days=rng.randint(-700_000, 2_900_000),
        seconds=rng.randint(0, 86_399),
        microseconds=rng.randint(0, 999_999) if micros else 0,
    )


EPOCH = datetime.datetime(1970, 1, 1)
EPOCH_UTC = EPOCH.replace(tzinfo=UTC)


def whole(low, high):
    return lambda rng: rng.choice([low, high, 0, 1, rng.randint(low, high)])


def decimals(precision, scale):
    def make(rng):
        digits = rng.choice([0, 1, 10**precision - 1, rng.randint(0, 10**precision - 1)])
        return Decimal((rng.randint(0, 1), tuple(map(int, str(digits))), -scale))

    return make


def fitting(rng, form):
    return struct.unpack(form, struct.pack(form, rng.choice([0.0, 1.5, rng.uniform(-9, 9)])))[0]


SCALARS = [
    ("boolean", lambda rng: rng.random() < 0.5),
    *((f"int{n}", whole(-(2 ** (n - 1)), 2 ** (n - 1) - 1)) for n in (8, 16, 32, 64)),
    *((f"uint{n}", whole(0, 2**n - 1)) for n in (8, 16, 32, 64)),
    ("float16", lambda rng: fitting(rng, "e")),
    ("float32", lambda rng: fitting(rng, "f")),
    ("float64", lambda rng: rng.choice([0.0, -1e300, float("inf"), rng.gauss(0, 1e6)])),
    ({"decimal": {"bits": 32, "precision": 9, "scale": 2}}, decimals(9, 2)),
    ({"decimal": {"bits": 64, "precision": 18, "scale": 0}}, decimals(18, 0)),
    ({"decimal": {"bits": 128, "precision": 38, "scale": 10}}, decimals(38, 10)),
    ({"decimal": {"bits": 256, "precision": 76, "scale": 30}}, decimals(76, 30)),
    ("string", text),
    ("binary", lambda rng: rng.randbytes(rng.choice([0, 1, 12, 50]))),
    ({"fixed": 5}, lambda rng: rng.randbytes(5)),
    ("date", lambda rng: (EPOCH + moment(rng, False)).date()),
    ("date64", lambda rng: (EPOCH + moment(rng, False)).date()),
    ({"time": "s"}, lambda rng: (EPOCH + moment(rng, False)).time()),
    ({"time": "us"}, lambda rng: (EPOCH + moment(rng, True)).time()),
    ({"timestamp": {"unit": "s"}}, lambda rng: EPOCH + moment(rng, False)),
    ({"timestamp": {"unit": "us"}}, lambda rng: EPOCH + moment(rng, True)),
    ({"timestamp": {"unit": "us", "zone": "UTC"}}, lambda rng: EPOCH_UTC + moment(rng, True)),
    ({"duration": "us"}, lambda rng: moment(rng, True)),
    ({"duration": "s"}, lambda rng: moment(rng, False)),
    ({"enum": {"symbols": ["red", "green", ""]}}, lambda rng: rng.choice(["red", "green", ""])),
]


def a_field(rng, name, depth):
    """Make a field of any type, and what makes its values."""
    kind = rng.random()
    if depth == 0 or kind < 0.6:
        said, make = rng.choice(SCALARS)
    elif kind < 0.75:
        item, make_item = a_field(rng, "item", depth - 1)
        said = {"list": item}

        def make(rng):
            return [make_item(rng) for _ in range(rng.choice([0, 1, 2, 5]))]

    elif kind < 0.87:
        value, make_value = a_field(rng, "value", depth - 1)
        said = {"map": {"key": {"name": "key", "type": "string"}, "value": value}}

        def make(rng):
            return {text(rng): make_value(rng) for _ in range(rng.choice([0, 1, 3]))}

    else:
        fields, make = a_row(rng, rng.randint(1, 3), depth - 1)
        said = {"struct": fields}
    if rng.random() < 0.5:
        return {"name": name, "type": said}, make
    return {
        "name": name,
        "type": said,
        "nullable": True,
    }, lambda rng: None if rng.random() < 0.3 else make(rng)


def a_row(rng, count, depth=2):
    made = [a_field(rng, f"f{number}", depth) for number in range(count)]
    return [field for field, _ in made], lambda rng: {
        field["name"]: make(rng) for field, make in made
    }


@pytest.mark.parametrize("seed", range(60))
def test_rows_of_any_types_are_read_as_they_were_written(seed, tmp_path):
    rng = random.Random(seed)
    fields, make = a_row(rng, rng.randint(1, 7))
    rows = [make(rng) for _ in range(rng.choice([0, 1, 7, 300]))]
    compression = rng.choice(["none", "lz4", "zstd:1", "zstd:7", None])
    path = tmp_path / "rows.rowfile"
    with tm.RowFileWriter(
        path, {"fields": fields}, compression=compression, block_bytes=rng.choice([1, 500, 1 << 20])
    ) as writer:
        left = list(rows)
        while left:
            count = rng.randint(1, 100)
            part, left = left[:count], left[count:]
            if rng.random() < 0.2:
                for row in part:
                    writer.write(row)
            elif rng.random() < 0.2:
                writer.flush()
                writer.write(part)
            else:
                writer.write(iter(part))
        assert writer.num_rows == len(rows)
    result = tm.read_rowfile(path, batch_rows=rng.choice([1, 10, 8192]))
    assert result.num_rows == len(rows)
    assert result.to_pylist() == rows
    # Every other way in and out gives the same.
    table = tm.read_rowfile(path).to_arrow()
    again = write(tmp_path / "again.rowfile", table)
    assert tm.read_rowfile(again).to_arrow() == table
    names = rng.sample([field["name"] for field in fields], rng.randint(0, len(fields)))
    some = [{name: row[name] for name in names} for row in rows]
    if names:
        assert tm.read_rowfile(path, columns=names).to_pylist() == some
    # The header has the schema that was asked for.
    (file,) = tm.read_rowfile(path).files
    assert json.loads(file._raw.schema_json) == {"fields": fields}


def test_arrow_types_come_back_as_a_readers_schema_has_them(tmp_path):
    table = pa.table(
        {
            "text": pa.array(["a", None], pa.large_string()),
            "category": pa.array(["x", "y"]).dictionary_encode(),
            "nanos": pa.array([1, 2], pa.timestamp("ns", "Europe/Berlin")),
            "list": pa.array([[1], None], pa.large_list(pa.int8())),
            "fixed": pa.array([b"ab", None], pa.binary(2)),
            "time": pa.array([5, None], pa.time64("ns")),
            "null": pa.nulls(2),
        }
    )
    path = write(tmp_path / "a.rowfile", table)
    wanted = pa.schema(
        [
            field.with_type(pa.string()) if field.name == "category" else field
            for field in table.schema
        ]
    )
    read = tm.read_rowfile(path, schema=wanted).to_arrow()
    assert read.schema == wanted
    assert read == table.cast(wanted)


@pytest.mark.parametrize(
    "make",
    [
        pa.table,
        pa.record_batch,
        lambda rows: pa.table(rows).to_reader(max_chunksize=1),
        lambda rows: [pa.record_batch(rows).slice(0, 2), pa.record_batch(rows).slice(2)],
        lambda rows: pandas.DataFrame(rows, index=[7, 3, 9]),
        polars.DataFrame,
        lambda rows: tm.query("SELECT who, age FROM t ORDER BY age", t=pa.table(rows)),
    ],
    ids=["table", "batch", "reader", "batches", "pandas", "polars", "result"],
)
def test_whatever_holds_arrow_data_is_written(make, tmp_path):
    rows = {"who": ["ann", "bob", "joe"], "age": [5, 31, 47]}
    path = write(tmp_path / "people.rowfile", make(rows))
    assert tm.read_rowfile(path).to_arrow().to_pydict() == rows
    assert tm.query(f"SELECT sum(age) AS s FROM '{path}'").to_pylist() == [{"s": 83}]
    assert tm.read_rowfile(path).to_polars().to_dict(as_series=False) == rows
    assert tm.read_rowfile(path).to_pandas().to_dict("list") == rows


def test_columns_are_found_by_name_and_types_are_the_files(tmp_path):
    path = tmp_path / "a.rowfile"
    with tm.RowFileWriter(path) as writer:
        writer.write(pa.table({"a": [1], "b": ["x"]}))
        writer.write(pa.table({"b": ["y"], "a": [2]}))
        with pytest.raises(tm.UsageError, match="column `a`: expected int64, found float64"):
            writer.write(pa.table({"a": [2.0], "b": ["x"]}))
        with pytest.raises(tm.UsageError, match="expected the fields a, b, found a, c"):
            writer.write(pa.table({"a": [2], "c": ["x"]}))
    assert tm.read_rowfile(path).to_pylist() == [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]


# Dataclasses


class Colour(enum.Enum):
    RED = "red"
    GREEN = "green"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@dataclasses.dataclass
class Place:
    lat: float
    lon: float
    name: str | None = None


@dataclasses.dataclass
class Event:
    id: int
    at: datetime.datetime
    day: datetime.date
    clock: datetime.time
    took: datetime.timedelta
    price: Annotated[Decimal, (10, 2)]
    colour: Colour
    level: Level | None
    mode: Literal["fast", "slow"]
    tags: list[str]
    pair: tuple[int, ...]
    places: list[Place]
    home: Place | None
    attributes: dict[str, list[float]]
    raw: bytes
    small: Annotated[int, "int8"]
    millis: Annotated[datetime.datetime, {"timestamp": {"unit": "ms"}}]
    is_new: bool = True
    visits: int = 1
    more: list[str] = dataclasses.field(default_factory=list)


def an_event(number):
    return Event(
        id=number,
        at=datetime.datetime(2026, 11, 1, 12, 30, 5, 17, UTC),
        day=datetime.date(2026, 11, 1),
        clock=datetime.time(23, 59, 59, 999_999),
        took=datetime.timedelta(days=-1, microseconds=5),
        price=Decimal("12.30"),
        colour=Colour.GREEN,
        level=None if number % 2 else Level.HIGH,
        mode="slow",
        tags=["a", ""] * (number % 3),
        pair=(1, number),
        places=[Place(1.5, 2.5, "here"), Place(0.0, -1.0)],
        home=None if number % 3 else Place(3.5, 4.5),
        attributes={"x": [1.0, 2.0], "y": []},
        raw=b"\0\xff",
        small=-128,
        millis=datetime.datetime(2026, 1, 1, 0, 0, 0, 5000),
        visits=number,
    )


def test_instances_of_dataclasses_are_read_as_they_were_written(tmp_path):
    events = [an_event(number) for number in range(50)]
    path = tmp_path / "events.rowfile"
    with tm.RowFileWriter(path) as writer:
        writer.write(events[0])
        writer.write(events[1:])
    assert list(tm.read_rowfile(path, schema=Event).rows()) == events
    row = next(tm.read_rowfile(path).rows())
    assert row["colour"] == "green" and row["level"] == "HIGH" and row["places"][1]["name"] is None
    # The same rows as dictionaries, and Arrow data, go into the same columns.
    again = tmp_path / "again.rowfile"
    with tm.RowFileWriter(again, schema=Event) as writer:
        writer.write(dataclasses.asdict(event) for event in events[:20])
        writer.write(tm.read_rowfile(path, blocks=[0], schema=Event).to_arrow().slice(20))
    assert list(tm.read_rowfile(again, schema=Event).rows()) == events


def test_what_a_row_lacks_is_its_default_or_null(tmp_path):
    @dataclasses.dataclass
    class Row:
        id: int
        name: str = "nobody"
        day: datetime.date = datetime.date(2026, 11, 1)
        at: datetime.datetime = datetime.datetime(2026, 11, 1, tzinfo=UTC)
        price: Annotated[Decimal, (9, 3)] = Decimal("1.5")
        colour: Colour = Colour.RED
        raw: bytes = b"\xff"
        place: Place | None = None
        took: Annotated[datetime.timedelta, {"duration": "ns"}] = datetime.timedelta(seconds=1)
        items: list[int] = dataclasses.field(default_factory=list)

    path = write(tmp_path / "a.rowfile", [{"id": 7}], Row)
    wanted = {
        "id": 7,
        "name": "nobody",
        "day": datetime.date(2026, 11, 1),
        "at": datetime.datetime(2026, 11, 1, tzinfo=UTC),
        "price": Decimal("1.500"),
        "colour": "red",
        "raw": b"\xff",
        "place": None,
        "took": datetime.timedelta(seconds=1),
        "items": [],
    }
    assert tm.read_rowfile(path).to_pylist() == [wanted]
    # And so it is where a file has no such field.
    old = write(tmp_path / "old.rowfile", [{"id": 7}], IDS)
    assert tm.read_rowfile(old, schema=Row).to_pylist() == [wanted]
    assert list(tm.read_rowfile(old, schema=Row).rows()) == [Row(7)]


def test_classes_that_no_schema_can_say_are_refused():
    def refused(annotation, match):
        kind = dataclasses.make_dataclass("Row", [("x", annotation)])
        with pytest.raises(tm.UsageError, match=match):
            tm.RowFileWriter("unused.rowfile", kind)

    refused(Decimal, r"`Row\.x`: a Decimal needs to know its digits")
    refused(int | str, r"`Row\.x`: .* is of several types")
    refused(object, r"`Row\.x`: .* is no type of a rowfile")
    refused(list, r"is no type of a rowfile")
    refused(Annotated[int, "int99"], "the schema: .*int99")
    with pytest.raises(tm.UsageError, match="must be a schema of Arrow's, a dataclass or a dict"):
        tm.RowFileWriter("unused.rowfile", schema=7)
    with pytest.raises(tm.UsageError, match="what the columns are is not known"):
        write("unused.rowfile", {"id": 1})
    assert not pathlib.Path("unused.rowfile").exists()


# Values that do not fit

MISFITS = [
    ("int8", 128),
    ("int64", 2**63),
    ("int64", True),
    ("int64", 1.0),
    ("int64", "1"),
    ("uint64", -1),
    ("uint64", 2**64),
    ("boolean", 1),
    ("float64", "1.5"),
    ("float64", 2**53 + 1),
    ("float64", Decimal("1.5")),
    ("float32", 1e39),
    ("float16", 1e6),
    ("string", b"x"),
    ("string", 7),
    ("string", "\ud800"),
    ("binary", "x"),
    ({"fixed": 3}, b"ab"),
    ({"decimal": {"bits": 128, "precision": 4, "scale": 2}}, Decimal("1.234")),
    ({"decimal": {"bits": 128, "precision": 4, "scale": 2}}, Decimal("100")),
    ({"decimal": {"bits": 128, "precision": 4, "scale": 2}}, Decimal("NaN")),
    ({"decimal": {"bits": 128, "precision": 4, "scale": 2}}, 1.5),
    ("date", datetime.datetime(2026, 11, 1)),
    ("date", "2026-11-01"),
    ({"timestamp": {"unit": "us"}}, datetime.datetime(2026, 11, 1, tzinfo=UTC)),
    ({"timestamp": {"unit": "us", "zone": "UTC"}}, datetime.datetime(2026, 11, 1)),
    ({"timestamp": {"unit": "ms"}}, datetime.datetime(2026, 11, 1, 0, 0, 0, 1)),
    ({"timestamp": {"unit": "ns"}}, datetime.datetime(2300, 1, 1)),
    ({"timestamp": {"unit": "us"}}, datetime.date(2026, 11, 1)),
    ({"timestamp": {"unit": "us"}}, pandas.NaT),
    ({"timestamp": {"unit": "us"}}, pandas.Timestamp(1)),
    ({"time": "s"}, datetime.time(1, 2, 3, 4)),
    ({"time": "us"}, datetime.time(1, tzinfo=UTC)),
    ({"duration": "ms"}, datetime.timedelta(microseconds=1)),
    ({"enum": {"symbols": ["a"]}}, "b"),
    ({"enum": {"symbols": ["RED"]}}, Colour.RED),
    ({"list": {"name": "item", "type": "int8"}}, [1, 300]),
    ({"list": {"name": "item", "type": "int8"}}, [1, None]),
    ({"list": {"name": "item", "type": "string"}}, "abc"),
    ({"list": {"name": "item", "type": "int8"}}, {1, 2}),
    (
        {
            "map": {
                "key": {"name": "key", "type": "string"},
                "value": {"name": "value", "type": "int8"},
            }
        },
        {1: 1},
    ),
    ({"struct": [{"name": "a", "type": "int8"}]}, {"a": 1, "b": 2}),
    ({"struct": [{"name": "a", "type": "int8"}]}, {}),
    ({"struct": [{"name": "a", "type": "int8"}]}, 7),
    ("string", None),
]


@pytest.mark.parametrize(("kind", "value"), MISFITS, ids=lambda value: str(value)[:40])
def test_a_value_that_does_not_fit_is_refused_by_row_and_field_and_the_others_stay(
    kind, value, tmp_path
):
    fields = [
        {"name": "before", "type": {"list": {"name": "item", "type": "string"}}},
        {"name": "bad", "type": kind, "nullable": value is not None},
        {"name": "after", "type": "int64"},
    ]
    good = {"before": ["x"], "bad": None, "after": 1}
    if value is None:
        good["bad"] = "fine"
    path = tmp_path / "a.rowfile"
    with tm.RowFileWriter(path, {"fields": fields}) as writer:
        writer.write([good, good])
        with pytest.raises(tm.UsageError, match=r"row 3, field `bad[.a-z]*`: ") as raised:
            writer.write([good, {"before": ["y"], "bad": value, "after": 2}])
        assert "expected" in str(raised.value) or "field" in str(raised.value)
        writer.write(good)
    assert tm.read_rowfile(path).to_pylist() == [good] * 4


def test_rows_are_named_that_are_none(tmp_path):
    path = tmp_path / "a.rowfile"
    with tm.RowFileWriter(path, IDS) as writer:
        with pytest.raises(tm.UsageError, match=r"unknown field `ID`; did you mean `id`\?"):
            writer.write({"ID": 1})
        with pytest.raises(tm.UsageError, match="row 0: expected a dict or an instance"):
            writer.write([7])
        with pytest.raises(tm.UsageError, match="a str is no rows"):
            writer.write("id")
        with pytest.raises(tm.UsageError, match="a int is no rows"):
            writer.write(7)
        with pytest.raises(tm.UsageError, match="row 0, field `id`: the row has no such field"):
            writer.write({})
        writer.write(collections.ChainMap({"id": 5}))
        with pytest.raises(tm.UsageError, match="null in row 1 of the batch"):
            writer.write(pa.table({"id": [1, None]}))
    assert read_ids(path) == [5]


def test_other_libraries_values_are_taken(tmp_path):
    numpy = pytest.importorskip("numpy")
    fields = [
        {"name": "i", "type": "int32"},
        {"name": "f", "type": "float64"},
        {"name": "b", "type": "boolean"},
        {"name": "l", "type": {"list": {"name": "item", "type": "float32"}}},
        {"name": "t", "type": {"timestamp": {"unit": "ns"}}},
    ]
    row = {
        "i": numpy.int64(7),
        "f": numpy.float32(1.5),
        "b": numpy.bool_(True),
        "l": numpy.array([1.5, 2.5]),
        "t": pandas.Timestamp(1_000_000_001),
    }
    path = write(tmp_path / "a.rowfile", row, {"fields": fields})
    (read,) = tm.read_rowfile(path).to_arrow().to_pylist()
    assert (read["i"], read["f"], read["b"], read["l"]) == (7, 1.5, True, [1.5, 2.5])
    assert read["t"].value == 1_000_000_001


# Whole or not at all


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_an_exception_leaves_nothing(tmp_path):
    path = tmp_path / "a.rowfile"
    with pytest.raises(RuntimeError), tm.RowFileWriter(path, IDS) as writer:
        writer.write([{"id": 1}])
        writer.flush()
        assert not path.exists() and len(names(tmp_path)) == 1
        raise RuntimeError
    assert names(tmp_path) == []
    with pytest.raises(tm.UsageError, match="is closed"):
        writer.write({"id": 1})
    with pytest.raises(tm.UsageError, match="would have no columns: nothing was written"):
        tm.RowFileWriter(path).close()
    assert names(tmp_path) == []


def test_a_file_appears_when_it_is_closed_and_others_are_not_replaced(tmp_path):
    path = tmp_path / "a.rowfile"
    writer = tm.RowFileWriter(path, IDS)
    writer.write({"id": 1})
    ids(path, 3)
    with pytest.raises(tm.OutputExistsError) as raised:
        writer.close()
    assert raised.value.filename == str(path)
    writer.close()
    assert names(tmp_path) == ["a.rowfile"] and read_ids(path) == [0, 1, 2]
    with pytest.raises(tm.OutputExistsError, match="overwrite=True replaces it"):
        tm.RowFileWriter(path, IDS)
    ids(path, 5, overwrite=True)
    assert read_ids(path) == [0, 1, 2, 3, 4]
    with pytest.raises(tm.NotFoundError):
        tm.RowFileWriter(tmp_path / "none" / "a.rowfile", IDS)


def test_a_writer_that_is_forgotten_leaves_nothing_and_says_so(tmp_path):
    writer = tm.RowFileWriter(tmp_path / "a.rowfile", IDS)
    writer.write({"id": 1})
    with pytest.warns(ResourceWarning, match="was never closed"):
        del writer
        gc.collect()
    assert names(tmp_path) == []


def test_what_is_appended_is_seen_when_the_writer_is_closed(tmp_path):
    path = ids(tmp_path / "a.rowfile", 3, compression="lz4", metadata={"a": "b"})
    with tm.RowFileWriter(path, append=True) as writer:
        assert writer.num_rows == 3 and dict(writer.schema) == {"id": "BIGINT"}
        writer.write([{"id": 3}])
        writer.flush()
        assert read_ids(path) == [0, 1, 2]
        (file,) = tm.read_rowfile(path).files
        assert file.unfinished_bytes > 0
        with pytest.raises(tm.InputOutputError, match="somebody else is writing it"):
            tm.RowFileWriter(path, append=True)
    result = tm.read_rowfile(path)
    (file,) = result.files
    assert file.metadata == {"a": "b"} and file.compression == "lz4" and file.unfinished_bytes == 0
    assert result.to_arrow()["id"].to_pylist() == [0, 1, 2, 3]
    before = path.read_bytes()
    with pytest.raises(ZeroDivisionError), tm.RowFileWriter(path, append=True) as writer:
        writer.write({"id": n // (n - 5)} for n in range(10))
    assert path.read_bytes() == before
    with pytest.raises(tm.UsageError, match="was written with another schema"):
        tm.RowFileWriter(path, {"fields": [{"name": "id", "type": "string"}]}, append=True)
    with pytest.raises(tm.UsageError, match="leave `metadata` out"):
        tm.RowFileWriter(path, append=True, metadata={})
    with pytest.raises(tm.UsageError, match="compressed with `lz4`"):
        tm.RowFileWriter(path, append=True, compression="none")
    assert path.read_bytes() == before
    with tm.RowFileWriter(path, IDS, append=True, compression="lz4") as writer:
        writer.write({"id": 4})
    assert read_ids(path) == [0, 1, 2, 3, 4]
    # Where there is none, it is made.
    ids(tmp_path / "b.rowfile", 2, append=True)
    assert read_ids(tmp_path / "b.rowfile") == [0, 1]
    (tmp_path / "c.rowfile").write_text("id\n1\n")
    with pytest.raises(tm.CorruptFileError, match="is not a rowfile"):
        tm.RowFileWriter(tmp_path / "c.rowfile", append=True)


def test_of_a_writer_that_is_killed_the_whole_blocks_are_recovered(tmp_path):
    script = """
        import os, signal, tidemill as tm
        schema = {"fields": [{"name": "id", "type": "int64"}]}
        writer = tm.RowFileWriter("a.rowfile", schema)
        for block in range(3):
            writer.write({"id": block * 10 + n} for n in range(10))
            writer.flush()
        writer.write({"id": 99})
        os.kill(os.getpid(), signal.SIGKILL)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], cwd=tmp_path, check=False
    )
    assert done.returncode == -9
    (left,) = names(tmp_path)
    assert left.startswith(".a.rowfile.") and left.endswith(".unfinished")
    with pytest.raises(tm.CorruptFileError, match="was cut off: the last whole block is block 2"):
        tm.read_rowfile(tmp_path / left)
    result = tm.read_rowfile(tmp_path / left, recover=True)
    assert result.num_rows == 30
    assert result.to_arrow()["id"].to_pylist() == list(range(30))
    assert not result.coverage["complete"]
    (said,) = result.coverage["salvaged"]
    assert said["path"].endswith(left) and said["blocks"] == 3 and said["reason"]
    # One that is killed while it appends changes nothing.
    path = ids(tmp_path / "b.rowfile", 5)
    again = script.replace('("a.rowfile", schema)', '("b.rowfile", append=True)')
    subprocess.run([sys.executable, "-c", textwrap.dedent(again)], cwd=tmp_path, check=False)
    assert read_ids(path) == [0, 1, 2, 3, 4]
    with tm.RowFileWriter(path, append=True) as writer:
        writer.write({"id": 5})
    assert read_ids(path) == [0, 1, 2, 3, 4, 5]


# Damage


def blocks_of_ten(path, blocks, **options):
    with tm.RowFileWriter(path, IDS, **options) as writer:
        for block in range(blocks):
            writer.write({"id": block * 10 + number} for number in range(10))
            writer.flush()
    return path


def test_a_file_that_was_cut_off_is_refused_or_read_up_to_its_last_whole_block(tmp_path):
    path = blocks_of_ten(tmp_path / "a.rowfile", 3)
    whole = path.read_bytes()
    starts = [block.offset for block in tm.read_rowfile(path).files[0].blocks]
    ends = [*starts[1:], starts[-1] + tm.read_rowfile(path).files[0].blocks[-1].bytes]
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(tm.CorruptFileError) as raised:
            tm.read_rowfile(path)
        if length < starts[0]:
            with pytest.raises(tm.CorruptFileError):
                tm.read_rowfile(path, recover=True)
            continue
        blocks = sum(end <= length for end in ends)
        assert "was cut off" in str(raised.value)
        assert "recover=True reads " in str(raised.value) and f"{blocks} whole block" in str(
            raised.value
        )
        result = tm.read_rowfile(path, recover=True)
        assert result.to_pylist() == [{"id": number} for number in range(10 * blocks)]
        assert not result.coverage["complete"]


def test_a_changed_byte_is_found_wherever_it_is_and_other_blocks_are_recovered(tmp_path):
    path = blocks_of_ten(tmp_path / "a.rowfile", 3)
    whole = path.read_bytes()
    blocks = tm.read_rowfile(path).files[0].blocks
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
        with pytest.raises(tm.CorruptFileError):
            tm.read_rowfile(path).to_pylist()
        if at < blocks[0].offset:
            continue
        hit = [number for number, it in enumerate(blocks) if it.offset <= at < it.offset + it.bytes]
        wanted = [{"id": n} for n in range(30) if n // 10 not in hit]
        result = tm.read_rowfile(path, recover=True)
        assert result.to_pylist() == wanted, at
        assert not result.coverage["complete"] and result.files[0].damages
        assert result.coverage["salvaged"][0]["offset"] <= at


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return (crc ^ 0xFFFFFFFF).to_bytes(4, "little")


def test_a_block_that_is_whole_and_cannot_be_decoded_is_left_out(tmp_path):
    path = tmp_path / "a.rowfile"
    schema = {"fields": [{"name": "id", "type": "int64"}, {"name": "name", "type": "string"}]}
    with tm.RowFileWriter(path, schema, compression="none") as writer:
        for block in range(3):
            writer.write({"id": n, "name": f"name-{n}"} for n in range(block * 10, block * 10 + 10))
            writer.flush()
    block = tm.read_rowfile(path).files[0].blocks[1]
    whole = path.read_bytes()
    section = bytearray(whole[block.offset : block.offset + block.bytes])
    section[section.index(b"name-15")] = 0xFF
    section[40:44] = crc32c(section[48:])
    section[44:48] = crc32c(section[:44])
    path.write_bytes(whole[: block.offset] + section + whole[block.offset + block.bytes :])
    with pytest.raises(tm.TidemillError, match="row 15, column `name`"):
        tm.read_rowfile(path).to_pylist()
    wanted = [n for n in range(30) if n // 10 != 1]
    sql = f"SELECT id FROM '{path}'"
    # All of it is left out, whatever is read.
    for result in (
        tm.read_rowfile(path, recover=True),
        tm.read_rowfile(path, columns=["id"], recover=True),
        tm.query(sql, recover=True),
    ):
        assert [row["id"] for row in result.to_pylist()] == wanted
        (said,) = result.coverage["salvaged"]
        assert (said["offset"], said["blocks"]) == (block.offset, 2)
        assert said["reason"] == "row 15, column `name`: it is not valid UTF-8"
        assert not result.coverage["complete"]


def test_damage_in_the_middle_is_raised_by_whoever_reads_that_far(tmp_path):
    path = blocks_of_ten(tmp_path / "a.rowfile", 30)
    whole = bytearray(path.read_bytes())
    block = tm.read_rowfile(path).files[0].blocks[20]
    whole[block.offset + block.bytes - 1] ^= 1
    path.write_bytes(whole)
    result = tm.read_rowfile(path, threads=1)
    seen = []
    with pytest.raises(tm.CorruptFileError, match=f"block 20 at byte {block.offset}"):
        seen.extend(row["id"] for batch in result for row in batch.to_pylist())
    assert seen == list(range(200))
    with pytest.raises(tm.CorruptFileError, match="block 20"):
        tm.read_rowfile(path).to_arrow()
    assert tm.read_rowfile(path, blocks=[19, 21]).to_arrow().num_rows == 20
    empty = tmp_path / "empty.rowfile"
    empty.write_bytes(b"")
    with pytest.raises(tm.CorruptFileError, match="is not a rowfile"):
        tm.read_rowfile(empty)


# What is read, and as what


def test_a_schema_reads_what_was_written_before_it(tmp_path):
    old = pa.table({"id": pa.array([1, 2], pa.int32()), "user": ["a", "b"], "left": [1.5, 2.5]})
    path = write(tmp_path / "a.rowfile", old)
    schema = pa.schema(
        [
            pa.field("name", pa.string(), metadata={"rowfile.aliases": '["user"]'}),
            pa.field("id", pa.int64(), nullable=False),
            pa.field("country", pa.string(), False, {"rowfile.default": '"none"'}),
            pa.field("note", pa.string()),
        ]
    )
    rows = tm.read_rowfile(path, schema=schema).to_pylist()
    assert rows == [
        {"name": "a", "id": 1, "country": "none", "note": None},
        {"name": "b", "id": 2, "country": "none", "note": None},
    ]
    some = tm.read_rowfile(path, schema=schema, columns=["country", "id"]).to_arrow()
    assert some.schema == pa.schema([schema.field("country"), schema.field("id")])


def test_every_conflict_of_two_schemas_is_listed(tmp_path):
    path = write(tmp_path / "a.rowfile", pa.table({"id": [1], "user": ["a"], "ms": [1.5]}))
    schema = pa.schema(
        [
            pa.field("id", pa.int32()),
            pa.field("user", pa.list_(pa.string())),
            pa.field("ms", pa.float64()),
            pa.field("required", pa.string(), nullable=False),
        ]
    )
    with pytest.raises(tm.UsageError) as raised:
        tm.read_rowfile(path, schema=schema)
    said = str(raised.value)
    assert "a.rowfile" in said
    for column in ("id", "user", "required"):
        assert f"column `{column}`: " in said
    assert "column `ms`" not in said
    with pytest.raises(tm.UsageError, match=r"unknown column `usr`; did you mean `user`\?"):
        tm.read_rowfile(path, columns=["usr"])
    with pytest.raises(tm.UsageError, match="must be a list"):
        tm.read_rowfile(path, columns="id")


def test_a_null_where_the_schema_has_none_is_named_by_row(tmp_path):
    path = write(tmp_path / "a.rowfile", pa.table({"id": [1, 2, None]}))
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    with pytest.raises(tm.UsageError, match="row 2, column `id`"):
        tm.read_rowfile(path, schema=schema).to_pylist()


def test_files_of_two_shapes_are_one_table_under_one_schema(tmp_path):
    nested = pa.table({"input": [{"user": "a", "n": 1}]})
    flat = pa.table({"user": ["b"], "n": [2]})
    paths = [write(tmp_path / "1.rowfile", nested), write(tmp_path / "2.rowfile", flat)]
    schema = pa.schema(
        [
            pa.field("user", pa.string(), metadata={"rowfile.aliases": '["input.user"]'}),
            pa.field("n", pa.int64(), metadata={"rowfile.aliases": '["input.n"]'}),
        ]
    )
    wanted = [{"user": "a", "n": 1}, {"user": "b", "n": 2}]
    assert tm.read_rowfile(paths, schema=schema).to_pylist() == wanted
    assert tm.read_rowfile(str(tmp_path / "*.rowfile"), schema=schema).to_pylist() == wanted
    assert tm.read_rowfile(tmp_path, schema=schema).to_pylist() == wanted
    with pytest.raises(tm.UsageError, match=r"2\.rowfile.*\n.*column `input`") as raised:
        tm.read_rowfile(
            paths, schema=pa.schema([pa.field("input", nested.schema.field(0).type, False)])
        )
    assert "no such field" in str(raised.value)


@pytest.mark.parametrize("seed", range(10))
def test_ranges_of_bytes_that_follow_one_another_have_every_row_once(seed, tmp_path):
    rng = random.Random(seed)
    path = blocks_of_ten(tmp_path / "a.rowfile", rng.randint(0, 8), compression="none")
    size = path.stat().st_size
    cuts = sorted(rng.sample(range(size + 1), rng.randint(0, 6)))
    read = []
    for start, end in zip([0, *cuts], [*cuts, size], strict=True):
        result = tm.read_rowfile(path, byte_range=(start, end), threads=rng.randint(1, 3))
        part = result.to_pylist()
        assert result.num_rows == len(part)
        read += [row["id"] for row in part]
    assert read == read_ids(path)


def test_blocks_are_chosen_by_number(tmp_path):
    path = blocks_of_ten(tmp_path / "a.rowfile", 5)
    assert read_ids(path, blocks=[3, 1]) == [*range(30, 40), *range(10, 20)]
    assert read_ids(path, blocks=[]) == []
    with pytest.raises(tm.UsageError, match="has no block 5: it has 5"):
        tm.read_rowfile(path, blocks=[5])
    with pytest.raises(tm.UsageError, match="blocks are chosen of one file, and these are 2"):
        tm.read_rowfile([path, path], blocks=[0])
    with pytest.raises(tm.UsageError, match="`batch_rows` must be at least 1"):
        tm.read_rowfile(path, batch_rows=0)
    batches = [len(batch) for batch in tm.read_rowfile(path, batch_rows=4)]
    assert batches == [4, 4, 2] * 5


def test_file_objects_are_read_where_they_are(tmp_path):
    path = blocks_of_ten(tmp_path / "a.rowfile", 5)
    data = io.BytesIO(path.read_bytes())
    assert read_ids(data) == list(range(50))
    assert read_ids(data, columns=["id"]) == list(range(50))
    with path.open("rb") as file:
        assert read_ids([file, data]) == [*range(50), *range(50)]
        result = tm.read_rowfile(file)
        assert result.files[0].path == str(path)
    with path.open("r", encoding="latin-1") as file:
        with pytest.raises(tm.InputOutputError, match="open it in binary mode"):
            tm.read_rowfile(file)
    with pytest.raises(tm.UsageError, match="a dict is no file to read"):
        tm.read_rowfile({})
    with pytest.raises(tm.NotFoundError):
        tm.read_rowfile(tmp_path / "none.rowfile")
    with pytest.raises(tm.UsageError, match="no files to read"):
        tm.read_rowfile([])


class Ranges(http.server.BaseHTTPRequestHandler):
    """A server that answers requests for ranges."""

    data = b""
    asked = 0

    def do_GET(self):
        start, _, end = self.headers["Range"].removeprefix("bytes=").partition("-")
        start, end = int(start), min(int(end or len(self.data)) + 1, len(self.data))
        type(self).asked += end - start
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {start}-{end - 1}/{len(self.data)}")
        self.send_header("Content-Length", str(end - start))
        self.send_header("ETag", '"1"')
        self.end_headers()
        self.wfile.write(self.data[start:end])

    def log_message(self, *_):
        pass


def test_a_file_elsewhere_is_read_in_parts(tmp_path):
    with tm.RowFileWriter(tmp_path / "a.rowfile", compression="none") as writer:
        writer.write(pa.table({"id": range(1_000_000)}))
    Ranges.data, Ranges.asked = (tmp_path / "a.rowfile").read_bytes(), 0
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Ranges)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        url = f"http://127.0.0.1:{server.server_port}/a.rowfile"
        last = tm.read_rowfile(url).files[0].blocks[-1]
        rows = tm.read_rowfile(url, blocks=[len(tm.read_rowfile(url).files[0].blocks) - 1])
        assert rows.to_arrow()["id"].to_pylist() == list(range(last.first_row, 1_000_000))
        assert read_ids(url) == list(range(1_000_000))
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize("seed", range(5))
def test_statistics_hold_what_is_in_each_block(seed, tmp_path):
    rng = random.Random(seed)
    rows = [
        {
            "n": rng.choice([None, rng.randint(-(2**63), 2**63 - 1)]),
            "s": rng.choice([None, text(rng)]),
            "user": {"age": rng.randint(0, 99)},
            "colour": "red",
        }
        for _ in range(200)
    ]
    schema = {
        "fields": [
            {"name": "n", "type": "int64", "nullable": True},
            {"name": "s", "type": "string", "nullable": True},
            {"name": "user", "type": {"struct": [{"name": "age", "type": "uint8"}]}},
            {"name": "colour", "type": {"enum": {"symbols": ["red"]}}},
        ]
    }
    path = write(tmp_path / "a.rowfile", rows, schema, block_bytes=200)
    (file,) = tm.read_rowfile(path).files
    assert len(file.blocks) > 3

    def values(row, column):
        return row["user"]["age"] if column == "user.age" else row[column]

    for column in ("n", "s", "user.age"):
        statistics = file.statistics(column).to_pylist()
        for block, known in zip(file.blocks, statistics, strict=True):
            of_block = rows[block.first_row : block.first_row + block.rows]
            found = [values(row, column) for row in of_block]
            assert known["nulls"] == found.count(None)
            here = [value for value in found if value is not None]
            assert all(known["min"] <= value <= known["max"] for value in here), column
    assert file.statistics("colour") is None
    with pytest.raises(tm.UsageError, match=r"unknown column `user\.aged`; did you mean"):
        file.statistics("user.aged")


def test_compressions_are_those_that_there_are(tmp_path):
    sizes = {}
    for compression in ("none", "lz4", "zstd", "zstd:19"):
        path = ids(tmp_path / f"{len(sizes)}.rowfile", 10_000, compression=compression)
        sizes[compression] = path.stat().st_size
        (file,) = tm.read_rowfile(path).files
        assert file.compression == {"zstd": "zstd:1"}.get(compression, compression)
    assert sizes["zstd:19"] <= sizes["zstd"] < sizes["none"] and sizes["lz4"] < sizes["none"]
    for wrong in ("gzip", "zstd:0", "zstd:23", "lz4:1", ""):
        with pytest.raises(tm.UsageError, match="unknown compression"):
            tm.RowFileWriter(tmp_path / "x.rowfile", IDS, compression=wrong)
    with pytest.raises(tm.UsageError, match="is not on this machine"):
        tm.RowFileWriter("s3://bucket/a.rowfile", IDS)
    with pytest.raises(tm.UsageError, match="give one of them"):
        tm.RowFileWriter(tmp_path / "x.rowfile", IDS, append=True, overwrite=True)


# Ctrl-C, threads, forks


def test_an_interrupt_ends_reading_and_writing(tmp_path):
    done = run_script(
        """
        PIPE
        import io, itertools, pathlib
        folder = pathlib.Path("rows")
        folder.mkdir()
        schema = {"fields": [{"name": "id", "type": "int64"}]}

        class Stuck(io.BytesIO):
            def read(self, count=-1):
                if self.tell() > 4096:
                    threading.Event().wait()
                return super().read(count)

        def attempt(what, when=None):
            try:
                interrupt(when)
                what()
            except KeyboardInterrupt:
                print("interrupted")

        written = 0

        def rows():
            global written
            for written in itertools.count():
                yield {"id": written}

        def endless():
            with tm.RowFileWriter(folder / "a.rowfile", schema) as writer:
                writer.write(rows())

        attempt(endless, lambda: written > 1000)
        print(list(folder.iterdir()))
        path = folder / "b.rowfile"
        with tm.RowFileWriter(path, schema, compression="none", block_bytes=1000) as writer:
            writer.write({"id": n * n * n} for n in range(100_000))
        data = path.read_bytes()
        print(len(data) > 100_000)
        attempt(lambda: tm.read_rowfile(Stuck(data), recover=True))
        attempt(lambda: tm.read_rowfile(Stuck(data)).to_pylist())
        os._exit(0)
        """,
        cwd=tmp_path,
        timeout=600,
    )
    assert done.stdout == "interrupted\n[]\nTrue\ninterrupted\ninterrupted\n", done.stderr


def test_a_writer_is_used_by_one_thread_at_a_time(tmp_path):
    path = tmp_path / "a.rowfile"
    with tm.RowFileWriter(path, IDS) as writer:

        def rows():
            yield {"id": 1}
            with pytest.raises(tm.UsageError, match="one thread at a time may use a writer"):
                writer.write({"id": 2})
            yield {"id": 3}

        writer.write(rows())
    assert read_ids(path) == [1, 3]


def test_a_fork_leaves_the_file_to_its_parent(tmp_path):
    path = tmp_path / "a.rowfile"
    writer = tm.RowFileWriter(path, IDS)
    writer.write({"id": 1})
    child = os.fork()
    if child == 0:
        status = 1
        try:
            writer.write({"id": 2})
        except tm.UsageError as error:
            status = 0 if "belongs to another process" in str(error) else 2
        del writer
        gc.collect()
        os._exit(status)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    writer.write({"id": 3})
    writer.close()
    assert read_ids(path) == [1, 3]


def test_many_readers_see_whole_appends_while_one_appends(tmp_path):
    path = ids(tmp_path / "a.rowfile", 0)
    wrong = []
    ended = threading.Event()

    def look():
        while not ended.is_set():
            found = read_ids(path)
            if len(found) % 10 or found != list(range(len(found))):
                wrong.append(found)

    threads = [threading.Thread(target=look) for _ in range(2)]
    for thread in threads:
        thread.start()
    for block in range(20):
        with tm.RowFileWriter(path, append=True) as writer:
            writer.write({"id": block * 10 + number} for number in range(10))
    ended.set()
    for thread in threads:
        thread.join()
    assert wrong == [] and read_ids(path) == list(range(200))


def test_a_files_looks(tmp_path):
    path = ids(tmp_path / "a.rowfile", 3)
    result = tm.read_rowfile(path)
    assert repr(result).startswith("    id\nBIGINT\n------\n     0\n")
    result.show()
    (file,) = result.files
    assert repr(file) == "RowFile(3 rows of id in 1 block, zstd:1)"
    assert str(file).startswith(f"{path}: RowFile(3 rows") and str(file).endswith(" B")
    assert "<table>" in result._repr_html_()
    assert result.coverage["complete"] is True and result.coverage["salvaged"] == []


def test_queries_and_jobs_recover_too(tmp_path):
    path = blocks_of_ten(tmp_path / "a.rowfile", 3)
    path.write_bytes(path.read_bytes()[:-70])
    sql = f"SELECT count(*) AS n FROM '{path}'"
    with pytest.raises(tm.CorruptFileError, match="recover=True"):
        tm.query(sql)
    result = tm.query(sql, recover=True)
    assert result.to_pylist() == [{"n": 30}]
    assert not result.coverage["complete"] and len(result.coverage["salvaged"]) == 1
    assert len(tm.head(path, recover=True).to_pylist()) == 10
    assert tm.schema(path, recover=True).names == ["id"]
    job = tm.Job(source={"url": path, "recover": True}, tables={"n": "count()"})
    assert job.run().to_pylist() == [{"n": 30}]
