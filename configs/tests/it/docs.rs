//! The generated parts of the documentation are current.

use std::path::PathBuf;

use tensorwire_configs::docs::{fields_markdown, rules_markdown};

fn page(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs").join(name)
}

/// Compares, or writes when `TENSORWIRE_BLESS` is set.
fn current(name: &str, expected: &str) {
    let path = page(name);
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    if found == expected {
        return;
    }
    if std::env::var_os("TENSORWIRE_BLESS").is_some() {
        std::fs::write(&path, expected).expect("docs can be written");
        return;
    }
    let line = found.lines().zip(expected.lines()).position(|(a, b)| a != b);
    panic!(
        "docs/{name} is not current (line {:?}); run TENSORWIRE_BLESS=1 cargo test -p \
         tensorwire-configs docs",
        line.map(|line| line + 1)
    );
}

#[test]
fn docs_rules_is_the_table_of_rules() {
    current("rules.md", &rules_markdown());
}

#[test]
fn docs_config_has_the_table_of_fields() {
    const MARK: &str = "<!-- from here on made from configs/src/table -->\n";
    let page = std::fs::read_to_string(page("config.md")).expect("docs/config.md");
    let (written, _) = page.split_once(MARK).expect("the mark");
    current("config.md", &format!("{written}{MARK}{}", fields_markdown()));
}
