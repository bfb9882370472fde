"""Rows for people to look at: a table of text, and one of HTML.

Both take columns (name, type, whether it is a number) and rows of cells, a null as none. Cells
come from the engine, with everything in them that a terminal might obey made visible.
"""

from __future__ import annotations

import html
import unicodedata
from collections.abc import Sequence

Column = tuple[str, str, bool]
Row = Sequence[str | None]

# Of what is wider than this, a notebook shows the first and the last.
COLUMNS_MAX = 30

# What is cut in a terminal keeps this much.
_NARROWEST = 16

# Colours are the page's own, greys are transparent: the same looks right on white and on black.
# JupyterLab has all cells to the right, by a rule that is more particular than ours.
_STYLE = """
.tidemill table {
  border: none; border-collapse: collapse; margin: 0; table-layout: auto;
  font-variant-numeric: tabular-nums;
}
.tidemill table th, .tidemill table td {
  border: none; padding: 0.25em 0.75em; text-align: left !important; vertical-align: top;
  white-space: pre-wrap; overflow-wrap: anywhere; max-width: 30em; min-width: 2em;
}
.tidemill table thead th {
  border-bottom: 1px solid rgba(128, 128, 128, 0.6); font-weight: 600; vertical-align: bottom;
  overflow-wrap: break-word;
}
.tidemill table .number { text-align: right !important; white-space: nowrap; }
.tidemill table .type { display: block; font-size: 85%; font-weight: 400; opacity: 0.6; }
.tidemill table .null { font-style: italic; opacity: 0.45; }
.tidemill .note { font-size: 90%; margin: 0.4em 0 0 0.75em; opacity: 0.7; }
.tidemill .warning {
  border-left: 3px solid #e08700; font-size: 90%; font-weight: 600; margin: 0.5em 0 0 0.75em;
  padding: 0.1em 0.6em;
}
"""


def as_text(columns: Sequence[Column], rows: Sequence[Row], width_max: int | None) -> str:
    """Align rows under their columns' names and types.

    Where they do not fit ``width_max``, wide texts are cut; columns that do not fit then either are
    left out and named below.

    >>> columns = [("day", "DATE", False), ("users", "BIGINT", True)]
    >>> print(as_text(columns, [["2013-01-01", "123"], [None, "7"]], None), end="")
    day          users
    DATE        BIGINT
    ----------  ------
    2013-01-01     123
    NULL             7
    """
    cells = [["NULL" if cell is None else cell for cell in row] for row in rows]
    heads = [[name for name, _, _ in columns], [kind for _, kind, _ in columns]]
    widths = [max(map(width, column)) for column in zip(*heads, *cells, strict=True)]
    if width_max is not None:
        widths = _narrowed(widths, columns, width_max)
    shown = _fitting(widths, width_max)
    lines = [*heads, ["-" * width for width in widths], *cells]
    text = "".join(
        "  ".join(
            _padded(line[i], widths[i], is_right=columns[i][2]) if i >= 0 else "…" for i in shown
        ).rstrip()
        + "\n"
        for line in lines
    )
    left_out = [name for i, (name, _, _) in enumerate(columns) if i not in shown]
    if left_out:
        text += f"columns not shown: {', '.join(left_out)}\n"
    return text


def as_html(columns: Sequence[Column], rows: Sequence[Row], notes: Sequence[str]) -> str:
    """Make a table for a notebook.

    ``notes`` are HTML, each a line below the table; one that begins with ``!`` is a warning.
    """
    shown = list(range(len(columns)))
    if len(shown) > COLUMNS_MAX:
        half = COLUMNS_MAX // 2
        shown = [*shown[:half], -1, *shown[-half:]]
        left_out = len(columns) - COLUMNS_MAX
        notes = [*notes, f"{left_out} columns in the middle are not shown"]
    head = "".join(_head(columns[i]) if i >= 0 else "<th>…</th>" for i in shown)
    body = "".join(
        "<tr>"
        + "".join(_cell(row[i], columns[i]) if i >= 0 else "<td>…</td>" for i in shown)
        + "</tr>\n"
        for row in rows
    )
    below = "".join(
        f'<div class="warning">{note[1:]}</div>\n'
        if note.startswith("!")
        else f'<div class="note">{note}</div>\n'
        for note in notes
    )
    return (
        f'<div class="tidemill">\n<style>{_STYLE}</style>\n'
        f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody>\n</table>\n{below}</div>"
    )


def _head(column: Column) -> str:
    name, kind, is_number = column
    below = f'<span class="type">{html.escape(kind)}</span>' if kind else ""
    return f"<th{_right(is_number)}>{html.escape(name)}{below}</th>"


def _cell(cell: str | None, column: Column) -> str:
    if cell is None:
        return f'<td{_right(column[2])}><span class="null">null</span></td>'
    return f"<td{_right(column[2])}>{html.escape(cell)}</td>"


def _right(is_number: bool) -> str:
    # Said twice: where a page takes styles away, the attribute stays.
    return ' class="number" align="right"' if is_number else ' align="left"'


def _narrowed(widths: list[int], columns: Sequence[Column], width_max: int) -> list[int]:
    """Make the widest columns that are no numbers narrower, as far as that is needed."""
    too_wide = sum(widths) + 2 * (len(widths) - 1) - width_max
    narrowed = list(widths)
    texts = [i for i, (_, _, is_number) in enumerate(columns) if not is_number]
    while too_wide > 0:
        widest = max(texts, key=lambda i: narrowed[i], default=None)
        if widest is None or narrowed[widest] <= _NARROWEST:
            break
        narrowed[widest] -= 1
        too_wide -= 1
    return narrowed


def _fitting(widths: Sequence[int], width_max: int | None) -> list[int]:
    """Choose the columns that fit, from both ends; -1 stands for those between."""
    everything = list(range(len(widths)))
    if width_max is None or sum(widths) + 2 * (len(widths) - 1) <= width_max:
        return everything
    left, right = [0], list[int]()
    room = width_max - widths[0] - len("  …")
    while everything[len(left) : len(widths) - len(right)]:
        from_right = len(right) < len(left)
        i = len(widths) - len(right) - 1 if from_right else len(left)
        room -= widths[i] + 2
        if room < 0:
            break
        if from_right:
            right.insert(0, i)
        else:
            left.append(i)
    return [*left, -1, *right]


def _padded(cell: str, column_width: int, *, is_right: bool) -> str:
    if width(cell) > column_width:
        kept, room = "", column_width - 1
        for character in cell:
            room -= width(character)
            if room < 0:
                break
            kept += character
        cell = f"{kept}…"
    blanks = " " * (column_width - width(cell))
    return blanks + cell if is_right else cell + blanks


def width(text: str) -> int:
    r"""Count the cells of a terminal that a text takes.

    >>> width("café"), width("日本"), width("e\u0301")
    (4, 4, 1)
    """
    if text.isascii():
        return len(text)
    return sum(
        0
        if unicodedata.category(c) in ("Mn", "Me", "Cf")
        else 2
        if unicodedata.east_asian_width(c) in "WF"
        else 1
        for c in text
    )
