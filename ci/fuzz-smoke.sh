#!/usr/bin/env bash
# Twenty seconds of every fuzz target of fuzz/Cargo.toml, two at a time, from the seeds that are
# kept: fuzz-smoke.sh [SECONDS [TARGET...]]. Fails when one crashes, hangs or hardly runs. Without a
# nightly toolchain there is nothing to build them with; then it says so and passes.
#
# Built without a sanitizer: the code is safe Rust, panics and overflows are found without, and it
# halves the build. Long runs (fuzz/README.md) have it.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! cargo +nightly --version >/dev/null 2>&1; then
    echo 'skipped: no nightly toolchain (rustup toolchain install nightly)'
    exit 0
fi
if ! cargo +nightly fuzz --version >/dev/null 2>&1; then
    cargo install --locked cargo-fuzz
fi

export SECONDS_EACH=${1:-20}
targets=("${@:2}")
if [ ${#targets[@]} -eq 0 ]; then
    mapfile -t targets < <(cargo +nightly fuzz list)
fi
[ ${#targets[@]} -gt 0 ] || { echo 'fuzz/Cargo.toml names no target' >&2; exit 1; }

export BUILT="$PWD/target/fuzz"
if [ $# -gt 1 ]; then
    for target in "${targets[@]}"; do
        cargo +nightly fuzz build --sanitizer none --target-dir "$BUILT" "$target"
    done
else
    cargo +nightly fuzz build --sanitizer none --target-dir "$BUILT"
fi
BUILT=$BUILT/$(rustc +nightly --print host-tuple)/release
echo "built in $SECONDS s"

WORK=$(mktemp -d)
export WORK
trap 'rm -rf "$WORK"' EXIT

one() {
    local target=$1 log="$WORK/$1.log" options=() runs
    mkdir -p "$WORK/$target" "fuzz/artifacts/$target"
    [ -n "$(ls "fuzz/seeds/$target" 2>/dev/null)" ] || { echo "$target: no seeds in fuzz/seeds/$target"; return 1; }
    [ -f "fuzz/dict/$target.dict" ] && options+=("-dict=fuzz/dict/$target.dict")
    # New inputs go to the first folder, so the seeds stay as they are.
    if ! "$BUILT/$target" -max_total_time="$SECONDS_EACH" -timeout=10 -rss_limit_mb=2048 \
        -artifact_prefix="fuzz/artifacts/$target/" "${options[@]}" \
        "$WORK/$target" "fuzz/seeds/$target" >"$log" 2>&1; then
        echo "$target: FAILED"
        tail -n 40 "$log"
        return 1
    fi
    runs=$(sed -n 's/^Done \([0-9]*\) runs.*/\1/p' "$log")
    echo "$target: ${runs:-0} runs, $(grep -o 'cov: [0-9]*' "$log" | tail -n 1)"
    # Far below what the slowest target does; less means that it does not run at all.
    [ "${runs:-0}" -ge 200 ] || { tail -n 40 "$log"; return 1; }
}
export -f one

printf '%s\n' "${targets[@]}" | xargs -P 2 -I {} bash -euo pipefail -c 'one "$1"' _ {} ||
    { echo 'a fuzz target failed' >&2; exit 1; }
echo "${#targets[@]} targets in $SECONDS s"
