#!/usr/bin/env bash
# Formatting, clippy, Python, and the rules of the dependency tree. Says every fault before
# it fails.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
need_cargo
need_python

faults=0
fault() {
    printf 'fault: %s\n' "$1" >&2
    faults=$((faults + 1))
}

say "formatting"
cargo fmt --all --check || fault "cargo fmt would change the code above (make format)"
cargo fmt --manifest-path packages/hll-js/Cargo.toml --check || fault "cargo fmt would change packages/hll-js (make format)"

# Before clippy: these take no build.
say "one Arrow, one feature set"
for crate in arrow parquet datafusion; do
    versions=$(awk -v crate="$crate" '$1 == "name" && $3 == "\"" crate "\"" { getline; print $3 }' Cargo.lock | wc -l)
    [ "$versions" -eq 1 ] || fault "Cargo.lock has $versions versions of $crate"
done
# A dependency that one package of the workspace builds with other features than the whole
# is compiled twice, with everything that stands on it: 27 CPU-minutes if that is DataFusion.
"$python" - << 'PYTHON' || fault "packages of the workspace do not share one build of their dependencies"
import collections
import subprocess
import sys


def features(*selection):
    tree = ["cargo", "tree", "--locked", "--prefix", "none", "--format", "{p}|{f}"]
    lines = subprocess.run([*tree, *selection], check=True, capture_output=True, text=True).stdout
    found = collections.defaultdict(set)
    for line in lines.splitlines():
        package, _, names = line.removesuffix(" (*)").partition("|")
        found[package].add(names)
    return found


whole = features("--workspace", "--edges", "normal,build,dev")
faults = 0
for package in ("tidemill-cli", "tidemill-python", "tidemill-engine"):
    for name, found in features("--package", package, "--edges", "normal,build").items():
        if found != whole[name]:
            faults += 1
            print(f"{package} alone builds {name} with {found}, the workspace with {whole[name]}")
sys.exit(faults > 0)
PYTHON

say "crates that do not know DataFusion"
for crate in prefetch sort base remote source sink jobs; do
    if cargo tree --locked --package "tidemill-$crate" --edges normal,build,dev --prefix none | grep -q '^datafusion'; then
        fault "tidemill-$crate depends on DataFusion"
    fi
done

# Each crate that asks for these by itself compiles them anew, a minute for each.
say "what is compiled once"
if grep -rnE 'statement_to_plan|create_logical_plan|context\.sql\(|\bVisit(Mut)?\b' \
    --include='*.rs' crates/{dialect,operators,sql,tables,query,engine,cli,python}; then
    fault "statements are walked over and planned by tidemill-planning"
fi

say "names and comments"
"$python" scripts/check_names.py || fault "names or comments that a newcomer cannot guess (CONTRIBUTING.md)"

# scripts/words_allowed.txt: misspelled words of tests and messages' examples, SQL keywords, names and other languages.
say "spelling"
if command -v codespell > /dev/null; then
    git ls-files | grep -E '\.(rs|md|py|sh|toml|txt|js|ts|html)$' | grep -vE '/golden/|words_allowed' |
        xargs codespell --quiet-level 3 --ignore-words scripts/words_allowed.txt || fault "misspelled words"
else
    say "codespell is not installed: its checks are left out (pip install codespell)"
fi

say "clippy"
cargo clippy --release --locked --workspace --all-targets -- --deny warnings || fault "clippy"
# As the machine's own library: the same code, and no compiler for WebAssembly is needed.
cargo clippy --release --locked --manifest-path packages/hll-js/Cargo.toml -- --deny warnings || fault "clippy, packages/hll-js"

say "Python"
"$python" -m compileall -q python tests docs scripts || fault "Python files that do not compile"
if command -v ruff > /dev/null; then
    ruff check python tests docs scripts && ruff format --check python tests docs scripts || fault "ruff"
else
    say "ruff is not installed: its checks are left out (pip install ruff)"
fi
# mypy, and the stub against the native module, are among the tests.
if command -v basedpyright > /dev/null; then
    basedpyright || fault "basedpyright"
else
    say "basedpyright is not installed: its checks are left out (pip install basedpyright)"
fi

say "shell"
for script in scripts/*.sh .ci/run; do
    bash -n "$script" || fault "$script"
done

[ "$faults" -eq 0 ] || die "$faults of the checks failed"
say "no faults"
