//! Geometry, declared sizes and pools: core's rules, with the keys that they speak of.

use tensorwire_core::geometry::{
    Declared, ElementType, Geometry, GeometrySpec, Pools, Violation, queue_region_floor,
};

use crate::diagnostic::Report;
use crate::fields::Fields;
use crate::resolve::device::Device;
use crate::resolve::pipeline::End;
use crate::rules::Code;
use crate::source::Span;

/// Batches whose reorder may still read its packets after the batch was closed: one runs on the
/// device while the next is submitted.
pub(super) const REORDERS_IN_FLIGHT: u64 = 2;

/// The parts of a pipeline that carry its sizes.
pub(super) struct Parts<'t> {
    pub(super) app: &'t Fields,
    pub(super) inference: Option<&'t Fields>,
    pub(super) settings: &'t Fields,
    pub(super) rx: Option<End<'t>>,
    pub(super) tx: Option<End<'t>>,
    pub(super) rx_region: Option<&'t Fields>,
    pub(super) tx_region: Option<&'t Fields>,
    pub(super) output_region: Option<&'t Fields>,
    /// `data_types` of the device's reorder stage.
    pub(super) data_types: Option<&'t Fields>,
    /// Images of one inference, from the command line.
    pub(super) images_override: Option<u32>,
}

impl<'t> Parts<'t> {
    /// What the file says about its images and packets; `None` when a number was refused.
    pub(super) fn spec(&self) -> Option<GeometrySpec> {
        let app = |key| self.app.small(key);
        let packets_per_image = app("packets_per_image")?;
        let payload_bytes = app("out_payload_len")?;
        // A sender alone needs no image shape: its payloads are the image then.
        let [channels, height, width] = match self.inference {
            Some(inference) => [
                inference.small("channels")?,
                inference.small("height")?,
                inference.small("width")?,
            ],
            None => [1, packets_per_image, payload_bytes],
        };
        Some(GeometrySpec {
            channels,
            height,
            width,
            packets_per_image,
            images_per_batch: app("images_per_batch")?,
            payload_byte_offset: app("payload_byte_offset")?,
            payload_bytes,
            seq_bit_offset: app("seq_bit_offset")?,
            seq_bit_width: app("seq_bit_width")?,
            input: match self.data_types {
                Some(types) => ElementType::from_name(types.word("input_type")?)?,
                None => ElementType::Int8,
            },
            output: ElementType::from_name(self.app.word("output_type")?)?,
        })
    }

    fn declared(&self) -> Declared {
        let size = |region: Option<&Fields>| region.and_then(|region| region.integer("buf_size"));
        Declared {
            output_slot_stride: self.app.integer("output_slot_stride"),
            image_out_bytes: self.app.integer("image_out_bytes"),
            rx_buf_size: size(self.rx_region),
            output_buf_size: size(self.output_region),
            tx_buf_size: size(self.tx_region),
            packets_per_batch: self.app.integer("packets_per_batch"),
            opt_max: self.inference.and_then(|inference| inference.integer("opt_max")),
            images_per_inference: self.images_per_inference(),
            enable_int8: self
                .inference
                .filter(|_| self.rx.is_some())
                .map(|inference| inference.flag("enable_int8")),
        }
    }

    /// Elements are big-endian on the wire.
    pub(super) fn network_order(&self) -> bool {
        self.data_types.is_some_and(|types| types.word("endianness") == Some("network"))
    }

    /// Images of one inference, where the file or the run says so.
    pub(super) fn images_per_inference(&self) -> Option<u64> {
        let file = || self.inference.and_then(|inference| inference.integer("images_per_batch"));
        self.images_override.map(u64::from).or_else(file)
    }

    pub(super) fn pools(&self, device: &Device<'_>) -> Option<Pools> {
        Some(Pools {
            windows: self.settings.integer("window")?,
            queue_depth: self.settings.integer("queue_depth")?,
            output_bufs: self.output_region?.integer("num_bufs")?,
            rx_bufs: self.rx_region?.integer("num_bufs")?,
            rx_ring: self.settings.integer("rx_ring")?,
            rx_batch: self.rx?.queue.integer("batch_size")?,
            // The software loopback and a socket's receiver reorder on the CPU, which reads a
            // packet when it arrives.
            retained: !device.software && !device.sockets,
            reorders_in_flight: REORDERS_IN_FLIGHT,
        })
    }

