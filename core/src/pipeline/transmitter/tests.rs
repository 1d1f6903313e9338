//! The transmitter over a queue that keeps every frame, under a clock of the test's own.

use std::cell::Cell;
use std::rc::Rc;

use super::*;
use crate::counters::TxStats;
use crate::geometry::{Geometry, GeometrySpec};
use crate::header::{HeaderSpec, PacketCheck, Verify, build, set_sequence};
use crate::port::write_patched;
use crate::{flow::FlowMatch, flow::FlowTable};

/// Keeps what is sent; takes `room` frames at a time, and holds some back until it is finished.
#[derive(Debug)]
struct Queue {
    sent: Vec<Vec<u8>>,
    room: Rc<Cell<usize>>,
    longest: usize,
    /// Flushes that `finish` still needs.
    held: usize,
    /// Sends that are refused although there was room.
    refuses: usize,
    /// Frames taken from where they lie.
    lent: usize,
}

impl Queue {
    fn new(room: usize) -> (Self, Rc<Cell<usize>>) {
        let room = Rc::new(Cell::new(room));
        (
            Self {
                sent: Vec::new(),
                room: room.clone(),
                longest: 9_000,
                held: 3,
                refuses: 0,
                lent: 0,
            },
            room,
        )
    }
}

impl TxQueue for Queue {
    fn room(&mut self) -> usize {
        self.room.get()
    }

    fn send(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) -> Result<(), SendError> {
        if len > self.longest {
            return Err(SendError::TooLong { len, room: self.longest });
        }
        if self.room.get() == 0 || self.refuses > 0 {
            self.refuses = self.refuses.saturating_sub(1);
            return Err(SendError::Full);
        }
        // Bytes of an earlier frame, which `fill` has to overwrite.
        let mut frame = vec![0xEE; len];
        fill(&mut frame);
        self.sent.push(frame);
        Ok(())
    }

    fn send_from(&mut self, frame: &[u8], patch: impl FnOnce(&mut [u8])) -> Result<(), SendError> {
        self.send(frame.len(), |out| write_patched(out, frame, patch))?;
        self.lent += 1;
        Ok(())
    }

    fn flush(&mut self) {}

    fn finish(&mut self) -> bool {
        self.held = self.held.saturating_sub(1);
        self.held == 0
    }

    fn stats(&self) -> TxStats {
        TxStats { sent: self.sent.len() as u64, ..TxStats::default() }
    }
}

/// One batch of MINI packets, numbered from 0, with right checksums.
struct Batch {
    geometry: Geometry,
    frames: Vec<Vec<u8>>,
}

impl Batch {
    /// 16 packets; the field is 8 bits wide at `offset`.
    fn new(offset: u32, count: u32) -> Self {
        let geometry = Geometry::new(&GeometrySpec {
            height: 16,
            width: 16,
            packets_per_image: 4,
            images_per_batch: 4,
            payload_bytes: 192,
            seq_bit_offset: offset,
            seq_bit_width: 8,
            payload_byte_offset: if offset > 504 { 128 } else { 64 },
            ..GeometrySpec::DOCUMENTED
        })
        .expect("MINI is legal");
        let spec = HeaderSpec {
            eth_src: [2, 0, 0, 0, 0, 1],
            eth_dst: [2, 0, 0, 0, 0, 2],
            ip_src: [1, 1, 1, 1],
            ip_dst: [2, 2, 2, 2],
            udp_src: 4096,
            udp_dst: 4096,
        };
        let frames = (0..count).map(|number| {
            let mut frame = vec![number.to_le_bytes()[0]; geometry.frame_bytes()];
            build(&spec, &mut frame).expect("a frame");
            assert!(set_sequence(&mut frame, geometry.seq_field(), number % 256));
            frame
        });
        Self { geometry, frames: frames.collect() }
    }

    fn numbers(&self, sent: &[Vec<u8>]) -> Vec<u32> {
        sent.iter().map(|frame| self.geometry.seq_field().read(frame).expect("a number")).collect()
    }
}

