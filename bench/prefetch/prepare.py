"""Makes a Parquet file of forty columns: `prepare.py ROWS FILE`. Whole numbers, of 2 to 2^40 values a column."""

import sys

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

COLUMNS = 40
GROUP = 1 << 17


def column(index: int, first: int, rows: int) -> pa.Array:
    """Multiples of an odd number, of which the low bits are taken off: they look like chance and need no NumPy."""
    numbers = pa.array(range(first, first + rows), pa.int64())
    factor = 0x9E3779B97F4A7C15 | (2 * index + 1)
    factor = factor - (1 << 64) if factor >= 1 << 63 else factor
    mixed = pc.bit_wise_xor(pc.multiply(numbers, factor), pc.shift_right(numbers, 3))
    return pc.bit_wise_and(pc.shift_right(mixed, 20), (1 << (1 + index)) - 1)


def main() -> None:
    rows, path = int(sys.argv[1]), sys.argv[2]
    names = [f"c{index:02}" for index in range(COLUMNS)]
    with pq.ParquetWriter(path, pa.schema([(name, pa.int64()) for name in names]), compression="zstd") as writer:
        for first in range(0, rows, GROUP):
            count = min(GROUP, rows - first)
            columns = [column(index, first, count) for index in range(COLUMNS)]
            writer.write_table(pa.table(columns, names=names), row_group_size=GROUP)


if __name__ == "__main__":
    main()
