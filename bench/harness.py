"""What every benchmark shares: settings, the peers' environment, measuring, tables.

A benchmark is a folder with a `bench.py` that has a `run(settings, report)`. One that
compares engines builds `Case`s and hands them to `compare`, which

- runs every engine once unmeasured (programs come into the page cache, Python
  writes its bytecode);
- then runs `rounds` rounds, each engine once per round in the same order, every
  run a fresh process, so that a machine that slows down for a minute slows all
  engines and not one;
- reads the input into the page cache before each run, so that no engine profits
  from the one before it (some virtual machines take idle pages back in seconds);
- checks every answer: an engine that answers wrongly is left out of the case, and
  the whole run fails in the end;
- pairs the ratios by round: tidemill's figure of round 3 is divided by the peer's
  figure of round 3.

Only the standard library: the harness itself needs nothing installed.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.util
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

BENCH = Path(__file__).resolve().parent
ROOT = BENCH.parent
VENV = BENCH / ".venv"


class Failure(Exception):
    """What the user has to know and can do something about; no traceback is shown."""


def say(text: str) -> None:
    """Progress, on standard error: standard output holds the tables only."""
    print(text, file=sys.stderr, flush=True)


@dataclasses.dataclass
class Settings:
    """What was asked for on the command line."""

    rounds: int
    only: list[str]
    without: set[str]
    rows: int
    cache: Path
    timeout_s: float
    extra_binaries: dict[str, Path]
    prepare_only: bool
    list_only: bool
    limits_disk_mib: int
    # Where `prefetch` draws, instead of measuring.
    plots: Path | None = None

    def scratch(self) -> Path:
        folder = self.cache / "scratch"
        folder.mkdir(parents=True, exist_ok=True)
        return folder


# ------------------------------------------------------------------ programs


def load(name: str):
    """A benchmark's `bench.py`."""
    spec = importlib.util.spec_from_file_location(f"bench_{name}", BENCH / name / "bench.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def tidemill_binaries(settings: Settings) -> dict[str, Path]:
    """The tidemill binaries to measure: the built one and those of `--also`.

    The built one is `$TIDEMILL`, else `$CARGO_TARGET_DIR/release/tidemill`, else
    `target/release/tidemill`.
    """
    binaries = {}
    if "tidemill" not in settings.without:
        named = os.environ.get("TIDEMILL")
        target = Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target")
        path = Path(named) if named else target / "release" / "tidemill"
        if not is_program(path):
            source = " (named by TIDEMILL)" if named else ""
            raise Failure(
                f"no tidemill binary at `{path}`{source}\n"
                "hint: build it with `cargo build --release --bin tidemill`, name another with "
                "TIDEMILL=PATH, or measure only the peers with `--without tidemill`"
            )
        binaries["tidemill"] = path.resolve()
    for name, path in settings.extra_binaries.items():
        if not is_program(path):
            raise Failure(f"no program at `{path}` (named by `--also {name}={path}`)")
        binaries[name] = path.resolve()
    return binaries


def is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def peers_python(folder: Path = BENCH) -> Path:
    """The Python that has a folder's pinned peers; installs them when they are missing."""
    venv = folder / ".venv"
    python = venv / "bin" / "python"
    requirements = folder / "requirements.txt"
    wanted = hashlib.sha256(requirements.read_bytes()).hexdigest() + " " + platform.python_version()
    stamp = venv / "installed"
    if python.exists() and stamp.exists() and stamp.read_text() == wanted:
        return python
    say(f"installing the peers into {venv.relative_to(ROOT)} (about a minute) ...")
    shutil.rmtree(venv, ignore_errors=True)
    try:
        subprocess.run([sys.executable, "-m", "venv", venv], check=True, stdout=sys.stderr)
        pip = [python, "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
        subprocess.run([*pip, "--no-deps", "-r", requirements], check=True, stdout=sys.stderr)
    except subprocess.CalledProcessError as error:
        raise Failure(
            "the peers could not be installed (see above)\n"
            "hint: a package registry must be reachable, and Python needs its `venv` module "
            "(Debian: `apt install python3-venv`)"
        ) from error
    stamp.write_text(wanted)
    return python


def peers_site_packages() -> Path:
    """Where the peers' environment keeps its packages."""
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    asked = subprocess.run([peers_python(), "-c", code], check=True, capture_output=True, text=True)
    return Path(asked.stdout.strip())


def peer_versions(folder: Path = BENCH) -> dict[str, str]:
    pins = (folder / "requirements.txt").read_text().splitlines()
    return dict(line.split("==") for line in pins if "==" in line and not line.startswith("#"))


def peer_version(peer: str) -> str:
    # ClickHouse's engine alone; the package `chdb` adds pandas to it.
    package = {"chdb": "chdb-core"}.get(peer, peer)
    return peer_versions()[package]


def limits_program(settings: Settings) -> Path | None:
    """`limits/limits.rs` compiled for this machine, or `None` without a compiler."""
    source = BENCH / "limits" / "limits.rs"
    try:
        compiler = subprocess.run(
            ["rustc", "-vV"], check=True, capture_output=True, cwd=ROOT
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        say("warning: no `rustc`: the machine's limits are not measured")
        return None
    # The compiler and the machine are part of the name: a cache may outlive both.
    digest = hashlib.sha256(source.read_bytes() + compiler + cpu_model().encode()).hexdigest()[:12]
    program = settings.cache / "bin" / f"limits-{digest}"
    if not program.exists():
        program.parent.mkdir(parents=True, exist_ok=True)
        partial = program.with_suffix(f".{os.getpid()}.tmp")
        command = ["rustc", "--edition", "2024", "-O", "-C", "target-cpu=native"]
        done = subprocess.run([*command, "-o", partial, source], cwd=ROOT)
        if done.returncode != 0:
            raise Failure(f"`{source.relative_to(ROOT)}` does not compile (see above)")
        partial.rename(program)
    return program


def cargo_program(folder: Path, name: str, what: str) -> Path:
    """The program `peers` of a Cargo workspace of its own, built for this machine."""
    target = Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target").absolute() / name
    say(f"building {what} (some minutes the first time) ...")
    # In its folder, for the sake of its `.cargo/config.toml`. Not `--locked`: a dependency that
    # the measured crate gains is added to the lock file, in which the peers stay where they are.
    command = ["cargo", "build", "--release", "--target-dir", target]
    environment = {name: value for name, value in os.environ.items() if name != "RUSTFLAGS"}
    try:
        done = subprocess.run([str(word) for word in command], cwd=folder, env=environment)
    except OSError as error:
        raise Failure(f"no `cargo`: {what} cannot be built") from error
    if done.returncode != 0:
        raise Failure(f"`{folder.relative_to(ROOT)}` does not compile (see above)")
    return target / "release" / "peers"


def java_classpath(cache: Path, folder: Path, name: str, properties: dict[str, str] | None = None) -> str:
    """The class path of a Maven project, which is built if it is not yet; `name` tells its builds apart."""
    sources = [folder / "pom.xml", *sorted((folder / "src").rglob("*.java"))]
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:12]
    built = cache / "bin" / f"{name}-{digest}"
    if not built.exists():
        say(f"building {folder.relative_to(ROOT)} ...")
        partial = built.with_name(f"{built.name}.{os.getpid()}.tmp")
        command = ["mvn", "-q", "-B", "-f", folder / "pom.xml"]
        command += [f"-D{key}={value}" for key, value in (properties or {}).items()]
        command += [f"-Dbuild.folder={partial}", "process-classes"]
        try:
            done = subprocess.run([str(word) for word in command], stdout=sys.stderr)
        except OSError as error:
            raise Failure("no `mvn`: Java's peers need a JDK of version 17 or later and Maven") from error
        if done.returncode != 0:
            shutil.rmtree(partial, ignore_errors=True)
            raise Failure(f"`{folder.relative_to(ROOT)}` does not compile (see above)")
        partial.rename(built)
    return f"{built / 'classes'}:{(built / 'classpath').read_text().strip()}"


# ------------------------------------------------------------------- machine


def cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def steal_s() -> float | None:
    """Seconds that the hypervisor gave to others while this machine wanted to run."""
    try:
        fields = Path("/proc/stat").read_text().splitlines()[0].split()
        return int(fields[8]) / os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError, ValueError):
        return None


def busy_s() -> float | None:
    """CPU seconds that all processes of this machine have used since it started."""
    try:
        fields = Path("/proc/stat").read_text().splitlines()[0].split()
        user, nice, system, _idle, _iowait, irq, softirq = map(int, fields[1:8])
        return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError, ValueError):
        return None


