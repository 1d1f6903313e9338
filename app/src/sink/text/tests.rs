use tensorwire_core::pipeline::producer::EndReason;

use crate::exit::{ExitCode, Failure, Owed};
use crate::sink::testing::{empty, full, silent, summary};
use crate::sink::{Counted, Mode, SinkReport, TxTotals};
use tensorwire_core::counters::NicStats;

/// The whole text of a run with a figure for everything. It is written out: a changed word is a
/// changed contract with the scripts that read it.
const FULL: &str = "\
pcap_tx_worker: sent 32768/32768 frames in 0.051074 s (send_failures=0 fill_failures=0 \
no_burst_polls=12)
wire: dropped=120 duplicated=1 (fault injection)
rx_producer_worker: pushed 252 images (reordered_bursts=8 partial=2 dropped=0 \
non_reordered_packets=6)
inference_consumer_worker: 3 inference batches in 2.10 s
inference latency (ms): mean=8.753 p50=8.487 p99=9.360 (per batch of 32 images, n=3)
reorder latency (ms): mean=8.753 p50=8.487 p99=9.360 (per batch, n=3)
last packet to features (ms): mean=8.753 p50=8.487 p99=9.360 (per batch, n=3)

=== ResNet inference summary ===
images=252 batches=8 seconds=2.10 => 120.00 img/s (wall)
active_seconds=1.00 => 224.00 img/s (excludes 1.00 s before first batch)
inference only: 9596.34 img/s
receive only: 30.70 Gb/s of payload
images: expected=256 delivered=252 damaged=3 missing=1 dropped=0 [queue_full=0 policy=0 \
infer_failed=0 sink_failed=0 shutdown=0] unfinished=0
damaged images: 7, 15–16
missing images: 31
partial batches: moved=1 deadline=1 pool=0 discontinuity=0 shutdown=0 (cut_by_timeout=1)
discontinuities: 1 (0 slots skipped)
packets: offered=32643 placed=32637 duplicate=1 late=1 wild=0 short=0 long=0 malformed=3 \
other_flow=1 no_buffer=0 early=0 held=0
malformed packets: vlan=1 fragment=0 ihl=0 checksum=2 not_udp=0
nic: imissed=3 ierrors=2 rx_nombuf=1
tw-producer: steady state: 1000000 turns, 0 allocations, page faults 2 minor 1 major, \
longest turn 0.125 ms
warning: 1 images have a feature or logit that is not a finite number; they are in no statistics

Per-class mean-feature stats (first 2 dims + L2 norm of the mean vector):
  class  0   airplane (n=   126): mean=[0.2014, 0.0331, ...]  |mean|=3.8421
  class  1 automobile (n=   126): mean=[0.2014, 0.0331, ...]  |mean|=3.8421
  unlabelled (n=     2)

accuracy: 0.9560 (239 of 250 images)
confusion table (row: label, column: predicted class):
                           0      1
  class  0   airplane    120      5
  class  1 automobile      6    119
link 0000:01:00.1: went down 2 times, down for 1.2 s; NIC reset 1 times; up at the end
the system's clock was set 1 times
port 0000:01:00.1: rx_good_packets=32643 rx_missed_errors=3
tensorwire: not complete: 252 of 256 images (no packet for quiesce_wait_s) (exit code 4)
";

/// How many packets were in the groups that a kernel dropped is not known, and not claimed.
#[test]
fn a_group_that_was_missed_is_no_packet() {
    let of = |missed| {
        let mut summary = empty(Mode::Rx);
        let rx = Some(NicStats { missed, errors: 2, no_buffer: 1 });
        summary.of_nic(Counted { rx, in_groups: true, ports: Vec::new() });
        let json = serde_json::to_value(&summary).expect("it is plain data");
        let nic = [&json["nic"]["missed"], &json["nic"]["missed_groups"]];
        (nic.map(serde_json::Value::as_u64), summary.to_text().as_str().to_owned())
    };
    let (nic, text) = of(34);
    assert_eq!(nic, [None, Some(34)]);
    assert!(text.contains("\nnic: imissed>=34 (groups) ierrors=2 rx_nombuf=1\n"), "{text}");
    let (nic, text) = of(0);
    assert_eq!(nic, [Some(0), Some(0)]);
    assert!(text.contains("\nnic: imissed=0 ierrors=2 rx_nombuf=1\n"), "{text}");
}

#[test]
fn every_word_of_the_text_stands_where_it_is_looked_for() {
    assert_eq!(full().to_text().as_str(), FULL);
}

