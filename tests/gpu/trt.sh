#!/usr/bin/env bash
# TensorRT on a GPU: every command over an engine, and whole runs from packets to features. Uses programs
# that were built elsewhere, with the headers of the TensorRT that is there; says what it ran and skipped.
#
#   tests/gpu/trt.sh FOLDER      `tests/gpu/run.sh tensorrt` calls it with $TRT_FOLDER
#
#   FOLDER/tensorwire          the program, built with TENSORRT_INCLUDE_DIR (required)
#   FOLDER/cuda-rows           the tests of drivers/tensorrt (cargo test -p tensorwire-tensorrt --lib --no-run)
#   FOLDER/reference           tests/tests/reference_gpu.rs (cargo test -p tensorwire-tests --test reference_gpu --no-run)
#   FOLDER/lib/                libnvinfer.so.N and libnvonnxparser.so.N, if not where the linker looks
#   FOLDER/shared/             the shared data and weights: models, captures and the reference come from it
#
# TRT_STEPS names the steps, in order; all but `long` without it:
#
#   models     fp16.onnx and qdq.onnx out of the weights, captures of 128, 256 and 1000 images
#   rows       the tests of drivers/tensorrt that need a GPU
#   build      an engine of each precision
#   engine     inspect, profile, and sweep by stream and by graph
#   keys       runs of 256 images by every combination of graph, contexts and memory kind
#   reference  features, logits and accuracy of runs, held against the reference
#   flow       reception and reorder alone, engine alone, and both, in images/s; threads pinned, on 16 cores or more
#   camera     a batch a second: from its last packet to its features
#   cold       from the start of the process to its end with a kept engine, four batches
#   killed     a build that is killed leaves no engine, and the next start builds one
#   dump       values inside the engine beside the CPU's
#   table      int8 by a calibration table and by made-up ranges (TensorRT 8 to 10), an engine of fp32
#   long       LONG_SECONDS of packets through the fp16 engine, memory watched
#
# Engines and measured times are kept in FOLDER: the second call is short. Logs and tables go to $OUT.
# Exit 0 if nothing failed, 1 if something did, 77 if nothing could be run.
set -uo pipefail
folder=${1:?a folder with the programs}
here=$(cd "$(dirname "$0")/../.." && pwd)
out=${OUT:-$folder/out}
mkdir -p "$out"
program=$folder/tensorwire
weights=$folder/shared/models/resnet50_cifar10.safetensors
failures=0
read -ra steps <<<"${TRT_STEPS:-models rows build engine keys reference flow camera cold killed dump table}"

skip() { printf -- '-- %s: skipped: %s\n' "$1" "$2"; }

fail() {
    printf -- '-- %s: FAILED: %s\n' "$1" "$2"
    failures=$((failures + 1))
}

# check NAME COMMAND...: runs it with its time, keeps its output.
check() {
    local name=$1 start=$SECONDS status
    shift
    "$@" >"$out/$name.out" 2>"$out/$name.err"
    status=$?
    if [ $status -eq 0 ]; then
        printf -- '-- %s: passed in %d s\n' "$name" $((SECONDS - start))
    else
        fail "$name" "exit $status after $((SECONDS - start)) s: $(tail -n 1 "$out/$name.err")"
    fi
    return $status
}

# configure NAME PRECISION REGION GRAPH DUAL CAPTURE: writes $out/NAME.yaml.
configure() {
    local name=$1 precision=$2 region=$3 graph=$4 dual=$5 capture=$6
    local model=$folder/fp16.onnx
    [ "$precision" = int8 ] && model=$folder/qdq.onnx
    sed -e "s|onnx_path:.*|onnx_path: \"$model\"|" \
        -e "s|engine_path:.*|engine_path: \"$folder/$precision.engine\"|" \
        -e "s|pcap_path:.*|pcap_path: \"$capture\"|" \
        -e "s|labels_path:.*|labels_path: \"$capture.labels\"|" \
        -e "s|enable_fp16:.*|enable_$precision: true|" \
        -e "s|enable_cuda_graph:.*|enable_cuda_graph: $graph|" \
        -e "s|enable_dual_context:.*|enable_dual_context: $dual|" \
        -e "/name: \"Reorder_RX_GPU\"/,/kind:/s|kind:.*|kind: \"$region\"|" \
        "$here/configs/resnet50_sw_loopback.yaml" >"$out/$name.yaml"
}

pin=(--no-pin)

