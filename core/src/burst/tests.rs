//! The tokens of one thread: what the pool hands out and takes back, and the moves against the
//! ledger's table. That misuse does not compile is shown in `core/tests/ui`.

use proptest::prelude::*;

use super::*;
use crate::ledger::{Census, Ledger, Move};

#[test]
fn tokens_are_small() {
    assert_eq!(size_of::<PacketDesc>(), 16);
    assert_eq!(size_of::<Burst<Free>>(), 8);
    assert_eq!(size_of::<Option<Burst<Ready>>>(), 12);
}

#[test]
fn a_packet_is_taken_once() {
    // SAFETY: there is no buffer and no driver; nothing is accessed through the token.
    let mut packet = unsafe { PacketDesc::claim(7, 1240, 2) };
    assert_eq!((packet.handle(), packet.len(), packet.flow()), (7, 1240, 2));
    assert_eq!(format!("{packet:?}"), "PacketDesc(0x7, 1240 B, flow 2)");
    let taken = packet.take();
    assert!(packet.is_none() && !taken.is_none());
    assert_eq!(packet, PacketDesc::default());
    assert_eq!(format!("{packet:?}"), "PacketDesc(none)");
    assert!(packet.take().is_none());
}

#[test]
fn a_pool_mints_each_token_once() {
    let mut pool = BurstPool::new(4).expect("within the limit");
    let tokens: Vec<_> = std::iter::from_fn(|| pool.take()).collect();
    assert_eq!(format!("{:?}", tokens[2]), format!("Burst<Free>({}/2)", pool.id().0));
    assert_eq!(tokens.iter().map(Burst::index).collect::<Vec<_>>(), [0, 1, 2, 3]);
    assert!(tokens.iter().all(|token| token.pool() == pool.id()));
    assert_eq!((pool.free(), pool.buffers()), (0, 4));
    for token in tokens {
        pool.put(token).expect("its own pool");
    }
    assert_eq!(pool.free(), 4);
    assert_eq!(pool.take().expect("four are free").index(), 3, "the one returned last comes first");
}

#[test]
fn a_pool_has_a_size() {
    for given in [0, MAX_BATCH_BUFFERS + 1, 65_536, 65_537, usize::MAX] {
        let refused = BurstPool::new(given).expect_err("refused");
        assert_eq!(refused, PoolError::Buffers { given });
        assert!(refused.to_string().starts_with(&format!("a pool of {given} batch buffers, ")));
    }
    let mut pool = BurstPool::new(MAX_BATCH_BUFFERS).expect("the limit itself");
    assert_eq!(std::iter::from_fn(|| pool.take()).count(), MAX_BATCH_BUFFERS);
}

#[test]
fn a_pool_refuses_the_token_of_another() {
    let mut ours = BurstPool::new(1).expect("within the limit");
    let mut theirs = BurstPool::new(1).expect("within the limit");
    assert_ne!(ours.id(), theirs.id());
    // With and without room: the reason is the pool, not the room.
    for room in [false, true] {
        let kept = room.then(|| ours.take());
        let refused = ours.put(theirs.take().expect("one is free")).expect_err("not ours");
        assert_eq!((refused.pool, refused.burst.pool()), (ours.id(), theirs.id()));
        let text = refused.to_string();
        assert!(text.starts_with("batch buffer 0 belongs to pool "), "{text}");
        theirs.put(refused.burst).expect("it comes back unharmed");
        if let Some(token) = kept.flatten() {
            ours.put(token).expect("its own pool");
        }
    }
}

/// All tokens of a pool, each in the state that its type says.
struct Hands {
    pool: BurstPool,
    filling: Vec<Burst<Filling>>,
    ready: Vec<Burst<Ready>>,
    in_flight: Vec<Burst<InFlight>>,
    retained: Vec<Burst<Retained>>,
}

impl Hands {
    fn census(&self) -> Census {
        let mut census = Census::EMPTY;
        census.add(SlotState::Free, self.pool.free());
        census.add(SlotState::Filling, self.filling.len());
        census.add(SlotState::Ready, self.ready.len());
        census.add(SlotState::InFlight, self.in_flight.len());
        census.add(SlotState::Retained, self.retained.len());
        census
    }

    fn put(&mut self, free: Burst<Free>) -> u16 {
        let index = free.index();
        self.pool.put(free).expect("its own pool");
        index
    }

    /// Makes the move with the token that is next in line; its index, if there is such a token.
    fn make(&mut self, event: Move) -> Option<u16> {
        fn oldest<S: State>(line: &mut Vec<Burst<S>>) -> Option<Burst<S>> {
            (!line.is_empty()).then(|| line.remove(0))
        }
        fn keep<S: State>(line: &mut Vec<Burst<S>>, burst: Burst<S>) -> u16 {
            let index = burst.index();
            line.push(burst);
            index
        }
        Some(match event {
            Move::Begin => keep(&mut self.filling, self.pool.take()?.begin()),
            Move::Seal => keep(&mut self.ready, oldest(&mut self.filling)?.seal()),
            Move::Submit => keep(&mut self.in_flight, oldest(&mut self.ready)?.submit()),
            Move::Retain => keep(&mut self.retained, oldest(&mut self.in_flight)?.retain()),
            Move::Abandon => {
                let free = oldest(&mut self.filling)?.abandon();
                self.put(free)
            }
            Move::Discard => {
                let free = oldest(&mut self.ready)?.discard();
                self.put(free)
            }
            Move::Abort => {
                // SAFETY: there is no device.
                let free = unsafe { oldest(&mut self.in_flight)?.abort() };
                self.put(free)
            }
            Move::Complete => {
                // SAFETY: there is no device.
                let free = unsafe { oldest(&mut self.retained)?.complete() };
                self.put(free)
            }
        })
    }
}

proptest! {
    /// Whatever the types allow, the ledger records; conservation holds after every move. What the
    /// types would not allow, it refuses and stays as it was.
    #[test]
    fn the_ledger_and_the_types_agree(
        buffers in 1_usize..6,
        // Miri interprets every instruction.
        events in proptest::collection::vec(
            (0_usize..8, 0_u16..6),
            0..if cfg!(miri) { 40 } else { 200 },
        ),
    ) {
        let pool = BurstPool::new(buffers).expect("within the limit");
        let mut ledger = Ledger::new(&pool);
        let mut hands = Hands {
            pool,
            filling: Vec::new(),
            ready: Vec::new(),
            in_flight: Vec::new(),
            retained: Vec::new(),
        };
        for (event, other) in events {
            let event = Move::ALL[event];
            // Somebody without a token claims to move some buffer.
            let mut lie = ledger.clone();
            let allowed = ledger.entry(other).is_some_and(|(state, _)| state.next(event).is_ok());
            prop_assert_eq!(lie.record(other, event).is_ok(), allowed);
            prop_assert_eq!(lie.check(hands.census()).is_ok(), !allowed);
            if let Some(index) = hands.make(event) {
                prop_assert!(ledger.record(index, event).is_ok());
            }
            prop_assert_eq!(ledger.check(hands.census()), Ok(()));
            prop_assert_eq!(ledger.census().total() as usize, buffers);
            for burst in &hands.ready {
                prop_assert_eq!(ledger.see(burst), Ok(()));
            }
            for burst in &hands.retained {
                prop_assert_eq!(ledger.see(burst), Ok(()));
            }
        }
    }
}
