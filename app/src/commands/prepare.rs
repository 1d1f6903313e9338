//! `prepare`: images in, a capture out.

use tensorwire_configs::Options;
use tensorwire_core::geometry::{Geometry, GeometrySpec};
use tensorwire_core::header::HeaderSpec;

use super::say_all;
use crate::cli::PrepareArgs;
use crate::dataset::{
    self, DEFAULT_HEADER, GeometryFlags, PrepareOptions, PrepareReport, Source, SyntheticSize,
};
use crate::exit::{ExitCode, Failure};
use crate::run::data::of_dataset;
use crate::run::load::load_config;
use crate::run::plan::failure;
use crate::talk::Talk;

/// Addresses of the documented sender.
const DOCUMENTED_HEADER: HeaderSpec =
    HeaderSpec { ip_src: [1, 1, 1, 1], ip_dst: [2, 2, 2, 2], ..DEFAULT_HEADER };

/// Makes the capture that the arguments ask for.
///
/// # Errors
///
/// A [`Failure`]: 2 for what cannot be asked for, 3 for a geometry that does not hold, 7 for a file
/// that cannot be read or written. Nothing is left behind then.
pub fn prepare(args: &PrepareArgs) -> Result<ExitCode, Failure> {
    let talk = Talk::new(false);
    let (geometry, header) = geometry_and_header(args, talk)?;
    let source = match (&args.cifar10, &args.images, args.synthetic) {
        (Some(path), _, _) => Source::Cifar10(path.clone()),
        (_, Some(path), _) => Source::Images(path.clone()),
        (_, _, Some(seed)) => Source::Synthetic { seed, size: SyntheticSize::default() },
        _ => return Err(failure(ExitCode::Usage, "no source of images")),
    };
    let options = PrepareOptions {
        source,
        num_images: args.num_images,
        geometry,
        header: with_flags(header, args)?,
        interval_us: 1,
        out: args.out.clone(),
    };
    let report = make(&options, talk)?;
    say_all(&report.to_string());
    Ok(ExitCode::Complete)
}

/// Makes a capture, with a progress bar.
///
/// # Errors
///
/// As [`prepare`].
pub fn make(options: &PrepareOptions, talk: Talk) -> Result<PrepareReport, Failure> {
    let bar = talk.progress(0, "prepare", "images");
    let report = dataset::prepare(options, &mut |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    report.map_err(|error| of_dataset(&error))
}

/// From the configuration, or from the flags with the documented defaults.
fn geometry_and_header(args: &PrepareArgs, talk: Talk) -> Result<(Geometry, HeaderSpec), Failure> {
    if let Some(path) = &args.config {
        let (_, config) = load_config(path, &Options::default(), None, talk)?;
        let header = config.tx.map_or(DOCUMENTED_HEADER, |tx| tx.header);
        return Ok((config.geometry, header));
    }
    let flags = GeometryFlags {
        out_payload_len: args.out_payload_len,
        header_size: args.header_size,
        payload_byte_offset: args.payload_byte_offset,
        packets_per_image: args.packets_per_image,
        images_per_batch: args.images_per_batch,
        seq_bit_offset: args.seq_bit_offset,
        seq_bit_width: args.seq_bit_width,
    };
    let geometry = flags.apply(GeometrySpec::DOCUMENTED).map_err(|error| of_dataset(&error))?;
    Ok((geometry, DOCUMENTED_HEADER))
}

/// The header with what the flags say about it.
fn with_flags(mut header: HeaderSpec, args: &PrepareArgs) -> Result<HeaderSpec, Failure> {
    let flags = [
        ("--eth-src", &args.eth_src, &mut header.eth_src),
        ("--eth-dst", &args.eth_dst, &mut header.eth_dst),
    ];
    for (name, text, place) in flags {
        if let Some(text) = text {
            *place = tensorwire_configs::mac(text).ok_or_else(|| {
                failure(
                    ExitCode::Usage,
                    format!(
                        "{name}: `{text}` is no MAC address, expected six bytes in hex, as in \
                         02:00:00:00:00:01"
                    ),
                )
            })?;
        }
    }
    if let Some(address) = args.ip_src {
        header.ip_src = address.octets();
    }
    if let Some(address) = args.ip_dst {
        header.ip_dst = address.octets();
    }
    if let Some(port) = args.udp_port {
        (header.udp_src, header.udp_dst) = (port, port);
    }
    Ok(header)
}
