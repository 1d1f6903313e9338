#!/usr/bin/env bash
# Compiles the GPU kernels for every architecture we name, without a GPU: CUDA's compiler comes from Python
# wheels (some 100 MB, kept under target/). Fails if a kernel spills registers to memory, uses more than
# MAX_REGISTERS, or if an entry point is missing for an architecture. What passed is not compiled again
# until a source changes.
#
#   ci/cuda-compile.sh [ARCHITECTURE...]        e.g. 90 121; all without one
#
# Leaves target/cuda/tensorwire.fatbin (all architectures and PTX). Exit 0 = passed, 77 = skipped, with the
# reason printed, 1 = failed.
set -euo pipefail
cd "$(dirname "$0")/.."
MAX_REGISTERS=64 # 4 blocks of 256 threads to a multiprocessor: a whole batch at once
architectures=("$@")
[ $# -gt 0 ] || architectures=(80 87 90 100 110 120 121)
cache=${CARGO_TARGET_DIR:-target}/cuda
mkdir -p "$cache"
# Compiler and headers decide the code, so they are pinned. cccl is needed by cuda_fp16.h.
wheels=(nvidia-cuda-nvcc==13.0.88 nvidia-cuda-crt==13.0.88 nvidia-nvvm==13.0.88 nvidia-cuda-runtime==13.0.96
    nvidia-cuda-cccl==13.0.85)

skip() {
    printf 'cuda-compile: skipped: %s\n' "$1"
    exit 77
}

stamp=$(cat kernels/cuda/*.{cu,cuh,h} "$0" | sha256sum | cut -c1-32)-${architectures[*]}
if [ -e "$cache/passed" ] && [ "$(cat "$cache/passed")" = "$stamp" ]; then
    printf 'cuda-compile: nothing changed since it passed for %s\n' "${architectures[*]}"
    exit 0
fi

command -v g++-12 >/dev/null && host=g++-12 || host=g++
command -v "$host" >/dev/null || skip 'no g++'
if [ ! -e "$cache/venv/installed" ] || [ "$(cat "$cache/venv/installed")" != "${wheels[*]}" ]; then
    rm -rf "$cache/venv"
    python3 -m venv "$cache/venv" 2>/dev/null || skip 'python3 cannot make a virtual environment (python3-venv)'
    "$cache/venv/bin/pip" install --quiet --disable-pip-version-check "${wheels[@]}" 2>"$cache/pip.log" ||
        skip "the wheels of CUDA's compiler cannot be had: $(tail -n 1 "$cache/pip.log")"
    printf '%s' "${wheels[*]}" >"$cache/venv/installed"
fi
nvcc=$(echo "$cache"/venv/lib/python3*/site-packages/nvidia/cu13/bin/nvcc)
[ -x "$nvcc" ] || skip "the wheels hold no nvcc for this machine ($(uname -m))"

targets=()
for architecture in "${architectures[@]}"; do
    targets+=(-gencode "arch=compute_$architecture,code=sm_$architecture")
done
targets+=(-gencode "arch=compute_${architectures[0]},code=compute_${architectures[0]}")
"$nvcc" -ccbin "$host" -std=c++17 -O3 --threads 2 --compress-mode=size --fatbin "${targets[@]}" -Xptxas -v \
    kernels/cuda/tensorwire.cu -o "$cache/tensorwire.fatbin" 2>"$cache/report" || {
    cat "$cache/report" >&2
    exit 1
}
if grep -iE 'warning|error' "$cache/report"; then exit 1; fi

# The report: one "Compiling entry function", one line of spills and one of registers per kernel and target.
awk -v most="$MAX_REGISTERS" -v targets="${#architectures[@]}" '
    /Compiling entry function/ { kernel = $0; sub(/.*entry function ./, "", kernel); kernels++ }
    /bytes spill stores/ { if ($5 + 0 != 0 || $9 + 0 != 0) { print "spills: " kernel ": " $0; bad++ } }
    /Used [0-9]+ registers/ {
        match($0, /Used [0-9]+/); used = substr($0, RSTART + 5, RLENGTH - 5) + 0; reports++
        if (used > highest) { highest = used; who = kernel }
        if (used > most) { print used " registers: " kernel; bad++ }
    }
    END {
        if (kernels == 0 || reports != kernels || kernels % targets != 0) {
            print "the report is not as expected: " kernels " kernels, " reports " register counts"; bad++
        }
        printf "cuda-compile: %d entry points x %d architectures, at most %d registers (%s)\n",
            kernels / targets, targets, highest, who
        exit bad != 0
    }' "$cache/report"
printf 'cuda-compile: %s is %d kB\n' "$cache/tensorwire.fatbin" $(($(stat -c %s "$cache/tensorwire.fatbin") / 1024))
printf '%s' "$stamp" >"$cache/passed"
