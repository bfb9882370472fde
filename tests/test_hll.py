"""Sketches from Python, beside postgresql-hll's own and beside what queries add."""

import csv
import datetime
import decimal
import math
import pathlib
import pickle
import random
import threading

import numpy
import pandas
import polars
import pyarrow
import pytest

import tidemill as tm

VECTORS = pathlib.Path(__file__).parents[1].parent / "shared" / "data" / "hll"


def vectors(name):
    path = VECTORS / name
    if not path.exists():
        pytest.skip(f"postgresql-hll's vectors are not at {path}")
    with path.open() as file:
        yield from csv.DictReader(file)


def of(*values, **parameters):
    hll = tm.Hll(**parameters)
    hll.add_values(values)
    return hll


# Beside postgresql-hll


@pytest.mark.parametrize(
    "name",
    [
        "cumulative_union_explicit_promotion.csv",
        "cumulative_union_sparse_full_representation.csv",
        "cumulative_union_sparse_promotion.csv",
    ],
)
def test_unions_have_the_bytes_and_counts_of_postgresql_hll(name):
    union = None
    for row in vectors(name):
        read = tm.Hll.from_bytes(row["multiset"], sparse=512)
        assert read.cardinality() == pytest.approx(float(row["cardinality"]), rel=1e-12)
        if union is None:
            union = read.copy()
        else:
            union.update(read)
        assert union.to_hex().upper() == row["union_multiset"].upper()
        assert union.cardinality() == pytest.approx(float(row["union_cardinality"]), rel=1e-12)


def test_hashes_that_are_added_have_the_bytes_of_postgresql_hll():
    hll = None
    for row in vectors("cumulative_add_sparse_edge.csv"):
        if hll is None:
            hll = tm.Hll.from_bytes(row["multiset"], sparse=512)
        else:
            hll.add_hash(int(row["raw_value"]))
        assert hll.to_hex().upper() == row["multiset"].upper()
        assert hll.cardinality() == pytest.approx(float(row["cardinality"]), rel=1e-12)


def test_whole_numbers_are_hashed_as_postgresql_hll_hashes_them():
    rows = [row for row in vectors("murmur_bigint.csv") if row["seed"] == "0"]
    if not rows:
        pytest.skip("the vectors have no hashes of seed 0")
    values = [int(row["pre_hash_long"]) for row in rows]
    hashed = tm.Hll()
    hashed.add_hashes([int(row["post_hash_long"]) for row in rows])
    assert of(*values) == hashed


# What is a value


VALUES = {
    "int64": numpy.array([1, -2, 2**62]),
    "int8": numpy.array([1, -2, 127], "i1"),
    "uint64": numpy.array([1, 2, 2**64 - 1], "u8"),
    "uint16": numpy.array([1, 2, 65535], "u2"),
    "float64": numpy.array([1.5, -0.0, math.inf]),
    "float32": numpy.array([1.5, 0.1, -3], "f4"),
    "float16": numpy.array([1.5, 0.1, -3], "f2"),
    "bool": numpy.array([True, False, True]),
    "texts": numpy.array(["a", "", "länger 𝄞"]),
    "bytes": numpy.array([b"a", b"", b"longer"]),
    "seconds": numpy.array(["2026-11-20T01:02:03", "1969-12-31"], "M8[s]"),
    "microseconds": numpy.array(["2026-11-20T01:02:03.456789"], "M8[us]"),
    "nanoseconds": numpy.array(["2026-11-20T01:02:03.456789", "1970-01-01"], "M8[ns]"),
    "days": numpy.array(["2026-11-20", "1969-12-31"], "M8[D]"),
    "durations": numpy.array([5, -7], "m8[ms]"),
}


