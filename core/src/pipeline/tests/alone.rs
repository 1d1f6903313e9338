//! The producer alone, step by step: what a round says of itself, whom it waits for, and what it
//! counts.

use super::*;
use crate::limits::MAX_POLL;

/// Stands in for the consumer: the jobs as they come.
type Consumer<'a> = ConsumerEnd<'a>;

/// A producer of `plan` that has not been started, with its NIC and the consumer's end.
fn alone(
    plan: &Plan,
    settings: impl FnOnce(&mut ProducerConfig, &mut Stage),
    test: impl FnOnce(&mut Producer<'_, Queue, Stage>, &SharedNic, &mut Consumer<'_>),
) {
    let mut link = Link::new();
    let (producer_end, mut consumer) = link.split(plan.queue_depth, plan.buffers).expect("legal");
    let (queue, nic) = Queue::new(plan.packets);
    let memory = Memory::default();
    let mut stage = Stage::new(&memory, plan.keeps);
    stage.fail_at = plan.reorder_fail;
    let mut config = config(plan);
    settings(&mut config, &mut stage);
    let pool = BurstPool::new(plan.buffers).expect("a pool");
    let mut backlog: Vec<PacketDesc> = (0..1000).map(|_| PacketDesc::EMPTY).collect();
    let mut producer = Producer::new(config, queue, stage, pool, producer_end, &mut backlog);
    test(&mut producer, &nic, &mut consumer);
}

fn arrive(nic: &SharedNic, positions: impl IntoIterator<Item = u64>) {
    nic.borrow_mut().arriving.extend(frames(positions));
}

/// Steps until nothing is left to do.
fn settle(producer: &mut Producer<'_, Queue, Stage>, now: Nanos) {
    for _ in 0..1000 {
        let next = producer.step(now);
        assert!(producer.report().packets.balanced());
        if next != Next::Again {
            return;
        }
    }
    panic!("it never comes to rest");
}

const fn us(us: u64) -> Nanos {
    Nanos::from_micros(us)
}

#[test]
fn a_round_says_whether_there_may_be_more_and_when_to_look_again() {
    let plan = Plan { timeout: us(100), buffers: 3, ..Plan::default() };
    alone(
        &plan,
        |_, _| {},
        |producer, nic, consumer| {
            assert_eq!(producer.step(us(0)), Next::Wait(None), "not started, nothing came");
            producer.start(us(10));
            let startup = us(10).plus(Nanos::from_secs(180));
            assert_eq!(producer.step(us(11)), Next::Wait(Some(startup)));
            assert_eq!(producer.buffers(), (3, 0));
            arrive(nic, [0]);
            assert_eq!(producer.step(us(20)), Next::Again);
            assert_eq!(producer.buffers(), (2, 1));
            assert_eq!(producer.step(us(21)), Next::Wait(Some(us(120))), "the deadline");
            assert_eq!(producer.step(us(119)), Next::Wait(Some(us(120))));
            assert_eq!(producer.step(us(120)), Next::Again, "the deadline closes the batch");
            assert_eq!(producer.buffers(), (3, 0), "without a whole image it is not handed over");
            let quiet = us(20).plus(Nanos::from_secs(5));
            assert_eq!(producer.step(us(121)), Next::Wait(Some(quiet)));
            // A batch goes to the consumer, and its buffer comes back.
            arrive(nic, 16..32);
            settle(producer, us(130));
            assert_eq!(producer.buffers(), (2, 0));
            assert!(!producer.all_buffers_free());
            let job = consumer.take_job().expect("a whole batch");
            assert_eq!((job.batch, job.first_image, job.whole.count()), (1, 4, 4));
            consumer.give_back(job.burst.discard());
            assert_eq!(producer.step(us(131)), Next::Again, "a buffer came back");
            assert!(matches!(producer.step(us(132)), Next::Wait(Some(_))));
            assert_eq!(producer.buffers(), (3, 0));
            assert!(producer.all_buffers_free());
        },
    );
}

