//! What DPDK is asked for, worked out from numbers of a configuration; nothing here calls it.

use std::fmt;

/// The memory of DPDK itself (its rings, mbufs and tables; packets lie in regions of ours).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// Plain pages: no privilege and no preparation is needed. A NIC under vfio cannot use it.
    Plain,
    /// Huge pages, unlinked at once: nothing is left in the file system, whatever happens.
    Huge,
}

/// How DPDK is started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EalConfig {
    /// The cores that the calling thread may run on: EAL pins it to them and nothing else, the
    /// threads of a run pin themselves. Not empty.
    pub cores: Vec<u32>,
    /// Mebibytes of memory for DPDK itself.
    pub memory_mib: u32,
    /// The pages of that memory.
    pub pages: Pages,
    /// Tells the files of this process from those of others.
    pub file_prefix: String,
    /// PCI addresses of the NICs, with their options behind a comma; other NICs are left alone.
    pub pci: Vec<String>,
    /// Virtual devices, as `net_af_packet0,iface=eth1`.
    pub vdevs: Vec<String>,
}

impl EalConfig {
    /// Plain pages, 256 MiB, no device, a prefix of this process.
    #[must_use]
    pub fn new(cores: Vec<u32>) -> Self {
        Self {
            cores,
            memory_mib: 256,
            pages: Pages::Plain,
            file_prefix: format!("tensorwire-{}", std::process::id()),
            pci: Vec::new(),
            vdevs: Vec::new(),
        }
    }

    /// The command line of EAL, its first word included.
    ///
    /// One logical core whose thread may run on all of `cores`: EAL makes no thread that polls. No
    /// second process is served, so nothing is shared (`--no-shconf`), and nobody asks for
    /// telemetry. Warnings and worse are written to stderr.
    #[must_use]
    pub fn arguments(&self) -> Vec<String> {
        let cores: Vec<String> = self.cores.iter().map(ToString::to_string).collect();
        let mut words = vec![
            "tensorwire".to_owned(),
            format!("--lcores=0@({})", cores.join(",")),
            format!("--file-prefix={}", self.file_prefix),
            "-m".to_owned(),
            self.memory_mib.to_string(),
            "--no-telemetry".to_owned(),
            "--log-level=*:warning".to_owned(),
        ];
        match self.pages {
            // `--in-memory` is refused together with `--no-huge`.
            Pages::Plain => words.extend(["--no-huge", "--no-shconf"].map(str::to_owned)),
            // The bus sees the addresses that we do: what a region of ours is mapped at.
            Pages::Huge => words.extend(["--in-memory", "--iova-mode=va"].map(str::to_owned)),
        }
        if self.pci.is_empty() {
            words.push("--no-pci".to_owned());
        }
        words.extend(self.pci.iter().map(|address| format!("--allow={address}")));
        words.extend(self.vdevs.iter().map(|device| format!("--vdev={device}")));
        words
    }
}

/// The virtual device that joins DPDK to the Linux interface `name`, `frame_bytes` long frames.
///
/// Its ring of frames is in the kernel: one slot must hold the frame and 80 bytes of its own, the
/// slots of a block lie together, and a block is a power of two of pages.
#[must_use]
pub fn af_packet(number: u32, interface: &str, frame_bytes: u32) -> String {
    let slot = frame_bytes.saturating_add(80).next_power_of_two().max(2048);
    let block = slot.max(65_536);
    // 16 MiB of slots, so that a sender's burst finds room.
    let slots = ((16 << 20) / slot).max(64);
    format!(
        "net_af_packet{number},iface={interface},blocksz={block},framesz={slot},framecnt={slots}"
    )
}

/// Bytes that DPDK leaves free in front of a received frame (`RTE_PKTMBUF_HEADROOM`).
pub const HEADROOM: usize = 128;

/// Buffers start on a cache line of their own.
const LINE: usize = 64;

/// Why a buffer of that size cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ElementError {
    /// Bytes of the frame or of what the device needs, whichever is more.
    pub frame_bytes: usize,
}

impl fmt::Display for ElementError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let max = usize::from(u16::MAX) / LINE * LINE - HEADROOM;
        write!(f, "a packet buffer for {} bytes; DPDK has 1 to {max}", self.frame_bytes)
    }
}