@pytest.mark.parametrize("kind", VALUES)
def test_a_value_has_one_hash_wherever_it_comes_from(kind):
    array = VALUES[kind]
    expected = tm.Hll(explicit=2**10)
    expected.add_values(pyarrow.array(array))
    assert expected.cardinality() == len(set(array.tolist()))
    ways = {
        "numpy": array,
        "other byte order": array.astype(array.dtype.newbyteorder(">")),
        "with gaps": numpy.repeat(array, 3)[::3],
        "rows and columns": numpy.stack([array, array]),
        "not aligned": numpy.frombuffer(b"x" + array.tobytes(), array.dtype, offset=1),
        "objects": list(array),
        "a set": set(array.tolist()) if kind not in ("nanoseconds",) else array,
        "chunks": pyarrow.chunked_array([pyarrow.array(array)] * 2),
        "a slice": pyarrow.array(numpy.concatenate([array, array]))[len(array) :],
        "a table": pyarrow.table({"x": array}),
        # pandas has no dates.
        "pandas": array if kind in ("bytes", "days") else pandas.Series(array),
        "dictionary": pyarrow.array(array).dictionary_encode() if kind != "float16" else array,
    }
    if array.dtype.kind not in "S" and array.dtype != "f2" and array.dtype != "M8[s]":
        ways["polars"] = polars.Series(array)
        ways["polars' frame"] = polars.DataFrame({"x": array})
    for way, values in ways.items():
        found = tm.Hll(explicit=2**10)
        found.add_values(values)
        assert found == expected, way
    found = tm.Hll(explicit=2**10)
    for value in array:
        found.add(value)
    assert found == expected


def test_a_query_adds_what_python_adds(tmp_path):
    path = tmp_path / "hits.csv"
    path.write_text("who,n,x,t\nann,1,1.5,2026-11-20T01:02:03Z\nbob,,0.1,\nann,-3,2.0,\n")
    for column, values in {
        "who": ["ann", "bob"],
        "n": [1, -3],
        "x": [1.5, 0.1, 2.0],
        "t": [datetime.datetime(2026, 11, 20, 1, 2, 3, tzinfo=datetime.timezone.utc)],
    }.items():
        hll = tm.Hll()
        hll.add_values(tm.query(f"SELECT {column} FROM '{path}'"))
        assert hll == of(*values), column
    with pytest.raises(tm.UsageError, match="a table of 2: `who`, `n`"):
        tm.Hll().add_values(tm.query(f"SELECT who, n FROM '{path}'"))


def test_a_sketch_of_sql_is_the_one_of_python(tmp_path):
    path = tmp_path / "hits.csv"
    lines = "".join(f"u{n % 700},{n},{n / 3}\n" for n in range(3000))
    path.write_text(f"who,n,x\n{lines}")
    for column in ("who", "n", "x"):
        for parameters in ((11, 5), (14, 6)):
            sql = (
                f"SELECT hll_sketch({column}, {parameters[0]}, {parameters[1]}) AS s FROM '{path}'"
            )
            (row,) = tm.query(sql).to_pylist()
            hll = tm.Hll(*parameters)
            hll.add_values(tm.query(f"SELECT {column} FROM '{path}'"))
            assert tm.Hll.from_bytes(row["s"]) == hll
            assert row["s"] == hll.to_bytes()


def test_times_and_decimals_have_the_hashes_of_columns():
    utc = datetime.timezone.utc
    zone = datetime.timezone(datetime.timedelta(hours=5))
    moment = datetime.datetime(2026, 11, 20, 1, 2, 3, 456789)
    for values, array in [
        ([moment], pyarrow.array([moment])),
        ([moment.replace(tzinfo=zone)], pyarrow.array([moment.replace(tzinfo=zone)])),
        (
            [moment.replace(tzinfo=utc)],
            pyarrow.array([moment.replace(tzinfo=utc).astimezone(zone)]),
        ),
        ([datetime.date(2026, 11, 20), datetime.date(1, 1, 1)], None),
        ([datetime.time(1, 2, 3, 4)], None),
        ([datetime.timedelta(days=-1, microseconds=3)], None),
        ([decimal.Decimal("12.50"), decimal.Decimal("-0.5"), decimal.Decimal("-0.0")], None),
        ([decimal.Decimal("100")], None),
        (
            [pandas.Timestamp("2026-11-20 01:02:03.000000007")],
            pyarrow.array([1795136523000000007], pyarrow.timestamp("ns")),
        ),
    ]:
        array = pyarrow.array(values) if array is None else array
        hll = tm.Hll()
        hll.add_values(array)
        assert hll == of(*values), values
    assert of(decimal.Decimal("1E+2")) == of(decimal.Decimal("100.0"))
    assert of(numpy.datetime64("2026-11-20", "D")) == of(datetime.date(2026, 11, 20))
    assert of(numpy.datetime64("2026-11", "M")) == of(datetime.date(2026, 11, 1))
    hours = numpy.array(["2026-11-20T05"], "M8[h]")
    hll = tm.Hll()
    hll.add_values(hours)
    assert hll == of(datetime.datetime(2026, 11, 20, 5)) == of(hours[0])


