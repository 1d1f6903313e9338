//! `sim`: the whole pipeline under a virtual clock and seeded faults; one seed, or many.

use std::fs;
use std::io::BufWriter;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use tensorwire_core::geometry::Geometry;
use tensorwire_core::time::Nanos;
use tensorwire_sim::simulation::faults::{FaultPlan, PRESETS};
use tensorwire_sim::simulation::{self as sim, Coverage, Ending, Outcome, Plan, Schedule};

use tensorwire_sim::trace::{self, Replayed, TraceError};

use super::{print, say, say_all};
use crate::cli::SimArgs;
use crate::exit::{ExitCode, Failure, Owed};
use crate::run::report;
use crate::sink::{Anchoring, Latency, Mode, RateMeter, RunFacts, SinkReport, Summary, Timing};
use crate::talk::Talk;

/// Failing seeds that a sweep names.
const NAMED: usize = 10;

/// Runs that shrinking may take.
const SHRINK_RUNS: u64 = 3_000;

/// Why a seed is no good.
#[derive(Debug)]
enum Wrong {
    /// The simulation says so.
    Run(sim::Failure),
    /// The product's own rule for the exit code comes to another one than the run deserves.
    Exit { found: ExitCode, expected: ExitCode },
    /// An assertion of the product; the panic has told its place.
    Panic,
}

impl Wrong {
    fn exit(&self) -> ExitCode {
        match self {
            Self::Run(sim::Failure::Plan(_)) => ExitCode::Usage,
            Self::Run(sim::Failure::Broken { violation, .. }) if violation.is_liveness() => {
                ExitCode::NoProgress
            }
            _ => ExitCode::Invariant,
        }
    }
}

impl std::fmt::Display for Wrong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Run(failure) => write!(f, "{failure}"),
            Self::Exit { found, expected } => write!(
                f,
                "the run would end with exit code {}, and it should be {}",
                found.code(),
                expected.code()
            ),
            Self::Panic => f.write_str("a panic"),
        }
    }
}

/// Runs `sim`.
///
/// # Errors
///
/// A [`Failure`]: 2 where the arguments do not fit together, 7 where a file cannot be read or
/// written.
pub fn sim(args: &SimArgs) -> Result<ExitCode, Failure> {
    let schedule = args.faults.as_deref().map(schedule).transpose()?;
    match (args.seed, &args.seeds, &args.trace) {
        (Some(seed), _, Some(trace)) => record(args, seed, schedule.as_ref(), trace),
        (Some(seed), _, None) => one(args, seed, schedule.as_ref()),
        (None, Some(seeds), _) => Ok(sweep(args, seeds.clone(), schedule.as_ref())),
        (None, None, Some(trace)) => replay_trace(trace),
        (None, None, None) => Err(usage("a seed, seeds or a trace is needed".to_owned())),
    }
}

fn usage(reason: String) -> Failure {
    Failure { exit: ExitCode::Usage, reason }
}

/// The faults of a preset or of a file.
fn schedule(name: &str) -> Result<Schedule, Failure> {
    if let Some(faults) = FaultPlan::preset(name) {
        return Ok(Schedule { faults, ..Schedule::default() });
    }
    let path = Path::new(name);
    let text = fs::read_to_string(path).map_err(|error| Failure {
        exit: ExitCode::File,
        reason: format!("{name}: no preset ({}), and no file: {error}", PRESETS.join(", ")),
    })?;
    serde_json::from_str(&text)
        .map_err(|error| Failure { exit: ExitCode::File, reason: format!("{name}: {error}") })
}

fn plan(args: &SimArgs, seed: u64, schedule: Option<&Schedule>) -> Plan {
    let mut plan = Plan::draw(seed);
    if let Some(schedule) = schedule {
        schedule.apply(&mut plan);
    }
    if let Some(steps) = args.steps {
        plan.fault_steps = steps;
    }
    plan
}

/// Carries out a plan, and compares the exit code that the product comes to.
fn carry_out(plan: &Plan) -> Result<Outcome, Wrong> {
    let outcome = catch_unwind(AssertUnwindSafe(|| sim::run(plan)));
    let outcome = outcome.map_err(|_| Wrong::Panic)?.map_err(Wrong::Run)?;
    let expected = match outcome.ending {
        Ending::Complete => ExitCode::Complete,
        Ending::Owed => ExitCode::Owed,
        Ending::Device => ExitCode::Device,
        Ending::File => ExitCode::File,
        Ending::Internal => ExitCode::Internal,
        // There is no summary: the exit code is that of the signal (`run::signals::ENDS`).
        Ending::Interrupted | Ending::Terminated => return Ok(outcome),
    };
    match summary(plan, &outcome).exit {
        found if found == expected => Ok(outcome),
        found => Err(Wrong::Exit { found, expected }),
    }
}

