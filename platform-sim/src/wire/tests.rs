use proptest::prelude::*;

use super::*;
use crate::testkit::{lend, read_frame, send, write_frame};

/// A queue that notes what it is sent, and takes as much as it is told to.
#[derive(Debug, Default)]
struct Sink {
    got: Vec<u64>,
    room: usize,
    finished: bool,
    /// Frames that came by `send_from`.
    lent: usize,
}

impl TxQueue for Sink {
    fn room(&mut self) -> usize {
        self.room
    }

    fn send(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) -> Result<(), SendError> {
        assert!(!self.finished, "no frame follows the end");
        if self.room == 0 {
            return Err(SendError::Full);
        }
        self.room -= 1;
        let mut frame = vec![0xaa; len];
        fill(&mut frame);
        self.got.push(read_frame(&frame));
        Ok(())
    }

    fn send_from(&mut self, frame: &[u8], patch: impl FnOnce(&mut [u8])) -> Result<(), SendError> {
        self.send(frame.len(), |out| write_patched(out, frame, patch))?;
        self.lent += 1;
        Ok(())
    }

    fn flush(&mut self) {}

    fn finish(&mut self) -> bool {
        self.finished = true;
        true
    }

    fn stats(&self) -> TxStats {
        TxStats { sent: self.got.len() as u64, ..TxStats::default() }
    }
}

fn every(n: u64) -> Option<NonZeroU64> {
    NonZeroU64::new(n)
}

fn faulty(faults: WireFaults, room: usize) -> Faulty<Sink> {
    Faulty::new(Sink { room, ..Sink::default() }, faults, 256).expect("a small distance")
}

fn check_balance(wire: &Faulty<Sink>) {
    let (stats, behind) = (wire.stats(), wire.inner().stats());
    // A frame whose first copy is out is still held, and its copy is already counted.
    assert_eq!(
        stats.sent + stats.wire_duplicated,
        stats.wire_dropped + behind.sent + wire.held() as u64
    );
}

/// What comes out when nothing is ever in the way.
fn run(faults: WireFaults, frames: u64) -> (Vec<u64>, TxStats) {
    let mut wire = faulty(faults, usize::MAX);
    for n in 0..frames {
        send(&mut wire, n).expect("there is room");
        assert!(wire.held() <= faults.shuffle as usize);
        check_balance(&wire);
    }
    assert!(wire.finish());
    check_balance(&wire);
    (wire.inner.got.clone(), wire.stats())
}

/// The same of frames that are lent.
fn run_lent(faults: WireFaults, frames: u64) -> (Vec<u64>, TxStats) {
    let mut wire = faulty(faults, usize::MAX);
    for n in 0..frames {
        lend(&mut wire, n).expect("there is room");
        check_balance(&wire);
    }
    assert!(wire.finish());
    (wire.inner.got.clone(), wire.stats())
}

#[test]
fn frames_that_are_lent_meet_the_same_faults() {
    let shuffled = WireFaults { shuffle: 20, seed: 5, ..WireFaults::default() };
    for faults in [
        WireFaults::default(),
        WireFaults { drop: every(10), ..WireFaults::default() },
        WireFaults { dup: every(3), ..WireFaults::default() },
        shuffled,
        WireFaults { drop: every(7), dup: every(4), ..shuffled },
    ] {
        assert_eq!(run_lent(faults, 500), run(faults, 500), "{faults:?}");
    }
}

#[test]
fn a_frame_that_is_lent_and_not_held_goes_on_as_it_lies() {
    let faults = WireFaults { drop: every(3), ..WireFaults::default() };
    let mut wire = faulty(faults, 10);
    let mut patched = 0;
    for _ in 0..9 {
        let mut frame = vec![0; 100];
        write_frame(5, &mut frame);
        wire.send_from(&frame, |front| {
            assert_eq!(front, &frame[..64]);
            patched += 1;
        })
        .expect("room");
    }
    assert_eq!((wire.inner.lent, patched), (6, 9), "what is lost is patched too");
    assert_eq!(wire.inner.got, [5; 6]);
}

#[test]
fn no_faults_change_nothing() {
    let (got, stats) = run(WireFaults::default(), 50);
    assert!(got.iter().copied().eq(0..50));
    assert_eq!(stats, TxStats { sent: 50, ..TxStats::default() });
}

#[test]
fn every_nth_frame_is_lost() {
    let (got, stats) = run(WireFaults { drop: every(10), ..WireFaults::default() }, 35);
    assert!(got.iter().copied().eq((0..35).filter(|n| (n + 1) % 10 != 0)));
    assert_eq!(stats, TxStats { sent: 35, wire_dropped: 3, wire_duplicated: 0 });
    let (got, _) = run(WireFaults { drop: every(1), ..WireFaults::default() }, 5);
    assert!(got.is_empty());
}

#[test]
fn every_nth_frame_comes_twice() {
    let (got, stats) = run(WireFaults { dup: every(3), ..WireFaults::default() }, 7);
    assert_eq!(got, [0, 1, 2, 2, 3, 4, 5, 5, 6]);
    assert_eq!(stats, TxStats { sent: 7, wire_dropped: 0, wire_duplicated: 2 });
}

