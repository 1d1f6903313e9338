//! `bench reorder`: how long the reorder takes on this machine, beside copies of the same bytes.
//!
//! The documented batch: 4096 packets of 1240 bytes, shuffled, random. On a GPU by CUDA events over
//! batches that together are several times its cache; without one by the clock, on one core.

use std::fmt::Write as _;
use std::hint::black_box;
use std::time::Instant;

use serde_json::json;
use tensorwire_core::geometry::{ElementType, Geometry, GeometrySpec};
use tensorwire_core::limits::HEADER_BYTES;
use tensorwire_cuda::bench::{self, Bench, Row};
use tensorwire_cuda::kernels::Kernels;
use tensorwire_cuda::memory::RegionError;
use tensorwire_cuda::queue::Source;
use tensorwire_cuda::{Choice, Gpu};
use tensorwire_kernels::{Conversion, Kernel};
use tensorwire_sim::prng::Prng;

use super::{print, say};
use crate::cli::{BenchReorderArgs, BenchSource};
use crate::exit::{ExitCode, Failure};
use crate::run::gpu::cache;
use crate::run::plan::failure;

/// Batches that take turns on the CPU: 14 MB each, several times a last-level cache of 32 MB.
const CPU_BATCHES: usize = 12;

/// The batch that is reordered.
struct Batch {
    geometry: Geometry,
    packets: Vec<u8>,
    order: Vec<u32>,
}

/// What was measured for one pair of types.
struct Measured {
    types: (ElementType, ElementType),
    rows: Vec<Row>,
}

/// All that was measured.
struct Report {
    device: String,
    measured: Vec<Measured>,
    /// Of headers that are gathered from the memory of a GPU.
    headers: Vec<Row>,
}

/// Measures, and prints a table or one JSON object.
///
/// # Errors
///
/// A [`Failure`]: 2 for types that there are not, 5 when what is asked for is not on this machine,
/// 6 when the GPU's batch is not the CPU's.
pub fn bench_reorder(args: &BenchReorderArgs) -> Result<ExitCode, Failure> {
    let types: Result<Vec<_>, Failure> = args.types.iter().map(|text| pair(text)).collect();
    let (types, batch) = (types?, Batch::new()?);
    let opened = Gpu::open(&Choice::Index(args.gpu)).map_err(|error| error.to_string());
    let opened = opened.and_then(|gpu| {
        let kernels = Kernels::load(&gpu, cache().as_ref()).map_err(|error| error.to_string())?;
        Ok((gpu, kernels))
    });
    let report = match (opened, args.source) {
        (Err(why), Some(source)) => {
            return Err(failure(
                ExitCode::Device,
                format!("--source {}: {why}", source_name(source)),
            ));
        }
        (Err(why), None) => {
            say(&format_args!("notice: measured on the CPU: {why}"));
            let measured = types.iter().map(|types| on_cpu(&batch, *types, args.runs));
            let measured = measured.collect::<Result<Vec<_>, _>>()?;
            Report { device: "CPU, one core".to_owned(), measured, headers: Vec::new() }
        }
        (Ok((gpu, kernels)), source) => {
            let source = match source {
                Some(BenchSource::Pinned) => Source::Pinned,
                Some(BenchSource::Device) | None => Source::Device,
            };
            let on_gpu = |types: &_| batch.on_gpu((&gpu, &kernels), source, *types, args.runs);
            let measured = types.iter().map(on_gpu).collect::<Result<Vec<_>, _>>()?;
            let device = format!("{} at {}, packets {}", gpu.name(), gpu.pci(), place(source));
            let headers = match source {
                Source::Device => batch.headers(&gpu, &kernels, args.runs)?,
                Source::Pinned | Source::PinnedInPlace => Vec::new(),
            };
            Report { device, measured, headers }
        }
    };
    print(&if args.json { as_json(&report) } else { as_text(&report) })?;
    Ok(ExitCode::Complete)
}

const fn source_name(source: BenchSource) -> &'static str {
    match source {
        BenchSource::Device => "device",
        BenchSource::Pinned => "pinned",
    }
}

const fn place(source: Source) -> &'static str {
    match source {
        Source::Device => "in device memory",
        Source::Pinned | Source::PinnedInPlace => "in pinned memory",
    }
}

/// `int8:fp16` as types that a kernel converts.
fn pair(text: &str) -> Result<(ElementType, ElementType), Failure> {
    use ElementType::{Bf16, Fp16, Fp32, Fp64, Int4, Int8, Int16, Int32};
    let wrong = |what: &str| {
        failure(
            ExitCode::Usage,
            format!(
                "--types {text}: {what}, expected int4, int8, int16 or int32, a colon, and fp16, \
                 bf16, fp32, fp64, int32 or the same type again"
            ),
        )
    };
    let (input, output) = text.split_once(':').ok_or_else(|| wrong("no colon"))?;
    let of = |name| ElementType::from_name(name).ok_or_else(|| wrong("no such type"));
    let (input, output) = (of(input)?, of(output)?);
    let known = [Int4, Int8, Int16, Int32].contains(&input)
        && (input == output || [Fp16, Bf16, Fp32, Fp64, Int32].contains(&output));
    if known { Ok((input, output)) } else { Err(wrong("not converted")) }
}

