"""Lines in order from Python."""

import random

import pytest

import tidemill as tm


def test_lines_are_sorted_as_pythons_own_sort_has_them(tmp_path):
    rng = random.Random(7)
    lines = [f"{rng.randrange(1000)},{rng.choice('abc')}\n" for _ in range(5000)]
    path = tmp_path / "in.txt"
    path.write_text("".join(lines))
    assert tm.sort(path).decode() == "".join(sorted(lines))
    by_key = sorted(lines, key=lambda line: (line.split(",")[1], -int(line.split(",")[0])))
    assert tm.sort("-s", "-t,", "-k2,2", "-k1,1nr", path).decode() == "".join(by_key)
    out = tmp_path / "out.txt"
    assert tm.sort("-S", "16M", "-o", out, path) == b""
    assert out.read_text() == "".join(sorted(lines))
    assert tm.sort("-c", out) is True
    assert tm.sort("-C", path) is False


def test_mistakes_are_told(tmp_path, capfd):
    path = tmp_path / "in.txt"
    path.write_text("b\na\n")
    with pytest.raises(tm.UsageError, match="name a file"):
        tm.sort("-r")
    with pytest.raises(tm.UsageError, match="unknown option `--nosuch`"):
        tm.sort("--nosuch", path)
    with pytest.raises(tm.UsageError, match="exists"):
        tm.sort("-o", path, path)
    with pytest.raises(tm.TidemillError, match="nosuch"):
        tm.sort(tmp_path / "nosuch")
    assert path.read_text() == "b\na\n"
    assert tm.sort("-c", path) is False
    assert "disorder: a" in capfd.readouterr().err
