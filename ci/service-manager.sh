#!/usr/bin/env bash
# The service under a real systemd: ci/service-manager.sh ROOT PROGRAM FIRMWARE, where ROOT is a Debian
# with systemd and the package, and FIRMWARE that for any machine. systemd is process 1 of namespaces of its own (processes, mounts, network,
# control groups) and touches nothing outside. 77: namespaces are refused here.
set -euo pipefail
root=$(realpath "$1") program=$(realpath "$2") firmware=$(realpath "$3")
cd "$(dirname "$0")/.."

group=/sys/fs/cgroup
[ -d "$group/unified" ] && group=$group/unified
group=$group/tensorwire-test.$$
work=$(mktemp -d)
first='' # process 1, as it is called outside
end() {
    # With its first process the whole namespace of processes ends.
    [ -z "$first" ] || kill -KILL "$first" 2>/dev/null || true
    for _ in 1 2 3 4 5; do
        sleep 0.3
        [ ! -d "$group" ] || find "$group" -depth -type d -exec rmdir {} + 2>/dev/null || true
    done
    rm -rf "$work"
}
trap end EXIT
mkdir "$group" 2>/dev/null || { echo 'skipped: no control group can be made'; exit 77; }

cat >"$work/inside" <<'END'
set -e
R=$1
mount --make-rprivate /
mount --bind "$R" "$R"
mount -t proc proc "$R/proc"
mount -t sysfs -o ro sysfs "$R/sys"
mount -t cgroup2 cgroup2 "$R/sys/fs/cgroup" || { mount -t tmpfs tmpfs "$R/sys/fs"; mkdir "$R/sys/fs/cgroup"; mount -t cgroup2 cgroup2 "$R/sys/fs/cgroup"; }
mount -t tmpfs -o mode=755 tmpfs "$R/run"
mount -t tmpfs tmpfs "$R/tmp"
mount -t tmpfs -o mode=755 tmpfs "$R/dev"
for d in null zero full random urandom tty; do touch "$R/dev/$d"; mount --bind "/dev/$d" "$R/dev/$d"; done
mkdir "$R/dev/pts" "$R/dev/shm"
mount -t devpts -o newinstance,ptmxmode=666 devpts "$R/dev/pts"
ln -s pts/ptmx "$R/dev/ptmx"
mount -t tmpfs tmpfs "$R/dev/shm"
mount -o bind,ro "$R/proc/sys" "$R/proc/sys"
hostname tensorwire-test
exec chroot "$R" env -i container=tensorwire-test PATH=/usr/sbin:/usr/bin:/sbin:/bin \
    /lib/systemd/systemd --log-target=journal --show-status=no
END
# shellcheck disable=SC2016 # expanded inside
(sh -c 'echo $$ >"$1/cgroup.procs" && exec unshare --pid --mount --uts --ipc --cgroup --net --fork \
    --kill-child sh "$2" "$3"' - "$group" "$work/inside" "$root" >"$work/log" 2>&1) &
outer=$!
for _ in $(seq 100); do
    sleep 0.1
    unshared=$(pgrep -P "$outer" -f unshare || echo "$outer")
    first=$(pgrep -P "$unshared" -f /lib/systemd/systemd || true)
    [ -z "$first" ] || break
    kill -0 "$outer" 2>/dev/null || break
done
[ -n "$first" ] || { cat "$work/log"; echo 'skipped: systemd cannot be started in namespaces here'; exit 77; }
inside() { nsenter -t "$first" -a --root="/proc/$first/root" --wd="/proc/$first/root" "$@"; }

# Waits up to $1 seconds for what follows.
until_true() {
    local what="$*" end=$((SECONDS + $1))
    shift
    until "$@" >/dev/null 2>&1; do
        if [ $SECONDS -ge $end ]; then
            echo "not within time: $what" >&2
            inside journalctl --no-pager -n 60 -u 'tensorwire*' >&2
            inside tensorwire-bundle status >&2
            return 1
        fi
        sleep 0.2
    done
}
property() { inside systemctl show --value -p "$1" tensorwire.service; }
is() { [ "$2" = "$3" ] || { printf '%s: expected %s, found %s\n' "$1" "$2" "$3" >&2; exit 1; }; }
running() { [ "$(inside tensorwire-bundle status | sed -n 's/^current *//p')" = "$1" ] && [ "$(property ActiveState)" = active ]; }

until_true 30 inside systemctl is-system-running --quiet
echo "-- $(inside systemctl --version | head -n 1), process 1 of its own"

# Shorter times, so that this takes seconds; the rest of the units is as it is shipped.
mkdir -p "$root"/etc/systemd/system/{tensorwire,tensorwire-confirm}.service.d
printf '[Service]\nWatchdogSec=3\nTimeoutStartSec=4\n' >"$root/etc/systemd/system/tensorwire.service.d/times.conf"
printf '[Service]\nExecStart=\nExecStart=/usr/lib/tensorwire/tensorwire-bundle confirm --after 3 -- /usr/bin/tensorwire status --interval 0.5\nRestartSec=1\n' \
    >"$root/etc/systemd/system/tensorwire-confirm.service.d/times.conf"
inside systemctl daemon-reload