def test_a_value_is_told_from_one_of_another_type():
    assert of(1, 1.0, "1", b"1", True).cardinality() == 3, "b'1' is '1', and True is 1"
    assert of(0.0, -0.0, math.nan, -math.nan).cardinality() == 2


@pytest.mark.parametrize(
    "nulls",
    [
        [None, 1, None],
        [pandas.NA, 1, pandas.NaT, numpy.datetime64("NaT")],
        numpy.array([None, 1], object),
        numpy.ma.masked_array([1, 2, 3], [False, True, True]),
        pyarrow.array([None, 1]),
        polars.Series([None, 1]),
        pandas.Series([None, 1], dtype="Int64"),
        (one for one in [1, 1, None]),
    ],
    ids=lambda nulls: type(nulls).__module__ + type(nulls).__name__,
)
def test_nulls_are_left_out(nulls):
    hll = tm.Hll()
    hll.add_values(nulls)
    assert hll == of(1)
    hll.add_values(numpy.array(["NaT"], "M8[ns]"))
    hll.add_values(pyarrow.nulls(5))
    hll.add_values([])
    hll.add_values(numpy.array([]))
    hll.add_values(numpy.array([], "U3"))
    assert hll == of(1)


@pytest.mark.parametrize(
    "value, says",
    [
        (None, "None .* is no value to count\nhint: leave it out"),
        (pandas.NaT, "is no value to count"),
        (2**64, "needs more than 64 bits"),
        (-(2**63) - 1, "needs more than 64 bits"),
        ("\udc80", "surrogate"),
        ([1], "has no hash in a sketch"),
        ({}, "has no hash in a sketch"),
        (1j, "has no hash in a sketch"),
        (decimal.Decimal("NaN"), "is no number"),
        (datetime.time(1, tzinfo=datetime.timezone.utc), "with a zone"),
    ],
)
def test_what_has_no_hash_is_refused_and_nothing_of_its_list_is_added(value, says):
    hll = tm.Hll()
    with pytest.raises(tm.UsageError, match=says):
        hll.add(value)
    if value is not None and value is not pandas.NaT:
        with pytest.raises(tm.UsageError, match=says):
            hll.add_values([1, 2, value])
    assert hll.cardinality() == 0


@pytest.mark.parametrize(
    "values, says",
    [
        ("ab", "`values` is a str, which is one value\nhint: add"),
        ({"a": [1, 2]}, "`values` is a dict, which is no column of values\nhint: list"),
        (b"ab", "`values` is a bytes, which is one value"),
        (5, "must be an array or an iterable, not int\nhint: add"),
        (numpy.array([1j]), "NumPy's type complex128"),
        (numpy.array([(1, 2)], "i4,i4"), "NumPy's type"),
        (numpy.array([1], "M8[ps]"), "NumPy's unit `ps`"),
        (pyarrow.array([[1], [2]]), "takes no values of type"),
        (pyarrow.table({"a": [1], "b": [2]}), "a table of 2: `a`, `b`\nhint: give one"),
    ],
)
def test_what_is_no_column_of_values_is_refused(values, says):
    hll = tm.Hll()
    with pytest.raises(tm.UsageError, match=says):
        hll.add_values(values)
    assert hll == tm.Hll()