def machine() -> dict:
    return {
        "cpu": cpu_model(),
        "cores": cores(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "load_before": round(os.getloadavg()[0], 2),
    }


def machine_line(facts: dict) -> str:
    gib = facts["memory_bytes"] / 2**30
    return (
        f"{facts['cpu']}, {facts['cores']} cores, {gib:.0f} GiB memory, {facts['system']}; "
        f"load before: {facts['load_before']}"
    )


# ----------------------------------------------------------------- measuring


@dataclasses.dataclass
class Run:
    """One measured process."""

    wall_s: float
    cpu_s: float
    rss_bytes: int
    rss_floor_bytes: int
    disk_read_bytes: int
    # CPU time that other processes took meanwhile; the launcher's start is in it.
    others_cpu_s: float
    work_s: float
    stdout: str
    # What the check found out about an estimate's error, by name.
    accuracy: dict[str, float] = dataclasses.field(default_factory=dict)


def measure(command: list, settings: Settings) -> Run:
    """Runs a command in a fresh process. Raises `Failure` if it does not end well.

    A command that prints a JSON line with `work_s` last says by it how much of
    its wall time was work; one that does not is taken to work all the time.
    """
    folder = settings.scratch()
    stdout, stderr = folder / "stdout", folder / "stderr"
    launcher = [sys.executable, "-I", "-S", BENCH / "measure.py", settings.timeout_s, stdout, stderr]
    environment = os.environ | {
        # A run's own records stay with the benchmark.
        "TIDEMILL_HOME": str(folder / "tidemill-home"),
    }
    before = busy_s()
    process = subprocess.Popen(
        [str(word) for word in [*launcher, *command]],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env=environment,
    )
    try:
        answer, complaint = process.communicate()
    except BaseException:
        process.terminate()  # it kills what it started
        process.wait()
        raise
    if process.returncode != 0:
        raise Failure(complaint.strip())
    cost = json.loads(answer)
    others_cpu_s = 0.0
    if before is not None:
        others_cpu_s = max(0.0, (busy_s() or 0) - before - cost["user_s"] - cost["sys_s"])
    if cost["timed_out"]:
        raise Failure(f"stopped after {settings.timeout_s:.0f} s")
    if cost["exit"] != 0:
        lines = stderr.read_text(errors="replace").strip().splitlines()
        how = f"exit status {cost['exit']}" if cost["exit"] > 0 else f"signal {-cost['exit']}"
        raise Failure(f"{how}: " + ("\n".join(lines[-12:]) or "nothing on standard error"))
    printed = stdout.read_text(errors="replace")
    return Run(
        wall_s=cost["wall_s"],
        cpu_s=cost["user_s"] + cost["sys_s"],
        rss_bytes=cost["rss_bytes"],
        rss_floor_bytes=cost["rss_floor_bytes"],
        disk_read_bytes=cost["disk_read_bytes"],
        others_cpu_s=others_cpu_s,
        work_s=last_json(printed).get("work_s", cost["wall_s"]),
        stdout=printed,
    )


def last_json(text: str) -> dict:
    lines = text.strip().splitlines()
    if lines and lines[-1].startswith("{"):
        try:
            return json.loads(lines[-1])
        except ValueError:
            pass
    return {}


# ----------------------------------------------------------------- comparing


@dataclasses.dataclass
class Engine:
    """One engine's way of doing a case."""

    command: list
    output: Path | None = None
    ours: bool = False
    limit: bool = False
    # Its own form of the case's input, if it has one.
    input: Path | None = None


@dataclasses.dataclass
class Case:
    """The same work for several engines over the same input.

    `input` is a file, `input_bytes` is what an engine has to read: the file, or its columns in use.
    `file_bytes` is what the limit reads. `check(run, engine)` returns what is wrong with the answer, or `None`.
    """

    name: str
    variant: str
    input: Path
    input_bytes: int
    file_bytes: int
    engines: dict[str, Engine]
    check: Callable[[Run, Engine], str | None]


def peer_engines(
    folder: Path, peers: list[str], words: list, ending: str, settings: Settings
) -> dict[str, Engine]:
    """`folder/peer_NAME.py WORDS… OUTPUT` for each peer, in the peers' environment; `ending` is the output's."""
    engines = {}
    for peer in peers:
        output = settings.scratch() / f"{peer}.{ending}"
        command = [VENV / "bin" / "python", "-I", folder / f"peer_{peer}.py", *words, output]
        engines[peer] = Engine(command, output)
    return engines


def select(cases: list[Case], words: list[str], without: set[str]) -> list[Case]:
    """Keeps what `--only` names: words of a kind are alternatives, kinds must all hold."""
    kinds = {
        "case": list(dict.fromkeys(case.name for case in cases)),
        "format": list(dict.fromkeys(case.variant for case in cases)),
        "engine": list(dict.fromkeys(name for case in cases for name in case.engines)),
    }
    unknown = without - set(kinds["engine"]) - {"tidemill"}
    if unknown:
        raise Failure(
            f"`--without` knows no engine `{min(unknown)}`\n"
            f"hint: engines: {', '.join(kinds['engine'])}"
        )
    chosen: dict[str, set[str]] = {kind: set() for kind in kinds}
    for word in words:
        kind = next((kind for kind, known in kinds.items() if word in known), None)
        if kind is None:
            known = "; ".join(f"{kind}s: {', '.join(names)}" for kind, names in kinds.items())
            raise Failure(f"`--only` knows no `{word}`\nhint: {known}")
        chosen[kind].add(word)

    def kept(kind: str, name: str) -> bool:
        return not chosen[kind] or name in chosen[kind]

    selected = []
    for case in cases:
        if kept("case", case.name) and kept("format", case.variant):
            engines = {
                name: engine
                for name, engine in case.engines.items()
                if name not in without and (engine.limit or kept("engine", name))
            }
            selected.append(dataclasses.replace(case, engines=engines))
    return selected


def warm(path: Path) -> None:
    """Reads a file into the page cache."""
    block = bytearray(1 << 20)
    with open(path, "rb", buffering=0) as file:
        while file.readinto(block):
            pass


def run_checked(case: Case, name: str, settings: Settings) -> Run:
    engine = case.engines[name]
    warm(engine.input or case.input)
    if engine.output:
        engine.output.unlink(missing_ok=True)
    run = measure(engine.command, settings)
    if engine.output and not engine.output.is_file():
        raise Failure(f"wrote no file `{engine.output}`")
    wrong = case.check(run, engine)
    if wrong:
        raise Failure(f"wrong answer: {wrong}")
    return run


def compare(case: Case, settings: Settings) -> dict:
    """Measures one case. Returns the runs by engine, and the failures by engine."""
    runs: dict[str, list[Run]] = {}
    failures: dict[str, str] = {}
    for turn in range(settings.rounds + 1):
        for name in case.engines:
            if name in failures:
                continue
            label = f"round {turn} of {settings.rounds}" if turn else "warm-up"
            try:
                run = run_checked(case, name, settings)
            except Failure as failure:
                failures[name] = str(failure)
                runs.pop(name, None)
                say(f"  {case.name}, {case.variant}, {name}: FAILED: {failure}")
                continue
            say(f"  {case.name}, {case.variant}, {label}: {name} {run.wall_s:.2f} s")
            if turn:
                runs.setdefault(name, []).append(run)
    return {
        "case": case.name,
        "format": case.variant,
        "input_bytes": case.input_bytes,
        "file_bytes": case.file_bytes,
        "runs": {
            name: [{k: v for k, v in vars(run).items() if k != "stdout"} for run in measured]
            for name, measured in runs.items()
        },
        "ours": [name for name in runs if case.engines[name].ours],
        "limit": next((name for name in runs if case.engines[name].limit), None),
        "failures": failures,
    }


# -------------------------------------------------------------------- tables


def digits(value: float) -> str:
    """Three significant digits, never in scientific notation."""
    if value >= 100:
        return f"{value:.0f}"
    if value >= 10:
        return f"{value:.1f}"
    if value >= 1:
        return f"{value:.2f}"
    return f"{value:.3f}"


def spread(values: list[float]) -> str:
    """`median (min–max)`."""
    low, middle, high = (digits(f(values)) for f in (min, statistics.median, max))
    return middle if low == high else f"{middle} ({low}–{high})"


def table(head: list[str], rows: list[list[str]], left: int = 1) -> str:
    """A Markdown table; the first `left` columns are text, the others numbers."""
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]

    def line(row: list[str]) -> str:
        cells = [
            cell.ljust(width) if i < left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths))
        ]
        return "| " + " | ".join(cells) + " |"

    rule = [("-" * w) if i < left else "-" * (w - 1) + ":" for i, w in enumerate(widths)]
    return "\n".join([line(head), "| " + " | ".join(rule) + " |", *map(line, rows)])


