use super::*;
use crate::dataset::testkit::{MINI, Random, data_frames, geometry};

/// MINI with another sequence field. A batch is 16 packets, so 12 and 16 bits hold many.
fn with_field(offset: u32, width: u32) -> Geometry {
    geometry(&GeometrySpec { seq_bit_offset: offset, seq_bit_width: width, ..MINI })
}

fn store(frames: &[Vec<u8>]) -> Frames {
    let mut store = Frames::with_room(frames.len(), 256).expect("little");
    for frame in frames {
        store.push(frame).expect("room");
    }
    store
}

fn survey_of(frames: &[Vec<u8>], read_as: &Geometry) -> Result<Numbering, Misfit> {
    survey(&store(frames), read_as)
}

/// Writes 300 frames with one field and reads them with another.
fn misread(written: (u32, u32), read: (u32, u32)) -> Misfit {
    let frames = data_frames(&with_field(written.0, written.1), 0..300);
    survey_of(&frames, &with_field(read.0, read.1)).expect_err("another field")
}

#[test]
fn r12_a_capture_of_another_width_is_refused_and_the_width_named() {
    // 12 bits read as 16: the low bits are those of the IPv4 length, so the numbers go up by 16.
    let misfit = misread((128, 12), (128, 16));
    assert_eq!((misfit.frame, misfit.plain, misfit.steps), (0, 0, 64));
    assert_eq!(misfit.likely, Some((128, 12, 64)));
    assert_eq!(
        misfit.to_string(),
        "its numbers are not 16 bits at bit 128: from frame 0 on, 0 of 64 steps are +1; it was \
         likely written with seq_bit_offset 128, seq_bit_width 12 (64 of 64 are +1)"
    );
    // 16 bits read as 12: sixteen equal numbers in a row.
    let misfit = misread((128, 16), (128, 12));
    assert_eq!((misfit.plain, misfit.likely), (4, Some((128, 16, 64))));
}

#[test]
fn r12_other_widths_and_offsets_are_named() {
    for (written, read) in [
        ((336, 16), (344, 16)),
        ((336, 16), (328, 16)),
        ((336, 16), (128, 12)),
        ((128, 12), (136, 12)),
        ((128, 12), (120, 12)),
        ((128, 12), (336, 16)),
        ((336, 16), (336, 17)),
        ((336, 16), (336, 15)),
        ((352, 12), (352, 24)),
    ] {
        let misfit = misread(written, read);
        let (offset, width, hits) = misfit.likely.expect("found");
        assert_eq!((offset + width, hits), (written.0 + written.1, 64), "{written:?} {read:?}");
        if written != (352, 12) {
            assert_eq!((offset, width), written, "read as {read:?}");
        }
    }
}

#[test]
fn r12_a_mismatch_that_begins_later_is_found() {
    for start in [65, 100, 128, 190, 1000] {
        let mut frames = data_frames(&with_field(128, 12), 0..start);
        frames.extend(data_frames(&with_field(128, 16), start..start + 200));
        let misfit = survey_of(&frames, &with_field(128, 12)).expect_err("another field");
        assert!((misfit.frame + 128) as u64 >= start, "{misfit}, started at {start}");
        assert_eq!(misfit.likely.map(|(offset, width, _)| (offset, width)), Some((128, 16)));
    }
    // Also at the end of the file: the last 38 steps are less than a half of one block and too
    // few in the next.
    let mut frames = data_frames(&with_field(128, 12), 0..480);
    frames.extend(data_frames(&with_field(128, 16), 480..518));
    assert!(survey_of(&frames, &with_field(128, 12)).is_err());
}

#[test]
fn r12_a_wrong_width_is_found_through_losses_and_swaps() {
    let mut random = Random(5);
    for (written, read) in [
        ((128, 12), (128, 16)),
        ((128, 16), (128, 12)),
        ((336, 16), (344, 16)),
        ((336, 16), (328, 16)),
        ((336, 16), (320, 16)), // the UDP checksum: numbers at random
    ] {
        let frames = data_frames(&with_field(written.0, written.1), 0..4000);
        let mut lossy = frames.clone();
        lossy.retain(|_| random.below(4) > 0);
        let shuffled = random.shuffle(frames, 20);
        assert!(survey_of(&lossy, &with_field(read.0, read.1)).is_err(), "{written:?}, losses");
        assert!(survey_of(&shuffled, &with_field(read.0, read.1)).is_err(), "{written:?}, swaps");
    }
}

