"""What is in the sketches that are compared: around each edge at which their form changes."""

from typing import NamedTuple


class Parameters(NamedTuple):
    """The parameters of a sketch."""

    log2m: int
    regwidth: int
    explicit: str | int
    sparse: bool | int

    @property
    def registers(self):
        """How many registers there are."""
        return 1 << self.log2m

    @property
    def postgresql_sparse_max(self):
        """How many registers PostgreSQL writes sparsely at most."""
        word = self.log2m + self.regwidth
        return -(-self.registers * self.regwidth // word) - 1

    @property
    def java_sparse_max(self):
        """How many java-hll does."""
        word = self.log2m + self.regwidth
        return 1 << max(self.registers * self.regwidth // word, 1).bit_length() - 1

    def threshold(self):
        """Tell up to how many values the count is exact."""
        if self.explicit != "auto":
            return self.explicit
        return min((self.registers * self.regwidth + 7) // 8 // 8, 16_383)


#: Explicit thresholds, with sparse registers or without.
SETTINGS = [("auto", True), (0, True), (1, True), (64, True), ("auto", False), (0, False)]


def hashes(count, log2m):
    """So many hashes that fill a register each, with values from 1 to 20."""
    return [1 << (i % 20 + log2m) | i for i in range(count)]


def counts(parameters, registers_max):
    """Give the numbers of filled registers at which a form changes, one less and one more."""
    edges = {0, parameters.threshold(), parameters.registers}
    edges |= {parameters.postgresql_sparse_max, parameters.java_sparse_max}
    if isinstance(parameters.sparse, int):
        edges.add(int(parameters.sparse))
    around = {edge + step for edge in edges for step in (-1, 0, 1)}
    return sorted(n for n in around if 0 <= n <= min(parameters.registers, registers_max))