#[test]
fn packets_that_the_reorder_gives_back_are_a_reason_to_go_on() {
    let plan = Plan { keeps: true, ..Plan::default() };
    alone(
        &plan,
        |_, _| {},
        |producer, nic, _| {
            producer.start(us(0));
            arrive(nic, 0..16);
            assert_eq!(producer.step(us(1)), Next::Again);
            assert_eq!(nic.borrow().free.len(), 400 - 16);
            assert_eq!(producer.step(us(2)), Next::Again, "sixteen packets came back");
            assert_eq!(nic.borrow().free.len(), 400);
            assert!(matches!(producer.step(us(3)), Next::Wait(Some(_))));
        },
    );
}

#[test]
fn the_end_waits_for_packets_in_the_reorder() {
    let plan = Plan { keeps: true, ..Plan::default() };
    let held = Rc::new(Cell::new(true));
    let hold = |_: &mut ProducerConfig, stage: &mut Stage| stage.holds = held.clone();
    alone(&plan, hold, |producer, nic, _| {
        producer.start(us(0));
        arrive(nic, 0..32);
        settle(producer, us(1));
        producer.stop(EndReason::Stopped);
        settle(producer, us(2));
        assert!(matches!(producer.step(us(3)), Next::Wait(None)), "32 packets are out");
        assert_eq!(nic.borrow().free.len(), 400 - 32);
        held.set(false);
        settle(producer, us(4));
        assert_eq!(producer.step(us(5)), Next::Done);
        assert_eq!(nic.borrow().free.len(), 400);
    });
}

#[test]
fn a_blocked_producer_goes_on_polling_and_works_off_what_it_polled() {
    let plan = Plan { queue_depth: 1, buffers: 8, packets: 1000, ..Plan::default() };
    alone(
        &plan,
        |_, _| {},
        |producer, nic, consumer| {
            producer.start(us(0));
            arrive(nic, 0..32);
            settle(producer, us(1));
            assert!(producer.status().waiting, "the second batch finds the ring full");
            assert!(matches!(producer.step(us(2)), Next::Wait(None)), "the consumer has to move");
            arrive(nic, 32..64);
            assert_eq!(producer.step(us(3)), Next::Again, "32 packets were polled");
            assert_eq!(producer.status().backlog, 32);
            arrive(nic, 64..704);
            settle(producer, us(4));
            assert_eq!(producer.status().backlog, 672);
            // With the jobs taken one by one everything that was polled is placed.
            let mut batch = 0;
            for turn in 0..10_000 {
                let next = producer.step(us(5 + turn));
                assert!(producer.status().backlog == 0 || next != Next::Done);
                if let Some(job) = consumer.take_job() {
                    assert_eq!((job.batch, job.first_image), (batch, 4 * batch));
                    batch += 1;
                    consumer.give_back(job.burst.discard());
                }
            }
            assert_eq!((batch, producer.status().packets.placed), (44, 704));
            assert!(producer.status().blocked > Nanos::ZERO);
        },
    );
}

#[test]
fn a_large_backlog_is_worked_off_over_several_rounds() {
    let plan = Plan { queue_depth: 1, buffers: 60, packets: 1000, ..Plan::default() };
    let deep = |config: &mut ProducerConfig, _: &mut Stage| config.rx_ring = 4;
    alone(&plan, deep, |producer, nic, consumer| {
        producer.start(us(0));
        arrive(nic, 0..32);
        settle(producer, us(1));
        // Other traffic, so that nothing has to wait for the ring again.
        for mut other in frames(0..600) {
            other[36..38].copy_from_slice(&9u16.to_be_bytes());
            nic.borrow_mut().arriving.push_back(other);
        }
        settle(producer, us(2));
        assert_eq!(producer.status().backlog, 600);
        let job = consumer.take_job().expect("a job");
        consumer.give_back(job.burst.discard());
        assert_eq!(producer.step(us(3)), Next::Again);
        assert_eq!(producer.status().backlog, 600 - MAX_POLL);
        // The first round had the buffer and the stalled action; this one has only the backlog.
        assert_eq!(producer.step(us(4)), Next::Again);
        assert_eq!(producer.status().backlog, 600 - 2 * MAX_POLL);
        settle(producer, us(5));
        assert_eq!(producer.status().packets.other_flow, 600);
        assert_eq!(nic.borrow().free.len(), 1000);
    });
}

