"""A process that runs one file: statements on DuckDB, queries on DuckDB and on Tidemill.

The process sends messages to its parent, each a pair of a word and a dictionary:

    question  a query goes to Tidemill; if no answer follows in time, the parent ends the process
    answer    Tidemill has answered
    verdict   the outcome of a query
    end       the end of the file, with the counts of other records and why the rest is left out

The process ends with its parent, however that ends.
"""

from __future__ import annotations

import collections
import contextlib
import gzip
import importlib
import multiprocessing
import multiprocessing.connection
import os
import pathlib
import re
import resource
import shutil
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

import duckdb

# PyArrow imports it where it converts values: once, before the processes fork.
import pandas  # noqa: F401
import pyarrow as pa
import pyarrow.compute

from . import engine
from .intended import EXPLAINED_ROWS_MAX
from .rows import TooManyRowsError, difference, has_same_order, quote_head, quote_rows
from .sqllogic import Command, ScriptError, Variables, expand, parse

ADDRESS_SPACE = 12 << 30
DUCKDB_MEMORY = "2GB"
VECTOR_SIZE, BLOCK_SIZE = 2048, 262_144
FULFILLED = frozenset(
    "notmusl notmingw notwindows longdouble 64bit noforcestorage no_force_storage nothreadsan "
    "strinline skip_reload no_alternative_verify no_latest_storage no_vector_verification "
    "no_extension_autoloading no_block_verification".split()
)
# Settings of DuckDB's that change answers, and that Tidemill's queries have no place for.
SETTINGS = (
    "TimeZone",
    "Calendar",
    "default_collation",
    "default_null_order",
    "default_order",
    "ieee_floating_point_ops",
    "integer_division",
    "lambda_syntax",
    "old_implicit_casting",
    "order_by_non_integer_literal",
    "regex_match_operator_semantics",
    "scalar_subquery_error_on_multiple_rows",
)
# Fields of a verdict that describe one answer of DuckDB's: a comparison with another replaces them.
COMPARISON_FIELDS = (
    "outcome",
    "message",
    "expected",
    "actual",
    "unmatched",
    "types",
    "order",
    "names",
)
JUDGED_TYPES = ("SELECT", "MULTI")

Engine = Callable[[str, Mapping[str, pa.Table]], pa.Table]


@dataclass(frozen=True)
class Task:
    """A file to run."""

    root: pathlib.Path
    path: pathlib.Path
    # The function that runs a query on Tidemill, as `module:function`.
    engine: str
    # Number of queries that an earlier process has judged.
    judged_count: int
    duckdb_seconds: float
    with_errors: bool = False


