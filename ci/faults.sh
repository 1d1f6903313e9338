#!/usr/bin/env bash
# Faults planted in what is around a run (bundles, numbers, status, drain, watchdog, crash record),
# one after the other: a test has to fail with each.
#
#   ci/faults.sh fits        whether every fault still finds its place; changes nothing
#   ci/faults.sh [WORD...]   plants those whose name holds a word (all), and runs their test
#
# A fault is planted in this folder and taken out again; a file with changes of somebody's own is
# left alone. Each costs a build of what depends on it.
set -euo pipefail
cd "$(dirname "$0")/.."
export CARGO_TERM_COLOR=never
mode=plant words=("$@")
[ "${1:-}" != fits ] || mode=fits
planted=0 missed=0 file=''
text=$(mktemp)
out=$(mktemp)
restore() {
    [ -z "$file" ] || cp "$text" "$file"
    file=''
}
trap 'restore; rm -f "$text" "$out"' EXIT

chosen() {
    [ ${#words[@]} -eq 0 ] && return
    local word
    for word in "${words[@]}"; do case $1 in *"$word"*) return ;; esac; done
    return 1
}

# NAME FILE FROM TO, then the tests that have to notice it, as `cargo test --workspace` takes them.
fault() {
    local name=$1 path=$2 from=$3 to=$4 whole
    shift 4
    [ $mode = fits ] || chosen "$name" || return 0
    whole=$(<"$path")
    case $whole in
        *"$from"*"$from"*) echo "the fault '$name' fits $path twice"; exit 1 ;;
        *"$from"*) ;;
        *) echo "the fault '$name' no longer fits $path"; exit 1 ;;
    esac
    planted=$((planted + 1))
    [ $mode = plant ] || return 0
    git diff --quiet -- "$path" || { echo "$path has changes: '$name' was not planted"; exit 1; }
    cp "$path" "$text"
    file=$path
    printf '%s\n' "${whole/"$from"/"$to"}" >"$path"
    if ! cargo test -q --workspace "${@:1:$(($# - 1))}" --no-run >"$out" 2>&1; then
        cat "$out"
        echo "'$name' does not compile"
        exit 1
    fi
    if cargo test -q --workspace "${@:1:$(($# - 1))}" -- "${@: -1}" >"$out" 2>&1; then
        echo "NOT NOTICED: $name"
        missed=$((missed + 1))
    else
        printf 'noticed: %s: %s\n' "$name" "$(grep -m 1 -E '^test .*FAILED|^    [a-z_:0-9]+$' "$out" | sed 's/^ *//')"
    fi
    restore
}

bundle=packaging/bundle/src
fault 'a run that stands still is confirmed' $bundle/confirm.rs 'Some(0 | 1)' 'Some(0..=5)' \
    --lib a_run_that_answers_all_the_time
fault 'a run is asked once' $bundle/confirm.rs 'if Instant::now() >= end {' 'if end > Instant::now() || end <= Instant::now() {' \
    --lib a_run_that_answers_all_the_time
fault 'a bundle may start once more' $bundle/trial.rs 'starts >= STARTS' 'starts > STARTS' \
    --lib a_bundle_that_does_not_become_ready
fault 'the end of the old bundle is noted' $bundle/trial.rs 'Some((1.., marker))' 'Some((_, marker))' \
    --lib a_bundle_that_does_not_become_ready
fault 'a confirmation forgets the bundle before' $bundle/trial.rs 'self.link(PREVIOUS, &old)?;' 'let _ = old;' \
    --lib the_first_bundle_is_no_trial
fault 'a confirmed bundle is given up' $bundle/trial.rs 'self.marker()?.ok_or_else(none)?;' 'let _ = none;' \
    --lib what_the_manager_does_not_start
fault 'a rollback trusts a switch that did not happen' $bundle/trial.rs $'is no trial.\n        self.recover()?;' $'is no trial.\n' \
    --lib a_switch_that_did_not_happen
fault 'a rollback keeps no reason' $bundle/trial.rs 'self.write(ROLLBACK, &format!("{text}\n"))' 'Ok::<(), BundleError>(())' \
    --lib a_bundle_that_does_not_become_ready
fault 'an update is not on trial' $bundle/store.rs 'self.write(&format!("{TRIAL}0"), &format!("{new}\n"))?;' '' \
    --lib the_first_bundle_is_no_trial
fault 'an update switches before it can go back' $bundle/store.rs \
    'if let Some(old) = &old {' $'self.link(CURRENT, new)?;\n        if let Some(old) = &old {' \
    --lib an_update_that_is_cut_anywhere
fault 'the self-test of a bundle is left out' $bundle/store.rs '.and_then(|_| selftest(&partial))' '.map(drop)' \
    --lib what_is_broken_or_fails
