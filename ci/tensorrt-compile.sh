#!/usr/bin/env bash
# TensorRT without a GPU: compiles the shim against every set of headers that can be had, then lets the
# library of TensorRT-RTX parse a model of ours and build an engine for GB10 (compute capability 12.1).
#
#   ci/tensorrt-compile.sh [FOLDER...]     folders with an NvInfer.h of your own, to compile against too
#
# Headers come inside the crate trtx-sys, the library (95 MB) from a Python wheel; both are kept under
# target/tensorrt. TENSORWIRE_TEST_MODEL names a model; without it one with random weights is exported.
# Exit 0 = passed, 77 = skipped, with the reason printed, 1 = failed.
set -euo pipefail
cd "$(dirname "$0")/.."
cache=$PWD/${CARGO_TARGET_DIR:-target}/tensorrt
mkdir -p "$cache"

skip() {
    printf 'tensorrt-compile: skipped: %s\n' "$1"
    exit 77
}

# The crate is only fetched: cargo unpacks it, and says where.
headers() {
    local scratch=$cache/scratch manifest
    mkdir -p "$scratch/src"
    : >"$scratch/src/lib.rs"
    printf '[package]\nname = "scratch"\nedition = "2024"\n[dependencies]\ntrtx-sys = "=0.9.1"\n[workspace]\n' \
        >"$scratch/Cargo.toml"
    cargo fetch --quiet --manifest-path "$scratch/Cargo.toml" 2>"$cache/fetch.log" || return 1
    manifest=$(cargo metadata --offline --format-version 1 --manifest-path "$scratch/Cargo.toml" 2>/dev/null |
        grep -o '"manifest_path":"[^"]*trtx-sys-[^"]*Cargo.toml"' | head -n 1 | cut -d'"' -f4)
    [ -d "$(dirname "$manifest")/TensorRT-Headers" ] || return 1
    dirname "$manifest"
}

cxx=${CXX:-c++}
command -v "$cxx" >/dev/null || skip 'no C++ compiler'
found=$(headers) || skip "the headers cannot be had: $(tail -n 1 "$cache/fetch.log")"
stubs=$found/TensorRT-Headers # cuda_runtime_api.h, with the two types that are needed

sets=0
for folder in "$stubs"/TRT-*/ "$@"; do
    [ -e "$folder/NvInfer.h" ] || { printf 'tensorrt-compile: no NvInfer.h in %s\n' "$folder"; exit 1; }
    for source in drivers/tensorrt-sys/shim/*.cpp; do
        "$cxx" -std=c++17 -fsyntax-only -Wall -Wextra -Werror -isystem "$folder" -isystem "$stubs" "$source"
    done
    sets=$((sets + 1))
done
printf 'tensorrt-compile: the shim compiles without a warning against %d sets of headers\n' "$sets"

# The library and the tests that use it.
if [ ! -e "$cache/lib/installed" ]; then
    rm -rf "$cache/lib"
    python3 -m pip --version >/dev/null 2>&1 || skip 'the library: python3 has no pip'
    python3 -m pip install --quiet --disable-pip-version-check --no-deps --target "$cache/lib" \
        tensorrt-rtx-cu13-libs==1.7.1.116 2>"$cache/pip.log" ||
        skip "the library of TensorRT-RTX cannot be had: $(tail -n 1 "$cache/pip.log")"
    touch "$cache/lib/installed"
fi
libraries=$cache/lib/tensorrt_rtx_libs
if [ -z "${TENSORWIRE_TEST_MODEL:-}" ]; then
    TENSORWIRE_TEST_MODEL=$cache/model.onnx
    [ -e "$TENSORWIRE_TEST_MODEL" ] || cargo run --quiet -p tensorwire -- export-model --weights seed:1 \
        --precision fp16 --front fp16 --output "$TENSORWIRE_TEST_MODEL"
fi

tests() {
    local version=$1
    shift
    env TENSORRT_INCLUDE_DIR="$stubs/TRT-$version" CUDA_INCLUDE_DIR="$stubs" \
        TENSORWIRE_TENSORRT="$libraries/libtensorrt_rtx.so.1" \
        TENSORWIRE_TENSORRT_PARSER="$libraries/libtensorrt_onnxparser_rtx.so.1" "$@"
}
tests RTX-1.7 env TENSORWIRE_TEST_MODEL="$TENSORWIRE_TEST_MODEL" \
    cargo test -p tensorwire-tensorrt-sys -p tensorwire-tensorrt -- --nocapture --test-threads 1
# Headers of another version, and of another library: refused before anything else is called.
for pair in 'RTX-1.6 1.6 1.7.1' 'Enterprise-11.4 11.4 1.7.1'; do
    read -r headers ours theirs <<<"$pair"
    tests "$headers" env TENSORWIRE_TEST_VERSIONS="$ours $theirs" \
        cargo test --quiet -p tensorwire-tensorrt --test ahead_of_time two_versions -- --nocapture
done
printf 'tensorrt-compile: passed\n'
