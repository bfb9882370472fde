"""How far a run is, shown to whoever waits for it: a line in a terminal, a bar in a notebook.

The native module calls ``update`` ten times a second while something is waited for, and ``clear``
once it is there. What takes less than half a second shows nothing. A host that has not answered for
a while is shown with its cause in the place of the numbers.
"""

from __future__ import annotations

import html
import os
import sys
import time
from collections.abc import Callable
from typing import Any, Protocol

from tidemill._table import width
from tidemill._words import grouped, human_bytes, human_duration

_PATIENCE_SECONDS = 0.5
_BAR_CELLS = 28


class Display(Protocol):
    """What shows the progress of a run."""

    def update(
        self, bytes_done: int, bytes_total: int, rows_done: int, silent: str | None = None
    ) -> None:
        """Show how far it is, or which host has not answered for a while."""

    def clear(self) -> None:
        """Take away what is shown."""


def display(progress: bool | None, what: str = "rows") -> Display | None:
    """Choose a display; none if nothing is to be shown.

    Parameters
    ----------
    progress : bool or None
        Whether progress is shown; if none, in a notebook and where standard error is a
        terminal.
    what : str
        What is counted beside bytes.
    """
    if progress is False:
        return None
    patience = 0.0 if progress else _PATIENCE_SECONDS
    notebook = _notebook()
    if notebook is not None:
        return _NotebookBar(notebook, patience, what)
    if sys.stderr is None:
        return None
    if progress or (sys.stderr.isatty() and os.environ.get("TERM") != "dumb"):
        return _TerminalLine(patience, what)
    return None


def _notebook() -> Callable[[], Any] | None:
    """Find what makes a handle for something to display in a notebook, in one."""
    # What runs in a notebook has imported it.
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if getattr(shell, "kernel", None) is None:
        return None
    from IPython.display import DisplayHandle

    function: Callable[[], Any] = DisplayHandle
    return function


class _Bar:
    """Decides when there is something to show, and what it says."""

    def __init__(self, patience: float, interval: float, what: str) -> None:
        self._patience = patience
        self._interval = interval
        self._what = what
        self._begun = time.monotonic()
        self._waiting_since: float | None = None
        self._drawn = 0.0
        self._most = 0

    def update(
        self, bytes_done: int, bytes_total: int, rows_done: int, silent: str | None = None
    ) -> None:
        now = time.monotonic()
        if self._waiting_since is None:
            self._waiting_since = now
        if now - self._waiting_since < self._patience or now - self._drawn < self._interval:
            return
        self._drawn = now
        # A file of which a part is read again must not make the bar go back.
        self._most = max(self._most, bytes_done)
        seconds = now - self._begun
        if silent is None:
            said = _said(self._most, bytes_total, rows_done, seconds, self._what)
            self._draw(self._most, bytes_total, said)
        else:
            self._draw(0, 0, f"{silent}, {human_duration(seconds)}")

    def clear(self) -> None:
        self._waiting_since = None
        if self._drawn:
            self._drawn = 0.0
            self._remove()

    def _draw(self, done: int, total: int, said: str) -> None:
        raise NotImplementedError

    def _remove(self) -> None:
        raise NotImplementedError


def _said(done: int, total: int, rows: int, seconds: float, what: str) -> str:
    rate = done / seconds if seconds > 0 else 0.0
    said = f"{grouped(rows)} {what}, {human_bytes(rate)}/s"
    if total <= 0:
        return f"{human_bytes(done)}, {said}, {human_duration(seconds)}"
    done = min(done, total)
    left = human_duration((total - done) / rate) if rate else "…"
    return f"{human_bytes(done)} of {human_bytes(total)}, {said}, {left} left"


class _TerminalLine(_Bar):
    def __init__(self, patience: float, what: str = "rows") -> None:
        super().__init__(patience, 0.1, what)
        self._turns = 0

    def _draw(self, done: int, total: int, said: str) -> None:
        full, head, spinner = "━", "╸", "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
        try:
            (full + head + spinner).encode(sys.stderr.encoding or "ascii")
        except (LookupError, UnicodeEncodeError):
            full, head, spinner = "=", ">", "|/-\\"
            said = said.replace("…", "...")
        if total > 0:
            cells = min(done, total) * _BAR_CELLS // total
            bar = full * cells + head * (cells < _BAR_CELLS)
            line = f"{bar:<{_BAR_CELLS}} {said}"
        else:
            line = f"{spinner[self._turns % len(spinner)]} {said}"
        self._turns += 1
        try:
            columns = os.get_terminal_size(sys.stderr.fileno()).columns
        except (OSError, ValueError):
            columns = 80
        while columns > 0 and width(line) >= columns:
            line = line[:-1]
        self._write(f"\r{line}\x1b[K")

    def _remove(self) -> None:
        self._write("\r\x1b[K")

    def _write(self, text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()


class _NotebookBar(_Bar):
    def __init__(self, new_handle: Callable[[], Any], patience: float, what: str = "rows") -> None:
        super().__init__(patience, 0.25, what)
        self._new_handle = new_handle
        self._handle: Any = None

    def _draw(self, done: int, total: int, said: str) -> None:
        known = f' value="{min(done, total)}" max="{total}"' if total > 0 else ""
        self._update(
            '<div style="display: flex; align-items: center; gap: 0.75em; padding: 0.25em 0">'
            f'<progress{known} style="width: 16em"></progress>'
            f'<span style="font-variant-numeric: tabular-nums; opacity: 0.8">{html.escape(said)}'
            "</span></div>",
            said,
        )

    def _remove(self) -> None:
        self._update("", "")
        # The next one is shown below the cell that waits then.
        self._handle = None

    def _update(self, as_html: str, as_text: str) -> None:
        bundle = {"text/html": as_html, "text/plain": as_text}
        if self._handle is None:
            # Kept first: an interrupt may come once it is shown and before that has returned.
            self._handle = self._new_handle()
            self._handle.display(bundle, raw=True)
        else:
            self._handle.update(bundle, raw=True)
