"""Corner cases of CSV and JSON lines, and what each reader makes of them.

    python3 bench/text/corner_cases.py            the tables of docs/corner-cases.md
    python3 bench/text/corner_cases.py --check    compare them with those that stand there
    python3 bench/text/corner_cases.py --say      each engine's own words, messages included
    python3 bench/text/corner_cases.py --only csv.quote

Run it with the Python that has the peers of `bench/requirements.txt`; `TIDEMILL` names the
binary. A case is a file's bytes, the types of its columns where they are given, and the columns
that are asked for. Every engine is told the format, that there is a header, and the types: what
it would guess about a file of two lines says little. Where a case gives no types, the engine
finds names and types itself.

An engine runs in a process of its own, so that one that crashes is seen to.
"""

import argparse
import csv
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "corner-cases.md"
ENGINES = ["tidemill", "arrow", "duckdb", "polars", "python"]
TITLES = {"tidemill": "tidemill", "arrow": "arrow", "duckdb": "DuckDB", "polars": "Polars", "python": "Python"}
TEXT, INT, FLOAT, DATE, TIME, ZONED = "TEXT", "BIGINT", "DOUBLE", "DATE", "TIMESTAMP(6)", "TIMESTAMP(6) WITH TIME ZONE"


class Case:
    def __init__(self, name, data, types, wanted=None, shown=None, args=(), before=b""):
        self.name = name
        data = data if isinstance(data, bytes) else data.encode()
        self.text, self.data = data, before + data
        self.types = types
        self.wanted = wanted
        self.args = list(args)
        self.shown = shown
        # Records whose rows are not shown.
        self.skipped = before.count(b"\n")

    def input(self) -> str:
        if self.shown:
            return self.shown
        text = "".join(
            chr(b) if 0x20 <= b < 0x7F else {10: "\\n", 13: "\\r", 9: "\\t"}.get(b, f"\\x{b:02x}") for b in self.text
        )
        return code(text)


def csv_case(name, rows, wanted=None, end="\n", header=None, types=None, **more):
    """Records below a header of the columns of `types`."""
    types = types or {"a": TEXT, "b": TEXT}
    rows = rows if isinstance(rows, bytes) else rows.encode()
    header = ",".join(types) if header is None else header
    return Case(name, header.encode() + b"\n" + rows + end.encode(), types, wanted, **more)


