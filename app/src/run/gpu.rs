//! Who reorders: the GPU where the configuration asks for it and there is one, else the CPU.
//!
//! `reorder_type: gpu` is also the default of configurations that are to run anywhere, so a machine
//! without a GPU reorders on the CPU and says so, once. Only a run whose batches are to lie in
//! memory of the GPU ends there (exit 5).

use std::env;
use std::path::PathBuf;

use tensorwire_configs::{Receiver, RegionKind};
use tensorwire_core::burst::{Burst, BurstPool, Filling, InFlight, PacketDesc};
use tensorwire_core::geometry::{Geometry, Pools};
use tensorwire_core::memory::{DeviceMemory, HostMemory, MemoryKind};
use tensorwire_core::port::{Event, Infer, Outputs, PacketMemory, Reorder, StageError, Ticket};
use tensorwire_core::time::Nanos;
use tensorwire_core::window::SlotMap;
use tensorwire_cuda::cache::Cache;
use tensorwire_cuda::gather::StreamGather;
use tensorwire_cuda::kernels::Kernels;
use tensorwire_cuda::memory::{Lent, LentDevice, Region};
use tensorwire_cuda::queue::{Layout, Output, Source, StreamQueue};
use tensorwire_cuda::reorder::{GpuReorder, InRegion, Locate};
use tensorwire_cuda::stream::Events;
use tensorwire_cuda::{Choice, Gpu};
use tensorwire_kernels::{Conversion, Kernel};
use tensorwire_sim::pool::BatchMemory;
use tensorwire_sim::reorder::CpuReorder;

use super::nic::dpdk::OnGpu;
use super::plan::{Plan, failure, only_on_gpu};
use super::timed::Measures;
use crate::exit::{ExitCode, Failure};

/// What a run has on a GPU: the batches, and who writes them.
#[derive(Debug)]
pub struct GpuParts {
    output: Output,
    /// The queue of the reorders and the memory of the packets; `None` where the CPU reorders, into
    /// memory that an inference on the GPU reads too.
    reorder: Option<(StreamQueue, Region)>,
    /// What brings headers, where a NIC writes to memory of the GPU and does not split frames.
    gather: Option<Box<StreamGather>>,
}

/// Memory that a GPU lends to a NIC for its packets.
#[derive(Debug)]
pub enum Packets {
    /// The CPU reads it too.
    Host(Box<dyn HostMemory>),
    /// Its own, and what brings headers out of it, should the NIC not.
    Device(Box<dyn DeviceMemory>, Box<StreamGather>),
}

/// Where the GPU finds packets.
#[derive(Debug)]
pub enum Place {
    /// In memory that the CPU reads too.
    Region(InRegion),
    /// In its own.
    Device(OnGpu),
}

impl Locate for Place {
    #[inline]
    fn frame(&self, packet: &PacketDesc, bytes: &[u8]) -> Option<(u64, usize)> {
        match self {
            Self::Region(place) => place.frame(packet, bytes),
            Self::Device(place) => place.frame(packet, bytes),
        }
    }
}

/// The reorder stage of a run.
#[derive(Debug)]
pub enum ReorderStage<'m> {
    /// On the CPU.
    Cpu(Box<CpuReorder<'m>>),
    /// On the GPU.
    Gpu(Box<GpuReorder<StreamQueue, Place>>),
}

/// The user's cache of compiled kernels.
#[must_use]
pub fn cache() -> Option<Cache> {
    Cache::of_user(|name| env::var_os(name).map(PathBuf::from))
}

/// Opens the GPU that is to reorder, which is the one that infers where there is such a one
/// (`infers`). `None`: nothing of the run is on a GPU.
///
/// # Errors
///
/// A [`Failure`] (exit 5) when batches or packets are to lie in memory of a GPU and there is none,
/// or when a GPU that is there has not the memory, cannot have NICs write to it, or fails.
pub fn open(plan: &Plan, rx: &Receiver, infers: Option<&Gpu>) -> Result<Option<GpuParts>, Failure> {
    let on_cpu = || infers.map(|gpu| GpuParts::of_cpu(plan, rx, gpu)).transpose();
    if !rx.reorder_on_gpu {
        return on_cpu();
    }
    let on_device = demands_device(plan, rx);
    let instead = |why: String| without_gpu(plan, on_device, &why).and_then(|()| on_cpu());
    let bytes = match plan.nic.lent_bytes() {
        Ok(bytes) => bytes,
        Err(why) => return instead(why),
    };
    if let Some(why) = too_few_packets(plan, rx) {
        return instead(why);
    }
    let gpu = match infers.map_or_else(|| Gpu::open(&choice(plan, rx)), |gpu| Ok(gpu.clone())) {
        Ok(gpu) => gpu,
        Err(error) => return instead(error.to_string()),
    };
    let kernels = match Kernels::load(&gpu, cache().as_ref()) {
        Ok(kernels) => kernels,
        Err(error) => return instead(error.to_string()),
    };
    if plan.nic.packets_on_device() {
        packets_on(&gpu).map_err(|why| no_packets(plan, &why))?;
    }
    // What infers on the CPU reads batches there.
    let on_host = plan.model.is_some() && infers.is_none();
    let parts = GpuParts::new(plan, rx, bytes, (&gpu, &kernels), on_host)
        .map_err(|error| failure(ExitCode::Device, format!("{}: {error}", gpu.name())))?;
    plan.talk.say(format_args!(
        "reorder on {} at {}, kernels {}",
        gpu.name(),
        gpu.pci(),
        kernels.origin()
    ));
    Ok(Some(parts))
}

