"""How fast logs are read that `--log-format` describes: processor seconds on one thread, one kind after
the other in each round, beside DuckDB's `regexp_extract` of the same fields where it is installed.

    TIDEMILL=target/release/tidemill python3 bench/text/log_formats.py LOG [--rounds 5] [--megabytes 256]

LOG is an access log in the Combined format; its lines that all kinds can read are repeated.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

LINE = re.compile(
    rb'^\S+ \S+ \S+ \[[^]]+\] "\w+ [^ "]+(?: HTTP/[0-9.]+)?" \d+ (?:\d+|-) "[^"\\]*" "[^"\\]*"$'
)
GROK = (
    r"%{IPORHOST:ip} %{USER:ident} %{USER:user} \[%{HTTPDATE:at}\] "
    r'"%{DATA:request}" %{INT:status} %{NOTSPACE:bytes:int} "%{DATA:referrer}" "%{DATA:agent}"'
)
NGINX = (
    "$remote_addr $ident $remote_user [$time_local] "
    '"$request" $status $body_bytes_sent "$http_referer" "$http_user_agent"'
)
EXPRESSION = r'^(\S+) (\S+) (\S+) \[([^]]+)\] "([^"]*)" (\d+) (\d+|-)'
KINDS = {
    "access-log": ["--source-format", "access-log"],
    "combined": ["--log-format", "combined"],
    "nginx": ["--log-format", NGINX],
    "patterns": ["--log-format", GROK],
    "%{COMBINEDAPACHELOG}": ["--log-format", "%{COMBINEDAPACHELOG}"],
}
DUCKDB = """
import duckdb, sys
duckdb.sql("SET threads = 1")
names = ["ip", "ident", "user", "at", "request", "status", "bytes"]
print(duckdb.sql(f'''SELECT p.status, count(*), sum(TRY_CAST(p.bytes AS BIGINT)) FROM (
  SELECT regexp_extract(line, $expression, {names}) AS p
  FROM read_csv('{sys.argv[1]}', columns = {{'line': 'VARCHAR'}}, delim = '\\\\0', quote = '', header = false))
  GROUP BY 1 ORDER BY 1''', params={"expression": sys.argv[2]}).fetchall())
"""


def seconds(command: list[str]) -> float:
    """Processor time of a command that has to succeed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{command[:2]}: {done.stderr}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("log", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--megabytes", type=int, default=256)
    arguments = parser.parse_args()
    program = os.environ.get("TIDEMILL", "target/release/tidemill")
    lines = [line for line in arguments.log.read_bytes().split(b"\n") if LINE.match(line)]
    once = b"".join(line + b"\n" for line in lines)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "access.log"
        path.write_bytes(once * (arguments.megabytes * 1_000_000 // len(once)))
        commands = {}
        for kind, flags in KINDS.items():
            status = "response" if kind.startswith("%") else "status"
            sql = f"SELECT {status}, count(*), sum(bytes) FROM '{path}' GROUP BY 1 ORDER BY 1"
            commands[kind] = [program, "query", sql, "--threads", "1", *flags]
        if subprocess.run([sys.executable, "-c", "import duckdb"], capture_output=True).returncode == 0:
            commands["DuckDB"] = [sys.executable, "-c", DUCKDB, str(path), EXPRESSION]
        found: dict[str, list[float]] = {kind: [] for kind in commands}
        for turn in range(arguments.rounds + 1):
            for kind, command in commands.items():
                path.read_bytes()
                taken = seconds(command)
                if turn > 0:
                    found[kind].append(taken)
        size = path.stat().st_size
        print("| read as | processor seconds | MB/s of one core |\n| --- | ---: | ---: |")
        for kind, taken in found.items():
            middle = statistics.median(taken)
            print(f"| {kind} | {middle:.2f} | {size / middle / 1e6:,.0f} |")


if __name__ == "__main__":
    main()
