use tensorwire_core::burst::BurstPool;

use super::*;
use crate::types::ElemType;

/// Two elements an image, both to be summed.
fn plan(logits: bool) -> IoPlan {
    IoPlan {
        input_name: "input".into(),
        input_type: ElemType::Int8,
        image: [1, 1, 2],
        output_name: "features".into(),
        feature_dim: 1,
        logits: logits.then(|| ("logits".into(), 2)),
        max_images: 4,
        min_images: 1,
        fixed_batch: false,
    }
}

/// The feature of an image is the sum of its bytes; fails on a byte of 255.
struct Sum(IoPlan);

impl Engine for Sum {
    fn plan(&self) -> &IoPlan {
        &self.0
    }

    fn run(
        &mut self,
        input: &[u8],
        images: usize,
        features: &mut [f32],
        logits: &mut [f32],
    ) -> Result<(), RunError> {
        assert_eq!((input.len(), features.len()), (2 * images, images));
        if input.contains(&255) {
            return Err(RunError::Library("255".into()));
        }
        for (feature, image) in features.iter_mut().zip(input.chunks_exact(2)) {
            *feature = image.iter().copied().map(f32::from).sum();
        }
        logits.fill(0.5);
        Ok(())
    }
}

struct Buffers(Vec<Vec<u8>>);

impl BatchBytes for Buffers {
    fn bytes<'a>(&'a self, burst: &'a Burst<InFlight>) -> &'a [u8] {
        &self.0[usize::from(burst.index())]
    }
}

fn bursts(count: usize) -> Vec<Burst<InFlight>> {
    let mut pool = BurstPool::new(count).expect("in range");
    (0..count).map_while(|_| pool.take()).map(|burst| burst.begin().seal().submit()).collect()
}

fn stage(logits: bool, buffers: &[&[u8]]) -> CpuStage<Sum, Buffers> {
    CpuStage::new(Sum(plan(logits)), Buffers(buffers.iter().map(|b| b.to_vec()).collect()))
}

type Seen = (u64, Vec<f32>, usize);

fn see(ticket: Ticket, outputs: Outputs<'_>) -> Seen {
    assert_eq!(outputs.feature_dim, 1);
    assert_eq!(outputs.logits.len(), outputs.features.len() * outputs.classes);
    (ticket.0, outputs.features.to_vec(), outputs.classes)
}

#[test]
fn results_come_in_order_one_submission_later() {
    let mut stage = stage(true, &[&[1, 2, 3, 4], &[5, 6, 7, 8], &[9, 10, 11, 12]]);
    let bursts = bursts(3);
    assert_eq!(stage.take_previous(see), None);
    assert_eq!(stage.poll_idle(see), None);
    stage.submit(Ticket(7), &bursts[0], 0, 2, Event::DONE).expect("room");
    assert_eq!(stage.take_previous(see), None, "the newest is not the previous one");
    stage.submit(Ticket(8), &bursts[1], 0, 2, Event::DONE).expect("room");
    let third = stage.submit(Ticket(9), &bursts[2], 0, 2, Event::DONE).expect_err("two wait");
    assert_eq!((third.code, third.fatal), (4, false));
    assert_eq!(stage.take_previous(see), Some(Ok((7, vec![3.0, 7.0], 2))));
    stage.submit(Ticket(9), &bursts[2], 0, 2, Event::DONE).expect("room again");
    assert_eq!(stage.poll_idle(see), Some(Ok((8, vec![11.0, 15.0], 2))));
    assert_eq!(stage.drain(see), Some(Ok((9, vec![19.0, 23.0], 2))));
    assert_eq!(stage.drain(see), None);
}

#[test]
fn sub_batches_start_at_their_first_image() {
    let mut stage = stage(false, &[&[1, 0, 2, 0, 3, 0, 4, 0]]);
    let burst = &bursts(1)[0];
    stage.submit(Ticket(0), burst, 0, 2, Event::DONE).expect("room");
    stage.submit(Ticket(1), burst, 2, 2, Event::DONE).expect("room");
    assert_eq!(stage.drain(see), Some(Ok((0, vec![1.0, 2.0], 0))));
    assert_eq!(stage.drain(see), Some(Ok((1, vec![3.0, 4.0], 0))));
    // A shorter one leaves nothing of the longer ones behind.
    stage.submit(Ticket(2), burst, 3, 1, Event::DONE).expect("room");
    assert_eq!(stage.drain(see), Some(Ok((2, vec![4.0], 0))));
}

#[test]
fn a_failed_submission_leaves_the_pending_one() {
    let mut stage = stage(false, &[&[1, 2], &[255, 0], &[3, 4]]);
    let bursts = bursts(3);
    stage.submit(Ticket(0), &bursts[0], 0, 1, Event::DONE).expect("room");
    let error = stage.submit(Ticket(1), &bursts[1], 0, 1, Event::DONE).expect_err("255");
    assert_eq!((error.code, error.fatal), (1, false));
    assert_eq!(stage.last_error(), Some(&RunError::Library("255".into())));
    stage.submit(Ticket(2), &bursts[2], 0, 1, Event::DONE).expect("room");
    assert_eq!(stage.take_previous(see), Some(Ok((0, vec![3.0], 0))));
    assert_eq!(stage.drain(see), Some(Ok((2, vec![7.0], 0))));
}

#[test]
fn what_cannot_be_run_is_refused_with_its_numbers() {
    let mut stage = stage(false, &[&[0; 20]]);
    let burst = &bursts(1)[0];
    for (first, images) in [(0, 0), (0, 5), (7, 4), (u32::MAX, 1)] {
        stage.submit(Ticket(0), burst, first, images, Event::DONE).expect_err("out of range");
        let wanted = RunError::Images { first, images, buffer: 10, most: 4 };
        assert_eq!(stage.last_error(), Some(&wanted));
    }
    let error = stage.submit(Ticket(0), burst, 0, 1, Event(3)).expect_err("no device");
    assert_eq!((error.code, error.fatal), (5, true));
    assert_eq!(stage.drain(see), None, "nothing of that was run");
}
