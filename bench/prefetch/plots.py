"""Draws what reading ahead does while it reads: `plots.py PEERS TIDEMILL_PYTHON ENDPOINT TOTAL_MBS FOLDER`, which
`bench/run.py prefetch --plots` calls.

- `prefetch-sequential.svg`: one stream, which nobody told of its length, at full speed and by a consumer of 100 MB/s.
- `prefetch-parquet.svg`: a query over three of forty columns, and TPC-H's query 1.

The numbers are the reader's own, looked at a hundred times a second (`peers watch`), and those of
`tidemill.read_stats()` while a query runs (`watch.py`). A stall is counted when it ends: it is drawn back over the time
that it took.
"""

import subprocess
import sys
from pathlib import Path

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot  # noqa: E402

HERE = Path(__file__).resolve().parent
BUCKET = "bench"
SEQUENTIAL_BYTES = {"full speed": (0, 1_200_000_000), "consumer of 100 MB/s": (100, 400_000_000)}
QUERIES = {"three of forty columns": ("columns", "columns.parquet"), "TPC-H query 1": ("q1", "lineitem.parquet")}
# Rates and waits are means of so many milliseconds.
STEP_MS = {"sequential": 50, "parquet": 20}
COLOURS = {"rate": "#0b6e99", "window": "#c77700", "ahead": "#5a8f29", "stall": "#b03060", "limit": "#777777"}


def samples(command: list) -> dict[str, list[float]]:
    """The columns of what a command prints."""
    done = subprocess.run([str(word) for word in command], check=True, stdout=subprocess.PIPE, text=True)
    names, *rows = [line.split("\t") for line in done.stdout.splitlines()]
    return {name: [float(row[index]) for row in rows] for index, name in enumerate(names)}


def at(times: list[float], values: list[float], time: float) -> float:
    """A counter at a time, between the samples before and after it."""
    for index in range(1, len(times)):
        if times[index] >= time:
            before, after = times[index - 1], times[index]
            part = (time - before) / (after - before) if after > before else 1
            return values[index - 1] + part * (values[index] - values[index - 1])
    return values[-1]


def waits(times: list[float], stalled: list[float]) -> list[tuple[float, float]]:
    """When the reader waited, from and to: a wait is in the counter once it is over."""
    found: list[tuple[float, float]] = []
    for index in range(1, len(times)):
        took = stalled[index] - stalled[index - 1]
        if took > 0:
            found.append((max(0.0, times[index] - took), times[index]))
    return found


def share(spans: list[tuple[float, float]], start: float, end: float) -> float:
    """How much of a time is in some of the spans, in percent; several threads may wait at once."""
    covered, reached = 0.0, start
    for low, high in sorted(spans):
        low, high = max(low, reached), min(high, end)
        if high > low:
            covered += high - low
            reached = high
    return 100 * covered / (end - start)


def figure(runs: dict[str, dict[str, list[float]]], step: int, total_mbs: float, path: Path) -> None:
    pyplot.rcParams.update({"svg.fonttype": "none", "font.family": "sans-serif", "font.size": 9, "svg.hashsalt": "tidemill"})
    drawn, panels = pyplot.subplots(3, len(runs), figsize=(9, 5.6), sharex="col", sharey="row", squeeze=False, layout="constrained")
    for column, (title, run) in enumerate(runs.items()):
        times = run["ms"]
        edges = [step * index for index in range(int(times[-1] // step) + 1)] + [times[-1]]
        bins = [(low, high) for low, high in zip(edges, edges[1:]) if high > low]
        middles = [(low + high) / 2e3 for low, high in bins]
        rate, ahead, stall = panels[0][column], panels[1][column], panels[2][column]
        rates = [(at(times, run["fetched_bytes"], high) - at(times, run["fetched_bytes"], low)) / (high - low) / 1e3 for low, high in bins]
        rate.plot(middles, rates, color=COLOURS["rate"])
        rate.axhline(total_mbs, color=COLOURS["limit"], linestyle="--", linewidth=1)
        rate.annotate("the link", (1, total_mbs), xycoords=("axes fraction", "data"), xytext=(-2, 3), textcoords="offset points", ha="right", color=COLOURS["limit"])
        rate.set_title(title)
        held = [max(0.0, fetched - asked) / 1e6 for fetched, asked in zip(run["fetched_bytes"], run["asked_bytes"])]
        seconds = [time / 1e3 for time in times]
        ahead.fill_between(seconds, held, color=COLOURS["ahead"], alpha=0.35, linewidth=0, label="fetched, not read yet")
        if "window_bytes" in run:
            ahead.step(seconds, [bytes / 1e6 for bytes in run["window_bytes"]], where="post", color=COLOURS["window"], label="window")
        spans = waits(times, run["stall_ms"])
        shares = [share(spans, low, high) for low, high in bins]
        stall.stairs(shares, [edge / 1e3 for edge in [bins[0][0], *(high for _, high in bins)]], fill=True, color=COLOURS["stall"], alpha=0.6)
        stall.set_xlabel("time in s")
        stall.set_ylim(0, 105)
        for panel in (rate, ahead, stall):
            panel.spines[["top", "right"]].set_visible(False)
            panel.grid(axis="y", color="#dddddd", linewidth=0.6)
            panel.set_axisbelow(True)
            panel.set_xlim(left=0)
    # When all that share a scale are drawn.
    panels[0][0].set_ylim(bottom=0)
    panels[1][0].set_ylim(bottom=0)
    panels[0][0].set_ylabel("received, MB/s")
    panels[1][0].set_ylabel("ahead, MB")
    panels[2][0].set_ylabel("waiting, % of the time")
    drawn.legend(*panels[1][0].get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)
    drawn.savefig(path, facecolor="white", metadata={"Date": None})
    pyplot.close(drawn)
    print(path)


def main() -> None:
    peers, python, endpoint, total_mbs, folder = sys.argv[1:]
    total, folder = float(total_mbs), Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    runs = {
        title: samples([peers, "watch", endpoint, "large.bin", rate, count]) for title, (rate, count) in SEQUENTIAL_BYTES.items()
    }
    figure(runs, STEP_MS["sequential"], total, folder / "prefetch-sequential.svg")
    runs = {title: samples([python, "-I", HERE / "watch.py", endpoint, key, name]) for title, (name, key) in QUERIES.items()}
    figure(runs, STEP_MS["parquet"], total, folder / "prefetch-parquet.svg")


if __name__ == "__main__":
    main()