#[test]
fn a_full_poll_keeps_the_deadline_back() {
    let plan = Plan { timeout: us(10), ..Plan::default() };
    alone(
        &plan,
        |_, _| {},
        |producer, nic, consumer| {
            producer.start(us(0));
            arrive(nic, (0..32).filter(|&n| n != 28));
            settle(producer, us(1));
            // A poll that returned all that was asked for: more may wait in the NIC.
            for mut other in frames(0..32) {
                other[36..38].copy_from_slice(&9u16.to_be_bytes());
                nic.borrow_mut().arriving.push_back(other);
            }
            arrive(nic, [28]);
            producer.step(us(50));
            assert_eq!(producer.status().reassembly.partial.deadline, 0);
            settle(producer, us(51));
            assert_eq!(producer.status().reassembly.partial.total(), 0);
            let jobs = [(); 2].map(|()| consumer.take_job().expect("complete").whole.count());
            assert_eq!(jobs, [4, 4]);
        },
    );
}

#[test]
fn longer_packets_are_counted_as_trimmed_where_they_are_accepted() {
    let accept = |config: &mut ProducerConfig, _: &mut Stage| {
        let port = PortRange::new(4096, 4096).expect("a port");
        let flow = FlowMatch { id: 1, udp_src: Some(port), udp_dst: Some(port), ipv4_len: None };
        let mut flows = FlowTable::new();
        flows.push(&flow).expect("one flow");
        config.check = PacketCheck::new(&config.geometry, &flows, Verify::None, true);
    };
    alone(&Plan::default(), accept, |producer, nic, _| {
        producer.start(us(0));
        let mut stream = frames(0..16);
        for frame in &mut stream[3..6] {
            frame.extend([0; 4]);
        }
        nic.borrow_mut().arriving = stream.into();
        settle(producer, us(1));
        let packets = producer.report().packets;
        assert_eq!((packets.trimmed, packets.placed, packets.long), (3, 16, 0));
    });
}

#[test]
fn what_is_dropped_by_name_goes_back_to_the_nic() {
    alone(
        &Plan::default(),
        |_, _| {},
        |producer, nic, _| {
            producer.start(us(0));
            // A duplicate, two wild numbers, and one that comes after its batch has closed.
            arrive(
                nic,
                [0, 1, 2, 3, 2, 4, 100, 5, 60, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 9, 17],
            );
            settle(producer, us(1));
            let packets = producer.report().packets;
            assert_eq!((packets.placed, packets.wild), (18, 2));
            assert_eq!(packets.duplicate + packets.late, 2, "{packets:?}");
            assert_eq!(nic.borrow().free.len(), 400);
        },
    );
}

#[test]
fn images_are_named_by_what_became_of_them() {
    alone(
        &Plan::default(),
        |_, _| {},
        |producer, nic, _| {
            producer.start(us(0));
            // Image 1 is damaged, image 2 missing, then three batches are missing altogether;
            // the last image is cut off by the end.
            let lost = |n: &u64| *n == 5 || (8..12).contains(n) || (16..64).contains(n);
            arrive(nic, (0..86).filter(|n| !lost(n)));
            settle(producer, us(1));
            producer.stop(EndReason::Stopped);
            settle(producer, us(2));
            let report = producer.report();
            assert_eq!(report.damaged.as_slice(), [(1, 1)]);
            assert_eq!(report.missing.as_slice(), [(2, 2), (4, 15)]);
            let images = report.images;
            assert_eq!((images.damaged, images.missing, images.unfinished), (1, 13, 1));
            assert_eq!(images.pending, 7, "images 0, 3 and 16 to 20");
        },
    );
}

#[test]
fn a_dead_consumer_is_owed_nothing_and_every_image_is_named() {
    let plan = Plan { queue_depth: 1, ..Plan::default() };
    alone(
        &plan,
        |_, _| {},
        |producer, nic, consumer| {
            producer.start(us(0));
            arrive(nic, 0..64);
            settle(producer, us(1));
            assert!(producer.status().waiting);
            consumer.signals.consumer_dead.set();
            settle(producer, us(2));
            let report = producer.report();
            assert_eq!(report.end, Some(EndReason::ConsumerDead));
            assert_eq!((report.images.pending, report.images.dropped.infer_failed), (4, 12));
        },
    );
}

