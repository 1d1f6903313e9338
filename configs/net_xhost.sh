#!/usr/bin/env bash
# The network of two hosts: an address and an MTU on each end of one cable, or, on one machine, two
# network namespaces joined by veth. Needs root and iproute2. docs/two-hosts.md goes through it.
#
#   net_xhost.sh up IFACE tx|rx [MTU]     puts 10.77.0.1 (tx) or 10.77.0.2 (rx) on IFACE
#   net_xhost.sh down IFACE tx|rx         takes it off again
#   net_xhost.sh netns-up [MTU]           namespaces tw-tx and tw-rx, joined by twx0 and twx1
#   net_xhost.sh netns-switch [MTU]       the same with a switch in between, in a third one, tw-sw
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

# A cable that is pulled behind a switch is not seen by the sender, which goes on.
netns_switch() {
    local mtu=$1 side
    ip netns add "$ns-sw"
    ip -n "$ns-sw" link add br0 type bridge forward_delay 0
    ip -n "$ns-sw" link set br0 mtu "$mtu" up
    for side in tx rx; do
        ip netns add "$ns-$side"
        ip -n "$ns-$side" link set lo up
    done
    ip -n "$ns-tx" link add twx0 address 02:74:77:00:00:01 type veth peer name sw0 netns "$ns-sw"
    ip -n "$ns-rx" link add twx1 address 02:74:77:00:00:02 type veth peer name sw1 netns "$ns-sw"
    for side in sw0 sw1; do
        ip -n "$ns-sw" link set "$side" master br0 mtu "$mtu" up
    done
    up twx0 tx "$mtu" "$ns-tx"
    up twx1 rx "$mtu" "$ns-rx"
}

netns_down() {
    ip netns del "$ns-sw" 2>/dev/null || true
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
    "netns-switch "[12])
        trap 'netns_down' ERR
        netns_switch "${2:-1500}"
        ;;
    "netns-down 1") netns_down ;;
    "cable 2") ip -n "$ns-rx" link set twx1 "$2" ;;
    *) sed -n '2,/^set/{/^#/p}' "$0" >&2; exit 2 ;;
esac
