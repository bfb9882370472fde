# What the scripts of this folder share; sourced by them, not run.
# Keeps to what bash 3.2 knows, which is the one that macOS has.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# rustup puts cargo here, and a shell that has not been restarted does not know it yet.
if ! command -v cargo > /dev/null && [ -x "$HOME/.cargo/bin/cargo" ]; then
    PATH="$HOME/.cargo/bin:$PATH"
fi

target="${CARGO_TARGET_DIR:-target}"
case "$target" in
    /*) ;;
    *) target="$PWD/$target" ;;
esac
export CARGO_TARGET_DIR="$target"

# say WORDS...: one line about what happens, apart from what it prints.
say() {
    printf '%s\n' "==> $*" >&2
}

# die WORDS...: ends the script; further arguments are lines of their own.
die() {
    printf 'error: %s\n' "$1" >&2
    shift
    for line in "$@"; do
        printf '%s\n' "$line" >&2
    done
    exit 1
}

need_cargo() {
    command -v cargo > /dev/null || die "cargo, Rust's build tool, is not installed" \
        "hint: https://rustup.rs installs it for your user alone, in a minute or two; then run this again"
    local wanted have
    wanted="$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)"
    have="$(rustc --version | sed 's/^rustc \([0-9]*\.[0-9]*\).*/\1/')"
    if [ "$(printf '%s\n%s\n' "$wanted" "$have" | sort -t. -k1,1n -k2,2n | head -n 1)" != "$wanted" ]; then
        die "Rust $have is too old: $wanted or later is needed" "hint: rustup update"
    fi
    command -v cc > /dev/null || command -v gcc > /dev/null || command -v clang > /dev/null ||
        die "a C compiler is needed (for the compression libraries)" \
            "hint: install build-essential (Debian, Ubuntu), gcc (Fedora) or, on macOS, run xcode-select --install"
}

# need_python [VERSION]: sets `python` to a Python of that version or later; 3.10 by default.
need_python() {
    local candidate version="${1:-3.10}"
    for candidate in python3 python3.14 python3.13 python3.12 python3.11 python3.10; do
        if command -v "$candidate" > /dev/null &&
            "$candidate" -c "import sys; sys.exit(sys.version_info < (3, ${version#3.}))" 2> /dev/null; then
            python="$candidate"
            return
        fi
    done
    die "Python $version or later is needed" "hint: install python3 with your package manager"
}

# claim_target: makes cargo rebuild this project's crates if another checkout built them
# in the same target folder. Paths compiled into them, such as the folder of a test's
# files, belong to that checkout, and cargo compares file times only.
claim_target() {
    local builder
    if [ -e "$target/checkout" ]; then
        builder="$(cat "$target/checkout")"
    elif [ -e "$target/release/tidemill.d" ]; then
        # The build was not started by a script. Cargo's list of sources has their paths.
        builder="$(cut -d ' ' -f 2 "$target/release/tidemill.d" | head -n 1)"
        builder="${builder%%/crates/*}"
    else
        builder="$PWD"
    fi
    if [ "$builder" != "$PWD" ]; then
        find crates -name '*.rs' -exec touch {} +
    fi
    mkdir -p "$target"
    echo "$PWD" > "$target/checkout"
}

# build_binary: the release binary; says beforehand how long it may take.
build_binary() {
    need_cargo
    claim_target
    if [ -e "$target/release/libdatafusion.rlib" ] ||
        compgen -G "$target/release/deps/libdatafusion-*.rlib" > /dev/null; then
        say "building tidemill (seconds to a minute: its dependencies are built already)"
    else
        say "building tidemill and its query engine: 15 to 25 minutes on two cores, the first time only"
    fi
    local started=$SECONDS
    cargo build --release --locked --package tidemill-cli
    say "built $target/release/tidemill in $((SECONDS - started)) s"
}

# build_package: the Python package as `pip install .` builds it, with what its tests need, in
# `venv`; fails where it cannot be built.
build_package() {
    venv="$target/venv"
    say "the Python package: pip install . into $venv"
    if ! "$venv/bin/python" -c 'import pip' 2> /dev/null; then
        rm -rf "$venv"
        "$python" -m venv "$venv" || {
            echo "error: Python's venv module is missing; install python3-venv with your package manager" >&2
            return 1
        }
    fi
    # Build isolation would fetch maturin again for each build; it is the version that
    # pyproject.toml pins.
    local maturin
    maturin=$(sed -n 's/^requires = \["\(maturin==[0-9.]*\)"\]$/\1/p' pyproject.toml)
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check \
        --requirement python/tests/requirements.txt "$maturin" &&
        PATH="$venv/bin:$PATH" "$venv/bin/python" -m pip install --quiet --disable-pip-version-check \
            --no-build-isolation --no-deps --force-reinstall . || {
        echo "error: the Python package could not be built and installed" >&2
        return 1
    }
}

# install_packages NAME...: installs Debian's packages; fails where there is no apt-get, where we are not
# root, or where they are not to be had. What it prints is kept in the target folder.
install_packages() {
    [ "$(id -u)" -eq 0 ] && command -v apt-get > /dev/null || return 1
    mkdir -p "$target"
    local install=(apt-get install --yes -qq --no-install-recommends "$@")
    export DEBIAN_FRONTEND=noninteractive
    # The lists may be missing, or name versions that are gone.
    { "${install[@]}" || { apt-get update -qq && "${install[@]}"; }; } > "$target/apt-get.log" 2>&1 < /dev/null
}

# find_chromium: sets `chromium`, or fails.
find_chromium() {
    local name
    for name in chromium chromium-browser google-chrome google-chrome-stable; do
        chromium="$(command -v "$name")" && return
    done
    return 1
}

# need_chromium: sets `chromium`; empty where there is none.
need_chromium() {
    find_chromium && return
    if [ "$(id -u)" -eq 0 ]; then
        say "installing Chromium (125 MB)"
        install_packages chromium && find_chromium && return
    fi
    chromium=""
}
