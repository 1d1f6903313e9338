//! What decides whether two engines are the same.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use tensorwire_onnx::Profile;

use crate::planted::planted;
use crate::runtime::{Flavor, Precision, Version};

/// The GPU that an engine is for, and its driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuIdentity {
    /// Name, as the driver gives it.
    pub name: String,
    /// Compute capability, major × 10 + minor.
    pub capability: u32,
    /// Class of the driver: its major version. Within one, engines stay valid.
    pub driver: String,
}

/// Everything that an engine depends on. The path of the model and its age are not among it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineKey {
    lines: String,
}

/// What goes into a key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parts<'a> {
    pub(crate) model: &'a [u8],
    pub(crate) precision: Precision,
    pub(crate) profile: Option<Profile>,
    pub(crate) workspace_bytes: Option<u64>,
    pub(crate) detailed: bool,
    pub(crate) targets: &'a [u32],
    pub(crate) flavor: Flavor,
    pub(crate) version: Version,
    pub(crate) gpu: &'a GpuIdentity,
}

/// One line of a text: a name from a library or a user may hold anything.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

impl EngineKey {
    pub(crate) fn new(parts: &Parts<'_>) -> Self {
        let mut lines = String::new();
        let mut put = |name: &str, value: &str| {
            lines.push_str(name);
            lines.push(' ');
            lines.push_str(value);
            lines.push('\n');
        };
        put("library", &parts.flavor.to_string());
        if !planted!(VersionUnseen) {
            put("version", &parts.version.to_string());
        }
        if !planted!(GpuUnseen) {
            put("gpu", &one_line(&parts.gpu.name));
            put("capability", &parts.gpu.capability.to_string());
        }
        put("driver", &one_line(&parts.gpu.driver));
        put("targets", &parts.targets.iter().map(u32::to_string).collect::<Vec<_>>().join(","));
        if !planted!(PrecisionUnseen) {
            put("precision", &parts.precision.to_string());
        }
        let profile = parts.profile.map_or_else(
            || "fixed".to_owned(),
            |Profile { min, opt, max }| format!("{min} {opt} {max}"),
        );
        put("profile", &profile);
        let workspace = parts.workspace_bytes.map_or("default".to_owned(), |n| n.to_string());
        put("workspace", &workspace);
        put("detailed", if parts.detailed { "yes" } else { "no" });
        let model = if planted!(ModelByName) { &[] } else { parts.model };
        put("model", &hex(&Sha256::digest(model)));
        Self { lines }
    }

    /// The key as it stands in an engine's header: one `name value` per line.
    #[must_use]
    pub fn lines(&self) -> &str {
        &self.lines
    }

    /// Eight hexadecimal digits that stand for the key in a file name. Two keys may share them;
    /// what counts is what is written in the file.
    #[must_use]
    pub fn short(&self) -> String {
        hex(&Sha256::digest(self.lines.as_bytes())[..4])
    }

    /// The file of the engine beside `path`: its stem, the short key, its extension.
    #[must_use]
    pub fn file(&self, path: &Path) -> PathBuf {
        named(path, &self.short(), path.extension().and_then(|e| e.to_str()).unwrap_or("engine"))
    }

    /// The part of the key that measured times depend on: library and GPU.
    #[must_use]
    pub(crate) fn machine(&self) -> Self {
        let of_machine = |line: &&str| {
            ["library ", "version ", "gpu ", "capability ", "driver "]
                .iter()
                .any(|name| line.starts_with(name))
        };
        let lines = self.lines.lines().filter(of_machine).map(|line| format!("{line}\n")).collect();
        Self { lines }
    }

    /// The file of the measured times beside `path`.
    #[must_use]
    pub(crate) fn timing_file(&self, path: &Path) -> PathBuf {
        named(path, &self.machine().short(), "timing")
    }

    /// What differs from the lines of another key, in words; `None` if nothing does.
    #[must_use]
    pub fn difference(&self, other: &str) -> Option<String> {
        let value = |lines: &str, name: &str| {
            let of_name =
                |line: &str| line.strip_prefix(name)?.strip_prefix(' ').map(str::to_owned);
            lines.lines().find_map(of_name)
        };
        let mut text = String::new();
        for line in self.lines.lines() {
            let (name, ours) = line.split_once(' ').unwrap_or((line, ""));
            let theirs = value(other, name).unwrap_or_else(|| "not given".into());
            if theirs == ours {
                continue;
            }
            let gap = if text.is_empty() { "" } else { ", " };
            let _ = match name {
                // 64 digits would tell nobody anything.
                "model" => write!(text, "{gap}another model"),
                _ => write!(text, "{gap}{name} {theirs}, not {ours}"),
            };
        }
        (!text.is_empty()).then_some(text)
    }
}

/// `folder/stem.infix.extension` of a path.
pub(crate) fn named(path: &Path, infix: &str, extension: &str) -> PathBuf {
    let stem = path.file_stem().and_then(|s| s.to_str()).unwrap_or("model");
    path.with_file_name(format!("{stem}.{infix}.{extension}"))
}

/// Bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
