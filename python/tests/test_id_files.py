"""Sets of ids in files."""

import gzip
import io
import os
import random
import struct
import sys
import threading

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidemill as tm

OPERATIONS = {
    "union": lambda a, b: a | b,
    "intersect": lambda a, b: a & b,
    "diff": lambda a, b: a - b,
    "xor": lambda a, b: a ^ b,
}


def stored(folder, name, ids, kind, signed):
    """A file of ids of a kind."""
    path = folder / f"{name}.{kind}"
    if kind == "txt":
        path.write_text("".join(f"{id}\n" for id in ids))
    elif kind == "raw":
        path.write_bytes(struct.pack(f"<{len(ids)}{'q' if signed else 'Q'}", *ids))
    elif kind == "parquet":
        pq.write_table(pa.table({"id": pa.array(ids, pa.int64() if signed else pa.uint64())}), path)
    else:
        path.write_text("id\n" + "".join(f"{id}\n" for id in ids))
    return path


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("kinds", [("txt", "raw"), ("raw", "parquet"), ("csv", "txt")])
def test_operations_are_those_of_sets(tmp_path, kinds, signed):
    chance = random.Random(f"{kinds} {signed}")
    least = -(2**63) if signed else 0
    few = [chance.randrange(50) for _ in range(3)] + [least, least + 1, 2**63 - 1]
    if not signed:
        few.append(2**64 - 1)
    left = [*few, *(chance.randrange(400) for _ in range(1000))]
    right = [chance.randrange(400) for _ in range(500)] + few[1:]
    a, b = (
        stored(tmp_path, name, ids, kind, signed)
        for name, ids, kind in zip("ab", (left, right), kinds, strict=True)
    )
    for operation, of in OPERATIONS.items():
        expected = sorted(of(set(left), set(right)))
        found = tm.ids(operation, a, b, signed=signed)
        assert found.tolist() == expected
        assert np.frombuffer(found, dtype="i8" if signed else "u8").tolist() == expected
        for kind in ("txt", "raw", "parquet"):
            out = tmp_path / f"{operation}.{kind}"
            assert tm.ids(operation, a, b, signed=signed, output=out) == len(expected)
            assert tm.ids("union", out, signed=signed, sorted=True).tolist() == expected
    assert tm.ids("count", a, b, signed=signed) == len({*left, *right})


def test_ids_of_a_text_are_of_one_type_however_great(tmp_path):
    few = [*range(60_000), 2**63, 2**64 - 1]
    lines = "".join(f"{id},{'x' * 60}\n" for id in few)
    (tmp_path / "a.csv").write_text("id,text\n" + lines)
    assert tm.ids("union", tmp_path / "a.csv", column="id").tolist() == few
    with pytest.raises(tm.CorruptBytesError, match="found `9223372036854775808`") as raised:
        tm.ids("union", tmp_path / "a.csv", column="id", signed=True)
    hint = "hint: signed ids go up to 9223372036854775807: leave out signed=True"
    assert hint in str(raised.value)
    (tmp_path / "b.csv").write_text("id\n-1\n")
    with pytest.raises(tm.CorruptBytesError, match=r"found `-1`\nhint: .*signed=True"):
        tm.ids("union", tmp_path / "b.csv")


@pytest.mark.parametrize("name", ["a.txt.gz", "a.raw.zst", "a.txt.bz2", "a.u64.xz"])
def test_files_are_compressed_as_their_names_say(tmp_path, name):
    ids = [3, 2**63, 2**64 - 1]
    (tmp_path / "a.txt").write_text("".join(f"{id}\n" for id in ids))
    assert tm.ids("union", tmp_path / "a.txt", output=tmp_path / name) == 3
    assert tm.ids("union", tmp_path / name).tolist() == ids
    if name.endswith(".gz"):
        assert gzip.decompress((tmp_path / name).read_bytes()).split() == [b"%d" % id for id in ids]


def test_a_column_where_no_set_is_a_table_is_refused(tmp_path):
    (tmp_path / "a.txt").write_text("1\n")
    with pytest.raises(tm.UsageError, match="column=`user` means nothing: no set is a table"):
        tm.ids("count", tmp_path / "a.txt", column="user")


def test_sets_beyond_memory(tmp_path):
    chance = np.random.default_rng(7)
    sets = [chance.integers(0, 2**62, 4_000_000, dtype="u8") for _ in range(2)]
    for name, ids in zip("ab", sets, strict=True):
        ids.tofile(tmp_path / f"{name}.u64")
    out = tmp_path / "out.raw"
    counted = tm.ids("union", tmp_path / "a.u64", tmp_path / "b.u64", output=out, memory="64MiB")
    expected = np.union1d(*sets)
    assert counted == len(expected)
    assert np.array_equal(np.fromfile(out, dtype="u8"), expected)
    folders = [tmp_path / "one", tmp_path / "other"]
    for folder in folders:
        folder.mkdir()
    for spill_dir in (folders, folders[0], str(folders[1])):
        found = tm.ids(
            "count", tmp_path / "a.u64", tmp_path / "b.u64", memory="64MiB", spill_dir=spill_dir
        )
        assert found == counted
        assert [list(folder.iterdir()) for folder in folders] == [[], []]


