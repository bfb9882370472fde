"""Arrow IPC, Avro and compressed text, written here and read elsewhere, and the other way round."""

import bz2
import datetime
import decimal
import gzip
import io
import lzma
import uuid

import fastavro
import polars
import pyarrow as pa
import pyarrow.feather
import pyarrow.ipc
import pyarrow.parquet
import pytest

import tidemill as tm

ROWS = [
    {
        "n": n,
        "word": None if n % 3 == 1 else f"word {n} … größer",
        "x": n / 8,
        "day": datetime.date(2026, 11, 1 + n % 28),
        "at": datetime.datetime(2026, 11, 21, 12, n % 60, 1, 123456),
        "price": decimal.Decimal(n * 100 - 300).scaleb(-2),
        "tags": None if n % 5 == 2 else [f"t{n % 2}", None],
        "device": {"os": "ios" if n % 2 else None, "size": n},
        "raw": bytes([n % 256, 0, 255]),
        "good": n % 2 == 0,
    }
    for n in range(3000)
]

SCHEMA = pa.schema(
    {
        "n": pa.int64(),
        "word": pa.string(),
        "x": pa.float64(),
        "day": pa.date32(),
        "at": pa.timestamp("us"),
        "price": pa.decimal128(12, 2),
        "tags": pa.list_(pa.string()),
        "device": pa.struct({"os": pa.string(), "size": pa.int64()}),
        "raw": pa.binary(),
        "good": pa.bool_(),
    }
)


@pytest.fixture
def table():
    return pa.Table.from_pylist(ROWS, schema=SCHEMA)


def read(path):
    return tm.query(f"SELECT * FROM '{path}'").to_pylist()


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_arrow_of_other_writers_is_read(tmp_path, table, compression):
    options = pyarrow.ipc.IpcWriteOptions(compression=compression)
    kinds = pa.array(["red", "green"] * 1500).dictionary_encode()
    whole = table.append_column("kind", kinds)
    for name, writer in [
        ("a.arrow", pyarrow.ipc.new_file),
        ("a.arrows", pyarrow.ipc.new_stream),
    ]:
        with writer(tmp_path / name, whole.schema, options=options) as file:
            file.write_table(whole, max_chunksize=700)
    pyarrow.feather.write_feather(whole, tmp_path / "a.feather", compression or "uncompressed")
    expected = [row | {"kind": ["red", "green"][row["n"] % 2]} for row in ROWS]
    for name in ("a.arrow", "a.arrows", "a.feather"):
        assert read(tmp_path / name) == expected, name
        some = tm.query(f"SELECT kind, device FROM '{tmp_path / name}' WHERE n = 2999")
        assert some.to_pylist() == [{"kind": "green", "device": {"os": "ios", "size": 2999}}]
    polars.from_arrow(table).write_ipc(
        tmp_path / "p.arrow", compression=compression or "uncompressed"
    )
    assert read(tmp_path / "p.arrow") == ROWS


@pytest.mark.parametrize("compression", ["none", "lz4", "zstd:5"])
def test_other_readers_take_our_arrow(tmp_path, table, compression):
    for name in ("a.arrow", "a.feather", "a.arrows"):
        tm.query("SELECT * FROM t", t=table, output=tmp_path / name, compression=compression)
    assert pyarrow.ipc.open_file(tmp_path / "a.arrow").read_all().to_pylist() == ROWS
    assert pyarrow.feather.read_table(tmp_path / "a.feather").to_pylist() == ROWS
    assert pyarrow.ipc.open_stream(tmp_path / "a.arrows").read_all().to_pylist() == ROWS
    assert polars.read_ipc(tmp_path / "a.arrow")["n"].to_list() == list(range(3000))