# seat NAME: sender, receiver and consumer of $out/NAME.yaml on cores of their own, where there are enough: a rate is
# not to depend on where the system puts threads that spin. Puts into `pin` what the run is told.
seat() {
    pin=(--no-pin)
    if [ "$(nproc)" -lt 16 ]; then
        printf -- '-- %s: not pinned: fewer than 16 cores\n' "$1"
        return
    fi
    sed -i -e 's|cpu_core: 1[67]$|cpu_core: 2|' -e 's|cpu_core: 1[89]$|cpu_core: 6|' -e 's|cpu_core: 15$|cpu_core: 10|' \
        -e 's|master_core: 8$|master_core: 14|' "$out/$1.yaml"
    pin=()
}

# infer NAME ARGUMENT...: a run of $out/NAME.yaml over TensorRT; its summary is $out/NAME.out.
infer() {
    local name=$1
    shift
    check "$name" "$program" run "$out/$name.yaml" --backend tensorrt ${pin[@]+"${pin[@]}"} --json "$@"
}

# value KEY FILE: a number of a summary, the first of that name.
value() { grep -o "\"$1\": *[-0-9.e+]*" "$2" | head -n 1 | sed 's/.*: *//'; }

# latency KEY FILE: mean, p50, p99 and number of samples, in one line.
latency() { tr -d '\n ' <"$2" | grep -o "\"$1\":{[^}]*}"; }

# loops NAME FILE: heap allocations of the receiving and the inferring loop since the receiver was ready; a loop that makes
# one fails.
loops() {
    local counts
    counts=$(tr -d '\n ' <"$2" | grep -oE '"thread":"tw-(producer|consumer)","turns":[0-9]+,"allocations":[0-9]+')
    [ "$(grep -c '"allocations":0$' <<<"$counts")" -eq 2 ] || fail "$1" "loops allocate: $counts"
}

ratio() { awk -v a="$1" -v b="$2" 'BEGIN { printf("%.3f", (b > 0) ? a / b : 0) }'; }

models() {
    if [ ! -e "$weights" ]; then
        skip models "no $weights"
        return
    fi
    local images=$folder/shared/data/cifar10_test_1000.bin number
    for number in 128 256 1000; do
        [ -e "$folder/cifar$number.pcap" ] || check "prepare-$number" "$program" prepare --cifar10 "$images" \
            --num-images $number --config "$here/configs/resnet50_sw_loopback.yaml" --out "$folder/cifar$number.pcap"
    done
    [ -e "$folder/fp16.onnx" ] || check export-fp16 "$program" export-model --weights "$weights" --head both \
        --precision fp16 --output "$folder/fp16.onnx"
    [ -e "$folder/qdq.onnx" ] || check export-qdq "$program" export-model --weights "$weights" --head both \
        --precision qdq --calibrate "$folder/cifar256.pcap" --calibration-images 64 \
        --output "$folder/qdq.onnx"
}

rows() {
    if [ ! -x "$folder/cuda-rows" ]; then
        skip rows "no $folder/cuda-rows"
        return
    fi
    check rows "$folder/cuda-rows" --test-threads=1 --nocapture cuda::
    if grep -q '^skipped' "$out/rows.err"; then fail rows 'there is a GPU, and the test was skipped'; fi
    check gpu "$program" gpu --csv
}

build() {
    local precision model
    for precision in fp16 int8; do
        model=$folder/fp16.onnx
        [ $precision = int8 ] && model=$folder/qdq.onnx
        [ -e "$folder/$precision.engine" ] || check "build-$precision" "$program" trt build "$model" \
            --precision $precision --detailed --output "$folder/$precision.engine"
    done
}

engine() {
    local precision
    for precision in fp16 int8; do
        local file=$folder/$precision.engine
        check "inspect-$precision" "$program" trt inspect "$file"
        check "sweep-$precision" "$program" trt sweep "$file" --csv
        check "sweep-$precision-graph" "$program" trt sweep "$file" --graph --csv --svg "$out/sweep-$precision.svg"
        cat "$out/sweep-$precision.out" "$out/sweep-$precision-graph.out"
    done
    check profile "$program" trt profile "$folder/fp16.engine" "$folder/int8.engine" --csv
    check profile-sync "$program" trt profile "$folder/fp16.engine" --sync --runs 3 --csv
}

keys() {
    local region graph dual name
    for keys in 'false false' 'true false' 'true true'; do
        read -r graph dual <<<"$keys"
        for region in host_pinned device; do
            name=run-$region-graph-$graph-dual-$dual
            configure "$name" fp16 $region "$graph" "$dual" "$folder/cifar256.pcap"
            infer "$name" && printf '%s accuracy %s\n' "$(latency infer_ms "$out/$name.out")" \
                "$(value accuracy "$out/$name.out")"
        done
    done
    # The engine is there: a start that may not build one.
    infer run-device-graph-true-dual-true --no-rebuild
}

