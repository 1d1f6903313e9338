#!/usr/bin/env bash
# The rate of the software loopback without inference: a capture of 256 images, sent over and over
# until 393,216 images (10 s of traffic at 47 Gb/s, 24 s at 20) have come out whole. Prints the run's
# summary; exits non-zero if an image or a packet was lost anywhere, or if the rate is below the
# number of Gb/s (of payload) given as the first argument. docs/performance.md has what it measured.
set -euo pipefail
cd "$(dirname "$0")/.."
at_least=${1:-0}

cargo build --quiet --release -p tensorwire
tensorwire=${CARGO_TARGET_DIR:-target}/release/tensorwire
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$tensorwire" prepare --synthetic 1 --num-images 256 --images-per-batch 32 \
    --out "$work/capture.pcap"
"$tensorwire" run configs/resnet50_sw_loopback.yaml --backend none --dataset "$work/capture.pcap" \
    --loop --expected-images 393216 2>&1 | tee "$work/summary"

for zero in 'damaged=0 missing=0 dropped=0 ' 'malformed=0 other_flow=0 no_buffer=0 ' \
    'imissed=0 ierrors=0 rx_nombuf=0'; do
    grep -q "$zero" "$work/summary" || { echo "not lossless: no '$zero' above" >&2; exit 1; }
done
rate=$(sed -n 's/^receive only: \([0-9.]*\) Gb\/s of payload$/\1/p' "$work/summary")
awk -v rate="$rate" -v at_least="$at_least" 'BEGIN { exit !(rate != "" && rate >= at_least) }' ||
    { echo "the rate '$rate' is below $at_least Gb/s" >&2; exit 1; }
