//! The rules of the house that no lint knows. Each failure names the file and what to do.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tensorwire_tests::workspace;

/// The files where `unsafe` may stand; everything below a folder that ends in `/`.
/// `docs/ARCHITECTURE.md` lists the same.
const UNSAFE: &[&str] = &[
    "core/src/burst.rs",
    "core/src/memory.rs",
    "core/src/burst/tests.rs",
    "core/src/ring.rs",
    "core/src/ring/loom_tests.rs",
    "core/link-proofs/",
    "core/ring-peers/",
    "drivers/",
    "kernels/src/lib.rs",
    "kernels/src/cpu/aarch64.rs",
    "kernels/src/cpu/x86.rs",
    "platform-sim/src/pool.rs",
    "platform-sim/src/pool/landing.rs",
    "platform-sim/src/pool/tests.rs",
];

/// Every file that git tracks, with its text; binary files are left out.
fn files() -> Vec<(String, String)> {
    let list = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(workspace())
        .output()
        .expect("git lists the files");
    assert!(list.status.success(), "git ls-files failed");
    let names = String::from_utf8(list.stdout).expect("names are UTF-8");
    let names: Vec<&str> = names.split('\0').filter(|name| !name.is_empty()).collect();
    assert!(names.len() > 50, "only {} files: is this the workspace?", names.len());
    let read = |name: &&str| Some(((*name).to_owned(), fs::read_to_string(path(name)).ok()?));
    names.iter().filter_map(read).collect()
}

fn path(name: &str) -> PathBuf {
    workspace().join(name)
}

fn rust() -> impl Iterator<Item = (String, String)> {
    files().into_iter().filter(|(name, _)| name.ends_with(".rs"))
}

/// Fails with the whole list, so that one run shows all there is to mend.
#[track_caller]
fn none(found: &[String], what: &str) {
    assert!(found.is_empty(), "{what}:\n{}", found.join("\n"));
}

#[test]
fn lines_fit_100_columns() {
    let mut found = Vec::new();
    for (name, text) in rust() {
        for (line, number) in text.lines().zip(1..) {
            // A URL, a string on its own, a row of a table cannot be broken.
            let (width, text) = (line.chars().count(), line.trim_start());
            let whole = ["\"", "//! |", "/// |"].iter().any(|start| text.starts_with(start));
            if width > 100 && !line.contains("http") && !whole {
                found.push(format!("{name}:{number}: {width} columns"));
            }
        }
    }
    none(&found, "lines over 100 columns");
}

/// The lines with unsafe code: their numbers and texts.
fn unsafe_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    // Spelt in two parts, so that this file does not find itself.
    let word = "un".to_owned() + "safe";
    text.lines().zip(1..).filter_map(move |(line, number)| {
        let code = line.split("//").next().unwrap_or_default();
        let found = [" {", " fn", " impl", " extern", " trait", "("].iter();
        found.clone().any(|after| code.contains(&(word.clone() + after))).then_some((number, line))
    })
}

#[test]
fn unsafe_stands_where_it_may() {
    let stands = |name: &str, place: &str| match place.strip_suffix('/') {
        Some(_) => name.starts_with(place),
        None => name == place,
    };
    let files: Vec<(String, String)> = rust().collect();
    let mut found = Vec::new();
    for (name, text) in &files {
        if !UNSAFE.iter().any(|place| stands(name, place)) {
            found.extend(
                unsafe_lines(text)
                    .map(|(number, line)| format!("{name}:{number}: {}", line.trim())),
            );
        }
    }
    none(&found, "unsafe outside its files (see docs/ARCHITECTURE.md)");
    // And the list is not longer than it must be. Drivers of device libraries are yet to come.
    let without = |place: &&&str| {
        let mut held = files.iter().filter(|(name, _)| stands(name, place));
        **place != "drivers/" && !held.any(|(_, text)| unsafe_lines(text).next().is_some())
    };
    let idle: Vec<String> = UNSAFE.iter().filter(without).map(|&place| place.into()).collect();
    none(&idle, "listed as places of unsafe code, but there is none");
    let text = fs::read_to_string(path("docs/ARCHITECTURE.md")).expect("a text");
    let named = |place: &&&str| !text.contains(&format!("`{place}`"));
    let missing: Vec<String> = UNSAFE.iter().filter(named).map(|&place| place.into()).collect();
    none(&missing, "places of unsafe code that docs/ARCHITECTURE.md does not name");
}