@pytest.mark.parametrize("codec", ["null", "deflate", "snappy", "zstandard", "bzip2", "xz"])
def test_avro_of_another_writer_is_read(tmp_path, codec):
    record = {
        "type": "record",
        "name": "Device",
        "fields": [{"name": "os", "type": ["null", "string"]}, {"name": "size", "type": "long"}],
    }
    cents = {"logicalType": "decimal", "precision": 12, "scale": 2}
    tenths = cents | {"precision": 10, "scale": 1}
    levels = ["low", "quite_high_indeed"]
    schema = {"type": "record", "name": "Row", "namespace": "a.b", "fields": [
        {"name": "n", "type": "long"},
        {"name": "word", "type": ["string", "null"]},
        {"name": "x", "type": "double"},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
        {"name": "price", "type": {"type": "bytes", **cents}},
        {"name": "tags", "type": ["null", {"type": "array", "items": ["null", "string"]}]},
        {"name": "device", "type": record},
        {"name": "raw", "type": {"type": "fixed", "name": "Raw", "size": 3}},
        {"name": "good", "type": "boolean"},
        {"name": "level", "type": {"type": "enum", "name": "Level", "symbols": levels}},
        {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "many", "type": {"type": "map", "values": "int"}},
        {"name": "either", "type": ["null", "int", "string", "Device"]},
        {"name": "time", "type": {"type": "int", "logicalType": "time-millis"}},
        {"name": "utc", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "fixed_price", "type": {"type": "fixed", "name": "P", "size": 5, **tenths}},
    ]}  # fmt: skip
    own = uuid.UUID(int=2**100 + 7)
    utc = datetime.datetime(2026, 11, 21, 1, 2, 3, 4000, tzinfo=datetime.timezone.utc)
    either = [None, 17, "text", {"os": None, "size": 3}]
    rows = [
        row
        | {
            "level": levels[n % 2],
            "id": own,
            "many": {"a": n, "b": -n} if n % 7 else {},
            "either": either[n % 4],
            "time": datetime.time(1, 2, 3, 4000),
            "utc": utc,
            "fixed_price": decimal.Decimal(-n) / 10,
        }
        for n, row in enumerate(ROWS)
    ]
    with open(tmp_path / "a.avro", "wb") as file:
        fastavro.writer(file, schema, rows, codec=codec, sync_interval=5000)
    branches = [
        None,
        {"int": 17, "string": None, "Device": None},
        {"int": None, "string": "text", "Device": None},
        {"int": None, "string": None, "Device": {"os": None, "size": 3}},
    ]
    expected = [
        row | {"id": str(own), "either": branches[n % 4], "many": dict(row["many"])}
        for n, row in enumerate(rows)
    ]
    found = read(tmp_path / "a.avro")
    for row in found:
        row["many"] = dict(row["many"])
    assert found == expected
    some = tm.query(
        f"SELECT max(n) AS n, sum(either.int) AS s FROM '{tmp_path / 'a.avro'}' WHERE level = 'low'"
    )
    assert some.to_pylist() == [{"n": 2998, "s": None}]


@pytest.mark.parametrize(
    "compression", [None, "none", "deflate:9", "snappy", "zstd:3", "bzip2", "xz:1"]
)
def test_another_reader_takes_our_avro(tmp_path, table, compression):
    output = tmp_path / "a.avro"
    tm.query("SELECT * FROM t", t=table, output=output, compression=compression)
    with open(output, "rb") as file:
        reader = fastavro.reader(file)
        assert reader.writer_schema["fields"][0]["type"] == ["null", "long"]
        assert list(reader) == ROWS
    again = tmp_path / "b.avro"
    tm.query("SELECT * FROM t", t=table, output=again, compression=compression)
    assert again.read_bytes() == output.read_bytes()


@pytest.mark.parametrize("codec", ["NONE", "SNAPPY", "GZIP", "BROTLI", "LZ4_RAW", "ZSTD"])
def test_parquet_has_the_codec_that_was_asked_for(tmp_path, table, codec):
    output = tmp_path / "a.parquet"
    name = {"LZ4_RAW": "lz4"}.get(codec, codec.lower())
    tm.query("SELECT * FROM t", t=table, output=output, compression=name)
    column = pyarrow.parquet.ParquetFile(output).metadata.row_group(0).column(0)
    assert column.compression in (codec, {"NONE": "UNCOMPRESSED", "LZ4_RAW": "LZ4"}.get(codec))
    assert pyarrow.parquet.read_table(output).to_pylist() == ROWS


