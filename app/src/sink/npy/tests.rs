use super::*;
use std::fs::{self, OpenOptions};

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder for the test")
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("the folder is there");
    let mut names: Vec<String> = entries
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn rows_stand_where_their_images_belong_and_the_others_are_nan() {
    let folder = folder();
    let path = folder.path().join("features.npy");
    let writer = NpyWriter::create(&path, 5, 3).expect("room");
    writer.write_rows(3, &[30.0, 31.0, 32.0]).expect("room");
    writer.write_rows(0, &[0.0, 1.0, 2.0, 10.0, 11.0, 12.0]).expect("room");
    assert_eq!(writer.finish().expect("room"), path);
    let array = read(&path).expect("what was written");
    assert_eq!((array.rows, array.columns), (5, 3));
    assert_eq!(array.row(0), Some(&[0.0, 1.0, 2.0][..]));
    assert_eq!(array.row(1), Some(&[10.0, 11.0, 12.0][..]));
    assert_eq!(array.row(3), Some(&[30.0, 31.0, 32.0][..]));
    for row in [2, 4] {
        assert!(array.row(row).expect("a row").iter().all(|v| v.is_nan()), "row {row}");
    }
    assert_eq!(array.row(5), None);
    assert_eq!(names(folder.path()), ["features.npy"]);
}

#[test]
fn the_bytes_are_those_of_the_format() {
    let folder = folder();
    let path = folder.path().join("f.npy");
    let writer = NpyWriter::create(&path, 2, 1).expect("room");
    writer.write_rows(0, &[1.0, -2.5]).expect("room");
    writer.finish().expect("room");
    let bytes = fs::read(&path).expect("the file");
    let mut wanted = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
    wanted.extend_from_slice(b"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 1), }");
    wanted.resize(127, b' ');
    wanted.push(b'\n');
    wanted.extend_from_slice(&[0, 0, 128, 63, 0, 0, 32, 192]);
    assert_eq!(bytes, wanted);
}

#[test]
fn the_last_pass_stays() {
    let folder = folder();
    let path = folder.path().join("loop.npy");
    let writer = NpyWriter::create(&path, 3, 2).expect("room");
    // Images 2 to 6: row 2 of the first pass, rows 0 to 2 of the second, row 0 of the third.
    writer.write_rows(2, &[2.0, 2.0, 3.0, 3.0, 4.0, 4.0, 5.0, 5.0, 6.0, 6.0]).expect("room");
    writer.finish().expect("room");
    let array = read(&path).expect("what was written");
    assert_eq!(array.values, [6.0, 6.0, 4.0, 4.0, 5.0, 5.0]);
}

#[test]
fn a_run_that_ends_early_leaves_the_old_file_and_nothing_else() {
    let folder = folder();
    let path = folder.path().join("features.npy");
    fs::write(&path, b"before").expect("room");
    let writer = NpyWriter::create(&path, 4, 4).expect("room");
    writer.write_rows(0, &[1.0; 8]).expect("room");
    assert_eq!(names(folder.path()).len(), 2);
    drop(writer);
    assert_eq!(names(folder.path()), ["features.npy"]);
    assert_eq!(fs::read(&path).expect("the file"), b"before");
}

#[test]
#[expect(clippy::print_stdout, reason = "a test that is skipped says so")]
fn a_full_disk_is_named_with_its_bytes() {
    let Ok(full) = OpenOptions::new().write(true).open("/dev/full") else {
        println!("skipped: this machine has no /dev/full");
        return;
    };
    let writer = NpyWriter {
        file: NewFile::over(full, Path::new("out/features.npy")),
        rows: 256,
        columns: 2048,
        bytes: file_bytes(256, 2048).expect("a size"),
    };
    let error = writer.fill().expect_err("no room");
    let NpyError::Full { needed: 2_097_280, at: 0, .. } = error else { panic!("{error:?}") };
    let text = error.to_string();
    assert!(text.starts_with("out/features.npy: no room at byte 0 of the 2097280 it needs: "));
    let error = writer.write_rows(255, &[0.0; 2048]).expect_err("no room");
    assert!(matches!(error, NpyError::Full { at: 2_089_088, .. }), "{error:?}");
}

