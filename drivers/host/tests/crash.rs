//! Processes that really crash, and what their successor finds.

#![allow(unsafe_code)] // reads where nothing is, to be killed for it

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use tensorwire_host::crash::{self, Record};

const HOW: &str = "TENSORWIRE_TEST_CRASH";
const FILE: &str = "TENSORWIRE_TEST_CRASH_FILE";

/// Not a test of its own: what a child of the others does.
#[test]
fn child() {
    let Ok(how) = std::env::var(HOW) else { return };
    let path = PathBuf::from(std::env::var_os(FILE).expect("the file"));
    let before = crash::open(&path, "build 7").expect("a record can be opened");
    if how == "start" {
        let text = before.map_or_else(|| "none".to_owned(), |record| record.to_string());
        return fs::write(path.with_extension("found"), text).expect("written");
    }
    crash::note(0, 4_096);
    crash::note(31, u64::MAX);
    crash::note(32, 1);
    let body = move || match how.as_str() {
        "panic" => panic!("the {} engine is gone", "third"),
        "segv" => {
            let nowhere = std::ptr::without_provenance::<u8>(0x1230);
            // SAFETY: none: this is to be killed for it.
            let _ = unsafe { nowhere.read_volatile() };
        }
        "abort" => std::process::abort(),
        other => unreachable!("{other}"),
    };
    let thread = std::thread::Builder::new().name("tw-consumer".to_owned()).spawn(body);
    assert!(thread.expect("a thread").join().is_ok(), "it panicked");
}

fn run(how: &str, path: &Path) -> ExitStatus {
    let mut child = Command::new(std::env::current_exe().expect("this program"));
    let child = child.args(["--exact", "child", "-q"]).env(HOW, how).env(FILE, path);
    child.output().expect("a child").status
}

/// The record that a crash left, and what the next start says about it.
fn crashed(how: &str) -> (Record, String, ExitStatus) {
    let folder = std::env::temp_dir().join(format!("tw-crash-{how}-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    let path = folder.join("crash");
    let status = run(how, &path);
    let record = crash::newest(&path).expect("a record");
    assert!(run("start", &path).success());
    let said = fs::read_to_string(path.with_extension("found")).expect("the next start has begun");
    let kept = crash::newest(&path).expect("it is kept");
    assert_eq!(kept, record, "the next start put the record aside as it was");
    assert!(run("start", &path).success());
    let again = fs::read_to_string(path.with_extension("found")).expect("a third start");
    assert_eq!(again, "none", "a crash is told once");
    fs::remove_dir_all(&folder).expect("removed");
    (record, said, status)
}

fn check(record: &Record) {
    assert!(!record.torn);
    assert_eq!(record.build, "build 7");
    assert_eq!(record.thread_name, "tw-consumer");
    assert_eq!((record.counters[0], record.counters[31]), (4_096, u64::MAX));
    assert!(record.counters[1..31].iter().all(|&counter| counter == 0));
    let now = std::time::UNIX_EPOCH.elapsed().expect("after 1970").as_secs();
    assert!(now - record.time_ns / 1_000_000_000 < 600, "{}", record.time_ns);
}

#[test]
fn a_panic_leaves_its_message_and_place() {
    let (record, said, _) = crashed("panic");
    check(&record);
    assert_eq!((record.signal, record.what.as_str()), (0, "panic: the third engine is gone"));
    assert!(record.place.contains("tests/crash.rs:"), "{}", record.place);
    assert!(said.starts_with("panic: the third engine is gone at "), "{said}");
}

#[test]
fn memory_that_is_not_there_leaves_its_address() {
    let (record, said, status) = crashed("segv");
    check(&record);
    assert_eq!(status.signal(), Some(11), "it still ends by the signal");
    assert_eq!((record.signal, record.address), (11, 0x1230));
    assert!(said.contains("SIGSEGV") && said.contains("(address 0x1230)"), "{said}");
}

#[test]
fn an_abort_leaves_a_record() {
    let (record, said, status) = crashed("abort");
    check(&record);
    assert_eq!(status.signal(), Some(6));
    assert!(said.contains("SIGABRT"), "{said}");
}

/// A crash within the writing of the record, as if the power had gone.
#[test]
fn a_torn_record_is_told_as_such() {
    let path = std::env::temp_dir().join(format!("tw-crash-torn-{}", std::process::id()));
    let _ = run("abort", &path);
    let mut page = fs::read(&path).expect("a record");
    page[8] = 1;
    fs::write(&path, &page).expect("written");
    assert!(crash::newest(&path).expect("what is there").torn);
    assert!(run("start", &path).success());
    let said = fs::read_to_string(path.with_extension("found")).expect("said");
    assert!(said.ends_with("the record was cut off while it was written"), "{said}");
    for name in ["", ".1", ".found"] {
        let _ = fs::remove_file(format!("{}{name}", path.display()));
    }
}
