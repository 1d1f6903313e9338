use super::*;

use std::os::unix::fs::PermissionsExt;
use std::thread;

fn dir() -> tempfile::TempDir {
    tempfile::tempdir().expect("a directory")
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(dir)
        .expect("readable")
        .map(|entry| entry.expect("entry").file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn a_new_file_appears_whole_or_not_at_all() {
    let dir = dir();
    let path = dir.path().join("a.bin");
    fs::write(&path, b"old").expect("writable");

    let mut given_up = NewFile::create(&path).expect("writable");
    given_up.append(b"half").expect("writable");
    drop(given_up);
    assert_eq!(names(dir.path()), ["a.bin"]);
    assert_eq!(fs::read(&path).expect("there"), b"old");

    let mut whole = NewFile::create(&path).expect("writable");
    whole.append(b"new").expect("writable");
    assert_eq!(fs::read(&path).expect("there"), b"old");
    whole.publish().expect("renamed");
    assert_eq!(names(dir.path()), ["a.bin"]);
    assert_eq!(fs::read(&path).expect("there"), b"new");
}

#[test]
fn bytes_go_to_their_place_and_appended_ones_behind_each_other() {
    let dir = dir();
    let path = dir.path().join("a.bin");
    let mut file = NewFile::create(&path).expect("writable");
    file.append(b"ab").expect("writable");
    file.write_all_at(b"yz", 4).expect("writable");
    write!(file, "c{}", 4).expect("writable");
    file.sync().expect("writable");
    assert_eq!(fs::read(file.temporary()).expect("there"), b"abc4yz");
    assert_eq!(file.target(), path);
    file.publish().expect("renamed");
    assert_eq!(fs::read(&path).expect("there"), b"abc4yz");
}

#[test]
fn what_a_killed_process_left_is_not_in_the_way() {
    let dir = dir();
    let path = dir.path().join("a.bin");
    let killed = NewFile::create(&path).expect("writable");
    let mut next = NewFile::create(&path).expect("writable");
    next.append(b"new").expect("writable");
    next.publish().expect("renamed");
    assert_eq!(fs::read(&path).expect("there"), b"new");
    drop(killed);
    assert_eq!(names(dir.path()), ["a.bin"]);
    assert_eq!(fs::read(&path).expect("there"), b"new");
}

#[test]
fn of_two_writers_at_once_each_file_is_whole() {
    let dir = dir();
    let path = dir.path().join("new/a.bin");
    let write = |byte: u8| {
        for _ in 0..20 {
            // More than one buffer, so that bytes of both would mix in a file that they shared.
            let mut file = NewFile::create(&path).expect("a name of its own");
            for _ in 0..3 {
                file.append(&[byte; 400_000]).expect("writable");
            }
            file.publish().expect("renamed");
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| write(1));
        scope.spawn(|| write(2));
    });
    assert_eq!(names(&dir.path().join("new")), ["a.bin"]);
    let bytes = fs::read(&path).expect("there");
    assert_eq!(bytes.len(), 1_200_000);
    assert!(bytes.iter().all(|&byte| byte == bytes[0]), "bytes of two writers in one file");
}

#[test]
#[expect(clippy::print_stdout, reason = "a test that is skipped says so")]
fn a_full_disk_is_told_with_the_name_of_the_file() {
    let full = || File::options().write(true).open("/dev/full").ok();
    let (Some(appended), Some(placed)) = (full(), full()) else {
        println!("skipped: this machine has no /dev/full");
        return;
    };
    let mut file = NewFile::over(appended, Path::new("out/a.bin"));
    file.append(b"buffered").expect("not on the disk yet");
    let error = file.sync().expect_err("no room");
    assert!(error.to_string().starts_with("cannot write out/a.bin: "), "{error}");
    let FileProblem::Io(cause) = &error.problem else { panic!("{error:?}") };
    assert_eq!(cause.kind(), io::ErrorKind::StorageFull);
    assert!(file.publish().is_err(), "a file that is not whole");

    let file = NewFile::over(placed, Path::new("out/a.bin"));
    let error = file.write_all_at(b"1", 0).expect_err("no room");
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
}

#[test]
fn a_failed_rename_leaves_nothing_behind() {
    let dir = dir();
    let path = dir.path().join("a.bin");
    let mut file = NewFile::create(&path).expect("writable");
    file.append(b"1").expect("writable");
    // Somebody puts a directory in its place meanwhile.
    fs::create_dir(&path).expect("made");
    let error = file.publish().expect_err("a directory in the way");
    assert!(error.to_string().starts_with("cannot put in place "), "{error}");
    assert_eq!(names(dir.path()), ["a.bin"]);
    assert!(path.is_dir());
}

#[test]
fn what_is_no_regular_file_is_refused_by_name() {
    let dir = dir();
    for (path, what) in [(dir.path(), "a directory"), (Path::new("/dev/null"), "a character")] {
        let error = NewFile::create(path).expect_err(what);
        let start = format!("cannot create {}: it is {what}", path.display());
        assert!(error.to_string().starts_with(&start), "{error}");
        let error = open(path).expect_err(what);
        assert!(error.to_string().contains(&format!("it is {what}")), "{error}");
    }
    assert!(NewFile::create(&dir.path().join("..")).is_err());
    assert!(NewFile::create(Path::new("")).is_err());
    let socket = dir.path().join("s");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).expect("a socket");
    let error = NewFile::create(&socket).expect_err("a socket");
    assert!(error.to_string().ends_with("it is a socket, not a file"), "{error}");
    assert_eq!(names(dir.path()), ["s"]);
}

