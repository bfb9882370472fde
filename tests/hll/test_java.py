"""Our sketches in java-hll, and its own here: the same bytes, the same counts."""

import itertools
import math
import random

import pytest

from contents import SETTINGS, Parameters, counts, hashes

PARAMETERS = [
    Parameters(log2m, regwidth, explicit, sparse)
    for log2m, regwidth, (explicit, sparse) in itertools.product(
        (4, 5, 6, 8, 11), range(1, 9), SETTINGS
    )
]
MANY_REGISTERS = [
    Parameters(14, 6, "auto", True),
    Parameters(14, 8, 8192, False),
    Parameters(17, 5, "auto", True),
    Parameters(20, 5, 0, True),
    Parameters(30, 8, "auto", True),
]


def contents(parameters):
    seed = random.Random(hash(parameters[:2]))
    yield from (hashes(count, parameters.log2m) for count in counts(parameters, 5_000))
    m = min(parameters.registers, 2_048)
    for count in (3, m, 5 * m):
        yield [seed.randrange(-(2**63), 2**63) for _ in range(count)]


def check(ours, java, parameters):
    values = list(contents(parameters))
    mine, theirs = [], []
    for some in values:
        for made, by in ((mine, ours), (theirs, java)):
            sketch = by.new(*parameters, "java")
            sketch.add_hashes(some)
            made.append(sketch)

    def same(our_sketch, their_sketch):
        text, their_text = our_sketch.to_hex(), their_sketch.to_hex()
        if text != their_text:
            # It comes from the values themselves to sparse registers, however many they are, and
            # looks whether those are too many when the next one comes.
            assert parameters.explicit != "auto" and parameters.sparse
            assert parameters.explicit >= parameters.java_sparse_max
            assert their_text.startswith(r"\x13")
            assert ours.read(their_text, dialect="java").to_hex() == text
            assert java.read(text).cardinality() == their_sketch.cardinality()
        cardinality = our_sketch.cardinality()
        if math.isfinite(cardinality):
            assert math.ceil(cardinality) == their_sketch.cardinality()
        else:
            # More values than registers of such a width can tell.
            assert their_sketch.cardinality() in (0, 2**63 - 1)
        return text

    texts = []
    for our_sketch, their_sketch in zip(mine, theirs, strict=True):
        text = same(our_sketch, their_sketch)
        same(ours.read(text, dialect="java"), java.read(text))
        texts.append(text)
    for a, b in itertools.product(range(len(texts)), repeat=2):
        if (a * 7 + b * 3) % 13 == 0:
            ours_united, theirs_united = ours.read(texts[a], dialect="java"), java.read(texts[a])
            ours_united.update(mine[b])
            theirs_united.update(theirs[b])
            same(ours_united, theirs_united)


@pytest.mark.parametrize("log2m", [4, 5, 6, 8, 11])
@pytest.mark.parametrize("regwidth", range(1, 9))
def test_sketches_of_few_registers_are_javas(ours, java, log2m, regwidth):
    for parameters in PARAMETERS:
        if parameters[:2] == (log2m, regwidth):
            check(ours, java, parameters)


@pytest.mark.parametrize("parameters", MANY_REGISTERS)
def test_sketches_of_many_registers_are_javas(ours, java, parameters):
    check(ours, java, parameters)
