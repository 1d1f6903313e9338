#!/usr/bin/env bash
# The firmware program.
#
#   ci/firmware.sh quick    what it may not contain; that a wrong configuration does not compile
#   ci/firmware.sh build    the programs for x86_64 and aarch64 once: sizes, dependencies; both started
#   ci/firmware.sh          quick; that two builds in two folders are the same; the self-test of the
#                           program for aarch64 under emulation
#
# Ends with 77 where a part had to be skipped, with the reason.
set -euo pipefail
cd "$(dirname "$0")/.."
export CARGO_TERM_COLOR=never CARGO_INCREMENTAL=0
BOARD=(-p tensorwire-firmware --no-default-features --features)
# What only somebody with a command line, or without a GPU, needs.
FOREIGN='^(saphyr|.*yaml|clap|indicatif|png|zune|nvml|object|rten|rayon)'

tree() {
    cargo tree -q "$@" -e normal,no-proc-macro --prefix none --format '{p}' |
        sed 's/ .*//' | sort -u
}

quick() {
    local platform name wrong
    for platform in igx dgx; do
        if tree "${BOARD[@]}" $platform | grep -E "$FOREIGN"; then
            echo "the firmware for $platform depends on these" >&2
            exit 1
        fi
    done
    # The same look finds them where they are.
    for name in saphyr-parser clap rten; do
        tree -p tensorwire | grep -x "$name" >/dev/null || { echo "no $name found anywhere" >&2; exit 1; }
    done
    echo "firmware: no YAML reader, no clap, no CPU inference among $(tree "${BOARD[@]}" igx | wc -l) packages"

    # A wrong configuration is an error of the compiler, in the words of `validate`; a right one is not.
    wrong=$(mktemp)
    if TENSORWIRE_CONFIG=$PWD/configs/macros/tests/wrong.yaml \
        cargo check -q "${BOARD[@]}" dgx 2>"$wrong"; then
        echo 'a wrong configuration compiled' >&2
        exit 1
    fi
    grep -E 'TW[0-9]{4}.*9633791|9633791.*TW[0-9]{4}|9,633,791' "$wrong" >/dev/null ||
        { cat "$wrong" >&2; echo 'the compiler does not say what is wrong' >&2; exit 1; }
    rm -f "$wrong"
    cargo check -q "${BOARD[@]}" dgx
    echo 'firmware: a wrong configuration does not compile'
}

# FOLDER TARGET FEATURE: builds in FOLDER, whose name is not in the program.
build() {
    (
        cd "$1"
        export RUSTFLAGS="--remap-path-prefix=$PWD=/tensorwire \
--remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/cargo"
        export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
        export TENSORWIRE_BUILD=${TENSORWIRE_BUILD:-$(git -C "$here" rev-parse --short HEAD)}
        cargo build -q --profile firmware "${BOARD[@]}" "$3" --target "$2"
    )
    local program=$1/target/$2/firmware/tensorwire-firmware
    printf '%s %s: %s bytes, sha256 %s\n' "$2" "$3" "$(stat -c %s "$program")" \
        "$(sha256sum "$program" | cut -d ' ' -f 1)"
    if grep -aE 'saphyr|clap_builder' "$program" >/dev/null; then
        echo "$program: has a reader of YAML or a command line" >&2
        exit 1
    fi
}

x86=x86_64-unknown-linux-gnu arm=aarch64-unknown-linux-gnu here=$PWD
# Whether the program for aarch64 can be built and started here.
crossed() {
    rustup target list --installed 2>/dev/null | grep -qx $arm && command -v aarch64-linux-gnu-gcc >/dev/null &&
        command -v qemu-aarch64-static >/dev/null && return
    echo 'firmware: aarch64 skipped: no target, cross compiler or qemu (.ci/run installs them)'
    return 77
}
emulated() { qemu-aarch64-static -L /usr/aarch64-linux-gnu "$@"; }

# Each architecture once, in this folder.
once() {
    build . $x86 dgx
    tree "${BOARD[@]}" dgx | paste -sd ' '
    target/$x86/firmware/tensorwire-firmware version
    crossed || return
    build . $arm dgx
    emulated target/$arm/firmware/tensorwire-firmware version
}

case ${1:-} in
    quick) quick; exit ;;
    build) once; exit ;;
    '') quick ;;
    *) echo "ci/firmware.sh: no '$1'" >&2; exit 2 ;;
esac

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
# FOLDER: what is committed.
copy() {
    mkdir -p "$1"
    git archive HEAD | tar -x -C "$1"
}
copy "$out/one"
copy "$out/two"
build "$out/one" $x86 dgx
build "$out/two" $x86 dgx
cmp "$out"/{one,two}/target/$x86/firmware/tensorwire-firmware
echo 'firmware: two builds in two folders are the same, byte for byte'
tree "${BOARD[@]}" dgx | paste -sd ' '
crossed || exit 77
rm -rf "$out/two"
build "$out/one" $arm dgx
build "$out/one" $arm sim
# Model and features are made here, by the program for this machine.
cargo build -q --workspace --bin tensorwire
tensorwire=$PWD/target/debug/tensorwire sim=$PWD/firmware/sim.yaml
mkdir "$out/bundle"
cd "$out/bundle"
"$tensorwire" export-model --arch resnet18 --weights seed:5 --output model.onnx
"$tensorwire" selftest "$sim" --make
emulated "$out/one/target/$arm/firmware/tensorwire-firmware" selftest