def paired(ours: list[dict], theirs: list[dict], key: str, their_key: str | None = None) -> list[float]:
    return [a[key] / b[their_key or key] for a, b in zip(ours, theirs) if b[their_key or key] > 0]


def comparison_tables(results: list[dict]) -> str:
    """Two Markdown tables: what each engine cost, and tidemill against each peer."""
    costs, ratios = [], []
    for result in results:
        limit = result["runs"].get(result["limit"] or "")
        for name, runs in result["runs"].items():
            is_limit = name == result["limit"]
            read_bytes = result["file_bytes"] if is_limit else result["input_bytes"]
            rate = read_bytes / 1e6 / statistics.median(run["work_s"] for run in runs)
            share = []
            if limit and not is_limit:
                part = result["input_bytes"] / result["file_bytes"]
                share = [100 * part * ratio for ratio in paired(limit, runs, "work_s")]
            costs.append([
                result["case"],
                result["format"],
                name,
                spread([run["wall_s"] for run in runs]),
                spread([run["work_s"] for run in runs]),
                spread([run["cpu_s"] for run in runs]),
                spread([run["rss_bytes"] / 1e6 for run in runs]),
                digits(rate) if read_bytes else "",
                f"{statistics.median(share):.1f} %" if share else "",
            ])
        for name, failure in result["failures"].items():
            first = failure.splitlines()[0].replace("|", "\\|")
            costs.append([result["case"], result["format"], name, f"failed: {first}"[:90], *[""] * 5])
        for ours in result["ours"]:
            mine = result["runs"][ours]
            for name, theirs in result["runs"].items():
                if name in (ours, result["limit"]) or (name in result["ours"] and ours != "tidemill"):
                    continue
                ratios.append([
                    result["case"],
                    result["format"],
                    f"{ours} / {name}",
                    spread(paired(mine, theirs, "wall_s")),
                    spread(paired(mine, theirs, "work_s")),
                    spread(paired(mine, theirs, "cpu_s")),
                    spread(paired(mine, theirs, "rss_bytes")),
                ])
    head = ["case", "format", "engine"]
    text = table(
        [*head, "wall s", "work s", "CPU s", "peak RSS MB", "input MB/s", "of the limit"], costs, 3
    )
    if ratios:
        text += "\n\nRatios, paired by round; below 1 tidemill is the faster or leaner one:\n\n"
        text += table([*head[:2], "ratio", "wall", "work", "CPU", "peak RSS"], ratios, 3)
    cold = cold_runs(results)
    if cold:
        text += (
            "\n\nRuns that read from the disk (input or program) what is over 2 % of their file: "
            + ", ".join(cold)
            + "."
        )
    every_run = [run for result in results for runs in result["runs"].values() for run in runs]
    # Where a run takes milliseconds, the launcher's own start is all that is seen.
    long_runs = [run for run in every_run if run["wall_s"] > 0.5]
    if long_runs:
        others = sum(r["others_cpu_s"] for r in long_runs) / sum(r["wall_s"] for r in long_runs)
        share = 100 * others / cores()
        text += f"\n\nOther processes took {share:.0f} % of this machine's CPU time during the runs"
        text += ": these figures will not compare." if share > 5 else "."
    return text


def cold_runs(results: list[dict]) -> list[str]:
    """Names the engines of which some run had to go to the disk for its input."""
    cold = []
    for result in results:
        for name, runs in result["runs"].items():
            count = sum(run["disk_read_bytes"] > 0.02 * result["file_bytes"] for run in runs)
            if count:
                cold.append(f"{result['case']} {result['format']} {name} ({count} of {len(runs)})")
    return cold


class Report:
    """Collects results; prints tables and keeps the JSON file up to date."""

    def __init__(self, json_path: Path | None, command: str):
        self.json_path = json_path
        self.steal_start = steal_s()
        self.content = {
            "command": command,
            "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "machine": machine(),
            "peers": peer_versions(),
            "benchmarks": {},
        }
        self.failed = False

    def add(self, benchmark: str, content) -> None:
        self.content["benchmarks"][benchmark] = content
        if self.steal_start is not None:
            self.content["machine"]["steal_s"] = round((steal_s() or 0) - self.steal_start, 2)
        if self.json_path:
            partial = self.json_path.with_name(self.json_path.name + ".tmp")
            partial.write_text(json.dumps(self.content, indent=1) + "\n")
            partial.replace(self.json_path)

    def print(self, text: str) -> None:
        print(text, flush=True)
