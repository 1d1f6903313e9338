//! DPDK ports as the receive and transmit queues of [`tensorwire_core::port`], in safe types.
//!
//! What owns what, outermost first; each holds the one before, so things go in the reverse order:
//!
//! 1. [`Eal`]: DPDK itself, once per process.
//! 2. [`PacketPool`]: a region of our own memory ([`HostMemory`]) as packet buffers.
//! 3. [`Device`]: something with a port: a NIC, a virtual device, an end of a [`ring_pair`].
//! 4. [`Port`]: the port set up and started, with its steering rules. [`Port::split`] lends its two
//!    queues, [`DpdkRx`] and [`DpdkTx`].
//!
//! [`DpdkNic`] is all of these for one run, from a [`NicConfig`].
//!
//! A frame is never copied here: [`DpdkRx`] hands over the mbuf that the driver filled, the parser
//! and the reorder stage read its bytes where they lie, and `release` gives mbufs back in bulk.
//!
//! Without DPDK (see `tensorwire-dpdk-sys`) what remains is what needs none of it: the arguments
//! that a configuration leads to ([`config`], [`plan`]), and memory ([`storage`]).
// Without DPDK the items that the list above links to are not there.
#![cfg_attr(not(has_dpdk), allow(rustdoc::broken_intra_doc_links))]
#![allow(unsafe_code)] // calls of DPDK, each with the rule that makes it sound

#[cfg(has_dpdk)]
mod clock;
pub mod config;
#[cfg(has_dpdk)]
mod device;
#[cfg(has_dpdk)]
mod eal;
#[cfg(has_dpdk)]
mod error;
#[cfg(has_dpdk)]
mod event;
#[cfg(has_dpdk)]
mod flow;
#[cfg(has_dpdk)]
mod link;
#[cfg(has_dpdk)]
mod nic;
pub mod plan;
#[cfg(has_dpdk)]
mod pool;
#[cfg(has_dpdk)]
mod port;
#[cfg(has_dpdk)]
mod rx;
#[cfg(has_dpdk)]
mod stage;
#[cfg(has_dpdk)]
mod stamp;
pub mod storage;
#[cfg(has_dpdk)]
mod tx;
#[cfg(has_dpdk)]
mod view;

pub use config::{EalConfig, ElementError, Pages, PoolSpec, element_bytes};
#[cfg(has_dpdk)]
pub use device::{Device, PortInfo, ring_pair};
#[cfg(has_dpdk)]
pub use eal::Eal;
#[cfg(has_dpdk)]
pub use error::{CallError, EalError, PoolError, PortError, left_standing};
#[cfg(has_dpdk)]
pub use event::{PortFault, Reported};
#[cfg(has_dpdk)]
pub use flow::Steering;
#[cfg(has_dpdk)]
pub use link::LinkProbe;
#[cfg(has_dpdk)]
pub use nic::{DpdkNic, NicError};
pub use plan::{Buffers, FlowPlan, NicConfig, PortAddress, RxConfig, TxConfig};
#[cfg(has_dpdk)]
pub use pool::PacketPool;
#[cfg(has_dpdk)]
pub use port::{Port, PortConfig, QueueConfig};
#[cfg(has_dpdk)]
pub use rx::DpdkRx;
#[cfg(has_dpdk)]
pub use stage::Stage;
#[cfg(has_dpdk)]
pub use stamp::{Stamps, Timing};
pub use storage::{HostPages, Storage, StorageError};
pub use tensorwire_core::memory::{DeviceMemory, HostMemory};
#[cfg(has_dpdk)]
pub use tensorwire_dpdk_sys::PortStats;
#[cfg(has_dpdk)]
pub use tx::DpdkTx;
#[cfg(has_dpdk)]
pub use view::{Headers, PacketView};

/// Whether this was built against DPDK.
pub const BUILT: bool = tensorwire_dpdk_sys::BUILT;
