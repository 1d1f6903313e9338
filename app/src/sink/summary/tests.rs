use tensorwire_core::port::StageError;

use super::*;
use crate::sink::testing::{full, silent, summary};

/// Packets of an image of the documented geometry.
const SIZE: u64 = 128;

/// A receiver that had to bring `owed` images and joined a stream of the images `[first, end)`.
fn received(owed: u64, delivered: u64, stream: (u64, u64), missing: &[(u64, u64)]) -> Summary {
    changed(owed, delivered, stream, missing, |_| {})
}

fn changed(
    owed: u64,
    delivered: u64,
    (first, end): (u64, u64),
    missing: &[(u64, u64)],
    change: impl FnOnce(&mut ProducerReport),
) -> Summary {
    let mut producer = silent();
    for &(first, last) in missing {
        producer.missing.add(first, last);
        producer.images.missing += last - first + 1;
    }
    producer.images.pending = delivered;
    if end > 0 {
        producer.join = Some(u32::try_from(first * SIZE + 5).expect("a small stream"));
        producer.next = end * SIZE - 3;
    }
    change(&mut producer);
    summary(&producer, SinkReport::default(), |facts| {
        facts.owed = Owed::Images(owed);
        facts.consumer.delivered = delivered;
    })
}

#[test]
fn l03_images_that_never_showed_are_missing_by_name() {
    let summary = received(256, 0, (0, 0), &[]);
    assert_eq!((summary.images.expected, summary.images.missing), (256, 256));
    assert_eq!((summary.images.owed, summary.images.pending), (Some(256), 0));
    assert_eq!(summary.missing_ranges, [(0, 255)]);
    assert_eq!((summary.exit, summary.exit_code), (ExitCode::Owed, 4));
    assert_eq!(summary.exit_reason, "0 of 256 images");
    assert!(summary.balanced);
}

#[test]
fn the_ends_of_the_pass_that_the_stream_left_out_are_named() {
    // Joined at image 3, ended with image 254; 4, 5, 253 and 254 lost.
    let summary = received(256, 248, (3, 255), &[(4, 5), (253, 254)]);
    assert_eq!((summary.images.expected, summary.images.missing), (256, 8));
    assert_eq!(summary.missing_ranges, [(0, 2), (4, 5), (253, 255)]);
    assert!(summary.balanced);
    // They join the ranges that they touch.
    let summary = received(10, 5, (3, 9), &[(3, 3)]);
    assert_eq!(summary.missing_ranges, [(0, 3), (9, 9)]);
    // An unfinished image, and dropped ones, were in the stream.
    let cut = |producer: &mut ProducerReport| {
        producer.images.unfinished = 1;
        producer.images.dropped.policy = 3;
    };
    let summary = changed(10, 4, (0, 8), &[], cut);
    assert_eq!((summary.missing_ranges, summary.images.missing), (vec![(8, 9)], 2));
}

#[test]
fn an_owed_image_that_the_end_cut_off_is_damaged_by_name() {
    let cut = |owed, stream| {
        let summary = changed(owed, 6, stream, &[], |producer| {
            producer.damaged.add(4, 4);
            producer.images.damaged = 1;
            producer.images.unfinished = 1;
        });
        assert!(summary.balanced);
        assert_eq!(summary.images.expected, summary.images.sum());
        (summary.images.damaged, summary.images.unfinished, summary.damaged_ranges)
    };
    assert_eq!(cut(8, (0, 8)), (2, 0, vec![(4, 4), (7, 7)]));
    // Next to another one.
    assert_eq!(cut(8, (0, 6)), (2, 0, vec![(4, 5)]));
    // Behind what is owed: nobody waits for it.
    assert_eq!(cut(7, (0, 8)), (1, 1, vec![(4, 4)]));
    // Of an unknown place: joined beyond a step.
    assert_eq!(cut(256, (4, 12)), (1, 1, vec![(4, 4)]));
}

#[test]
fn images_whose_index_is_not_known_are_counted_and_not_named() {
    let check = |summary: Summary, missing| {
        assert_eq!((summary.images.missing, summary.missing_ranges.len()), (missing, 0));
        assert!(summary.balanced);
    };
    // Joined at number 517, beyond a step: of which round through the numbers is not known.
    check(received(256, 196, (4, 200), &[]), 60);
    // More is missing than the two ends leave room for: a sender that started again.
    check(received(256, 200, (0, 250), &[]), 56);
}

#[test]
fn a_swap_at_the_start_does_not_make_the_first_image_missing() {
    // The first packet accepted is of image 1; image 0 came whole behind it. Image 9 never came.
    let mut producer = silent();
    (producer.join, producer.next) = (Some(130), 9 * 128);
    producer.images.pending = 9;
    let report = SinkReport { span: Some((0, 9)), ..SinkReport::default() };
    let summary = summary(&producer, report, |facts| {
        facts.owed = Owed::Images(10);
        facts.consumer.delivered = 9;
    });
    assert_eq!(summary.missing_ranges, [(9, 9)]);
}