AB = {"a": TEXT, "b": TEXT}
N = {"n": INT, "b": TEXT}
CSV = [
    csv_case("line end in quotes", '"x\ny",1'),
    csv_case("doubled quotes", '"x ""y"" z",1'),
    csv_case("quote in an unquoted field", 'x"y,1'),
    csv_case("quotes that begin within a field", 'x"y,z",1'),
    csv_case("space before a quote", ' "x,y",1'),
    csv_case("text after a closing quote", '"x"y,1'),
    csv_case("quote that is never closed", 'u,1\n"x,2\nv,3'),
    csv_case("the same in a column that is not read", 'u,1\n"x,2\nv,3', wanted=["b"]),
    csv_case("lone CR", "x,1\ry,2"),
    csv_case("CRLF", "x,1\r\ny,2\r", header="a,b\r"),
    csv_case("CR in quotes", '"x\ry",1'),
    csv_case("blank line between records", "x,1\n\ny,2"),
    csv_case("blank line, one column", "x\n\ny", types={"a": TEXT}),
    csv_case('`""` on a line, one column', 'x\n""\ny', types={"a": TEXT}),
    csv_case("line of spaces", "x,1\n  \ny,2"),
    csv_case("too few fields", "x,1\ny\nz,3"),
    csv_case("too many fields", "x,1\ny,2,3\nz,3"),
    csv_case("comma at the end", "x,1,\ny,2,"),
    csv_case("empty and `\"\"` in a text column", ',""'),
    csv_case("empty and `\"\"` in a number column", ',""', types={"n": INT, "m": INT}),
    csv_case("spaces around a value", " x , 1 "),
    csv_case("spaces around a number", " 1 ,x", types=N),
    Case("byte-order mark", b"\xef\xbb\xbfa,b\nx,1\n", None),
    csv_case("invalid UTF-8", b"\xff,1\ny,2"),
    csv_case("invalid UTF-8 in a column that is not read", b"\xff,1\ny,2", wanted=["b"]),
    csv_case("NUL", b"x\x00y,1"),
    csv_case("leading zeros, number column", "007,x", types=N),
    Case("leading zeros, type not given", "n,b\n007,x\n", None),
    csv_case("`+5`", "+5,x", types=N),
    csv_case("`1e3` in an integer column", "1e3,x", types=N),
    csv_case("`1.5` in an integer column", "1.5,x", types=N),
    csv_case("`1.0` in an integer column", "1.0,x", types=N),
    csv_case("integer beyond 64 bits", "9223372036854775808,x", types=N),
    Case("the same, type not given", "n,b\n9223372036854775808,x\n", None),
    Case("integer of 23 digits, type not given", "n,b\n99999999999999999999999,x\n", None),
    csv_case("number in quotes", '"5",x', types=N),
    csv_case("`-0.0`", "-0.0,x", types={"f": FLOAT, "b": TEXT}),
    csv_case("`NaN`, `inf`, `-Infinity`", "NaN,inf\n-Infinity,1", types={"f": FLOAT, "g": FLOAT}),
    csv_case("`1e400`", "1e400,x", types={"f": FLOAT, "b": TEXT}),
    csv_case("`1_000`", "1_000,x", types=N),
    csv_case("date", "2026-02-28,x", types={"d": DATE, "b": TEXT}),
    csv_case("date that does not exist", "2026-02-30,x", types={"d": DATE, "b": TEXT}),
    csv_case("date with a time in a date column", "2026-01-02 03:04:05,x", types={"d": DATE, "b": TEXT}),
    csv_case("offset in a timestamp without zone", "2026-01-02T03:04:05+02:00,x", types={"t": TIME, "b": TEXT}),
    csv_case("offset in a timestamp with zone", "2026-01-02T03:04:05+02:00,x", types={"t": ZONED, "b": TEXT}),
    Case("the same, type not given", "t,b\n2026-01-02T03:04:05+02:00,x\n", None),
    csv_case("no offset in a timestamp with zone", "2026-01-02T03:04:05,x", types={"t": ZONED, "b": TEXT}),
    csv_case("seven digits of a second, of six", "2026-01-02T03:04:05.1234567,x", types={"t": TIME, "b": TEXT}),
    csv_case("leap second", "2016-12-31T23:59:60,x", types={"t": TIME, "b": TEXT}),
    csv_case("`24:00:00`", "2016-12-31T24:00:00,x", types={"t": TIME, "b": TEXT}),
    Case("header alone", "a,b\n", AB),
    Case("empty file", "", AB, shown="(nothing)"),
    csv_case("no line end at the end", "x,1\ny,2", end=""),
    csv_case("comma as the last byte", "x,1\ny,", end=""),
    csv_case("field of 3 MB", "x" * 3_000_000 + ",1", shown="`a,b\\nxxx…x,1\\n`"),
    Case("two columns of one name", "a,a\n1,2\n", None),
    Case("column without a name", "a,\n1,2\n", None),
    Case("names that differ in case", "a,A\n1,2\n", None),
]


A, TA, FA = {"a": INT}, {"a": TEXT}, {"a": FLOAT}


def json_case(name, lines, types=A, alone=False, **more):
    """Lines behind a good one, unless alone: a file of which every line is bad is another case."""
    lines = lines if isinstance(lines, bytes) else lines.encode()
    return Case(name, lines + b"\n", types, before=b"" if alone else b'{"a":null}\n', **more)