/// The conversion of the CPU's kernel, where there is one.
fn conversion((input, output): (ElementType, ElementType)) -> Option<Conversion> {
    match (input, output) {
        (ElementType::Int8, ElementType::Fp16) => Some(Conversion::Int8ToFp16),
        (ElementType::Int8, ElementType::Bf16) => Some(Conversion::Int8ToBf16),
        (ElementType::Int8, ElementType::Fp32) => Some(Conversion::Int8ToFp32),
        (input, output) if input == output => Some(Conversion::Copy),
        _ => None,
    }
}

impl Batch {
    fn new() -> Result<Self, Failure> {
        let geometry = Geometry::new(&GeometrySpec::DOCUMENTED)
            .map_err(|_| failure(ExitCode::Internal, "the documented geometry is refused"))?;
        let mut prng = Prng::new(1);
        let packets = geometry.packets_per_batch();
        let mut bytes = vec![0; packets as usize * geometry.frame_bytes()];
        for word in bytes.chunks_exact_mut(8) {
            word.copy_from_slice(&prng.next_u64().to_le_bytes());
        }
        let mut order: Vec<u32> = (0..packets).collect();
        for at in (1..order.len()).rev() {
            let other = usize::try_from(prng.below(at as u64 + 1)).unwrap_or(at);
            order.swap(at, other);
        }
        Ok(Self { geometry, packets: bytes, order })
    }

    /// Slot and payload of each packet.
    fn payloads(&self) -> impl Iterator<Item = (u32, &[u8])> {
        let frames = self.packets.chunks_exact(self.geometry.frame_bytes());
        let offset = self.geometry.payload_offset();
        self.order.iter().copied().zip(frames.map(move |frame| &frame[offset..]))
    }

    /// The batch as the CPU's kernel makes it.
    fn reordered(&self, kernel: Kernel, out: &mut [u8]) -> Result<(), Failure> {
        let stride = self.geometry.payload_bytes() * kernel.conversion().output_width();
        let done = kernel.reorder(self.payloads(), out, stride);
        done.map_err(|error| failure(ExitCode::Internal, error.to_string()))
    }

    fn on_gpu(
        &self,
        (gpu, kernels): (&Gpu, &Kernels),
        source: Source,
        types: (ElementType, ElementType),
        runs: u32,
    ) -> Result<Measured, Failure> {
        let narrow = |value: usize| u32::try_from(value).unwrap_or(0);
        let bench = Bench {
            source,
            packets: &self.packets,
            order: &self.order,
            stride: narrow(self.geometry.frame_bytes()),
            payload_offset: narrow(self.geometry.payload_offset()),
            payload_bytes: narrow(self.geometry.payload_bytes()),
            runs: runs as usize,
        };
        let failed = |error| failed(gpu, &error);
        let (mut rows, made) = bench::reorder(gpu, kernels, bench, types).map_err(failed)?;
        let mut batches = vec![made];
        if source == Source::Pinned {
            let (more, made) = bench::stage(gpu, kernels, &bench, types).map_err(failed)?;
            rows.extend(more);
            batches.extend(made);
        }
        if let Some(conversion) = conversion(types) {
            let mut expected = vec![0; batches[0].len()];
            self.reordered(Kernel::new(conversion), &mut expected)?;
            if batches.iter().any(|batch| *batch != expected) {
                let (input, output) = types;
                return Err(failure(
                    ExitCode::Internal,
                    format!("{input} to {output}: not what the CPU makes of it"),
                ));
            }
        }
        Ok(Measured { types, rows })
    }

    /// How long the headers of a burst take to the CPU.
    fn headers(&self, gpu: &Gpu, kernels: &Kernels, runs: u32) -> Result<Vec<Row>, Failure> {
        let stride = self.geometry.frame_bytes();
        let runs = runs as usize * 10;
        let (rows, headers) = bench::gather(gpu, kernels, &self.packets, stride, runs)
            .map_err(|error| failed(gpu, &error))?;
        let mut first = self.packets.chunks_exact(stride);
        let as_sent = |header: &[u8]| first.next().is_some_and(|frame| frame.starts_with(header));
        if headers.chunks_exact(HEADER_BYTES).all(as_sent) && !headers.is_empty() {
            return Ok(rows);
        }
        Err(failure(ExitCode::Internal, "a gathered header is not that of its packet"))
    }
}

/// What a GPU could not do.
fn failed(gpu: &Gpu, error: &RegionError) -> Failure {
    failure(ExitCode::Device, format!("{}: {error}", gpu.name()))
}

