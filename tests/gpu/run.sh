#!/usr/bin/env bash
# All tests that need a GPU. Builds with the machine's nvcc, runs, and says what it ran and what it
# skipped, and why. Needs nothing of the repository but `kernels/cuda` and this folder, so that the two can
# be carried to a machine that has a GPU and nothing else:
#
#   tests/gpu/run.sh [exact] [sanitize] [faults] [pipeline] [bench] [rate] [tensorrt]
#                                                    the first four without an argument
#   tests/gpu/run.sh fits                            without a GPU or a compiler
#   tests/gpu/run.sh prepare FOLDER ARCHITECTURE     without a GPU: compiles all of it, for sm_90 and so on
#
#   exact     the kernels against the naive model
#   sanitize  the same on small sizes under memcheck, racecheck and initcheck, side by side
#   faults    a fault is planted in a copy of the kernels, one after the other: a test must fail
#   pipeline  drivers/cuda/tests/gpu.rs: memory, contexts, NVRTC, whole pipelines bit-equal to the CPU's
#   fits      whether every fault still finds its place in the sources
#   bench     figures beside copies of the same bytes (kernels/BENCH.md)
#   tensorrt  tests/gpu/trt.sh over programs and models that were carried here in the folder TRT_FOLDER
#   rate      drivers/cuda/benches/pipeline.rs: the way without inference, in Gb/s (docs/performance.md)
#
# The two that are written in Rust need cargo, or programs that were built elsewhere: GPU_TEST and
# GPU_RATE name them. GPU_BUILT names a folder that `prepare` filled elsewhere; then no nvcc is needed.
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
    'the last header is left out|gather.cuh|if (i >= p.packets.count) return;|if (i + 1 >= p.packets.count) return;|exact modes'
)

# fits: plants each fault in a copy of the kernels, $work/fault0 and so on.
fits() {
    local number=0 line name file from to notice
    for line in "${faults[@]}"; do
        IFS='|' read -r name file from to notice <<<"$line"
        cp -r "$cuda" "$work/fault$number"
        sed -i "s|$from|$to|" "$work/fault$number/$file"
        if cmp -s "$cuda/$file" "$work/fault$number/$file"; then
            printf 'the fault "%s" no longer fits %s\n' "$name" "$file"
            return 1
        fi
        number=$((number + 1))
    done
    printf '%d faults fit\n' "$number"
}

if [ "${steps[*]}" = fits ]; then
    step fits fits
    finish
fi

for dir in "${CUDA_HOME:-/usr/local/cuda}/bin"; do
    [ -d "$dir" ] && PATH=$PATH:$dir
done
if [ -z "${GPU_BUILT:-}" ] && ! command -v nvcc >/dev/null; then
    skip all 'no nvcc on the PATH or under CUDA_HOME (ci/cuda-compile.sh compiles the kernels without one)'
    finish
fi
nvcc_() { nvcc -std=c++17 -O3 -arch="$arch" "$@"; }

# No more compilers at once than there are cores.
bounded() { while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do wait -n; done; }

# build_module FOLDER OUTPUT
build_module() { nvcc_ -cubin "$1/tensorwire.cu" -o "$2"; }

