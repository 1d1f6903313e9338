#!/usr/bin/env bash
# Makes a .deb: packaging/deb/build.sh --arch amd64|arm64 --programs DIR --pages DIR --out DIR
#
# DIR of --programs holds `tensorwire` and `tensorwire-bundle` for that architecture; that of --pages
# what `tensorwire-pages` wrote. dpkg-deb alone, since all that a package needs beyond files are four
# short scripts.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)

arch='' programs='' pages='' out='' version=''
while [ $# -gt 0 ]; do
    case $1 in
        --arch) arch=$2 ;;
        --programs) programs=$2 ;;
        --pages) pages=$2 ;;
        --out) out=$2 ;;
        --version) version=$2 ;;
        *) echo "unknown: $1" >&2; exit 2 ;;
    esac
    shift 2
done
case $arch in amd64) machine=x86-64 ;; arm64) machine=aarch64 ;; *) echo "--arch: amd64 or arm64" >&2; exit 2 ;; esac
: "${programs:?--programs}" "${pages:?--pages}" "${out:?--out}"
[ -n "$version" ] || version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$top/Cargo.toml" | head -n 1)
for program in tensorwire tensorwire-bundle; do
    [ -x "$programs/$program" ] || { echo "no $programs/$program" >&2; exit 1; }
    case $(readelf -h "$programs/$program" | sed -n 's/.*Machine: *//p') in
        *X86-64* | *x86-64*) is=x86-64 ;;
        AArch64) is=aarch64 ;;
        *) is=other ;;
    esac
    [ "$is" = "$machine" ] || { echo "$programs/$program is for $is, not for $arch" >&2; exit 1; }
done

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
put() { # mode, file, folder in the package
    install -D -m "$1" "$2" "$root/$3/$(basename "$2")"
}
put 755 "$programs/tensorwire" usr/bin
put 755 "$programs/tensorwire-bundle" usr/lib/tensorwire
mkdir -p "$root/usr/sbin"
ln -s ../lib/tensorwire/tensorwire-bundle "$root/usr/sbin/tensorwire-bundle"
for unit in "$top"/packaging/systemd/*.service; do put 644 "$unit" lib/systemd/system; done
for config in "$top"/configs/*.yaml; do put 644 "$config" etc/tensorwire; done
put 644 "$top/packaging/grafana/tensorwire.json" usr/share/tensorwire/grafana
for page in "$pages"/man1/*.1; do
    put 644 "$page" usr/share/man/man1
    gzip -9n "$root/usr/share/man/man1/$(basename "$page")"
done
for program in tensorwire tensorwire-bundle; do
    install -D -m 644 "$pages/bash/$program.bash" "$root/usr/share/bash-completion/completions/$program"
    put 644 "$pages/zsh/_$program" usr/share/zsh/vendor-completions
    put 644 "$pages/fish/$program.fish" usr/share/fish/vendor_completions.d
done
doc=usr/share/doc/tensorwire
cp "$here/copyright" "$root/copyright.tmp" && install -D -m 644 "$root/copyright.tmp" "$root/$doc/copyright"
rm "$root/copyright.tmp"
for page in "$top"/docs/*.md; do put 644 "$page" "$doc"; done

mkdir "$root/DEBIAN"
for script in postinst prerm postrm; do install -m 755 "$here/$script" "$root/DEBIAN/$script"; done
(cd "$root" && find etc -type f -printf '/%p\n' | sort) >"$root/DEBIAN/conffiles"
(cd "$root" && find usr lib -type f -print0 | sort -z | xargs -0 md5sum) >"$root/DEBIAN/md5sums"
cat >"$root/DEBIAN/control" <<END
Package: tensorwire
Version: $version
Architecture: $arch
Maintainer: tensorwire maintainers <maintainers@tensorwire.invalid>
Section: science
Priority: optional
Depends: adduser, init-system-helpers (>= 1.51), libc6 (>= 2.34), libstdc++6, libgcc-s1
Recommends: systemd
Installed-Size: $(du -ks --exclude=DEBIAN "$root" | cut -f 1)
Description: packets in, features out
 Receives images as raw packets, puts each packet into its slot of a batch, and
 runs a network over it. This package brings the program, a service that runs
 versioned bundles of it, configurations to begin from, and a dashboard.
END
mkdir -p "$out"
# The same files give the same package: no time of today in it.
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$top" log -1 --format=%ct)}
dpkg-deb --root-owner-group -Zxz --build "$root" "$out/tensorwire_${version}_${arch}.deb"
