use super::*;

fn happened(plan: &FaultPlan, seed: u64) -> Vec<Event> {
    let mut injector = Injector::new(plan, &mut Prng::new(seed));
    for step in 0..500 {
        injector.at_step(step);
        for fault in Fault::ALL {
            let drawn = injector.draw(fault);
            assert_eq!(
                drawn,
                injector.happened().last().filter(|_| drawn.is_some()).map(|e| e.arg)
            );
        }
    }
    injector.happened().to_vec()
}

#[test]
fn what_happened_happens_again_as_a_list_of_events() {
    let plan = FaultPlan::preset("everything").expect("a preset");
    let events = happened(&plan, 3);
    assert!(events.len() > 100);
    assert_ne!(events, happened(&plan, 4));
    assert_eq!(happened(&FaultPlan::of(events.clone()), 5), events);
}

#[test]
fn one_kind_can_be_turned_off_without_moving_the_others() {
    let plan = FaultPlan::preset("wire").expect("a preset");
    let mut without = plan.clone();
    without.rates.remove(&Fault::Drop);
    let others: Vec<_> =
        happened(&plan, 7).into_iter().filter(|event| event.fault != Fault::Drop).collect();
    assert_eq!(happened(&without, 7), others);
}

#[test]
fn a_schedule_bounds_when_how_long_and_how_often() {
    let rate = Rate { one_in: 10, from: 100, until: 200, burst: 4, limit: 8 };
    let events = happened(&FaultPlan::new().with(Fault::Drop, rate), 1);
    let at: Vec<u64> = events.iter().map(|event| event.at).collect();
    assert_eq!(at.len(), 8);
    assert!(at[0] >= 100 && at[7] < 204, "{at:?}");
    assert!(at[3] == at[0] + 3 && at[7] == at[4] + 3, "bursts of 4: {at:?}");
}

#[test]
fn a_plan_is_a_file_and_a_wrong_one_is_refused() {
    for name in PRESETS {
        let plan = FaultPlan::preset(name).expect("a preset");
        let text = serde_json::to_string(&plan).expect("text");
        assert_eq!(serde_json::from_str::<FaultPlan>(&text).expect("a plan"), plan);
        assert_eq!(plan.is_none(), name == "none", "{plan}");
    }
    assert_eq!(FaultPlan::preset("nothing"), None);
    for fault in Fault::ALL {
        let name = serde_json::to_string(&fault).expect("a name");
        assert_eq!(name, format!("\"{fault}\""));
    }
    let wrong = [
        r#"{"rate": {}}"#,
        r#"{"rates": {"dorp": {"one_in": 5}}}"#,
        r#"{"rates": {"drop": {"one_in": 5, "brust": 2}}}"#,
        r#"{"rates": {"drop": {}}}"#,
        r#"{"events": [{"fault": "drop", "at": -1, "arg": 0}]}"#,
    ];
    for text in wrong {
        assert!(serde_json::from_str::<FaultPlan>(text).is_err(), "{text}");
    }
}
