#!/usr/bin/env bash
# Proves by linking what core does without (release, fat LTO, panic = abort):
#
#   all_api    must link      every public function, without an allocator
#   hot_path   must link      what runs per packet, burst and batch, without a panic
#   allocates  must not link  ... for want of an allocator: the first proof can fail
#   can_panic  must not link  ... for want of a panic: the second proof can fail
#
# For this machine (without start files), and for two targets without operating system and C library
# where they can be had: aarch64-unknown-none, and thumbv7em-none-eabihf, which has 32 bits and no
# 64-bit atomics. Exits non-zero when one of them is not as it must be.
#
#   run.sh         all of it
#   run.sh where   links hot_path in spite of its panics, and prints the source line of each
set -euo pipefail
cd "$(dirname "$0")"
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-../../target}/link-proofs"
mkdir -p "$CARGO_TARGET_DIR"

if [ "${1:-}" = where ]; then
    CARGO_PROFILE_RELEASE_DEBUG=1 cargo rustc --quiet --locked --release --bin hot_path -- \
        -C link-arg=-Wl,--unresolved-symbols=ignore-all
    program=$CARGO_TARGET_DIR/release/hot_path
    objdump -d --no-show-raw-insn "$program" >"$CARGO_TARGET_DIR/hot_path.asm"
    panics=$(grep -E '(call|jmp) .*<_R.*9panicking' "$CARGO_TARGET_DIR/hot_path.asm" \
        | sed -E 's/^ *([0-9a-f]+):.*/0x\1/' || true)
    # Innermost frame first; the panic functions of core itself call each other and come along.
    for at in $panics; do
        addr2line -Cfipe "$program" "$at"
    done
    echo "panics that are left: $(wc -w <<<"$panics") (0 = hot_path links)"
    exit 0
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
failed=0
row() { printf '%-26s %-10s %-13s %s\n' "$1" "$2" "$3" "$4"; }

build() { # target, program
    cargo build --quiet --locked --release --target "$1" --bin "$2" >"$log" 2>&1
}

must_link() { # target, program
    if build "$1" "$2"; then
        row "$1" "$2" "linked" "$(wc -c <"$CARGO_TARGET_DIR/$1/release/$2") bytes"
    else
        row "$1" "$2" "DID NOT LINK" "as it must:"
        grep -E '^error|undefined|referenced by|>>>' "$log" | head -n 20 || true
        echo "for the places in the sources: core/link-proofs/run.sh where"
        failed=1
    fi
}

must_not_link() { # target, program, what the failure must say
    if build "$1" "$2"; then
        row "$1" "$2" "LINKED" "the proof cannot fail"
        failed=1
    elif grep -q "$3" "$log"; then
        row "$1" "$2" "did not link" "$(grep -o "$3" "$log" | head -n 1)"
    else
        row "$1" "$2" "BROKEN" "it does not say '$3':"
        tail -n 20 "$log"
        failed=1
    fi
}

# Every public function is in all_api. In a path the type may carry arguments: `Ring::<u64, 8>::new`.
missing=0
functions=$(find ../src -name '*.rs' ! -path '*tests*' ! -name planted.rs -print0 | xargs -0 awk -f public-api.awk | sort -u)
for function in $functions; do
    owner=${function%%::*} name=${function##*::}
    [ "$owner" = "*" ] && owner='[a-z_]+'
    if ! grep -qE "\b$owner(::<.*>)?::$name\b" src/bin/all_api.rs; then
        echo "not in src/bin/all_api.rs: $function"
        missing=$((missing + 1))
    fi
done
total=$(wc -w <<<"$functions")
echo "public functions of core in all_api: $((total - missing)) of $total"
[ "$missing" -eq 0 ] && [ "$total" -gt 0 ] || failed=1

host=$(rustc -vV | sed -n 's/^host: //p')
targets=("$host")
installed() { rustc --print target-libdir --target "$1" 2>/dev/null | xargs test -d; }
for target in aarch64-unknown-none thumbv7em-none-eabihf; do
    if installed "$target" || { rustup target add "$target" >/dev/null 2>&1 && installed "$target"; }; then
        targets+=("$target")
    else
        echo "skipped: $target cannot be had (rustup target add $target)"
    fi
done

row "target" "program" "result" ""
for target in "${targets[@]}"; do
    must_link "$target" all_api
    must_link "$target" hot_path
    must_not_link "$target" allocates "no global memory allocator found"
    must_not_link "$target" can_panic "undefined symbol: tensorwire_core_can_panic\|undefined reference to .tensorwire_core_can_panic"
done
exit "$failed"
