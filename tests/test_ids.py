"""Exact sets of ids from Python, beside Python's own sets."""

import copy
import pickle
import random
import subprocess
import sys
import textwrap
import threading

import numpy
import pandas
import polars
import pyarrow
import pytest

import tidemill as tm


def both(rng, count, low, high):
    ids = [rng.randrange(low, high) for _ in range(count)]
    return ids, set(ids)


@pytest.mark.parametrize("low, high", [(-(2**63), 2**63), (0, 2**64), (-50, 3000)])
def test_sets_are_pythons_own(low, high):
    rng = random.Random(5)
    space = tm.IdSpace()
    sets = []
    for count in (0, 1, 10, 3000, 100_000):
        ids, expected = both(rng, count, low, high)
        # Ids that several sets have.
        for _, others in sets:
            shared = rng.sample(sorted(others), len(others) // 2)
            ids += shared
            expected |= set(shared)
        array = numpy.array(ids, "u8" if high == 2**64 else "i8")
        sets.append((space.set(array), expected))
    for ours, expected in sets:
        assert len(ours) == len(expected)
        assert set(ours) == expected
        assert bool(ours) == bool(expected)
        assert sorted(ours.to_numpy().tolist()) == sorted(expected)
        for other, also in sets:
            for sign in ("__or__", "__and__", "__sub__", "__xor__"):
                made = getattr(ours, sign)(other)
                assert set(made) == getattr(expected, sign)(also)
                changed = ours.copy()
                assert getattr(changed, sign.replace("__", "__i", 1))(other) is changed
                assert changed == made
            assert (ours <= other) == (expected <= also)
            assert (ours < other) == (expected < also)
            assert (ours >= other) == (expected >= also)
            assert (ours > other) == (expected > also)
            assert (ours == other) == (expected == also)
            assert ours.isdisjoint(other) == expected.isdisjoint(also)
            assert ours.intersection_len(other) == len(expected & also)
    everything = set().union(*(expected for _, expected in sets))
    assert set(space) == everything and len(space) == len(everything)
    assert set(space.all()) == everything
    for id in [*rng.sample(sorted(everything), 20), low + 7, 2**70, -(2**70)]:
        assert (id in space) == (id in everything)
        assert all((id in ours) == (id in expected) for ours, expected in sets)
    for odd in ("a", 1.0, None, True):
        assert odd not in space and odd not in sets[-1][0]


def test_ids_come_from_any_array_as_they_are_given():
    ids = [5, -1, 2**40, 5]
    for given in [
        ids,
        iter(ids),
        set(ids),
        numpy.array(ids),
        numpy.array(ids).astype(">i8"),
        numpy.repeat(numpy.array(ids), 2)[::2],
        pyarrow.array([*ids, None]),
        pyarrow.chunked_array([ids[:2], ids[2:]]),
        pyarrow.table({"id": ids}),
        polars.Series(ids),
        [*ids, None],
        tm.IdSpace().set(ids),
        tm.query("SELECT unnest([5, -1, 1099511627776, 5]) AS id"),
    ]:
        space = tm.IdSpace()
        assert set(space.set(given)) == set(ids)
        assert space.signed is True
    assert set(tm.IdSpace().set(numpy.array([-1, 7], "i1"))) == {-1, 7}
    assert set(tm.IdSpace().set(numpy.array([255, 7], "u1"))) == {255, 7}
    assert len(tm.IdSpace().set(pyarrow.nulls(3))) == 0
    assert len(tm.IdSpace().set()) == 0


def test_ids_go_back_as_arrays_of_their_sign():
    for ids, kind in [([3, -2], "i8"), ([3, 2**64 - 1], "u8")]:
        ours = tm.IdSpace().set(numpy.array(ids, kind))
        array = ours.to_numpy()
        assert array.tolist() == ids and array.dtype == kind
        array[0] = 9
        assert list(ours) == ids, "an array is the user's own"
        assert numpy.asarray(ours).dtype == kind
        assert numpy.asarray(ours, "f8").tolist() == [float(id) for id in ids]
        arrow = pyarrow.array(ours)
        assert arrow.to_pylist() == ids
        assert arrow.type == (pyarrow.int64() if kind == "i8" else pyarrow.uint64())
        assert polars.Series(arrow).to_list() == ids
        assert ours.space.to_numpy().tolist() == ids
    assert tm.IdSpace().set().to_numpy().tolist() == []


def test_a_sign_that_does_not_fit_is_refused():
    unsigned = tm.IdSpace()
    unsigned.set(numpy.array([2**63], "u8"))
    assert unsigned.signed is False
    unsigned.set(numpy.array([5]))
    for wrong in (numpy.array([4, -7]), [4, -7]):
        with pytest.raises(tm.UsageError, match=r"the id -7 is negative, .*\nhint: .*signed=True"):
            unsigned.set(wrong)
    signed = tm.IdSpace(signed=True)
    signed.set(numpy.array([5], "u8"))
    for wrong in (numpy.array([2**64 - 1], "u8"), [2**64 - 1]):
        with pytest.raises(tm.UsageError, match=r"the id 18446744073709551615 does not fit"):
            signed.set(wrong)
    with pytest.raises(tm.UsageError, match="65 bits"):
        tm.IdSpace().set([-1, 2**63])
    assert list(signed) == [5] and list(unsigned) == [2**63, 5]


@pytest.mark.parametrize(
    "ids, says",
    [
        ([1, "a"], r"'a' \(str\) is no id"),
        ([2**64], "is no id"),
        ([True], "is no id"),
        ([1.5], "is no id"),
        (numpy.array([1.5]), "ids are whole numbers"),
        (pyarrow.array(["a"]), "ids are whole numbers"),
        ("abc", "`ids` is a str"),
        (5, "`ids` must be an array"),
        ({5: 6}, "`ids` is a dict(.|\n)*hint: list"),
        (pandas.Series([5, None]), r"float64, which is DOUBLE(.|\n)*hint: .*x.astype\('Int64'\)"),
    ],
)
def test_what_are_no_ids_is_refused(ids, says):
    space = tm.IdSpace()
    with pytest.raises(tm.UsageError, match=says):
        space.set(ids)
    assert len(space) == 0


def test_sets_of_different_spaces_refuse_to_meet():
    space, other = tm.IdSpace(), tm.IdSpace()
    a, b = space.set([1, 2]), other.set([2, 1])
    for meet in (
        lambda: a | b,
        lambda: a & b,
        lambda: a - b,
        lambda: a ^ b,
        lambda: a < b,
        lambda: a.update(b),
        lambda: a.intersection_len(b),
    ):
        with pytest.raises(tm.UsageError, match=r"different spaces, .*\nhint: a\.space\.set\(b\)"):
            meet()
    assert a == b, "what is in them can be compared"
    assert a != other.set([1, 3]) and tm.IdSpace().set() == space.set()
    assert space.set([-1]) != tm.IdSpace(signed=False).set([2**64 - 1])
    assert list(a & space.set(b)) == [1, 2]
    for wrong in ({1}, [1], None):
        with pytest.raises(TypeError):
            a | wrong
        assert a != wrong
    with pytest.raises(TypeError, match="unhashable"):
        hash(a)
    with pytest.raises(TypeError, match="space"):
        tm.IdSet([1])
    with pytest.raises(tm.UsageError, match="`space` must be an IdSpace, not a set"):
        tm.IdSet([1], space={1})


def test_unknown_ids_are_added_skipped_or_refused():
    space = tm.IdSpace()
    space.set([1, 2])
    assert list(space.set([2, 3], unknown="skip")) == [2]
    with pytest.raises(tm.UsageError, match="the id 3 is not in this space\nhint: unknown='add'"):
        space.set(numpy.array([2, 3]), unknown="error")
    with pytest.raises(tm.UsageError, match="`unknown` is `often`"):
        space.set([2], unknown="often")
    assert len(space) == 2
    assert list(space.set([2, 3], unknown="add")) == [2, 3]


def test_a_set_changes_by_itself():
    space = tm.IdSpace()
    a = space.set([1, 2, 3])
    b = copy.copy(a)
    a.add(4)
    a.update(numpy.array([5, 1]))
    a.discard(2)
    a.discard(77)
    a.discard("x")
    assert list(a) == [1, 3, 4, 5] and list(b) == [1, 2, 3] == list(copy.deepcopy(b))
    assert copy.deepcopy(b).space is space
    a |= a
    a &= a
    assert list(a) == [1, 3, 4, 5]
    a ^= a
    assert len(a) == 0 and not a
    assert repr(b) == "IdSet(3 ids of 5)"


def test_spaces_and_sets_are_pickled_and_sets_share_their_space():
    space = tm.IdSpace()
    a, b = space.set([1, -2, 3]), space.set([3, 4])
    c, d = pickle.loads(pickle.dumps((a, b)))
    assert c.space is d.space and c.space == space
    assert c == a and list(c & d) == [3]
    c.space.set([99])
    assert c.space != space
    empty = pickle.loads(pickle.dumps(tm.IdSpace()))
    assert empty.signed is None and empty == tm.IdSpace()
    assert pickle.loads(pickle.dumps(tm.IdSpace(signed=False))).signed is False


def test_sets_are_written_as_roaring_has_them():
    space = tm.IdSpace()
    rng = random.Random(1)
    for count in (0, 1, 1000, 200_000):
        a = space.set(numpy.array(rng.sample(range(10**12), count), "i8"))
        data = a.to_bytes()
        assert data[:2] in (b"\x3a\x30", b"\x3b\x30")
        assert tm.IdSet.from_bytes(data, space=space) == a
        assert tm.IdSet.from_bytes(memoryview(data), space=space).to_bytes() == data
        for damaged in (data[:-1], data + b"\0", b"", b"\x61" + data[1:]):
            with pytest.raises(tm.CorruptBytesError):
                tm.IdSet.from_bytes(damaged, space=space)
    with pytest.raises(tm.CorruptBytesError, match="it is of another space"):
        tm.IdSet.from_bytes(space.all().to_bytes(), space=tm.IdSpace())
    with pytest.raises(tm.UsageError, match="from bytes, not from a str"):
        tm.IdSet.from_bytes("ab", space=space)


@pytest.fixture
def saved(tmp_path):
    space = tm.IdSpace()
    space.set(numpy.random.default_rng(4).integers(-(2**63), 2**63, 200_000))
    path = tmp_path / "users.ids"
    space.save(path)
    return space, path


def test_a_saved_space_is_opened_by_mapping_it(saved, tmp_path):
    space, path = saved
    opened = tm.IdSpace.open(path)
    assert opened == space and len(opened) == 200_000
    assert opened.path == str(path) and not opened.grows and opened.signed
    ids = space.to_numpy()
    assert opened.to_numpy().tolist() == ids.tolist()
    some = ids[::7]
    assert opened.set(some).to_bytes() == space.set(some).to_bytes()
    assert tm.IdSet.from_bytes(space.set(some).to_bytes(), space=opened) == opened.set(some)
    assert sys.getsizeof(opened) < 1000 < sys.getsizeof(space)
    for refused in (lambda: opened.set([12345]), lambda: opened.set([1], unknown="add")):
        with pytest.raises(tm.UsageError, match=r"hint: .*space\.copy\(\)"):
            refused()
    assert list(opened.set([12345, int(ids[3])], unknown="skip")) == [int(ids[3])]
    grown = opened.copy()
    assert grown.grows and grown == space
    grown.set([12345])
    assert len(grown) == 200_001
    again = pickle.loads(pickle.dumps(opened))
    assert again == opened and not again.grows
    assert list(tmp_path.iterdir()) == [path]


def test_a_save_replaces_a_file_only_if_asked_and_leaves_it_to_those_who_have_it(saved):
    space, path = saved
    opened = tm.IdSpace.open(path)
    with pytest.raises(tm.OutputExistsError, match="overwrite=True"):
        tm.IdSpace().save(path)
    tm.IdSpace().save(path, overwrite=True)
    assert len(tm.IdSpace.open(path)) == 0
    assert opened == space


def test_a_file_that_is_no_space_is_refused(saved, tmp_path):
    _, path = saved
    data = path.read_bytes()
    for name, content in {
        "empty": b"",
        "cut": data[:-8],
        "longer": data + b"\0",
        "half": data[: len(data) // 2],
        "other": b"\x11" + data[1:],
        "text": b"hello, this is no space of ids",
    }.items():
        wrong = tmp_path / name
        wrong.write_bytes(content)
        with pytest.raises(tm.CorruptFileError, match=f"{name}` is damaged"):
            tm.IdSpace.open(wrong)
    with pytest.raises(FileNotFoundError) as error:
        tm.IdSpace.open(tmp_path / "nosuch")
    assert isinstance(error.value, tm.TidemillError)


def test_a_process_that_is_killed_while_it_saves_leaves_nothing_half(tmp_path):
    path = tmp_path / "users.ids"
    script = textwrap.dedent(
        f"""
        import numpy, os, signal, threading
        import tidemill as tm
        space = tm.IdSpace()
        space.set(numpy.arange(1_000_000))
        space.save({str(path)!r}, overwrite=True)
        space.set([-1])
        print("saved", flush=True)
        while True:
            space.save({str(path)!r}, overwrite=True)
        """
    )
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"saved\n"
    process.kill()
    process.wait()
    process.stdout.close()
    assert len(tm.IdSpace.open(path)) in (1_000_000, 1_000_001)
    tm.IdSpace.open(path).copy().save(path, overwrite=True)
    assert len(tm.IdSpace.open(path)) in (1_000_000, 1_000_001)
    assert list(tmp_path.iterdir()) == [path]


def test_processes_share_a_space_by_its_file(saved):
    space, path = saved
    script = textwrap.dedent(
        f"""
        import sys
        import tidemill as tm
        space = tm.IdSpace.open({str(path)!r})
        sys.stdout.buffer.write(space.set(space.to_numpy()[::3]).to_bytes())
        """
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert tm.IdSet.from_bytes(done.stdout, space=space) == space.set(space.to_numpy()[::3])


def test_threads_share_a_space():
    space = tm.IdSpace()
    arrays = [numpy.arange(start, start + 300_000) for start in range(0, 800_000, 100_000)]
    made = {}

    def work(number):
        ours = space.set(arrays[number])
        for id in (number * 100_000, -1):
            assert (id in ours) == (id in space) == (id >= 0)
        made[number] = ours

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(space) == 1_000_000
    for number, ours in made.items():
        assert sorted(ours.to_numpy().tolist()) == arrays[number].tolist()
    assert len(made[0] | made[7]) == 600_000 and len(made[0] & made[1]) == 200_000


def test_numpy_is_needed_by_what_is_numpys_alone():
    script = textwrap.dedent(
        """
        import sys
        sys.modules["numpy"] = None
        import tidemill as tm
        space = tm.IdSpace()
        assert list(space.set([1, -2]) | space.set([3])) == [1, -2, 3]
        hll = tm.Hll()
        hll.add_values(["a"])
        try:
            space.all().to_numpy()
        except tm.MissingPackageError as error:
            print(error)
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("`to_numpy()` needs NumPy"), done.stdout
