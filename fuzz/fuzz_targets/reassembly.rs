//! Any stream: the reassembly and its model agree after every step, and no packet gets lost.
//!
//! The model, what feeds both sides and what a stream is are those of the test `reassembly` of the
//! core.
#![no_main]

use libfuzzer_sys::arbitrary::{self, Arbitrary, Unstructured};
use libfuzzer_sys::fuzz_target;

#[path = "../../core/tests/reassembly/driver.rs"]
#[expect(dead_code, reason = "some of it is for tests of the outcome")]
mod driver;
#[path = "../../core/tests/reassembly/model.rs"]
mod model;
#[path = "../../core/tests/reassembly/stream.rs"]
mod stream;
#[path = "../../core/tests/reassembly/words.rs"]
mod words;

use stream::{Plan, Step};

#[derive(Arbitrary)]
struct Raw {
    shape: u8,
    width: u8,
    windows: u8,
    timeout: u8,
    start: u32,
    /// Kind and two numbers, as [`Step::new`] reads them.
    steps: Vec<(u8, u16, u16)>,
}

/// Enough for every rule to meet every other, and few enough to run thousands a second.
const MAX_STEPS: usize = 100;

/// A stream, shown as its steps where it fails.
#[derive(Debug)]
struct Input(Plan);

impl From<Raw> for Input {
    fn from(raw: Raw) -> Self {
        let mut plan = Plan {
            shape: raw.shape.into(),
            width: 4 + u32::from(raw.width) % 29,
            windows: 1 + u32::from(raw.windows) % 4,
            timeout: raw.timeout.into(),
            start: raw.start.into(),
            steps: Vec::new(),
        };
        let geometry = plan.geometry();
        let steps = raw.steps.iter().take(MAX_STEPS);
        plan.steps = steps.map(|&(kind, a, b)| Step::new(kind, a, b, &geometry)).collect();
        Self(plan)
    }
}

impl<'a> Arbitrary<'a> for Input {
    fn arbitrary(bytes: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        Raw::arbitrary(bytes).map(Self::from)
    }

    fn arbitrary_take_rest(bytes: Unstructured<'a>) -> arbitrary::Result<Self> {
        Raw::arbitrary_take_rest(bytes).map(Self::from)
    }
}

fuzz_target!(|input: Input| {
    input.0.run();
});