def test_hashes_are_added_as_they_are_signed_or_not():
    expected = tm.Hll()
    for hash in (1, -1, -(2**63)):
        expected.add_hash(hash)
    for hashes in [
        [1, 2**64 - 1, 2**63],
        numpy.array([1, -1, -(2**63)]),
        numpy.array([1, 2**64 - 1, 2**63], "u8"),
        pyarrow.array([1, None, -1, -(2**63)]),
        polars.Series([1, 2**64 - 1, 2**63], dtype=polars.UInt64),
    ]:
        hll = tm.Hll()
        hll.add_hashes(hashes)
        assert hll == expected
    for wrong in (numpy.array([1], "i4"), pyarrow.array(["a"]), [2**64], ["a"], [1.0]):
        with pytest.raises(tm.UsageError):
            expected.add_hashes(wrong)
    with pytest.raises(tm.UsageError, match="`hash` is 18446744073709551616, but"):
        expected.add_hash(2**64)


# Parameters and bytes


def test_parameters_are_kept_in_the_bytes():
    for parameters in [
        {},
        {"log2m": 4, "regwidth": 1, "explicit": 0},
        {"log2m": 14, "regwidth": 6, "explicit": 128, "sparse": False},
        {"log2m": 17, "regwidth": 8, "explicit": 0, "sparse": 100},
        {"log2m": 12, "dialect": "java"},
    ]:
        hll = tm.Hll(**parameters)
        outside = {"sparse": hll.sparse, "dialect": hll.dialect}
        for count in (0, 5, 700, 30_000):
            hll.add_values(range(count))
            for other in (
                tm.Hll.from_bytes(hll.to_bytes(), **outside),
                tm.Hll.from_bytes(bytearray(hll.to_bytes()), **outside),
                tm.Hll.from_bytes(hll.to_hex(), **outside),
                pickle.loads(pickle.dumps(hll)),
                hll.copy(),
            ):
                assert other == hll
                assert other.to_bytes() == hll.to_bytes()
                for name in ("log2m", "regwidth", "explicit", "sparse", "dialect"):
                    assert getattr(other, name) == getattr(hll, name)
                for name, value in parameters.items():
                    assert getattr(other, name) == value


def test_what_is_exact_stays_exact_in_a_pickle():
    hll = tm.Hll(log2m=20, regwidth=8)
    hll.add_values(range(50_000))
    assert hll.is_exact and hll.cardinality() == 50_000
    copy = pickle.loads(pickle.dumps(hll))
    assert copy.is_exact and copy == hll
    big = tm.Hll(log2m=31)
    big.add(1)
    assert pickle.loads(pickle.dumps(big)) == big


def test_dialects_differ_where_their_authors_do():
    rng = random.Random(7)
    hashes = [rng.randrange(2**63) for _ in range(560)]
    kinds = {}
    for name, options in {
        "postgresql": {},
        "java": {"dialect": "java"},
        "never": {"sparse": False},
        "few": {"sparse": 8},
    }.items():
        hll = tm.Hll(explicit=0, **options)
        hll.add_hashes(hashes)
        kinds[name] = hll.to_bytes()[0] & 15
    assert kinds == {"postgresql": 3, "java": 3, "never": 4, "few": 4}
    java = tm.Hll(explicit=0, dialect="java")
    java.add_hashes(hashes + [rng.randrange(2**63) for _ in range(100)])
    assert java.to_bytes()[0] & 15 == 4
    assert tm.Hll.from_bytes(java.to_bytes()).to_bytes()[0] & 15 == 3
    assert tm.Hll.from_bytes(java.to_bytes(), sparse=False).to_bytes()[0] & 15 == 4


