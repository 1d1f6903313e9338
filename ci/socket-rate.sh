#!/usr/bin/env bash
# Sockets with and without receive offload (tensorwire.socket_gro), side by side: the program sends
# frames of 1240 bytes with segmentation offload from one network namespace to another over veth, once
# as fast as it goes and once at PACE Mb/s (default 4000), in turns, ROUNDS times (default 3). Prints
# for each run the payload that was placed, in Gb/s, and the share of the packets that did not arrive.
# Needs root, iproute2 and python3. TENSORWIRE names a program; without it the release build is made.
#
#   ci/socket-rate.sh [SECONDS]    of each run (default 5)
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-5} rounds=${ROUNDS:-3} pace=${PACE:-4000}

[ "$(id -u)" = 0 ] && command -v ip >/dev/null && command -v python3 >/dev/null ||
    { echo "socket-rate: skipped: needs root, ip and python3" >&2; exit 77; }
tensorwire=${TENSORWIRE:-$PWD/target/release/tensorwire}
[ -n "${TENSORWIRE:-}" ] || cargo build --quiet --release -p tensorwire
export TW_NS=twr$$
net=$PWD/configs/net_xhost.sh work=$(mktemp -d) receiver=
cleanup() {
    [ -z "$receiver" ] || kill "$receiver" 2>/dev/null || true
    "$net" netns-down >/dev/null 2>&1 || true
    rm -rf "$work"
}
trap cleanup EXIT
"$net" netns-up
for gro in false true; do
    sed "s/^tensorwire:/&\n  socket_gro: $gro\n  quiesce_wait_s: 1/" configs/resnet50_rx_socket.yaml >"$work/rx-$gro.yaml"
done
for mbps in 0 "$pace"; do
    sed "s/pacing_mbps: .*/pacing_mbps: $mbps/" configs/resnet50_tx_socket.yaml >"$work/tx-$mbps.yaml"
done
cd "$work"
"$tensorwire" prepare --synthetic 1 --num-images 256 --config tx-0.yaml >/dev/null 2>&1

figure() {
    python3 - <<'PYTHON'
import json
rx, tx = (json.load(open(name)) for name in ("rx.json", "tx.json"))
sent, nic = tx["tx"]["sent"], rx["nic"]
lost = 100 * (sent - rx["packets"]["offered"]) / sent
counters = [c["name"] + "=" + str(c["value"]) for port in rx["ports"] for c in port["counters"]]
print("%.2f Gb/s of payload, %.2f %% of %d lost" % (rx["rate"]["rx_payload_gbps"], lost, sent),
      "(missed=%s missed_groups=%d)" % (nic["missed"], nic["missed_groups"]), *counters)
PYTHON
}

# run MBPS GRO
run() {
    rm -f ready && mkfifo ready
    ip netns exec "$TW_NS-rx" "$tensorwire" run "rx-$2.yaml" --no-pin --backend none --json \
        --ready-fd 3 3>ready >rx.json 2>rx.err &
    receiver=$!
    read -r -t 60 _ <ready || { cat rx.err >&2; return 1; }
    ip netns exec "$TW_NS-tx" "$tensorwire" run "tx-$1.yaml" --no-pin --loop --seconds "$seconds" \
        --json >tx.json 2>tx.err || { cat tx.err >&2; return 1; }
    # Packets may have been lost: how it ends is no matter.
    wait "$receiver" || true
    receiver=
    echo "pacing $1 Mb/s, socket_gro $2: $(figure)"
}

for round in $(seq "$rounds"); do
    for mbps in 0 "$pace"; do
        order=(false true)
        [ $((round % 2)) = 1 ] || order=(true false)
        for gro in "${order[@]}"; do run "$mbps" "$gro"; done
    done
done