@dataclass
class Session:
    """DuckDB's databases and connections of a file."""

    seconds: float
    path: str = ":memory:"
    is_read_only: bool = False
    storage: str = ""
    connections: dict[str, duckdb.DuckDBPyConnection] = field(default_factory=dict)
    # By connection and name: tables that were read, and queries that were judged, since the last
    # statement.
    tables: dict[tuple[str, str], pa.Table] = field(default_factory=dict)
    relations: dict[str, list[str]] = field(default_factory=dict)
    asked_queries: set[tuple[str, str]] = field(default_factory=set)
    defaults: dict[str, str] = field(default_factory=dict)

    def connection(self, name: str = "") -> duckdb.DuckDBPyConnection:
        """Return the connection of a name, which is made if it is new."""
        if "" not in self.connections:
            config: dict[str, Any] = {"threads": 1, "memory_limit": DUCKDB_MEMORY}
            if self.storage:
                config["storage_compatibility_version"] = self.storage
            first = duckdb.connect(self.path, read_only=self.is_read_only, config=config)
            # No extension is downloaded.
            first.execute("SET autoinstall_known_extensions = false")
            first.execute("SET autoload_known_extensions = false")
            first.execute("SET temp_directory = 'spill'")
            self.connections[""] = first
            self.prepare(first)
            self.defaults = self.settings("")
        if name not in self.connections:
            self.connections[name] = self.connections[""].cursor()
            self.prepare(self.connections[name])
        return self.connections[name]

    def prepare(self, connection: duckdb.DuckDBPyConnection) -> None:
        # Variables of this process are no tables.
        connection.execute("SET python_enable_replacements = false")
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute("SET enable_progress_bar = false")

    def settings(self, name: str) -> dict[str, str]:
        """The settings of a connection that change answers."""
        found = self.connection(name).execute("SELECT name, value FROM duckdb_settings()")
        return {key: value for key, value in found.fetchall() if key in SETTINGS}

    def changed_settings(self, name: str) -> dict[str, str]:
        try:
            current = self.settings(name)
        except duckdb.Error:
            return {}
        return {key: it for key, it in current.items() if it != self.defaults.get(key)}

    @contextlib.contextmanager
    def default_settings(self, name: str, changed: Mapping[str, str]) -> Iterator[None]:
        """Set changed settings to their defaults for a while."""
        connection = self.connection(name)
        try:
            for setting in changed:
                connection.execute(f"SET {setting} = '{self.defaults[setting]}'")
            yield
        finally:
            for setting, value in changed.items():
                connection.execute(f"SET {setting} = '{value}'")

    def close(self) -> None:
        """Close the database, so that the next connection opens it again."""
        for connection in self.connections.values():
            connection.close()
        self.connections.clear()
        self.forget()

    def forget(self) -> None:
        """Forget the tables, which a statement may have changed."""
        self.tables.clear()
        self.relations.clear()
        self.asked_queries.clear()

    def run(self, name: str, sql: str) -> None:
        """Run statements."""
        self.forget()
        connection = self.connection(name)
        with self.limit(connection):
            connection.execute(sql)
            if connection.description:
                # Runs the statement to its end, also if Python has no object for a value.
                connection.to_arrow_table()

    def fetch_answer(self, name: str, sql: str) -> pa.Table:
        """Return DuckDB's answer to a query."""
        connection = self.connection(name)
        with self.limit(connection):
            return connection.execute(sql).to_arrow_table()

    def limit(self, connection: duckdb.DuckDBPyConnection) -> _Interruption:
        return _Interruption(connection, self.seconds)

    def tables_of_query(self, name: str, sql: str) -> dict[str, pa.Table]:
        """The tables and views that a query names."""
        if name not in self.relations:
            found = self.connection(name).execute(
                "SELECT table_name FROM duckdb_tables() UNION "
                "SELECT view_name FROM duckdb_views() WHERE NOT internal"
            )
            self.relations[name] = sorted(relation for (relation,) in found.fetchall())
        # `get_table_names` has what is below a view instead of the view.
        words = set(re.findall(r"\w+", sql.lower()))
        tables = {}
        for relation in self.relations[name]:
            is_word = re.fullmatch(r"\w+", relation)
            if relation.lower() not in words if is_word else relation not in sql:
                continue
            if (name, relation) not in self.tables:
                quoted_name = relation.replace('"', '""')
                try:
                    table = self.fetch_answer(name, f'SELECT * FROM "{quoted_name}"')
                except (duckdb.Error, pa.ArrowException, ValueError):
                    # The table is in another schema, or Arrow has no types for its columns.
                    continue
                self.tables[name, relation] = table
            # Without quotes Tidemill takes capitals for small letters.
            is_quoted = f'"{relation}"' in sql
            tables[relation if is_quoted else relation.lower()] = self.tables[name, relation]
        return tables