    /// Reports all rules of core that do not hold.
    pub(super) fn check(&self, device: &Device<'_>, report: &mut Report<'_>) -> Option<Geometry> {
        let spec = self.spec()?;
        let meant = self.meant(&spec);
        let also = meant.violations();
        for fault in spec.violations().iter() {
            // Of a number that is wrong in itself, what follows from it is not said again.
            if is_root(fault) || also.iter().any(|other| other.code() == fault.code()) {
                self.report(fault, report);
            }
        }
        for fault in meant.check(&self.declared()).iter() {
            self.report(fault, report);
        }
        if let Some(pools) = self.pools(device) {
            for fault in meant.check_pools(&pools).iter() {
                if !self.reported(fault, device, &pools) {
                    self.report(fault, report);
                }
            }
        }
        self.check_sender(&meant, report);
        self.check_profile(report);
        Geometry::new(&spec).ok()
    }

    /// Whether another rule has said the same: the device's own check of queue regions, which also
    /// covers what retained packets need when it asks for more.
    fn reported(&self, fault: &Violation, device: &Device<'_>, pools: &Pools) -> bool {
        match fault {
            Violation::QueueBuffers { .. } => !device.software && !device.sockets,
            Violation::RetainedBuffers { floor, .. } => {
                let queue = queue_region_floor(pools.rx_ring, pools.rx_batch);
                pools.rx_bufs < queue && *floor <= queue
            }
            _ => false,
        }
    }

    /// The spec that the declared sizes speak of. Where the spec contradicts itself, one of its
    /// numbers is wrong; the one whose repair leaves the least to complain about is taken, so that
    /// one wrong number is reported once.
    fn meant(&self, spec: &GeometrySpec) -> GeometrySpec {
        let declared = self.declared();
        let complaints = |spec: &GeometrySpec| {
            let own = spec.violations().len();
            own + spec.check(&declared).len() + usize::from(self.sender_differs(spec))
        };
        let mut candidates = Vec::new();
        for images_per_batch in powers(spec.images_per_batch) {
            for packets_per_image in powers(spec.packets_per_image) {
                let spec = GeometrySpec { images_per_batch, packets_per_image, ..*spec };
                candidates.push(spec);
                candidates.extend(splits(&spec));
            }
        }
        candidates.into_iter().min_by_key(complaints).unwrap_or(*spec)
    }

    fn sender_differs(&self, spec: &GeometrySpec) -> bool {
        let payload = self.tx.and_then(|tx| tx.bench.integer("payload_size"));
        payload.is_some_and(|payload| payload != u64::from(spec.payload_bytes))
    }

    /// The sender's frames are those that the receiver expects.
    fn check_sender(&self, spec: &GeometrySpec, report: &mut Report<'_>) {
        let Some(bench) = self.tx.map(|tx| tx.bench) else { return };
        let pairs = [
            ("payload_size", "out_payload_len", spec.payload_bytes),
            ("header_size", "payload_byte_offset", spec.payload_byte_offset),
        ];
        for (key, other, expected) in pairs {
            let Some(given) = bench.integer(key).filter(|given| *given != u64::from(expected))
            else {
                continue;
            };
            let message =
                format!("the sender's `{key}` is {given}, `reorder.{other}` is {expected}");
            let found = report.add(Code::Sender, &bench.path(key), bench.span(key), message);
            found.expected(expected.to_string());
            if self.app.given(other).is_some() {
                found.second(self.app.span(other), "the receiver's");
            } else {
                found.second(self.app.anchor, format!("`{other}` defaults to {expected} here"));
            }
        }
    }

    /// `opt_min ≤ opt_avg ≤ opt_max`.
    fn check_profile(&self, report: &mut Report<'_>) {
        let Some(inference) = self.inference else { return };
        for (key, other) in [("opt_min", "opt_avg"), ("opt_avg", "opt_max")] {
            let (low, high) = (inference.integer(key), inference.integer(other));
            let Some((low, high)) = low.zip(high).filter(|(low, high)| low > high) else {
                continue;
            };
            let message = format!("`{key}` {low} is above `{other}` {high}");
            let (key, other) = match inference.given(key) {
                Some(_) => (key, other),
                None => (other, key),
            };
            report
                .add(Code::Profile, &inference.path(key), inference.span(key), message)
                .expected("opt_min ≤ opt_avg ≤ opt_max")
                .second(inference.span(other), "the other");
        }
    }

