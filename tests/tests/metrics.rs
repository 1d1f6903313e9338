//! What a run tells Prometheus while it goes on, who asks it, and what is made of it.

use std::collections::BTreeSet;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use serde_json::Value;
use tensorwire::metrics::Scrape;
use tensorwire_bundle::contents::{About, PROGRAM, make};
use tensorwire_bundle::store::Store;
use tensorwire_tests::background::Background;
use tensorwire_tests::yaml::{Small, Yaml};
use tensorwire_tests::{Workplace, config, workspace};

/// A configuration and its capture.
fn place() -> Workplace {
    let place = Workplace::new();
    place.write("c.yaml", Yaml::small(Small::MINI));
    let args = ["prepare", "--synthetic", "5", "--num-images", "64", "--config", "c.yaml"];
    let _ = place.tensorwire(&args).expect_code(0);
    place
}

/// A run without end, and the address at which it answers.
fn run(place: &Workplace, more: &[&str]) -> (Background, String) {
    let line = ["run", "c.yaml", "--no-pin", "--backend", "none", "--metrics", "0"];
    let mut running = place.start(&[&line, more].concat());
    running.wait_until_ready();
    let mut address = None;
    running.wait_until(|said| {
        let line = said.lines().find_map(|line| line.strip_prefix("metrics: http://"));
        address = line.and_then(|line| line.strip_suffix("/metrics")).map(str::to_owned);
        address.is_some()
    });
    (running, address.expect("it was said"))
}

/// The numbers, once images were delivered.
fn numbers(address: &str) -> Scrape {
    let start = Instant::now();
    loop {
        let scrape = Scrape::of(address.parse().expect("an address")).expect("it answers");
        if scrape.value("tensorwire_images_delivered_total") > Some(0.0) {
            return scrape;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "no images: {scrape:?}");
    }
}

/// Words of an expression that are names of ours.
fn names(expression: &str) -> impl Iterator<Item = &str> {
    let words = expression.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words.filter(|word| word.starts_with("tensorwire_"))
}

fn expressions(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                match (key.as_str(), value.as_str()) {
                    ("expr" | "query", Some(text)) => found.push(text.to_owned()),
                    _ => expressions(value, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| expressions(item, found)),
        _ => {}
    }
}

/// Every number that the dashboard shows is there, and every number that is there is shown.
#[test]
fn the_dashboard_shows_what_the_end_point_tells() {
    let text = fs::read_to_string(workspace().join("packaging/grafana/tensorwire.json"));
    let dashboard = serde_json::from_str(&text.expect("the dashboard")).expect("JSON");
    let mut found = Vec::new();
    expressions(&dashboard, &mut found);
    let shown: BTreeSet<&str> = found.iter().flat_map(|expression| names(expression)).collect();
    let place = place();
    let (_running, address) = run(&place, &["--loop"]);
    let scrape = numbers(&address);
    // A software NIC has no link; a socket of the loopback interface has.
    let shipped = fs::read_to_string(config("resnet50_rx_socket.yaml")).expect("shipped");
    place.write("c.yaml", shipped.replace("10.77.0.2", "127.0.0.1"));
    let args = ["prepare", "--synthetic", "5", "--num-images", "64", "--config", "c.yaml"];
    let _ = place.tensorwire(&args).expect_code(0);
    let (_receiving, address) = run(&place, &[]);
    let start = Instant::now();
    let linked = loop {
        let scrape = Scrape::of(address.parse().expect("an address")).expect("it answers");
        let up = scrape.all("tensorwire_link_up").next().map(|sample| sample.value);
        if up == Some(1.0) {
            break scrape;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "no link: {scrape:?}");
    };
    let told = scrape.samples().iter().chain(linked.samples());
    let told: BTreeSet<&str> = told.map(|sample| sample.name.as_str()).collect();
    assert_eq!(shown, told);
}

/// The numbers of a run that goes on balance as well as those of its summary.
#[test]
fn the_numbers_grow_with_the_run_and_balance() {
    let place = place();
    let (running, address) = run(&place, &["--loop", "--sim-drop", "1/101", "--json"]);
    let first = numbers(&address);
    assert_eq!(first.value("tensorwire_ready"), Some(1.0));
    let offered = |scrape: &Scrape| scrape.value("tensorwire_packets_offered_total");
    let start = Instant::now();
    let later = loop {
        let later = numbers(&address);
        let lost = later.labelled("tensorwire_images_lost_total", "cause=\"damaged\"");
        if offered(&later) > offered(&first) && lost > Some(0.0) {
            break later;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "nothing grows: {later:?}");
    };
    let info = later.all("tensorwire_build_info").next().expect("a version");
    let version = env!("CARGO_PKG_VERSION");
    assert!(info.labels.contains(&format!("version=\"{version}\"")), "{info:?}");
    running.signal("TERM");
    let summary = running.wait().expect_code(0).json();
    assert_eq!(summary["balanced"], true);
}

