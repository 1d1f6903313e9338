#!/usr/bin/env bash
# Licences, sources and bans of all dependencies (deny.toml), and advisories where their database can
# be had. cargo-deny is built where it is not installed, two minutes of one core; 77 where that fails.
set -euo pipefail
cd "$(dirname "$0")/.."
export CARGO_TERM_COLOR=never
# Without optimisation it is built in half the time, and runs for seconds.
if ! command -v cargo-deny >/dev/null && ! CARGO_PROFILE_DEV_DEBUG=0 \
    cargo install -q --locked --debug cargo-deny --version 0.20.2; then
    echo 'deny: skipped: cargo-deny cannot be built here (see above)'
    exit 77
fi
mkdir -p target

cargo deny -L error check licenses bans sources
# The database is a repository that only some machines reach.
if cargo deny -L error fetch db 2>target/advisories.log; then
    cargo deny -L error check advisories
else
    why=$(grep -m 1 -o 'Could not resolve host' target/advisories.log || true)
    echo "advisories: skipped: their database cannot be fetched (${why:-see target/advisories.log})"
fi