reference() {
    local precision images runs=$out/runs name
    mkdir -p "$runs"
    for precision in fp16 int8; do
        for images in 256 1000; do
            name=$precision-$images
            configure "$name" $precision device true false "$folder/cifar$images.pcap"
            infer "$name" --features "$runs/$name.features.npy" --logits "$runs/$name.logits.npy" &&
                cp "$out/$name.out" "$runs/$name.json"
        done
    done
    if [ ! -x "$folder/reference" ]; then
        skip reference "no $folder/reference"
        return
    fi
    TENSORWIRE_RUNS=$runs TENSORWIRE_SHARED=$folder/shared check reference "$folder/reference" --nocapture
    grep -hE '^(fp16|int8|skipped)' "$out/reference.out" "$out/reference.err"
    if grep -q '^skipped' "$out/reference.out" "$out/reference.err"; then fail reference 'it was skipped'; fi
}

# alone PRECISION: images/s of the engine by itself, batch 32, by graph.
alone() {
    check "alone-$1" "$program" trt sweep "$folder/$1.engine" --graph --batch 32 --runs 2000 --json >&2
    value images_per_s "$out/alone-$1.out"
}

flow() {
    local precision dual name before after both
    configure flow-none fp16 device true false "$folder/cifar256.pcap"
    seat flow-none
    check flow-none "$program" run "$out/flow-none.yaml" --backend none ${pin[@]+"${pin[@]}"} --json --loop \
        --seconds 6 --sim-tx lossless && loops flow-none "$out/flow-none.out" &&
        printf 'reception and reorder alone: %s images/s, reorder %s\n' "$(value active_images_per_s "$out/flow-none.out")" \
            "$(latency reorder_ms "$out/flow-none.out")"
    for precision in fp16 int8; do
        before=$(alone $precision)
        for dual in false true; do
            name=flow-$precision-dual-$dual
            configure "$name" $precision device true $dual "$folder/cifar256.pcap"
            seat "$name"
            infer "$name" --loop --seconds 8 --sim-tx lossless || continue
            loops "$name" "$out/$name.out"
            both=$(value active_images_per_s "$out/$name.out")
            printf '%s: both %s images/s, %s of the engine alone (%s); %s %s\n' "$name" "$both" \
                "$(ratio "$both" "$before")" "$before" "$(latency infer_ms "$out/$name.out")" \
                "$(latency last_packet_to_features_ms "$out/$name.out")"
        done
        after=$(alone $precision)
        printf '%s: engine alone before and after: %s, %s images/s\n' $precision "$before" "$after"
    done
    pin=(--no-pin)
}

camera() {
    configure camera fp16 device true false "$folder/cifar256.pcap"
    # 4096 frames of 1240 bytes, and 24 of each for preamble, checksum and gap, in a second.
    sed -i 's|^\( *\)offloads: \["tx_eth_src"\]|&\n\1pacing_mbps: 42|' "$out/camera.yaml"
    infer camera --loop --seconds 25 && latency last_packet_to_features_ms "$out/camera.out"
}

cold() {
    local name number
    if command -v python3 >/dev/null; then
        check context python3 -c '
import ctypes, time
cuda = ctypes.CDLL("libcuda.so.1")
start = time.perf_counter()
cuda.cuInit(0)
context = ctypes.c_void_p()
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
print("CUDA and its context alone: %.2f s" % (time.perf_counter() - start))'
        cat "$out/context.out"
    fi
    for number in 1 2 3; do
        name=cold-$number
        configure "$name" fp16 device true false "$folder/cifar128.pcap"
        local began=$EPOCHREALTIME
        infer "$name" --no-rebuild && awk -v a="$began" -v b="$EPOCHREALTIME" \
            'BEGIN { printf "process, 128 images, end: %.2f s\n", b - a }'
        printf 'of these before the first batch, and all of the run: %s, %s s\n' \
            "$(value before_first_batch_seconds "$out/$name.out")" "$(value wall_seconds "$out/$name.out")"
    done
}

