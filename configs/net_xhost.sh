#!/usr/bin/env bash
# The network of two hosts: an address and an MTU on each end of one cable, or, on one machine, two
# network namespaces joined by veth. Needs root and iproute2. docs/two-hosts.md goes through it.
#
#   net_xhost.sh up IFACE tx|rx [MTU]     puts 10.77.0.1 (tx) or 10.77.0.2 (rx) on IFACE
#   net_xhost.sh down IFACE tx|rx         takes it off again
#   net_xhost.sh netns-up [MTU]           namespaces tw-tx and tw-rx, joined by twx0 and twx1
#   net_xhost.sh netns-down               takes them away
#   net_xhost.sh cable down|up            pulls the cable at the receiver's end, and puts it back
#
# TW_NET names other addresses (the first three numbers, default 10.77.0), TW_NS another prefix of
# the namespaces (default tw). MTU: 1500 is enough for frames of up to 1514 bytes.
set -euo pipefail

net=${TW_NET:-10.77.0}
ns=${TW_NS:-tw}

fail() {
    echo "net_xhost.sh: $1" >&2
    exit 2
}

address() {
    case $1 in
        tx) echo "$net.1/24" ;;
        rx) echo "$net.2/24" ;;
        *) fail "'$1': expected tx or rx" ;;
    esac
}

# One end: address, MTU, up. In namespace $4, if one is given.
up() {
    local iface=$1 where mtu=$3 in=()
    where=$(address "$2")
    [ -z "${4:-}" ] || in=(-n "$4")
    ip "${in[@]}" link set "$iface" mtu "$mtu" up
    ip "${in[@]}" addr replace "$where" dev "$iface"
}

netns_up() {
    local mtu=$1 tx="$ns-tx" rx="$ns-rx"
    ip netns add "$tx"
    ip netns add "$rx"
    ip -n "$tx" link add twx0 address 02:74:77:00:00:01 type veth \
        peer name twx1 address 02:74:77:00:00:02 netns "$rx"
    ip -n "$tx" link set lo up
    ip -n "$rx" link set lo up
    up twx0 tx "$mtu" "$tx"
    up twx1 rx "$mtu" "$rx"
}

netns_down() {
    ip netns del "$ns-tx" 2>/dev/null || true
    ip netns del "$ns-rx" 2>/dev/null || true
}

command -v ip >/dev/null || fail 'ip is not there (package iproute2)'
case "${1:-} $#" in
    "up "[34]) up "$2" "$3" "${4:-1500}" ;;
    "down 3") ip addr del "$(address "$3")" dev "$2" ;;
    "netns-up "[12])
        trap 'netns_down' ERR
        netns_up "${2:-1500}"
        ;;
    "netns-down 1") netns_down ;;
    "cable 2") ip -n "$ns-rx" link set twx1 "$2" ;;
    *) sed -n '2,/^set/{/^#/p}' "$0" >&2; exit 2 ;;
esac