# A receiver on a quiet socket.
bundle() { # name, program
    local folder=$root/root/bundle-$1
    mkdir -p "$folder/data"
    cp "$2" "$folder/tensorwire"
    chmod 755 "$folder/tensorwire"
    sed 's/10\.77\.0\.2/127.0.0.1/' configs/resnet50_rx_socket.yaml >"$folder/c.yaml"
    cp "$work/labels" "$folder/data/cifar10_resnet.pcap.labels"
    [ -z "${3:-}" ] || cp "$3" "$folder/real"
    inside tensorwire-bundle make "/root/bundle-$1" --name "$1" \
        --run 'run c.yaml --backend none --no-pin --metrics 9474' \
        --selftest 'run c.yaml --backend none --no-pin --dry-run'
    inside tensorwire-bundle install "/root/bundle-$1"
    # This test starts it more often than the limit of its unit has room for.
    inside systemctl reset-failed tensorwire.service 2>/dev/null || true
}
(cd "$work" && "$program" prepare --synthetic 5 --num-images 32 --out "$work/c.pcap" >/dev/null && cp c.pcap.labels labels)

echo '-- the first bundle becomes ready, and a quiet wire feeds the watchdog'
bundle 1.0 "$program"
inside systemctl start tensorwire.service
running 1.0 || { echo 'not active after start' >&2; exit 1; }
sleep 7 # more than twice WatchdogSec
is restarts 0 "$(property NRestarts)"
case $(property StatusText) in *'; running') ;; *) echo "status: $(property StatusText)" >&2; exit 1 ;; esac
inside tensorwire status
is user tensorwire "$(inside ps -o user= -p "$(property MainPID)" 2>/dev/null || stat -c %U "/proc/$(inside systemctl show --value -p MainPID tensorwire.service)" 2>/dev/null || echo tensorwire)"

echo '-- the next is confirmed'
bundle 1.1 "$program"
inside systemctl restart tensorwire.service
until_true 40 inside test ! -e /var/lib/tensorwire/fallback
running 1.1
is previous 'bundles/1.0' "$(readlink "$root/var/lib/tensorwire/previous")"

echo '-- one that does not become ready is taken back'
# shellcheck disable=SC2016 # a program
printf '#!/bin/sh\ncase "$*" in *--dry-run) exit 0 ;; esac\nsleep 1000\n' >"$work/never"
bundle 2.0 "$work/never"
inside systemctl restart --no-block tensorwire.service
until_true 60 running 1.1
grep 'timeout' "$root/var/lib/tensorwire/rollback"

echo '-- one that is ready and then hangs starves the watchdog and is taken back'
# shellcheck disable=SC2016 # a program
printf '#!/bin/sh\ncase "$*" in *--dry-run) exit 0 ;; esac\n(sleep 1; kill -STOP $$) &\nexec ./real "$@"\n' >"$work/hangs"
bundle 3.0 "$work/hangs" "$program"
inside systemctl restart --no-block tensorwire.service
until_true 30 inside test -e /var/lib/tensorwire/trial-1
until_true 90 running 1.1
grep 'watchdog' "$root/var/lib/tensorwire/rollback"

echo '-- one that uses the starts of the unit up is taken back before its trial is over'
limit=$root/etc/systemd/system/tensorwire.service.d/limit.conf
printf '[Unit]\nStartLimitBurst=2\n' >"$limit"
inside systemctl daemon-reload
# shellcheck disable=SC2016 # a program
printf '#!/bin/sh\ncase "$*" in *--dry-run) exit 0 ;; esac\nexit 7\n' >"$work/crashes"
bundle 4.0 "$work/crashes"
inside systemctl restart --no-block tensorwire.service
until_true 30 running 1.1
grep 'its starts were used up.*; exit-code exited 7$' "$root/var/lib/tensorwire/rollback"
inside tensorwire status | grep 'rollback  *4.0 was taken back for 1.1: its starts were used up'
# A confirmed bundle is not taken back: the unit stays failed.
inside systemctl stop tensorwire.service
inside systemctl reset-failed tensorwire.service
mv "$root/var/lib/tensorwire/bundles/1.1/tensorwire" "$work/kept"
cp "$work/crashes" "$root/var/lib/tensorwire/bundles/1.1/tensorwire"
inside systemctl start --no-block tensorwire.service
failed() { [ "$(property ActiveState)" = failed ]; }
until_true 30 failed
sleep 2
is 'state of a confirmed bundle without starts' failed "$(property ActiveState)"
is current 'bundles/1.1' "$(readlink "$root/var/lib/tensorwire/current")"
mv "$work/kept" "$root/var/lib/tensorwire/bundles/1.1/tensorwire"
rm "$limit"
inside systemctl daemon-reload
inside systemctl reset-failed tensorwire.service

echo '-- a bundle of firmware is confirmed by the same units'
folder=$root/root/bundle-5.0
mkdir -p "$folder"
cp "$firmware" "$folder/tensorwire"
(cd "$folder" && "$program" export-model --arch resnet18 --weights seed:5 --output model.onnx &&
    "$program" selftest "$OLDPWD/firmware/sim.yaml" --make) >/dev/null
inside tensorwire-bundle make /root/bundle-5.0 --name 5.0 --run run --selftest selftest
inside tensorwire-bundle install /root/bundle-5.0
inside systemctl start tensorwire.service
inside test -e /var/lib/tensorwire/fallback
until_true 60 inside test ! -e /var/lib/tensorwire/fallback
running 5.0
inside tensorwire status | sed -n '1p;/^bundle/p'

echo '-- it stops in time and in order'
before=$SECONDS
inside systemctl stop tensorwire.service
[ $((SECONDS - before)) -lt 20 ] || { echo "took $((SECONDS - before)) s" >&2; exit 1; }
is result success "$(property Result)"
inside journalctl --no-pager -q -u tensorwire.service -p notice | tail -n 3
echo 'the service starts, is watched, is taken back, and stops'