/// Whether the batches have to lie in memory of the GPU.
fn demands_device(plan: &Plan, rx: &Receiver) -> bool {
    let output = plan.config.regions.get(rx.output_region);
    output.is_some_and(|region| region.kind == RegionKind::Device)
}

/// Whether a NIC can be given memory of `gpu`.
///
/// # Errors
///
/// Why not.
fn packets_on(gpu: &Gpu) -> Result<(), String> {
    let failed = |error: tensorwire_cuda::CudaError| error.to_string();
    let shares = gpu.integrated().map_err(failed)?;
    nic_writes(gpu.name(), shares, gpu.direct_rdma().map_err(failed)?)
}

/// The same of a GPU called `name`: whether it shares the memory of the host, and whether it lets
/// others write to its own.
fn nic_writes(name: &str, shares: bool, direct_rdma: bool) -> Result<(), String> {
    if shares {
        return Err(format!("{name} shares the memory of the host, and has none of its own"));
    }
    if !direct_rdma {
        return Err(format!("{name} lets no NIC write to its memory (no GPUDirect RDMA)"));
    }
    Ok(())
}

/// No packets in memory of a GPU.
fn no_packets(plan: &Plan, why: &str) -> Failure {
    let region = plan.config.rx.as_ref().and_then(|rx| plan.config.regions.get(rx.region));
    let name = region.map_or("", |region| region.name.as_str());
    failure(
        ExitCode::Device,
        format!(
            "memory region `{name}` is of kind `device`: {why}; with `host_pinned` packets lie in \
             memory of the host"
        ),
    )
}

/// The run goes on without a GPU, and says so, unless it cannot.
fn without_gpu(plan: &Plan, on_device: bool, why: &str) -> Result<(), Failure> {
    if plan.nic.packets_on_device() {
        return Err(no_packets(plan, why));
    }
    if on_device {
        return Err(failure(
            ExitCode::Device,
            format!(
                "the region of the batches is of kind `device`: {why}; kind `host_pinned` runs \
                 anywhere"
            ),
        ));
    }
    if plan.conversion.is_none() {
        return Err(only_on_gpu(&plan.config, why));
    }
    plan.talk.say(format_args!("notice: batches are reordered on the CPU: {why}"));
    Ok(())
}

/// A GPU keeps packets until their batch is done; a small pool would run dry over it.
fn too_few_packets(plan: &Plan, rx: &Receiver) -> Option<String> {
    let pools = Pools { retained: true, ..rx.pools };
    let floor = pools.retained_floor(plan.config.geometry.packets_per_batch().into());
    (pools.rx_bufs < floor).then(|| {
        format!(
            "a GPU keeps packets until their batch is done, for which num_bufs of the receive \
             region has to be at least {floor}; it is {}",
            pools.rx_bufs
        )
    })
}

/// The GPU of the batches where they lie on one, else that of the packets where they do, else that
/// of the inference, else the first.
pub(super) fn choice(plan: &Plan, rx: &Receiver) -> Choice {
    let output = plan.config.regions.get(rx.output_region);
    let of_batches = output.filter(|region| region.kind == RegionKind::Device);
    let of_packets = plan.config.regions.get(rx.region).filter(|_| plan.nic.packets_on_device());
    let of_inference = plan.config.inference.as_ref().map(|inference| inference.gpu_id);
    let of_region = of_batches.or(of_packets).map(|region| region.affinity);
    Choice::Index(of_region.or(of_inference).unwrap_or(0))
}

