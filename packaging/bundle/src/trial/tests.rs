use super::*;
use crate::contents::check;
use crate::testkit::{Place, names};

/// A store in which 1.0 runs and 2.0 is on trial.
fn on_trial(place: &Place) -> Store {
    let store = place.store();
    store.install(&place.bundle("1.0", "true")).expect("installed");
    store.install(&place.bundle("2.0", "true")).expect("installed");
    store
}

fn current(store: &Store) -> String {
    store.current().expect("readable").expect("a bundle")
}

#[test]
fn the_first_bundle_is_no_trial_and_the_second_is_until_it_is_confirmed() {
    let place = Place::new();
    let store = place.store();
    let error = store.start().expect_err("nothing there").to_string();
    assert_eq!(error, "no bundle is installed");
    store.install(&place.bundle("1.0", "true")).expect("installed");
    assert!(store.start().expect("it runs").notice.is_none());
    assert_eq!(names(&place.root()), ["bundles", "current"]);
    store.install(&place.bundle("2.0", "true")).expect("installed");
    let start = store.start().expect("it runs");
    assert_eq!(start.about.name, "2.0");
    assert_eq!(start.notice.as_deref(), Some("on trial: start 1 of 3"));
    let error = store.install(&place.bundle("3.0", "true")).expect_err("one at a time");
    assert!(error.to_string().starts_with("another bundle is on trial"), "{error}");
    assert_eq!(store.confirm().expect("confirmed").as_deref(), Some("2.0"));
    assert!(store.confirm().expect("nothing to confirm").is_none());
    assert_eq!(names(&place.root()), ["bundles", "current", "previous"]);
    // By hand, later.
    let text = store.roll_back("by hand").expect("taken back");
    assert_eq!(text, "2.0 was taken back for 1.0: by hand");
    assert_eq!(current(&store), "1.0");
    assert!(store.roll_back("again").is_err(), "nothing more to go back to");
    assert_eq!(store.prune().expect("pruned"), ["2.0"]);
}

#[test]
fn a_bundle_that_does_not_become_ready_is_taken_back_with_the_reasons() {
    let place = Place::new();
    let store = on_trial(&place);
    store.note("success: the old one, which makes room").expect("nothing to note");
    for start in 1..=STARTS {
        assert_eq!(store.start().expect("it runs").about.name, "2.0", "{start}");
        // What systemd says of a start that took too long, of a starved watchdog.
        store.note(if start == 1 { "timeout" } else { "watchdog killed ABRT" }).expect("noted");
    }
    let back = store.start().expect("the old one runs");
    assert_eq!(back.about.name, "1.0");
    let status = store.status().expect("readable");
    assert_eq!(
        status.rollback.as_deref(),
        Some(
            "2.0 was taken back for 1.0: it was started 3 times and was not confirmed; timeout; \
             watchdog killed ABRT; watchdog killed ABRT"
        )
    );
    assert_eq!((status.current.as_deref(), status.trial_starts), (Some("1.0"), None));
    assert_eq!(back.notice, status.rollback);
    // The old one is not on trial: it may be started as often as it likes.
    for _ in 0..10 {
        assert_eq!(store.start().expect("it runs").about.name, "1.0");
    }
}

/// The manager gives up (`tensorwire-rollback.service`) before the trial is over.
#[test]
fn what_the_manager_does_not_start_any_more_is_taken_back_on_trial_only() {
    let place = Place::new();
    let store = on_trial(&place);
    store.start().expect("it runs");
    store.note("exit-code exited 101").expect("noted");
    let text = store.give_up("start limit").expect("taken back");
    assert_eq!(text, "2.0 was taken back for 1.0: start limit; exit-code exited 101");
    assert_eq!(store.status().expect("readable").rollback.as_deref(), Some(text.as_str()));
    assert_eq!(current(&store), "1.0");
    // What is confirmed stays, whatever it does.
    let refused = |store: &Store| store.give_up("start limit").expect_err("refused").to_string();
    assert_eq!(refused(&store), "no bundle is on trial");
    let place = Place::new();
    let store = on_trial(&place);
    store.confirm().expect("confirmed");
    assert_eq!(refused(&store), "no bundle is on trial");
    assert_eq!(current(&store), "2.0");
}

/// The power was cut between the marker and the switch: the old one runs, and goes on to.
#[test]
fn a_switch_that_did_not_happen_is_nothing_to_go_back_from() {
    let place = Place::new();
    let store = place.store();
    store.install(&place.bundle("1.0", "true")).expect("installed");
    store.link(FALLBACK, "1.0").expect("linked");
    store.write("trial-0", "2.0\n").expect("written");
    assert!(store.roll_back("by hand").is_err(), "there is nothing before 1.0");
    assert_eq!(names(&place.root()), ["bundles", "current"]);
}

