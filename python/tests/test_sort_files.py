"""Rows of files by their columns."""

import random

import pytest

import tidemill as tm


def test_rows_come_out_in_order_whatever_the_memory(tmp_path):
    drawn = random.Random(5)
    rows = [
        (drawn.randrange(50), drawn.choice([None, drawn.random()]), f"row {n}")
        for n in range(5_000)
    ]
    lines = [f"{a},{'' if b is None else repr(b)},{c}" for a, b, c in rows]
    source = tmp_path / "in.csv"
    source.write_text("\n".join(["a,b,c", *lines]) + "\n")
    expected = sorted(rows, key=lambda row: (-row[0], row[1] is None, row[1] or 0, row[2]))
    (tmp_path / "spill").mkdir()
    for memory in ("64MiB", "1GiB"):
        written = tm.sort_files(
            source,
            tmp_path / "out.parquet",
            by=["a:desc", "b:nulls-last", "c"],
            memory=memory,
            spill_dir=[tmp_path, tmp_path / "spill"],
            overwrite=True,
        )
        assert written.rows == len(rows)
        found = tm.query(f"SELECT * FROM '{tmp_path}/out.parquet'").to_pylist()
        assert [(row["a"], row["b"], row["c"]) for row in found] == expected


def test_several_files_are_one_table(tmp_path):
    (tmp_path / "x.csv").write_text("k\n3\n1\n")
    (tmp_path / "y.csv").write_text("k\n2\n")
    tm.sort_files([tmp_path / "x.csv", tmp_path / "y.csv"], tmp_path / "z.csv", by="k")
    assert (tmp_path / "z.csv").read_text() == "k\n1\n2\n3\n"


def test_the_first_rows_are_those_of_a_stable_sort(tmp_path):
    lines = [f"{n % 3},{n}" for n in range(20_000)]
    (tmp_path / "x.csv").write_text("\n".join(["k,n", *lines]) + "\n")
    expected = sorted(range(20_000), key=lambda n: n % 3)
    for limit in (1, 7_000, 20_000, 30_000, None):
        out = tmp_path / "out.jsonl"
        written = tm.sort_files(tmp_path / "x.csv", out, by="k", limit=limit, overwrite=True)
        assert written.rows == len(expected[:limit])
        found = tm.query(f"SELECT n FROM '{out}'").to_pylist()
        assert [row["n"] for row in found] == expected[:limit]


def test_hints_about_words_are_in_words(tmp_path):
    path = tmp_path / "x.txt"
    path.write_text("b\na\n")
    (tmp_path / "out.txt").write_text("")
    with pytest.raises(tm.UsageError, match="exists\nhint: `--overwrite` replaces it"):
        tm.sort("-o", tmp_path / "out.txt", path)
    tm.sort("--overwrite", "-o", tmp_path / "out.txt", path)
    assert (tmp_path / "out.txt").read_text() == "a\nb\n"
    path.write_text("x" * 30_000_000)
    with pytest.raises(tm.TidemillError, match="hint: give more memory with `-S`"):
        tm.sort("-S", "16M", path)


def test_mistakes_are_told(tmp_path):
    source = tmp_path / "x.csv"
    source.write_text("k\n3\n1\n")
    with pytest.raises(tm.UsageError, match="no file is named"):
        tm.sort_files([], tmp_path / "z.csv", by="k")
    with pytest.raises(tm.UsageError, match="`down` behind"):
        tm.sort_files(source, tmp_path / "z.csv", by="k:down")
    with pytest.raises(tm.UsageError, match="unknown column `q`"):
        tm.sort_files(source, tmp_path / "z.csv", by="q")
    dotted = tmp_path / "dotted.csv"
    dotted.write_text("c.x\n3\n1\n")
    with pytest.raises(tm.UsageError, match=r"""hint: .* in double quotes: by='"c.x"'"""):
        tm.sort_files(dotted, tmp_path / "z.csv", by="c.x")
    with pytest.raises(tm.UsageError, match="limit=0 is no number of rows"):
        tm.sort_files(source, tmp_path / "z.csv", by="k", limit=0)
    assert not (tmp_path / "z.csv").exists()
    with pytest.raises(tm.TidemillError):
        tm.sort_files(source, source, by="k")
    assert source.read_text() == "k\n3\n1\n"
