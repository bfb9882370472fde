"""Writes data of the other benchmarks as Arrow files, in the peers' environment.

`prepare.py flights PARQUET ROWS FILE`: the first flights of the benchmark `flights`.
`prepare.py access LOG ROWS FILE`: the access log of the benchmark `text`, over and over.
`prepare.py blobs ARROW LINES FILE...`: events with the lines of a file in place of their input; an
empty line is a null. A file is `NAME.arrow`, `NAME-none.parquet` or `NAME-zstd1.parquet`.
`prepare.py pickles ARROW LINES`: each input as a pickled dict in base64, on a line.
"""

import base64
import datetime
import pickle
import re
import sys
from pathlib import Path

import pyarrow
import pyarrow.ipc
import pyarrow.parquet

BATCH_ROWS = 1024
GROUP_ROWS = 100_000
INPUT = "input"
COMBINED = re.compile(
    r'(?P<ip>[^ ]+) (?P<ident>[^ ]+) (?P<user>[^ ]+) \[(?P<ts>[^]]+)\] "(?P<request>(?:[^"\\]|\\.)*)" '
    r'(?P<status>\d{3}) (?P<bytes>\d+|-) "(?P<referrer>(?:[^"\\]|\\.)*)" "(?P<user_agent>(?:[^"\\]|\\.)*)"'
)


def main() -> None:
    match sys.argv[1:]:
        case ["flights", source, rows, file]:
            write(flights(source, int(rows)), file)
        case ["access", source, rows, file]:
            write(access(Path(source), int(rows)), file)
        case ["blobs", source, lines, *files]:
            table = blobs(source, Path(lines))
            for file in files:
                write(table, file)
        case ["pickles", source, lines]:
            pickles(source, Path(lines))
        case _:
            sys.exit(__doc__)


def write(table: pyarrow.Table, file: str) -> None:
    if file.endswith(".parquet"):
        zstd = {"compression": "zstd", "compression_level": 1}
        codec = zstd if file.endswith("-zstd1.parquet") else {"compression": "none"}
        pyarrow.parquet.write_table(table, file, row_group_size=GROUP_ROWS, **codec)
        return
    with pyarrow.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=BATCH_ROWS)


def flights(source: str, rows: int) -> pyarrow.Table:
    return pyarrow.parquet.read_table(source).slice(0, rows).combine_chunks()


def access(source: Path, rows: int) -> pyarrow.Table:
    lines = source.read_text(errors="surrogateescape").splitlines()
    matches = [match for match in map(COMBINED.fullmatch, lines) if match]
    found = [match.groupdict() for match in matches if is_text(match[0])]
    text = pyarrow.string()
    columns = {
        "ip": (text, lambda row: row["ip"]),
        "ident": (text, lambda row: given(row["ident"])),
        "user": (text, lambda row: given(row["user"])),
        "ts": (pyarrow.timestamp("us", tz="UTC"), lambda row: moment(row["ts"])),
        "method": (text, lambda row: request(row)[0]),
        "path": (text, lambda row: request(row)[1]),
        "protocol": (text, lambda row: request(row)[2]),
        "status": (pyarrow.int64(), lambda row: int(row["status"])),
        "bytes": (pyarrow.int64(), lambda row: None if row["bytes"] == "-" else int(row["bytes"])),
        "referrer": (text, lambda row: given(row["referrer"])),
        "user_agent": (text, lambda row: given(row["user_agent"])),
    }
    once = pyarrow.table(
        {name: pyarrow.array(map(value, found), kind) for name, (kind, value) in columns.items()}
    )
    return pyarrow.concat_tables([once] * -(-rows // len(found))).slice(0, rows).combine_chunks()


def is_text(line: str) -> bool:
    try:
        line.encode()
        return True
    except UnicodeEncodeError:
        return False


def given(value: str) -> str | None:
    return None if value == "-" else value


def moment(value: str) -> datetime.datetime:
    return datetime.datetime.strptime(value, "%d/%b/%Y:%H:%M:%S %z")


def request(row: dict) -> list[str | None]:
    """Method, path and protocol; all is the path where they are not three."""
    words = row["request"].split(" ")
    return words if len(words) == 3 else [None, given(row["request"]), None]


def blobs(source: str, lines: Path) -> pyarrow.Table:
    table = pyarrow.ipc.open_file(source).read_all().combine_chunks()
    values = pyarrow.array([line or None for line in lines.read_text().splitlines()], pyarrow.string())
    index = table.schema.get_field_index(INPUT)
    return table.set_column(index, pyarrow.field(INPUT, pyarrow.string()), values)


def pickles(source: str, lines: Path) -> None:
    inputs = pyarrow.ipc.open_file(source).read_all().column(INPUT).to_pylist()
    with open(lines, "wb") as file:
        for value in inputs:
            blob = b"" if value is None else base64.b64encode(pickle.dumps(value, 5))
            file.write(blob + b"\n")


if __name__ == "__main__":
    main()