#[test]
fn the_originals_runner_finds_its_lines() {
    // The words that its scripts look for at the start of a line, and what they cut out.
    let text = full().to_text();
    let line = |start: &str| text.as_str().lines().find(|line| line.starts_with(start)).is_some();
    for start in [
        "pcap_tx_worker: sent 32768/32768 frames in ",
        "rx_producer_worker: pushed 252 images (reordered_bursts=8 partial=2 dropped=0",
        "inference_consumer_worker: 3 inference batches in ",
        "inference latency (ms): mean=",
        "images=252 batches=8 seconds=2.10 => ",
        "active_seconds=1.00 => ",
        "  class  0   airplane (n=   126): mean=[0.2014, 0.0331, ...]  |mean|=3.8421",
    ] {
        assert!(line(start), "no line begins with '{start}'");
    }
}

#[test]
fn a_run_without_images_shows_no_figure_that_it_does_not_have() {
    let text = String::from(empty(Mode::Rx).to_text());
    assert!(text.contains("images=0 batches=0 seconds=0.00\n"), "{text}");
    for word in ["NaN", "inf ", "latency", "active", "accuracy", "Per-class", "img/s"] {
        assert!(!text.contains(word), "'{word}' in {text}");
    }
    assert!(text.ends_with("tensorwire: not complete: 0 images, none owed (exit code 4)\n"));
}

#[test]
fn a_sender_talks_of_frames_alone() {
    let summary = summary(&silent(), SinkReport::default(), |facts| {
        (facts.mode, facts.owed, facts.producer) = (Mode::Tx, Owed::Frames(10), None);
        facts.tx = Some(TxTotals { frames: 10, sent: 10, seconds: 0.5, ..TxTotals::default() });
    });
    assert_eq!(
        summary.to_text().as_str(),
        "pcap_tx_worker: sent 10/10 frames in 0.500000 s (send_failures=0 fill_failures=0 \
         no_burst_polls=0)\ntensorwire: complete: sent 10 of 10 frames (exit code 0)\n"
    );
}

#[test]
fn withheld_statistics_say_why_in_one_line() {
    let report = SinkReport { withheld: Some("no anchor".to_owned()), ..SinkReport::default() };
    let mut producer = silent();
    producer.join = Some(777);
    let text = String::from(summary(&producer, report, |_| {}).to_text());
    assert!(text.contains("\nclass statistics withheld: no anchor\n"), "{text}");
    assert!(text.contains("\njoined at sequence number 777, at an uncertain place"), "{text}");
}

#[test]
fn l03_nothing_arrived_says_what_was_waited_for() {
    let mut producer = silent();
    producer.end = Some(EndReason::NothingArrived);
    producer.packets.offered = 9;
    producer.packets.other_flow = 9;
    let owing = |owed| {
        let of = |facts: &mut crate::sink::RunFacts<'_>| facts.owed = owed;
        String::from(summary(&producer, SinkReport::default(), of).to_text())
    };
    let text = owing(Owed::Images(256));
    let words = "0 of 256 images (no packet within startup_wait_s) (exit code 4)\n";
    assert!(text.ends_with(words), "{text}");
    assert!(text.contains(" other_flow=9 "), "{text}");
    assert!(text.contains("missing images: 0–255\n"), "{text}");
}

#[test]
fn long_lists_end_in_an_ellipsis_and_failures_in_their_reason() {
    let mut summary = full();
    summary.damaged_ranges = (0..33).map(|i| (2 * i, 2 * i)).collect();
    summary.truncated.missing_ranges = true;
    summary.confusion[0].predicted = vec![0; 21];
    summary.balanced = false;
    let text = String::from(summary.to_text());
    assert!(text.contains(" 60, 62, …\n"), "{text}");
    assert!(text.contains("missing images: 31, …\n"), "{text}");
    assert!(text.contains("confusion table: 2 × 21 classes, see the JSON object\n"), "{text}");
    assert!(text.contains("warning: the counters do not add up"), "{text}");

    let summary = crate::sink::testing::summary(&silent(), SinkReport::default(), |facts| {
        let reason = "enqueueV3 failed (code 2)".to_owned();
        facts.failure = Some(Failure { exit: ExitCode::Device, reason });
    });
    let text = String::from(summary.to_text());
    assert!(text.ends_with("not complete: enqueueV3 failed (code 2) (exit code 5)\n"), "{text}");
}