class _Interruption:
    """A context that interrupts a connection after some seconds."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, seconds: float) -> None:
        self.timer = threading.Timer(seconds, connection.interrupt)
        self.timer.daemon = True

    def __enter__(self) -> None:
        self.timer.start()

    def __exit__(self, *_: object) -> None:
        self.timer.cancel()


class FileRun:
    """The run of one file."""

    def __init__(self, task: Task, parent: Connection) -> None:
        self.task = task
        self.parent = parent
        module, _, function = task.engine.partition(":")
        self.run_query: Engine = getattr(importlib.import_module(module), function)
        self.session = Session(task.duckdb_seconds)
        self.variables = Variables()
        self.uncounted: collections.Counter[str] = collections.Counter()
        self.number = 0
        # Tidemill's last answer.
        self.actual = pa.table({})

    def fulfils(self, words: tuple[str, ...]) -> bool:
        """Return whether a requirement of `require` is there."""
        name = words[0].lower()
        if name == "vector_size":
            return int(words[1]) <= VECTOR_SIZE
        if name in ("exact_vector_size", "block_size"):
            return int(words[1]) == (VECTOR_SIZE if name[0] == "e" else BLOCK_SIZE)
        if name in FULFILLED:
            return True
        found = self.session.connection().execute(
            "SELECT loaded FROM duckdb_extensions() WHERE extension_name = ?", [name]
        )
        return found.fetchone() == (True,)

    def run(self) -> None:
        """Run all commands of the file, in a folder of its own."""
        here = pathlib.Path.cwd()
        self.variables.values = {
            "TEST_DIR": str(here / "scratch"),
            "TEMP_DIR": str(here / "scratch"),
            "WORKING_DIRECTORY": str(here),
            "DATA_DIR": "data",
            "UUID": "00000000-0000-4000-8000-000000000000",
            "TEST_NAME": self.task.path.name,
            "BASE_TEST_NAME": self.task.path.stem,
        }
        reason = ""
        try:
            commands = parse(self.task.path, self.task.root, self.fulfils)
            for command in expand(commands, self.variables):
                self.carry_out(command)
        except ScriptError as error:
            reason = str(error)
        except Exception as error:
            reason = f"{type(error).__name__}: {first_line(error)}"
        self.parent.send(("end", {"reason": reason, "uncounted": dict(self.uncounted)}))

    def carry_out(self, command: Command) -> None:
        """Carry out one command."""
        session, words = self.session, command.words
        match command.name:
            case "statement" if command.is_failure and self.task.with_errors:
                self.judge_failure(command)
            case "statement":
                try:
                    session.run(command.connection, command.sql)
                except (duckdb.Error, pa.ArrowException):
                    if not command.is_failure:
                        self.uncounted["statement that DuckDB refuses"] += 1
            case "query":
                self.judge(command)
            case "load":
                session.close()
                session.path = words[0] if words else ":memory:"
                session.is_read_only = words[1:2] == ("readonly",)
                session.storage = words[2] if len(words) > 2 else ""
            case "restart":
                session.close()
            case "reconnect":
                if session.path == ":memory:":
                    session.forget()
                else:
                    session.close()
            case "unzip":
                with gzip.open(words[0]) as packed, open(words[1], "wb") as file:
                    shutil.copyfileobj(packed, file)
            case "set" if words[0] == "seed":
                session.run("", f"SELECT setseed({float(words[1])})")
            case "set" if words[0] == "variable":
                self.variables.values[words[1]] = words[2]
            case "test-env":
                self.variables.values[words[0]] = words[1]

    def judge(self, command: Command) -> None:
        """Run a query on both engines, and compare the answers."""
        session, sql, name = self.session, command.sql, command.connection
        try:
            # The last of several statements is judged.
            *first_statements, last = session.connection(name).extract_statements(sql)
            for statement in first_statements:
                session.run(name, statement.query)
        except (duckdb.Error, ValueError):
            self.uncounted["query that DuckDB refuses"] += 1
            return
        if first_statements:
            sql = last.query
        if last.type.name not in JUDGED_TYPES:
            try:
                session.run(name, sql)
            except duckdb.Error:
                pass
            self.uncounted[f"query of another kind than SELECT: {last.type.name}"] += 1
            return
        if (name, sql) in session.asked_queries:
            self.uncounted["query that was asked before on the same tables"] += 1
            return
        session.asked_queries.add((name, sql))
        try:
            expected = session.fetch_answer(name, sql)
        except (duckdb.Error, pa.ArrowException, ValueError):
            self.uncounted["query that DuckDB refuses"] += 1
            return
        self.number += 1
        if self.number <= self.task.judged_count:
            return
        verdict = self.compare_with_tidemill(command, sql, expected)
        if verdict["outcome"] == "different" or "order" in verdict:
            verdict = self.compare_again(command, sql, expected, verdict)
        self.parent.send(("verdict", verdict))

    def compare_again(
        self, command: Command, sql: str, expected: pa.Table, verdict: dict[str, Any]
    ) -> dict[str, Any]:
        """Run a query on DuckDB again, and return the verdict that follows.

        By its default settings if the file has changed some, and else to see whether the answer is
        the same each time.
        """
        session, name = self.session, command.connection
        try:
            if changed := session.changed_settings(name):
                with session.default_settings(name, changed):
                    usual = session.fetch_answer(name, sql)
                again = self.compare_answers(command, sql, usual, self.actual)
                verdict = {key: it for key, it in verdict.items() if key not in COMPARISON_FIELDS}
                return verdict | again | {"settings": changed}
            if verdict["outcome"] == "different":
                if difference(expected, session.fetch_answer(name, sql)):
                    self.uncounted["query to which DuckDB has another answer each time"] += 1
                    verdict["outcome"] = "uncounted"
        except (duckdb.Error, pa.ArrowException, ValueError, TooManyRowsError):
            # There is no other answer, or none that can be compared.
            pass
        return verdict

    def compare_with_tidemill(
        self, command: Command, sql: str, expected: pa.Table
    ) -> dict[str, Any]:
        """Run a query on Tidemill, and return the verdict on its answer."""
        verdict: dict[str, Any] = {"line": command.line, "number": self.number, "sql": sql}
        tables = self.session.tables_of_query(command.connection, sql)
        self.parent.send(("question", verdict | {"expected": quote_head(expected)}))
        start = time.monotonic()
        try:
            actual = self.run_query(sql, tables)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            return verdict | {
                "outcome": engine.error_outcome(error),
                "message": str(error),
                "class": type(error).__name__,
                "seconds": round(time.monotonic() - start, 3),
                "expected": quote_head(expected),
            }
        verdict["seconds"] = round(time.monotonic() - start, 3)
        self.actual = actual
        self.parent.send(("answer", {}))
        return verdict | self.compare_answers(command, sql, expected, actual)

    def compare_answers(
        self, command: Command, sql: str, expected: pa.Table, actual: pa.Table
    ) -> dict[str, Any]:
        """Compare two answers."""
        verdict: dict[str, Any]
        try:
            found = difference(expected, actual)
        except TooManyRowsError as error:
            return {"outcome": "not compared", "message": str(error)}
        if found:
            verdict = {
                "outcome": "different",
                "message": found.message,
                "expected": quote_rows(found.expected),
                "actual": quote_rows(found.actual),
                "types": [[str(kind) for kind in it.schema.types] for it in (expected, actual)],
            }
            if found.is_complete and max(map(len, found.rows)) <= EXPLAINED_ROWS_MAX:
                verdict["unmatched"] = found.rows
        else:
            verdict = {"outcome": "same"}
            is_ordered = re.search(r"\border\s+by\b", sql, re.IGNORECASE)
            if is_ordered and command.sort_mode == "nosort":
                if not has_same_order(expected, actual):
                    rows = {"expected": quote_head(expected), "actual": quote_head(actual)}
                    verdict |= {"order": True} | rows
        if expected.column_names != actual.column_names:
            verdict["names"] = [expected.column_names, actual.column_names]
        return verdict

    def judge_failure(self, command: Command) -> None:
        """Run a statement on Tidemill that the file expects DuckDB to refuse."""
        session, sql, name = self.session, command.sql, command.connection
        try:
            statements = session.connection(name).extract_statements(sql)
        except duckdb.Error:
            statements = []
        if len(statements) != 1 or statements[0].type.name not in JUDGED_TYPES:
            try:
                session.run(name, sql)
            except duckdb.Error:
                pass
            return
        try:
            session.fetch_answer(name, sql)
            return
        except (duckdb.Error, pa.ArrowException, ValueError) as error:
            refusal = first_line(error)
        self.number += 1
        if self.number <= self.task.judged_count:
            return
        verdict = self.compare_with_tidemill(command, sql, pa.table({}))
        if verdict["outcome"] in ("same", "different"):
            verdict["outcome"] = "answered"
        elif verdict["outcome"] == "refused":
            verdict["outcome"] = "uncounted"
        verdict |= {"expected": [], "duckdb": refusal}
        self.parent.send(("verdict", verdict))


def first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


def end_with_parent(folder: str) -> None:
    """Wait until the parent ends, and end this process then."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        multiprocessing.connection.wait([parent.sentinel])
        # The parent would have removed the folder.
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(1)


def run(task: Task, parent: Connection, folder: str) -> None:
    """Run a file in this process, with a folder as the working directory."""
    threading.Thread(target=end_with_parent, args=[folder], daemon=True).start()
    os.environ |= {"TIDEMILL_JOB_LOG": "off", "TZ": "UTC"}
    warnings.simplefilter("ignore")
    if sys.platform == "linux":
        resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.environ["TIDEMILL_HOME"] = os.path.join(folder, "home")
    os.chdir(folder)
    os.mkdir("scratch")
    for name in ("data", "test"):
        if (task.root / name).exists():
            os.symlink(task.root / name, name)
    # Nobody reads the messages of a process whose parent has ended.
    with contextlib.suppress(BrokenPipeError):
        FileRun(task, parent).run()