JSON = [
    json_case("key twice", '{"a":1,"a":2}'),
    json_case("key twice, type not given", '{"a":1,"a":2}', types=None),
    json_case("order of keys", '{"a":1,"b":2}\n{"b":3,"a":4}', types={"a": INT, "b": INT}, alone=True),
    json_case("missing, and `null`", '{"b":1}\n{"a":null}'),
    json_case("empty string in a text column", '{"a":""}', types=TA),
    json_case("empty object", "{}"),
    json_case("declared key that no record has", '{"b":1}', alone=True),
    json_case("escapes in a key", r'{"\u0061":1}'),
    json_case("keys that differ in case", '{"a":1,"A":2}'),
    json_case("surrogate pair", r'{"a":"\ud83d\ude00"}', types=TA),
    json_case("half of a surrogate pair", r'{"a":"\ud83d"}', types=TA),
    json_case("the same in a value that is not read", r'{"a":1,"b":"\ud83d"}'),
    json_case("escape that does not exist", r'{"a":"\q"}', types=TA),
    json_case(r"`\u0000`", r'{"a":"x\u0000y"}', types=TA),
    json_case("integer beyond 64 bits", '{"a":9223372036854775808}'),
    json_case("the same, type not given", '{"a":9223372036854775808}', types=None),
    json_case("integer of 23 digits, type not given", '{"a":99999999999999999999999}', types=None),
    json_case("`1.0` in an integer column", '{"a":1.0}'),
    json_case("`1.5` in an integer column", '{"a":1.5}'),
    json_case("`1e3` in an integer column", '{"a":1e3}'),
    json_case("`1e400`", '{"a":1e400}', types=FA),
    json_case("`-0` in a float column", '{"a":-0}', types=FA),
    json_case("`9007199254740993` in a float column", '{"a":9007199254740993}', types=FA),
    json_case("leading zero", '{"a":01}'),
    json_case("leading zero in a value that is not read", '{"a":1,"b":01}'),
    json_case("the same, `--strict`", '{"a":1,"b":01}', args=["--strict"]),
    json_case("`+1`", '{"a":+1}'),
    json_case("`1.` and `.5`", '{"a":1.}\n{"a":.5}', types=FA),
    json_case("misspelt literal in a value that is not read", '{"a":1,"b":tru}'),
    json_case("`True`", '{"a":True}', types={"a": "BOOLEAN"}),
    json_case("`NaN`", '{"a":NaN}', types=FA),
    json_case('`"NaN"`', '{"a":"NaN"}', types=FA),
    json_case("number in quotes", '{"a":"5"}'),
    json_case("number in a text column", '{"a":1.50}', types=TA),
    json_case("object in a text column", '{"a":{"b": 1}}', types=TA),
    json_case("numbers and texts in a column, type not given", '{"a":1}\n{"a":"x"}', types=None),
    json_case("integers and floats in a column, type not given", '{"a":1}\n{"a":2.5}', types=None),
    json_case("object where a number is expected", '{"a":{"b":1}}'),
    json_case("`true` in an integer column", '{"a":true}'),
    json_case("comma before the brace", '{"a":1,}'),
    json_case("doubled comma", '{"a":1,,"b":2}'),
    json_case("no comma", '{"a":1 "b":2}'),
    json_case("brace that is never closed", '{"a":1\n{"a":2}'),
    json_case("two objects on a line", '{"a":1}{"a":2}'),
    json_case("two objects, comma between", '{"a":1},\n{"a":2}'),
    json_case("text behind the object", '{"a":1} x'),
    json_case("object over two lines", '{"a":\n1}', alone=True),
    json_case("array of objects", '[{"a":1},{"a":2}]', alone=True),
    json_case("array on each line", '[{"a":1}]\n[{"a":2}]', alone=True),
    json_case("no line a JSON object", '{"a":1,}', alone=True),
    json_case("number on a line", '{"a":1}\n5'),
    json_case("`null` on a line", '{"a":1}\nnull'),
    json_case("comment", '{"a":1} // x\n{"a":2}'),
    json_case("tab in a string", '{"a":"x\ty"}', types=TA),
    json_case("line feed in a string", '{"a":"x\ny"}', types=TA),
    json_case("NUL in a string", b'{"a":"x\x00y"}', types=TA),
    json_case("strings in single quotes", "{'a':1}"),
    json_case("key without quotes", "{a:1}"),
    json_case("invalid UTF-8", b'{"a":"\xff"}', types=TA),
    json_case("invalid UTF-8 in a value that is not read", b'{"a":1,"b":"\xff"}'),
    json_case("100 levels, not read", '{"a":1,"b":' + "[" * 100 + "]" * 100 + "}", shown='`{"a":1,"b":[[…]]}`'),
    json_case(
        "100,000 levels, not read", '{"a":1,"b":' + "[" * 100_000 + "]" * 100_000 + "}", shown='`{"a":1,"b":[[…]]}`'
    ),
    json_case("empty line", '{"a":1}\n\n{"a":2}'),
    json_case("line of spaces", '{"a":1}\n  \n{"a":2}'),
    json_case("CRLF", '{"a":1}\r\n{"a":2}\r'),
    json_case("byte-order mark", b'\xef\xbb\xbf{"a":1}', alone=True),
    Case("no line end at the end", '{"a":1}', A),
    Case("broken last line", '{"a":1}\n{"a":', A),
    Case("empty file", "", A, shown="(nothing)"),
]
FORMATS = {"csv": CSV, "json": JSON}


