//! What the tests of this module share.

use std::path::{Path, PathBuf};

/// The folder of reference inputs, or `None` with a line that says so.
///
/// It is named by `TENSORWIRE_SHARED`, or stands beside the workspace as `shared`.
#[expect(clippy::print_stderr, reason = "a skipped test must say so")]
pub(crate) fn shared() -> Option<PathBuf> {
    let path = match std::env::var_os("TENSORWIRE_SHARED") {
        Some(path) => PathBuf::from(path),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared"),
    };
    if path.join("models/golden.json").exists() {
        return Some(path);
    }
    eprintln!("skipped: no reference inputs at {} (set TENSORWIRE_SHARED)", path.display());
    None
}

/// A JSON file of the reference inputs.
pub(crate) fn read_json(path: &Path) -> serde_json::Value {
    let text = std::fs::read_to_string(path).expect("a readable file");
    serde_json::from_str(&text).expect("JSON")
}
