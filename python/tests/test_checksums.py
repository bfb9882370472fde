"""Parquet's page checksums, where a file has them: a flipped bit is an error that says where."""

import io

import pyarrow
import pyarrow.parquet
import pytest

import tidemill

ROWS = 4000


def written(**options):
    table = pyarrow.table(
        {
            "n": pyarrow.array([n * 7919 % 1009 for n in range(ROWS)], pyarrow.int64()),
            "s": [None if n % 7 == 0 else f"text {n % 31}" for n in range(ROWS)],
        }
    )
    sink = io.BytesIO()
    pyarrow.parquet.write_table(
        table, sink, write_page_checksum=True, data_page_size=2000, **options
    )
    return sink.getvalue()


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("codec", ["none", "snappy", "zstd"])
@pytest.mark.parametrize("dictionary", [False, True])
def test_a_flipped_bit_is_found_and_located(tmp_path, version, codec, dictionary):
    content = written(data_page_version=version, compression=codec, use_dictionary=dictionary)
    path = tmp_path / "a.parquet"
    sql = f"SELECT sum(n) AS n, count(s) AS c, min(s) AS low FROM '{path}'"
    path.write_bytes(content)
    expected = tidemill.query(sql).to_pylist()
    metadata = pyarrow.parquet.ParquetFile(io.BytesIO(content)).metadata.row_group(0)
    located = 0
    for column in (metadata.column(0), metadata.column(1)):
        start = column.dictionary_page_offset or column.data_page_offset
        end = start + column.total_compressed_size
        for at in range(start, end, max(1, (end - start) // 60)):
            damaged = bytearray(content)
            damaged[at] ^= 1 << at % 8
            path.write_bytes(damaged)
            try:
                # In the header of a page there are bytes that say nothing of its values.
                assert tidemill.query(sql).to_pylist() == expected, at
            except tidemill.TidemillError as error:
                name = column.path_in_schema
                located += f"a page of column `{name}`" in str(error) and "at byte" in str(error)
    assert located > 60