    fn report(&self, fault: &Violation, report: &mut Report<'_>) {
        let (code, fields, key) = self.place(fault);
        let (path, span) = match fields {
            Some(fields) => (fields.path(key), fields.span(key)),
            None => (key.to_owned(), Span::default()),
        };
        let path = match fault {
            Violation::SubBatch { .. } if self.images_override.is_some() => {
                "--images-per-batch".to_owned()
            }
            _ => path,
        };
        let found = report.add(code, &path, span, fault.to_string());
        if let Some(expected) = expected(fault) {
            found.expected(expected);
        }
        if let Some(user) = self.user(fault) {
            found.second(user.0, user.1);
        }
    }

    /// The rule and the key of a violation.
    fn place(&self, fault: &Violation) -> (Code, Option<&'t Fields>, &'static str) {
        let app = Some(self.app);
        let (rx, out) = (self.rx_region, self.output_region);
        match fault {
            Violation::Zero { key } => match *key {
                "channels" | "height" | "width" => (Code::Range, self.inference, key),
                key => (Code::Range, app, key),
            },
            Violation::PacketsPerImage { .. } => (Code::PowerOfTwo, app, "packets_per_image"),
            Violation::ImagesPerBatch { .. } => (Code::PowerOfTwo, app, "images_per_batch"),
            Violation::ImagesPerBatchLimit { .. } | Violation::BatchLimit { .. } => {
                (Code::Limit, app, "images_per_batch")
            }
            Violation::PacketsPerBatchLimit { .. } => (Code::Limit, app, "packets_per_image"),
            Violation::ImageTooLarge { .. } => (Code::Limit, self.inference, "channels"),
            Violation::FrameLimit { .. } => (Code::Limit, app, "out_payload_len"),
            Violation::FractionalImage { .. }
            | Violation::FractionalPayload { .. }
            | Violation::Payload { .. } => (Code::Payload, app, "out_payload_len"),
            Violation::PayloadOffset { .. } => (Code::PayloadOffset, app, "payload_byte_offset"),
            Violation::SequenceField(_) | Violation::SequencePastHeader { .. } => {
                (Code::SequenceField, app, "seq_bit_offset")
            }
            Violation::SequenceSpace { .. } => (Code::SequenceSpace, app, "seq_bit_width"),
            Violation::SlotStride { .. } => (Code::SlotStride, app, "output_slot_stride"),
            Violation::ImageOutBytes { .. } => (Code::ImageOutBytes, app, "image_out_bytes"),
            Violation::PacketsPerBatch { .. } => (Code::PacketsPerBatch, app, "packets_per_batch"),
            Violation::RxBufSize { .. } => (Code::RxBufSize, rx, "buf_size"),
            Violation::OutputBufSize { .. } => (Code::OutputBufSize, out, "buf_size"),
            Violation::TxBufSize { .. } => (Code::TxBufSize, self.tx_region, "buf_size"),
            Violation::OptMax { .. } => (Code::OptMax, self.inference, "opt_max"),
            Violation::SubBatch { .. } => self.sub_batch(),
            Violation::Int8Output => (Code::Int8Output, app, "output_type"),
            Violation::Windows { .. } => (Code::Range, Some(self.settings), "window"),
            Violation::QueueDepth { .. } => (Code::Range, Some(self.settings), "queue_depth"),
            Violation::OutputBuffers { .. } => (Code::OutputBuffers, out, "num_bufs"),
            Violation::OutputBuffersLimit { .. } => (Code::OutputLimit, out, "num_bufs"),
            Violation::QueueBuffers { .. } => (Code::QueueBuffers, rx, "num_bufs"),
            Violation::RetainedBuffers { .. } => (Code::RetainedBuffers, rx, "num_bufs"),
            _ => (Code::Limit, app, "reorder_name"),
        }
    }

    /// The command line's number is shown at the batch that it must divide.
    fn sub_batch(&self) -> (Code, Option<&'t Fields>, &'static str) {
        match (self.images_override, self.inference) {
            (None, Some(inference)) => (Code::SubBatch, Some(inference), "images_per_batch"),
            _ => (Code::SubBatch, Some(self.app), "images_per_batch"),
        }
    }

