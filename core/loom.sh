#!/usr/bin/env bash
# Loom over the ring, the flag and the number in halves: the code as it is must pass, and every mutant (one ordering
# weakened to Relaxed, see `order` in core/src/sync.rs) must fail. Exits non-zero otherwise.
#
#   core/loom.sh            all of them
#   core/loom.sh head_seen  the code as it is, and this mutant
set -euo pipefail
cd "$(dirname "$0")/.."

# Flags for every crate come by environment, the mutant for ours alone: dependencies build once.
export RUSTFLAGS="--cfg loom"
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/loom"
limit_s=300 # per run; a run takes seconds

mutants=("$@")
if [ ${#mutants[@]} -eq 0 ]; then
    mapfile -t mutants < <(grep -o 'mutant = "[a-z_]*"' core/src/sync.rs | cut -d'"' -f2 | sort -u)
fi
if [ ${#mutants[@]} -eq 0 ]; then
    echo "loom.sh: no mutant found in core/src/sync.rs" >&2
    exit 1
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT

# Builds the tests with the given extra flags and prints the path of the executable.
build() {
    cargo rustc --quiet -p tensorwire-core --lib --profile test --message-format=json -- "$@" \
        | grep -o '"executable":"[^"]*"' | tail -n 1 | cut -d'"' -f4
}

# Runs one executable; its output goes to the log.
run() {
    timeout "$limit_s" "$1" --test-threads=2 loom_ >"$log" 2>&1
}

failed=0
row() { printf '%-16s %-9s %s\n' "$1" "$2" "$3"; }

row "mutant" "result" "by"
exe=$(build)
if run "$exe" && grep -q '^test result: ok. [1-9]' "$log"; then
    row "(none)" "passed" "$(grep -c '^test .* ok$' "$log") tests"
else
    row "(none)" "FAILED" "the ring is wrong, or the tests are:"
    cat "$log"
    exit 1
fi
for mutant in "${mutants[@]}"; do
    exe=$(build --cfg "mutant=\"$mutant\"")
    status=0
    run "$exe" || status=$?
    by=$(grep -oE '^    (ring|sync::halves)::loom_tests::[a-z0-9_]*' "$log" | sed 's/.*:://' | sort -u || true)
    if [ "$status" -eq 0 ]; then
        row "$mutant" "SURVIVED" "no test noticed"
        failed=1
    elif [ "$status" -eq 101 ] && [ -n "$by" ]; then
        row "$mutant" "caught" "$(wc -l <<<"$by") tests, first ${by%%$'\n'*}"
    else
        row "$mutant" "BROKEN" "exit status $status, not a failed test:"
        tail -n 20 "$log"
        failed=1
    fi
done
exit "$failed"
