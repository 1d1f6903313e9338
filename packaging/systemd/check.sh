#!/usr/bin/env bash
# The units: whether systemd takes them, and how exposed they leave the machine. 77: no systemd here.
set -euo pipefail
cd "$(dirname "$0")"
command -v systemd-analyze >/dev/null || { echo 'skipped: no systemd-analyze (apt install systemd)'; exit 77; }

# The exposure of a unit from 0 (none) to 100, and what it may be at most. What is left of
# tensorwire.service: a network, devices, a real-time class, three capabilities (see its comments).
limits='tensorwire.service 24
tensorwire-confirm.service 16
tensorwire-rollback.service 9'

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
# verify wants the programs that a unit names, and the targets that it waits for.
mkdir -p "$root"/usr/lib/systemd/system "$root"/usr/lib/tensorwire "$root"/usr/bin "$root"/etc
cp -a /usr/lib/systemd/system/*.target "$root/usr/lib/systemd/system/"
cp ./*.service "$root/usr/lib/systemd/system/"
for program in usr/lib/tensorwire/tensorwire-bundle usr/bin/tensorwire usr/bin/systemctl; do
    printf '#!/bin/sh\n' >"$root/$program"
    chmod 755 "$root/$program"
done

failed=0
while read -r unit limit; do
    said=$(systemd-analyze verify --root="$root" --man=no "$unit" 2>&1) || failed=1
    said=$(grep -F "$unit" <<<"$said" || true)
    if [ -n "$said" ]; then
        printf '%s\n' "$said"
        failed=1
    fi
    systemd-analyze security --no-pager --root="$root" --offline=true --threshold="$limit" "$unit" | tail -n 1 ||
        { echo "$unit: more exposed than $limit of 100"; failed=1; }
done <<<"$limits"
exit $failed
