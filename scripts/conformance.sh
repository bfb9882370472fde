#!/usr/bin/env bash
# Test suites of others: conformance.sh [WHAT]; all of them by default. What is missing for one is said, and is
# an error if it was asked for by name.
#
#   parquet   the files of apache/parquet-testing, of which PARQUET_TESTING_DIR names a checkout
#   duckdb    the SQL tests of duckdb/duckdb, of which DUCKDB_DIR names a checkout
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

what="${1:-}"
status=0

# absent NAME REASON: says that a suite is left out, or fails if it was asked for.
absent() {
    [ -z "$what" ] || die "$1: $2"
    say "$1 is left out: $2"
}

parquet() {
    if [ -z "${PARQUET_TESTING_DIR:-}" ]; then
        absent parquet "PARQUET_TESTING_DIR names no checkout of github.com/apache/parquet-testing"
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
        absent duckdb "DUCKDB_DIR names no checkout of github.com/duckdb/duckdb"
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
