use tensorwire_core::burst::BurstPool;
use tensorwire_core::burst::{Filling, Free};
use tensorwire_kernels::{Conversion, Kernel};

use super::*;
use crate::prng::Prng;

const IMAGE: usize = 96;

struct Fixture {
    bursts: BurstPool,
    memory: BatchMemory,
}

fn fixture() -> Fixture {
    let bursts = BurstPool::new(4).expect("four");
    let memory =
        BatchMemory::new(&bursts, 4 * IMAGE, Kernel::new(Conversion::Copy)).expect("small");
    Fixture { bursts, memory }
}

impl Fixture {
    /// A batch of four images of random bytes, and the CRC of each.
    fn batch(&mut self, seed: u64) -> (Burst<InFlight>, [u32; 4]) {
        let free: Burst<Free> = self.bursts.take().expect("four are enough");
        let mut batch: Burst<Filling> = free.begin();
        let bytes = self.memory.slot_mut(&mut batch, 0, 4 * IMAGE).expect("the whole");
        let mut prng = Prng::new(seed);
        bytes.fill_with(|| prng.next_u64().to_le_bytes()[0]);
        let crcs = std::array::from_fn(|i| slow_crc(&bytes[i * IMAGE..][..IMAGE]));
        (batch.seal().submit(), crcs)
    }
}

/// CRC-32, bit by bit.
fn slow_crc(bytes: &[u8]) -> u32 {
    let mut crc = !0_u32;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
        }
    }
    !crc
}

/// The ticket and the CRCs of a result.
fn crcs(ticket: Ticket, outputs: Outputs<'_>) -> (u64, Vec<u32>) {
    assert_eq!((outputs.feature_dim, outputs.classes, outputs.logits.len()), (2, 0, 0));
    let rows = outputs.features.chunks(2).map(|row| crc_of(row).expect("a CRC"));
    (ticket.0, rows.collect())
}

#[test]
fn the_features_are_the_crc_of_each_image() {
    let mut fixture = fixture();
    let (a, a_crcs) = fixture.batch(1);
    let (b, b_crcs) = fixture.batch(2);
    let mut infer = HashInfer::new(&fixture.memory, IMAGE, 4, FailPlan::new());
    infer.submit(Ticket(7), &a, 0, 4, Event::DONE).expect("free");
    assert!(infer.take_previous(crcs).is_none(), "only the newest is pending");
    infer.submit(Ticket(9), &b, 1, 2, Event::DONE).expect("one pending");
    assert_eq!(infer.take_previous(crcs), Some(Ok((7, a_crcs.to_vec()))));
    assert!(infer.take_previous(crcs).is_none());
    assert_eq!(infer.drain(crcs), Some(Ok((9, b_crcs[1..3].to_vec()))));
    assert!(infer.drain(crcs).is_none() && infer.poll_idle(crcs).is_none());
}

#[test]
fn every_crc_survives_the_way_through_f32() {
    let mut prng = Prng::new(3);
    let edges = [0, 1, 0xffff, 0x1_0000, 0xffff_0000, u32::MAX];
    let random = (0..1000).map(|_| u32::try_from(prng.below(1 << 32)).expect("32 bits"));
    for crc in edges.into_iter().chain(random.collect::<Vec<_>>()) {
        assert_eq!(crc_of(&features_of(crc)), Some(crc));
    }
    for row in [&[0.5, 1.0][..], &[65536.0, 0.0], &[-1.0, 0.0], &[-0.0, 0.0], &[f32::NAN, 0.0]] {
        assert_eq!(crc_of(row), None, "{row:?}");
    }
    assert_eq!((crc_of(&[1.0]), crc_of(&[1.0, 1.0, 1.0])), (None, None));
}

#[test]
fn a_third_submission_is_refused_and_harms_nothing() {
    let mut fixture = fixture();
    let (a, a_crcs) = fixture.batch(1);
    let mut infer = HashInfer::new(&fixture.memory, IMAGE, 4, FailPlan::new());
    infer.submit(Ticket(1), &a, 0, 1, Event::DONE).expect("free");
    infer.submit(Ticket(2), &a, 1, 1, Event::DONE).expect("one pending");
    let error = infer.submit(Ticket(3), &a, 2, 1, Event::DONE).expect_err("two pending");
    assert_eq!(error, StageError { call: "submit", code: code::BUSY, fatal: false });
    assert_eq!(infer.poll_idle(crcs), Some(Ok((1, vec![a_crcs[0]]))));
    assert_eq!(infer.poll_idle(crcs), Some(Ok((2, vec![a_crcs[1]]))));
}

