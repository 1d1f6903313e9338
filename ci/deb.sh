#!/usr/bin/env bash
# The package in a clean Debian: installed, upgraded, removed, purged; nothing else is changed by it.
# Then its service under a real systemd, in namespaces of its own (ci/service-manager.sh).
# 77: skipped, with the reason. The programs are those of target/${PROFILE:-debug}.
set -euo pipefail
cd "$(dirname "$0")/.."
profile=${PROFILE:-debug}

skip() { echo "skipped: $1"; exit 77; }
[ "$(id -u)" = 0 ] || skip 'needs root (a root folder of its own)'
if ! command -v mmdebstrap >/dev/null || ! command -v systemd-analyze >/dev/null; then
    { apt-get update -qq && apt-get install -y --no-install-recommends mmdebstrap systemd >/dev/null; } ||
        skip 'mmdebstrap and systemd cannot be installed (apt-get)'
fi

work=$(mktemp -d)
trap 'rm -rf --one-file-system "$work"' EXIT
arch=$(dpkg --print-architecture)
programs=target/$profile
"$programs/tensorwire-pages" "$work/pages"
# Debug symbols would make it ten times as large.
mkdir "$work/programs"
for program in tensorwire tensorwire-bundle; do
    strip -o "$work/programs/$program" "$programs/$program"
done
build() { packaging/deb/build.sh --arch "$arch" --programs "$work/programs" --pages "$work/pages" "$@"; }
build --out "$work/old" --version 0.0.9
build --out "$work/new"
build --out "$work/again"
old=$(echo "$work"/old/*.deb) new=$(echo "$work"/new/*.deb)
cmp "$new" "$work"/again/*.deb || { echo 'two builds of the package differ' >&2; exit 1; }
dpkg-deb --info "$new"

root=$work/root
mmdebstrap --quiet --variant=minbase --include=adduser,init-system-helpers,libstdc++6,systemd,systemd-sysv bookworm "$root" ||
    skip 'no clean root can be made (mmdebstrap)'
cp "$old" "$root/old.deb"
cp "$new" "$root/new.deb"
in_root() { chroot "$root" env DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 "$@"; }
# What is there, without what dpkg keeps of its own and what every installation writes.
listing() {
    (cd "$root" && find . -xdev \( -path ./proc -o -path ./sys -o -path ./dev -o -path ./var/lib/dpkg \
        -o -path ./var/log -o -path ./var/cache/debconf \) -prune -o -print | sort)
}
is() { # what, expected, found
    [ "$2" = "$3" ] || { printf '%s: expected %s, found %s\n' "$1" "$2" "$3" >&2; exit 1; }
}
state() { in_root dpkg-query -W -f '${db:Status-Abbrev}' tensorwire 2>/dev/null | tr -d ' ' || echo none; }

listing >"$work/before"
echo '-- install 0.0.9'
in_root dpkg -i /old.deb
is state ii "$(state)"
in_root tensorwire --version
in_root tensorwire-bundle status
in_root tensorwire validate /etc/tensorwire/resnet50_sw_loopback.yaml
in_root getent passwd tensorwire
is 'enabled at boot' /lib/systemd/system/tensorwire.service \
    "$(readlink "$root/etc/systemd/system/multi-user.target.wants/tensorwire.service")"

echo '-- a bundle, a setting and a switched-off service survive an upgrade'
mkdir "$root/b"
cp "$work/programs/tensorwire" configs/resnet50_sw_loopback.yaml "$root/b/"
in_root tensorwire-bundle make /b --name 1.0 --run 'run resnet50_sw_loopback.yaml' \
    --selftest 'validate resnet50_sw_loopback.yaml'
in_root tensorwire-bundle install /b
echo '# ours' >>"$root/etc/tensorwire/resnet50_sw_loopback.yaml"
in_root systemctl disable tensorwire.service
in_root dpkg -i --force-confold /new.deb
is state ii "$(state)"
is version "$(dpkg-deb -f "$new" Version)" "$(in_root dpkg-query -W -f '${Version}' tensorwire)"
is 'the setting' '# ours' "$(tail -n 1 "$root/etc/tensorwire/resnet50_sw_loopback.yaml")"
is 'the bundle' 'current   1.0' "$(in_root tensorwire-bundle status | head -n 1)"
[ ! -e "$root/etc/systemd/system/multi-user.target.wants/tensorwire.service" ] ||
    { echo 'an upgrade has switched the service on again' >&2; exit 1; }

echo '-- remove keeps settings and bundles'
in_root dpkg -r tensorwire
is state rc "$(state)"
[ ! -e "$root/usr/bin/tensorwire" ]
[ -e "$root/etc/tensorwire/resnet50_sw_loopback.yaml" ]
[ -e "$root/var/lib/tensorwire/current" ]

echo '-- install again, purge: nothing is left but the user'
in_root dpkg -i --force-confold /new.deb
in_root dpkg -P tensorwire
rm -r "$root/b"
listing >"$work/after"
# The files that adduser keeps, and their backups.
left=$(diff "$work/before" "$work/after" | grep '^[<>]' | grep -vE '/etc/(passwd|group|shadow|gshadow|subuid|subgid)-?$' || true)
is 'left behind' '' "$left"
echo 'the package installs, upgrades, is removed and purged'

in_root dpkg -i /new.deb >/dev/null
ci/service-manager.sh "$root" "$work/programs/tensorwire"
