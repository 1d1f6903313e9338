//! The run-time twin of the ownership types, for tests and the simulator.
//!
//! The types of [`crate::burst`] refuse a wrong move when the program is compiled. What they cannot
//! see is a token that is dropped, a driver that says `complete` of a buffer it still reads, or a
//! shell that mixes up two pools. A [`Ledger`] keeps the state of every buffer of a pool and the
//! place in the source where it was moved last; a violation names the buffer, its state and both
//! places. It costs a table look-up per move and is not needed in a release.
//!
//! | state | `Begin` | `Seal` | `Abandon` | `Submit` | `Discard` | `Retain` | `Abort` | `Complete` |
//! |---|---|---|---|---|---|---|---|---|
//! | `Free` | `Filling` | | | | | | | |
//! | `Filling` | | `Ready` | `Free` | | | | | |
//! | `Ready` | | | | `InFlight` | `Free` | | | |
//! | `InFlight` | | | | | | `Retained` | `Free` | |
//! | `Retained` | | | | | | | | `Free` |

use core::fmt;
use core::panic::Location;

use crate::burst::{Burst, BurstPool, PoolId, SlotState, State};
use crate::limits::MAX_BATCH_BUFFERS;

/// What happens to a batch buffer: one variant per method of [`Burst`] that changes its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Move {
    /// The producer begins a batch.
    Begin,
    /// The reorder is submitted.
    Seal,
    /// The batch is given up while it is filled.
    Abandon,
    /// The inference is about to be enqueued.
    Submit,
    /// The job is given up before any device saw the buffer.
    Discard,
    /// The enqueue succeeded.
    Retain,
    /// The enqueue failed.
    Abort,
    /// The device is done with the buffer.
    Complete,
}

impl Move {
    /// Every move.
    pub const ALL: [Self; 8] = [
        Self::Begin,
        Self::Seal,
        Self::Abandon,
        Self::Submit,
        Self::Discard,
        Self::Retain,
        Self::Abort,
        Self::Complete,
    ];

    /// The move that leads from one state to another; no two moves do.
    const fn between(from: SlotState, to: SlotState) -> Option<Self> {
        let mut rest: &[Self] = &Self::ALL;
        while let [one, more @ ..] = rest {
            if let Ok(end) = from.next(*one)
                && end as u8 == to as u8
            {
                return Some(*one);
            }
            rest = more;
        }
        None
    }
}

/// A move that the state of the buffer does not allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransitionError {
    /// The state that the buffer is in.
    pub state: SlotState,
    /// The move that was asked for.
    pub refused: Move,
}

impl fmt::Display for TransitionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} of a buffer that is {:?}", self.refused, self.state)
    }
}

impl core::error::Error for TransitionError {}

impl SlotState {
    /// Every state, in the order of a buffer's life.
    pub const ALL: [Self; 5] =
        [Self::Free, Self::Filling, Self::Ready, Self::InFlight, Self::Retained];

    /// The state after `event`, as the methods of [`Burst`] have it.
    ///
    /// # Errors
    ///
    /// [`TransitionError`] when a buffer in this state cannot be moved so.
    pub const fn next(self, event: Move) -> Result<Self, TransitionError> {
        match (self, event) {
            (Self::Free, Move::Begin) => Ok(Self::Filling),
            (Self::Filling, Move::Seal) => Ok(Self::Ready),
            (Self::Ready, Move::Submit) => Ok(Self::InFlight),
            (Self::InFlight, Move::Retain) => Ok(Self::Retained),
            (Self::Filling, Move::Abandon)
            | (Self::Ready, Move::Discard)
            | (Self::InFlight, Move::Abort)
            | (Self::Retained, Move::Complete) => Ok(Self::Free),
            (state, refused) => Err(TransitionError { state, refused }),
        }
    }
}

/// How many buffers are in each state: of a ledger, or as a harness counts the tokens it holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census([u16; SlotState::ALL.len()]);

impl Census {
    /// No buffer in any state.
    pub const EMPTY: Self = Self([0; SlotState::ALL.len()]);

    /// Adds `tokens` in `state`; saturates, so that a miscount cannot come round to the right sum.
    pub fn add(&mut self, state: SlotState, tokens: usize) {
        let tokens = u16::try_from(tokens).unwrap_or(u16::MAX);
        let count = &mut self.0[state as usize];
        *count = count.saturating_add(tokens);
    }

    /// How many are in `state`.
    #[must_use]
    pub const fn of(&self, state: SlotState) -> u16 {
        self.0[state as usize]
    }

    /// How many there are in all.
    #[must_use]
    pub fn total(&self) -> u32 {
        self.0.iter().map(|&count| u32::from(count)).sum()
    }
}

impl fmt::Display for Census {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [free, filling, ready, in_flight, retained] = self.0;
        write!(
            f,
            "{free} free + {filling} filling + {ready} ready + {in_flight} in flight + {retained} \
             retained = {}",
            self.total()
        )
    }
}