impl GpuParts {
    fn new(
        plan: &Plan,
        rx: &Receiver,
        packet_bytes: usize,
        (gpu, kernels): (&Gpu, &Kernels),
        on_host: bool,
    ) -> Result<Self, Box<dyn std::error::Error>> {
        let geometry = &plan.config.geometry;
        let kind =
            if demands_device(plan, rx) { MemoryKind::Device } else { MemoryKind::HostPinned };
        let bytes = geometry.batch_bytes();
        let output = Output::new(gpu, bytes, buffers(plan, rx), kind, on_host)?;
        let on_device = plan.nic.packets_on_device();
        let (packets, gather) = if on_device {
            let bytes = LentDevice::region_bytes(packet_bytes);
            let gather = Some(Box::new(StreamGather::new(kernels, gpu)?));
            (Region::new(gpu, MemoryKind::Device, bytes)?, gather)
        } else {
            (Region::new(gpu, MemoryKind::HostPinned, packet_bytes)?, None)
        };
        let near = on_device || gpu.integrated()?;
        let source = if near { Source::Device } else { Source::Pinned };
        let kept = vec![packets.clone()];
        let layout = Layout::of(geometry, rx.network_order);
        let queue = StreamQueue::new(kernels, gpu, &layout, source, output.clone(), kept)?;
        Ok(Self { output, reorder: Some((queue, packets)), gather })
    }

    /// Batches that the CPU writes and an inference on `gpu` reads.
    fn of_cpu(plan: &Plan, rx: &Receiver, gpu: &Gpu) -> Result<Self, Failure> {
        let (bytes, kind) = (plan.config.geometry.batch_bytes(), MemoryKind::HostPinned);
        let output = Output::new(gpu, bytes, buffers(plan, rx), kind, true)
            .map_err(|error| failure(ExitCode::Device, format!("{}: {error}", gpu.name())))?;
        Ok(Self { output, reorder: None, gather: None })
    }

    /// The batches.
    #[must_use]
    pub const fn output(&self) -> &Output {
        &self.output
    }

    /// The events of the reorders on the GPU.
    #[must_use]
    pub fn events(&self) -> Option<Events> {
        self.reorder.as_ref().map(|(queue, _)| queue.events())
    }

    /// The memory for the NIC's packets, where a GPU is to read them.
    ///
    /// # Errors
    ///
    /// A [`Failure`] (exit 6) the second time.
    pub fn packets(&mut self) -> Result<Option<Packets>, Failure> {
        let Some((_, packets)) = &self.reorder else { return Ok(None) };
        let lent = match self.gather.take() {
            Some(gather) => {
                LentDevice::new(packets).map(|lent| Packets::Device(Box::new(lent), gather))
            }
            None => Lent::new(packets).map(|lent| Packets::Host(Box::new(lent))),
        };
        lent.map(Some).map_err(|error| failure(ExitCode::Internal, error.to_string()))
    }
}

fn buffers(plan: &Plan, rx: &Receiver) -> usize {
    plan.config.regions.get(rx.output_region).map_or(0, |region| region.buffers as usize)
}

/// The batch buffers: those of the GPU that the CPU can read, or plain ones.
///
/// # Errors
///
/// A [`Failure`] (exit 5) when there is not that much memory.
pub fn batches(
    gpu: Option<&GpuParts>,
    pool: &BurstPool,
    plan: &Plan,
) -> Result<BatchMemory, Failure> {
    let bytes = plan.config.geometry.batch_bytes();
    let conversion = match (plan.conversion, gpu) {
        (Some(conversion), _) => conversion,
        // The memory's own kernel has nothing to do where a GPU fills it.
        (None, Some(_)) => Conversion::Copy,
        (None, None) => return Err(only_on_gpu(&plan.config, "there is none")),
    };
    let kernel = Kernel::new(conversion);
    let failed = |error: &dyn std::fmt::Display| failure(ExitCode::Device, error.to_string());
    match gpu.map(|gpu| gpu.output.on_host()) {
        // Batches that no CPU reads need none of its memory: one line stands for each.
        Some(None) => BatchMemory::new(pool, 64, kernel).map_err(|error| failed(&error)),
        Some(Some(region)) => {
            let lent = Lent::new(region).map_err(|error| failed(&error))?;
            let memory = BatchMemory::new_in(pool, bytes, kernel, Box::new(lent));
            memory.map_err(|error| failed(&error))
        }
        None => BatchMemory::new(pool, bytes, kernel).map_err(|error| failed(&error)),
    }
}