#[test]
fn a_batch_whose_reorder_fails_is_dropped_by_name() {
    let plan = Plan { reorder_fail: Some((2, false)), ..Plan::default() };
    alone(
        &plan,
        |_, _| {},
        |producer, nic, _| {
            producer.start(us(0));
            arrive(nic, 0..48);
            settle(producer, us(1));
            let images = producer.report().images;
            assert_eq!((images.pending, images.dropped.infer_failed), (8, 4));
            assert_eq!(producer.report().end, None, "the next batch may do better");
        },
    );
}

#[test]
fn a_batch_closed_by_a_discontinuity_lies_before_it() {
    alone(
        &Plan::default(),
        |_, _| {},
        |producer, nic, consumer| {
            producer.start(us(0));
            arrive(nic, (0..20).chain(200..224));
            settle(producer, us(1));
            producer.stop(EndReason::Stopped);
            settle(producer, us(2));
            let seen: Vec<_> = std::iter::from_fn(|| consumer.take_job())
                .map(|job| (job.first_image, job.whole.count(), job.anchor.discontinuities))
                .collect();
            // The first number of the restart is read forward: 200 is in the middle of batch 12.
            assert_eq!(seen, [(0, 4, 0), (4, 1, 0), (48, 2, 1), (52, 4, 1)]);
        },
    );
}

#[test]
fn it_ends_when_the_waits_are_over_and_not_before() {
    let startup = Nanos::from_secs(180);
    alone(
        &Plan { owed: Some(0), ..Plan::default() },
        |_, _| {},
        |producer, _, _| {
            producer.start(us(0));
            producer.step(Nanos(startup.0 - 1));
            assert_eq!(producer.report().end, None);
            producer.step(startup);
            assert_eq!(producer.report().end, Some(EndReason::NothingArrived));
        },
    );
    alone(
        &Plan::default(),
        |_, _| {},
        |producer, nic, _| {
            producer.start(us(0));
            arrive(nic, [0]);
            producer.step(us(7));
            let quiet = us(7).plus(Nanos::from_secs(5));
            producer.step(Nanos(quiet.0 - 1));
            assert_eq!(producer.report().end, None);
            producer.step(quiet);
            assert_eq!(producer.report().end, Some(EndReason::Quiet));
        },
    );
}

#[test]
fn the_oldest_batch_is_given_up_for_its_packets_only_where_they_are_needed() {
    // The NIC's ring is 64: with ten packets kept, fewer than that are left of 73, not of 74.
    let closed_for_pool = |keeps, packets, first: u64, holds| {
        let held = Rc::new(Cell::new(holds));
        let mut closed = 0;
        alone(
            &Plan { keeps, packets, ..Plan::default() },
            |_, stage| stage.holds = held.clone(),
            |producer, nic, _| {
                producer.start(us(0));
                arrive(nic, first..26);
                settle(producer, us(1));
                closed = producer.status().reassembly.partial.pool;
            },
        );
        closed
    };
    assert_eq!(closed_for_pool(true, 73, 16, false), 1);
    assert_eq!(closed_for_pool(true, 74, 16, false), 0);
    assert_eq!(closed_for_pool(false, 40, 16, false), 0, "no packet is kept");
    assert_eq!(closed_for_pool(true, 73, 0, true), 0, "packets are on their way back");
}

/// Found by the simulator (seed 944758): behind a poller the answer comes rounds later.
#[test]
fn a_short_pool_is_relieved_as_soon_as_the_nic_is_known_to_be_empty() {
    let after_a_short_poll = |keeps, packets| {
        let mut next = Next::Done;
        alone(
            &Plan { keeps, packets, ..Plan::default() },
            |_, _| {},
            |producer, nic, _| {
                nic.borrow_mut().knows = false;
                producer.start(us(0));
                arrive(nic, 0..10);
                producer.step(us(1));
                next = producer.step(us(2));
                assert_eq!(producer.status().reassembly.partial.pool, 0, "frames may be under way");
                nic.borrow_mut().knows = true;
                producer.step(us(3));
                let short = next == Next::Again;
                assert_eq!(producer.status().reassembly.partial.pool, u64::from(short));
            },
        );
        next
    };
    assert_eq!(after_a_short_poll(true, 73), Next::Again, "a wait could last for ever");
    assert!(
        matches!(after_a_short_poll(true, 74), Next::Wait(_)),
        "64 are left, as many as needed"
    );
    assert!(matches!(after_a_short_poll(false, 40), Next::Wait(_)), "no packet is kept");
}
