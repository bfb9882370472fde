"""How a query would be run."""

from __future__ import annotations

import html
import json
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Explain:
    """How a query or a job would be run; ``str()`` writes it as ``--explain`` does.

    Attributes
    ----------
    path : str
        ``partial tables``, ``rows`` or ``datafusion``.
    why : str
        Why that path.
    mergeable : bool
        Whether the result comes from states that merge with others.
    memory_bytes : int
        The memory budget.
    threads : int
        The threads.
    sources : list of dict
        What is read: ``name``, ``format``, ``files``, ``splits``, ``bytes`` and ``columns``.
    steps : dict
        The plan of each step, by its name.
    sink : str or None
        What would be written, in words; none without an output.
    elsewhere : dict or None
        How its splits would be read on a cluster, where ``on`` names one: ``machines``,
        ``workers``, ``threads``, ``tasks``, ``splits``, ``bytes``, ``job_bytes`` and ``parts``.
    forecast : dict or None
        What it would take on a cluster, where that was asked for: what was ``measured`` here, and
        ``outlooks`` for inputs of some sizes on so many cores, each with its ``seconds`` and what
        it is ``bound`` by.

    Examples
    --------
    >>> import tidemill as tm
    >>> plan = tm.explain("SELECT 1 AS one", threads=2)
    >>> plan.path, plan.threads, plan.sink
    ('datafusion', 2, None)
    >>> print(plan.steps["plan"])
    Projection: Int64(1) AS one
      EmptyRelation: rows=1
    """

    path: str
    why: str
    mergeable: bool
    memory_bytes: int
    threads: int
    sources: list[dict[str, Any]] = field(repr=False)
    steps: dict[str, str] = field(repr=False)
    sink: str | None
    elsewhere: dict[str, Any] | None = field(repr=False)
    forecast: dict[str, Any] | None = field(repr=False)
    _text: str = field(repr=False, compare=False)
    _tree: dict[str, Any] = field(repr=False, compare=False)

    @classmethod
    def _of(cls, text: str, tree: str) -> Explain:
        explained: dict[str, Any] = json.loads(tree)
        return cls(
            explained["path"],
            explained["why"],
            explained["mergeable"],
            explained["memory_bytes"],
            explained["threads"],
            explained["sources"],
            dict(explained["steps"]),
            explained.get("sink"),
            explained.get("elsewhere"),
            explained.get("forecast"),
            text,
            explained,
        )

    def to_dict(self) -> dict[str, Any]:
        """Give the same as ``--explain --format json``."""
        tree: dict[str, Any] = json.loads(json.dumps(self._tree))
        return tree

    def __str__(self) -> str:
        """Write it as ``--explain`` does."""
        return self._text.rstrip("\n")

    def _repr_html_(self) -> str:
        """Show it in a notebook."""
        return f"<pre>{html.escape(str(self))}</pre>"