# ------------------------------------------------------------------------------- engines


def rows_of(table) -> list:
    """An Arrow table's rows; a name is kept where the case is about names."""
    return [list(row) for row in zip(*(plain(column) for column in table.columns))] if table.num_columns else []


def plain(column) -> list:
    import pyarrow as pa

    if pa.types.is_timestamp(column.type):
        # To microseconds, with the zone as `Z`: the peers' zones are UTC by other names.
        zone = "Z" if column.type.tz else ""
        values = column.cast(pa.timestamp("us", tz="UTC" if zone else None)).to_pylist()
        return [v and v.replace(tzinfo=None).isoformat() + zone for v in values]
    return column.to_pylist()


def names(case: Case) -> list[str]:
    return case.wanted or list(case.types)


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def tidemill(format: str, case: Case, file: Path):
    import pyarrow as pa

    args = [f"{name} {kind}" for name, kind in (case.types or {}).items() if name in names(case)]
    select = ", ".join(map(quoted, names(case))) if case.types else "*"
    binary = os.environ.get("TIDEMILL", "target/release/tidemill")
    out = file.with_suffix(".arrows")
    command = [binary, "query", f"SELECT {select} FROM '{file.name}'", "--threads", "1", "--format", "arrow", "-o", out.name]
    command += ["--overwrite", *case.args] + (["--schema", ", ".join(args)] if args else [])
    env = {**os.environ, "TIDEMILL_HOME": str(file.parent / "home")}
    ran = subprocess.run(command, cwd=file.parent, env=env, capture_output=True, text=True, errors="replace")
    if ran.returncode:
        raise ValueError(ran.stderr.strip())
    table = pa.ipc.open_stream(out.read_bytes()).read_all()
    return table, rows_of(table)


def arrow(format: str, case: Case, file: Path):
    """The crates arrow-csv and arrow-json, as DataFusion's package has them."""
    import pyarrow as pa
    from datafusion import SessionConfig, SessionContext

    kinds = {
        TEXT: pa.string(), INT: pa.int64(), FLOAT: pa.float64(), DATE: pa.date32(), "BOOLEAN": pa.bool_(),
        TIME: pa.timestamp("us"), ZONED: pa.timestamp("us", tz="UTC"),
    }
    context = SessionContext(SessionConfig().with_target_partitions(1))
    schema = pa.schema([(name, kinds[kind]) for name, kind in case.types.items()]) if case.types else None
    read = context.read_csv if format == "csv" else context.read_json
    frame = read(str(file), schema=schema, file_extension=file.suffix)
    if case.types:
        frame = frame.select(*map(quoted, names(case)))
    table = frame.to_arrow_table()
    return table, rows_of(table)