impl FrameSource for &Batch {
    fn frames(&self) -> u64 {
        self.frames.len() as u64
    }

    fn len(&self, index: u64) -> usize {
        self.frames[place(index)].len()
    }

    fn write(&self, index: u64, out: &mut [u8]) {
        out.copy_from_slice(&self.frames[place(index)]);
    }
}

/// The same batch, lent.
struct Lent<'b>(&'b Batch);

impl FrameSource for Lent<'_> {
    fn frames(&self) -> u64 {
        self.0.frames()
    }

    fn len(&self, index: u64) -> usize {
        self.0.len(index)
    }

    fn write(&self, index: u64, out: &mut [u8]) {
        self.0.write(index, out);
    }

    fn lent(&self, index: u64) -> Option<&[u8]> {
        Some(&self.0.frames[place(index)])
    }
}

fn place(index: u64) -> usize {
    usize::try_from(index).expect("a small number")
}

const PLAIN: TransmitterConfig = TransmitterConfig {
    passes: Some(1),
    renumber: None,
    eth_dst: None,
    pacing_mbps: 0,
    stall_after: Nanos::from_secs(1),
};

/// Steps to the end. A step is a microsecond; a wait that is over soon is slept through.
fn drive<F: FrameSource>(transmitter: &mut Transmitter<Queue, F>) -> Nanos {
    let mut now = Nanos::from_secs(1);
    for _ in 0..1_000_000 {
        let soon = now.plus(Nanos::from_micros(1));
        now = match transmitter.step(now) {
            Next::Wait(Some(at)) if at.since(now) < Nanos::from_millis(1) => at,
            Next::Again | Next::Wait(_) => soon,
            Next::Done => return now.since(Nanos::from_secs(1)),
        }
    }
    panic!("no end");
}

#[test]
fn one_pass_sends_every_frame_as_it_is() {
    let batch = Batch::new(128, 16);
    let (queue, _) = Queue::new(5);
    let mut transmitter = Transmitter::new(PLAIN, queue, &batch);
    assert_eq!(transmitter.owed(), Some(16));
    drive(&mut transmitter);
    assert_eq!(transmitter.end(), Some(TransmitEnd::Sent));
    assert_eq!(transmitter.queue().sent, batch.frames);
    assert_eq!(transmitter.counters().sent, 16);
    assert_eq!(transmitter.counters().bytes, 16 * 256);
    assert_eq!(transmitter.queue().held, 0, "what the queue held back went out");
}

#[test]
fn a_loop_goes_on_counting_and_keeps_the_checksums_right() {
    // At bit 128 the field lies on the IPv4 length, at 336 behind UDP: both checksums must hold.
    for (offset, verify) in [(128, Verify::Ip), (336, Verify::Udp)] {
        let batch = Batch::new(offset, 16);
        let field = batch.geometry.seq_field();
        let (queue, _) = Queue::new(64);
        let config = TransmitterConfig { passes: Some(20), renumber: Some((field, 16)), ..PLAIN };
        let mut transmitter = Transmitter::new(config, queue, &batch);
        drive(&mut transmitter);
        let sent = &transmitter.queue().sent;
        let expected: Vec<u32> = (0..320).map(|n| n % 256).collect();
        assert_eq!(batch.numbers(sent), expected, "field at bit {offset}");
        let mut flows = FlowTable::new();
        flows.push(&FlowMatch::any(0)).expect("room");
        let check = PacketCheck::new(&batch.geometry, &flows, verify, false);
        for frame in sent {
            assert!(check.check(frame, 256, 0).is_ok(), "field at bit {offset}");
        }
    }
}