/// The reorder stage, and the events that a consumer has to wait for. `on_device` says where
/// packets are that lie in memory of the GPU.
///
/// # Errors
///
/// A [`Failure`] (exit 6) when the stage and its memory do not fit, which the checks before rule
/// out.
pub fn stage<'m>(
    gpu: Option<GpuParts>,
    geometry: &Geometry,
    memory: &'m BatchMemory,
    pool: &BurstPool,
    (rx_bufs, on_device): (usize, Option<OnGpu>),
) -> Result<(ReorderStage<'m>, Option<Events>), Failure> {
    let Some((queue, packets)) = gpu.and_then(|gpu| gpu.reorder) else {
        let stage = CpuReorder::at_placement(geometry, memory)
            .map_err(|error| failure(ExitCode::Internal, error.to_string()))?;
        return Ok((ReorderStage::Cpu(Box::new(stage)), None));
    };
    let locate = on_device.map(Place::Device).or(InRegion::new(&packets).map(Place::Region));
    let locate =
        locate.ok_or_else(|| failure(ExitCode::Internal, "packets in memory that no CPU reads"))?;
    let events = queue.events();
    let tokens = (pool.id(), pool.buffers());
    let stage = GpuReorder::new(geometry, tokens, rx_bufs, queue, locate);
    Ok((ReorderStage::Gpu(Box::new(stage)), Some(events)))
}

impl Measures for ReorderStage<'_> {
    fn measures(&self) -> bool {
        matches!(self, Self::Gpu(_))
    }

    fn next_time(&mut self) -> Option<Nanos> {
        match self {
            Self::Cpu(_) => None,
            Self::Gpu(stage) => stage.next_time(),
        }
    }
}

impl Reorder for ReorderStage<'_> {
    #[inline]
    fn place<M: PacketMemory>(
        &mut self,
        batch: &mut Burst<Filling>,
        slot: u32,
        packet: &mut PacketDesc,
        memory: &M,
    ) {
        match self {
            Self::Cpu(stage) => stage.place(batch, slot, packet, memory),
            Self::Gpu(stage) => stage.place(batch, slot, packet, memory),
        }
    }

    fn start(
        &mut self,
        batch: &mut Burst<Filling>,
        placed: SlotMap<'_>,
    ) -> Result<Event, StageError> {
        match self {
            Self::Cpu(stage) => stage.start(batch, placed),
            Self::Gpu(stage) => stage.start(batch, placed),
        }
    }

    fn abandon(&mut self, batch: &mut Burst<Filling>) {
        match self {
            Self::Cpu(stage) => stage.abandon(batch),
            Self::Gpu(stage) => stage.abandon(batch),
        }
    }

    fn poll_done(&mut self, done: &mut [PacketDesc]) -> usize {
        match self {
            Self::Cpu(stage) => stage.poll_done(done),
            Self::Gpu(stage) => stage.poll_done(done),
        }
    }
}

/// An inference on the CPU behind a reorder on the GPU: it waits for the batch before it reads. One
/// on the GPU waits there.
#[derive(Debug)]
pub struct Awaited<I> {
    inner: I,
    events: Option<Events>,
}

impl<I> Awaited<I> {
    /// `events` of the reorder stage; `None` where batches are complete when they are handed over,
    /// and where `inner` waits itself.
    pub const fn new(inner: I, events: Option<Events>) -> Self {
        Self { inner, events }
    }

    /// The inference.
    pub const fn inner(&self) -> &I {
        &self.inner
    }
}

impl<I: Infer> Infer for Awaited<I> {
    fn done_on_submit(&self) -> bool {
        self.inner.done_on_submit()
    }

    fn submit(
        &mut self,
        ticket: Ticket,
        input: &Burst<InFlight>,
        first: u32,
        images: u32,
        ready: Event,
    ) -> Result<(), StageError> {
        let Some(events) = &self.events else {
            return self.inner.submit(ticket, input, first, images, ready);
        };
        if let Some(event) = events.of(ready) {
            event.wait()?;
        }
        self.inner.submit(ticket, input, first, images, Event::DONE)
    }

    fn take_previous<R>(
        &mut self,
        take: impl FnOnce(Ticket, Outputs<'_>) -> R,
    ) -> Option<Result<R, StageError>> {
        self.inner.take_previous(take)
    }

    fn poll_idle<R>(
        &mut self,
        take: impl FnOnce(Ticket, Outputs<'_>) -> R,
    ) -> Option<Result<R, StageError>> {
        self.inner.poll_idle(take)
    }

    fn drain<R>(
        &mut self,
        take: impl FnOnce(Ticket, Outputs<'_>) -> R,
    ) -> Option<Result<R, StageError>> {
        self.inner.drain(take)
    }
}

#[cfg(test)]
mod tests {
    use super::nic_writes;

    #[test]
    fn a_nic_writes_to_memory_that_a_gpu_has_and_shows() {
        assert_eq!(nic_writes("H200", false, true), Ok(()));
        for direct_rdma in [false, true] {
            let why = nic_writes("GB10", true, direct_rdma).expect_err("one memory for both");
            assert!(why.starts_with("GB10 shares the memory of the host"), "{why}");
        }
        let why = nic_writes("RTX", false, false).expect_err("no way for a NIC");
        assert!(why.starts_with("RTX lets no NIC write") && why.contains("GPUDirect"), "{why}");
    }
}
