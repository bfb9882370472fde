"""Tests of scripts/check_names.py: each kind of finding, and exceptions that nothing needs."""

import importlib.util
import pathlib

SCRIPT = pathlib.Path(__file__).resolve().parent.parent / "scripts" / "check_names.py"
spec = importlib.util.spec_from_file_location("check_names", SCRIPT)
check_names = importlib.util.module_from_spec(spec)
spec.loader.exec_module(check_names)


def findings(*sources):
    """The kinds and names found in `(path, text)` pairs."""
    pairs = [(pathlib.PurePosixPath(path), text) for path, text in sources]
    return [(finding.kind, finding.name) for finding in check_names.check(pairs)]


def test_bare_words_are_refused():
    assert findings(("crates/a/src/kept.rs", "")) == [("module", "kept")]
    assert findings(("crates/a/src/x.rs", "pub struct Kept;\n")) == [("type", "Kept")]
    assert findings(("crates/a/src/x.rs", "    pub(crate) fn apart(&self) {}\n")) == [
        ("function", "apart")
    ]


def test_names_with_a_noun_or_of_the_field_pass():
    text = "pub struct KeptRows;\npub fn partition_rows() {}\npub fn next() {}\nfn apart() {}\n"
    assert findings(("crates/a/src/result_cache.rs", text)) == []


def test_noun_clauses_are_refused_at_the_opening_of_a_comment_only():
    text = (
        "/// What is left.\nstruct A;\n/// Returns a count.\n/// So far, all of them.\nfn b() {}\n"
    )
    assert findings(("crates/a/src/x.rs", text)) == [("doc", "What is left.")]


def test_type_names_of_three_crates_are_refused():
    sources = [
        (f"crates/{crate}/src/x.rs", "pub struct Outcome;\npub struct Reader;\n") for crate in "abc"
    ]
    assert findings(*sources[:2]) == []
    assert findings(*sources) == [("shared type", "Outcome")]


def test_visible_items_of_test_modules_pass():
    text = "fn a() {}\n#[cfg(test)]\nmod tests {\n    pub fn apart() {}\n}\n"
    assert findings(("crates/a/src/x.rs", text), ("crates/a/src/tests/kept.rs", text)) == []


def test_the_tree_has_no_findings_beside_its_exceptions():
    assert check_names.main([]) == 0