#[test]
fn r12_numbers_that_do_not_count_by_one_are_refused() {
    let geometry = with_field(336, 16);
    for (step, reason) in [(3, MisfitReason::Step(3)), (65_535, MisfitReason::Step(-1))] {
        let frames = data_frames(&geometry, (0..200).map(|i| i * step));
        assert_eq!(survey_of(&frames, &geometry).expect_err("no count").reason, reason);
    }
}

/// Streams as a receiver may meet them, for every field that configurations use.
#[test]
fn recorded_captures_are_taken_as_they_are() {
    for (offset, width) in [(128, 12), (128, 16), (336, 16), (336, 32)] {
        let geometry = with_field(offset, width);
        let all = data_frames(&geometry, 0..2000);
        let plain = || all.clone();
        for seed in 0..3 {
            let mut random = Random(seed);
            let accept = |frames: Vec<Vec<u8>>, what: &str| {
                let result = survey_of(&frames, &geometry);
                assert!(result.is_ok(), "bit {offset}, width {width}, seed {seed}: {what}");
            };
            for percent in [1, 10, 30, 50, 70] {
                let mut lossy = plain();
                lossy.retain(|_| random.below(100) >= percent);
                accept(lossy, "losses");
            }
            for reach in [1, 3, 20, 200] {
                accept(random.shuffle(plain(), reach), "swaps");
            }
            let mut doubled: Vec<_> = plain().into_iter().flat_map(|f| [f.clone(), f]).collect();
            accept(doubled.clone(), "every frame twice");
            doubled = random.shuffle(doubled, 8);
            accept(doubled, "every frame twice, shuffled");
            let mut bursts = plain();
            for _ in 0..20 {
                let at = usize::try_from(random.below(1500)).expect("small");
                let end = (at + 60).min(bursts.len());
                bursts.drain(at.min(end)..end);
            }
            accept(bursts, "bursts of losses");
        }
        accept_special(&geometry);
    }
}

fn accept_special(geometry: &Geometry) {
    let accept = |numbers: Vec<u64>, what: &str| {
        let result = survey_of(&data_frames(geometry, numbers), geometry);
        assert!(result.is_ok(), "{what}: {result:?}");
    };
    accept((0..300).flat_map(|i| [2 * i + 1, 2 * i]).collect(), "neighbours swapped");
    accept((0..300).flat_map(|i| [i, i + 400]).collect(), "two senders in turn");
    accept((0..700).map(|i| i % 16).collect(), "one batch repeated");
    accept((0..200).chain(0..200).collect(), "a restart");
    accept((3777..4500).collect(), "a join in the middle, through the wrap");
    accept(vec![], "nothing");
    accept(vec![7], "one frame");
    accept(vec![0, 2, 4, 1], "too few to judge");
}

fn numbering(geometry: &Geometry, numbers: impl IntoIterator<Item = u64>) -> (u64, bool) {
    let seen = survey_of(&data_frames(geometry, numbers), geometry).expect("accepted");
    (seen.images, seen.anchored)
}

#[test]
fn the_span_counts_lost_images() {
    let mini = geometry(&MINI);
    assert_eq!(numbering(&mini, 0..16), (4, true));
    assert_eq!(numbering(&mini, 0..17), (5, true));
    // The first two images are lost, and all but the first packet of the last one.
    assert_eq!(numbering(&mini, 8..29), (8, true));
    // Image 5 is lost as a whole.
    assert_eq!(numbering(&mini, (0..20).chain(24..32)), (8, true));
    assert_eq!(numbering(&mini, []), (0, true));
}

#[test]
fn the_span_goes_on_through_the_wrap() {
    let mini = geometry(&MINI);
    assert_eq!(numbering(&mini, 0..1000), (250, true));
    let mut random = Random(3);
    let shuffled = random.shuffle((0..1000).collect(), 3);
    assert_eq!(numbering(&mini, shuffled), (250, true));
}

#[test]
fn the_span_of_a_join_begins_with_its_own_image() {
    let mini = geometry(&MINI);
    // MINI's step is min(16/2, 256/8) = 8.
    assert_eq!(numbering(&mini, 9..32), (6, false));
    assert_eq!(numbering(&mini, [13, 12, 9, 14, 15]), (2, false));
}

#[test]
fn one_wild_number_moves_nothing() {
    let mini = geometry(&MINI);
    assert_eq!(numbering(&mini, (0..10).chain([100]).chain(10..16)), (4, true));
    // Two that agree are a jump: the images between are lost.
    assert_eq!(numbering(&mini, (0..10).chain(100..104)), (26, true));
    // A sender that restarts sends the same images again.
    assert_eq!(numbering(&mini, (0..64).chain(0..64)), (16, true));
}
