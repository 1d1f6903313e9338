//! The checks of one file from its bytes to a configuration: what `validate` and `run` both call.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use crate::diagnostic::{Diagnostic, Report, Severity};
use crate::model::{Backend, Config};
use crate::resolve::{self, Roles};
use crate::rules::Code;
use crate::source::{Source, Span};
use crate::{Mode, decode, tree};

/// What the caller knows that the file does not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The cores that this process may run on; `None` leaves cores unchecked (`validate` on another
    /// machine, `--no-pin`).
    pub cores_available: Option<Vec<u32>>,
    /// Replaces `bench_tx.eth_dst_addr` (`ETH_DST_ADDR`, `--eth-dst`); see [`crate::mac`].
    pub eth_dst: Option<[u8; 6]>,
    /// Replaces `inference.images_per_batch` (`--images-per-batch`).
    pub images_per_inference: Option<u32>,
    /// Replaces `tensorwire.inference_backend` (`--backend`).
    pub backend: Option<Backend>,
}

/// The worst that a check found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    /// Nothing, or notes.
    Clean,
    /// Warnings; it runs.
    Warnings,
    /// Right, but it cannot run here: `validate` ends with 0, `run` with 5.
    Unsupported,
    /// Wrong: exit code 3.
    Invalid,
}

/// What came out of checking one file.
#[derive(Clone, Debug)]
pub struct Checked {
    /// Name and text, for [`crate::render`].
    pub source: Source,
    /// The configuration; there exactly when nothing worse than a warning was found.
    pub config: Option<Config>,
    /// Everything that was found, in file order.
    pub diagnostics: Vec<Diagnostic>,
    roles: Roles,
}

impl Checked {
    /// The worst of the findings.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        match self.diagnostics.iter().map(Diagnostic::severity).max() {
            Some(Severity::Error) => Verdict::Invalid,
            Some(Severity::Unsupported) => Verdict::Unsupported,
            Some(Severity::Warning) => Verdict::Warnings,
            Some(Severity::Note) | None => Verdict::Clean,
        }
    }

    /// The configuration with the ends that `mode` asks for; no mode means all that the file has.
    /// An end that does not run is taken out of the configuration.
    ///
    /// # Errors
    ///
    /// All findings, when the file cannot run or has not the end that is asked for. One of them is
    /// an error or `unsupported`.
    pub fn for_mode(&self, mode: Option<Mode>) -> Result<(Mode, Config), Vec<Diagnostic>> {
        let Some(config) = &self.config else { return Err(self.diagnostics.clone()) };
        let mut config = config.clone();
        let (rx, tx) = (config.rx.is_some(), config.tx.is_some());
        let has = config.mode();
        let mode = mode.unwrap_or(has);
        let lacks: &[(bool, &str)] = match mode {
            Mode::Rx => &[(rx, "bench_rx")],
            Mode::Tx => &[(tx, "bench_tx")],
            Mode::Both => &[(rx, "bench_rx"), (tx, "bench_tx")],
        };
        if let Some((_, block)) = lacks.iter().find(|(there, _)| !there) {
            let mut report = Report::new(&self.source);
            let span = self.roles.rx.or(self.roles.tx).unwrap_or_default();
            let message = format!("mode `{mode}` needs `{block}`, which the file does not have");
            report
                .add(Code::NoSuchMode, block, span, message)
                .help(format!("the file is made for mode `{has}`"));
            let mut all = report.finish();
            all.extend(self.diagnostics.iter().cloned());
            return Err(all);
        }
        if mode == Mode::Rx {
            config.tx = None;
        }
        if mode == Mode::Tx {
            config.rx = None;
        }
        Ok((mode, config))
    }
}

/// Checks a text; `name` is what the findings call it.
#[must_use]
pub fn check_str(name: &str, text: &str, options: &Options) -> Checked {
    let source = Source::new(name, text);
    let mut report = Report::new(&source);
    let root = tree::parse(&source, &mut report);
    let (config, roles) = match root {
        None => (None, Roles::default()),
        Some(root) => {
            let fields = decode::decode(&root, options.eth_dst, &mut report);
            resolve::resolve(&fields, options, &mut report)
        }
    };
    let diagnostics = report.finish();
    Checked { source, config, diagnostics, roles }
}

