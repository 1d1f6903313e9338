//! From the file and the flags that change what it says to the configuration of a run.

use std::path::Path;

use tensorwire_configs::{Config, Mode, Options, Severity};

use super::args::{ModeArg, RunArgs};
use super::pin;
use super::plan::failure;
use crate::exit::{ExitCode, Failure};
use crate::model::Arch;
use crate::talk::Talk;

/// Reads and checks the configuration, and says what it found.
///
/// # Errors
///
/// A [`Failure`]: 7 when the file cannot be read, 3 when it is wrong, 5 when it asks for something
/// that this build cannot do.
pub fn load_config(
    path: &Path,
    options: &Options,
    mode: Option<Mode>,
    talk: Talk,
) -> Result<(Mode, Config), Failure> {
    let checked = tensorwire_configs::check_file(path, options)
        .map_err(|error| failure(ExitCode::File, error.to_string()))?;
    let talk = checked.config.as_ref().map_or(talk, |config| talk.of(config));
    let result = checked.for_mode(mode);
    let findings = match &result {
        Ok(_) => &checked.diagnostics,
        Err(findings) => findings,
    };
    for finding in findings {
        let text = tensorwire_configs::render::diagnostic(&checked.source, finding);
        let text = text.trim_end();
        match finding.severity() {
            Severity::Error | Severity::Unsupported => talk.error(format_args!("{text}")),
            Severity::Warning => talk.say(format_args!("{text}")),
            Severity::Note => talk.detail(format_args!("{text}")),
        }
    }
    result.map_err(|findings| {
        let errors = findings.iter().filter(|f| f.severity() == Severity::Error).count();
        if errors > 0 {
            let s = if errors == 1 { "" } else { "s" };
            failure(ExitCode::Config, format!("{}: {errors} error{s}", path.display()))
        } else {
            failure(ExitCode::Device, format!("{}: not supported by this build", path.display()))
        }
    })
}

/// The configuration with all that the command line says about it, and the destination of frames
/// where somebody chose another.
///
/// # Errors
///
/// As [`load_config`]; 2 for a flag that makes no sense.
pub(super) fn configured(args: &RunArgs, talk: Talk) -> Result<(Config, Option<[u8; 6]>), Failure> {
    let eth_dst = eth_dst(args)?;
    let options = Options {
        cores_available: if args.no_pin { None } else { Some(pin::available()?) },
        eth_dst,
        images_per_inference: args.images_per_batch,
        backend: args.backend.map(Into::into),
    };
    let mode = args.mode.map(|mode| match mode {
        ModeArg::Rx => Mode::Rx,
        ModeArg::Tx => Mode::Tx,
        ModeArg::Both => Mode::Both,
    });
    let (_, mut config) = load_config(&args.config, &options, mode, talk)?;
    if let Some(name) = &args.model {
        apply_model(&mut config, name)?;
    }
    Ok((config, eth_dst))
}

/// `--eth-dst`, or the environment's `ETH_DST_ADDR`.
fn eth_dst(args: &RunArgs) -> Result<Option<[u8; 6]>, Failure> {
    let (name, text) = match (&args.eth_dst, std::env::var("ETH_DST_ADDR")) {
        (Some(text), _) => ("--eth-dst", text.clone()),
        (None, Ok(text)) if !text.is_empty() => ("ETH_DST_ADDR", text),
        _ => return Ok(None),
    };
    match tensorwire_configs::mac(&text) {
        Some(address) => Ok(Some(address)),
        None => Err(failure(
            ExitCode::Usage,
            format!(
                "{name}: `{text}` is no MAC address, expected six bytes in hex, as in 48:b0:2d:00:00:01"
            ),
        )),
    }
}

/// `--model`: another network of the same family.
fn apply_model(config: &mut Config, name: &str) -> Result<(), Failure> {
    let arch: Arch =
        name.parse().map_err(|error| failure(ExitCode::Usage, format!("--model: {error}")))?;
    let Some(inference) = &mut config.inference else {
        return Err(failure(
            ExitCode::Usage,
            "--model: the configuration has no `inference:` block",
        ));
    };
    inference.feature_dim = u32::try_from(arch.feature_dim()).unwrap_or(u32::MAX);
    for path in [&mut inference.onnx_path, &mut inference.engine_path].into_iter().flatten() {
        *path = rename(path, arch.name()).ok_or_else(|| {
            failure(
                ExitCode::Usage,
                format!("--model {name}: the file name of `{path}` names no network to replace"),
            )
        })?;
    }
    Ok(())
}

/// The path with the network in its file name replaced by `name`.
fn rename(path: &str, name: &str) -> Option<String> {
    let file = path.rfind('/').map_or(0, |slash| slash + 1);
    let start = file + path.get(file..)?.find("resnet")?;
    let digits = path.get(start + "resnet".len()..)?;
    let end = path.len() - digits.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    Some(format!("{}{name}{}", path.get(..start)?, path.get(end..)?))
}

#[cfg(test)]
mod tests {
    use super::rename;

    #[test]
    fn another_network_renames_the_file_only() {
        let renamed = rename("models/resnet50_features.fp16in.engine", "resnet101");
        assert_eq!(renamed.as_deref(), Some("models/resnet101_features.fp16in.engine"));
        let renamed = rename("resnet50/resnet50.onnx", "resnet18");
        assert_eq!(renamed.as_deref(), Some("resnet50/resnet18.onnx"));
        assert_eq!(rename("resnet50/features.onnx", "resnet18"), None);
    }
}
