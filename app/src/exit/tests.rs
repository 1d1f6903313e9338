use super::*;
use crate::sink::{Mode, TxTotals};

/// The summary of a run that delivered `delivered` images and sent `sent` frames.
fn summary(delivered: u64, sent: Option<u64>) -> Summary {
    let mut summary = crate::sink::testing::empty(Mode::Both);
    summary.images.delivered = delivered;
    summary.images.expected = delivered;
    summary.tx = sent.map(|sent| TxTotals { sent, ..TxTotals::default() });
    summary
}

#[test]
fn the_numbers_are_those_of_the_documentation() {
    let codes = ExitCode::ALL.map(ExitCode::code);
    assert_eq!(codes, [0, 1, 1, 1, 2, 3, 4, 5, 6, 7, 8, 130, 143]);
}

#[test]
fn reasons_are_distinct_lower_case_and_without_full_stop() {
    let words: Vec<String> = ExitCode::ALL.iter().map(ToString::to_string).collect();
    for (i, word) in words.iter().enumerate() {
        assert!(word.starts_with(char::is_lowercase) && !word.ends_with('.'), "{word}");
        assert!(!words[..i].contains(word), "{word} twice");
    }
}

#[test]
fn l03_s03_what_is_owed_decides() {
    use Owed::{Frames, Images, SomeFrame, SomeImage};
    let table = [
        // (owed, images delivered, frames sent, code, words)
        (Images(256), 256, None, ExitCode::Complete, "256 of 256 images"),
        (Images(256), 255, None, ExitCode::Owed, "255 of 256 images"),
        (Images(256), 0, None, ExitCode::Owed, "0 of 256 images"),
        (Images(256), 300, None, ExitCode::Complete, "300 of 256 images"),
        // S03: twelve labels, eight images.
        (Images(12), 8, Some(1024), ExitCode::Owed, "8 of 12 images"),
        // Nothing owed and nothing arrived is no success.
        (Images(0), 0, None, ExitCode::Owed, "0 of 0 images"),
        (SomeImage, 0, None, ExitCode::Owed, "0 images, none owed"),
        (SomeImage, 0, Some(4096), ExitCode::Owed, "0 images, none owed"),
        (SomeImage, 1, None, ExitCode::Complete, "1 images, none owed"),
        // A sender: its frames count, whatever is received.
        (Frames(4096), 0, Some(4096), ExitCode::Complete, "sent 4096 of 4096 frames"),
        (Frames(4096), 0, Some(4095), ExitCode::Owed, "sent 4095 of 4096 frames"),
        (Frames(0), 0, Some(0), ExitCode::Owed, "sent 0 of 0 frames"),
        (Frames(1), 0, None, ExitCode::Owed, "sent 0 of 1 frames"),
        (SomeFrame, 0, Some(0), ExitCode::Owed, "sent 0 frames, none owed"),
        (SomeFrame, 0, Some(1), ExitCode::Complete, "sent 1 frames, none owed"),
    ];
    for (owed, delivered, sent, exit, words) in table {
        let summary = summary(delivered, sent);
        assert_eq!(decide(&summary, owed), exit, "{owed:?}: {words}");
        assert_eq!(reason(&summary, owed, exit), words);
    }
}

#[test]
fn what_ended_the_reception_explains_what_is_owed() {
    let mut short = summary(8, None);
    short.ended_by = Some("no packet for quiesce_wait_s".to_owned());
    let owed = Owed::Images(12);
    let words = "8 of 12 images (no packet for quiesce_wait_s)";
    assert_eq!(reason(&short, owed, ExitCode::Owed), words);
    // It needs no explanation where nothing is owed any more.
    assert_eq!(reason(&short, Owed::Images(8), ExitCode::Complete), "8 of 8 images");
}

#[test]
fn losses_without_a_debt_are_no_failure() {
    let mut summary = summary(10, None);
    summary.images.damaged = 3;
    summary.images.missing = 2;
    summary.images.dropped.queue_full = 7;
    summary.images.dropped.policy = 1;
    assert_eq!(decide(&summary, Owed::SomeImage), ExitCode::Complete);
}

#[test]
fn a_failure_decides_before_what_is_owed() {
    let owed = Owed::Images(1);
    let mut all = summary(1, None);
    all.images.dropped.sink_failed = 2;
    assert_eq!(decide(&all, owed), ExitCode::File);
    assert_eq!(reason(&all, owed, ExitCode::File), "the sink could not take 2 images");
    all.images.dropped.infer_failed = 4;
    assert_eq!(decide(&all, owed), ExitCode::Device);
    assert_eq!(reason(&all, owed, ExitCode::Device), "inference failed for 4 images");
    all.balanced = false;
    assert_eq!(decide(&all, owed), ExitCode::Internal);
    assert_eq!(reason(&all, owed, ExitCode::Internal), "the accounting does not balance");
    let words = "enqueueV3 failed (code 2)".to_owned();
    all.failure = Some(Failure { exit: ExitCode::Device, reason: words.clone() });
    assert_eq!(decide(&all, owed), ExitCode::Device);
    assert_eq!(reason(&all, owed, ExitCode::Device), words);
}