#[test]
fn nothing_is_left_for_later_in_silence() {
    // Spelt in two parts, so that this file does not find itself.
    let words = ["FIX".to_owned() + "ME", "XX".to_owned() + "X", "TO".to_owned() + "DO:"];
    let mut found = Vec::new();
    for (name, text) in files().iter().filter(|(name, _)| !name.ends_with(".lock")) {
        for (line, number) in text.lines().zip(1..) {
            if words.iter().any(|word| line.contains(word.as_str())) {
                found.push(format!("{name}:{number}: {}", line.trim()));
            }
        }
    }
    none(&found, "notes to do something later: do it, or write it where users see it");
}

#[test]
fn the_repository_names_no_machine() {
    let hosts =
        ["crates".to_owned() + ".io/", "py".to_owned() + "pi.org", "deb".to_owned() + ".debian"];
    let root = workspace().parent().map(|parent| parent.display().to_string() + "/");
    let mut found = Vec::new();
    for (name, text) in files().iter().filter(|(name, _)| !name.ends_with("Cargo.lock")) {
        for (line, number) in text.lines().zip(1..) {
            let machine =
                root.as_ref().is_some_and(|root| root.len() > 5 && line.contains(root.as_str()));
            if machine || hosts.iter().any(|host| line.contains(host.as_str())) {
                found.push(format!("{name}:{number}: {}", line.trim()));
            }
        }
    }
    none(&found, "paths of this machine or hosts of registries");
}

/// The last column of the table of faults names the tests that show each reaction.
#[test]
fn every_test_that_the_table_of_faults_names_exists() {
    let text = fs::read_to_string(path("docs/faults.md")).expect("the table of faults");
    let all: String = rust().map(|(_, text)| text).collect();
    let rows = text.lines().filter(|line| line.starts_with("| ")).skip(1);
    let (mut found, mut named) = (Vec::new(), 0);
    for row in rows {
        let tests = row.trim_end_matches(['|', ' ']).rsplit('|').next().unwrap_or_default();
        let mut tests = tests.split('`').skip(1).step_by(2).peekable();
        if tests.peek().is_none() {
            found.push(format!("no test: {row}"));
        }
        for test in tests {
            named += 1;
            if !all.contains(&format!("fn {test}(")) {
                found.push(format!("no such test: {test}"));
            }
        }
    }
    assert!(named > 30, "only {named} tests: is the table still one?");
    none(&found, "docs/faults.md");
}

#[test]
fn no_source_file_is_dead() {
    let all: Vec<(String, String)> = rust().collect();
    let mut found = Vec::new();
    for (name, _) in all.iter().filter(|(name, _)| name.contains("/src/")) {
        let file = Path::new(name);
        let stem = file.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        if ["lib", "main", "build"].contains(&stem) || name.contains("/bin/") {
            continue;
        }
        let module = if stem == "mod" {
            file.parent().and_then(Path::file_name).and_then(|n| n.to_str()).unwrap_or_default()
        } else {
            stem
        };
        let declared = all.iter().any(|(_, text)| {
            [format!("mod {module};"), format!("mod {module} {{"), format!("\"{stem}.rs\"")]
                .iter()
                .any(|word| text.contains(word.as_str()))
        });
        if !declared {
            found.push(format!("{name}: no `mod {module};` anywhere"));
        }
    }
    none(&found, "source files that no module names");
}

#[test]
fn every_shipped_configuration_is_valid_and_says_what_it_is_for() {
    let folder = fs::read_dir(workspace().join("configs")).expect("the folder of configurations");
    let mut seen = 0;
    for entry in folder {
        let path = entry.expect("an entry").path();
        if path.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        seen += 1;
        let text = fs::read_to_string(&path).expect("a text");
        let comment = text.lines().take(6).any(|line| line.trim_start().starts_with('#'));
        assert!(comment, "{}: begins without a comment that says what it is for", path.display());
        let name = path.display().to_string();
        let checked = tensorwire_configs::check_str(&name, &text, &Default::default());
        assert!(checked.config.is_some(), "{name}: {:#?}", checked.diagnostics);
    }
    assert!(seen >= 7, "{seen} configurations");
}