#[test]
fn directories_are_made_and_taken_away_again() {
    let dir = dir();
    let path = dir.path().join("x/y/a.bin");
    drop(NewFile::create(&path).expect("made"));
    assert!(names(dir.path()).is_empty());
    // What somebody else put there stays, with its directory.
    let given_up = NewFile::create(&path).expect("made");
    fs::write(dir.path().join("x/other"), b"1").expect("writable");
    drop(given_up);
    assert_eq!(names(&dir.path().join("x")), ["other"]);
    NewFile::create(&path).expect("made").publish().expect("renamed");
    assert_eq!(names(&dir.path().join("x/y")), ["a.bin"]);
}

#[test]
fn a_directory_that_cannot_be_made_takes_its_parents_with_it() {
    let dir = dir();
    let file = dir.path().join("file");
    fs::write(&file, b"1").expect("writable");
    let error = NewFile::create(&file.join("x/a.bin")).expect_err("a file in the way");
    let start = format!("cannot create the directory {}", file.display());
    assert!(error.to_string().starts_with(&start), "{error}");
    let link = dir.path().join("link");
    std::os::unix::fs::symlink("nowhere", &link).expect("a link");
    let error = NewFile::create(&link.join("a.bin")).expect_err("a link in the way");
    assert!(error.to_string().contains("link: not a directory"), "{error}");
    fs::remove_file(&link).expect("ours");

    // A name of more bytes than a name may have, below one that can be made.
    let long = "n".repeat(300);
    let error = NewFile::create(&dir.path().join("new").join(&long).join("a.bin"));
    let error = error.expect_err("too long a name");
    assert!(error.to_string().contains("/new/nnn"), "{error}");
    assert_eq!(names(dir.path()), ["file"]);

    let error = NewFile::create(&dir.path().join("new").join(&long)).expect_err("too long a name");
    assert!(error.to_string().starts_with("cannot create "), "{error}");
    assert_eq!(names(dir.path()), ["file"]);
}

#[test]
#[expect(clippy::print_stdout, reason = "a test that is skipped says so")]
fn a_directory_that_cannot_be_written_is_named() {
    let dir = dir();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o500)).expect("ours");
    if fs::write(dir.path().join("probe"), b"").is_ok() {
        println!("skipped: this user may write everywhere");
        return;
    }
    let error = NewFile::create(&dir.path().join("a.bin")).expect_err("not writable");
    assert!(error.to_string().contains("a.bin: "), "{error}");
}
