"""What is asked of each kind of input, in each engine's words. Standard library only."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass
class Question:
    """A grouping query. Its answer is the keys, then the measures."""

    kind: str
    name: str
    # tidemill's words and DuckDB's; where the keys are made otherwise, see `Peer`.
    keys: list[str]
    # Of each measure's name its SQL.
    measures: dict[str, str]
    # Where ClickHouse's words are others.
    chdb: dict[str, str] = dataclasses.field(default_factory=dict)
    # Measures that grow with the input, so that of a share of it they are multiplied.
    totals: tuple[str, ...] = ()
    # Other words of DuckDB's.
    duckdb: dict[str, str] = dataclasses.field(default_factory=dict)

    def sql(self, source: str, words: dict[str, str] | None = None) -> str:
        measures = {**self.measures, **(words or {})}
        columns = [*self.keys, *(f"{sql} AS {name}" for name, sql in measures.items())]
        return f"SELECT {', '.join(columns)} FROM {source} GROUP BY {', '.join(self.keys)}"


QUESTIONS = [
    Question(
        "flights", "job", ["origin", "month", "day"],
        {
            "n": "count(*)",
            "aircraft": "unique(tailnum)",
            "median_delay": "quantile(dep_delay, 0.5)",
            "p95": "quantile(dep_delay, 0.95)",
        },
        chdb={
            "aircraft": "uniqHLL12(tailnum)",
            "median_delay": "quantileTDigest(0.5)(dep_delay)",
            "p95": "quantileTDigest(0.95)(dep_delay)",
        },
        totals=("n",),
        duckdb={
            "aircraft": "approx_count_distinct(tailnum)",
            "median_delay": "approx_quantile(dep_delay, 0.5)",
            "p95": "approx_quantile(dep_delay, 0.95)",
        },
    ),
    Question(
        "flights", "carriers", ["carrier"],
        {"n": "count(*)", "distance": "sum(distance)", "delay": "avg(dep_delay)"},
        totals=("n", "distance"),
    ),
    Question(
        "access", "pages", ["path"],
        {"n": "count(*)", "bytes": "sum(bytes)", "mean": "avg(bytes)"},
        totals=("n", "bytes"),
    ),
    Question(
        "access", "statuses", ["status"],
        {"n": "count(*)", "bytes": "sum(bytes)", "mean": "avg(bytes)"},
        totals=("n", "bytes"),
    ),
    Question(
        "events", "customers", ["customer"],
        {"n": "count(*)", "revenue": "sum(revenue)", "duration": "avg(duration_ms)"},
        totals=("n", "revenue"),
    ),
    Question(
        "events", "countries", ["country"],
        {"n": "count(*)", "revenue": "sum(revenue)", "duration": "avg(duration_ms)"},
        totals=("n", "revenue"),
    ),
]

PATTERNS = {"flights": "*.csv", "access": "*.log", "events": "*.json"}
# tidemill's flags of a kind.
FLAGS = {"flights": ["--null", "NA"], "access": ["--source-format", "access-log"], "events": []}


def question(kind: str, name: str) -> Question:
    return next(one for one in QUESTIONS if (one.kind, one.name) == (kind, name))