impl std::error::Error for ElementError {}

/// Bytes of one packet buffer: the headroom and what is larger of the frame limit (`buf_size`) and
/// what the device needs, rounded up to a cache line. Frames between the two are received and
/// refused as `long`.
///
/// # Errors
///
/// [`ElementError`] when both are 0, or when DPDK's 16 bits do not hold it.
pub fn element_bytes(buf_size: usize, device_bytes: usize) -> Result<u16, ElementError> {
    let frame_bytes = buf_size.max(device_bytes);
    let error = ElementError { frame_bytes };
    let element = frame_bytes.checked_add(HEADROOM).and_then(|n| n.checked_next_multiple_of(LINE));
    let element = element.filter(|_| frame_bytes > 0).ok_or(error)?;
    u16::try_from(element).map_err(|_| error)
}

/// A pool of packet buffers, in numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolSpec {
    /// Its name in DPDK, at most 25 bytes, its own in the process.
    pub name: String,
    /// Number of buffers.
    pub buffers: u32,
    /// The longest frame of the geometry, in bytes (`buf_size`).
    pub frame_bytes: usize,
    /// The least bytes that the device receives into, see [`crate::storage`]; 0: any.
    pub device_bytes: usize,
}

impl PoolSpec {
    /// Bytes of one buffer; see [`element_bytes`].
    ///
    /// # Errors
    ///
    /// As [`element_bytes`].
    pub fn element_bytes(&self) -> Result<u16, ElementError> {
        element_bytes(self.frame_bytes, self.device_bytes)
    }

    /// Bytes of memory that the pool lies in.
    ///
    /// # Errors
    ///
    /// As [`element_bytes`].
    pub fn storage_bytes(&self) -> Result<usize, ElementError> {
        let element = usize::from(self.element_bytes()?);
        let error = ElementError { frame_bytes: self.frame_bytes };
        element.checked_mul(self.buffers as usize).ok_or(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_follow_from_the_configuration() {
        let mut config = EalConfig::new(vec![2, 5]);
        config.file_prefix = "tw".to_owned();
        let plain = config.arguments().join(" ");
        assert_eq!(
            plain,
            "tensorwire --lcores=0@(2,5) --file-prefix=tw -m 256 --no-telemetry \
             --log-level=*:warning --no-huge --no-shconf --no-pci"
        );
        config.pages = Pages::Huge;
        config.memory_mib = 64;
        config.pci = vec!["0000:01:00.0".to_owned(), "0000:01:00.1,rxq_cqe_comp_en=0".to_owned()];
        config.vdevs = vec!["net_memif0".to_owned()];
        let huge = config.arguments().join(" ");
        assert_eq!(
            huge,
            "tensorwire --lcores=0@(2,5) --file-prefix=tw -m 64 --no-telemetry \
             --log-level=*:warning --in-memory --iova-mode=va --allow=0000:01:00.0 \
             --allow=0000:01:00.1,rxq_cqe_comp_en=0 --vdev=net_memif0"
        );
    }

    #[test]
    fn a_buffer_holds_headroom_and_frame_and_ends_on_a_line() {
        // 128 + 1240 = 1368, 21.4 lines.
        assert_eq!(element_bytes(1240, 0), Ok(1408));
        assert_eq!(element_bytes(1240, 2048), Ok(2176));
        assert_eq!(element_bytes(64, 0), Ok(192));
        assert_eq!(element_bytes(65_344, 0), Ok(65_472));
        assert_eq!(element_bytes(65_345, 0), Err(ElementError { frame_bytes: 65_345 }));
        assert_eq!(element_bytes(0, 0), Err(ElementError { frame_bytes: 0 }));
        assert!(element_bytes(usize::MAX, 0).is_err());
        let text = ElementError { frame_bytes: 65_345 }.to_string();
        assert_eq!(text, "a packet buffer for 65345 bytes; DPDK has 1 to 65344");
    }

    #[test]
    fn slots_of_the_kernel_hold_the_frame() {
        let small = af_packet(0, "eth1", 1240);
        assert_eq!(small, "net_af_packet0,iface=eth1,blocksz=65536,framesz=2048,framecnt=8192");
        assert!(af_packet(1, "eth1", 8900).contains("framesz=16384,framecnt=1024"));
    }
}