build() {
    if [ -n "${GPU_BUILT:-}" ]; then
        cp "$GPU_BUILT"/*.cubin "$GPU_BUILT"/exact "$GPU_BUILT"/bench "$work"
        return
    fi
    build_module "$cuda" "$work/kernels.cubin" &
    local jobs=($!) name
    for name in main lengths values modes planes; do
        bounded
        nvcc_ -Xcompiler -Wall -c "$cuda/tests/$name.cu" -o "$work/$name.o" &
        jobs+=($!)
    done
    nvcc_ -Xcompiler -Wall "$cuda/bench/reorder.cu" -o "$work/bench" &
    jobs+=($!)
    for job in "${jobs[@]}"; do wait "$job" || return 1; done
    nvcc_ "$work"/{main,lengths,values,modes,planes}.o -o "$work/exact"
}

build_faults() {
    local number jobs=()
    for number in "${!faults[@]}"; do
        bounded
        [ -e "$work/fault$number.cubin" ] || build_module "$work/fault$number" "$work/fault$number.cubin" &
        jobs+=($!)
    done
    for job in "${jobs[@]}"; do wait "$job" || return 1; done
}

# checked TOOL CUBIN ARGUMENT...: the tests under a checker, on small sizes
checked() {
    local tool=$1 cubin=$2
    shift 2
    compute-sanitizer --tool "$tool" --error-exitcode 9 "$work/exact" "$cubin" --reduced "$@"
}

# sanitize: each test under each checker, all at once: most of the time is the checker's own, on the CPU
sanitize() {
    local tool name jobs=() names=() at failed=0
    for tool in memcheck racecheck initcheck; do
        for name in lengths values modes planes; do
            checked "$tool" "$work/kernels.cubin" "$name" >"$logs/$tool-$name.log" 2>&1 &
            jobs+=($!)
            names+=("$tool $name")
        done
    done
    for at in "${!jobs[@]}"; do
        wait "${jobs[$at]}"
        local status=$?
        read -r tool name <<<"${names[$at]}"
        printf '%s %s: exit %d: %s\n' "$tool" "$name" "$status" \
            "$(grep -hE 'comparisons|SUMMARY' "$logs/$tool-$name.log" | tr '\n' ' ')"
        [ $status -eq 0 ] || failed=$((failed + 1))
    done
    [ $failed -eq 0 ]
}

# notice NUMBER TOOL TEST: on small sizes, which is fast, and if it went unnoticed there on all
notice() {
    local cubin=$work/fault$1.cubin tool=$2 test=$3
    if [ "$tool" = exact ]; then
        timeout 100 "$work/exact" "$cubin" --reduced "$test" || return
        timeout 100 "$work/exact" "$cubin" "$test"
    else
        timeout 100 compute-sanitizer --tool "$tool" --error-exitcode 9 "$work/exact" "$cubin" --reduced "$test"
    fi
}

stopped='misaligned address|illegal memory access'

plant() {
    local number jobs=() missed=0 status expected name file from to notice tool test
    fits && build_faults || return 1
    for number in "${!faults[@]}"; do
        read -r tool test <<<"${faults[$number]##*|}"
        notice "$number" "$tool" "$test" >"$work/fault$number.log" 2>&1 &
        jobs+=($!)
    done
    for number in "${!faults[@]}"; do
        wait "${jobs[$number]}"
        status=$?
        IFS='|' read -r name file from to notice <<<"${faults[$number]}"
        # The test's own code for a difference, and the checker's; or the kernel was stopped at an access
        # that it may not make. Anything else (a timeout, no memory) says nothing about the fault.
        case $notice in exact*) expected=1 ;; *) expected=9 ;; esac
        if [ $status -eq 3 ] && grep -qE "$stopped" "$work/fault$number.log"; then expected=3; fi
        if [ $status -ne $expected ]; then
            printf 'NOT NOTICED by %s (%d): %s: %s\n' "$notice" "$status" "$name" "$(tail -n 1 "$work/fault$number.log")"
            missed=$((missed + 1))
        else
            printf 'noticed by %s (exit %d): %s: %s\n' "$notice" "$status" "$name" \
                "$(grep -m 1 -E "DIFFERS|Invalid|$stopped" "$work/fault$number.log")"
        fi
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

if [ "${steps[0]}" = prepare ]; then
    mkdir -p "${steps[1]}"
    work=$(cd "${steps[1]}" && pwd) arch=${steps[2]}
    trap - EXIT
    step build build
    step faults eval 'fits && build_faults'
    rm -rf "$work"/*.o "$work"/fault*[0-9]
    finish
fi

if ! command -v nvidia-smi >/dev/null || ! gpu=$(nvidia-smi --query-gpu=name,compute_cap --format=csv,noheader | head -n 1) ||
    [ -z "$gpu" ]; then
    skip all 'no GPU (nvidia-smi names none)'
    finish
fi
printf '%s, kernels %s\n' "$gpu" "${GPU_BUILT:-compiled by $(nvcc --version | grep release)}"
capability=${gpu##*, }
arch=sm_${capability/./}

case " ${steps[*]} " in
    *' exact '* | *' sanitize '* | *' faults '* | *' bench '*)
        step build build
        [ ${#failed[@]} -eq 0 ] || finish
        ;;
esac
for wanted in "${steps[@]}"; do
    case $wanted in
        exact) step exact "$work/exact" "$work/kernels.cubin" ;;
        sanitize)
            if ! command -v compute-sanitizer >/dev/null; then
                skip sanitize 'no compute-sanitizer on the PATH'
            else
                step sanitize sanitize
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
        tensorrt)
            if [ -z "${TRT_FOLDER:-}" ]; then
                skip tensorrt 'no folder with programs and models is named (TRT_FOLDER)'
            else
                start=$SECONDS
                OUT=$logs tests/gpu/trt.sh "$TRT_FOLDER" 2>&1 | tee "$logs/tensorrt.log"
                case ${PIPESTATUS[0]} in
                    0) ran+=("tensorrt: passed in $((SECONDS - start)) s") ;;
                    77) skip tensorrt "$(tail -n 1 "$logs/tensorrt.log")" ;;
                    *) failed+=("tensorrt: FAILED after $((SECONDS - start)) s") ;;
                esac
            fi
            ;;
        bench) step bench "$work/bench" "$work/kernels.cubin" --json "$logs/bench.json" ;;
        *) failed+=("$wanted: no such step") ;;
    esac
done
finish
