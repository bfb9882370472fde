"""The command line and the Python package can do the same, by the same names."""

import inspect
import os
import pathlib
import re
import subprocess

import pytest

import tidemill as tm

REPOSITORY = pathlib.Path(__file__).parents[1]

# What Python has in another way.
SOMEWHERE_ELSE = {
    "check": "check_schema",
    "cluster": "explain",
    "coverage": "Result.coverage, Written.coverage",
    "dry_run": "Job.explain",
    "explain": "explain",
    "file": "pathlib.Path(file).read_text()",
    "format": "schema() and jobs() give objects, and so does a result without an output",
    "help": "help()",
    "no_pager": "a terminal's; Python gives objects",
    "python": "the interpreter that runs",
    "rows": "a terminal's; Python gives all rows",
    "max_bad": "merge reads no records",
    "param": "params",
    "salvage": "recover, and in a job that of its source",
    "stats": "Result.stats, Written.stats, File.stats and read_stats()",
    "storage_option": "storage_options",
    "token_file": "TIDEMILL_TOKEN, or what tidemill.ray.up() has left in the state folder",
    "thousands": "a terminal's; Python gives numbers",
    "version": "__version__",
}


@pytest.fixture(scope="module")
def helped():
    target = os.environ.get("CARGO_TARGET_DIR", "target")
    path = REPOSITORY / target / "release" / "tidemill"
    assert path.exists(), f"{path} is not built: cargo build --release --package tidemill-cli"

    def run(*words):
        command = [path, *words, "--help"]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    return run


def flags(text):
    found = re.findall(r"^ +(?:-\w, +)?--([a-z][a-z0-9-]*)", text, re.MULTILINE)
    return {flag.replace("-", "_") for flag in found}


def test_every_verb_is_a_function(helped):
    commands = re.search(r"^Commands:\n((?:  .*\n)+)", helped(), re.MULTILINE)[1]
    verbs = set(re.findall(r"^  (\w+)", commands, re.MULTILINE)) - {"completions"}
    assert "query" in verbs and "merge" in verbs
    # A sketch is an object, the verbs of `fs` are all verbs themselves, and those of `cluster` are
    # functions of `tidemill.ray`.
    verbs = verbs - {"hll", "fs", "cluster"} | {"Hll"}
    assert sorted(verb for verb in verbs if not callable(getattr(tm, verb, None))) == []


@pytest.mark.parametrize("verb", ["cat", "get", "put", "ls", "stat", "du"])
def test_every_flag_of_files_is_a_parameter(verb, helped):
    parameters = set(inspect.signature(getattr(tm, verb)).parameters)
    # Python gives objects, in which sizes and times are, and a sum alone is of depth 0.
    elsewhere = {"long", "bytes", "human_readable", "summarize", *SOMEWHERE_ELSE}
    # `verify=False` is `--no-verify`.
    elsewhere.add("no_verify")
    assert sorted(flags(helped(verb)) - parameters - elsewhere) == []
    assert flags(helped("fs", verb)) == flags(helped(verb))


@pytest.mark.parametrize("verb", ["query", "run", "merge", "convert", "schema", "head", "ids"])
def test_every_flag_is_a_parameter(verb, helped):
    wanted = flags(helped(verb))
    assert "help" in wanted and len(wanted) > 5
    parameters = set(inspect.signature(getattr(tm, verb)).parameters)
    assert sorted(wanted - parameters - set(SOMEWHERE_ELSE)) == []
    if "storage_option" in wanted:
        assert "storage_options" in parameters


def test_every_report_of_the_job_log_is_one_of_python(helped):
    for report in ("list", "show", "top", "compare"):
        wanted = flags(helped("jobs", report)) - set(SOMEWHERE_ELSE)
        assert sorted(wanted - set(inspect.signature(tm.jobs).parameters)) == []


@pytest.mark.parametrize("verb", ["up", "status", "jobs", "down", "token"])
def test_every_verb_of_clusters_is_a_function_of_ray(verb, helped):
    from tidemill import ray

    wanted = flags(helped("cluster", verb)) - set(SOMEWHERE_ELSE)
    parameters = set(inspect.signature(getattr(ray, verb)).parameters)
    assert sorted(wanted - parameters) == []


def test_what_is_done_with_sketches_is_a_method(helped):
    methods = {"info": "estimate", "union": "__or__", "add": "add_values"}
    commands = re.search(r"^Commands:\n((?:  .*\n)+)", helped("hll"), re.MULTILINE)[1]
    verbs = re.findall(r"^  (\w+)", commands, re.MULTILINE)
    assert verbs == ["info", "union", "add", "intersect"]
    for verb in verbs:
        assert callable(getattr(tm.Hll, methods.get(verb, f"{verb}ion")))
    parameters = {
        name
        for method in (tm.Hll, tm.Hll.from_bytes, tm.Hll.estimate, tm.Hll.intersection)
        for name in inspect.signature(method).parameters
    }
    # What is written where, and what a line is: bytes and values are objects.
    elsewhere = {"output", "overwrite", "type", "values", *SOMEWHERE_ELSE}
    wanted = set().union(*(flags(helped("hll", verb)) for verb in verbs))
    assert sorted(wanted - elsewhere - parameters) == []
