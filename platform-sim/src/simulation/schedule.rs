//! A file of faults: what `tensorwire sim --faults` reads and `--shrink` writes.

use serde::{Deserialize, Serialize};

use super::faults::FaultPlan;
use super::plan::{Plan, RxPoll, Weights};

/// Faults in the place of those that a seed draws, and a run that is smaller than the one it draws.
///
/// ```json
/// {
///   "faults": {
///     "rates": {
///       "drop": { "one_in": 50, "burst": 3 },
///       "clock_step": { "one_in": 400, "from": 100, "until": 900, "limit": 2 }
///     },
///     "events": [ { "fault": "duplicate", "at": 17, "arg": 2 } ]
///   },
///   "images": 3
/// }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Schedule {
    /// Which faults happen.
    pub faults: FaultPlan,
    /// Images of one pass.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub images: Option<u64>,
    /// Passes over them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub passes: Option<u64>,
    /// Batches open at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub windows: Option<u32>,
    /// Who polls the NIC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rx_poll: Option<RxPoll>,
    /// Payloads are converted when they are placed, whatever the seed says.
    pub at_placement: bool,
    /// The machines are stepped equally often, whatever the seed says.
    pub even: bool,
}

impl Schedule {
    /// What has to be said about `plan` beside its seed.
    #[must_use]
    pub fn of(plan: &Plan) -> Self {
        Self {
            faults: plan.faults.clone(),
            images: Some(plan.images),
            passes: Some(plan.passes),
            windows: Some(plan.windows),
            rx_poll: Some(plan.rx_poll),
            at_placement: plan.at_close.is_none(),
            even: plan.weights == Weights::EVEN,
        }
    }

    /// Puts it into the plan that a seed drew.
    pub fn apply(&self, plan: &mut Plan) {
        plan.faults = self.faults.clone();
        plan.images = self.images.unwrap_or(plan.images);
        plan.passes = self.passes.unwrap_or(plan.passes);
        plan.windows = self.windows.unwrap_or(plan.windows);
        plan.rx_poll = self.rx_poll.unwrap_or(plan.rx_poll);
        if self.at_placement {
            plan.at_close = None;
        }
        if self.even {
            plan.weights = Weights::EVEN;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_goes_through_a_file() {
        for seed in 0..50 {
            let plan = Plan::draw(seed);
            let text = serde_json::to_string(&Schedule::of(&plan)).expect("text");
            let schedule: Schedule = serde_json::from_str(&text).expect("a schedule");
            let mut other = Plan::draw(seed);
            other.faults = FaultPlan::new();
            other.images = 1;
            schedule.apply(&mut other);
            assert_eq!(other, plan);
        }
        assert!(serde_json::from_str::<Schedule>(r#"{"image": 3}"#).is_err());
    }
}
