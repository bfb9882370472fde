"""What Tidemill's readers did while a query ran: `watch.py ENDPOINT KEY NAME`, of `queries.py`.

Prints lines of numbers between tabs, after a line of their names, about two hundred a second.
"""

import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import queries  # noqa: E402
import tidemill as tm  # noqa: E402
from readers import BUCKET, tidemill_options  # noqa: E402

STEP_S = 0.005


def main() -> None:
    endpoint, key, name = sys.argv[1:]
    sql = queries.SQL[name].format(table=f"'s3://{BUCKET}/{key}'")
    over = threading.Event()
    rows: list[tuple[float, int, int, float]] = []

    def look() -> None:
        is_last = False
        while not is_last:
            is_last = over.is_set()
            stats = tm.read_stats()
            rows.append((1e3 * (time.monotonic() - began), stats.fetched_bytes, stats.asked_bytes, 1e3 * stats.stall_seconds))
            time.sleep(STEP_S)

    began = time.monotonic()
    looking = threading.Thread(target=look)
    looking.start()
    tm.query(sql, storage_options=tidemill_options(endpoint)).to_pylist()
    over.set()
    looking.join()
    print("ms", "fetched_bytes", "asked_bytes", "stall_ms", sep="\t")
    for row in rows:
        print(*row, sep="\t")


if __name__ == "__main__":
    main()
