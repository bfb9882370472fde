#!/usr/bin/env bash
# What never ends, for a given time: soak.sh [SECONDS], or SECONDS_TOTAL; an hour by default.
# Random statements against DuckDB and against ourselves (tests/differential), processes that are
# killed over and over, property tests from fresh seeds, and the bodies of the fuzz targets. What
# each was started with is printed, so that it can be run again; the last line is a summary.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
need_cargo
need_python

seconds="${1:-${SECONDS_TOTAL:-3600}}"
# A number of up to nine digits; the same one looks at the same things again.
seed="${SOAK_SEED:-$(($(od -An -N4 -tu4 /dev/urandom) % 1000000000))}"
logs="$target/soak-logs"
mkdir -p "$logs"
held=0
fallen=()

# part NAME COMMAND...: runs it, keeps what it says, and counts whether it holds.
part() {
    local name="$1" started=$SECONDS status=0
    shift
    say "$name"
    "$@" > "$logs/$name.log" 2>&1 || status=$?
    if [ "$status" -eq 0 ]; then
        held=$((held + 1))
    else
        fallen+=("$name")
        tail -n 40 "$logs/$name.log"
    fi
    grep -hE ' (rounds|cases|seeds|seconds|differences|seconds of processor time)$|^DIFFERENT' "$logs/$name.log" || true
    say "$name: $((SECONDS - started)) s, status $status"
}

# repeat SECONDS COMMAND...: runs it with `SEED` and `PROPTEST_RNG_SEED` one higher each time,
# until the time is over; at least once.
repeat() {
    local end=$((SECONDS + $1)) round=0
    shift
    while :; do
        SEED=$((seed + round)) PROPTEST_RNG_SEED=$((seed + round)) "$@" || {
            echo "failed with SEED=$((seed + round)) PROPTEST_RNG_SEED=$((seed + round)): $*"
            return 1
        }
        round=$((round + 1))
        [ "$SECONDS" -lt "$end" ] || break
    done
    echo "$round rounds"
}

differential() {
    (cd tests && exec "$venv/bin/python" -m differential --seconds "$1" --seed "$seed")
}

# In folders of their own: they are no members of the workspace.
fuzz_text() {
    (cd crates/text/fuzz && ROUNDS=20000 cargo test --release --lib)
}
fuzz_rowfile() {
    (cd crates/rowfile/fuzz && CPU_SECONDS="$1" THREADS=2 SEED="$seed" \
        cargo test --release --lib a_long_run -- --nocapture)
}

say "SOAK_SEED=$seed for $seconds s (logs in $logs)"
build_package || die "the Python package is needed"
build_binary
say "building the tests"
cargo test --release --locked --workspace --no-run 2> "$logs/build.log" || die "the tests do not build" "see $logs/build.log"

part differential differential $((seconds * 55 / 100))
export SOAK_SECONDS=$((seconds * 4 / 100))
# Beside `tidemill-engine`, `tidemill-sink` has the dependencies' features that the whole workspace has.
for killed in "tidemill-rowfile --test it" "tidemill-sink --package tidemill-engine --lib" "tidemill-cli --test program"; do
    # shellcheck disable=SC2086 # words of their own
    part "kills-$(echo "$killed" | tr -c 'a-z\n' -)" \
        cargo test --release --locked --package $killed -- --ignored --nocapture soak_
done
part statements env SEED="$seed" SOAK_SECONDS=$((seconds * 8 / 100)) \
    cargo test --release --locked --package tidemill-engine --test it -- --ignored --nocapture soak_
part properties repeat $((seconds * 10 / 100)) \
    cargo test --release --locked --quiet --workspace --exclude tidemill-cli
part fuzz-text repeat $((seconds * 8 / 100)) fuzz_text
part fuzz-rowfile fuzz_rowfile $((seconds * 7 / 100))

echo
echo "$held parts held, ${#fallen[@]} did not${fallen:+: ${fallen[*]}} (SOAK_SEED=$seed, $SECONDS s)"
[ "${#fallen[@]}" -eq 0 ]
