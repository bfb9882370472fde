#!/usr/bin/env bash
# Every test: Rust (units, properties, the built binary), then the Python package built as
# `pip install .` builds it, and both against a real S3 server and servers that misbehave; then the
# npm package, in Node.js and in a browser. Notebooks are looked at in the same browser. The last line is the
# sum of them all.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
need_cargo
need_python

logs="$target/test-logs"
mkdir -p "$logs"
passed=0
failed=0

# finish: the last line, and the exit status.
finish() {
    echo
    echo "$passed passed, $failed failed"
    [ "$failed" -eq 0 ]
    exit
}

claim_target

say "Rust tests (the first build takes 15 to 25 minutes on two cores)"
status=0
cargo test --release --locked --workspace --no-fail-fast 2>&1 | tee "$logs/rust.log" || status=$?
counts=$(awk '/^test result:/ {
    for (i = 2; i <= NF; i++) {
        if ($i ~ /^passed/) passed += $(i - 1)
        if ($i ~ /^failed/) failed += $(i - 1)
    }
} END { print passed + 0, failed + 0 }' "$logs/rust.log")
passed=${counts% *}
failed=${counts#* }
if [ "$status" -ne 0 ] && [ "$failed" -eq 0 ]; then
    # A test program that does not build or does not end is a failure that no line counts.
    failed=1
fi
if [ "$passed" -eq 0 ]; then
    finish
fi

if ! build_package; then
    failed=$((failed + 1))
    finish
fi

# What tests/hll holds our sketches against; it leaves out, and says so, what is not there.
if ! compgen -G '/usr/share/postgresql/*/extension/hll.control' > /dev/null; then
    if [ "$(id -u)" -eq 0 ] && command -v apt-get > /dev/null; then
        say "installing PostgreSQL's hll extension, and PostgreSQL if it is not there (20 MB)"
        extension() {
            apt-cache search --names-only '^postgresql-[0-9]+-hll$' | cut -d ' ' -f 1 | sort -V | tail -n 1
        }
        name="$(extension)"
        [ -n "$name" ] || { apt-get update -qq && name="$(extension)"; } || true
        [ -n "$name" ] && install_packages "$name" || true
    fi
    compgen -G '/usr/share/postgresql/*/extension/hll.control' > /dev/null ||
        say "tests against PostgreSQL are left out: its hll extension is not installed (postgresql-NN-hll)"
fi
command -v mvn > /dev/null && command -v javac > /dev/null ||
    say "tests against java-hll are left out: Maven and a JDK are not installed"

# What tests/notebook looks at notebooks with; it is left out, and says so, where one of them is not there.
need_chromium
if [ -z "$chromium" ]; then
    say "tests of notebooks are left out: Chromium is not installed, and only root can install it"
elif ! "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --requirement docs/pictures/requirements.txt; then
    say "tests of notebooks are left out: JupyterLab and Playwright could not be installed"
fi

status=0
say "Python tests"
CHROMIUM="$chromium" "$venv/bin/python" -m pytest python/tests tests 2>&1 | tee "$logs/python.log" || status=$?
# The last such line: what a library says at the end of the process comes after it.
counts=$({ grep -E '(passed|failed|errors?).* in [0-9.]+s' "$logs/python.log" || true; } | tail -n 1 | awk '{
    for (i = 2; i <= NF; i++) {
        if ($i ~ /^passed/) passed += $(i - 1)
        if ($i ~ /^(failed|error)/) failed += $(i - 1)
    }
} END { print passed + 0, failed + 0 }')
passed=$((passed + ${counts% *}))
failed=$((failed + ${counts#* }))
if [ "$status" -ne 0 ] && [ "${counts#* }" -eq 0 ]; then
    failed=$((failed + 1))
fi

status=0
say "the npm package, in Node.js and in Chromium"
scripts/hll-js.sh --test 2>&1 | tee "$logs/hll-js.log" || status=$?
if [ "$status" -eq 77 ]; then
    say "the npm package was left out: see above"
else
    counts=$(awk '$2 == "pass" { passed += $3 } $2 == "fail" { failed += $3 }
        END { print passed + 0, failed + 0 }' "$logs/hll-js.log")
    passed=$((passed + ${counts% *}))
    failed=$((failed + ${counts#* }))
    if [ "$status" -ne 0 ] && [ "${counts#* }" -eq 0 ]; then
        failed=$((failed + 1))
    fi
fi
finish