#[test]
fn status_says_how_the_run_is_by_its_exit_code() {
    let place = place();
    let (running, address) = run(&place, &["--loop"]);
    let _ = numbers(&address);
    let args = ["status", "--address", &address, "--interval", "0.3"];
    let well = place.tensorwire(&args).expect_code(0);
    assert!(well.stdout.starts_with("tensorwire   well (version="), "{}", well.stdout);
    assert!(well.stdout.contains("losses       none\n"), "{}", well.stdout);
    let json = place.tensorwire(&[&args[..], &["--json"]].concat()).expect_code(0).json();
    assert_eq!(json["state"], "well");
    assert!(json["images_per_s"].as_f64() > Some(0.0), "{json:#}");
    assert_eq!(json["numbers"]["tensorwire_ready"], 1.0);
    running.signal("TERM");
    let _ = running.wait().expect_code(0);
    let gone = place.tensorwire(&args).expect_code(5);
    assert!(gone.stderr.starts_with(&format!("tensorwire: no answer from {address}")), "{gone:?}");

    let (_running, address) = run(&place, &["--loop", "--sim-drop", "1/101"]);
    let _ = numbers(&address);
    let args = ["status", "--address", &address, "--interval", "1"];
    let losing = place.tensorwire(&args).expect_code(1);
    assert!(losing.stdout.starts_with("tensorwire   losing ("), "{}", losing.stdout);
    assert!(losing.stdout.contains(" images: damaged "), "{}", losing.stdout);
}

/// A bundle whose program is a line of shell, installed.
fn install(store: &Store, place: &Workplace, name: &str) {
    let program = place.write(&format!("{name}/{PROGRAM}"), "#!/bin/sh\n");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("a program");
    let about = About { name: name.to_owned(), run: Vec::new(), selftest: Vec::new() };
    make(&place.file(name), &about).expect("a bundle");
    store.install(&place.file(name)).expect("installed");
}

/// Also when nothing answers any more: that may be why.
#[test]
fn status_tells_which_bundle_runs_and_why_the_last_was_taken_back() {
    let place = place();
    let nobody = TcpListener::bind("127.0.0.1:0").expect("a port");
    let nobody = nobody.local_addr().expect("bound").to_string();
    let told = |address: &str, code: i32, json: &[&str]| {
        let args = ["status", "--address", address, "--interval", "0.1", "--bundles", "state"];
        place.tensorwire(&[&args, json].concat()).expect_code(code)
    };
    assert_eq!(told(&nobody, 5, &[]).stdout, "", "no bundles here");
    assert_eq!(told(&nobody, 5, &["--json"]).json()["bundle"], Value::Null);
    let store = Store::open(&place.file("state")).expect("a store");
    install(&store, &place, "1.0");
    assert_eq!(told(&nobody, 5, &[]).stdout, "bundle       1.0\n");
    install(&store, &place, "2.0");
    store.start().expect("a bundle");
    let text = "bundle       2.0, on trial (started 1 times)\n";
    assert_eq!(told(&nobody, 5, &[]).stdout, text);
    store.note("watchdog killed ABRT").expect("noted");
    let why = store.give_up("start limit").expect("taken back");
    assert!(why.ends_with(": start limit; watchdog killed ABRT"), "{why}");

    let text = format!("bundle       1.0\nrollback     {why}\n");
    assert_eq!(told(&nobody, 5, &[]).stdout, text);
    let json = told(&nobody, 5, &["--json"]).json();
    assert_eq!(json["state"], "silent");
    assert_eq!(json["bundle"]["rollback"].as_str(), Some(why.as_str()));
    let (_running, address) = run(&place, &["--loop"]);
    let _ = numbers(&address);
    let well = told(&address, 0, &[]).stdout;
    assert!(well.starts_with("tensorwire   well (") && well.ends_with(&text), "{well}");
    let json = told(&address, 0, &["--json"]).json();
    assert_eq!(
        (json["state"].as_str(), json["bundle"]["current"].as_str()),
        (Some("well"), Some("1.0"))
    );
    assert_eq!(json["bundle"]["trial_starts"], Value::Null);
}

#[test]
fn an_end_point_that_cannot_be_had_ends_the_run_before_it_begins() {
    let place = place();
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = taken.local_addr().expect("bound").to_string();
    for (address, code) in [(taken.as_str(), 5), ("192.0.2.1:9474", 5), ("localhost", 2)] {
        let args = ["run", "c.yaml", "--no-pin", "--backend", "none", "--metrics", address];
        let output = place.tensorwire(&args);
        let output = output.expect_code(code);
        assert!(output.stderr.contains("metrics"), "{}", output.stderr);
        assert!(output.stderr.contains(address), "{}", output.stderr);
    }
}
