"""``convert``, ``check``, ``salvage``, ``check_schema``, and promotion."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tidemill as tm


def events(folder: Path) -> Path:
    path = folder / "events.json"
    lines = (
        {"n": n, "input": {"user": f"u{n % 7}", "ms": n / 2}, "day": "2013-01-01"}
        for n in range(5000)
    )
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_a_conversion_gives_what_a_query_gives(tmp_path: Path) -> None:
    path = events(tmp_path)
    for suffix in ("rowfile", "parquet", "json"):
        output = tmp_path / f"out.{suffix}"
        written = tm.convert(path, output, select="n, input", where="n % 2 = 1")
        assert (written.files, written.rows) == (1, 2500)
        assert written.coverage["complete"]
        rows = tm.query(f"SELECT * FROM '{output}'").to_pylist()
        assert rows[1] == {"n": 3, "input": {"user": "u3", "ms": 1.5}}
        assert len(rows) == 2500
    with pytest.raises(tm.OutputExistsError):
        tm.convert(path, tmp_path / "out.json")
    with pytest.raises(tm.UsageError, match="one record at a time"):
        tm.convert(path, tmp_path / "x.json", select="count()")


def test_records_are_promoted_wherever_they_are_read(tmp_path: Path) -> None:
    path = events(tmp_path)
    tm.convert(path, tmp_path / "new.rowfile", promote="input")
    tm.convert(path, tmp_path / "old.rowfile")
    names = ["n", "user", "ms", "day"]
    assert tm.schema(path, promote="input").names == names
    assert tm.schema(tmp_path / "new.rowfile").names == names
    table = f"'{tmp_path}/*.rowfile'"
    sql = f'SELECT "user", count() AS n FROM {table} GROUP BY "user" ORDER BY n DESC, 1'
    rows = tm.query(sql, promote=["input"]).to_pylist()
    assert rows[0] == {"user": "u0", "n": 1430}
    job = tm.Job(
        source={"url": [tmp_path / "old.rowfile", tmp_path / "new.rowfile"], "promote": "input"},
        tables={"by": "user", "ms": "sum(ms)"},
    )
    sums = {row["user"]: row["ms"] for row in job.run().to_pylist()}
    assert sums["u1"] == 2 * sum(n / 2 for n in range(5000) if n % 7 == 1)
    with pytest.raises(tm.UsageError, match="in_user"):
        tm.read_text(path, columns=["user"], promote="input=in_")
    assert len(tm.read_text(path, columns=["in_user"], promote="input=in_").to_pylist()) == 5000
    assert tm.head(path, 1, promote="input=in_").to_pylist()[0]["in_user"] == "u0"


def test_a_folder_has_a_file_for_each_input(tmp_path: Path) -> None:
    (tmp_path / "in" / "deep").mkdir(parents=True)
    for name in ("a", "deep/b"):
        (tmp_path / "in" / f"{name}.csv").write_text("n\n1\n2\n")
    output = f"{tmp_path}/out/"
    written = tm.convert(tmp_path / "in", output, format="rowfile")
    assert (written.files, written.rows) == (2, 4)
    assert tm.head(tmp_path / "out" / "deep" / "b.rowfile").to_pylist() == [{"n": 1}, {"n": 2}]
    (tmp_path / "in" / "bad.csv").write_text("n,m\n1\n")
    with pytest.raises(tm.TidemillError, match="1 of 3 files could not be converted"):
        tm.convert(tmp_path / "in", output, format="rowfile", skip_existing=True)
    with pytest.raises(tm.UsageError, match="does not tell the format"):
        tm.convert(tmp_path / "in", output)


def test_damage_is_found_and_the_rest_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "events.rowfile"
    tm.query("SELECT unnest(range(300000)) AS n", output=path)
    [found] = tm.check(path)
    assert found.whole
    assert found.rows == 300000
    assert found.blocks > 1
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    [broken] = tm.check([path])
    assert not broken.whole
    assert len(broken.damages) == 1
    kept = tm.salvage(path, tmp_path / "kept.rowfile")
    assert kept.damages == broken.damages
    assert kept.rows == broken.rows < 300000
    assert tm.query(f"SELECT count() AS n FROM '{tmp_path}/kept.rowfile'").to_pylist() == [
        {"n": kept.rows}
    ]
    with pytest.raises(tm.OutputExistsError):
        tm.salvage(path, tmp_path / "kept.rowfile")
    with pytest.raises(tm.CorruptFileError, match="not a rowfile"):
        tm.check(events(tmp_path))


def test_schemas_are_compared(tmp_path: Path) -> None:
    old, new = tmp_path / "old.csv", tmp_path / "new.csv"
    old.write_text("n,word\n1,x\n")
    new.write_text("n,word\n1.5,x\n")
    assert tm.check_schema(old, new) == []
    [(column, reason)] = tm.check_schema(new, old)
    assert column == "n"
    assert reason

    avro = {"type": "record", "name": "E", "fields": [{"name": "n", "type": "double"}]}
    (tmp_path / "new.avsc").write_text(json.dumps(avro))
    assert tm.check_schema(old, tmp_path / "new.avsc") == []
    avro["fields"].append({"name": "more", "type": "string"})
    (tmp_path / "new.avsc").write_text(json.dumps(avro))
    assert [column for column, _ in tm.check_schema(old, tmp_path / "new.avsc")] == ["more"]


def test_json_that_is_no_record_is_a_malformed_record(tmp_path: Path) -> None:
    path = tmp_path / "torn.csv"
    path.write_text('n,input\n1,"{""user"": ""ann""}"\n2,"{"\n')
    sql = f"SELECT n, \"user\" FROM '{path}'"
    with pytest.raises(tm.BadRecordError, match="column `input`: ") as caught:
        tm.query(sql, promote="input").to_pylist()
    [record] = caught.value.records
    assert (record["line"], record["row"], record["offset"]) == (3, None, 32)
    result = tm.query(sql, promote="input", max_bad=1)
    assert result.to_pylist() == [{"n": 1, "user": "ann"}]
    assert result.coverage["rows"] == {"done": 1, "rejected": 1}
    tm.convert(path, tmp_path / "torn.parquet")
    with pytest.raises(tm.BadRecordError, match=r"torn.parquet: row 2, ") as caught:
        tm.query(sql.replace("torn.csv", "torn.parquet"), promote="input").to_pylist()
    assert (caught.value.records[0]["line"], caught.value.records[0]["row"]) == (None, 2)
