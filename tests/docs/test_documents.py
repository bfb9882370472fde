"""The documents: do links lead somewhere, are Python examples true, is anything missing?

What their shell commands print is checked where the binary is tested (crates/cli/tests/program),
and here they are run before and between the Python examples of the same page, which may read what
they wrote. TIDEMILL_GOLDEN=write rewrites what the Python examples print.
"""

import doctest
import os
import pathlib
import re
import shutil
import subprocess

import duckdb
import pytest

import tidemill as tm
import tidemill.ray

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
DOCS = REPOSITORY / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
LINKED = [*PAGES, *REPOSITORY.glob("*.md"), REPOSITORY / "bench" / "README.md"]

FENCE = re.compile(r"^```(\S*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
WITH_PYTHON = [page for page in PAGES if "\n```pycon\n" in page.read_text()]


def name(page):
    return str(page.relative_to(REPOSITORY))


# Examples


class Recorder(doctest.DocTestRunner):
    """Keeps what each example prints."""

    def __init__(self):
        super().__init__(verbose=False)
        self.printed = []

    def report_start(self, out, test, example):
        pass

    def report_success(self, out, test, example, got):
        self.printed.append(got)

    def report_failure(self, out, test, example, got):
        self.printed.append(got)

    def report_unexpected_exception(self, out, test, example, exc_info):
        raise exc_info[1]


def commands(transcript):
    """Take the commands of a block of a shell's transcript."""
    lines = iter(transcript.splitlines())
    for line in lines:
        if not line.startswith("$ "):
            continue
        command = line[2:]
        while command.endswith("\\"):
            command += "\n" + next(lines)
        if command.endswith("<<'END'"):
            for line in lines:
                command += "\n" + line
                if line == "END":
                    break
        yield command


def replayed(block, variables):
    """Run the examples of a block, and give it back with what they print now."""
    examples = doctest.DocTestParser().get_examples(block)
    recorder = Recorder()
    test = doctest.DocTest(examples, variables, "page", None, None, None)
    # `clear_globs`: the blocks of a page are one session.
    recorder.run(test, clear_globs=False, out=lambda text: None)
    variables.update(test.globs)
    now = []
    for example, got in zip(examples, recorder.printed, strict=True):
        first, *rest = example.source.splitlines()
        now += [f">>> {first}", *(f"... {line}".rstrip() for line in rest), *got.splitlines()]
    return "".join(f"{line}\n" for line in now)


@pytest.mark.parametrize("page", WITH_PYTHON, ids=name)
def test_python_examples_in_the_documents_are_true(page, tmp_path, monkeypatch):
    work = tmp_path / "work"
    work.mkdir()
    shutil.copytree(REPOSITORY / "examples", work / "examples")
    monkeypatch.chdir(work)
    monkeypatch.setenv("TIDEMILL_HOME", str(tmp_path / "home"))
    target = REPOSITORY / os.environ.get("CARGO_TARGET_DIR", "target")
    monkeypatch.setenv("PATH", f"{target / 'release'}{os.pathsep}{os.environ['PATH']}")
    text = page.read_text()
    variables = {}
    now, end = [], 0
    for fence in FENCE.finditer(text):
        language, block = fence.groups()
        if language == "console":
            for command in commands(block):
                subprocess.run(["sh", "-c", command], capture_output=True, check=False)
        elif language == "pycon":
            now += [text[end : fence.start(2)], replayed(block, variables)]
            end = fence.end(2)
    rewritten = "".join([*now, text[end:]])
    if "TIDEMILL_GOLDEN" in os.environ:
        page.write_text(rewritten)
    assert text == rewritten or "TIDEMILL_GOLDEN" in os.environ


def test_scripts_of_turbo_run_as_they_stand(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TIDEMILL_HOME", str(tmp_path / "home"))
    text = (DOCS / "turbo.md").read_text()
    # Its first command makes the file that all others read.
    data = next(block for language, block in FENCE.findall(text) if language == "console")
    subprocess.run(["sh", "-c", next(commands(data))], check=True)
    scripts = [block for language, block in FENCE.findall(text) if language == "python"]
    assert len(scripts) == 2
    for script in scripts:
        exec(script, {})


def cells():
    """Take what stands in the right columns of the page for those who come from elsewhere."""
    for line in (DOCS / "coming-from.md").read_text().splitlines():
        cells = re.split(r"(?<!\\)\|", line)
        if len(cells) == 4 and cells[1].strip() not in ("there", "---"):
            yield from re.findall(r"`([^`]+)`", cells[2])


def test_what_is_written_here_instead_is_understood(tmp_path, monkeypatch):
    shutil.copytree(REPOSITORY / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TIDEMILL_HOME", str(tmp_path / "home"))
    target = REPOSITORY / os.environ.get("CARGO_TARGET_DIR", "target")
    monkeypatch.setenv("PATH", f"{target / 'release'}{os.pathsep}{os.environ['PATH']}")
    frame = {"faa": ["JFK"], "n": [1]}
    variables = {"tm": tm, "df": frame, "other": frame}
    kinds = {"query": 0, "tidemill": 0, "python": 0}
    for code in cells():
        if re.match(r"(SELECT|FROM|DESCRIBE|SUMMARIZE)\b", code):
            kinds["query"] += 1
            assert tm.query(code).to_pylist() != [], code
        elif code.startswith("tidemill "):
            kinds["tidemill"] += 1
            done = subprocess.run(code, shell=True, capture_output=True, text=True, check=False)
            assert done.returncode == 0, f"{code}\n{done.stderr}"
        elif code.startswith(("tm.", "for batch in tm.")):
            kinds["python"] += 1
            exec(code, variables)
    assert min(kinds.values()) > 10, kinds


def test_the_same_words_have_the_other_answers_of_the_page():
    table = "(VALUES (TIMESTAMP '2026-02-01 11:00:00', 1), (NULL, 2)) AS t (ts, x)"
    expressions = [
        ("1.5::INT", 2, 1),
        ("max(ts)::VARCHAR", "2026-02-01 11:00:00", "2026-02-01T11:00:00"),
        ("quantile(x, 0.5)", 1, 1.5),
        ("date_diff('week', DATE '2026-11-28', DATE '2026-12-01')", 0, 1),
        ("[1] || NULL", None, [1, None]),
    ]
    for expression, theirs, ours in expressions:
        sql = f"SELECT {expression} AS v FROM {table}"
        assert duckdb.sql(sql).fetchall()[0][0] == theirs, expression
        assert tm.query(sql).to_pylist()[0] == {"v": ours}, expression


# Links


def anchors(page):
    """The anchors of a page's headings, as code hosts and the site make them."""
    found = set()
    text = FENCE.sub("", page.read_text())
    for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE):
        shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        slug = re.sub(r"[^\w\- ]", "", shown.strip().lower()).replace(" ", "-")
        repeated = sum(1 for other in found if re.fullmatch(rf"{re.escape(slug)}(-\d+)?", other))
        found.add(f"{slug}-{repeated}" if repeated else slug)
    return found


@pytest.mark.parametrize("page", LINKED, ids=name)
def test_every_link_in_the_documents_leads_somewhere(page):
    text = FENCE.sub("", page.read_text())
    text = re.sub(r"`[^`\n]*`", "", text)
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or (anchor and anchor not in anchors(file)):
            broken.append(target)
    assert broken == []


def test_every_page_is_in_the_table_of_contents():
    listed = {DOCS / "index.md"}
    for page in PAGES:
        for language, block in FENCE.findall(page.read_text()):
            if language == "{toctree}":
                entries = [line for line in block.splitlines() if line and not line.startswith(":")]
                paths = [re.sub(r"^.* <(.+)>$", r"\1", entry) for entry in entries]
                listed |= {page.parent / f"{path}.md" for path in paths}
    assert [name(page) for page in PAGES if page not in listed] == [], "see docs/index.md"
    assert [name(page) for page in listed if not page.exists()] == []


# What a reference must have


def test_every_public_name_of_the_package_is_in_the_reference():
    reference = (DOCS / "reference" / "python.md").read_text()
    named = set(re.findall(r"^\.\. auto\w+:: ([\w.]+)", reference, re.MULTILINE))
    # Those that need fsspec are not among what `*` imports.
    public = {name for name in tm.__all__ if name != "__version__"} | {
        "TidemillFileSystem",
        "TidemillHttpFileSystem",
    }
    # What is below these is the package's own.
    of_ray = set(tidemill.ray.__all__) - {"RayJob", "RayWorkers", "connect"}
    assert named == public | of_ray, "see docs/reference/python.md"


def test_every_variable_that_the_program_reads_is_in_the_reference():
    reference = (DOCS / "reference" / "environment.md").read_text()
    read = set()
    sources = [
        *REPOSITORY.glob("crates/*/src/**/*.rs"),
        *REPOSITORY.glob("python/tidemill/*.py"),
    ]
    for source in sources:
        read |= set(re.findall(r"\bTIDEMILL_[A-Z_]+\b", source.read_text()))
    # These are the tests' own.
    read = {name for name in read if not re.match("TIDEMILL_(GOLDEN|TEST_)", name)}
    documented = set(re.findall(r"`(TIDEMILL_[A-Z_]+)`", reference))
    assert read == documented, "see docs/reference/environment.md"


def known_keys(section):
    """The keys that the parser of job files knows in a section, from its refusal of another."""
    unknown = "no_such_key = 1\n"
    text = "[source]\nurl = 'x'\n"
    if section == "":
        text = unknown + text
    elif section == "source":
        text += unknown
    else:
        required = {"map": "sql = 'x'\n", "sink": "url = 'x'\n"}.get(section, "")
        text += f"[{section}]\n{required}{unknown}"
    with pytest.raises(tm.UsageError) as refusal:
        tm.run(text)
    keys = re.search(r"^keys: (.+)$", str(refusal.value), re.MULTILINE)
    assert keys, str(refusal.value)
    return set(keys[1].split(", "))


def test_every_key_of_a_job_file_is_on_its_page():
    page = (DOCS / "job-file.md").read_text()
    example = next(block for language, block in FENCE.findall(page) if language == "toml")
    documented = {"": set()}
    section = ""
    for line in example.splitlines():
        if header := re.match(r"\[+([\w.]+)\]+", line):
            section = header[1]
            documented.setdefault(section, set())
            parent, _, last = section.rpartition(".")
            documented.setdefault(parent, set()).add(last)
        elif key := re.match(r"(\w+)\s*=", line):
            documented[section].add(key[1])
    free = {"tables", "source.storage_options", "sink.storage_options"}
    assert known_keys("") == documented[""]
    for section in documented.keys() - free - {""}:
        assert known_keys(section) == documented[section], section