def test_a_folder_to_spill_to_that_does_not_exist_is_a_mistake(tmp_path):
    (tmp_path / "a.txt").write_text("3\n")
    for missing in (tmp_path / "missing", [tmp_path, str(tmp_path / "missing")]):
        says = r"cannot spill to `.*missing`: there is no such folder\nhint: .*: spill_dir=DIR$"
        with pytest.raises(tm.UsageError, match=says):
            tm.ids("union", tmp_path / "a.txt", spill_dir=missing)
        with pytest.raises(tm.UsageError, match=says):
            tm.query(f"SELECT * FROM '{tmp_path}/a.txt'", spill_dir=missing)


@pytest.mark.parametrize("asked", [True, None, False])
def test_progress_is_shown_while_ids_are_waited_for(asked, tmp_path, monkeypatch):
    shown = threading.Event()
    pipe = tmp_path / "ids.txt"
    os.mkfifo(pipe)

    class Screen(io.StringIO):
        def write(self, text):
            if " ids, " in text:
                shown.set()
            return super().write(text)

    def feed():
        with pipe.open("w") as file:
            file.write("3\n")
            file.flush()
            # The set has no end before something was shown.
            if asked:
                shown.wait()

    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    feeder = threading.Thread(target=feed)
    feeder.start()
    assert tm.ids("union", pipe, sorted=True, progress=asked).tolist() == [3]
    feeder.join()
    # What was shown is taken away again; nothing is shown unasked where there is no terminal.
    assert screen.getvalue().endswith("\r\x1b[K") == bool(asked)
    assert bool(screen.getvalue()) == bool(asked)


def test_mistakes_are_told(tmp_path):
    text = tmp_path / "a.txt"
    text.write_text("3\nx\n")
    table = tmp_path / "t.csv"
    table.write_text("a,b,c\n1,x,-1\n")
    with pytest.raises(tm.CorruptBytesError, match=r"a.txt`, line 2: `x` is no id"):
        tm.ids("union", text)
    with pytest.raises(tm.UsageError, match="has 3 columns: `a`, `b`, `c`\nhint: column=NAME says"):
        tm.ids("union", table)
    with pytest.raises(tm.UsageError, match=r"column `b` of .* is TEXT, and ids are whole numbers"):
        tm.ids("union", table, column="b")
    with pytest.raises(tm.CorruptBytesError, match=r"`c`: .* found `-1`(.|\n)*signed=True for"):
        tm.ids("union", table, column="c")
    assert tm.ids("union", table, column="c", signed=True).tolist() == [-1]
    with pytest.raises(tm.UsageError, match="no operation `unite`"):
        tm.ids("unite", table)
    with pytest.raises(tm.NotFoundError):
        tm.ids("union", tmp_path / "nothing.txt")
    with pytest.raises(tm.UsageError, match="no sets of ids"):
        tm.ids("union")
    with pytest.raises(tm.UsageError, match=r"is a list of files(.|\n)*hint: .*\*files"):
        tm.ids("union", [str(text)])
    for ids in (pa.array([1]), np.array([1]), [1], {1}, 5, None):
        with pytest.raises(tm.UsageError, match=r"is of type \w+\nhint: tm.IdSpace"):
            tm.ids("union", text, ids)
    with pytest.raises(tm.UsageError, match=r"has no column `d`(.|\n)*its columns are `a`, `b`"):
        tm.ids("union", table, column="d")
    with pytest.raises(tm.UsageError, match="read from files of this machine"):
        tm.ids("union", "s3://bucket/a.raw")
    text.write_text("3\n1\n")
    with pytest.raises(tm.CorruptBytesError, match="is not in order"):
        tm.ids("union", text, sorted=True)
    out = tmp_path / "out.txt"
    assert tm.ids("union", text, output=out) == 2
    with pytest.raises(tm.OutputExistsError):
        tm.ids("union", text, output=out)
    assert tm.ids("union", text, text, output=out, overwrite=True) == 2
    assert out.read_text() == "1\n3\n"
    with pytest.raises(tm.UsageError, match="`count` writes no ids"):
        tm.ids("count", text, output=out)
    with pytest.raises(tm.UsageError, match="not stored as"):
        tm.ids("union", text, input_format="hex")
    with pytest.raises(tm.UsageError, match="without `output`"):
        tm.ids("union", text, format="raw")


def test_a_file_that_cannot_be_finished_is_not_there(tmp_path):
    good, bad = tmp_path / "a.txt", tmp_path / "b.txt"
    good.write_text("".join(f"{id}\n" for id in range(100_000)))
    bad.write_text("".join(f"{id}\n" for id in range(50_000)) + "oops\n")
    for kind in ("txt", "raw", "parquet"):
        out = tmp_path / f"out.{kind}"
        with pytest.raises(tm.CorruptBytesError, match="line 50001"):
            tm.ids("union", good, bad, sorted=True, output=out)
        assert not out.exists()
    assert {path.name for path in tmp_path.iterdir()} == {"a.txt", "b.txt"}