    /// A second place that makes the first one wrong.
    fn user(&self, fault: &Violation) -> Option<(Span, &'static str)> {
        let app = |key, label| self.app.given(key).map(|_| (self.app.span(key), label));
        match fault {
            Violation::RxBufSize { .. } => app("out_payload_len", "the payload of each packet"),
            Violation::TxBufSize { .. } => app("out_payload_len", "the payload of each frame"),
            Violation::OutputBufSize { .. } => app("images_per_batch", "the images of a batch"),
            Violation::SlotStride { .. } => app("output_type", "the type of the batch"),
            Violation::SequenceSpace { .. } => app("images_per_batch", "the images of a batch"),
            Violation::SequencePastHeader { .. } => {
                app("payload_byte_offset", "the payload begins here")
            }
            Violation::OptMax { .. } => app("images_per_batch", "the images of a batch"),
            Violation::SubBatch { .. } if self.images_override.is_none() => {
                app("images_per_batch", "the images of a batch")
            }
            Violation::OutputBuffers { .. } => {
                let depth = self.settings.given("queue_depth");
                depth.map(|given| (given.item.span, "the job ring"))
            }
            _ => None,
        }
    }
}

/// A number that must be a power of two: itself, or the ones below and above.
fn powers(number: u32) -> Vec<u32> {
    if number.is_power_of_two() || number == 0 {
        return vec![number];
    }
    let above = number.checked_next_power_of_two();
    above.map_or_else(|| vec![number], |above| vec![above / 2, above])
}

/// Ways to cut the image without a rest: another payload, other packets, or another image.
fn splits(spec: &GeometrySpec) -> Vec<GeometrySpec> {
    let image = u64::from(spec.channels)
        .checked_mul(u64::from(spec.height))
        .and_then(|plane| plane.checked_mul(u64::from(spec.width)));
    let Some(image) = image else { return Vec::new() };
    let over = |divisor: u32| {
        let divisor = u64::from(divisor);
        let whole = image.checked_rem(divisor) == Some(0);
        whole.then(|| u32::try_from(image / divisor).ok()).flatten()
    };
    let payload = over(spec.packets_per_image);
    let packets = over(spec.payload_bytes);
    let (height, width) = (spec.packets_per_image, spec.payload_bytes);
    let shape = GeometrySpec { channels: 1, height, width, ..*spec };
    let payload = payload.map(|payload_bytes| GeometrySpec { payload_bytes, ..*spec });
    let packets = packets.map(|packets_per_image| GeometrySpec { packets_per_image, ..*spec });
    payload.into_iter().chain(packets).chain([shape]).collect()
}

/// Whether a fault of a spec is one of a single number, or of the image's cut: all others may
/// follow from these.
const fn is_root(fault: &Violation) -> bool {
    matches!(
        fault,
        Violation::PacketsPerImage { .. }
            | Violation::ImagesPerBatch { .. }
            | Violation::Payload { .. }
            | Violation::FractionalImage { .. }
            | Violation::FractionalPayload { .. }
            | Violation::Zero { .. }
    )
}

/// The number that would be right, where there is one.
fn expected(fault: &Violation) -> Option<String> {
    match fault {
        Violation::SlotStride { expected, .. }
        | Violation::ImageOutBytes { expected, .. }
        | Violation::RxBufSize { expected, .. }
        | Violation::OutputBufSize { expected, .. }
        | Violation::PacketsPerBatch { expected, .. } => Some(expected.to_string()),
        Violation::TxBufSize { frame, .. } => Some(format!("at least {frame}")),
        Violation::OutputBuffers { floor, .. }
        | Violation::QueueBuffers { floor, .. }
        | Violation::RetainedBuffers { floor, .. } => Some(format!("at least {floor}")),
        Violation::OptMax { images, .. } => Some(format!("at least {images}")),
        Violation::Int8Output => Some("fp16, or `inference.enable_int8: true`".to_owned()),
        Violation::PacketsPerImage { given } | Violation::ImagesPerBatch { given } => {
            let above = given.checked_next_power_of_two()?;
            Some(format!("{} or {above}", (above / 2).max(1)))
        }
        _ => None,
    }
}
