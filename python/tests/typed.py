"""What a type checker must know of the package; it is checked, and not run."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

from typing_extensions import assert_type

import tidemill as tm


def results(sql: str, path: pathlib.Path) -> None:
    assert_type(tm.query(sql), tm.Result)
    assert_type(tm.query(sql, null=["NA"], schema={"id": "BIGINT"}, progress=False), tm.Result)
    assert_type(tm.query(sql, output=path), tm.Written)
    assert_type(tm.query(sql, output="out.csv", overwrite=True, memory="1G"), tm.Written)
    assert_type(tm.query(sql, memory="1G", spill_dir=["/mnt/a"]), tm.Result)
    assert_type(tm.read_text(path, columns=["a"], where="a > 1"), tm.Result)
    assert_type(tm.head(path, rows=3, header=False), tm.Result)
    assert_type(tm.merge([path, "b.part"]), tm.Result)
    assert_type(tm.merge([path], output="x.csv"), tm.Written)
    assert_type(tm.merge("a.part", partial="x.part"), tm.Written)
    assert_type(tm.explain(sql).steps, dict[str, str])
    result = tm.query(sql, schema=tm.schema(path))
    assert_type(result.to_pylist(), list[dict[str, Any]])
    assert_type(result.fetchone(), tuple[Any, ...] | None)
    assert_type(result.fetchmany(2), list[tuple[Any, ...]])
    assert_type(result.fetchall(), list[tuple[Any, ...]])
    assert_type(next(iter(result)).to_tuples(), list[tuple[Any, ...]])
    assert_type(iter(result), Iterator[tm.Batch])
    assert_type(dict(result.schema), dict[str, str])
    assert_type(result.coverage["splits"]["left_out"], int)
    with result as same:
        assert_type(same, tm.Result)
    assert_type(tm.query(sql, params={"day": "2026-11-20"}, replacement_scans=False), tm.Result)
    assert_type(tm.query(sql, params=[1, None], output=path), tm.Written)
    assert_type(tm.query(sql, rows=[{"a": 1}], columns={"a": [1]}), tm.Result)
    assert_type(tm.query(sql, deadline=timedelta(seconds=7), drop="10%", seed=1), tm.Result)
    assert_type(tm.query(sql, sample=0.1, no_intervals=True, output=path), tm.Written)
    assert_type(tm.run("job.toml", deadline="7s", output=path), tm.Written)
    tm.Job(source={"url": path}, turbo={"deadline": 7, "error": "2%", "as_seen": True})
    coverage = result.coverage
    if "sampled" in coverage:
        assert_type(coverage["sampled"]["given_up"]["bytes"], int)
        assert_type(coverage["sampled"]["unseen_share"], float | None)


def sketches(data: bytes, space: tm.IdSpace) -> None:
    hll = tm.Hll(log2m=14, explicit="auto", sparse=512, dialect="java")
    assert_type(hll | tm.Hll.from_bytes(data, max_log2m=31), tm.Hll)
    assert_type(hll.cardinality("ertl"), float)
    assert_type(hll.intersection(hll, uncertain=True), tm.Estimate)
    a, b = space.set([1, 2]), tm.IdSet([1], space=space)
    assert_type(a | b & a - b ^ a, tm.IdSet)
    assert_type(list(a), list[int])
    assert_type(tm.IdSpace.open("users.ids").set(b, unknown="skip"), tm.IdSet)


async def coroutines(sql: str) -> None:
    assert_type(await tm.query(sql), tm.Result)
    async for batch in tm.query(sql):
        assert_type(batch, tm.Batch)
    async with tm.query(sql) as result:
        assert_type(result, tm.Result)
    async with tm.query(sql, progressive=True) as answers:
        async for answer in answers:
            assert_type(answer, tm.Result)
    async with tm.open("a.csv") as file:
        assert_type(file, tm.File)
    async with tm.RowFileWriter("a.rowfile") as writer:
        assert_type(writer, tm.RowFileWriter)


def rowfiles(path: pathlib.Path, columns: dict[str, Any]) -> None:
    with tm.RowFileWriter(path, columns, compression="lz4", metadata={"a": "b"}) as writer:
        assert_type(writer, tm.RowFileWriter)
        writer.write([{"id": 1}])
        assert_type(writer.schema, tm.Schema | None)
        assert_type(writer.num_rows, int)
    with path.open("rb") as file:
        tm.read_rowfile([path, "b.rowfile", file], columns=["id"], byte_range=(0, 100))
    result = tm.read_rowfile(path, schema=tm.schema(path), blocks=[0], recover=True)
    assert_type(result, tm.RowFileResult)
    assert_type(result.files[0].metadata, dict[str, str])
    assert_type(result.files[0].blocks[0].first_row, int)
    assert_type(result.files[0].statistics("id"), tm.Batch | None)


def jobs(path: pathlib.Path, dynamic: Mapping[str, Any]) -> None:
    job = tm.Job(
        name="visitors",
        source=[{"name": "clicks", "url": path}, {"name": "users", "url": "users.csv"}],
        map={"sql": "SELECT day, id FROM clicks JOIN users USING (id)"},
        tables={"by": ["day"], "users": "unique(id)"},
        sink={"url": "out/{day}.csv", "overwrite": True},
        run={"memory": "1G", "spill_dir": path, "threads": 2},
    )
    assert_type(tm.Job(**dynamic), tm.Job)
    assert_type(job.run(), tm.Result | tm.Written)
    assert_type(job.run(output="x.csv"), tm.Written)
    assert_type(tm.run(job, partial="x.part"), tm.Written)
    assert_type(tm.run({"source": {"url": "x"}}, set={"name": "x"}), tm.Result | tm.Written)
    assert_type(job.explain().sink, str | None)
    rows = [{"day": 1, "id": 2}]
    assert_type(job.run(source=rows), tm.Result | tm.Written)
    assert_type(tm.run(job, sources={"users": tm.query("SELECT 1 AS id")}, output="x"), tm.Written)
    tm.Job(source=tm.query("SELECT 1 AS id"))
    assert_type(tm.jobs(), list[dict[str, Any]])
    assert_type(tm.jobs("top", since="7d"), dict[str, Any])


def mistakes(path: pathlib.Path) -> None:
    tm.query("SELECT 1", nul="NA")  # type: ignore[arg-type]  # pyright: ignore
    tm.query("SELECT 1", overwrite=True)  # type: ignore[call-overload]  # pyright: ignore
    tm.Job(sauce={"url": path})  # type: ignore[arg-type]  # pyright: ignore
    tm.Job(source={"ulr": path})  # type: ignore[arg-type]  # pyright: ignore
    tm.Job(source={"url": path, "options": {"nul": "NA"}})  # type: ignore[arg-type]  # pyright: ignore
    tm.Job(run={"threads": "two"})  # type: ignore[arg-type]  # pyright: ignore
    tm.jobs("tpo")  # type: ignore[call-overload]  # pyright: ignore
    tm.read_text(path, columns=3)  # type: ignore[arg-type]  # pyright: ignore
