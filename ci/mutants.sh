#!/usr/bin/env bash
# Mutants of the core, a shard at a time, each with the tests that are about it, so that a mutant
# costs seconds; what these miss is tried again with every test of the core and the model.
#
#   ci/mutants.sh                 all of it (hours on two cores)
#   ci/mutants.sh header window   these shards
#
# Prints the mutants that nothing catches; one that hangs its tests is caught. docs/verification.md says
# which of them are no fault.
set -efuo pipefail # -f: the patterns below are for cargo-mutants
cd "$(dirname "$0")/.."

if ! cargo mutants --version >/dev/null 2>&1; then
    echo 'skipped: no cargo-mutants (cargo install --locked cargo-mutants)'
    exit 0
fi

# Shard: the tests that are tried first, and the files below core/src.
shards=(
    'geometry geometry geometry.rs geometry/*.rs'
    'header header header.rs header/*.rs'
    'bits bits bits.rs'
    'flow flow flow.rs'
    'ledger ledger ledger.rs'
    'ring ring ring.rs'
    'burst burst burst.rs'
    'window window window.rs'
    'reassembly reassembly reassembly.rs reassembly/*.rs'
    'machines pipeline pipeline.rs pipeline/*.rs pipeline/producer/*.rs'
    'small :: counters.rs sequence.rs time.rs port.rs sync.rs'
)
export CARGO_PROFILE_DEV_DEBUG=0 CARGO_INCREMENTAL=1
out=target/mutants
mkdir -p "$out"

# Arguments: name of the results, then what cargo-mutants takes.
mutants() {
    local name=$1
    shift
    rm -rf "${out:?}/$name"
    # 2 and 3 say that some were missed or hung, which the lists have.
    cargo mutants -p tensorwire-core -e '**/tests.rs' -e '**/loom_tests.rs' \
        -E 'core/src/planted' -E 'Reassembly<P>::(in_base|count_twice)' \
        --baseline skip --timeout 20 --no-shuffle --colors never -o "$out/$name" "$@" || [[ $? =~ ^[23]$ ]]
}

lines() {
    cat "$out/$1/mutants.out/$2.txt" 2>/dev/null | wc -l
}

tried=0 alive=0
for shard in "${shards[@]}"; do
    read -r name filter files <<<"$shard"
    [ $# -eq 0 ] || [[ " $* " == *" $name "* ]] || continue
    only=()
    for file in $files; do only+=(-f "core/src/$file"); done
    mutants "$name" "${only[@]}" -- --lib "$filter"
    again=()
    while IFS= read -r mutant; do
        again+=(-F "^$(sed 's/[][().*+?^$|{}\\]/\\&/g' <<<"$mutant")\$")
    done <"$out/$name/mutants.out/missed.txt"
    missed=0
    if [ ${#again[@]} -gt 0 ]; then
        mutants "$name-again" "${again[@]}" -- --lib --test reassembly
        missed=$(lines "$name-again" missed)
        cat "$out/$name-again/mutants.out/missed.txt"
    fi
    viable=$(($(lines "$name" caught) + $(lines "$name" missed) + $(lines "$name" timeout)))
    echo "$name: $((viable - missed)) of $viable caught"
    tried=$((tried + viable)) alive=$((alive + missed))
done
echo "$((tried - alive)) of $tried viable mutants caught"
