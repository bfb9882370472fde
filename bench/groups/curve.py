#!/usr/bin/env python3
"""Draws work against the number of groups: `curve.py RESULTS.json PICTURE.svg`.

RESULTS.json is what `bench/run.py groups --only u1,…,s10000000 --json RESULTS.json` wrote; a panel for each
kind of key that it holds, both scales logarithmic, medians of the rounds.
"""

import json
import math
import re
import statistics
import sys
from html import escape
from pathlib import Path

KINDS = {
    "u": "integers, equally likely", "z": "integers by Zipf's law", "n": "integers, one in ten null",
    "s": "texts of 1 to 8 bytes", "l": "texts of 40 bytes",
}  # fmt: skip
COLOURS = {"tidemill": "#0b6e99", "duckdb": "#c77700", "polars": "#5a8f29", "datafusion": "#9a4f96", "chdb": "#777"}
WIDTH, HEIGHT, LEFT, TOP, BOTTOM, RIGHT = 460, 300, 52, 34, 40, 92


def curves(results: list[dict]) -> dict[str, dict[str, list[tuple[int, float]]]]:
    """Per kind of key and engine, seconds of work by numbers of groups."""
    found: dict[str, dict[str, list[tuple[int, float]]]] = {}
    for result in results:
        named = re.fullmatch(r"([a-z])(\d+)", result["case"])
        if not named or named[1] not in KINDS:
            continue
        for engine, runs in result["runs"].items():
            if runs:
                work = statistics.median(run["work_s"] for run in runs)
                found.setdefault(named[1], {}).setdefault(engine, []).append((int(named[2]), work))
    return {kind: {engine: sorted(points) for engine, points in of.items()} for kind, of in found.items()}


def panel(kind: str, engines: dict[str, list[tuple[int, float]]], left: float, top: float) -> list[str]:
    """One kind of key, its corner at `left` and `top`."""
    counts = sorted({count for points in engines.values() for count, _ in points})
    works = [work for points in engines.values() for _, work in points]
    low, high = math.log10(min(works)) - 0.05, math.log10(max(works)) + 0.05
    first, last = math.log10(counts[0]), math.log10(counts[-1])
    inner_width, inner_height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    x = lambda count: left + LEFT + inner_width * (math.log10(count) - first) / max(last - first, 1)  # noqa: E731
    y = lambda work: top + TOP + inner_height * (high - math.log10(work)) / (high - low)  # noqa: E731
    drawn = [f'<text x="{left + LEFT}" y="{top + 20}" class="title">{escape(KINDS[kind])}</text>']
    for count in counts:
        shown = f"10{''.join('⁰¹²³⁴⁵⁶⁷⁸⁹'[int(digit)] for digit in str(round(math.log10(count))))}"
        drawn.append(f'<line x1="{x(count):.1f}" x2="{x(count):.1f}" y1="{top + TOP}" y2="{top + HEIGHT - BOTTOM}" class="grid"/>')
        drawn.append(f'<text x="{x(count):.1f}" y="{top + HEIGHT - BOTTOM + 16}" text-anchor="middle">{shown}</text>')
    steps = [step * 10**power for power in range(-3, 4) for step in (1, 2, 5)]
    for work in steps:
        if low <= math.log10(work) <= high:
            drawn.append(f'<line x1="{left + LEFT}" x2="{left + WIDTH - RIGHT}" y1="{y(work):.1f}" y2="{y(work):.1f}" class="grid"/>')
            drawn.append(f'<text x="{left + LEFT - 6}" y="{y(work) + 4:.1f}" text-anchor="end">{work:g} s</text>')
    taken: list[float] = []
    for engine, points in sorted(engines.items(), key=lambda item: item[1][-1][1]):
        colour = COLOURS.get(engine, "#000")
        line = " ".join(f"{x(count):.1f},{y(work):.1f}" for count, work in points)
        drawn.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        at = y(points[-1][1]) + 4
        while any(abs(at - other) < 13 for other in taken):
            at -= 1
        taken.append(at)
        drawn.append(f'<text x="{left + WIDTH - RIGHT + 6}" y="{at:.1f}" fill="{colour}">{escape(engine)}</text>')
    middle = left + LEFT + inner_width / 2
    drawn.append(f'<text x="{middle:.1f}" y="{top + HEIGHT - 6}" text-anchor="middle">groups</text>')
    return drawn


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit("usage: curve.py RESULTS.json PICTURE.svg")
    content = json.loads(Path(sys.argv[1]).read_text())["benchmarks"].get("groups", {})
    kinds = curves(content.get("results", []))
    if not kinds:
        sys.exit(f"{sys.argv[1]} has no case of one key: run `bench/run.py groups --only u1,u10,… --json FILE`")
    columns = min(2, len(kinds))
    rows = math.ceil(len(kinds) / columns)
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{columns * WIDTH}" height="{rows * HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        "<style>.grid{stroke:#ddd}.title{font-weight:bold}</style>",
        '<rect width="100%" height="100%" fill="#fff"/>',
    ]
    for index, kind in enumerate(kind for kind in KINDS if kind in kinds):
        drawn += panel(kind, kinds[kind], index % columns * WIDTH, index // columns * HEIGHT)
    Path(sys.argv[2]).write_text("\n".join([*drawn, "</svg>", ""]))


if __name__ == "__main__":
    main()