/// The CPU's kernel beside a copy of the same traffic.
fn on_cpu(
    batch: &Batch,
    types: (ElementType, ElementType),
    runs: u32,
) -> Result<Measured, Failure> {
    let (input, output) = types;
    let words = format!("{} to {}", input.name(), output.name());
    let conversion = conversion(types)
        .ok_or_else(|| failure(ExitCode::Device, format!("{words} is not converted on the CPU")))?;
    let kernel = Kernel::new(conversion);
    let payload = batch.order.len() * batch.geometry.payload_bytes();
    let out = payload * conversion.output_width();
    let mut outs = vec![0; out * CPU_BATCHES];
    let traffic = payload + out;
    let from = vec![1_u8; traffic / 2 * CPU_BATCHES];
    let mut to = vec![2_u8; traffic / 2 * CPU_BATCHES];
    let (mut kernel_us, mut copy_us) = (Vec::new(), Vec::new());
    for run in 0..runs as usize + CPU_BATCHES {
        let at = run % CPU_BATCHES;
        let began = Instant::now();
        batch.reordered(kernel, black_box(&mut outs[at * out..][..out]))?;
        kernel_us.push(began.elapsed().as_secs_f64() * 1e6);
        let part = at * (traffic / 2)..(at + 1) * (traffic / 2);
        let began = Instant::now();
        black_box(&mut to[part.clone()]).copy_from_slice(black_box(&from[part]));
        copy_us.push(began.elapsed().as_secs_f64() * 1e6);
    }
    let row = |name: String, mut times: Vec<f64>| {
        // The first round touches the memory.
        times.drain(..CPU_BATCHES);
        times.sort_by(f64::total_cmp);
        Row { name, microseconds: times[times.len() / 2], bytes: traffic as u64 }
    };
    let rows = vec![
        row(format!("reorder {words}"), kernel_us),
        row("memcpy of the same traffic".to_owned(), copy_us),
    ];
    Ok(Measured { types, rows })
}

fn as_text(Report { device, measured, headers }: &Report) -> String {
    let mut text = format!("{device}: microseconds per batch of 4096 packets of 1240 B\n");
    for row in measured.iter().flat_map(|one| &one.rows).chain(headers) {
        // Bytes per microsecond are megabytes per second.
        let rate = u32::try_from(row.bytes).map_or(f64::NAN, f64::from) / row.microseconds / 1e3;
        let Row { name, microseconds, bytes } = row;
        let _ = write!(text, "{name:<52} {microseconds:>9.2} us");
        let _ = if *bytes > 0 { writeln!(text, " {rate:>9.1} GB/s") } else { writeln!(text) };
    }
    text
}

fn as_json(Report { device, measured, headers }: &Report) -> String {
    let list = |rows: &[Row]| -> Vec<_> {
        rows.iter()
            .map(|row| json!({"name": row.name, "us": row.microseconds, "bytes": row.bytes}))
            .collect()
    };
    let pairs: Vec<_> = measured
        .iter()
        .map(|Measured { types: (input, output), rows }| {
            json!({"input": input.name(), "output": output.name(), "rows": list(rows)})
        })
        .collect();
    let all = json!({
        "device": device, "packets": 4096, "packet_bytes": 1240, "types": pairs,
        "headers": list(headers),
    });
    format!("{all}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_that_no_kernel_converts_are_refused() {
        assert_eq!(pair("int8:fp16").ok(), Some((ElementType::Int8, ElementType::Fp16)));
        assert_eq!(pair("int4:int4").ok(), Some((ElementType::Int4, ElementType::Int4)));
        for text in ["int8", "int8:", "fp16:int8", "int8:int16", "int9:fp16", ""] {
            let refused = pair(text).expect_err(text);
            assert_eq!(refused.exit, ExitCode::Usage);
        }
    }

    #[test]
    fn the_cpu_is_measured_beside_a_copy() {
        let batch = Batch::new().expect("documented");
        let types = (ElementType::Int8, ElementType::Fp16);
        let measured = on_cpu(&batch, types, 1).expect("there is such a kernel");
        assert_eq!(measured.rows.len(), 2);
        assert!(measured.rows.iter().all(|row| row.microseconds > 0.0));
        assert_eq!(measured.rows[0].bytes, 3 * 4096 * 1176);
        let report =
            Report { device: "CPU".to_owned(), measured: vec![measured], headers: Vec::new() };
        let text = as_text(&report);
        assert_eq!(text.lines().count(), 3, "{text}");
        let json: serde_json::Value = serde_json::from_str(&as_json(&report)).expect("JSON");
        assert_eq!(json["types"][0]["rows"][1]["name"], "memcpy of the same traffic");
        let other = (ElementType::Int4, ElementType::Fp16);
        assert!(on_cpu(&batch, other, 1).is_err_and(|failure| failure.exit == ExitCode::Device));
    }
}
