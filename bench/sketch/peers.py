"""Sketches and sets in Python, as `peers/` in Rust: one of them a process.

    peers.py hll PEER LOG2M VALUES
    peers.py sets PEER random|dense COUNT FOLDER

Prints one JSON object. Data are made before and answers checked after what is timed; imports are outside.
"""

import array
import json
import pickle
import sys
import time
from pathlib import Path

import numpy as np

SKETCHES = 200
INSERTS = 4_000_000


def scrambled(numbers: np.ndarray) -> np.ndarray:
    """A bijection of 64 bits (SplitMix64's last step), as in `peers/src/data.rs`."""
    n = numbers.astype(np.uint64)
    n = (n ^ (n >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    n = (n ^ (n >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return n ^ (n >> np.uint64(31))


def timed(work):
    start = time.perf_counter()
    answer = work()
    return time.perf_counter() - start, answer


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


# ------------------------------------------------------------------ sketches


class Tidemill:
    """Arrays in one call; texts as a list."""

    def __init__(self, log2m):
        import tidemill

        if not hasattr(tidemill, "Hll"):
            raise SystemExit("this version of tidemill has no `Hll`")
        self.of = tidemill.Hll
        self.sketch = self.of(log2m=log2m, regwidth=5 if log2m < 14 else 6)

    def add(self, values):
        self.sketch.add_values(values)

    def merge(self, other):
        self.sketch.update(other.sketch)

    def estimate(self):
        return self.sketch.cardinality("ertl")

    def serialize(self):
        return self.sketch.to_bytes()

    def deserialize(self, data):
        copy = object.__new__(Tidemill)
        copy.of, copy.sketch = self.of, self.of.from_bytes(data)
        return copy


class DataSketches:
    """One value a call: it takes no arrays."""

    def __init__(self, log2m, kind):
        import datasketches

        self.of, self.log2m = datasketches, log2m
        self.kind = {4: datasketches.HLL_4, 8: datasketches.HLL_8}[kind]
        self.sketch = datasketches.hll_sketch(log2m, self.kind)
        self.union = None

    def add(self, values):
        update = self.sketch.update
        for value in values.tolist() if isinstance(values, np.ndarray) else values:
            update(value)

    def merge(self, other):
        if self.union is None:
            self.union = self.of.hll_union(self.log2m)
            self.union.update(self.sketch)
        if other is not None:
            self.union.update(other.sketch)

    def estimate(self):
        return (self.union or self.sketch).get_estimate()

    def serialize(self):
        return self.sketch.serialize_compact()

    def deserialize(self, data):
        copy = object.__new__(DataSketches)
        copy.of, copy.log2m, copy.kind, copy.union = self.of, self.log2m, self.kind, None
        copy.sketch = self.of.hll_sketch.deserialize(data)
        return copy


class Exact:
    """The base line: Python's set of all values."""

    def __init__(self, _log2m):
        self.values = set()

    def add(self, values):
        self.values.update(values.tolist() if isinstance(values, np.ndarray) else values)

    def merge(self, other):
        if other is not None:
            self.values |= other.values

    def estimate(self):
        return len(self.values)

    def serialize(self):
        return pickle.dumps(self.values, protocol=5)

    def deserialize(self, data):
        copy = Exact(0)
        copy.values = pickle.loads(data)
        return copy


HLL = {
    "tidemill-python": Tidemill,
    "datasketches-python-4": lambda log2m: DataSketches(log2m, 4),
    "datasketches-python-8": lambda log2m: DataSketches(log2m, 8),
    "python-set": Exact,
}


def hll(peer: str, log2m: int, values: int) -> dict:
    new = HLL[peer]
    sketches = 3 if new is Exact else SKETCHES
    times = max(1, min(sketches, INSERTS // values))
    integers = scrambled(np.arange(values)).view(np.int64)
    texts = [f"k{n:09d}" for n in range(values)]
    ns, estimates = {}, []

    def fill(step, data):
        took = 0.0
        for _ in range(times):
            sketch = new(log2m)
            took += timed(lambda: sketch.add(data))[0]
        ns[step] = took * 1e9 / (times * values)
        estimates.append(sketch.estimate())
        return sketch

    def each(step, work, of):
        took, answers = timed(lambda: [work(sketch) for sketch in of])
        ns[step] = took * 1e9 / len(of)
        return answers

    whole = fill("integers", integers)
    fill("strings", texts)
    third = values // 3
    left, right = new(log2m), new(log2m)
    left.add(integers[: 2 * third])
    right.add(integers[third:])
    data = left.serialize()
    merged = [left.deserialize(data) for _ in range(sketches)]
    if isinstance(left, DataSketches):
        for sketch in merged:
            sketch.merge(None)
    each("merge", lambda sketch: sketch.merge(right), merged)
    estimates.append(each("estimate after a merge", lambda sketch: sketch.estimate(), merged)[0])
    data = whole.serialize()
    filled = [whole.deserialize(data) for _ in range(sketches)]
    for sketch in filled:
        sketch.add(integers[:1])
    estimates.append(each("estimate", lambda sketch: sketch.estimate(), filled)[0])
    data = each("serialize", lambda sketch: sketch.serialize(), filled)[0]
    read = each("deserialize", lambda _: whole.deserialize(data), filled)
    estimates.append(read[0].estimate())
    error = 0 if new is Exact else 1.04 / (1 << log2m) ** 0.5
    return {"ns": ns, "bytes": len(data), "estimates": estimates, "error": error}


# ---------------------------------------------------------------------- sets


class Numpy:
    """Sorted arrays. NumPy's `unique`, on which `union1d` stands, hashes first; sorting is quicker."""

    @staticmethod
    def without_twins(ids):
        first = np.ones(len(ids), bool)
        np.not_equal(ids[1:], ids[:-1], out=first[1:])
        return ids[first]

    def build(self, ids):
        return self.without_twins(np.sort(ids))

    def union(self, left, right):
        return self.without_twins(np.sort(np.concatenate([left, right]), kind="stable"))

    def intersection(self, left, right):
        return np.intersect1d(left, right, assume_unique=True)

    def in_both(self, left, right):
        return len(self.intersection(left, right))

    def ids(self, found):
        return found

    def write(self, found, path):
        np.save(path, found)

    def open(self, path, number):
        ids = np.load(path, mmap_mode="r")
        return ids[np.searchsorted(ids, number)] == number

    def memory(self, left, right):
        return left.nbytes + right.nbytes


class PyRoaring:
    """CRoaring's set of 64-bit numbers."""

    def __init__(self):
        from pyroaring import BitMap64

        self.of = BitMap64

    def build(self, ids):
        # The quickest way in.
        return self.of(array.array("Q", ids.tobytes()))

    def union(self, left, right):
        return left | right

    def intersection(self, left, right):
        return left & right

    def in_both(self, left, right):
        return left.intersection_cardinality(right)

    def ids(self, found):
        return np.fromiter(found, np.uint64, len(found))

    def write(self, found, path):
        path.write_bytes(found.serialize())

    def open(self, path, number):
        return int(number) in self.of.deserialize(path.read_bytes())


class PythonSet:
    """Python's own."""

    def build(self, ids):
        return set(ids.tolist())

    def union(self, left, right):
        return left | right

    def intersection(self, left, right):
        return left & right

    def in_both(self, left, right):
        return len(left & right)

    def ids(self, found):
        return np.fromiter(found, np.uint64, len(found))

    def write(self, found, path):
        path.write_bytes(pickle.dumps(found, protocol=5))

    def open(self, path, number):
        return int(number) in pickle.loads(path.read_bytes())


SETS = {"numpy": Numpy, "pyroaring": PyRoaring, "python-set": PythonSet}


def sets(peer: str, kind: str, count: int, folder: Path) -> dict:
    how = SETS[peer]()
    numbers = np.arange(count + count // 2, dtype=np.uint64)
    of = scrambled(numbers + np.uint64(1 << 40)) % np.uint64(3)
    ids = scrambled(numbers) if kind == "random" else numbers
    first, second = ids[of != 1], ids[of != 0]
    both, parity = int((of == 2).sum()), int(np.bitwise_xor.reduce(ids[of == 2]))
    either, all_parity = len(ids), int(np.bitwise_xor.reduce(ids))
    last = first[-1]
    del numbers, of, ids
    seconds = {}

    def check(what, found, length, expected):
        found = how.ids(found)
        if len(found) != length or int(np.bitwise_xor.reduce(found)) != expected:
            raise SystemExit(f"the {what} is wrong")

    before = resident_bytes()
    seconds["build"], (left, right) = timed(lambda: (how.build(first), how.build(second)))
    # What an allocator has taken from the system: nothing tells it more closely for all of them.
    memory = how.memory(left, right) if hasattr(how, "memory") else resident_bytes() - before
    seconds["union"], found = timed(lambda: how.union(left, right))
    check("union", found, either, all_parity)
    del found
    seconds["intersection"], found = timed(lambda: how.intersection(left, right))
    check("intersection", found, both, parity)
    del found
    seconds["in both"], found = timed(lambda: how.in_both(left, right))
    if found != both:
        raise SystemExit(f"{found} in both, not {both}")
    path = folder / "set.npy"
    seconds["write"], _ = timed(lambda: how.write(left, path))
    disk = path.stat().st_size
    del left, right
    seconds["open"], found = timed(lambda: how.open(path, last))
    if not found:
        raise SystemExit("an id is not found in the file")
    return {"s": seconds, "memory": memory, "disk": disk, "both": both, "either": either, "parity": f"{parity:x}"}


def main() -> None:
    what, peer, *words = sys.argv[1:]
    if what == "hll":
        found = hll(peer, int(words[0]), int(words[1]))
    else:
        found = sets(peer, words[0], int(words[1]), Path(words[2]))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
