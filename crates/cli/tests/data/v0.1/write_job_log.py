"""Writes jobs/00000001.log from docs/formats/job-log.md alone, as release 0.1 writes it.

    python3 write_job_log.py

Two jobs over twelve days, the second half of them with a faster mapper; a failure, an
interrupted run, a query that no table fits, and a record that a full disk cut short.
"""

import json
import pathlib
import zlib

DAY_US = 86_400_000_000
START_US = 1_794_268_800_000_000  # 2026-11-10T00:00:00Z
SLOW = (
    "SELECT CAST(ts AS DATE) AS day, state, user_id FROM source\n"
    "WHERE regexp_like(page, '^/(buy|cart)')"
)
FAST = SLOW.replace("regexp_like(page, '^/(buy|cart)')", "page IN ('/buy', '/cart')")


def line(record):
    covered = b"1 " + json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode()
    return b"\ntidemill-job %08x " % zlib.crc32(covered) + covered + b"\n"


def run(number, **fields):
    start_us = START_US + number * DAY_US // 2
    day, half = 10 + number // 2, number % 2 * 12
    return {
        "id": f"202611{day:02}T{half:02}0000-{0xC0FFEE00 + number:08x}",
        "verb": "run",
        "via": "command line",
        "version": "0.1.0",
        "start_us": start_us,
        "memory_limit_bytes": 8 << 30,
        "threads": 8,
        **fields,
    }


def visitors(number, is_fast):
    rows = 10_000_000 + number * 10_000
    map_us = (5_200_000 if is_fast else 13_000_000) + number * 11_000
    tables_us = 1_900_000 + number * 3_000
    wall_us = (map_us + tables_us) // 7
    return run(
        number,
        name="buyers-by-state",
        mapper=FAST if is_fast else SLOW,
        reducer="by day, state: buyers = unique(user_id)",
        sources=["s3://logs/2026-11-*/*.json.zst"],
        output="out/{day}.csv",
        command=["tidemill", "run", "buyers.toml", "--storage-option", "secret_access_key=***"],
        wall_us=wall_us,
        cpu_user_us=map_us + tables_us + 200_000,
        cpu_system_us=400_000,
        memory_peak_bytes=310_000_000 + number * 100_000,
        memory_byte_seconds=wall_us * 250,
        path="partial tables",
        steps=[
            {
                "name": "map",
                "bytes_in": rows * 41,
                "rows_in": rows,
                "rows_out": rows // 20,
                "cpu_us": map_us,
            },
            {"name": "tables", "rows_in": rows // 20, "rows_out": 350, "cpu_us": tables_us},
            {"name": "finish", "rows_in": 350, "rows_out": 350},
            {"name": "sink", "rows_in": 350, "rows_out": 350, "bytes_out": 7_410 + number},
        ],
        splits_done=26,
        splits_total=26,
        outcome="done",
    )


def errors(number, **fields):
    return run(
        number,
        **{
            "name": "errors-by-minute",
            "mapper": "SELECT date_trunc('minute', time) AS minute FROM source WHERE status >= 500",
            "reducer": "by minute: errors = count()",
            "sources": ["logs/access.log.gz"],
            "command": ["tidemill", "run", "errors.toml", "--max-bad", "1%"],
            "wall_us": 2_400_000 + number * 1_000,
            "cpu_user_us": 3_900_000 + number * 2_000,
            "cpu_system_us": 300_000,
            "memory_peak_bytes": 96_000_000,
            "memory_byte_seconds": 180_000_000,
            "path": "partial tables",
            "steps": [
                {
                    "name": "map",
                    "bytes_in": 52_000_000,
                    "rows_in": 2_400_000,
                    "rows_out": 1_200,
                    "cpu_us": 3_800_000,
                },
                {"name": "tables", "rows_in": 1_200, "rows_out": 600, "cpu_us": 40_000},
                {"name": "finish", "rows_in": 600, "rows_out": 600},
                {"name": "sink", "rows_in": 600, "rows_out": 600, "bytes_out": 14_000},
            ],
            "splits_done": 1,
            "splits_total": 1,
            "rejected": 17,
            "outcome": "done",
            **fields,
        },
    )


def records():
    for number in range(0, 20, 2):
        yield visitors(number, number >= 10)
        yield errors(number + 1)
    yield errors(
        20,
        wall_us=800_000,
        cpu_user_us=700_000,
        cpu_system_us=50_000,
        steps=[{"name": "map", "bytes_in": 9_000_000, "rows_in": 400_000}],
        splits_done=0,
        rejected=0,
        outcome="failed",
        error="52 malformed records, 1% allowed:",
    )
    yield run(
        21,
        verb="query",
        via="python",
        mapper="SELECT a.origin, p.name FROM 'flights.csv' a JOIN 'airports.csv' p ON a.origin = p.faa",
        wall_us=450_000,
        cpu_user_us=800_000,
        cpu_system_us=60_000,
        memory_peak_bytes=140_000_000,
        memory_byte_seconds=50_000_000,
        path="datafusion",
        steps=[{"name": "plan", "bytes_in": 31_000_000, "rows_in": 338_234, "rows_out": 336_776}],
        splits_done=3,
        splits_total=3,
        outcome="interrupted",
    )


log = b"".join(map(line, records()))
torn = line(errors(22))[:300]
log += torn + line(errors(23))
folder = pathlib.Path(__file__).parent / "jobs"
folder.mkdir(exist_ok=True)
(folder / "00000001.log").write_bytes(log)