@pytest.mark.parametrize(
    "parameters, says",
    [
        ({"log2m": 3}, "`log2m` is 3, but must be from 4 to 31"),
        ({"log2m": 10**30}, "`log2m` is 10+, but must be"),
        ({"log2m": 11.5}, "`log2m` must be a whole number, not 11.5"),
        ({"log2m": True}, "`log2m` must be a whole number"),
        ({"regwidth": 9}, "`regwidth` is 9, but must be from 1 to 8"),
        ({"explicit": 100}, "0 or a power of two"),
        ({"explicit": "often"}, "`explicit` must be 'auto', 0 or"),
        ({"explicit": -1}, "`explicit` is -1, but"),
        ({"sparse": -1}, "`sparse` is -1, but"),
        ({"sparse": "yes"}, "`sparse` must be a whole number"),
        ({"dialect": "js"}, "no dialect 'js'\nhint: dialects are postgresql and java"),
        ({"dialect": "java", "sparse": 5}, "java-hll has no number of sparse registers"),
    ],
)
def test_a_parameter_out_of_range_is_told(parameters, says):
    with pytest.raises(tm.UsageError, match=says):
        tm.Hll(**parameters)


def test_malformed_bytes_are_an_error_and_take_no_memory():
    rng = random.Random(11)
    whole = []
    for count in (0, 3, 300, 3000):
        hll = tm.Hll()
        hll.add_values(range(count))
        whole.append(hll.to_bytes())
    assert [data[0] for data in whole] == [0x11, 0x12, 0x13, 0x14]
    for data in whole:
        for cut in {*range(min(40, len(data))), len(data) - 1}:
            try:
                tm.Hll.from_bytes(data[:cut])
            except tm.CorruptBytesError:
                continue
            # A list of values that is cut between two of them is a list.
            assert (cut > 3 and data[0] in (0x12, 0x13)) or (cut == 3 and data[0] != 0x14)
        with pytest.raises(tm.CorruptBytesError):
            tm.Hll.from_bytes(data + b"\x01")
        for _ in range(200):
            damaged = bytearray(data)
            damaged[rng.randrange(len(data))] = rng.randrange(256)
            try:
                tm.Hll.from_bytes(damaged).to_bytes()
            except (tm.CorruptBytesError, tm.UsageError) as error:
                assert isinstance(error, ValueError)
    for wrong in ("128b7f", r"\x12 8b", 5, None, ["\\x12"]):
        with pytest.raises(tm.UsageError):
            tm.Hll.from_bytes(wrong)


def test_a_sketch_of_a_few_bytes_that_asks_for_gigabytes_is_refused_unless_allowed():
    claims = bytes([0x11, 5 << 5 | 31, 0x7F])
    with pytest.raises(
        tm.UsageError, match=r"`log2m` is 31, .* 24\nhint: allow a larger `max_log2m"
    ):
        tm.Hll.from_bytes(claims)
    hll = tm.Hll.from_bytes(claims, max_log2m=31)
    hll.add_values(range(1000))
    assert len(hll.to_bytes()) < 10_000
    with pytest.raises(tm.UsageError, match="`log2m` is 11"):
        tm.Hll.from_bytes(tm.Hll().to_bytes(), max_log2m=10)


# Unions and what follows from them


def test_sketches_of_different_parameters_unite_by_folding():
    rng = random.Random(3)
    for _ in range(20):
        parameters = [
            {
                "log2m": rng.randrange(4, 16),
                "regwidth": rng.randrange(4, 9),
                "explicit": rng.choice([0, 64, "auto"]),
            }
            for _ in range(2)
        ]
        ids = [range(rng.randrange(5000)), range(2000, 2000 + rng.randrange(20_000))]
        parts = [of(*values, **given) for values, given in zip(ids, parameters, strict=True)]
        smaller = {name: min(p[name] for p in parameters) for name in ("log2m", "regwidth")}
        whole = of(*ids[0], *ids[1], explicit=0, **smaller)
        united = parts[0] | parts[1]
        # What was kept exactly is exact no longer: in registers they are the same.
        assert of(explicit=0, **smaller) | united == whole
        assert (parts[1] | parts[0]) == united
        left = parts[0].copy()
        left |= parts[1]
        assert left == united
    with pytest.raises(tm.UsageError, match="never finer"):
        tm.Hll(log2m=10).folded(log2m=11)


