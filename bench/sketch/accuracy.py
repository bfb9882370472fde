#!/usr/bin/env python3
"""How far HyperLogLog's estimates are off over a thousand runs: measured, and drawn for `docs/`.

    python3 bench/sketch/accuracy.py measure FOLDER     writes accuracy.jsonl and sizes.jsonl; minutes
    python3 bench/sketch/accuracy.py draw FOLDER        draws docs/pictures/sketch-accuracy.svg and sketch-sizes.svg
    python3 bench/sketch/accuracy.py table FOLDER       prints the rows of the table in docs/sketch-accuracy.md

Nothing here measures time, so it may run on a busy machine. The runs are seeded: they come out the same anywhere.
"""

import json
import math
import subprocess
import sys
from pathlib import Path

sys.dont_write_bytecode = True
HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

PICTURES = HERE.parents[1] / "docs" / "pictures"
RUNS = 1000
CARDINALITY_MAX = 10_000_000
SIZES_CARDINALITY = 100_000
PARAMETERS = [(11, 5), (14, 6)]
# Where hashes give way to registers, with the default threshold.
EXACT_MAX = {11: 160, 14: 1536}
NAMES = {"published": "published estimator", "improved": "improved estimator (Ertl)"}
SKETCHES = {
    "tidemill": "Tidemill, improved estimator",
    "hyperloglogplus": "hyperloglogplus",
    "cardinality-estimator": "cardinality-estimator",
    "datasketches-java-4": "DataSketches, 4 bits",
    "datasketches-java-8": "DataSketches, 8 bits",
}

STYLE = """
  text { font: 12px system-ui, sans-serif; fill: #444 }
  .title { font-weight: 600; fill: #222 }
  .grid { stroke: #8884; stroke-width: 1 }
  .zero { stroke: #888; stroke-width: 1 }
  .theory { stroke: #888; stroke-width: 1.5; stroke-dasharray: 6 4; fill: none }
  .stated { stroke: #888; stroke-width: 1.5; stroke-dasharray: 1.5 3; fill: none }
  .exact { fill: #8881 }
  path.c0 { stroke: #c2410c; fill: none; stroke-width: 2 } .c0.dot { fill: #c2410c }
  path.c1 { stroke: #2563eb; fill: none; stroke-width: 2 } .c1.dot { fill: #2563eb }
  path.c2 { stroke: #15803d; fill: none; stroke-width: 2 } .c2.dot { fill: #15803d }
  path.c3 { stroke: #9333ea; fill: none; stroke-width: 2 } .c3.dot { fill: #9333ea }
  path.c4 { stroke: #0e7490; fill: none; stroke-width: 2 } .c4.dot { fill: #0e7490 }
  @media (prefers-color-scheme: dark) {
    text { fill: #bbb } .title { fill: #ddd }
    path.c0 { stroke: #fb923c } .c0.dot { fill: #fb923c }
    path.c1 { stroke: #60a5fa } .c1.dot { fill: #60a5fa }
    path.c2 { stroke: #4ade80 } .c2.dot { fill: #4ade80 }
    path.c3 { stroke: #c084fc } .c3.dot { fill: #c084fc }
    path.c4 { stroke: #22d3ee } .c4.dot { fill: #22d3ee }
  }
"""