#[test]
fn what_cannot_be_is_refused_before_a_file_is_made() {
    let folder = folder();
    let path = folder.path().join("f.npy");
    for (rows, columns) in [(0, 5), (5, 0), (u64::MAX, 2), (1 << 61, 2)] {
        let error = NpyWriter::create(&path, rows, columns).expect_err("no such file");
        assert!(matches!(error, NpyError::Shape { .. }), "{error}");
    }
    let error = NpyWriter::create(folder.path(), 1, 1).expect_err("a folder");
    assert!(matches!(error, NpyError::File(_)), "{error}");
    assert!(names(folder.path()).is_empty());
}

#[test]
fn what_is_no_file_keeps_its_name() {
    let folder = folder();
    let path = folder.path().join("socket");
    let _socket = std::os::unix::net::UnixListener::bind(&path).expect("a socket");
    let error = NpyWriter::create(&path, 1, 1).expect_err("a socket");
    assert!(error.to_string().ends_with("socket: it is a socket, not a file"), "{error}");
    assert_eq!(names(folder.path()), ["socket"]);
}

#[test]
fn folders_that_are_missing_are_made_with_the_file_only() {
    let folder = folder();
    let path = folder.path().join("no/f.npy");
    drop(NpyWriter::create(&path, 1, 1).expect("room"));
    assert!(names(folder.path()).is_empty());
    let writer = NpyWriter::create(&path, 1, 1).expect("room");
    writer.finish().expect("room");
    assert_eq!(names(&folder.path().join("no")), ["f.npy"]);
    let below = path.join("g.npy");
    let error = NpyWriter::create(&below, 1, 1).expect_err("a file in the way");
    assert!(error.to_string().contains("f.npy"), "{error}");
}

fn read_bytes(bytes: &[u8]) -> Result<NpyArray, NpyReadError> {
    let folder = folder();
    let path = folder.path().join("in.npy");
    fs::write(&path, bytes).expect("room");
    read(&path)
}

fn with_header(version: u8, text: &str, data: &[u8]) -> Vec<u8> {
    let length = u32::try_from(text.len()).expect("short").to_le_bytes();
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&[version, 0]);
    bytes.extend_from_slice(&length[..if version == 1 { 2 } else { 4 }]);
    bytes.extend_from_slice(text.as_bytes());
    bytes.extend_from_slice(data);
    bytes
}

#[test]
fn headers_that_other_writers_make_are_read() {
    let one = 1.0_f32.to_le_bytes();
    for (version, text) in [
        (1, "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1), }\n"),
        (2, "{\"shape\":(1,1,),\"fortran_order\":False,\"descr\":\"<f4\"}"),
        (3, "{'descr':'<f4','shape':( 1 , 1 ),'fortran_order': False}   \n"),
    ] {
        let array = read_bytes(&with_header(version, text, &one)).expect(text);
        assert_eq!((array.rows, array.columns, array.values), (1, 1, vec![1.0]));
    }
}

#[test]
fn files_that_are_not_features_are_refused_with_the_reason() {
    let case = |bytes: &[u8]| read_bytes(bytes).expect_err("not features").to_string();
    assert!(case(b"").contains("not a NumPy file"));
    assert!(case(b"PK\x03\x04 a zip file").contains("not a NumPy file"));
    assert!(case(b"\x93NUMPY\x09\x00\x00\x00").contains("not a NumPy file"));
    assert!(case(b"\x93NUMPY\x01\x00\x76\x00{'descr'").contains("ends early"));
    assert!(case(b"\x93NUMPY\x02\x00\xff\xff\xff\xff").contains("longer than 4096"));
    let text = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), }";
    assert!(case(&with_header(1, text, &[0; 15])).contains("has 84 bytes, its header asks for 85"));
    assert!(case(&with_header(1, text, &[0; 17])).contains("has 86 bytes"));
    for other in [
        "{'descr': '<f8', 'fortran_order': False, 'shape': (2, 2), }",
        "{'descr': '>f4', 'fortran_order': False, 'shape': (2, 2), }",
        "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 2), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (4,), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2, 1), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-2, 2), }",
        "{'shape': (2, 2)}",
    ] {
        assert!(case(&with_header(1, other, &[0; 16])).contains(other), "{other}");
    }
    // A shape whose size overflows asks for no memory.
    let huge = "{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775807, 9), }";
    assert!(case(&with_header(1, huge, &[0; 16])).contains("its header asks for"));
}
