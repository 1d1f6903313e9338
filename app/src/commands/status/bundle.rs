//! What the machine's bundles say of themselves, in names that anybody may read
//! (`packaging/bundle`, its first comment): which one runs, whether it is on trial, and why the
//! last one was taken back.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

/// Where the package keeps them.
pub(crate) const BUNDLES: &str = "/var/lib/tensorwire";

/// How they stand. Nothing of it on a machine without bundles.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Bundles {
    current: Option<String>,
    trial_starts: Option<u32>,
    rollback: Option<String>,
}

impl Bundles {
    /// Those in `root`.
    pub(super) fn of(root: &Path) -> Self {
        let linked = fs::read_link(root.join("current")).ok();
        let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned());
        let starts = |entry: fs::DirEntry| {
            entry.file_name().to_str()?.strip_prefix("trial-")?.parse::<u32>().ok()
        };
        let why = fs::read_to_string(root.join("rollback")).ok();
        Self {
            current: linked.as_deref().and_then(name),
            trial_starts: fs::read_dir(root)
                .ok()
                .and_then(|entries| entries.filter_map(Result::ok).filter_map(starts).max()),
            rollback: why.map(|why| why.trim_end().to_owned()).filter(|why| !why.is_empty()),
        }
    }

    /// The lines of the screen; none on a machine without bundles.
    pub(super) fn text(&self) -> String {
        let Some(current) = &self.current else { return String::new() };
        let trial = self.trial_starts.map(|starts| format!(", on trial (started {starts} times)"));
        let mut text = format!("bundle       {current}{}\n", trial.unwrap_or_default());
        if let Some(why) = &self.rollback {
            text.push_str("rollback     ");
            text.push_str(why);
            text.push('\n');
        }
        text
    }

    /// The same as JSON; `null` on a machine without bundles.
    pub(super) fn json(&self) -> Value {
        let Some(current) = &self.current else { return Value::Null };
        let (starts, why) = (self.trial_starts, &self.rollback);
        json!({"current": current, "trial_starts": starts, "rollback": why})
    }
}