/// Something that a buffer cannot have done. The ledger is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LedgerError {
    /// The move does not fit the state of the buffer: a double free, a use after hand-over.
    Move {
        /// Which buffer.
        buffer: u16,
        /// The move and the state.
        error: TransitionError,
        /// Where the move was asked for.
        here: &'static Location<'static>,
        /// Where the buffer got into its state.
        since: &'static Location<'static>,
    },
    /// A token is in a state that no single move leads to: a move was not recorded, or the buffer
    /// has two tokens.
    Token {
        /// Which buffer.
        buffer: u16,
        /// The state of the token.
        token: SlotState,
        /// The state in the ledger.
        ledger: SlotState,
        /// Where the token was shown.
        here: &'static Location<'static>,
        /// Where the buffer got into the ledger's state.
        since: &'static Location<'static>,
    },
    /// The buffer is not of this ledger's pool.
    Unknown {
        /// Which buffer.
        buffer: u16,
        /// Where it was shown.
        here: &'static Location<'static>,
    },
    /// The tokens that were found are not those of the ledger: one was lost or is there twice.
    Census {
        /// The state that differs, the first of them.
        state: SlotState,
        /// All tokens that were found.
        found: Census,
        /// What the ledger says.
        ledger: Census,
    },
}

impl fmt::Display for LedgerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Move { buffer, error, here, since } => {
                write!(f, "batch buffer {buffer}: {error}, at {here}; it is so since {since}")
            }
            Self::Token { buffer, token, ledger, here, since } => write!(
                f,
                "batch buffer {buffer}: a token that is {token:?}, at {here}, of a buffer that is \
                 {ledger:?} since {since}"
            ),
            Self::Unknown { buffer, here } => {
                write!(f, "batch buffer {buffer}, at {here}, is not of this ledger's pool")
            }
            Self::Census { state, found, ledger } => write!(
                f,
                "{} tokens are {state:?}, not {}; found {found}; the ledger has {ledger}",
                found.of(*state),
                ledger.of(*state)
            ),
        }
    }
}

impl core::error::Error for LedgerError {}

#[derive(Clone, Copy, Debug)]
struct Entry {
    state: SlotState,
    since: &'static Location<'static>,
}

/// The state of every buffer of one pool, and where in the source it got into it.
#[derive(Clone, Debug)]
pub struct Ledger {
    pool: PoolId,
    entries: heapless::Vec<Entry, MAX_BATCH_BUFFERS>,
}

impl Ledger {
    /// A ledger of `pool`, whose buffers are all free.
    #[must_use]
    #[track_caller]
    pub fn new(pool: &BurstPool) -> Self {
        let entry = Entry { state: SlotState::Free, since: Location::caller() };
        let mut entries = heapless::Vec::new();
        // Cannot be refused: a pool has at most `MAX_BATCH_BUFFERS` buffers.
        let _ = entries.resize(usize::from(pool.buffers()), entry);
        Self { pool: pool.id(), entries }
    }

    /// Records that `event` happens to buffer `buffer`, here; returns its new state.
    ///
    /// # Errors
    ///
    /// [`LedgerError`] when the buffer's state does not allow it.
    #[track_caller]
    pub fn record(&mut self, buffer: u16, event: Move) -> Result<SlotState, LedgerError> {
        let here = Location::caller();
        let entry = self
            .entries
            .get_mut(usize::from(buffer))
            .ok_or(LedgerError::Unknown { buffer, here })?;
        let state = entry.state.next(event).map_err(|error| LedgerError::Move {
            buffer,
            error,
            here,
            since: entry.since,
        })?;
        *entry = Entry { state, since: here };
        Ok(state)
    }

    /// Records the move that `burst` made since the ledger saw its buffer last; nothing if it is
    /// still in the same state.
    ///
    /// # Errors
    ///
    /// [`LedgerError`] when the token is of another pool, or no single move leads to its state.
    #[track_caller]
    pub fn see<S: State>(&mut self, burst: &Burst<S>) -> Result<(), LedgerError> {
        let here = Location::caller();
        let buffer = burst.index();
        let entry = match self.entries.get_mut(usize::from(buffer)) {
            Some(entry) if burst.pool() == self.pool => entry,
            _ => return Err(LedgerError::Unknown { buffer, here }),
        };
        if entry.state == S::NAME {
            return Ok(());
        }
        if Move::between(entry.state, S::NAME).is_none() {
            return Err(LedgerError::Token {
                buffer,
                token: S::NAME,
                ledger: entry.state,
                here,
                since: entry.since,
            });
        }
        *entry = Entry { state: S::NAME, since: here };
        Ok(())
    }

    /// State of a buffer and where it got into it; `None` beyond the last buffer.
    #[must_use]
    pub fn entry(&self, buffer: u16) -> Option<(SlotState, &'static Location<'static>)> {
        self.entries.get(usize::from(buffer)).map(|entry| (entry.state, entry.since))
    }

    /// The buffers in `state`, ascending, and where each got into it: the suspects when a token of
    /// that state is missing.
    pub fn buffers_in(
        &self,
        state: SlotState,
    ) -> impl Iterator<Item = (u16, &'static Location<'static>)> {
        (0_u16..)
            .zip(&self.entries)
            .filter(move |(_, entry)| entry.state == state)
            .map(|(buffer, entry)| (buffer, entry.since))
    }

    /// How many buffers are in each state.
    #[must_use]
    pub fn census(&self) -> Census {
        let mut census = Census::EMPTY;
        for entry in &self.entries {
            census.add(entry.state, 1);
        }
        census
    }

    /// Conservation: compares the tokens that a harness can lay hands on with the ledger.
    ///
    /// # Errors
    ///
    /// [`LedgerError::Census`] when they are not the same number in every state.
    pub fn check(&self, found: Census) -> Result<(), LedgerError> {
        let ledger = self.census();
        match SlotState::ALL.into_iter().find(|&state| found.of(state) != ledger.of(state)) {
            None => Ok(()),
            Some(state) => Err(LedgerError::Census { state, found, ledger }),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
