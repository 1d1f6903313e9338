//! The five states are all there are.
use tensorwire_core::burst::{SlotState, State};

enum Mine {}

impl State for Mine {
    const NAME: SlotState = SlotState::Free;
}

fn main() {}
