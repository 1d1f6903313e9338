#!/usr/bin/env bash
# The program with DPDK in it, on devices that need no hardware: rings, memif, and af_packet between
# two network namespaces (these as root). Installs libdpdk where it is missing. Exit code 77: it cannot
# run here, and the last line says why.
set -euo pipefail
cd "$(dirname "$0")/.."

skip() {
    echo "dpdk: skipped: $1"
    exit 77
}

missing=()
pkg-config --atleast-version=22.11 libdpdk 2>/dev/null || missing+=(libdpdk-dev pkg-config)
command -v ip >/dev/null || missing+=(iproute2)
if [ ${#missing[@]} -gt 0 ]; then
    command -v apt-get >/dev/null || skip "${missing[*]} missing, and there is no apt-get"
    (apt-get update -qq && apt-get install -y --no-install-recommends "${missing[@]}") >/dev/null ||
        skip "${missing[*]} cannot be installed (apt-get)"
fi
pkg-config --atleast-version=22.11 libdpdk || skip "libdpdk is older than 22.11"

# Huge pages for the tests that ask for them, 128 MiB; where there are none to be had these tests say
# that they are skipped. Set back at the end.
pages=$(cat /proc/sys/vm/nr_hugepages)
if [ "$pages" -lt 64 ] && sysctl -qw vm.nr_hugepages=64 2>/dev/null; then
    trap 'sysctl -qw vm.nr_hugepages="$pages"' EXIT
fi

# One selection of packages and features for all of it: nothing is built twice.
with=(--workspace --features tensorwire-tests/dpdk)
cargo clippy "${with[@]}" --all-targets -- -D warnings
cargo build "${with[@]}" --bin tensorwire
cargo test "${with[@]}" --test devices --test dpdk
# The driver's own tests that are compiled with the library only.
cargo test -p tensorwire-dpdk --features dpdk --lib
cargo test "${with[@]}" --test two_hosts raw_