#[test]
fn a_frame_that_is_lost_is_not_doubled() {
    let (got, stats) =
        run(WireFaults { drop: every(4), dup: every(2), ..WireFaults::default() }, 8);
    assert_eq!(got, [0, 1, 1, 2, 4, 5, 5, 6]);
    assert_eq!(stats, TxStats { sent: 8, wire_dropped: 2, wire_duplicated: 2 });
}

#[test]
fn the_shuffle_is_a_permutation_within_its_distance() {
    for shuffle in [1, 2, 5, 200] {
        let (got, _) = run(WireFaults { shuffle, seed: 3, ..WireFaults::default() }, 3000);
        let mut sorted = got.clone();
        sorted.sort_unstable();
        assert!(sorted.into_iter().eq(0..3000));
        let moved = got.iter().enumerate().map(|(at, n)| n.abs_diff(at as u64)).max();
        let moved = moved.expect("3000 frames");
        assert!(moved <= u64::from(shuffle), "{moved} places at {shuffle}");
        assert!(moved * 2 >= u64::from(shuffle), "only {moved} places at {shuffle}");
    }
}

#[test]
fn the_seed_decides_the_permutation() {
    let of = |seed| run(WireFaults { shuffle: 20, seed, ..WireFaults::default() }, 500).0;
    assert_eq!(of(1), of(1));
    assert_ne!(of(1), of(2));
}

#[test]
fn copies_stay_together_when_shuffled() {
    let faults = WireFaults { dup: every(5), shuffle: 9, seed: 1, ..WireFaults::default() };
    let (got, stats) = run(faults, 100);
    assert_eq!((got.len(), stats.wire_duplicated), (120, 20));
    for pair in 0..20 {
        let n = pair * 5 + 4;
        let at = got.iter().position(|x| *x == n).expect("it was sent");
        assert_eq!(got[at + 1], n);
    }
}

#[test]
fn limits_are_errors() {
    let faults = WireFaults { shuffle: MAX_SHUFFLE + 1, ..WireFaults::default() };
    let error = Faulty::new(Sink::default(), faults, 64).map(|_| ()).expect_err("too far");
    assert_eq!(error.to_string(), "a shuffle distance of 65537, allowed 0 to 65536");
    for faults in [WireFaults::default(), WireFaults { shuffle: 2, ..WireFaults::default() }] {
        let mut wire = faulty(faults, 1);
        let error = wire.send(257, |_| panic!("must not be called")).expect_err("too long");
        assert_eq!(error, SendError::TooLong { len: 257, room: 256 });
        let lent = wire.send_from(&[0; 257], |_| panic!("must not be called"));
        assert_eq!(lent, Err(error));
        assert_eq!(wire.stats(), TxStats::default());
    }
}

#[test]
fn a_queue_without_room_is_reported_as_full_in_the_end() {
    let mut wire = faulty(WireFaults { dup: every(1), ..WireFaults::default() }, 0);
    let accepted = (0..1000).take_while(|n| send(&mut wire, *n).is_ok()).count();
    assert_eq!((accepted, wire.room(), wire.finish()), (1 + BACKLOG, 0, false));
    wire.inner_mut().room = 1000;
    assert!(wire.finish());
    assert_eq!(wire.inner().got.len(), 2 * accepted);
    check_balance(&wire);
}

#[test]
fn room_is_never_more_than_the_wire_holds() {
    let mut wire = faulty(WireFaults { shuffle: 3, ..WireFaults::default() }, 1000);
    assert_eq!(wire.room(), 3 + 1 + BACKLOG);
    // The queue behind takes nothing although it said otherwise, as when others share it.
    let room = wire.room() as u64;
    wire.inner_mut().room = 0;
    assert!((0..room).all(|n| send(&mut wire, n).is_ok()));
    assert_eq!(send(&mut wire, room), Err(SendError::Full));
}

proptest! {
    #[test]
    fn a_slow_queue_changes_nothing_of_what_comes_out(
        drop in 0..8_u64,
        dup in 0..8_u64,
        shuffle in 0..12_u32,
        seed in any::<u64>(),
        rooms in proptest::collection::vec(0..6_usize, 1..80),
    ) {
        let faults = WireFaults { drop: every(drop), dup: every(dup), shuffle, seed };
        let mut wire = faulty(faults, 0);
        let mut n = 0;
        for room in rooms {
            wire.inner_mut().room = room;
            // What `room` offers is taken, all of it.
            for _ in 0..wire.room() {
                prop_assert_eq!(send(&mut wire, n), Ok(()));
                n += 1;
                check_balance(&wire);
            }
            wire.flush();
        }
        wire.inner_mut().room = 0;
        let mut turns = 0;
        while !wire.finish() {
            wire.inner_mut().room = 1;
            turns += 1;
            prop_assert!(turns < 1000, "the wire does not drain");
        }
        check_balance(&wire);
        let (expected, stats) = run(faults, n);
        prop_assert_eq!(&wire.inner().got, &expected);
        prop_assert_eq!(wire.stats(), stats);
    }
}
