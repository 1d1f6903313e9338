//! A run under a service manager, played by the test: what it is told, and when it is not.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tensorwire_tests::yaml::{Small, Yaml};
use tensorwire_tests::{Workplace, config, program};

/// The manager's side: a socket, and what was heard so far.
struct Manager {
    socket: UnixDatagram,
    heard: Vec<String>,
}

impl Manager {
    fn new(place: &Workplace) -> Self {
        let socket = UnixDatagram::bind(place.file("notify")).expect("a socket");
        socket.set_read_timeout(Some(Duration::from_millis(100))).expect("a time");
        Self { socket, heard: Vec::new() }
    }

    /// Hears what is said within `time`, or until `there` says so of a line; whether it did.
    fn hear(&mut self, time: Duration, there: impl Fn(&str) -> bool) -> bool {
        let start = Instant::now();
        while start.elapsed() < time {
            let mut bytes = [0; 1024];
            let Ok(came) = self.socket.recv(&mut bytes) else { continue };
            let text = String::from_utf8_lossy(&bytes[..came]).into_owned();
            for line in text.lines() {
                self.heard.push(line.to_owned());
                if there(line) {
                    return true;
                }
            }
        }
        false
    }

    #[track_caller]
    fn wait_for(&mut self, line: &str) {
        let found = self.hear(Duration::from_secs(120), |said| said == line);
        assert!(found, "no {line}: {:?}", self.heard);
    }

    /// How often it was fed within `time`.
    fn fed(&mut self, time: Duration) -> usize {
        let before = self.heard.len();
        self.hear(time, |_| false);
        self.heard[before..].iter().filter(|line| *line == "WATCHDOG=1").count()
    }
}

/// A run that is killed with the test.
struct Run(Child);

impl Drop for Run {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Run {
    /// The watchdog wants to be fed within two seconds.
    fn start(place: &Workplace, args: &[&str], stdout: impl Into<Stdio>) -> Self {
        let mut command = Command::new(program());
        command.current_dir(place.path()).args(["run", "c.yaml", "--no-pin"]).args(args);
        command.env("NOTIFY_SOCKET", place.file("notify")).env("WATCHDOG_USEC", "2000000");
        command.stdin(Stdio::null()).stdout(stdout).stderr(Stdio::piped());
        Self(command.spawn().expect("the program starts"))
    }

    fn terminate(&self) {
        let id = self.0.id().to_string();
        let sent = Command::new("sh").args(["-c", "kill -s TERM \"$0\"", &id]).status();
        assert!(sent.is_ok_and(|status| status.success()), "no SIGTERM to {id}");
    }

    /// Its end: how long it took from now, its exit code, what it said on stderr.
    fn end(mut self) -> (Duration, Option<i32>, String) {
        let start = Instant::now();
        let mut said = String::new();
        let mut stderr = self.0.stderr.take().expect("piped");
        let _ = stderr.read_to_string(&mut said).expect("text");
        let code = self.0.wait().expect("it ended").code();
        (start.elapsed(), code, said)
    }
}

fn place(yaml: &Yaml) -> Workplace {
    let place = Workplace::new();
    place.write("c.yaml", yaml);
    prepare(&place);
    place
}

/// The capture that the configuration names, with its labels.
fn prepare(place: &Workplace) {
    let args = ["prepare", "--synthetic", "5", "--num-images", "64", "--config", "c.yaml"];
    let _ = place.tensorwire(&args).expect_code(0);
}

#[test]
fn progress_feeds_and_the_manager_is_told_of_each_step() {
    let place = place(&Yaml::small(Small::MINI));
    let mut manager = Manager::new(&place);
    let run = Run::start(&place, &["--backend", "none", "--loop"], Stdio::null());
    manager.wait_for("READY=1");
    let fed = manager.fed(Duration::from_secs(4));
    // Every half second, on a machine that may be busy.
    assert!((2..=9).contains(&fed), "{fed}: {:?}", manager.heard);
    assert!(
        manager.heard.iter().any(|line| line.starts_with("STATUS=") && line.ends_with("; running"))
    );
    run.terminate();
    manager.wait_for("STOPPING=1");
    let (_, code, said) = run.end();
    assert_eq!(code, Some(0), "{said}");
    manager.hear(Duration::from_millis(200), |_| false);
    let last = manager.heard.last().expect("something");
    assert!(last.starts_with("STATUS=tensorwire: complete: "), "{last}");
}

/// A consumer that hangs in its sink: it writes a line for each batch to a pipe that nobody reads.
#[test]
fn a_consumer_that_hangs_starves_the_watchdog_and_a_signal_ends_it_in_time() {
    let place = hung();
    let mut manager = Manager::new(&place);
    let (_reader, mut writer) = io::pipe().expect("a pipe");
    // As much as a pipe of Linux takes (pipe(7)): the first line of the run does not fit.
    writer.write_all(&[b'\n'; 65_536]).expect("room");
    let args = ["--model", "resnet18", "--loop", "--images-per-batch", "1", "--drain", "1"];
    let run = Run::start(&place, &args, writer);
    manager.wait_for("READY=1");
    let starved = |line: &str| line.ends_with("; tw-consumer does not come round for 3 s");
    let found = manager.hear(Duration::from_secs(300), starved);
    assert!(found, "{:?}", manager.heard);
    assert_eq!(manager.fed(Duration::from_secs(3)), 0, "{:?}", manager.heard);
    run.terminate();
    let (took, code, said) = run.end();
    assert_eq!(code, Some(5), "{said}");
    let last = said.lines().last().unwrap_or_default();
    assert!(last.starts_with("tensorwire: the run did not end within 11 s: tw-consumer"), "{said}");
    assert!((10..20).contains(&took.as_secs()), "{took:?}");
}

/// A small network, and a line of PCA for each batch.
fn hung() -> Workplace {
    let yaml = Yaml::shipped("resnet50_sw_loopback.yaml").set("pca_every_n_batches", 1);
    let place = place(&yaml);
    let model = "models/resnet18_features.onnx";
    let args = ["export-model", "--arch", "resnet18", "--weights", "seed:5", "--output", model];
    let _ = place.tensorwire(&args).expect_code(0);
    place
}

#[test]
fn a_quiet_wire_feeds() {
    let place = Workplace::new();
    // A UDP socket that nobody sends to; the startup wait is longer than the test.
    let shipped = fs::read_to_string(config("resnet50_rx_socket.yaml")).expect("shipped");
    place.write("c.yaml", shipped.replace("10.77.0.2", "127.0.0.1"));
    prepare(&place);
    let mut manager = Manager::new(&place);
    let _run = Run::start(&place, &["--backend", "none"], Stdio::null());
    manager.wait_for("READY=1");
    let fed = manager.fed(Duration::from_secs(4));
    assert!(fed >= 2, "{fed}: {:?}", manager.heard);
}
