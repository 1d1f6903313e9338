//! The blocks that are taken over as they are.

use tensorwire_core::geometry::Geometry;

use crate::Options;
use crate::diagnostic::Report;
use crate::fields::Fields;
use crate::model::{
    Backend, Backpressure, Dataset, Inference, LogLevel, Missing, RxPoll, Settings, Stats,
};
use crate::resolve::geometry::Parts;
use crate::resolve::notes;
use crate::rules::Code;

/// Alignment that TensorRT asks of an input address, in bytes.
const TENSORRT_ALIGNMENT: usize = 256;

pub(super) fn log_level(cfg: &Fields) -> Option<LogLevel> {
    Some(match cfg.word("log_level")? {
        "trace" => LogLevel::Trace,
        "debug" => LogLevel::Debug,
        "info" => LogLevel::Info,
        "warn" => LogLevel::Warn,
        "error" => LogLevel::Error,
        "critical" => LogLevel::Critical,
        _ => LogLevel::Off,
    })
}

pub(super) fn inference(
    fields: &Fields,
    images: Option<u64>,
    geometry: &Geometry,
) -> Option<Inference> {
    let images = images.map_or(Some(geometry.images_per_batch()), |n| u32::try_from(n).ok())?;
    let owned = |key| fields.text(key).map(str::to_owned);
    Some(Inference {
        onnx_path: owned("onnx_path"),
        engine_path: owned("engine_path"),
        input_name: owned("input_name")?,
        output_name: owned("output_name")?,
        feature_dim: fields.small("feature_dim")?,
        opt_min: fields.small("opt_min")?,
        opt_avg: fields.small("opt_avg")?,
        opt_max: fields.small("opt_max")?,
        enable_fp16: fields.flag("enable_fp16"),
        enable_int8: fields.flag("enable_int8"),
        enable_cuda_graph: fields.flag("enable_cuda_graph"),
        enable_dual_context: fields.flag("enable_dual_context"),
        gpu_id: fields.small("gpu_id")?,
        cpu_core: fields.small("cpu_core"),
        pca_every_n_batches: fields.integer("pca_every_n_batches")?,
        images_per_inference: images,
    })
}

/// The backend finds a file to load: TensorRT also runs from an engine alone.
pub(super) fn model_named(inference: &Fields, backend: Backend, report: &mut Report<'_>) {
    let engine = backend != Backend::Onnx && inference.given("engine_path").is_some();
    if engine || inference.given("onnx_path").is_some() {
        return;
    }
    let message = "`onnx_path` is missing: there is no model to infer with";
    report
        .add(Code::NoModel, &inference.path("onnx_path"), inference.anchor, message)
        .help("`onnx_path`: the model; `tensorwire: {inference_backend: none}` runs without one");
}

/// A file that asks for features and for no inference. A caller who turns the inference off
/// (`--backend none`) asks for the run without its features.
pub(super) fn no_features(fields: &Fields, options: &Options, report: &mut Report<'_>) {
    if options.backend.is_none() && fields.given("features").is_some() {
        let message = "there are no features with `inference_backend: none`";
        report
            .add(Code::NoFeatures, &fields.path("features"), fields.span("features"), message)
            .second(fields.span("inference_backend"), "no inference");
    }
}

/// TensorRT reads each sub-batch at its own address in the batch.
pub(super) fn check_backend(
    parts: &Parts<'_>,
    options: &Options,
    geometry: &Geometry,
    report: &mut Report<'_>,
) {
    let tensorrt = backend(parts.settings, options) == Some(Backend::TensorRt);
    let images = parts.images_per_inference().and_then(|images| u32::try_from(images).ok());
    let Some(images) = images.filter(|images| tensorrt && *images < geometry.images_per_batch())
    else {
        return;
    };
    if geometry.sub_batches_aligned(images, TENSORRT_ALIGNMENT) {
        return;
    }
    let app = parts.app;
    let message = format!(
        "sub-batches of {images} × {} B do not begin at multiples of {TENSORRT_ALIGNMENT} bytes",
        geometry.image_bytes()
    );
    report.add(
        Code::Alignment,
        &app.path("images_per_batch"),
        app.span("images_per_batch"),
        message,
    );
}

pub(super) fn dataset(fields: Option<&Fields>) -> Dataset {
    let owned = |key| fields.and_then(|fields| fields.text(key)).map(str::to_owned);
    Dataset { pcap_path: owned("pcap_path"), labels_path: owned("labels_path") }
}

pub(super) fn stats(fields: &Fields) -> Option<Stats> {
    Some(Stats { enabled: fields.flag("enabled"), top_k: fields.small("top_k")? })
}

/// Who infers: the caller's choice, or the file's.
pub(super) fn backend(fields: &Fields, options: &Options) -> Option<Backend> {
    let of_file = || {
        Some(match fields.word("inference_backend")? {
            "tensorrt" => Backend::TensorRt,
            "onnx" => Backend::Onnx,
            "none" => Backend::None,
            _ => Backend::Auto,
        })
    };
    options.backend.or_else(of_file)
}

pub(super) fn settings(fields: &Fields, options: &Options) -> Option<Settings> {
    Some(Settings {
        window: fields.small("window")?,
        missing: match fields.word("missing")? {
            "drop" => Missing::Drop,
            _ => Missing::Passthrough,
        },
        backpressure: match fields.word("backpressure")? {
            "drop" => Backpressure::Drop,
            _ => Backpressure::Block,
        },
        queue_depth: fields.small("queue_depth")?,
        startup_wait_s: fields.small("startup_wait_s")?,
        quiesce_wait_s: fields.small("quiesce_wait_s")?,
        verify: notes::verify(fields),
        accept_trailer: fields.flag("accept_trailer"),
        rx_poll: match fields.word("rx_poll")? {
            "fused" => RxPoll::Fused,
            "split" => RxPoll::Split,
            _ => RxPoll::Auto,
        },
        rx_ring: fields.small("rx_ring")?,
        tx_ring: fields.small("tx_ring")?,
        socket_gro: fields.flag("socket_gro"),
        inference_backend: backend(fields, options)?,
        workspace_mib: fields.small("workspace_mib"),
        features: fields.text("features").map(str::to_owned),
        lock_memory: fields.flag("lock_memory"),
        realtime_priority: fields.small("realtime_priority").and_then(|n| u8::try_from(n).ok()),
        isolated_cores: fields.flag("isolated_cores"),
    })
}
