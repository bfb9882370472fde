"""Our sketches in a real PostgreSQL, and its own here: the same bytes, the same counts."""

import itertools
import math

import pytest

from contents import SETTINGS, Parameters, counts, hashes

# PostgreSQL takes widths up to 7 and log2m up to 17.
FEW_REGISTERS = [
    Parameters(log2m, regwidth, explicit, sparse)
    for log2m, regwidth, (explicit, sparse) in itertools.product(
        (4, 5, 6, 8, 11), range(1, 8), SETTINGS
    )
    # Of words that are narrower than a byte PostgreSQL reads padding as register 0 of value 0, and
    # so loses that register, in sketches of its own too.
    if not sparse or log2m + regwidth >= 8
]
MANY_REGISTERS = [
    Parameters(14, 5, "auto", True),
    Parameters(14, 6, "auto", True),
    Parameters(14, 6, 8192, False),
    Parameters(17, 7, "auto", True),
    Parameters(17, 4, 0, False),
]
LIMITED = [
    Parameters(11, 5, "auto", 512),
    Parameters(11, 5, 0, 1),
    Parameters(10, 6, 64, 900),
    Parameters(14, 5, 0, 3000),
]


class Content:
    """What is added: register by register, or integers by their hashes."""

    def __init__(self, start, end, kind):
        self.start, self.end, self.kind = start, end, kind

    def ours(self, ours, parameters):
        """Give it as a sketch of ours."""
        sketch = ours.new(*parameters, "postgresql")
        if self.kind == "ints":
            sketch.add_ints(self.start, self.end)
        else:
            sketch.add_hashes(hashes(self.end, parameters.log2m))
        return sketch

    def theirs(self, parameters):
        """Give it as SQL."""
        log2m, regwidth, explicit, sparse = parameters
        modifiers = (
            f"{log2m}, {regwidth}, {-1 if explicit == 'auto' else explicit}, {int(bool(sparse))}"
        )
        value = (
            "hll_hash_bigint(i)"
            if self.kind == "ints"
            else f"((1::bigint << (i % 20 + {log2m})::int) | i)::hll_hashval"
        )
        return (
            f"(SELECT coalesce(hll_add_agg({value}, {modifiers}), hll_empty({modifiers})) "
            f"FROM generate_series({self.start}::bigint, {self.end - 1}) i)"
        )


def contents(parameters):
    edges = counts(parameters, 20_000)
    registers = [Content(0, count, "registers") for count in edges]
    m = min(parameters.registers, 4_096)
    ints = [(0, 3), (-m, m), (5, 5 * m), (-10 * m, 10 * m)]
    return registers + [Content(start, end, "ints") for start, end in ints]


def session(postgresql, parameters, statements):
    """Ask in one session, in which as many registers may be sparse as the parameters say."""
    of_dialect = -1 if isinstance(parameters.sparse, bool) else parameters.sparse
    setting = f"DO $$ BEGIN PERFORM hll_set_max_sparse({of_dialect}); END $$"
    answers = postgresql.ask([setting, *statements])
    assert len(answers) == len(statements)
    return answers


def check_cardinality(theirs, mine, parameters):
    if theirs == "NaN" and parameters.regwidth >= 6:
        # Its integers overflow there (its issue 15).
        assert math.isfinite(mine)
    elif not math.isfinite(mine):
        # More values than registers of such a width can tell.
        assert theirs in ("NaN", "Infinity")
    else:
        assert math.isclose(float(theirs), mine, rel_tol=1e-12)