/// Checks bytes: a text, or an error that says where it stops being one.
#[must_use]
pub fn check_bytes(name: &str, bytes: &[u8], options: &Options) -> Checked {
    let bytes = bytes.get(..bytes.len().min(tree::MAX_BYTES + 4)).unwrap_or(bytes);
    let error = match std::str::from_utf8(bytes) {
        // A file that was cut in the middle of a character is too large anyway.
        Err(error) if error.error_len().is_some() || bytes.len() <= tree::MAX_BYTES => error,
        Err(error) => {
            let whole = bytes.get(..error.valid_up_to()).unwrap_or_default();
            return check_str(name, &String::from_utf8_lossy(whole), options);
        }
        Ok(text) => return check_str(name, text, options),
    };
    let valid = bytes.get(..error.valid_up_to()).unwrap_or_default();
    let source = Source::new(name, &String::from_utf8_lossy(valid));
    let mut report = Report::new(&source);
    let end = source.text().len();
    let message = if matches!(bytes, [0xff, 0xfe, ..] | [0xfe, 0xff, ..]) {
        "the file is UTF-16".to_owned()
    } else {
        let byte = bytes.get(error.valid_up_to()).copied().unwrap_or_default();
        format!("byte {} (0x{byte:02x}) is no UTF-8", error.valid_up_to())
    };
    report.add(Code::Encoding, "", Span::new(end, end), message).help("save the file as UTF-8");
    let diagnostics = report.finish();
    Checked { source, config: None, diagnostics, roles: Roles::default() }
}

/// Why a file could not be read: not a finding about its contents (exit code 7, not 3).
#[derive(Debug)]
pub struct ReadError {
    /// The path as it was given.
    pub path: String,
    /// What the system said.
    pub error: io::Error,
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: cannot be read: {}", self.path, self.error)
    }
}

impl std::error::Error for ReadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

/// Checks a file. Of a file that is larger than any configuration only the beginning is read.
///
/// # Errors
///
/// [`ReadError`] when the file cannot be opened or read.
pub fn check_file(path: &Path, options: &Options) -> Result<Checked, ReadError> {
    let name = path.display().to_string();
    let limit = u64::try_from(tree::MAX_BYTES + 4).unwrap_or(u64::MAX);
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(limit).read_to_end(&mut bytes));
    match read {
        Ok(_) => Ok(check_bytes(&name, &bytes, options)),
        Err(error) => Err(ReadError { path: name, error }),
    }
}

/// The shipped files: name and text, as they lie in `configs/`.
pub const SHIPPED: &[(&str, &str)] = &[
    ("resnet50_sw_loopback.yaml", include_str!("../resnet50_sw_loopback.yaml")),
    ("resnet50_wire_loopback.yaml", include_str!("../resnet50_wire_loopback.yaml")),
    ("resnet50_tx_spark_xhost.yaml", include_str!("../resnet50_tx_spark_xhost.yaml")),
    ("resnet50_rx_spark_xhost.yaml", include_str!("../resnet50_rx_spark_xhost.yaml")),
    ("resnet50_routable_loopback.yaml", include_str!("../resnet50_routable_loopback.yaml")),
    ("resnet50_routable_tx.yaml", include_str!("../resnet50_routable_tx.yaml")),
    ("resnet50_routable_rx.yaml", include_str!("../resnet50_routable_rx.yaml")),
    ("resnet50_tx_socket.yaml", include_str!("../resnet50_tx_socket.yaml")),
    ("resnet50_rx_socket.yaml", include_str!("../resnet50_rx_socket.yaml")),
    ("resnet50_tx_veth.yaml", include_str!("../resnet50_tx_veth.yaml")),
    ("resnet50_rx_veth.yaml", include_str!("../resnet50_rx_veth.yaml")),
];

/// The text of a shipped file, by its name.
#[must_use]
pub fn shipped(name: &str) -> Option<&'static str> {
    SHIPPED.iter().find(|(other, _)| *other == name).map(|(_, text)| *text)
}