fault 'a changed file is taken for whole' $bundle/contents.rs 'if sum(&path)? != expected' 'if sum(&path)?.len() != expected.len()' \
    --lib what_was_changed_added_or_lost

status=app/src/commands/status.rs
fault 'late packets are harmless' $status '["placed", "other_flow", "early"]' '["placed", "other_flow", "late"]' \
    --lib what_grows_now_is_lost
fault 'a run may stand still for a minute' $status 'const STALLED: f64 = 5.0;' 'const STALLED: f64 = 60.0;' \
    --lib a_run_that_is_not_ready_stands_still
fault 'a run that stops is well' $status '("stopping", ExitCode::Device)' '("well", ExitCode::Complete)' \
    --lib a_run_that_is_not_ready_stands_still
fault 'the reason of a rollback is not told' app/src/commands/status/bundle.rs \
    'if let Some(why) = &self.rollback {' 'if let Some(why) = &None::<String> {' \
    --test metrics status_tells_which_bundle
fault 'nobody answers, and status has nothing to say' $status 'print(&bundles.text())?;' 'print("")?;' \
    --test metrics status_tells_which_bundle

metrics=app/src/metrics
fault 'a cause shows the number of another' $metrics/board.rs 'packet("late", |s| packets(s).late)' 'packet("late", |s| packets(s).wild)' \
    --lib the_causes_of_a_packet_add_up
fault 'a number of the dashboard is gone' $metrics/board.rs '("tensorwire_jobs_total", None' '("tensorwire_job_total", None' \
    --test metrics the_dashboard_shows
fault 'seconds are milliseconds' $metrics/board.rs 'float(time.0) / 1e9' 'float(time.0) / 1e6' \
    --lib the_causes_of_a_packet_add_up
fault 'seconds that only grow are a gauge' $metrics/board.rs '"_seconds_total counter\n"' '"_seconds_total gauge\n"' \
    --lib what_counts_seconds
fault 'a run is never ready' $metrics/board.rs 'self.ready.set(1.0);' 'self.ready.set(0.0);' \
    --lib the_numbers_are_given
fault 'every path answers' $metrics/server.rs 'Some("/metrics") if *method == "GET"' 'Some(_) if *method == "GET"' \
    --lib the_numbers_are_given
fault 'a foreign end point is taken for ours' $metrics/scrape.rs 'if ours { Ok(scrape) }' 'if ours || !ours { Ok(scrape) }' \
    --lib who_is_gone_or_is_somebody_else
fault 'a port alone is open to the network' $metrics/address.rs 'SocketAddr::from((Ipv4Addr::LOCALHOST, port))' 'SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))' \
    --lib a_port_alone_is_one_of_the_loopback
fault 'firmware answers nobody' firmware/src/main.rs 'return Ok(Some(END_POINT))' 'return Ok(None)' \
    --bin tensorwire-firmware it_answers_where_status_asks

service=app/src/service.rs
fault 'a drain never hurries' $service 'signals.hurry.set();' '' \
    --lib a_stop_hurries_after_the_drain
fault 'a drain hurries at once' $service 'if draining >= limit {' 'if draining <= limit {' \
    --lib a_stop_hurries_after_the_drain
fault 'a drain has no grace' $service 'limit.plus(nanos(GRACE))' 'limit' \
    --lib a_stop_hurries_after_the_drain
fault 'a run that goes on is hurried' $service 'if asked && self.stopped.is_none() {' 'if self.stopped.is_none() {' \
    --lib a_run_that_nobody_stops
fault 'the watchdog is fed whatever happens' $service '&& verdict == Verdict::Moves' '' \
    --test service a_consumer_that_hangs
fault 'an idle consumer starves the watchdog' app/src/service/watchdog.rs 'mark.handed > mark.ended && ' '' \
    --lib idle_and_progress_both_feed
fault 'a receiver that waits for ever feeds it' app/src/service/watchdog.rs 'mark.waiting && signs.waiting && still' 'mark.waiting && !signs.waiting && still' \
    --lib a_loop_that_turns_and_does_nothing

fault 'a crash keeps no packets' app/src/run/vitals.rs 'noted::seen(seen);' '' \
    --test firmware a_crash_is_told
fault 'a crash names its counters wrongly' app/src/run/noted.rs 'names.zip((ROWS..).map(counter))' 'names.zip((READY..).map(counter))' \
    --lib counters_are_told_by_name

if [ $mode = fits ]; then
    echo "$planted faults fit"
    exit
fi
echo "$planted faults planted, $((planted - missed)) noticed"
[ $missed -eq 0 ] && [ $planted -gt 0 ]