#[test]
fn input_that_is_not_there_is_refused() {
    let (mut fixture, mut other) = (fixture(), fixture());
    let (own, _) = fixture.batch(1);
    let (foreign, _) = other.batch(1);
    let mut infer = HashInfer::new(&fixture.memory, IMAGE, 3, FailPlan::new());
    for (input, first, images, code) in [
        (&foreign, 0, 1, code::NO_INPUT),
        (&own, 4, 1, code::NO_INPUT),
        (&own, u32::MAX, 1, code::NO_INPUT),
        (&own, 2, 3, code::NO_INPUT),
        (&own, 0, 4, code::TOO_MANY),
    ] {
        let error = infer.submit(Ticket(1), input, first, images, Event::DONE).expect_err("no");
        assert_eq!(error, StageError { call: "submit", code, fatal: true });
    }
    assert!(infer.drain(crcs).is_none());
}

#[test]
fn failures_come_when_they_were_planned() {
    let mut fixture = fixture();
    let (a, a_crcs) = fixture.batch(1);
    let plan = FailPlan::new()
        .with(Ticket(6), Failure::WrongShape)
        .with(Ticket(2), Failure::Device { fatal: false })
        .with(Ticket(1), Failure::Submit { fatal: false })
        .with(Ticket(4), Failure::Slow { polls: 2 })
        .with(Ticket(5), Failure::Hang);
    let mut infer = HashInfer::new(&fixture.memory, IMAGE, 4, plan);
    let whole = a_crcs.to_vec();
    infer.submit(Ticket(0), &a, 0, 4, Event::DONE).expect("works");
    let error = infer.submit(Ticket(1), &a, 0, 4, Event::DONE).expect_err("planned");
    assert_eq!(error, StageError { call: "submit", code: code::PLANNED, fatal: false });
    // What was pending is still there, and the failed one is not.
    infer.submit(Ticket(2), &a, 0, 4, Event::DONE).expect("is enqueued");
    assert_eq!(infer.take_previous(crcs), Some(Ok((0, whole.clone()))));
    let device = StageError { call: "wait", code: code::PLANNED, fatal: false };
    assert_eq!(infer.poll_idle(crcs), Some(Err(device)));
    assert!(infer.drain(crcs).is_none());

    infer.submit(Ticket(4), &a, 0, 4, Event::DONE).expect("is enqueued");
    assert!(infer.poll_idle(crcs).is_none() && infer.poll_idle(crcs).is_none());
    assert_eq!(infer.poll_idle(crcs), Some(Ok((4, whole.clone()))));
    infer.submit(Ticket(4), &a, 0, 4, Event::DONE).expect("is enqueued");
    assert_eq!(infer.drain(crcs), Some(Ok((4, whole.clone()))), "a wait does not poll");

    infer.submit(Ticket(5), &a, 0, 4, Event::DONE).expect("is enqueued");
    assert!((0..1000).all(|_| infer.poll_idle(crcs).is_none()));
    let hung = StageError { call: "wait", code: code::HUNG, fatal: true };
    assert_eq!(infer.drain(crcs), Some(Err(hung)));

    infer.submit(Ticket(6), &a, 0, 4, Event::DONE).expect("is enqueued");
    assert_eq!(infer.drain(crcs), Some(Ok((6, whole[..3].to_vec()))));
}

#[test]
fn no_inference_has_rows_without_columns() {
    let mut fixture = fixture();
    let (a, _) = fixture.batch(1);
    let mut infer = NullInfer::default();
    let shape = |ticket: Ticket, out: Outputs<'_>| (ticket.0, out.features.len(), out.feature_dim);
    infer.submit(Ticket(1), &a, 0, u32::MAX, Event::DONE).expect("free");
    assert!(infer.take_previous(shape).is_none());
    infer.submit(Ticket(2), &a, 0, 4, Event::DONE).expect("one pending");
    assert_eq!(infer.take_previous(shape), Some(Ok((1, 0, 0))));
    assert_eq!(infer.poll_idle(shape), Some(Ok((2, 0, 0))));
    assert!(infer.drain(shape).is_none());
    let mut failing =
        NullInfer::new(FailPlan::new().with(Ticket(1), Failure::Submit { fatal: true }));
    let error = failing.submit(Ticket(1), &a, 0, 4, Event::DONE).expect_err("planned");
    assert_eq!(error, StageError { call: "submit", code: code::PLANNED, fatal: true });
}