#[test]
fn frames_that_are_lent_go_out_as_those_that_are_written() {
    // The field at every bit of a header of 128 bytes, so also on everything that the checksums
    // cover, on the UDP length, and beyond the front that a queue has patched.
    for offset in 0..=1024 - 8 {
        let mut batch = Batch::new(offset, 6);
        batch.frames[4].truncate(70);
        batch.frames[5].truncate(30);
        let field = batch.geometry.seq_field();
        let eth_dst = (offset % 2 == 0).then_some([0x48, 0xB0, 0x2D, 1, 2, 3]);
        let renumber = Some((field, 37));
        let config = TransmitterConfig { passes: Some(3), renumber, eth_dst, ..PLAIN };
        let mut written = Transmitter::new(config, Queue::new(64).0, &batch);
        drive(&mut written);
        let mut lent = Transmitter::new(config, Queue::new(64).0, Lent(&batch));
        drive(&mut lent);
        assert_eq!(lent.queue().sent, written.queue().sent, "field at bit {offset}");
        assert_eq!(lent.counters(), written.counters(), "field at bit {offset}");
        let in_front = offset <= 512 - 8 && !(297..320).contains(&offset);
        let expected = if in_front { 18 } else { 0 };
        assert_eq!((written.queue().lent, lent.queue().lent), (0, expected), "at bit {offset}");
    }
}

#[test]
fn a_pass_with_losses_is_as_long_as_it_was_without() {
    // 14 of 16 packets were recorded: the next pass begins at 16, not at 14.
    let mut batch = Batch::new(336, 16);
    batch.frames.remove(7);
    batch.frames.remove(3);
    let (queue, _) = Queue::new(64);
    let renumber = Some((batch.geometry.seq_field(), 16));
    let config = TransmitterConfig { passes: Some(2), renumber, ..PLAIN };
    let mut transmitter = Transmitter::new(config, queue, &batch);
    drive(&mut transmitter);
    let numbers = batch.numbers(&transmitter.queue().sent);
    let lost = [3, 7, 19, 23];
    assert_eq!(numbers, (0..32).filter(|n| !lost.contains(n)).collect::<Vec<_>>());
}

#[test]
fn a_verbatim_loop_repeats_the_numbers() {
    let batch = Batch::new(128, 16);
    let (queue, _) = Queue::new(64);
    let config = TransmitterConfig { passes: Some(3), ..PLAIN };
    let mut transmitter = Transmitter::new(config, queue, &batch);
    drive(&mut transmitter);
    let expected: Vec<u32> = (0..3).flat_map(|_| 0..16).collect();
    assert_eq!(batch.numbers(&transmitter.queue().sent), expected);
}

#[test]
fn the_destination_address_is_patched_and_nothing_else() {
    let batch = Batch::new(128, 4);
    let (queue, _) = Queue::new(64);
    let address = [0x48, 0xB0, 0x2D, 1, 2, 3];
    let config = TransmitterConfig { eth_dst: Some(address), ..PLAIN };
    let mut transmitter = Transmitter::new(config, queue, &batch);
    drive(&mut transmitter);
    for (sent, frame) in transmitter.queue().sent.iter().zip(&batch.frames) {
        assert_eq!(sent[..6], address);
        assert_eq!(sent[6..], frame[6..]);
    }
}

#[test]
fn pacing_keeps_to_the_rate_on_the_wire() {
    // 256 frames of 256 + 24 bytes at 100 Mb/s are 22.4 µs each; the last one need not wait.
    let batch = Batch::new(336, 256);
    let (queue, _) = Queue::new(64);
    let config = TransmitterConfig { pacing_mbps: 100, ..PLAIN };
    let mut transmitter = Transmitter::new(config, queue, &batch);
    let span = drive(&mut transmitter);
    let exact = 255 * 22_400;
    assert!((exact..exact + 100_000).contains(&span.0), "{span} for {exact} ns of traffic");
}

#[test]
fn a_paced_sender_that_was_late_does_not_catch_up() {
    let batch = Batch::new(336, 64);
    let (queue, _) = Queue::new(64);
    let config = TransmitterConfig { pacing_mbps: 100, ..PLAIN };
    let mut transmitter = Transmitter::new(config, queue, &batch);
    transmitter.step(Nanos::from_secs(1));
    let before = transmitter.counters().sent;
    // Asleep for a second: 44,000 frames' worth. One frame may go at once.
    transmitter.step(Nanos::from_secs(2));
    assert_eq!(transmitter.counters().sent, before + 1);
}

