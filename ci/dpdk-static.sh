#!/usr/bin/env bash
# A release build with DPDK inside: it runs on machines that have no DPDK, or another one. The drivers
# in it: mlx5 (ConnectX), ring, memif, af_packet. What it still needs there is libibverbs and libmlx5,
# whose package (rdma-core) has to fit the kernel's driver.
#
#   ci/dpdk-static.sh [PROFILE]      default: release; the program is target/PROFILE/tensorwire
#
# Needs libdpdk-dev (it brings the archives, and those of libnuma, libbsd and libmd).
set -euo pipefail
cd "$(dirname "$0")/.."
profile=${1:-release}
[ "$profile" = debug ] && flag=dev || flag=$profile

TENSORWIRE_DPDK_STATIC=1 cargo build --workspace --profile "$flag" --bin tensorwire \
    --features tensorwire-tests/dpdk
program=target/$profile/tensorwire

# What a loader is asked for: nothing of DPDK, and nothing that a system has not.
needed=$(readelf -d "$program" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
echo "$needed"
unknown=$(grep -Ev '^(libc|libm|libgcc_s|libibverbs|libmlx5|ld-linux.*)\.so' <<<"$needed" || true)
[ -z "$unknown" ] || { echo "dpdk-static: not in the program: $unknown" >&2; exit 1; }

# The drivers are there: each refuses its device in its own way.
check() {
    local said
    said=$("$program" run "$1" --no-pin --backend none --expected-images 1 --seconds 1 2>&1) || true
    grep -q "$2" <<<"$said" || { printf 'dpdk-static: no %s:\n%s\n' "$2" "$said" >&2; exit 1; }
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for device in 'net_ring0 net_ring' "net_memif0,role=server,socket=$work/s,socket-abstract=no net_memif"; do
    sed 's/loopback: "sw"/loopback: ""/; /pcap_path:/d; /labels_path:/d; s/^dataset:$/dataset: {}/' \
        configs/resnet50_routable_loopback.yaml |
        sed "s#address: \"loopback\"#address: \"${device% *}\"#" >"$work/c.yaml"
    check "$work/c.yaml" "by ${device#* }"
done
for driver in net_mlx5 net_af_packet; do
    grep -qa "$driver" "$program" || { echo "dpdk-static: no $driver" >&2; exit 1; }
done
ls -l "$program"
