//! The GPU: whether there is one, what it is, and what NICs can do with its memory.

use tensorwire_configs::{Backend, RegionKind};
use tensorwire_cuda::{Choice, Gpu};

use super::machine::Machine;
use super::memory::human;
use super::{Findings, Needs};

const SUBJECT: &str = "GPU";

pub(super) fn examine(machine: &Machine, needs: &Needs<'_>, findings: &mut Findings) {
    if let Some(version) = machine.text("proc/driver/nvidia/version") {
        let line = version.lines().next().unwrap_or_default();
        let line = line.strip_prefix("NVRM version:").unwrap_or(line);
        findings.ok("GPU driver", line.split_whitespace().collect::<Vec<_>>().join(" "));
    }
    // A machine made of files has no GPU that could be asked.
    if !machine.is_this_one() {
        return findings.note(SUBJECT, "not asked: this is not the machine that is described");
    }
    match Gpu::open(&Choice::Index(number(needs))) {
        Ok(gpu) => describe(&gpu, machine, needs, findings),
        Err(error) if demanded(needs) => {
            let fix =
                "install NVIDIA's driver, or use regions of kind host and a model for the CPU";
            findings.lacks(SUBJECT, error.to_string(), fix);
        }
        Err(error) => findings.note(SUBJECT, format!("{error}; batches are built by the CPU")),
    }
}

/// Whether a configuration cannot do without a GPU.
fn demanded(needs: &Needs<'_>) -> bool {
    let infers = needs.config.is_some_and(|c| c.settings.inference_backend == Backend::TensorRt);
    infers || needs.region(RegionKind::Device)
}

/// The GPU that a configuration names first, as a run chooses it.
fn number(needs: &Needs<'_>) -> u32 {
    let Some(config) = needs.config else { return 0 };
    let device = config.regions.iter().find(|region| region.kind == RegionKind::Device);
    let infers = config.inference.as_ref().map(|inference| inference.gpu_id);
    device.map(|region| region.affinity).or(infers).unwrap_or(0)
}

fn describe(gpu: &Gpu, machine: &Machine, needs: &Needs<'_>, findings: &mut Findings) {
    let integrated = gpu.integrated().unwrap_or(false);
    let capability = gpu.capability().unwrap_or(0);
    let memory = gpu.memory().map_or_else(
        |error| error.to_string(),
        |(free, total)| format!("{} of {} free", human(free as u64), human(total as u64)),
    );
    findings.ok(
        SUBJECT,
        format!(
            "{} at {}, compute capability {}.{}, {memory}{}",
            gpu.name(),
            gpu.pci(),
            capability / 10,
            capability % 10,
            if integrated { ", shares the memory of the host" } else { "" }
        ),
    );
    if integrated {
        return findings.ok("GPU memory", "host_pinned is read at the memory's speed");
    }
    let peer = ["nvidia_peermem", "nvidia_p2p"];
    if peer.iter().any(|module| machine.has(&format!("sys/module/{module}"))) {
        findings.ok("GPUDirect", "a NIC can write the GPU's memory");
    } else {
        let fix = "modprobe nvidia-peermem";
        let found = "no nvidia_peermem: a NIC cannot write regions of kind device";
        if needs.device() && needs.region(RegionKind::Device) {
            findings.lacks("GPUDirect", found, fix);
        } else {
            findings.slows("GPUDirect", found, fix);
        }
    }
}
