//! Public DAQIRI files: each is parsed whole, and its verdict is kept.

use std::fmt::Write as _;

use tensorwire_configs::render::summary;
use tensorwire_configs::{Options, check_file};

use crate::support::shared;

#[test]
#[expect(clippy::print_stderr, reason = "says why nothing was tested")]
fn c16_corpus_verdicts() {
    let Some(shared) = shared() else {
        eprintln!("skipped: no shared/ beside the workspace and no TENSORWIRE_SHARED");
        return;
    };
    let mut files: Vec<_> = std::fs::read_dir(shared.join("daqiri-configs"))
        .expect("the corpus")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "yaml"))
        .collect();
    files.sort();
    assert!(files.len() >= 39, "{} files", files.len());
    let mut verdicts = String::new();
    for path in files {
        let checked = check_file(&path, &Options::default()).expect("it can be read");
        let summary = summary(&checked);
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        let counts = summary.rsplit_once(": ").map_or("", |(_, counts)| counts);
        let _ = writeln!(verdicts, "{}: {counts}", name.unwrap_or_default());
        for found in &checked.diagnostics {
            let Some(second) = &found.second else {
                let line = found.position.line;
                let _ = writeln!(verdicts, "  {} {line} {}", found.code, found.key);
                continue;
            };
            let (line, other) = (found.position.line, second.position.line);
            let _ = writeln!(verdicts, "  {} {line} {} (and {other})", found.code, found.key);
        }
    }
    insta::assert_snapshot!("corpus", verdicts);
}