/// The summary that `run` would show.
fn summary(plan: &Plan, outcome: &Outcome) -> Summary {
    let geometry = Geometry::new(&plan.geometry).unwrap_or_else(|violations| {
        unreachable!("the run was refused for its geometry before: {violations}")
    });
    let (none, never) = (Latency::new(), RateMeter::new());
    let facts = RunFacts {
        mode: Mode::Both,
        owed: Owed::Images(plan.sent_images()),
        geometry,
        images_per_inference: plan.images_per_inference,
        anchoring: Anchoring::new(&geometry, None, true),
        producer: Some(&outcome.producer),
        consumer: outcome.consumer,
        consumer_failure: None,
        timing: Timing {
            started: Nanos::ZERO,
            ended: outcome.ended,
            meter: &never,
            infer: &none,
            reorder: &none,
            last_packet_to_features: &none,
        },
        steady: Vec::new(),
        tx: None,
        links: Vec::new(),
        clock_steps: 0,
        // What a dead thread had to say is lost with it.
        failure: died(outcome)
            .or_else(|| outcome.failure.map(|failed| report::why(&failed, None)))
            .or_else(|| report::reorder_failure(&outcome.producer)),
    };
    Summary::new(&facts, SinkReport::default())
}

/// What `run` makes of a consumer whose thread died.
fn died(outcome: &Outcome) -> Option<Failure> {
    (outcome.ending == Ending::Internal)
        .then(|| Failure { exit: ExitCode::Internal, reason: "the consumer died".to_owned() })
}

/// One seed, with everything that can be said about it.
fn one(args: &SimArgs, seed: u64, schedule: Option<&Schedule>) -> Result<ExitCode, Failure> {
    let plan = plan(args, seed, schedule);
    say(&format!("seed {seed}: {}, {}", plan.rx_poll, plan.faults));
    let wrong = match carry_out(&plan) {
        Ok(outcome) => {
            let mut coverage = Coverage::default();
            coverage.add(&outcome);
            say_all(&coverage.to_string());
            say(&format!("trace {:016x}: every invariant holds", outcome.trace));
            return Ok(ExitCode::Complete);
        }
        Err(wrong) => wrong,
    };
    say(&format!("FAILED: {wrong}"));
    say(&format!("replay: {}", replay(args, seed)));
    if args.shrink {
        shrink(&plan)?;
    }
    Ok(wrong.exit())
}

/// Says what is left of a failing plan, and prints it as a file of faults.
fn shrink(plan: &Plan) -> Result<(), Failure> {
    let Some(small) = sim::shrink(plan, SHRINK_RUNS) else {
        say(&"not shrunk: the simulation itself finds nothing wrong");
        return Ok(());
    };
    say(&format!("shrunk in {} runs: {}", small.runs, small.failure));
    let text = serde_json::to_string_pretty(&Schedule::of(&small.plan))
        .map_err(|error| Failure { exit: ExitCode::Internal, reason: error.to_string() })?;
    print(&(text + "\n"))?;
    say(&format!("save it, then: tensorwire sim --seed {} --faults FILE", plan.seed));
    Ok(())
}

/// The command that repeats a seed.
fn replay(args: &SimArgs, seed: u64) -> String {
    let steps = args.steps.map_or_else(String::new, |steps| format!(" --steps {steps}"));
    let faults =
        args.faults.as_ref().map_or_else(String::new, |faults| format!(" --faults {faults}"));
    format!("tensorwire sim --seed {seed}{steps}{faults}")
}

/// Writes down a simulated run.
fn record(
    args: &SimArgs,
    seed: u64,
    schedule: Option<&Schedule>,
    path: &Path,
) -> Result<ExitCode, Failure> {
    let named = |error: &dyn std::fmt::Display| Failure {
        exit: ExitCode::File,
        reason: format!("{}: {error}", path.display()),
    };
    let file = fs::File::create(path).map_err(|error| named(&error))?;
    match sim::record(&plan(args, seed, schedule), Box::new(BufWriter::new(file))) {
        Ok(outcome) => {
            say(&format!("seed {seed}: {} steps in {}", outcome.steps, path.display()));
            Ok(ExitCode::Complete)
        }
        Err(sim::Failure::Plan(why)) => {
            Err(usage(format!("seed {seed} cannot be recorded: {why}")))
        }
        Err(failure) => {
            say(&format!("FAILED: {failure}"));
            Ok(Wrong::Run(failure).exit())
        }
    }
}