class Plot:
    """Axes in a rectangle of the picture, and lines in them."""

    def __init__(self, box, x_range, y_range, log_x=True, log_y=False):
        self.left, self.top, self.right, self.bottom = box
        self.scales = [self.scale(x_range, log_x), self.scale(y_range, log_y)]
        self.parts: list[str] = []

    @staticmethod
    def scale(ends, is_log):
        by = math.log10 if is_log else float
        low, high = by(ends[0]), by(ends[1])
        return lambda value: (by(value) - low) / (high - low)

    def x(self, value):
        return self.left + (self.right - self.left) * self.scales[0](value)

    def y(self, value):
        return self.bottom - (self.bottom - self.top) * self.scales[1](value)

    def text(self, x, y, words, anchor="start", more=""):
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>{words}</text>')

    def title(self, words):
        self.text(self.left, self.top - 12, words, more=' class="title"')

    def y_axis(self, ticks, say, name):
        for tick in ticks:
            y = self.y(tick)
            kind = "zero" if tick == 0 else "grid"
            self.parts.append(f'<line x1="{self.left}" x2="{self.right}" y1="{y:.1f}" y2="{y:.1f}" class="{kind}"/>')
            self.text(self.left - 6, y + 4, say(tick), "end")
        middle = (self.top + self.bottom) / 2
        at = self.left - 52
        self.text(at, middle, name, "middle", f' transform="rotate(-90 {at:.1f} {middle:.1f})"')

    def x_axis(self, ticks, say, name):
        for tick in ticks:
            self.text(self.x(tick), self.bottom + 18, say(tick), "middle")
        self.text((self.left + self.right) / 2, self.bottom + 36, name, "middle")

    def line(self, points, kind):
        path = " ".join(f"{'L' if place else 'M'}{self.x(x):.1f} {self.y(y):.1f}" for place, (x, y) in enumerate(points))
        self.parts.append(f'<path d="{path}" class="{kind}"/>')

    def dot(self, x, y, kind):
        self.parts.append(f'<circle cx="{self.x(x):.1f}" cy="{self.y(y):.1f}" r="3.5" class="dot {kind}"/>')


def rows(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def power(value: float) -> str:
    if value < 1000:
        return f"{value:g}"
    raised = "⁰¹²³⁴⁵⁶⁷⁸⁹"
    return "10" + "".join(raised[int(digit)] for digit in str(round(math.log10(value))))


def percent(value: float) -> str:
    return f"{100 * value:g} %".replace("-", "−")


def key(parts: list[str], x: float, y: float, kind: str, words: str, dot: bool = False) -> None:
    mark = f'<path d="M{x} {y}h22" class="{kind}"/>'
    if dot:
        mark = f'<circle cx="{x + 16}" cy="{y}" r="3.5" class="dot {kind}"/>'
    parts.append(f'{mark}<text x="{x + 30}" y="{y + 4}">{words}</text>')


def picture(path: Path, width: int, height: int, label: str, parts: list[str]) -> None:
    body = "\n".join(parts)
    path.parent.mkdir(exist_ok=True)
    path.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-label="{label}">\n'
        f"<style>{STYLE}</style>\n{body}\n</svg>\n"
    )


def draw_errors(found: list[dict]) -> None:
    parts: list[str] = []
    for column, (log2m, regwidth) in enumerate(PARAMETERS):
        left = 72 + 410 * column
        right = left + 320
        theory = 1.04 / math.sqrt(1 << log2m)
        most = 0.04 if log2m == 11 else 0.03
        x_range = (1, CARDINALITY_MAX)
        upper = Plot((left, 40, right, 250), x_range, (0, most))
        lower = Plot((left, 300, right, 440), x_range, (-0.01, 0.02))
        for plot in (upper, lower):
            end = plot.x(EXACT_MAX[log2m])
            plot.parts.append(
                f'<rect x="{left}" y="{plot.top}" width="{end - left:.1f}" height="{plot.bottom - plot.top}" class="exact"/>'
            )
        step = 0.01
        upper.title(f"{1 << log2m:,} registers of {regwidth} bits")
        upper.text(left + 6, upper.top + 16, "exact unless turned off")
        upper.y_axis([step * n for n in range(round(most / step) + 1)], percent, "error, root mean square" if column == 0 else "")
        lower.y_axis([step * n for n in range(-1, 3)], percent, "error, mean" if column == 0 else "")
        ticks = [10**n for n in range(0, 8)]
        lower.x_axis(ticks, power, "different values")
        for plot in (upper, lower):
            for tick in ticks:
                x = plot.x(tick)
                plot.parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{plot.top}" y2="{plot.bottom}" class="grid"/>')
        mine = [row for row in found if row["log2m"] == log2m]
        improved = [row for row in mine if row["estimator"] == "improved"]
        upper.line([(1, theory), (CARDINALITY_MAX, theory)], "theory")
        upper.line([(row["cardinality"], row["stated"]) for row in improved], "stated")
        for place, name in enumerate(NAMES):
            of = [row for row in mine if row["estimator"] == name]
            upper.line([(row["cardinality"], row["rms"]) for row in of], f"c{place}")
            lower.line([(row["cardinality"], row["bias"]) for row in of], f"c{place}")
        parts += upper.parts + lower.parts
    for place, (kind, words) in enumerate(
        [("c0", NAMES["published"]), ("c1", NAMES["improved"]), ("theory", "1.04/√m of m registers"), ("stated", "stated by the sketch")]
    ):
        key(parts, [72, 244, 442, 636][place], 502, kind, words)
    picture(PICTURES / "sketch-accuracy.svg", 820, 520, "HyperLogLog's error by the number of different values", parts)