#[test]
fn a_queue_that_takes_nothing_is_a_stall() {
    let batch = Batch::new(128, 16);
    let (queue, room) = Queue::new(4);
    let mut transmitter = Transmitter::new(PLAIN, queue, &batch);
    assert_eq!(transmitter.step(Nanos::ZERO), Next::Again);
    room.set(0);
    let limit = Nanos::from_secs(1);
    assert_eq!(transmitter.step(Nanos::from_millis(10)), Next::Wait(Some(limit)));
    assert_eq!(transmitter.counters().no_burst_polls, 1);
    assert_eq!(transmitter.step(limit), Next::Done);
    assert_eq!(transmitter.end(), Some(TransmitEnd::Stalled));
    assert_eq!(transmitter.counters().sent, 4);
}

#[test]
fn a_frame_that_fits_no_buffer_ends_the_sender_by_name() {
    let batch = Batch::new(128, 16);
    let (mut queue, _) = Queue::new(4);
    queue.longest = 255;
    let mut transmitter = Transmitter::new(PLAIN, queue, &batch);
    assert_eq!(transmitter.step(Nanos::ZERO), Next::Done);
    let error = SendError::TooLong { len: 256, room: 255 };
    assert_eq!(transmitter.end(), Some(TransmitEnd::TooLong(error)));
    assert!(transmitter.queue().sent.is_empty());
}

#[test]
fn told_to_stop_it_sends_no_further_frame() {
    let batch = Batch::new(128, 16);
    let (queue, _) = Queue::new(4);
    let config = TransmitterConfig { passes: None, ..PLAIN };
    let mut transmitter = Transmitter::new(config, queue, &batch);
    assert_eq!(transmitter.owed(), None);
    for _ in 0..10 {
        assert_eq!(transmitter.step(Nanos::from_secs(1)), Next::Again);
    }
    assert_eq!(transmitter.counters().sent, 40, "it loops until stopped");
    transmitter.stop();
    drive(&mut transmitter);
    assert_eq!(transmitter.counters().sent, 40);
    assert_eq!(transmitter.end(), Some(TransmitEnd::Stopped));
}

#[test]
fn a_frame_too_short_for_its_number_is_counted() {
    let mut batch = Batch::new(336, 16);
    batch.frames[5].truncate(30);
    let (queue, _) = Queue::new(64);
    let renumber = Some((batch.geometry.seq_field(), 16));
    let config = TransmitterConfig { passes: Some(2), renumber, ..PLAIN };
    let mut transmitter = Transmitter::new(config, queue, &batch);
    drive(&mut transmitter);
    assert_eq!(transmitter.counters().fill_failures, 1, "in the second pass");
    assert_eq!(transmitter.counters().sent, 32);
}

#[test]
fn a_refused_frame_is_counted_and_sent_again() {
    let batch = Batch::new(128, 16);
    let (mut queue, _) = Queue::new(5);
    queue.refuses = 3;
    let mut transmitter = Transmitter::new(PLAIN, queue, &batch);
    drive(&mut transmitter);
    assert_eq!(transmitter.counters().send_failures, 3);
    assert_eq!(transmitter.queue().sent, batch.frames);
}

#[test]
fn told_to_stop_after_the_last_frame_it_has_sent_them_all() {
    let batch = Batch::new(128, 16);
    let (queue, _) = Queue::new(16);
    let mut transmitter = Transmitter::new(PLAIN, queue, &batch);
    assert_eq!(transmitter.step(Nanos::from_secs(1)), Next::Again);
    transmitter.stop();
    drive(&mut transmitter);
    assert_eq!(transmitter.end(), Some(TransmitEnd::Sent));
}

#[test]
fn the_ends_have_words() {
    let long = SendError::TooLong { len: 9_001, room: 9_000 };
    let ends = [TransmitEnd::Sent, TransmitEnd::Stopped, TransmitEnd::Stalled];
    assert_eq!(
        ends.map(|end| end.to_string()),
        ["all frames sent", "stopped", "stalled: the queue took nothing"]
    );
    assert_eq!(TransmitEnd::TooLong(long).to_string(), long.to_string());
}
