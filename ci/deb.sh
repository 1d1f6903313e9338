#!/usr/bin/env bash
# The package. `ci/deb.sh [ARCH]`: for this machine's architecture it is installed in a clean Debian,
# upgraded, removed, purged, and nothing else is changed by it; then its service runs under a real
# systemd, in namespaces of its own (ci/service-manager.sh). For the other one it is made of programs
# that were built for it, held against this machine's, and they are started under emulation.
# 77: skipped, with the reason. The programs are those of target/[TARGET/]${PROFILE:-debug}.
set -euo pipefail
cd "$(dirname "$0")/.."
profile=${PROFILE:-debug}

skip() { echo "skipped: $1"; exit 77; }
host=$(dpkg --print-architecture)
arch=${1:-$host}
if [ "$arch" = "$host" ]; then
    [ "$(id -u)" = 0 ] || skip 'needs root (a root folder of its own)'
fi
if ! command -v mmdebstrap >/dev/null || ! command -v systemd-analyze >/dev/null; then
    { apt-get update -qq && apt-get install -y --no-install-recommends mmdebstrap systemd >/dev/null; } ||
        skip 'mmdebstrap and systemd cannot be installed (apt-get)'
fi

work=$(mktemp -d)
trap 'rm -rf --one-file-system "$work"' EXIT
# One time for all packages of this run, whatever is committed meanwhile.
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
"target/$profile/tensorwire-pages" "$work/pages"
# ARCH FOLDER: the programs for it, without debug symbols, which would make it ten times as large.
programs() {
    local from=target/$profile strip=strip program
    if [ "$1" != "$host" ]; then
        from=target/$(triple "$1")/$profile strip=$(triple "$1" | sed 's/unknown-//')-strip
    fi
    mkdir "$2"
    for program in tensorwire tensorwire-bundle tensorwire-firmware; do
        [ "$1" != "$host" ] && [ $program = tensorwire-firmware ] && continue
        "$strip" -o "$2/$program" "$from/$program"
    done
}
triple() {
    case $1 in amd64) echo x86_64-unknown-linux-gnu ;; arm64) echo aarch64-unknown-linux-gnu ;; esac
}
programs "$host" "$work/programs"
build() { packaging/deb/build.sh --arch "$host" --programs "$work/programs" --pages "$work/pages" "$@"; }

# What the packages of two architectures may differ in: the programs and what follows from them.
other() {
    local root=$work/$arch emulator near
    programs "$arch" "$work/other"
    for out in other1 other2; do
        packaging/deb/build.sh --arch "$arch" --programs "$work/other" --pages "$work/pages" --out "$work/$out"
    done
    cmp "$work"/other1/*.deb "$work"/other2/*.deb || { echo 'two builds of the package differ' >&2; exit 1; }
    build --out "$work/near"
    near=$(echo "$work"/near/*.deb) far=$(echo "$work"/other1/*.deb)
    dpkg-deb --info "$far"
    diff <(dpkg-deb -c "$near" | awk '{print $1, $2, $6, $7, $8}') <(dpkg-deb -c "$far" | awk '{print $1, $2, $6, $7, $8}')
    dpkg-deb -R "$near" "$work/near.d"
    dpkg-deb -R "$far" "$work/far.d"
    differ=$(cd "$work" && { diff -rq --no-dereference near.d far.d || true; } | awk '{print $2}' | sort | paste -sd ' ')
    [ "$differ" = 'near.d/DEBIAN/control near.d/DEBIAN/md5sums near.d/usr/bin/tensorwire near.d/usr/lib/tensorwire/tensorwire-bundle' ] ||
        { echo "the packages differ in: $differ" >&2; exit 1; }
    differ=$(diff "$work"/{near,far}.d/DEBIAN/control | grep '^[<>]' | grep -vE '^[<>] (Architecture|Installed-Size): ' || true)
    [ -z "$differ" ] || { printf 'their descriptions differ in: %s\n' "$differ" >&2; exit 1; }
    # What the programs ask a loader for is what the package depends on.
    readelf -d "$work"/far.d/usr/bin/tensorwire "$work"/far.d/usr/lib/tensorwire/tensorwire-bundle |
        sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' | sort -u | paste -sd ' '
    if readelf -d "$work"/far.d/usr/bin/tensorwire "$work"/far.d/usr/lib/tensorwire/tensorwire-bundle | grep NEEDED |
        grep -vE '\[(libc|libm|libgcc_s|libstdc\+\+|ld-linux-[a-z0-9-]*)\.so'; then
        echo 'the package does not depend on these' >&2
        exit 1
    fi
    emulator=qemu-$(triple "$arch" | sed 's/-.*//')-static
    command -v "$emulator" >/dev/null || skip "the programs were not started: no $emulator"
    emulated() { "$emulator" -L "/usr/$(triple "$arch" | sed 's/unknown-//')" "$@"; }
    emulated "$work/far.d/usr/bin/tensorwire" --version
    emulated "$work/far.d/usr/bin/tensorwire" validate "$work/far.d/etc/tensorwire/resnet50_sw_loopback.yaml"
    emulated "$work/far.d/usr/lib/tensorwire/tensorwire-bundle" --root "$work/state" status
    echo "the package for $arch is that of $host with programs of its own, and they start"
}
if [ "$arch" != "$host" ]; then
    other
    exit 0
fi

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
# The files that adduser keeps, their backups, and its lock until the next boot.
left=$(diff "$work/before" "$work/after" | grep '^[<>]' |
    grep -vE '/etc/(passwd|group|shadow|gshadow|subuid|subgid)-?$|/run/adduser$' || true)
is 'left behind' '' "$left"
echo 'the package installs, upgrades, is removed and purged'

in_root dpkg -i /new.deb >/dev/null
ci/service-manager.sh "$root" "$work/programs/tensorwire" "$work/programs/tensorwire-firmware"
