"""Sketches of ours and of others behind one interface.

Ours are `tm.Hll`, where the Python package has it, else an example program of crates/sketch.
"""

import itertools
import os
import pathlib
import subprocess

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]


class MissingError(Exception):
    """What is to be compared with is not on this machine."""


def target():
    """Tell the folder of what is built."""
    return REPOSITORY / os.environ.get("CARGO_TARGET_DIR", "target")


class Program:
    """A program that keeps sketches by name: see crates/sketch/examples/hll.rs."""

    def __init__(self, command):
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self._numbers = itertools.count()

    def ask(self, *words):
        """Give the answer to a command."""
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline().rstrip("\n")
        assert answer and not answer.startswith("error: "), f"{words[:8]}: {answer}"
        return answer

    def new(self, log2m, regwidth, explicit, sparse, dialect):
        """Make an empty sketch."""
        sketch = ProgramSketch(self, f"s{next(self._numbers)}")
        self.ask("new", sketch.name, log2m, regwidth, explicit, _word(sparse), dialect)
        return sketch

    def read(self, text, sparse=True, dialect="postgresql"):
        """Read a sketch of hexadecimal digits."""
        sketch = ProgramSketch(self, f"s{next(self._numbers)}")
        self.ask("read", sketch.name, text, _word(sparse), dialect)
        return sketch

    def close(self):
        """End the program."""
        self._process.stdin.close()
        self._process.stdout.close()
        assert self._process.wait() == 0


def _word(sparse):
    return str(sparse).lower()


class ProgramSketch:
    """A sketch that a program keeps."""

    def __init__(self, program, name):
        self._program = program
        self.name = name

    def add_ints(self, start, end):
        """Add the integers from one to before the other."""
        self._program.ask("range", self.name, start, end)

    def add_texts(self, texts):
        """Add strings."""
        self._program.ask("texts", self.name, *("\\x" + text.encode().hex() for text in texts))

    def add_hashes(self, hashes):
        """Add values by signed hashes."""
        for start in range(0, len(hashes), 4096):
            self._program.ask("hashes", self.name, *hashes[start : start + 4096])

    def update(self, other):
        """Add what another has seen."""
        self._program.ask("update", self.name, other.name)

    def to_hex(self):
        r"""Write it as `\\x…`."""
        return self._program.ask("bytes", self.name)

    def cardinality(self):
        """Count."""
        return float(self._program.ask("cardinality", self.name))


class InPython:
    """`tm.Hll` as the programs are."""

    def __init__(self, hll):
        self._hll = hll

    def new(self, log2m, regwidth, explicit, sparse, dialect):
        """Make an empty sketch."""
        return PythonSketch(self._hll(log2m, regwidth, explicit, sparse, dialect))

    def read(self, text, sparse=True, dialect="postgresql"):
        """Read a sketch of hexadecimal digits."""
        return PythonSketch(
            self._hll.from_bytes(text, sparse=sparse, dialect=dialect, max_log2m=31)
        )

    def close(self):
        """Nothing to end."""


class PythonSketch:
    """A `tm.Hll`."""

    def __init__(self, hll):
        self.hll = hll

    def add_ints(self, start, end):
        """Add the integers from one to before the other."""
        self.hll.add_values(range(start, end))

    def add_texts(self, texts):
        """Add strings."""
        self.hll.add_values(texts)

    def add_hashes(self, hashes):
        """Add values by signed hashes."""
        self.hll.add_hashes(hashes)

    def update(self, other):
        """Add what another has seen."""
        self.hll.update(other.hll)

    def to_hex(self):
        r"""Write it as `\\x…`."""
        return self.hll.to_hex()

    def cardinality(self):
        """Count."""
        return self.hll.cardinality()


def ours():
    """Give our own sketches."""
    try:
        import tidemill
    except ImportError:
        tidemill = None
    if hasattr(tidemill, "Hll"):
        return InPython(tidemill.Hll)
    example = ["--package", "tidemill-sketch", "--example", "hll"]
    build = ["cargo", "build", "--quiet", "--release", "--locked", *example]
    subprocess.run(build, check=True, cwd=REPOSITORY)
    return Program([target() / "release" / "examples" / "hll"])
