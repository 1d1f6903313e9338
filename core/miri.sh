#!/usr/bin/env bash
# Miri over the parts of core with unsafe code (ring, burst) and those that rest on them (ledger,
# sync): out of bounds, aliasing, uninitialised memory, leaks, data races. The test with two threads
# runs under several schedules of Miri's weak memory.
#
#   core/miri.sh             all of it
#   core/miri.sh ring::      the tests whose names contain this
#
# Skips, and says why, where the toolchain or its component cannot be had.
set -euo pipefail
cd "$(dirname "$0")/.."

toolchain=${MIRI_TOOLCHAIN:-nightly}
skip() {
    printf 'miri: skipped: %s\n' "$1"
    exit 0
}
rustc "+$toolchain" --version >/dev/null 2>&1 \
    || skip "there is no toolchain '$toolchain' (rustup toolchain install $toolchain)"
cargo "+$toolchain" miri --version >/dev/null 2>&1 \
    || rustup component add miri rust-src --toolchain "$toolchain" >/dev/null 2>&1 \
    || skip "the component miri cannot be had (rustup component add miri rust-src --toolchain $toolchain)"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
cargo "+$toolchain" miri setup >"$log" 2>&1 \
    || skip "its standard library cannot be built: $(grep -m 1 -i error "$log" || tail -n 1 "$log")"

export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/miri"
# Few cases: every instruction is interpreted. Proptest looks for the folder it runs in.
export PROPTEST_CASES="${PROPTEST_CASES:-4}"
run() { # flags of Miri, tests
    local flags=$1
    shift
    MIRIFLAGS="-Zmiri-disable-isolation $flags" \
        cargo "+$toolchain" miri test --quiet -p tensorwire-core --lib -- "$@" 2>&1 | tee "$log"
    # A filter that matches nothing passes too.
    grep -q '^running [1-9]' "$log" || { echo "miri: no test ran" >&2; exit 1; }
}
if [ $# -gt 0 ]; then
    run "" "$@"
    exit
fi
run "" ring:: burst:: ledger:: sync::
run "-Zmiri-many-seeds=0..8" two_threads_lose_nothing