#[test]
fn nothing_is_added_to_a_run_that_brought_what_it_owed() {
    let summary = received(256, 256, (0, 256), &[]);
    assert_eq!(summary.exit, ExitCode::Complete);
    assert_eq!((summary.images.expected, summary.images.missing), (256, 0));
    assert!(summary.missing_ranges.is_empty());
}

#[test]
fn a_list_that_is_full_stays_bounded() {
    let mut list = Ranges { list: (1..=1000).map(|i| (2 * i, 2 * i)).collect(), truncated: false };
    list.add_before(0);
    list.add_behind(2001, 2001);
    assert!(!list.truncated);
    list.add_behind(2001, 2003);
    assert_eq!((list.list.len(), list.list[999]), (1000, (2000, 2002)));
    list.add_before(1);
    assert_eq!((list.list.len(), list.list[0], list.list[999]), (1000, (0, 0), (1998, 1998)));
    assert!(list.truncated);
    let before = list.list.clone();
    list.add_behind(3000, 3001);
    assert_eq!(list.list, before);
}

#[test]
fn images_handed_over_come_back_from_the_consumer_under_one_cause() {
    let mut producer = silent();
    producer.images.pending = 100;
    producer.images.dropped.infer_failed = 4;
    let of = |delivered, infer_failed, sink_failed| {
        summary(&producer, SinkReport::default(), |facts| {
            facts.consumer =
                ConsumerCounters { delivered, infer_failed, sink_failed, ..Default::default() };
        })
    };
    let all = of(90, 7, 3);
    assert_eq!((all.images.delivered, all.images.pending, all.images.expected), (90, 0, 104));
    assert_eq!((all.images.dropped.infer_failed, all.images.dropped.sink_failed), (11, 3));
    assert!(all.balanced);
    assert_eq!(of(90, 0, 0).images.pending, 10);
    // More came back than was handed over.
    assert!(!of(101, 0, 0).balanced);
}

#[test]
fn a_leak_in_the_accounting_is_an_internal_fault() {
    let leaky = |change: fn(&mut ProducerReport)| {
        let mut producer = silent();
        change(&mut producer);
        let summary = summary(&producer, SinkReport::default(), |_| {});
        (summary.balanced, summary.exit_code)
    };
    assert_eq!(leaky(|producer| producer.packets.offered = 1), (false, 6));
    assert_eq!(leaky(|producer| producer.reassembly.slots.batches = 1), (false, 6));
    assert_eq!(leaky(|_| {}), (true, 4));
}

#[test]
fn g05_a_stage_that_gave_up_decides_how_the_run_ends() {
    let error = StageError { call: "enqueueV3", code: 2, fatal: true };
    let mut producer = silent();
    producer.end = Some(EndReason::ReorderFailed(error));
    let with = |consumer_failure, failure| {
        let summary = summary(&producer, SinkReport::default(), |facts| {
            (facts.consumer_failure, facts.failure) = (consumer_failure, failure);
        });
        (summary.exit, summary.exit_reason)
    };
    let (exit, reason) = with(None, None);
    assert_eq!(
        (exit, &reason[..]),
        (ExitCode::Device, "reorder failed: enqueueV3 failed (code 2)")
    );
    let (exit, reason) = with(Some(ConsumerFailure::Infer(error)), None);
    assert_eq!((exit, &reason[..]), (ExitCode::Device, "inference: enqueueV3 failed (code 2)"));
    let fault = tensorwire_core::port::SinkFault { fatal: true };
    assert_eq!(with(Some(ConsumerFailure::Sink(fault)), None).0, ExitCode::File);
    let turn =
        ConsumerFailure::OutOfTurn { expected: None, reported: tensorwire_core::port::Ticket(3) };
    assert_eq!(with(Some(turn), None).0, ExitCode::Internal);
    let told = Failure { exit: ExitCode::File, reason: "features: no room".to_owned() };
    assert_eq!(
        with(Some(ConsumerFailure::Sink(fault)), Some(told)),
        (ExitCode::File, "features: no room".to_owned())
    );
}

#[test]
fn figures_by_hand() {
    let summary = full();
    assert!(summary.balanced);
    assert_eq!(summary.images.expected, 256);
    assert_eq!(summary.accuracy, Some(239.0 / 250.0));
    let mean = summary.infer_ms.mean.expect("samples");
    assert!((mean - (8.4 + 8.5 + 9.36) / 3.0).abs() < 1e-12, "{mean}");
    assert_eq!(summary.infer_ms.n, 3);
    // 32,637 × 1176 B × 8 in 10 ms.
    let gbps = summary.rate.rx_payload_gbps.expect("packets came");
    assert!((gbps - 30.704_889_6).abs() < 1e-9, "{gbps}");
}
