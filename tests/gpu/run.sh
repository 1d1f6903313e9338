#!/usr/bin/env bash
# All tests that need a GPU. Builds with the machine's nvcc, runs, and says what it ran and what it
# skipped, and why. Needs nothing of the repository but `kernels/cuda` and this folder, so that the two can
# be carried to a machine that has a GPU and nothing else:
#
#   tests/gpu/run.sh [exact] [sanitize] [faults] [pipeline] [bench] [rate]
#                                                    the first four without an argument
#
#   exact     the kernels against the naive model
#   sanitize  the same on small sizes under memcheck, racecheck and initcheck
#   faults    a fault is planted in a copy of the kernels, one after the other: a test must fail
#   pipeline  drivers/cuda/tests/gpu.rs: memory, contexts, NVRTC, whole pipelines bit-equal to the CPU's
#   bench     figures beside copies of the same bytes (kernels/BENCH.md)
#   rate      drivers/cuda/benches/pipeline.rs: the way without inference, in Gb/s (docs/performance.md)
#
# The two that are written in Rust need cargo, or programs that were built elsewhere: GPU_TEST and
# GPU_RATE name them.
#
# Exit 0 if nothing failed (a skipped step is printed as such), 1 otherwise. Logs go to $OUT, if set.
set -uo pipefail
cd "$(dirname "$0")/../.."
cuda=$PWD/kernels/cuda
steps=("$@")
[ $# -gt 0 ] || steps=(exact sanitize faults pipeline)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
logs=${OUT:-$work}
ran=() skipped=() failed=()

skip() {
    skipped+=("$1: $2")
    printf '== %s: skipped: %s\n' "$1" "$2"
}

# step NAME COMMAND...: runs it, with its time, and keeps its output.
step() {
    local name=$1 start=$SECONDS
    shift
    printf '\n== %s\n' "$name"
    if "$@" 2>&1 | tee "$logs/${name// /-}.log"; then
        ran+=("$name: passed in $((SECONDS - start)) s")
    else
        failed+=("$name: FAILED after $((SECONDS - start)) s: $*")
    fi
}

finish() {
    printf '\n== summary\n'
    for line in ${ran[@]+"${ran[@]}"}; do printf 'ran      %s\n' "$line"; done
    for line in ${skipped[@]+"${skipped[@]}"}; do printf 'skipped  %s\n' "$line"; done
    for line in ${failed[@]+"${failed[@]}"}; do printf 'FAILED   %s\n' "$line"; done
    [ ${#failed[@]} -eq 0 ]
    exit
}

for dir in "${CUDA_HOME:-/usr/local/cuda}/bin"; do
    [ -d "$dir" ] && PATH=$PATH:$dir
done
if ! command -v nvcc >/dev/null; then
    skip all 'no nvcc on the PATH or under CUDA_HOME (ci/cuda-compile.sh compiles the kernels without one)'
    finish
fi
if ! command -v nvidia-smi >/dev/null || ! gpu=$(nvidia-smi --query-gpu=name,compute_cap --format=csv,noheader | head -n 1) ||
    [ -z "$gpu" ]; then
    skip all 'no GPU (nvidia-smi names none)'
    finish
fi
printf '%s, %s\n' "$gpu" "$(nvcc --version | grep release)"
capability=${gpu##*, }
arch=sm_${capability/./}

nvcc_() { nvcc -std=c++17 -O3 -arch="$arch" "$@"; }

# build_module FOLDER OUTPUT
build_module() { nvcc_ -cubin "$1/tensorwire.cu" -o "$2"; }

build() {
    build_module "$cuda" "$work/kernels.cubin" &
    local jobs=($!) name
    for name in main lengths values modes planes; do
        nvcc_ -Xcompiler -Wall -c "$cuda/tests/$name.cu" -o "$work/$name.o" &
        jobs+=($!)
    done
    nvcc_ -Xcompiler -Wall "$cuda/bench/reorder.cu" -o "$work/bench" &
    jobs+=($!)
    for job in "${jobs[@]}"; do wait "$job" || return 1; done
    nvcc_ "$work"/{main,lengths,values,modes,planes}.o -o "$work/exact"
}

sanitize() {
    local tool=$1
    shift
    compute-sanitizer --tool "$tool" --error-exitcode 9 "$@" "$work/exact" "$work/kernels.cubin" --reduced
}

# What is planted: name, file, what stands there, what to put there, and who must notice.
faults=(
    'the last element of a slot is left out|reorder.cuh|i < elements - body; i|i + 1 < elements - body; i|exact lengths'
    'a slot begins one chunk late|reorder.cuh|to_line < elements ? to_line : elements|to_line < elements ? 0 : elements|exact lengths'
    'int32 is cut, not rounded|convert.cuh|!= integer(w, k) ? 1 : 0|!= integer(w, k) ? 0 : 0|exact values'
    'network order is ignored for int16|convert.cuh|network ? 0x2301 : 0x3210|0x3210|exact values'
    'the low nibble first|convert.cuh|k % 2 == 0 ? 4 : 0|k % 2 == 0 ? 0 : 4|exact values'
    'words beyond the payload are read|memory.cuh| \&\& first + BYTES + 4 <= end||memcheck lengths'
    'another batch is taken for this one|packets.cuh|p.batch.bit_width != 0 \&\&|false \&\&|exact modes'
    'two packets share a slot|packets.cuh|owner != 0 \&\& owner != i + 1|false|exact modes'
    'a missing slot keeps its bytes|zero.cuh|write16(to + head + 16 \* i, zeros);||exact modes'
    'zeros do not wait for the reorder|zero.cuh|    wait_for_previous();||exact modes'
    'the channel does not change inside a chunk|planes.cuh|if (++pixel == plane)|if (++pixel == 0)|exact planes'
    'a header ends early|gather.cuh|p.header_bytes / WIDTH;|p.header_bytes / WIDTH - 1;|exact modes'
)

plant() {
    local number=0 jobs=() line name file from to notice
    for line in "${faults[@]}"; do
        IFS='|' read -r name file from to notice <<<"$line"
        cp -r "$cuda" "$work/fault$number"
        sed -i "s|$from|$to|" "$work/fault$number/$file"
        if cmp -s "$cuda/$file" "$work/fault$number/$file"; then
            printf 'the fault "%s" no longer fits %s\n' "$name" "$file"
            return 1
        fi
        build_module "$work/fault$number" "$work/fault$number.cubin" &
        jobs+=($!)
        number=$((number + 1))
    done
    for job in "${jobs[@]}"; do wait "$job" || return 1; done
    number=0
    local missed=0 status
    for line in "${faults[@]}"; do
        IFS='|' read -r name file from to notice <<<"$line"
        read -r tool test <<<"$notice"
        if [ "$tool" = exact ]; then
            timeout 100 "$work/exact" "$work/fault$number.cubin" "$test" >"$work/fault.log" 2>&1
        else
            timeout 100 compute-sanitizer --tool "$tool" --error-exitcode 9 "$work/exact" "$work/fault$number.cubin" \
                --reduced "$test" >"$work/fault.log" 2>&1
        fi
        status=$?
        if [ $status -eq 0 ] || [ $status -eq 124 ]; then
            printf 'NOT NOTICED by %s (%d): %s\n' "$notice" "$status" "$name"
            missed=$((missed + 1))
        else
            printf 'noticed by %s (exit %d): %s: %s\n' "$notice" "$status" "$name" \
                "$(grep -m 1 -E 'DIFFERS|Invalid' "$work/fault.log")"
        fi
        number=$((number + 1))
    done
    [ $missed -eq 0 ]
}

# rust NAME PROGRAM CARGO...: runs the program, or builds and runs it.
rust() {
    local name=$1 program=$2
    shift 2
    if [ -n "$program" ]; then
        step "$name" "$program" --test-threads=1 --nocapture
    elif command -v cargo >/dev/null; then
        step "$name" cargo "$@"
    else
        skip "$name" 'no cargo, and no program that was built elsewhere is named (GPU_TEST, GPU_RATE)'
    fi
}

step build build
[ ${#failed[@]} -eq 0 ] || finish
for wanted in "${steps[@]}"; do
    case $wanted in
        exact) step exact "$work/exact" "$work/kernels.cubin" ;;
        sanitize)
            if ! command -v compute-sanitizer >/dev/null; then
                skip sanitize 'no compute-sanitizer on the PATH'
            else
                step memcheck sanitize memcheck
                step racecheck sanitize racecheck
                step initcheck sanitize initcheck
            fi
            ;;
        faults)
            if ! command -v compute-sanitizer >/dev/null; then
                skip faults 'no compute-sanitizer on the PATH'
            else
                step faults plant
            fi
            ;;
        pipeline)
            rust pipeline "${GPU_TEST:-}" test --release -p tensorwire-cuda --test gpu -- --test-threads=1 --nocapture
            ;;
        rate) rust rate "${GPU_RATE:-}" bench -p tensorwire-cuda --bench pipeline ;;
        bench) step bench "$work/bench" "$work/kernels.cubin" --json "$logs/bench.json" ;;
        *) failed+=("$wanted: no such step") ;;
    esac
done
finish