/// Steps through a recorded run.
fn replay_trace(path: &Path) -> Result<ExitCode, Failure> {
    let named = |error: &dyn std::fmt::Display| Failure {
        exit: ExitCode::File,
        reason: format!("{}: {error}", path.display()),
    };
    let text = fs::read_to_string(path).map_err(|error| named(&error))?;
    match trace::replay(&text) {
        Ok(replayed) => {
            let Replayed { steps, frames, batches, totals } = replayed;
            say(&format!("{steps} steps, {frames} frames, {batches} batches: the same decisions"));
            say(&totals);
            Ok(ExitCode::Complete)
        }
        Err(error @ TraceError::Diverged { .. }) => {
            say(&format!("FAILED: {}: {error}", path.display()));
            Ok(ExitCode::Invariant)
        }
        Err(error) => Err(named(&error)),
    }
}

/// What the threads of a sweep share.
#[derive(Default)]
struct Found {
    coverage: Coverage,
    wrong: Vec<(u64, Wrong)>,
}

/// Many seeds, on several threads.
fn sweep(args: &SimArgs, seeds: std::ops::Range<u64>, schedule: Option<&Schedule>) -> ExitCode {
    let (next, found) = (AtomicU64::new(seeds.start), Mutex::new(Found::default()));
    let bar = Talk::new(false).progress(seeds.end - seeds.start, "seeds", "seeds");
    let began = Instant::now();
    let jobs = args
        .jobs
        .map_or_else(|| thread::available_parallelism().map_or(1, Into::into), usize::from);
    let work = || {
        let mut mine = Found::default();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                break;
            }
            match carry_out(&plan(args, seed, schedule)) {
                Ok(outcome) => mine.coverage.add(&outcome),
                Err(wrong) => mine.wrong.push((seed, wrong)),
            }
            bar.inc(1);
        }
        // A thread that panicked has left a whole value: it only adds at its end.
        let mut all = found.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        all.coverage.join(&mine.coverage);
        all.wrong.append(&mut mine.wrong);
    };
    thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(work);
        }
    });
    bar.finish_and_clear();
    let found = found.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    told(args, found, began.elapsed().as_secs_f64())
}

/// Says what a sweep has found.
fn told(args: &SimArgs, mut found: Found, seconds: f64) -> ExitCode {
    say_all(&found.coverage.to_string());
    let runs = found.coverage.runs + found.wrong.len() as u64;
    say(&format!("{runs} seeds in {seconds:.1} s, {:.0} per second", runs as f64 / seconds));
    if found.wrong.is_empty() {
        say(&"every invariant holds");
        return ExitCode::Complete;
    }
    found.wrong.sort_by_key(|(seed, _)| *seed);
    say(&format!("FAILED: {} seeds", found.wrong.len()));
    for (seed, wrong) in found.wrong.iter().take(NAMED) {
        say(wrong);
        say(&format!("replay: {}", replay(args, *seed)));
    }
    let exits = found.wrong.iter().map(|(_, wrong)| wrong.exit());
    exits.min_by_key(|exit| exit.code()).unwrap_or(ExitCode::Invariant)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tensorwire_sim::simulation::{Failure as Run, Violation};

    fn broken(violation: Violation) -> Wrong {
        Wrong::Run(Run::Broken { seed: 1, step: 2, now: Nanos(3), violation, events: Vec::new() })
    }

    #[test]
    fn a_broken_invariant_is_1_and_no_progress_is_8() {
        assert_eq!(broken(Violation::Hole { image: 4 }).exit().code(), 1);
        assert_eq!(broken(Violation::NoProgress { steps: 9 }).exit().code(), 8);
        assert_eq!(Wrong::Panic.exit().code(), 1);
        let wrong = Wrong::Exit { found: ExitCode::Complete, expected: ExitCode::Owed };
        assert_eq!(wrong.exit().code(), 1);
        assert_eq!(wrong.to_string(), "the run would end with exit code 0, and it should be 4");
        let wrong = vec![(7, broken(Violation::NoProgress { steps: 9 })), (3, Wrong::Panic)];
        let found = Found { wrong, ..Found::default() };
        let args = SimArgs {
            seed: None,
            seeds: Some(0..9),
            jobs: None,
            steps: Some(5),
            faults: Some("wire".to_owned()),
            shrink: false,
            trace: None,
        };
        assert_eq!(told(&args, found, 1.0), ExitCode::Invariant, "a broken invariant weighs more");
        assert_eq!(replay(&args, 3), "tensorwire sim --seed 3 --steps 5 --faults wire");
    }

    #[test]
    fn the_exit_code_of_the_product_is_compared() {
        let plan = Plan { images: 3, ..Plan::quiet(1) };
        let outcome = carry_out(&plan).expect("holds");
        assert_eq!(summary(&plan, &outcome).exit, ExitCode::Complete);
        // The same outcome, of a plan that owes more.
        let more = Plan { images: 4, ..plan };
        assert_eq!(summary(&more, &outcome).exit, ExitCode::Owed);
    }
}