@pytest.mark.parametrize(
    ("suffix", "opened"), [("gz", gzip.open), ("bz2", bz2.open), ("xz", lzma.open)]
)
def test_compressed_text_is_what_python_reads(tmp_path, table, suffix, opened):
    sql = "SELECT n, word FROM t"
    tm.query(sql, t=table, output=tmp_path / "plain.csv")
    tm.query(sql, t=table, output=tmp_path / f"a.csv.{suffix}")
    with opened(tmp_path / f"a.csv.{suffix}", "rb") as file:
        assert file.read() == (tmp_path / "plain.csv").read_bytes()
    # Little memory for many files: some have several members. (What repeats itself is what bzip2
    # is slowest with, by far.)
    times = 200 if suffix == "gz" else 2
    written = tm.query(
        f"SELECT n % 50 AS k, repeat(word, {times}) AS w FROM t, unnest(range(0, 40)) AS u(i)",
        t=table,
        output=tmp_path / f"many/{{k}}.json.{suffix}",
        memory="64M",
    )
    assert (written.files, written.rows) == (50, 120_000)
    with opened(tmp_path / f"many/7.json.{suffix}", "rb") as file:
        assert len(io.BytesIO(file.read()).readlines()) == 2400


def test_what_cannot_be_is_refused_with_what_can(tmp_path, table):
    with pytest.raises(tm.UsageError, match=r"csv cannot be compressed by `lz4`\n.*none, gzip"):
        tm.query("SELECT n FROM t", t=table, output=tmp_path / "a.csv", compression="lz4")
    with pytest.raises(tm.UsageError, match="`compression` means nothing without `output`"):
        tm.query("SELECT n FROM t", t=table, compression="gzip")
    with pytest.raises(tm.UsageError, match=r"column `count\(\)` has a name"):
        tm.query("SELECT count() FROM t", t=table, output=tmp_path / "a.avro")
    job = tm.Job(
        source={"url": tmp_path / "t.parquet"},
        sink={"url": tmp_path / "out.json.zst", "compression": "zstd:7"},
    )
    pyarrow.parquet.write_table(table, tmp_path / "t.parquet")
    assert job.run().rows == 3000
    assert tm.query(f"SELECT count() AS n FROM '{tmp_path}/out.json.zst'").to_pylist() == [
        {"n": 3000}
    ]


def test_damaged_files_are_corrupt(tmp_path, table):
    for name in ("a.arrow", "a.arrows", "a.avro"):
        tm.query("SELECT * FROM t", t=table, output=tmp_path / name)
        whole = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(whole[: len(whole) // 2])
        with pytest.raises(tm.CorruptFileError, match=f"{name}` is damaged"):
            read(tmp_path / name)


def test_values_of_csv_and_of_folders_come_back_as_they_were(tmp_path):
    texts = ["007", "7", "+7", "0.50", "1e5", "12345e67", "nan", "", None, "NA", "a,b", '"']
    table = pa.table({"k": texts, "v": range(len(texts))})
    path = tmp_path / "k.csv"
    tm.query("SELECT * FROM t", t=table, output=path)
    assert tm.query(f"SELECT * FROM '{path}' ORDER BY v").to_pylist() == table.to_pylist()
    keyed = [text for text in texts if text]
    table = pa.table({"k": keyed, "v": range(len(keyed))})
    tm.query("SELECT * FROM t", t=table, output=tmp_path / "o" / "k={k}" / "x.csv")
    found = tm.query(f"SELECT k, v FROM '{tmp_path / 'o'}' ORDER BY v").to_pylist()
    assert found == table.to_pylist()


def test_numbers_of_csv_come_back_as_they_were(tmp_path):
    floats = [0.0, -0.0, 1e300, 5e-324, 1.7976931348623157e308, 123456789012345680.0, 0.1, 1e16]
    floats += [1e15, 16777216.5, 123456789.125, float("nan"), float("inf"), float("-inf"), None]
    ints = [0, -1, 2**63 - 1, -(2**63), 2**53 + 1, 7, 10, 100, -100, 1, 2, 3, 4, 5, None]
    table = pa.table({"f": floats, "g": pa.array(floats, pa.float32()), "i": ints})
    path = tmp_path / "n.csv"
    tm.query("SELECT * FROM t", t=table, output=path)
    found = pa.table(tm.query(f"SELECT * FROM '{path}'"))
    assert found.schema.types == [pa.float64(), pa.float64(), pa.int64()]
    assert str(found["f"].to_pylist()) == str(floats)
    assert found["i"].to_pylist() == ints
