#!/usr/bin/env bash
# The npm package of HyperLogLog, packages/hll-js/dist, by WebAssembly.
#   scripts/hll-js.sh          builds it, and what `npm pack` makes of it in the target folder
#   scripts/hll-js.sh --test   builds it and runs its tests, in Node.js and in Chromium
# What it needs beyond Rust is installed: a standard library for WebAssembly, and for the tests
# Chromium. Ends with 77 where that cannot be had here, and says why.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

package="$PWD/packages/hll-js"
wasm="$target/wasm"
wasm_target=wasm32-unknown-unknown
# What the standard library for WebAssembly is compiled by and from, where the compiler has none.
toolchain="$wasm/toolchain"

# skip WORDS...: what is missing is not to be had on this machine.
skip() {
    printf 'skipped: %s\n' "$1" >&2
    shift
    for line in "$@"; do
        printf '%s\n' "$line" >&2
    done
    exit 77
}

# has_target: whether the compiler that is here knows WebAssembly.
has_target() {
    [ -d "$(rustc --print target-libdir --target "$wasm_target" 2> /dev/null)" ]
}

# needed NAME PATTERN: the packages that match among those that a Debian package needs.
needed() {
    apt-cache depends "$1" 2> /dev/null | sed -n "s/^ *Depends: \($2\)\$/\1/p"
}

# debian_packages: the names of a compiler whose standard library there is the source of, of its
# linker and of the libraries of both that may be missing.
debian_packages() {
    local compiler llvm
    compiler="$(needed libstd-rust-web-dev 'libstd-rust-web-[0-9.]*' | head -n 1)"
    [ -n "$compiler" ] || return 1
    llvm="$(needed "$compiler" 'libllvm[0-9]*' | head -n 1)"
    [ -n "$llvm" ] || return 1
    echo rustc-web rust-web-src libstd-rust-web-dev "$compiler" "$llvm" "lld-${llvm#libllvm}"
    needed "$llvm" 'libz3-[0-9]*'
}

# debian_toolchain: unpacks Debian's compiler into a folder of ours, which takes no rights and leaves
# the system as it is (installed, it would conflict with rustup's).
debian_toolchain() {
    [ -e "$toolchain/complete" ] && return
    command -v apt-get > /dev/null && command -v dpkg-deb > /dev/null || return 1
    local packages deb
    if ! packages="$(debian_packages)"; then
        [ "$(id -u)" -eq 0 ] && apt-get update -qq && packages="$(debian_packages)" || return 1
    fi
    say "Debian's compiler and the source of its standard library, 140 MB, into $toolchain" \
        "(rustup target add $wasm_target, where the network lets it, spares this)"
    rm -rf "$toolchain"
    mkdir -p "$toolchain/packages"
    # The lists may name versions that are gone.
    # shellcheck disable=SC2086
    (cd "$toolchain/packages" && apt-get download -qq $packages 2> "$wasm/download.log" ||
        { [ "$(id -u)" -eq 0 ] && apt-get update -qq && apt-get download -qq $packages; }) || return 1
    for deb in "$toolchain/packages"/*.deb; do
        case "$deb" in
            */rust-web-src_*)
                dpkg-deb --fsys-tarfile "$deb" |
                    tar --extract --directory "$toolchain" --wildcards \
                        './usr/src/rustc-*/library' './usr/lib/rustlib/src' ;;
            *) dpkg-deb --extract "$deb" "$toolchain" ;;
        esac || return 1
    done
    rm -rf "$toolchain/packages"
    touch "$toolchain/complete"
}

# build: the WebAssembly, and around it the JavaScript.
build() {
    need_cargo
    command -v node > /dev/null || skip "Node.js is not installed" "hint: install nodejs with your package manager"
    mkdir -p "$wasm"
    local started=$SECONDS
    local flags=(build --release --locked --manifest-path "$package/Cargo.toml" --target "$wasm_target")
    # No path of this machine in what is published.
    local rustflags="--remap-path-prefix=$PWD=. --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=cargo"
    if has_target; then
        say "building the WebAssembly"
        RUSTFLAGS="$rustflags" CARGO_TARGET_DIR="$wasm" cargo "${flags[@]}"
    elif debian_toolchain; then
        say "building the WebAssembly (the first time with its standard library: 2 to 4 minutes)"
        local linker
        linker="$(compgen -G "$toolchain/usr/bin/wasm-ld-*" | head -n 1)"
        # Compiling the standard library is an unstable option of cargo, which its version here fixes.
        RUSTFLAGS="$rustflags --remap-path-prefix=$toolchain=toolchain" \
            RUSTC="$toolchain/usr/bin/rustc" \
            RUSTC_BOOTSTRAP=1 \
            LD_LIBRARY_PATH="$(compgen -G "$toolchain/usr/lib/*-linux-gnu" | head -n 1)" \
            CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER="$linker" \
            CARGO_TARGET_DIR="$wasm" \
            cargo "${flags[@]}" -Zbuild-std=std,panic_abort -Zbuild-std-features=
    else
        skip "no Rust for WebAssembly is to be had here" \
            "hint: rustup target add $wasm_target"
    fi
    node "$package/build.mjs" "$wasm/$wasm_target/release/tidemill_hll_js.wasm"
    say "built $package/dist in $((SECONDS - started)) s"
}

build
if [ "${1:-}" = "--test" ]; then
    need_chromium
    [ -n "$chromium" ] || say "the browser's tests are left out: Chromium is not installed, and only root can install it"
    cd "$package"
    CHROMIUM="$chromium" node --test --test-reporter=spec test/
else
    (cd "$package" && npm pack --silent --pack-destination "$target" > /dev/null)
    say "packed $(ls "$target"/tidemill-hll-*.tgz)"
fi
