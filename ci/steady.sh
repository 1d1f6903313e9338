#!/usr/bin/env bash
# The steady state for an hour (or SECONDS): memory locked, real time, four small batches over a
# socket every eight seconds. Fails when a loop allocates or faults, or when an image is lost.
# Needs the right to lock memory and to be real time (root has both).
#
#   ci/steady.sh [SECONDS]
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-3600} port=4999
cargo build -q --release --bin tensorwire
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT

cat >"$place/c.yaml" <<YAML
daqiri:
  cfg:
    version: 1
    stream_type: socket
    master_core: 0
    memory_regions:
      - {name: rx, kind: host, num_bufs: 512, buf_size: 1240}
      - {name: out, kind: host, num_bufs: 16, buf_size: 37632}
    interfaces:
      - name: port
        address: 127.0.0.1
        socket_config: {mode: server, local_addr: "udp://127.0.0.1:$port"}
        rx:
          queues:
            - {name: rq, id: 0, batch_size: 64, timeout_us: 0, memory_regions: [rx]}
          flows:
            - {name: f, id: 0, action: {type: queue, id: 0}, match: {udp_dst: $port}}
bench_rx: {interface_name: port}
reorder:
  reorder_type: cpu
  out_payload_len: 1176
  packets_per_image: 4
  images_per_batch: 4
  seq_bit_offset: 336
  seq_bit_width: 16
inference: {channels: 3, height: 28, width: 56}
tensorwire:
  inference_backend: none
  rx_ring: 64
  quiesce_wait_s: 60
  lock_memory: true
  realtime_priority: 10
YAML

target/release/tensorwire run "$place/c.yaml" --seconds "$seconds" --json >"$place/summary" &
receiver=$!
# A datagram is what lies behind the UDP header: the number, the rest of the header, the payload.
sleep 2
exec 3>"/dev/udp/127.0.0.1/$port"
end=$((SECONDS + seconds - 6)) number=0
while [ "$SECONDS" -lt "$end" ] && kill -0 $receiver 2>/dev/null; do
    for _ in {1..64}; do
        hex=$(printf '\\x%02x\\x%02x' $((number >> 8 & 255)) $((number & 255)))
        # Through a file, since printf ends a write with each line end, 0x0a among them.
        printf "$hex%01196d" 0 >"$place/datagram"
        cat "$place/datagram" >&3
        number=$((number + 1))
    done
    sleep 8
done
wait $receiver
grep -o '"steady":\[[^]]*\]' "$place/summary" | tr '{' '\n'
grep -q "\"delivered\":$((number / 4))," "$place/summary" ||
    { echo "$((number / 4)) images were sent" >&2; exit 1; }
for nothing in allocations minor_faults major_faults; do
    [ "$(grep -o "\"$nothing\":0" "$place/summary" | wc -l)" -eq 2 ] ||
        { echo "$nothing are not 0" >&2; exit 1; }
done
echo "steady: $((number / 4)) images, no allocation, no page fault"
