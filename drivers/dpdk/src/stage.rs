//! The stages of a port's start.

use std::fmt;

/// What is done to a port on its way up, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// The device is found or attached.
    Attach,
    /// Frames that no rule matches are kept away, where that is wanted.
    Isolate,
    /// Queues and options.
    Configure,
    /// The device gets to know our memory.
    Map,
    /// The receive queue.
    RxQueue,
    /// The transmit queue.
    TxQueue,
    /// The port starts.
    Start,
    /// The steering rules.
    Steer,
}

impl Stage {
    /// All of them that [`crate::Port::open`] goes through.
    pub const OPEN: [Self; 7] = [
        Self::Isolate,
        Self::Configure,
        Self::Map,
        Self::RxQueue,
        Self::TxQueue,
        Self::Start,
        Self::Steer,
    ];
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Attach => "attach",
            Self::Isolate => "isolate",
            Self::Configure => "configure",
            Self::Map => "map",
            Self::RxQueue => "receive queue",
            Self::TxQueue => "transmit queue",
            Self::Start => "start",
            Self::Steer => "steer",
        })
    }
}
