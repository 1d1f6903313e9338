#!/usr/bin/env bash
# TensorRT on a GPU: every command over an engine, and whole runs from packets to features. Uses programs
# that were built elsewhere, with the headers of the TensorRT that is there; says what it ran and skipped.
#
#   tests/gpu/trt.sh FOLDER      `tests/gpu/run.sh tensorrt` calls it with $TRT_FOLDER
#
#   FOLDER/tensorwire          the program, built with TENSORRT_INCLUDE_DIR (required)
#   FOLDER/cuda-rows           the tests of drivers/tensorrt (cargo test -p tensorwire-tensorrt --lib --no-run)
#   FOLDER/lib/                libnvinfer.so.N and libnvonnxparser.so.N, if not where the linker looks
#   FOLDER/*.onnx              models: fp16.onnx (required), qdq.onnx; input fp16 [batch,3,224,224]
#   FOLDER/cifar.pcap          a capture with its .labels: the runs from packets
#
# Engines and measured times are kept in FOLDER: the second call is short. Logs and tables go to $OUT.
# Exit 0 if nothing failed, 1 if something did, 77 if nothing could be run.
set -uo pipefail
folder=${1:?a folder with the programs}
here=$(cd "$(dirname "$0")/../.." && pwd)
out=${OUT:-$folder/out}
mkdir -p "$out"
program=$folder/tensorwire
failures=0

skip() { printf -- '-- %s: skipped: %s\n' "$1" "$2"; }

# check NAME COMMAND...: runs it with its time, keeps its output.
check() {
    local name=$1 start=$SECONDS status
    shift
    "$@" >"$out/$name.out" 2>"$out/$name.err"
    status=$?
    if [ $status -eq 0 ]; then
        printf -- '-- %s: passed in %d s\n' "$name" $((SECONDS - start))
    else
        printf -- '-- %s: FAILED with %d after %d s: %s\n' "$name" $status $((SECONDS - start)) \
            "$(tail -n 1 "$out/$name.err")"
        failures=$((failures + 1))
    fi
    return $status
}

[ -x "$program" ] || { skip all "no $program"; exit 77; }
[ -e "$folder/fp16.onnx" ] || { skip all "no $folder/fp16.onnx"; exit 77; }
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

if [ -x "$folder/cuda-rows" ]; then
    check rows "$folder/cuda-rows" --test-threads=1 --nocapture cuda::
    if grep -q '^skipped' "$out/rows.err"; then
        printf -- '-- rows: FAILED: there is a GPU, and the test was skipped\n'
        failures=$((failures + 1))
    fi
else
    skip rows "no $folder/cuda-rows"
fi
check gpu "$program" gpu --csv

for precision in fp16 int8; do
    model=$folder/fp16.onnx
    [ $precision = int8 ] && model=$folder/qdq.onnx
    if [ ! -e "$model" ]; then
        skip "$precision" "no $model"
        continue
    fi
    engine=$folder/$precision.engine
    if [ ! -e "$engine" ]; then
        check "build-$precision" "$program" trt build "$model" --precision $precision --detailed \
            --output "$engine" || continue
    fi
    check "inspect-$precision" "$program" trt inspect "$engine"
    check "profile-$precision" "$program" trt profile "$engine" --csv
    [ -e "$folder/cifar.pcap" ] && check "dump-$precision" "$program" trt dump "$model" --precision $precision \
        --capture "$folder/cifar.pcap" --layer relu layer1.0.relu layer4.2.relu --out "$out" && cat "$out/dump-$precision.out"
    check "sweep-$precision" "$program" trt sweep "$engine" --csv
    check "sweep-$precision-graph" "$program" trt sweep "$engine" --graph --csv --svg "$out/sweep-$precision.svg"
    cat "$out/sweep-$precision-graph.out" 2>/dev/null
done

# From packets to features, in every way that the keys allow.
if [ ! -e "$folder/cifar.pcap" ]; then
    skip runs "no $folder/cifar.pcap"
else
    for keys in 'false false' 'true false' 'true true'; do
        read -r graph dual <<<"$keys"
        for region in host_pinned device; do
            name=run-$region-graph-$graph-dual-$dual
            sed -e "s|onnx_path:.*|onnx_path: \"$folder/fp16.onnx\"|" \
                -e "s|engine_path:.*|engine_path: \"$folder/run.engine\"|" \
                -e "s|pcap_path:.*|pcap_path: \"$folder/cifar.pcap\"|" \
                -e "s|labels_path:.*|labels_path: \"$folder/cifar.pcap.labels\"|" \
                -e "s|enable_cuda_graph:.*|enable_cuda_graph: $graph|" \
                -e "s|enable_dual_context:.*|enable_dual_context: $dual|" \
                -e "/name: \"Reorder_RX_GPU\"/,/kind:/s|kind:.*|kind: \"$region\"|" \
                "$here/configs/resnet50_sw_loopback.yaml" >"$out/$name.yaml"
            check "$name" "$program" run "$out/$name.yaml" --backend tensorrt --no-pin --json &&
                grep -o '"infer_ms":{[^}]*}\|"accuracy":[^,}]*' "$out/$name.out"
        done
    done
    # The engine is there now: a start without a build.
    check no-rebuild "$program" run "$out/run-device-graph-true-dual-true.yaml" --backend tensorrt --no-pin \
        --no-rebuild --json
fi
[ $failures -eq 0 ]