killed() {
    local file=$folder/killed.engine kept
    check export-killed "$program" export-model --arch resnet18 --weights seed:1 --head both --precision fp16 \
        --output "$folder/killed.onnx" || return
    configure killed fp16 device true false "$folder/cifar256.pcap"
    sed -i -e "s|onnx_path:.*|onnx_path: \"$folder/killed.onnx\"|" -e "s|engine_path:.*|engine_path: \"$file\"|" \
        -e 's|feature_dim:.*|feature_dim: 512|' "$out/killed.yaml"
    timeout -s KILL 5 "$program" run "$out/killed.yaml" --backend tensorrt --no-pin >"$out/killed.log" 2>&1
    printf 'killed while: %s\n' "$(tail -n 1 "$out/killed.log")"
    kept=$(find "$folder" -name 'killed*.engine' | wc -l)
    [ "$kept" -eq 0 ] || fail killed 'a build that was killed left an engine'
    infer killed && [ "$(find "$folder" -name 'killed*.engine' | wc -l)" -eq 1 ] || fail killed 'no engine was built'
    grep -h 'engine' "$out/killed.err" | tail -n 2
}

dump() {
    local precision model
    for precision in fp16 int8; do
        model=$folder/fp16.onnx
        [ $precision = int8 ] && model=$folder/qdq.onnx
        check "dump-$precision" "$program" trt dump "$model" --precision $precision --capture "$folder/cifar256.pcap" \
            --layer relu layer1.0.relu layer4.2.relu --out "$out" && cat "$out/dump-$precision.out"
    done
}

table() {
    # Where TensorRT makes int8 of a model without ranges: 8 to 10.
    if ! grep -q 'takes calibration tables' "$out/version.out"; then
        skip table 'this TensorRT takes no calibration tables'
        return
    fi
    check calibrate "$program" trt calibrate "$folder/fp16.onnx" --captures "$folder/cifar256.pcap" --images 64 \
        --output "$folder/calibration.cache" || return
    check build-table "$program" trt build "$folder/fp16.onnx" --precision int8 --calibration "$folder/calibration.cache" \
        --output "$folder/table.engine" && check sweep-table "$program" trt sweep "$folder/table.engine" --graph --csv &&
        cat "$out/sweep-table.out"
    check sweep-dummy "$program" trt sweep "$folder/fp16.onnx" --dummy-ranges --batch 32 --graph --csv &&
        cat "$out/sweep-dummy.out"
    check build-fp32 "$program" trt build "$folder/fp16.onnx" --precision fp32 --output "$folder/fp32.engine" &&
        check profile-all "$program" trt profile "$folder"/{fp32,fp16,int8,table}.engine --csv
}

# Memory of the process and of the GPU every five seconds, beside a run.
long() {
    local seconds=${LONG_SECONDS:-240} run
    configure long fp16 device true false "$folder/cifar256.pcap"
    "$program" run "$out/long.yaml" --backend tensorrt --no-pin --json --loop --seconds "$seconds" --sim-tx lossless \
        >"$out/long.out" 2>"$out/long.err" &
    run=$!
    printf 'seconds,rss_kib,gpu_mib,descriptors\n' >"$out/long.csv"
    local start=$SECONDS
    while kill -0 $run 2>/dev/null; do
        sleep 5
        printf '%d,%s,%s,%s\n' $((SECONDS - start)) "$(awk '/VmRSS/ { print $2 }' /proc/$run/status 2>/dev/null)" \
            "$(nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits | head -n 1)" \
            "$(find /proc/$run/fd 2>/dev/null | wc -l)" >>"$out/long.csv"
    done
    wait $run || fail long "exit $?: $(tail -n 1 "$out/long.err")"
    printf 'long: %s batches, %s images/s, balanced %s, missing %s\n' "$(value batches "$out/long.out")" \
        "$(value active_images_per_s "$out/long.out")" "$(grep -o '"balanced": *[a-z]*' "$out/long.out")" \
        "$(value missing "$out/long.out")"
    sed -n '1p;3p' "$out/long.csv"
    tail -n 3 "$out/long.csv"
}

[ -x "$program" ] || { skip all "no $program"; exit 77; }
if [ -d "$folder/lib" ]; then
    export LD_LIBRARY_PATH=$folder/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
fi
if ! "$program" trt version >"$out/version.out" 2>"$out/version.err"; then
    skip all "$(tail -n 1 "$out/version.err")"
    exit 77
fi
cat "$out/version.out"
if grep -q '^GPU *none' "$out/version.out"; then
    skip all 'no GPU'
    exit 77
fi
for wanted in "${steps[@]}"; do
    case $wanted in
        models | rows) $wanted ;;
        build | engine | keys | reference | flow | camera | cold | killed | dump | table | long)
            missing=
            for file in fp16.onnx qdq.onnx cifar128.pcap cifar256.pcap cifar1000.pcap; do
                [ -e "$folder/$file" ] || missing=$file
            done
            if [ -z "$missing" ]; then $wanted; else skip "$wanted" "no $folder/$missing (step models)"; fi
            ;;
        *) fail "$wanted" 'no such step' ;;
    esac
done
[ $failures -eq 0 ]
