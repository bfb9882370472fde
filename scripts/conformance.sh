#!/usr/bin/env bash
# Runs test suites of other projects on Tidemill: conformance.sh [WHAT]. WHAT is one of the suites below;
# without it, all of them run. A suite without a checkout is skipped with a message; if WHAT names it, the
# script fails.
#
#   parquet   the files of apache/parquet-testing; PARQUET_TESTING_DIR is the path of a checkout
#   duckdb    the SQL tests of duckdb/duckdb; DUCKDB_DIR is the path of a checkout
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

what="${1:-}"
status=0

# skip_suite NAME REASON: prints why a suite is skipped; fails if WHAT names the suite.
skip_suite() {
    [ -z "$what" ] || die "$1: $2"
    say "$1 is skipped: $2"
}

parquet() {
    if [ -z "${PARQUET_TESTING_DIR:-}" ]; then
        skip_suite parquet "PARQUET_TESTING_DIR names no checkout of github.com/apache/parquet-testing"
        return
    fi
    PARQUET_TESTING_DIR="$(cd "$PARQUET_TESTING_DIR" && pwd)"
    export PARQUET_TESTING_DIR
    need_cargo
    need_python
    claim_target
    build_package || exit 1
    say "Parquet files of other writers"
    (cd tests && "$venv/bin/python" -m parquet) || status=1
}

duckdb() {
    if [ -z "${DUCKDB_DIR:-}" ]; then
        skip_suite duckdb "DUCKDB_DIR names no checkout of github.com/duckdb/duckdb"
        return
    fi
    DUCKDB_DIR="$(cd "$DUCKDB_DIR" && pwd)"
    export DUCKDB_DIR
    need_cargo
    need_python 3.11
    claim_target
    build_package || exit 1
    say "DuckDB's own SQL tests; each verdict is in $target/duckdb.jsonl"
    (cd tests && "$venv/bin/python" -m conformance.duckdb --report "$target/duckdb.jsonl") || status=1
}

case "$what" in
    parquet | duckdb) "$what" ;;
    "")
        parquet
        duckdb
        ;;
    *) die "there is no suite \`$what\`" "hint: parquet, duckdb" ;;
esac
exit "$status"
