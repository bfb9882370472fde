"""Parser and interpreter of sqllogictest files in DuckDB's dialect.

A file is a sequence of commands with blank lines between them. `parse` reads it into a flat list,
in which `include` is resolved and skipped parts are left out. `expand` walks the list, unrolls
loops and replaces variables, and yields each command as it is to be carried out. Expected results
are ignored.
"""

from __future__ import annotations

import operator
import pathlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

SIGNED = ["tinyint", "smallint", "integer", "bigint", "hugeint"]
UNSIGNED = ["utinyint", "usmallint", "uinteger", "ubigint", "uhugeint"]
FLOATING = ["float", "double"]
COLLECTIONS: dict[str, list[str]] = {
    "<signed>": SIGNED,
    "<unsigned>": UNSIGNED,
    "<integral>": SIGNED + UNSIGNED,
    "<numeric>": SIGNED + UNSIGNED + FLOATING,
    "<alltypes>": [*SIGNED, *UNSIGNED, *FLOATING, "bool", "interval", "varchar"],
}
SORT_MODES = ("none", "nosort", "rowsort", "sort", "valuesort")
LOOPS = ("loop", "concurrentloop", "foreach", "concurrentforeach")
# Longer operators first: `<` is a part of `<>` and of `<=`.
COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "<>": operator.ne,
    ">=": operator.ge,
    ">": operator.gt,
    "<=": operator.le,
    "<": operator.lt,
    "=": operator.eq,
}
LOOP_ITERATIONS_MAX = 10_000


class ScriptError(Exception):
    """A file that is not a valid sqllogictest file."""


@dataclass(frozen=True)
class Command:
    """A command of a file: its first word, the other words of its line, and the SQL below."""

    name: str
    words: tuple[str, ...]
    line: int
    sql: str = ""
    # Conditions of `skipif` and `onlyif` on loop variables, each with the value at which it holds.
    conditions: tuple[tuple[str, bool], ...] = ()

    @property
    def is_failure(self) -> bool:
        """True if the suite expects an error."""
        return self.name == "statement" and self.words[:1] == ("error",)

    @property
    def sort_mode(self) -> str:
        """The sort mode of a `query`; `nosort` if the file gives none."""
        mode = self.words[1] if self.name == "query" and len(self.words) > 1 else "nosort"
        return mode if mode in SORT_MODES else "nosort"

    @property
    def connection(self) -> str:
        """The name of the connection, empty for the default one."""
        name = self.words[1] if len(self.words) > 1 else ""
        return "" if self.name == "query" and name in SORT_MODES else name


@dataclass
class Variables:
    """Values of `{NAME}` in SQL and in the words of commands."""

    values: dict[str, str] = field(default_factory=dict)

    def substitute(self, text: str, loops: Sequence[tuple[str, str]] = ()) -> str:
        """Replace the variables of loops by their values, then those of the environment."""
        for name, value in [*loops, *self.values.items()]:
            text = text.replace("${" + name + "}", value).replace("{" + name + "}", value)
            if name.isupper():
                text = text.replace(f"__{name}__", value)
        return text


def is_blank(line: str) -> bool:
    """Return whether a line separates commands."""
    return not line or line.startswith("#")


def parse(
    path: pathlib.Path, root: pathlib.Path, fulfils: Callable[[tuple[str, ...]], bool]
) -> list[Command]:
    """Read a file; `fulfils` returns whether a requirement of `require` is there.

    Raises
    ------
    ScriptError
        The file is invalid, or requires something that is missing: the message starts with
        ``require``.
    """
    commands: list[Command] = []
    skip_level = 0
    for command in read_commands(path, root):
        if command.name == "mode":
            skip_level += {"skip": 1, "unskip": -1}.get(command.words[0], 0)
        elif skip_level > 0:
            continue
        elif command.name in ("require", "require-env"):
            if command.name == "require-env" or not fulfils(command.words):
                raise ScriptError(f"{command.name} {' '.join(command.words)}")
        elif command.name == "halt":
            break
        else:
            commands.append(command)
    return commands


