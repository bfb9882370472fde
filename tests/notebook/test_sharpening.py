"""A table that sharpens in place, as whoever looks at a notebook sees it."""

import errno
import os
import random
import re

import pytest

import tidemill as tm

FILES = 40

# Of these all rows are there at once, and their end when a line is written to their gate.
GATED = ["38.csv", "39.csv"]

PROGRAM = """cat; if [ -p "$TIDEMILL_FILE.gate" ]; then read go < "$TIDEMILL_FILE.gate" || :; fi"""

SQL = """
    SELECT page, count() AS views, avg(ms) AS mean_ms, max(ms) AS slowest
    FROM '{}/*.csv' GROUP BY page ORDER BY page
"""

CELL = f"""\
import tidemill as tm
tm.query(\'\'\'{SQL.format("data")}\'\'\', progressive=True,
         source_exec=["sh", "-c", {PROGRAM!r}], schema="page TEXT, ms BIGINT")"""

# An interval is shown by its ends where it is not symmetric.
INTERVAL = r"(?: ± [\d,]+| \([\d,]+ … [\d,]+\))"
ESTIMATE = rf"[\d,]+{INTERVAL}"

# Notes which elements a table is ever in, how many there are at most, and what is told of them.
WATCH = """
() => {
  const outputs = document.querySelector(".jp-CodeCell .jp-Cell-outputWrapper");
  const seen = window.seen = { elements: new Set(), tables: 0, shares: [] };
  const look = () => {
    const tables = [...outputs.querySelectorAll(".tidemill table")];
    seen.tables = Math.max(seen.tables, tables.length);
    tables.forEach((table) => seen.elements.add(table.closest(".jp-OutputArea-child")));
    const told = outputs.textContent.match(/(\\d+)\\/40 splits/);
    if (told && seen.shares.at(-1) !== Number(told[1])) seen.shares.push(Number(told[1]));
  };
  const all = { childList: true, subtree: true, characterData: true };
  new MutationObserver(look).observe(outputs, all);
}
"""

SEEN = """
() => ({ ...window.seen, elements: window.seen.elements.size })
"""

# How far the text of each cell stands out from what is behind it (WCAG 2), the least of all.
CONTRAST = """
() => {
  const parts = (color) => {
    const [r, g, b, a = 1] = color.match(/[\\d.]+/g).map(Number);
    return [r / 255, g / 255, b / 255, a];
  };
  const mixed = (top, below) => (at) => top[at] * top[3] + below[at] * (1 - top[3]);
  const over = (top, below) => [...[0, 1, 2].map(mixed(top, below)), 1];
  const behind = (element) => {
    if (!element) return [1, 1, 1, 1];
    const own = parts(getComputedStyle(element).backgroundColor);
    return own[3] === 1 ? own : over(own, behind(element.parentElement));
  };
  const light = (color) => {
    const [r, g, b] = color.map((x) => (x <= 0.03928 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (element) => {
    const below = behind(element);
    const own = parts(getComputedStyle(element).color);
    const lights = [light(over(own, below)), light(below)].sort((a, b) => b - a);
    return (lights[0] + 0.05) / (lights[1] + 0.05);
  };
  const texts = document.querySelectorAll(".tidemill td, .tidemill th, .tidemill .warning");
  return Math.min(...[...texts].map(contrast));
}
"""


@pytest.fixture(scope="module")
def data(lab):
    """Files beside the notebooks, each a split, and the gates of two; and the exact answer."""
    folder = lab[0] / "data"
    folder.mkdir()
    drawn = random.Random(0)
    for file in range(FILES):
        rows = (f"/{drawn.choice('abc')},{drawn.randrange(1000)}\n" for _ in range(110_000))
        (folder / f"{file:02}.csv").write_text("page,ms\n" + "".join(rows))
    # Before there are pipes: they are no files of the source.
    exact = tm.query(SQL.format(folder)).to_pylist()
    for file in GATED:
        os.mkfifo(folder / f"{file}.gate")
    return folder, exact


def open_gate(page, folder, file):
    """Let a file come to its end, once its reader is there."""
    for _ in range(2400):
        try:
            gate = os.open(folder / f"{file}.gate", os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            # Nobody reads it yet.
            page.wait_for_timeout(50)
            continue
        os.write(gate, b"go\n")
        os.close(gate)
        return
    pytest.fail(f"nobody has come to the end of {file}")


def test_a_table_sharpens_in_place_until_it_is_exact(notebook, data):
    folder, exact = data
    page = notebook("sharpening", CELL)
    page.evaluate(WATCH)
    page.evaluate("() => void window.jupyterapp.commands.execute('notebook:run-all-cells')")
    output = page.locator(".jp-CodeCell .jp-Cell-outputWrapper")

    output.get_by_text("38/40 splits").wait_for()
    early = output.inner_text()
    assert "INCOMPLETE" in early and "≥" in early
    assert re.search(f"/a\t{ESTIMATE}\t{ESTIMATE}\t", early), early
    # Text that cannot be read in the theme's colours helps nobody.
    assert page.evaluate(CONTRAST) > 4.5
    open_gate(page, folder, GATED[0])
    output.get_by_text("39/40 splits").wait_for()
    open_gate(page, folder, GATED[1])
    output.get_by_text(re.compile("^complete: ")).wait_for()

    rows = output.locator(".tidemill tbody tr").all()
    shown = [[cell.inner_text() for cell in row.locator("td").all()] for row in rows]
    assert shown == [[str(value) for value in row.values()] for row in exact]
    told = output.inner_text()
    assert "40/40 splits" in told and "INCOMPLETE" not in told and not re.search(INTERVAL, told)

    seen = page.evaluate(SEEN)
    assert seen["tables"] == 1 and seen["elements"] == 1, seen
    assert seen["shares"] == sorted(seen["shares"]) and seen["shares"][-3:] == [38, 39, 40], seen
    assert output.locator("[data-mime-type*=error], [data-mime-type*=stderr]").count() == 0
    assert output.locator(".tidemill progress").count() == 0


def test_a_column_s_name_is_not_broken_where_a_table_is_wide(notebook):
    wide = ", ".join(f"'{'x' * 30}' AS column_{place}" for place in range(8))
    page = notebook("wide", f"import tidemill as tm\ntm.query(\"SELECT 'a' AS page, {wide}\")")
    page.evaluate("() => void window.jupyterapp.commands.execute('notebook:run-all-cells')")
    head = page.locator(".tidemill thead th").first
    head.wait_for()
    name, kind = (
        head.evaluate(f"(head) => head.{what}") for what in ("clientWidth", "scrollWidth")
    )
    assert name >= kind
    # A line for the name and one for the type.
    assert head.evaluate("(head) => head.getClientRects()[0].height") < 60
