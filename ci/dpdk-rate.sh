#!/usr/bin/env bash
# The receive loop beside dpdk-testpmd on the same virtual device, with 1240-byte frames, in turns:
# packets per second of CPU time of the one thread that sends and receives, the median of ROUNDS
# (default 3), and the ratio to testpmd in io mode, which hands buffers on without looking at them;
# macswap looks at 12 bytes of each frame. Ours without and with the CPU's reorder; `pass` sends on
# what it received as io does, `send` gives it back and sends other buffers. Needs libdpdk-dev and
# dpdk-dev; af_packet, over a veth pair made for it, needs root and is left out elsewhere.
#
#   ci/dpdk-rate.sh [SECONDS]      of each measurement (default 4)
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-4} rounds=${ROUNDS:-3}

command -v dpdk-testpmd >/dev/null || { echo "dpdk-rate: no dpdk-testpmd (package dpdk-dev)" >&2; exit 77; }
cargo build --release -q -p tensorwire-dpdk --features dpdk --bench rate
rate=$(find target/release/deps -name 'rate-*' -type f -perm -u+x -printf '%T@ %p\n' |
    sort -n | tail -n 1 | cut -d' ' -f2)

work=$(mktemp -d)
devices=(ring memif)
trap 'rm -rf "$work"; ip link del twr0 2>/dev/null || true' EXIT
if ip link add twr0 type veth peer name twr1 2>/dev/null; then
    # No word of the kernel's own on them: it would go round with the frames.
    for name in twr0 twr1; do
        sysctl -qw "net.ipv6.conf.$name.disable_ipv6=1" 2>/dev/null || true
        ip link set "$name" arp off multicast off up
    done
    devices+=(af_packet)
fi

# CPU time of the forwarding thread, in clock ticks.
ticks() {
    local task
    for task in /proc/"$1"/task/*; do
        case $(cat "$task/comm") in
            *worker*) awk '{ print $14 + $15 }' "$task/stat" ;;
        esac
    done
}

# Packets that all ports have received, by the last report that testpmd printed.
received() {
    tac "$1" | awk '/RX-packets/ { sum += $2; if (++n == ports) exit } END { printf "%.0f\n", sum }' ports="$2"
}

# Waits for the next report of all ports, so that packets and CPU time are of the same moment.
fresh() {
    local before
    before=$(grep -c RX-packets "$1" || true)
    for _ in $(seq 1000); do
        [ "$(grep -c RX-packets "$1" || true)" -lt $((before + $2)) ] || return 0
        sleep 0.01
    done
    return 1
}

# testpmd MODE NAME PORTS TOPOLOGY EAL-ARGUMENTS…
# A busy machine may not let it start in time, and memif may crash at its end: then this round has one
# figure less, and it says so.
testpmd() {
    measure "$@" && return
    echo "dpdk-rate: testpmd $1 on $2 gave no figure this time" >&2
    # It must not send into what is measured next.
    while pid=$(pgrep -n -f "^dpdk-testpmd.*file-prefix twrate$$"); do
        kill -KILL "$pid" || true
        sleep 0.1
    done
}

measure() {
    local mode=$1 name=$2 ports=$3 topology=$4 pid from to cpu0 cpu1
    shift 4
    # Frames of 1240 bytes go round, 64 at a time; what they hold is not looked at.
    sleep $((seconds + 60)) | dpdk-testpmd --lcores '0@0,1@1' --no-huge -m 256 --no-pci --no-shconf \
        --no-telemetry --file-prefix "twrate$$" "$@" -- --forward-mode="$mode" --auto-start \
        --tx-first --txpkts=1240 --burst=64 --port-topology="$topology" --nb-cores=1 \
        --no-lsc-interrupt --total-num-mbufs=8192 --stats-period 1 >"$work/out" 2>"$work/err" &
    for _ in $(seq 300); do
        grep -q 'RX-packets: [1-9]' "$work/out" && break
        sleep 0.1
    done
    pid=$(pgrep -n -f "^dpdk-testpmd.*file-prefix twrate$$") || return 1
    sleep 1.5
    fresh "$work/out" "$ports" && from=$(received "$work/out" "$ports") && cpu0=$(ticks "$pid") || return 1
    sleep "$seconds"
    fresh "$work/out" "$ports" && to=$(received "$work/out" "$ports") && cpu1=$(ticks "$pid") || return 1
    kill -INT "$pid" || return 1
    while kill -0 "$pid" 2>/dev/null; do sleep 0.1; done
    [ $((to - from)) -gt 0 ] && [ $((cpu1 - cpu0)) -gt 0 ] || return 1
    awk -v n=$((to - from)) -v t=$((cpu1 - cpu0)) -v hz="$(getconf CLK_TCK)" -v name="$name $mode" \
        'BEGIN { printf "%s %.0f\n", name, n * hz / t }' >>"$work/figures"
}

median() {
    awk -v device="$1" -v who="$2" '$1 == device && $2 == who { print $3 }' "$work/figures" |
        sort -n | awk '{ all[NR] = $1 } END { print all[int((NR + 1) / 2)] }'
}

socket=socket=$work/memif.sock,socket-abstract=no,rsize=10,bsize=2048
slots=blocksz=65536,framesz=2048,framecnt=8192
# One device in turn, so that what else the machine does in these seconds meets all of them.
for _ in $(seq "$rounds"); do
    for device in "${devices[@]}"; do
        for mode in io macswap; do
            case $device in
            ring) testpmd "$mode" ring 1 loop --vdev net_ring0 ;;
            memif) testpmd "$mode" memif 2 paired --vdev "net_memif0,role=server,id=0,$socket" \
                --vdev "net_memif1,role=client,id=0,$socket" ;;
            af_packet) testpmd "$mode" af_packet 2 paired --vdev "net_af_packet0,iface=twr0,$slots" \
                --vdev "net_af_packet1,iface=twr1,$slots" ;;
            esac
            for reorder in none cpu; do
                way=pass
                [ "$mode" = io ] || way=send
                "$rate" "$device" "$reorder" "$way" "$seconds" 2>"$work/err" |
                    awk '{ print $1, $2 "-" $3, $4 }' >>"$work/figures" ||
                    { tail -n 3 "$work/err" >&2 && exit 1; }
            done
        done
    done
done
for device in "${devices[@]}"; do
    base=$(median "$device" io)
    for who in io macswap none-pass none-send cpu-pass cpu-send; do
        awk -v device="$device" -v who="$who" -v figure="$(median "$device" "$who")" -v base="$base" \
            'BEGIN { printf "%-9s %-9s %8.3f Mpps of CPU time, %.3f of testpmd io\n",
                     device, who, figure / 1e6, figure / base }'
    done
done