def read_commands(path: pathlib.Path, root: pathlib.Path) -> Iterator[Command]:
    """Yield all commands of a file and of those that it includes."""
    lines = path.read_text(errors="replace").replace("\r", "").split("\n")
    position = 0
    conditions: list[tuple[str, bool]] = []
    is_skipped = False
    while position < len(lines):
        if is_blank(lines[position]):
            position += 1
            continue
        number = position + 1
        name, *words = lines[position].split() or [""]
        position += 1
        if name in ("skipif", "onlyif"):
            condition = "".join(words).lower()
            if any(sign in condition for sign in "<>="):
                conditions.append((condition, name == "onlyif"))
            elif (condition == "duckdb") == (name == "skipif"):
                is_skipped = True
            continue
        sql = []
        if name in ("statement", "query"):
            while position < len(lines) and not is_blank(lines[position]):
                if lines[position] == "----":
                    break
                sql.append(lines[position])
                position += 1
            if position < len(lines) and lines[position] == "----":
                # Expected results end at an empty line, and may contain `#`.
                while position < len(lines) and lines[position]:
                    position += 1
        command = Command(name, tuple(words), number, "\n".join(sql), tuple(conditions))
        was_skipped, is_skipped, conditions = is_skipped, False, []
        if was_skipped:
            continue
        if name == "include":
            yield from read_commands(root / words[0], root)
        else:
            yield command


def expand(
    commands: Sequence[Command], variables: Variables, loops: Sequence[tuple[str, str]] = ()
) -> Iterator[Command]:
    """Unroll loops and replace variables."""
    position = 0
    while position < len(commands):
        command = commands[position]
        position += 1
        if command.name in LOOPS:
            end = loop_end(commands, position)
            for values in iterations(command, variables, loops):
                yield from expand(commands[position:end], variables, [*loops, *values])
            position = end + 1
            continue
        if not all(
            condition_holds(text, dict(loops)) is wanted for text, wanted in command.conditions
        ):
            continue
        if command.name == "continue":
            return
        words = tuple(variables.substitute(word, loops) for word in command.words)
        sql = variables.substitute(command.sql, loops)
        yield replace(command, words=words, sql=sql)


def loop_end(commands: Sequence[Command], position: int) -> int:
    """Return the position of the `endloop` of a loop whose body starts at `position`."""
    depth = 1
    for index in range(position, len(commands)):
        depth += (commands[index].name in LOOPS) - (commands[index].name == "endloop")
        if depth == 0:
            return index
    raise ScriptError(f"line {commands[position - 1].line}: the loop has no `endloop`")


def iterations(
    command: Command, variables: Variables, loops: Sequence[tuple[str, str]]
) -> Iterator[list[tuple[str, str]]]:
    """Yield the values of a loop's variables, one list for each iteration."""
    name, *words = (variables.substitute(word, loops) for word in command.words)
    if command.name in ("loop", "concurrentloop"):
        try:
            first, last = map(int, words)
        except ValueError:
            raise ScriptError(
                f"line {command.line}: a loop needs two numbers, not {words}"
            ) from None
        for value in range(first, min(last, first + LOOP_ITERATIONS_MAX)):
            yield [(name, str(value))]
        return
    tokens: list[str] = []
    for word in words:
        if word.lower() in COLLECTIONS:
            tokens += COLLECTIONS[word.lower()]
        elif word.startswith("!") and word[1:] in tokens:
            tokens.remove(word[1:])
        else:
            tokens.append(word)
    names = name.split(",")
    for token in tokens:
        values = token.split(",") if len(names) > 1 else [token]
        if len(values) != len(names):
            raise ScriptError(f"line {command.line}: `{name}` and `{token}` differ in length")
        yield list(zip(names, values, strict=True))


def condition_holds(condition: str, loops: Mapping[str, str]) -> bool:
    """Return whether a condition on loop variables holds, such as ``i>=3&&i<7``."""
    return all(comparison_holds(part, loops) for part in condition.split("&&"))


def comparison_holds(condition: str, loops: Mapping[str, str]) -> bool:
    for sign, compare in COMPARISONS.items():
        name, found, value = condition.partition(sign)
        if not found:
            continue
        actual = {key.lower(): text for key, text in loops.items()}.get(name.strip())
        if actual is None:
            return False
        if re.fullmatch(r"-?\d+", actual) and re.fullmatch(r"-?\d+", value.strip()):
            return compare(int(actual), int(value))
        is_equal = actual.lower() == value.strip()
        return is_equal if sign == "=" else not is_equal if sign == "<>" else False
    raise ScriptError(f"`{condition}` is not a condition")
