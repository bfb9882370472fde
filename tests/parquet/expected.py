"""Expectations for single files: refusals, deliberate differences and skipped files."""

from __future__ import annotations

import fnmatch

# Patterns of files that are not read, and why.
SKIPPED: dict[str, str] = {
    "data/large_string_map.brotli.parquet": "a column chunk of more than 2 GB",
    "data/_KEY_MATERIAL_FOR_*": "keys of an encrypted file",
}

# Patterns of files that Tidemill refuses, and a part of the message.
REFUSED: dict[str, str] = {
    "bad_data/ARROW-GH-41317.parquet": "the footer cannot be read",
    "bad_data/ARROW-GH-41321.parquet": "a page of column `int64` cannot be read",
    "bad_data/ARROW-GH-45185.parquet": "a page of column `x.list.element` cannot be read",
    "bad_data/ARROW-GH-47662.parquet": "a page of column `flba_field` cannot be read",
    "bad_data/ARROW-RS-GH-6229-DICTHEADER.parquet": "a page of column `name` cannot be read",
    "bad_data/ARROW-RS-GH-6229-LEVELS.parquet": "a page of column `outer.list.item.c` cannot be",
    "bad_data/PARQUET-1481.parquet": "the footer cannot be read",
    # The others do not look at checksums by default.
    "data/datapage_v1-corrupt-checksum.parquet": "Page CRC checksum mismatch",
    "data/rle-dict-uncompressed-corrupt-checksum.parquet": "Page CRC checksum mismatch",
    "data/*encrypt_columns_plaintext_footer.parquet.encrypted": "are encrypted",
    "data/*.parquet.encrypted": "its footer is encrypted",
}

# Patterns of files, the other reader, and why its rows differ.
DIFFERENT: list[tuple[str, str, str]] = [
    ("data/int96_from_spark.parquet", "pyarrow", "wraps around at 64 bits of nanoseconds"),
    ("data/int96_from_spark.parquet", "duckdb", "wraps around in the year 290000"),
]

# Files that only Tidemill reads: without keys PyArrow aborts the process.
NOT_ASKED = "*.encrypted"


def first_match(patterns: dict[str, str], name: str) -> tuple[str, str] | None:
    """The first pattern that a file's name matches, and its text."""
    for pattern, text in patterns.items():
        if fnmatch.fnmatchcase(name, pattern):
            return pattern, text
    return None


def reason(name: str, reader: str) -> tuple[tuple[str, str], str] | None:
    """The entry for a difference from a reader, and why it is right."""
    for pattern, other, why in DIFFERENT:
        if other == reader and fnmatch.fnmatchcase(name, pattern):
            return (pattern, other), why
    return None