def duckdb(format: str, case: Case, file: Path):
    import duckdb

    kinds = {TEXT: "VARCHAR", TIME: "TIMESTAMP", ZONED: "TIMESTAMPTZ"}
    options = []
    if case.types:
        given = case.types if format == "csv" else {name: case.types[name] for name in names(case)}
        columns = ", ".join(f"'{name}': '{kinds.get(kind, kind)}'" for name, kind in given.items())
        options = [f"columns = {{{columns}}}"]
    if format == "csv":
        options += ["header = true", "delim = ','", "quote = '\"'", "escape = '\"'"]
        options += ["auto_detect = false"] if case.types else []
    else:
        options += ["format = 'auto'"]
    connection = duckdb.connect()
    connection.execute("SET threads = 1; SET TimeZone = 'UTC'")
    select = ", ".join(map(quoted, names(case))) if case.types else "*"
    source = f"read_{format}('{file}', {', '.join(options)})"
    table = connection.execute(f"SELECT {select} FROM {source}").to_arrow_table()
    return table, rows_of(table)


def polars(format: str, case: Case, file: Path):
    import polars as pl

    kinds = {
        TEXT: pl.String, INT: pl.Int64, FLOAT: pl.Float64, DATE: pl.Date, "BOOLEAN": pl.Boolean,
        TIME: pl.Datetime("us"), ZONED: pl.Datetime("us", "UTC"),
    }
    schema = {name: kinds[kind] for name, kind in case.types.items()} if case.types else None
    frame = pl.scan_csv(file, schema=schema) if format == "csv" else pl.scan_ndjson(file, schema=schema)
    if case.types:
        frame = frame.select(names(case))
    frame = frame.collect()
    try:
        table = frame.to_arrow()
    except Exception:  # 128-bit integers are no type of Arrow
        return frame.columns, [list(row) for row in frame.rows()]
    return table, rows_of(table)


def python(format: str, case: Case, file: Path):
    """`csv.reader` over a file as its documentation opens one, and `json.loads` by line."""
    if format == "csv":
        with open(file, newline="", encoding="utf-8") as lines:
            records = list(csv.reader(lines))
        header = records[0] if records else []
        if case.wanted:
            places = [header.index(name) for name in case.wanted]
            return header, [[record[place] for place in places] for record in records[1:]]
        return header, records[1:]
    rows = []
    with open(file, encoding="utf-8") as lines:
        for line in lines:
            value = json.loads(line)
            if isinstance(value, dict):
                value = [value.get(name) for name in names(case)] if case.types else list(value.values())
            rows.append(value if isinstance(value, list) else [value])
    return list(case.types or []), rows


# -------------------------------------------------------------------------------- output


def code(text: str) -> str:
    text = text.replace("|", "\\|")
    ticks = "``" if "`" in text else "`"
    space = " " if "`" in text else ""
    return f"{ticks}{space}{text}{space}{ticks}"


def shown(value) -> str:
    if value is None:
        return "null"
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else ("-" if value < 0 else "") + "inf" if math.isinf(value) else repr(value)
    if isinstance(value, str):
        text = json.dumps(value, ensure_ascii=True)
        return text if len(text) < 60 else f"(text of {len(value):,})"
    if isinstance(value, (dict, list, bool, int)):
        return json.dumps(value)
    return str(value)


def answer(engine: str, format: str, case: Case, file: Path) -> dict:
    try:
        table, rows = globals()[engine](format, case, file)
    except Exception as error:
        return {"refused": f"{type(error).__name__}: {error}" if engine != "tidemill" else str(error)}
    except BaseException as error:  # a panic of a Rust library
        return {"refused": f"{type(error).__name__}: {error}", "panic": True}
    rows = rows[case.skipped :]
    text = "; ".join(", ".join(map(shown, row)) or "(no fields)" for row in rows) or "(no rows)"
    found = table if isinstance(table, list) else table.column_names
    # Where an engine finds the names itself, they are part of the answer.
    prefix = "(" + ", ".join(name.replace("\ufeff", "\\ufeff") for name in found) + ") " if not case.types and found else ""
    return {"rows": prefix + text}