#[test]
fn what_is_broken_or_fails_its_self_test_changes_nothing() {
    let place = Place::new();
    let store = place.store();
    store.install(&place.bundle("1.0", "true")).expect("installed");
    let before = names(&place.root());
    let error = store.install(&place.bundle("2.0", "exit 3")).expect_err("refused").to_string();
    assert_eq!(error, "the self-test ended with exit status: 3; nothing was changed");
    let broken = place.bundle("2.1", "true");
    fs::write(broken.join("config.yaml"), "torn").expect("written");
    let error = store.install(&broken).expect_err("refused").to_string();
    assert!(error.ends_with("config.yaml: it is not what SHA256SUMS says"), "{error}");
    let other = place.bundle("1.0", "true # another");
    let error = store.install(&other).expect_err("refused").to_string();
    assert_eq!(error, "1.0 runs already");
    assert_eq!((names(&place.root()), current(&store)), (before, "1.0".to_owned()));
    assert_eq!(names(&place.root().join("bundles")), ["1.0"]);
}

/// The power is cut before each step of an update in turn. Whatever is there then, the machine
/// starts a whole bundle, and the update can be made again.
#[test]
fn an_update_that_is_cut_anywhere_leaves_a_whole_bundle_that_starts() {
    let steps = {
        let place = Place::new();
        let store = on_trial(&place);
        let all = store.fault.steps.get();
        assert!(all > 10, "{all}");
        all
    };
    let mut seen = [0, 0];
    for cut in 0..=steps {
        let place = Place::new();
        let store = place.store();
        store.install(&place.bundle("1.0", "true")).expect("installed");
        let begun = store.fault.steps.get();
        store.fault.killed_at.set(Some(begun + cut));
        let installed = store.install(&place.bundle("2.0", "true"));
        // After the cut: another process, the same disk.
        let store = place.store();
        let start = store.start().expect("something runs");
        check(&start.folder).expect("a whole bundle");
        let name = start.about.name.as_str();
        assert!(["1.0", "2.0"].contains(&name), "{name}");
        seen[usize::from(name == "2.0")] += 1;
        // Never the new one without a way back.
        assert_eq!(store.marker().expect("readable").is_some(), name == "2.0", "cut at {cut}");
        if installed.is_ok() {
            assert_eq!(name, "2.0");
        }
        if name == "1.0" {
            store.install(&place.bundle("2.0", "true")).expect("the update can be made again");
        }
        store.confirm().expect("confirmed");
        assert_eq!(current(&store), "2.0");
        assert_eq!(names(&place.root()), ["bundles", "current", "previous"]);
    }
    assert!(seen.iter().all(|&times| times > 0), "{seen:?}");
}

/// And before each step of a rollback and of a confirmation.
#[test]
fn a_rollback_and_a_confirmation_that_are_cut_anywhere_are_made_whole() {
    for cut in 0..12 {
        let place = Place::new();
        let store = on_trial(&place);
        for _ in 0..STARTS {
            store.start().expect("it runs");
        }
        store.fault.killed_at.set(Some(store.fault.steps.get() + cut));
        let _ = store.start();
        let store = place.store();
        let start = store.start().expect("something runs");
        assert_eq!(start.about.name, "1.0", "cut at {cut}");
        assert!(store.status().expect("readable").rollback.is_some(), "cut at {cut}");
        assert!(store.marker().expect("readable").is_none());

        let place = Place::new();
        let store = on_trial(&place);
        store.fault.killed_at.set(Some(store.fault.steps.get() + cut));
        let _ = store.confirm();
        let store = place.store();
        assert_eq!(store.start().expect("it runs").about.name, "2.0", "cut at {cut}");
        store.confirm().expect("confirmed");
        assert_eq!(store.status().expect("readable").previous.as_deref(), Some("1.0"));
    }
}

#[test]
fn a_full_disk_refuses_an_update_and_does_not_hold_up_a_rollback() {
    let place = Place::new();
    let store = place.store();
    store.install(&place.bundle("1.0", "true")).expect("installed");
    store.fault.full.set(true);
    let error = store.install(&place.bundle("2.0", "true")).expect_err("no room").to_string();
    assert!(error.contains("cannot write"), "{error}");
    assert_eq!(store.start().expect("it runs").about.name, "1.0");
    store.fault.full.set(false);
    store.install(&place.bundle("2.0", "true")).expect("room");
    store.fault.full.set(true);
    for _ in 0..STARTS {
        assert_eq!(store.start().expect("it runs").about.name, "2.0");
    }
    let back = store.start().expect("it runs");
    assert_eq!(back.about.name, "1.0");
    let notice = back.notice.expect("a reason");
    assert!(notice.contains("(not kept: cannot write"), "{notice}");
}