def draw_sizes(found: list[dict]) -> None:
    parts: list[str] = []
    plot = Plot((72, 30, 480, 300), (500, 20_000), (0.005, 0.04), log_y=True)
    plot.y_axis([0.005, 0.01, 0.02, 0.04], percent, "error, root mean square")
    ticks = [500, 1000, 2000, 5000, 10_000, 20_000]
    plot.x_axis(ticks, lambda value: f"{value:,}", f"bytes, serialized, of {SIZES_CARDINALITY:,} different values")
    for tick in ticks:
        x = plot.x(tick)
        plot.parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{plot.top}" y2="{plot.bottom}" class="grid"/>')
    for place, (name, words) in enumerate(SKETCHES.items()):
        points = [(row["bytes"], row["rms"]) for row in found if row["sketch"] == name]
        plot.line(points, f"c{place}")
        for x, y in points:
            plot.dot(x, y, f"c{place}")
        key(plot.parts, 500, 60 + 24 * place, f"c{place}", words)
    picture(PICTURES / "sketch-sizes.svg", 760, 350, "Error beside bytes of several sketches", parts + plot.parts)


def table(found: list[dict]) -> None:
    print("| different values | registers | published: error, mean | improved: error, mean | stated | in the interval |")
    print("| ---: | ---: | ---: | ---: | ---: | ---: |")
    for log2m, _ in PARAMETERS:
        for cardinality in sorted([100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 5_623 if log2m == 11 else 44_668]):
            of = {row["estimator"]: row for row in found if (row["log2m"], row["cardinality"]) == (log2m, cardinality)}
            if of:
                cells = [f"{100 * of[name]['rms']:.2f} %, {100 * of[name]['bias']:+.2f} %".replace("-", "−") for name in NAMES]
                last = of["improved"]
                print(
                    f"| {cardinality:,} | {1 << log2m:,} | {' | '.join(cells)} | {100 * last['stated']:.2f} % | "
                    f"{100 * of['published']['covered']:.1f} %, {100 * last['covered']:.1f} % |"
                )


def measure(folder: Path) -> None:
    import harness

    folder.mkdir(parents=True, exist_ok=True)
    peers = harness.cargo_program(HERE / "peers", "bench-sketch", "the sketches")
    classpath = harness.java_classpath(folder, HERE / "java", "sketch-java")
    java = ["java", "-XX:+UseSerialGC", "-cp", classpath, "tidemill.bench.Sketches"]
    jobs = {
        "accuracy.jsonl": [[peers, "accuracy", RUNS, CARDINALITY_MAX]],
        "sizes.jsonl": [[peers, "sizes", RUNS, SIZES_CARDINALITY], [*java, "sizes", RUNS, SIZES_CARDINALITY]],
    }
    for name, commands in jobs.items():
        with open(folder / name, "w") as file:
            for command in commands:
                subprocess.run([str(word) for word in command], check=True, stdout=file)


def main() -> None:
    what, folder = sys.argv[1], Path(sys.argv[2])
    if what == "measure":
        measure(folder)
    elif what == "draw":
        draw_errors(rows(folder / "accuracy.jsonl"))
        draw_sizes(rows(folder / "sizes.jsonl"))
    else:
        table(rows(folder / "accuracy.jsonl"))


if __name__ == "__main__":
    main()
