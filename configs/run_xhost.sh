#!/usr/bin/env bash
# One run of two hosts: starts the receiver, waits until it says that it is ready, starts the sender,
# waits for both, and ends with 0 only if both did. docs/two-hosts.md goes through it.
#
#   run_xhost.sh [options] RX.yaml TX.yaml
#
#   --rx COMMAND      put before the receiver's command: `ssh rxhost`, `ip netns exec tw-rx`
#   --tx COMMAND      the same for the sender
#   --rx-args ARGS    more arguments for the receiver, as `--json --expected-images 256`
#   --tx-args ARGS    the same for the sender
#   --tx-out FILE     what the sender writes to stdout (default: nowhere; stdout is the receiver's)
#
# TENSORWIRE names the program (default tensorwire); READY_WAIT how many seconds the receiver may
# take to be ready, its model loaded (default 600). stderr of both comes out here, each line as it is
# written. Exit code: the receiver's if it is not 0, else the sender's.
set -uo pipefail

program=${TENSORWIRE:-tensorwire}
rx=() tx=() rx_args=() tx_args=() tx_out=/dev/null

usage() {
    sed -n '2,/^set/{/^#/p}' "$0" >&2
    exit 2
}

while [ $# -gt 2 ]; do
    [ $# -gt 3 ] || usage
    case $1 in
        --rx) read -ra rx <<<"$2" ;;
        --tx) read -ra tx <<<"$2" ;;
        --rx-args) read -ra rx_args <<<"$2" ;;
        --tx-args) read -ra tx_args <<<"$2" ;;
        --tx-out) tx_out=$2 ;;
        *) usage ;;
    esac
    shift 2
done
[ $# -eq 2 ] || usage

said=$(mktemp)
rx_pid='' tx_pid=''

# Both take a signal as an orderly end; who waits for us is told the same way.
stop() {
    for pid in $rx_pid $tx_pid; do
        kill -TERM "$pid" 2>/dev/null
    done
}
trap stop INT TERM
trap 'rm -f "$said"' EXIT

# Waits for the end of a process, over signals that interrupt the wait.
ended() {
    local code
    while :; do
        wait "$1"
        code=$?
        kill -0 "$1" 2>/dev/null || return $code
    done
}

"${rx[@]}" "$program" run "$1" "${rx_args[@]}" 2> >(tee "$said" >&2) &
rx_pid=$!

for ((tenths = ${READY_WAIT:-600} * 10; tenths > 0; tenths--)); do
    grep -qx 'tensorwire: ready' "$said" && break
    kill -0 "$rx_pid" 2>/dev/null || break
    sleep 0.1
done

if ! grep -qx 'tensorwire: ready' "$said"; then
    kill -TERM "$rx_pid" 2>/dev/null
    ended "$rx_pid"
    code=$?
    echo "run_xhost.sh: the receiver was never ready (exit code $code); nothing was sent" >&2
    [ "$code" -ne 0 ] || code=6
    exit "$code"
fi

"${tx[@]}" "$program" run "$2" "${tx_args[@]}" >"$tx_out" &
tx_pid=$!
ended "$tx_pid"
tx_code=$?
# Without a sender the receiver would wait for its first packet for minutes.
[ "$tx_code" -eq 0 ] || kill -TERM "$rx_pid" 2>/dev/null
ended "$rx_pid"
rx_code=$?
echo "run_xhost.sh: receiver $rx_code, sender $tx_code" >&2
[ "$rx_code" -eq 0 ] || exit "$rx_code"
exit "$tx_code"
