use super::*;
use crate::simulation::{self, Plan, RxPoll};

/// What a simulated run writes into a trace, and the run's own outcome.
fn recorded(plan: &Plan) -> (String, simulation::Outcome) {
    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);
    impl Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("one thread").extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let sink = Sink::default();
    let outcome = simulation::record(plan, Box::new(sink.clone())).expect("the run holds");
    let bytes = sink.0.lock().expect("one thread").clone();
    (String::from_utf8(bytes).expect("text"), outcome)
}

/// Plans with every kind of fault, whose packets are not kept.
fn plans() -> impl Iterator<Item = Plan> {
    (0..600).map(|seed| Plan { at_close: None, ..Plan::draw(seed) })
}

#[test]
fn a_recorded_run_is_stepped_through_with_the_same_decisions() {
    let (mut batches, mut split, mut cut) = (0, 0, 0);
    for plan in plans() {
        let (text, outcome) = recorded(&plan);
        if outcome.ending.at_once() {
            cut += 1;
            let Err(TraceError::Line { why, .. }) = replay(&text) else {
                panic!("{}: a process that ends at once writes no end", plan.seed)
            };
            assert_eq!(why, "it ends without its last line");
            continue;
        }
        let replayed = replay(&text).unwrap_or_else(|error| panic!("{}: {error}", plan.seed));
        split += u64::from(plan.rx_poll == RxPoll::Split);
        assert_eq!(replayed.totals, totals(&outcome.producer), "seed {}", plan.seed);
        assert_eq!(replayed.batches, outcome.producer.pushed);
        assert_eq!(replayed.frames, outcome.producer.packets.offered);
        batches += replayed.batches;
    }
    assert!(batches > 1_000 && split > 100 && cut > 0, "{batches} {split} {cut}");
}

#[test]
fn recording_changes_nothing() {
    for plan in plans().take(20) {
        let (_, outcome) = recorded(&plan);
        assert_eq!(outcome.trace, simulation::run(&plan).expect("holds").trace);
    }
}

#[test]
fn another_decision_is_told_with_its_line() {
    let (text, _) = recorded(&Plan::quiet(1));
    let lines: Vec<&str> = text.lines().collect();
    let batch = lines.iter().position(|line| line.contains(" b")).expect("a batch");
    let change = |at: usize, line: String| {
        let mut changed: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
        changed[at] = line;
        replay(&(changed.join("\n") + "\n"))
    };
    // Another packet came, and the batch is another.
    let poll = lines.iter().position(|line| line.contains(" p32:0")).expect("the first packet");
    let other = change(poll, lines[poll].replacen(":0", ":1", 1));
    assert!(matches!(other, Err(TraceError::Diverged { .. })), "{other:?}");
    let gone = change(batch, lines[batch].replacen(" bc", " b0", 1));
    let Err(TraceError::Diverged { line, why }) = &gone else { panic!("{gone:?}") };
    assert_eq!(*line, batch + 1, "{why}");
    let end = lines.len() - 1;
    let counted = change(end, lines[end].replacen("placed: 128", "placed: 127", 1));
    assert!(matches!(counted, Err(TraceError::Diverged { .. })), "{counted:?}");
}

#[test]
fn what_is_no_trace_is_refused_with_its_line() {
    let (text, _) = recorded(&Plan::quiet(1));
    let (header, rest) = text.split_once('\n').expect("lines");
    let cut = rest.rfind("final").expect("the last line");
    for (text, line) in [
        (String::new(), 1),
        ("{}".to_owned(), 1),
        (header.replace("\"tensorwire_trace\":1", "\"tensorwire_trace\":2") + "\n" + rest, 1),
        (format!("{header}\n1 0 0\nfinal \n"), 2),
        (format!("{header}\nx 0 0 -\nfinal \n"), 2),
        (format!("{header}\n1 0 0 - q5\nfinal \n"), 2),
        (format!("{header}\n1 0 0 - p5:0+4294967295\nfinal \n"), 2),
        (format!("{header}\n1 0 0 - p5:0+6\nfinal \n"), 2),
        (text.trim_end().to_owned(), text.lines().count()),
        (format!("{header}\n{}", &rest[..cut]), text.lines().count() - 1),
    ] {
        let refused = replay(&text);
        let Err(TraceError::Line { line: found, .. } | TraceError::Diverged { line: found, .. }) =
            &refused
        else {
            panic!("{refused:?}")
        };
        assert_eq!(*found, line, "{refused:?}");
    }
}
