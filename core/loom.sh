#!/usr/bin/env bash
# Loom over the ring, the flag and the number in halves: the code as it is must pass, and every mutant (one
# ordering weakened to Relaxed, see `order` in core/src/sync.rs) must fail. Exits non-zero otherwise.
#
#   core/loom.sh            all of them
#   core/loom.sh head_seen  the code as it is, and this mutant
set -euo pipefail
cd "$(dirname "$0")/.."

export RUSTFLAGS="--cfg loom"
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/loom"
limit_s=300 # per run; a run takes seconds

mapfile -t known < <(sed -n 's/^ *\([a-z_]*\) = \(Acquire\|Release\);$/\1/p' core/src/sync.rs)
if [ ${#known[@]} -eq 0 ]; then
    echo "loom.sh: no ordering found in core/src/sync.rs" >&2
    exit 1
fi
mutants=("$@")
[ $# -gt 0 ] || mutants=("${known[@]}")
for mutant in "${mutants[@]}"; do
    # The program would run a name that it does not know unchanged.
    if ! printf '%s\n' "${known[@]}" | grep -qx "$mutant"; then
        echo "loom.sh: there is no ordering $mutant in core/src/sync.rs; there are ${known[*]}" >&2
        exit 2
    fi
done

log=$(mktemp)
trap 'rm -f "$log"' EXIT
failed=0
row() { printf '%-16s %-9s %s\n' "$1" "$2" "$3"; }

exe=$(cargo rustc --quiet -p tensorwire-core --lib --profile test --message-format=json \
    | grep -o '"executable":"[^"]*"' | tail -n 1 | cut -d'"' -f4)

# start MUTANT: in the background, as $pid; its output goes to the log, which is empty when this returns.
start() {
    : >"$log"
    MUTANT=$1 timeout "$limit_s" "$exe" --test-threads=2 loom_ >>"$log" 2>&1 &
    pid=$!
}

row "mutant" "result" "by"
start ""
if wait "$pid" && grep -q '^test result: ok. [1-9]' "$log"; then
    row "(none)" "passed" "$(grep -c '^test .* ok$' "$log") tests"
else
    row "(none)" "FAILED" "the ring is wrong, or the tests are:"
    cat "$log"
    exit 1
fi
# A mutant is caught by the first test that fails; the others need not be waited for.
caught_by() {
    sed -n 's/^test .*::loom_tests::\([a-z0-9_]*\) \.\.\. FAILED$/\1/p' "$log" | head -n 1
}
for mutant in "${mutants[@]}"; do
    start "$mutant"
    while kill -0 "$pid" 2>/dev/null && [ -z "$(caught_by)" ]; do sleep 0.2; done
    kill "$pid" 2>/dev/null || true
    status=0
    wait "$pid" 2>/dev/null || status=$?
    by=$(caught_by)
    if [ -n "$by" ]; then
        row "$mutant" "caught" "by $by"
    elif [ "$status" -eq 0 ]; then
        row "$mutant" "SURVIVED" "no test noticed"
        failed=1
    else
        row "$mutant" "BROKEN" "exit status $status, not a failed test:"
        tail -n 20 "$log"
        failed=1
    fi
done
exit "$failed"