def worker(engine: str, folder: Path, wanted: list[str]) -> None:
    for key in wanted:
        format, index = key.split(".")
        case = FORMATS[format][int(index)]
        file = folder / f"in.{format}"
        file.write_bytes(case.data)
        print(key, json.dumps(answer(engine, format, case, file)), flush=True)


def ask(engine: str, keys: list[str]) -> dict[str, dict]:
    """All answers of an engine, from as many processes as it crashes in."""
    answers: dict[str, dict] = {}
    with tempfile.TemporaryDirectory() as folder:
        while left := [key for key in keys if key not in answers]:
            command = [sys.executable, __file__, "--worker", engine, folder, *left]
            ran = subprocess.run(command, capture_output=True, text=True, errors="replace")
            for line in ran.stdout.splitlines():
                key, _, found = line.partition(" ")
                answers[key] = json.loads(found)
            missing = [key for key in left if key not in answers]
            if missing:
                answers[missing[0]] = {"refused": f"crash ({ran.returncode}): {ran.stderr[-300:]}", "crash": True}
    return answers


def reason(message: str) -> str:
    """Of tidemill's message the part that says what is wrong."""
    line = message.splitlines()[0]
    for candidate in message.splitlines()[1:]:
        if found := re.match(r"  \S+: line \d+.*?(?:, column `[^`]*`)?: (.*)", candidate):
            line = found[1]
            break
    line = line.removeprefix("error: ")
    return line.replace("|", "\\|")


def cell(engine: str, found: dict, ours: dict) -> str:
    if "crash" in found:
        return "**crashes**"
    if "panic" in found:
        return "panics"
    if "refused" in found:
        return f"refused: {reason(found['refused'])}" if engine == "tidemill" else "refused"
    if engine != "tidemill" and found == ours:
        return "same"
    return code(found["rows"])


def table(format: str, keys: list[str], answers: dict[str, dict[str, dict]]) -> str:
    lines = ["| | input | " + " | ".join(TITLES[e] for e in ENGINES) + " |", "| --- " * (2 + len(ENGINES)) + "|"]
    for key in keys:
        case = FORMATS[format][int(key.split(".")[1])]
        ours = answers["tidemill"][key]
        cells = [cell(engine, answers[engine][key], ours) for engine in ENGINES]
        lines.append(f"| {case.name} | {case.input()} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="a part of a case's name, after its format: csv.quote")
    parser.add_argument("--say", action="store_true", help="each engine's own words")
    parser.add_argument("--check", action="store_true", help="compare with the document")
    parser.add_argument("--worker", nargs="+", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        worker(args.worker[0], Path(args.worker[1]), args.worker[2:])
        return 0
    if not shutil.which(os.environ.get("TIDEMILL", "target/release/tidemill")):
        print("corner_cases.py: no tidemill: TIDEMILL names the binary", file=sys.stderr)
        return 2
    keys = [
        f"{format}.{index}"
        for format, cases in FORMATS.items()
        for index, case in enumerate(cases)
        if args.only in f"{format}.{case.name}"
    ]
    answers = {engine: ask(engine, keys) for engine in ENGINES}
    if args.say:
        for key in keys:
            format, index = key.split(".")
            case = FORMATS[format][int(index)]
            print(f"\n{format}: {case.name}: {case.input()}")
            for engine in ENGINES:
                found = answers[engine][key]
                text = found.get("rows") or found.get("refused", "")
                text = text[:900] if engine == "tidemill" else text.partition("\n")[0][:300]
                print(f"  {engine:9} {text}".replace("\n", "\n            "))
        return 0
    tables = {format: table(format, [k for k in keys if k.startswith(format + ".")], answers) for format in FORMATS}
    if args.check:
        document = DOCUMENT.read_text()
        wrong = [line for text in tables.values() for line in text.splitlines() if line not in document]
        print("\n".join(wrong) or "the document is as measured")
        return 1 if wrong else 0
    for format, text in tables.items():
        print(f"## {format}\n\n{text}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
