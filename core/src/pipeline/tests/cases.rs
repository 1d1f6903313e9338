//! Cases from the field, each under its id: what a full ring, a dead consumer, a bad frame and a
//! stage that fails do to the machines.

use super::*;

/// H06: frames of a wrong length among good ones are dropped and counted; their slots stay holes
/// and the run goes on.
#[test]
fn h06_bad_lengths_cost_their_slots_and_nothing_else() {
    let lengths = [255, 257, 64, 63, 14, 13, 0];
    let mut stream = frames(0..1600);
    // One in every twentieth image: the packet itself comes too long or too short.
    for (bad, &len) in lengths.iter().cycle().take(20).enumerate() {
        stream[bad * 80 + 6].resize(len, 0xa5);
    }
    let result = run(&Plan::default(), stream);
    assert_right(&result);
    let packets = result.producer.packets;
    assert_eq!((packets.short, packets.long), (17, 3));
    assert_eq!(packets.placed, 1580);
    assert_eq!(result.producer.images.damaged, 20);
    let hit: Vec<u64> = (0..20).map(|bad| bad * 20 + 1).collect();
    assert_eq!(result.indices(), (0..400).filter(|i| !hit.contains(i)).collect::<Vec<_>>());
}

#[test]
fn g03_a_full_ring_blocks_or_drops_and_says_which() {
    let block = Plan { consumer_every: 40, queue_depth: 2, buffers: 7, ..Plan::default() };
    let result = run(&block, frames(0..1600));
    assert_right(&result);
    assert_eq!(result.consumer.delivered, 400);
    assert!(result.producer.blocked > Nanos::ZERO);
    let drop = Plan { backpressure: Backpressure::Drop, ..block };
    let result = run(&drop, frames(0..1600));
    assert_right(&result);
    let dropped = result.producer.images.dropped.queue_full;
    assert!(dropped > 0);
    assert_eq!(
        result.consumer.delivered
            + dropped
            + result.producer.images.damaged
            + result.producer.images.missing,
        400
    );
    assert_eq!(result.producer.images.damaged + result.producer.images.missing, 0);
}

#[test]
fn g05_the_producer_wakes_when_the_consumer_fails() {
    let plan = Plan { infer_fail: Some((3, true)), queue_depth: 1, buffers: 6, ..Plan::default() };
    let result = run(&plan, frames(0..1600));
    assert_eq!(result.producer.end, Some(EndReason::ConsumerDead));
    assert!(matches!(result.failure, Some(ConsumerFailure::Infer(_))));
    assert!(result.all_free && result.packets_free);
    assert_eq!(result.consumer.delivered, 12, "the batch before the failure is still delivered");
}

/// G05, the panic: a thread that unwinds raises the flag of its consumer, which takes no jobs then.
/// The ring is full, the policy is to block.
#[test]
fn g05_the_producer_wakes_when_the_consumer_is_gone() {
    let mut link = Link::new();
    let (producer_end, _consumer) = link.split(1, 6).expect("legal");
    let signals = producer_end.signals;
    let (queue, nic) = Queue::new(400);
    nic.borrow_mut().arriving = frames(0..1600).into();
    let memory = Memory::default();
    let pool = BurstPool::new(6).expect("a pool");
    let mut backlog: Vec<PacketDesc> = (0..400).map(|_| PacketDesc::EMPTY).collect();
    let stage = Stage::new(&memory, false);
    let plan = Plan::default();
    let mut producer = Producer::new(config(&plan), queue, stage, pool, producer_end, &mut backlog);
    producer.start(Nanos::ZERO);
    for step in 0..1000 {
        assert_ne!(producer.step(Nanos::from_micros(step)), Next::Done);
    }
    assert_eq!(producer.report().pushed, 1, "the ring has room for one");
    assert!(!nic.borrow().arriving.is_empty(), "it waits, and so does the wire");
    signals.consumer_dead.set();
    let steps = (1000..2000).take_while(|&at| producer.step(Nanos::from_micros(at)) != Next::Done);
    assert!(steps.count() < 10, "it goes on waiting");
    assert_eq!(producer.report().end, Some(EndReason::ConsumerDead));
    assert_eq!(nic.borrow().free.len(), 400, "a packet buffer is missing");
}

/// A pool of four buffers, a thousand batches, and a failure at each step in turn: parse, place,
/// push, infer, sink. The pool is whole again afterwards, and it never was empty for good.
#[test]
fn g06_every_path_gives_the_buffer_back() {
    const IMAGES: u64 = 4000;
    let good = || frames((0..IMAGES * 4).filter(|n| n % 97 != 5));
    let mut bad = good();
    for frame in bad.iter_mut().step_by(61) {
        frame[14] = 0x46;
    }
    for keeps in [false, true] {
        for fatal in [false, true] {
            let base = Plan { buffers: 4, queue_depth: 1, keeps, ..Plan::default() };
            let slow = Plan { consumer_every: 3, backpressure: Backpressure::Drop, ..base.clone() };
            let plans = [
                (base.clone(), &bad),
                (slow, &good()),
                (Plan { infer_fail: Some((5, fatal)), ..base.clone() }, &good()),
                (Plan { infer_fail: Some((5, fatal)), sub_batch: 2, ..base.clone() }, &good()),
                (Plan { sink_fail: Some((5, fatal)), ..base.clone() }, &good()),
                (Plan { sink_fail: Some((5, fatal)), sub_batch: 1, ..base.clone() }, &good()),
                (Plan { reorder_fail: Some((5, fatal)), ..base.clone() }, &good()),
                (Plan { missing: MissingPolicy::Drop, ..base }, &good()),
            ];
            for (plan, stream) in plans {
                let result = run(&plan, stream.clone());
                assert_right(&result);
                if plan.backpressure == Backpressure::Block {
                    assert_eq!(
                        result.producer.packets.no_buffer, 0,
                        "the pool was empty: {plan:?}"
                    );
                }
                let fails = [plan.infer_fail, plan.reorder_fail].iter().any(Option::is_some)
                    || plan.sink_fail.is_some();
                if fatal && fails {
                    continue;
                }
                assert_ne!(result.producer.end, Some(EndReason::ConsumerDead), "{plan:?}");
                let lost = result.consumer.infer_failed
                    + result.consumer.sink_failed
                    + result.producer.images.dropped.total()
                    + result.producer.images.damaged
                    + result.producer.images.missing;
                assert_eq!(result.consumer.delivered + lost, IMAGES, "{plan:?}");
            }
        }
    }
}