def test_an_intersection_has_its_error_and_is_refused_where_it_is_all_error():
    a, b = (tm.Hll(log2m=14, regwidth=6) for _ in range(2))
    a.add_values(numpy.arange(100_000))
    b.add_values(numpy.arange(50_000, 150_000))
    for found, truth in [
        (a.intersection(b), 50_000),
        (a.difference(b), 50_000),
        (a.jaccard(b), 1 / 3),
    ]:
        assert abs(found.value - truth) < 3 * found.standard_error
        assert found.interval[0] < found.value < found.interval[1]
        assert not found.is_exact
    c = tm.Hll(log2m=14, regwidth=6)
    c.add_values(numpy.arange(99_900, 200_000))
    for method in ("intersection", "jaccard"):
        with pytest.raises(tm.UncertainEstimateError, match="cannot be told from nothing") as error:
            getattr(a, method)(c)
        estimate = getattr(a, method)(c, uncertain=True)
        assert error.value.estimate.value == estimate.value
        assert estimate.interval[0] == 0
        assert isinstance(error.value, tm.TidemillError)
    with pytest.raises(tm.UsageError, match="with an Hll, not with a set"):
        a.intersection({1})
    few = of(1, 2, 3)
    assert few.intersection(of(3, 4)) == (1.0, 0.0, (1.0, 1.0))
    assert few.intersection(of(3, 4)).is_exact


def test_an_estimate_is_as_good_as_its_error_says():
    hll = tm.Hll(log2m=12, regwidth=6)
    hll.add_values(numpy.arange(1_000_000))
    for estimator in ("published", "ertl"):
        assert abs(hll.cardinality(estimator) / 1e6 - 1) < 4 * hll.error(estimator)
        estimate = hll.estimate(estimator)
        assert estimate.value == hll.cardinality(estimator)
        assert estimate.standard_error == pytest.approx(hll.error(estimator) * estimate.value)
    assert hll.error() == pytest.approx(1.04 / 2**6, rel=0.01)
    assert tm.Hll().error() == of(1).error() == 0.0
    with pytest.raises(tm.UsageError, match="no estimator 'best'\nhint: estimators are"):
        hll.cardinality("best")


def test_what_is_undefined_has_no_count():
    undefined = tm.Hll.from_bytes(b"\x10\x8b\x7f")
    assert undefined.is_undefined and math.isnan(undefined.cardinality())
    assert (undefined | of(1)).is_undefined
    assert repr(undefined) == "Hll(log2m=11, regwidth=5: undefined)"
    assert math.isnan(undefined.estimate().value)
    with pytest.raises(tm.UncertainEstimateError):
        undefined.intersection(of(1))


def test_a_sketch_behaves_as_a_mutable_object():
    a, b = of(1, 2), of(2, 1)
    assert a == b and not a != b and a != 5
    with pytest.raises(TypeError, match="unhashable"):
        hash(a)
    with pytest.raises(TypeError):
        a | {1}
    with pytest.raises(TypeError):
        len(a)
    a.update(a)
    assert a == b
    a.update(of(3), of(4, 5))
    assert a.cardinality() == 5 and b.cardinality() == 2
    assert repr(a) == "Hll(log2m=11, regwidth=5: 5 values, exact)"


def test_threads_add_to_one_sketch_and_unite_in_any_order():
    array = numpy.arange(400_000)
    whole = tm.Hll()
    whole.add_values(array)
    shared, other = tm.Hll(), tm.Hll()

    def work(part, ours, theirs):
        ours.add_values(part)
        for _ in range(50):
            ours.update(theirs)

    pairs = [(shared, other), (other, shared)] * 4
    threads = [
        threading.Thread(target=work, args=(part, *pair))
        for part, pair in zip(numpy.array_split(array, 8), pairs, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (shared | other) == whole
