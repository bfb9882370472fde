"""DuckDB's own machinery: types and statements that this product refuses by name.

Queries that need it and have another outcome than `same` are counted by the kind of machinery, and
the report gives the share of equal answers without them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

# Each kind of machinery, and a regular expression that is searched in a query in small letters.
KINDS: dict[str, str] = {
    "VARIANT": r"\bvariant|parquet_variant",
    "UHUGEINT": r"\buhugeint\b",
    "TIMETZ": r"\btimetz\b|\btime_tz\b|\btime\s+with\s+time\s+zone\b",
    "BIT": r"(::|\bas\s+)bit(string)?\b|\bbitstring\b|\b[gs]et_bit\b|\bbitstring\s*\(",
    "BIGNUM": r"\bbignum\b|\bvarint\b",
    "UNION as a type": r"\bunion_(value|extract|tag)\b"
    r"|\bunion\s*\(\s*(?!select|values|from|with|table)\w+\s+\w+",
    "ENUM": r"\benum(_\w+)?\b",
    "GEOMETRY": r"\bgeometry\b|\bst_\w+\s*\(",
    "states of aggregates": r"\bexport_state\b|\b(finalize|combine|combine_aggr)\s*\("
    r"|\baggregate_state\b",
    "USING KEY": r"\busing\s+key\b",
    "sequences": r"\b(nextval|currval)\s*\(",
    "the catalog": r"\bduckdb_\w+\s*\(|\bpragma_\w+|\binformation_schema\b|\bpg_catalog\b"
    r"|\bsqlite_master\b|^\s*show\b|\bcurrent_(setting|schema|schemas|database|catalog)\b",
    "DuckDB's test tables": r"\btest_(vector|all)_types\b",
    "session variables": r"\bgetvariable\s*\(",
    "rowid": r"\browid\b",
    "statements within WITH": r"\bas\s*(not\s+)?(materialized\s*)?\(\s*"
    r"(insert|update|delete|merge)\b",
    "infinite times": r"'-?infinity'",
    "internal functions": r"\b(stats|create_sort_key|index_key|vector_type|replace_type|sleep_ms"
    r"|pg_sleep|can_cast_implicitly|constant_or_null)\s*\(",
    "collations": r"\bcollate\b|\bicu_sort_key\b|\bnoaccent\b",
}
# Kinds that the first of the report's two shares leaves out; the second one leaves out all.
MAIN_KINDS = ("VARIANT", "UHUGEINT", "TIMETZ", "BIT", "states of aggregates", "USING KEY", "macros")
MACRO = re.compile(
    r"\bcreate\s+(?:or\s+replace\s+)?(?:temp(?:orary)?\s+)?(?:macro|function)\s+"
    r"(?:if\s+not\s+exists\s+)?((?:[\w{}]+\.)*[\w{}]+)",
    re.IGNORECASE,
)


def macro_names(text: str) -> set[str]:
    """The names of the macros that a file creates."""
    return {name.split(".")[-1].lower() for name in MACRO.findall(text)}


def needed_machinery(verdict: dict[str, Any], names: Iterable[str] = ()) -> list[str]:
    """The machinery that a query needs, none if it is answered alike; `names` are of macros."""
    if verdict["outcome"] == "same":
        return []
    sql = verdict["sql"].lower()
    kinds = [kind for kind, pattern in KINDS.items() if re.search(pattern, sql)]
    if any(re.search(rf"\b{re.escape(name)}\s*\(", sql) for name in names):
        kinds.append("macros")
    if re.search(r"unknown table `[^`]*\.[^`]*`", verdict.get("message", "")):
        kinds.append("other schemas and databases")
    return kinds