def check(ours, postgresql, parameters):
    all_contents = contents(parameters)
    sketches = [content.ours(ours, parameters) for content in all_contents]
    texts = [sketch.to_hex() for sketch in sketches]

    # Each made there and here.
    made = [
        f"SELECT s, hll_cardinality(s) FROM (SELECT {c.theirs(parameters)} s) t"
        for c in all_contents
    ]
    theirs = [answer.split("|") for answer in session(postgresql, parameters, made)]
    for sketch, text, (their_text, cardinality) in zip(sketches, texts, theirs, strict=True):
        assert text == their_text
        check_cardinality(cardinality, sketch.cardinality(), parameters)
        read = ours.read(their_text, sparse=parameters.sparse)
        assert read.to_hex() == their_text
        assert read.cardinality() == sketch.cardinality()

    # Ours read there, written again and counted; and ours united there with what it has made.
    stored = [f"SELECT s, hll_cardinality(s) FROM (SELECT '{text}'::hll s) t" for text in texts]
    pairs = [
        (a, b)
        for a, b in itertools.product(range(len(texts)), repeat=2)
        if (a * 7 + b * 3) % 13 == 0
    ]
    united = [
        f"SELECT s, hll_cardinality(s) FROM (SELECT '{texts[a]}'::hll || '{theirs[b][0]}'::hll s) t"
        for a, b in pairs
    ]
    answers = session(postgresql, parameters, stored + united)
    answers = [answer.split("|") for answer in answers]
    for sketch, text, (their_text, cardinality) in zip(sketches, texts, answers, strict=False):
        assert their_text == text
        check_cardinality(cardinality, sketch.cardinality(), parameters)
    for (a, b), (their_text, cardinality) in zip(pairs, answers[len(texts) :], strict=True):
        union = ours.read(texts[a], sparse=parameters.sparse)
        union.update(ours.read(theirs[b][0], sparse=parameters.sparse))
        assert union.to_hex() == their_text, (a, b)
        check_cardinality(cardinality, union.cardinality(), parameters)


@pytest.mark.parametrize("log2m", [4, 5, 6, 8, 11])
@pytest.mark.parametrize("regwidth", range(1, 8))
def test_sketches_of_few_registers_are_postgresqls(ours, postgresql, log2m, regwidth):
    for parameters in FEW_REGISTERS:
        if parameters[:2] == (log2m, regwidth):
            check(ours, postgresql, parameters)


@pytest.mark.parametrize("parameters", MANY_REGISTERS)
def test_sketches_of_many_registers_are_postgresqls(ours, postgresql, parameters):
    check(ours, postgresql, parameters)


@pytest.mark.parametrize("parameters", LIMITED)
def test_a_number_of_sparse_registers_is_postgresqls(ours, postgresql, parameters):
    check(ours, postgresql, parameters)


def test_values_hash_as_postgresql_hashes_them(ours, postgresql):
    texts = ["", "a", "ana", "é", "😀" * 40, "x" * 15, "x" * 16, "x" * 17]
    sketch = ours.new(11, 5, "auto", True, "postgresql")
    sketch.add_texts(texts)
    sketch.add_ints(-3, 4)
    listed = ", ".join(f"('{text}')" for text in texts)
    of_texts = f"SELECT hll_add_agg(hll_hash_text(t)) FROM (VALUES {listed}) v(t)"
    of_integers = "SELECT hll_add_agg(hll_hash_bigint(i)) FROM generate_series(-3, 3) i"
    [theirs] = postgresql.ask([f"SELECT ({of_texts}) || ({of_integers})"])
    assert sketch.to_hex() == theirs


def test_a_table_of_our_sketches_is_summed_up_there(ours, postgresql):
    days = []
    for day in range(30):
        sketch = ours.new(11, 5, "auto", True, "postgresql")
        sketch.add_ints(day * 100, day * 100 + 10 ** (day % 5))
        days.append(sketch)
    rows = ", ".join(f"({day}, '{sketch.to_hex()}')" for day, sketch in enumerate(days))
    setup = ["CREATE TEMP TABLE days (day int, seen hll)", f"INSERT INTO days VALUES {rows}"]
    more = "UPDATE days SET seen = hll_add(seen, hll_hash_bigint(-7))"
    asked = ["SELECT hll_union_agg(seen) FROM days", "SELECT #seen FROM days ORDER BY day"]
    answers = postgresql.ask([*setup, more, *asked])
    whole = ours.new(11, 5, "auto", True, "postgresql")
    for sketch in days:
        sketch.add_ints(-7, -6)
        whole.update(sketch)
    assert answers[0] == whole.to_hex()
    for told, sketch in zip(answers[1:], days, strict=True):
        assert math.isclose(float(told), sketch.cardinality(), rel_tol=1e-12)


def test_what_is_undefined_absorbs_all_here_and_there(ours, postgresql):
    sketch = ours.read(r"\x108b7f")
    more = ours.new(11, 5, "auto", True, "postgresql")
    more.add_ints(0, 9)
    more.update(sketch)
    more_there = "SELECT hll_add_agg(hll_hash_bigint(i)) FROM generate_series(0, 8) i"
    [theirs] = postgresql.ask([rf"SELECT '\x108b7f'::hll || ({more_there})"])
    assert more.to_hex() == theirs == r"\x108b7f"
    assert math.isnan(more.cardinality())
