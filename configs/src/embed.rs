//! A configuration as an expression of Rust: what `include_config!` puts into a program, so that
//! the program reads no YAML and cannot be given a wrong file.
//!
//! Every structure is taken apart by name, so that a field that is added and forgotten here does
//! not compile. The expression names `::tensorwire_configs` and `::tensorwire_core`.

use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};

use tensorwire_core::flow::FlowMatch;
use tensorwire_core::geometry::{ElementType, Geometry, GeometrySpec, Pools};
use tensorwire_core::header::{HeaderSpec, Verify};
use tensorwire_core::outer::{Outer, Tag, Tunnel, TunnelKind};
use tensorwire_core::time::Nanos;

use crate::model::{
    Address, Backend, Backpressure, Config, Dataset, Inference, LogLevel, Missing, PciAddress,
    Receiver, Region, RegionKind, RxPoll, Sender, Settings, Stats,
};

/// `config` as an expression of type [`Config`].
#[must_use]
pub fn expression(config: &Config) -> String {
    config.expr()
}

trait Expr {
    fn expr(&self) -> String;
}

macro_rules! plain {
    ($($type:ty)*) => { $(impl Expr for $type {
        fn expr(&self) -> String {
            format!("{self:?}")
        }
    })* };
}

plain!(bool u8 u16 u32 u64 usize);

/// Words without fields.
macro_rules! words {
    ($module:literal: $($type:ident)*) => { $(impl Expr for $type {
        fn expr(&self) -> String {
            format!(concat!($module, "::", stringify!($type), "::{:?}"), self)
        }
    })* };
}

words!("::tensorwire_configs":
    LogLevel RegionKind Missing Backpressure RxPoll Backend);
words!("::tensorwire_core::header": Verify);
words!("::tensorwire_core::geometry": ElementType);

/// Structures, field by field.
macro_rules! fields {
    ($module:literal: $type:ident { $($field:ident)* }) => {
        impl Expr for $type {
            fn expr(&self) -> String {
                let Self { $($field),* } = self;
                let fields = [$(format!("{}: {}", stringify!($field), $field.expr())),*];
                let name = concat!($module, "::", stringify!($type));
                format!("{name} {{ {} }}", fields.join(", "))
            }
        }
    };
}

fields!("::tensorwire_configs": Config {
    master_core log_level debug software_loopback regions geometry shape_given rx tx inference
    dataset stats settings
});
fields!("::tensorwire_configs": Region { name kind affinity buffers buffer_bytes });
fields!("::tensorwire_configs": PciAddress { domain bus device function });
fields!("::tensorwire_configs": Receiver {
    interface address queue_id queue queue_path bench_path poller_core producer_core batch_size
    timeout region output_region flow_isolation hardware_timestamps flows reordered_flows outer
    reorder_on_gpu network_order pools socket
});
fields!("::tensorwire_configs": Sender {
    interface address queue_id queue bench_path queue_core worker_core batch_size region header
    flows offload_eth_src pacing_mbps socket
});
fields!("::tensorwire_configs": Inference {
    onnx_path engine_path input_name output_name feature_dim opt_min opt_avg opt_max enable_fp16
    enable_int8 enable_cuda_graph enable_dual_context gpu_id cpu_core pca_every_n_batches
    images_per_inference
});
fields!("::tensorwire_configs": Dataset { pcap_path labels_path });
fields!("::tensorwire_configs": Stats { enabled top_k });
fields!("::tensorwire_configs": Settings {
    window missing backpressure queue_depth startup_wait_s quiesce_wait_s verify accept_trailer
    rx_poll rx_ring tx_ring socket_gro inference_backend workspace_mib features lock_memory
    realtime_priority isolated_cores
});
fields!("::tensorwire_core::geometry": GeometrySpec {
    channels height width packets_per_image images_per_batch payload_byte_offset payload_bytes
    seq_bit_offset seq_bit_width input output
});
fields!("::tensorwire_core::geometry": Pools {
    windows queue_depth output_bufs rx_bufs rx_ring rx_batch retained reorders_in_flight
});
fields!("::tensorwire_core::header": HeaderSpec { eth_src eth_dst ip_src ip_dst udp_src udp_dst });

fields!("::tensorwire_core::outer": Tag { ethertype control });
fields!("::tensorwire_core::outer": Tunnel { kind eth_src eth_dst ip_src ip_dst });

impl Expr for Outer {
    fn expr(&self) -> String {
        let (word, value) = match self {
            Self::Vlan(tag) => ("Vlan", tag.expr()),
            Self::Tunnel(tunnel) => ("Tunnel", tunnel.expr()),
        };
        format!("::tensorwire_core::outer::Outer::{word}({value})")
    }
}

impl Expr for TunnelKind {
    fn expr(&self) -> String {
        let kind = match self {
            Self::Vxlan { vni, udp_src, udp_dst } => format!(
                "Vxlan {{ vni: {}, udp_src: {}, udp_dst: {udp_dst} }}",
                vni.expr(),
                udp_src.expr()
            ),
            Self::Gre { protocol } => format!("Gre {{ protocol: {protocol} }}"),
            Self::Nvgre { tni, flow_id } => {
                format!("Nvgre {{ tni: {}, flow_id: {flow_id} }}", tni.expr())
            }
        };
        format!("::tensorwire_core::outer::TunnelKind::{kind}")
    }
}

impl Expr for Geometry {
    fn expr(&self) -> String {
        format!("::tensorwire_configs::proven_geometry(&{})", self.spec().expr())
    }
}

impl Expr for FlowMatch {
    fn expr(&self) -> String {
        // In a block of its own: its ranges are made of constants.
        format!("{{ const FLOW: ::{}; FLOW }}", {
            let flow = crate::statics::flow(self);
            format!("tensorwire_core::flow::FlowMatch = ::{flow}")
                .replace("(tensorwire_core", "(::tensorwire_core")
                .replace("match tensorwire_core", "match ::tensorwire_core")
        })
    }
}

impl Expr for Nanos {
    fn expr(&self) -> String {
        format!("::tensorwire_core::time::Nanos({})", self.0)
    }
}

impl Expr for Address {
    fn expr(&self) -> String {
        let of =
            |word: &str, value: String| format!("::tensorwire_configs::Address::{word}({value})");
        match self {
            Self::Pci(address) => of("Pci", address.expr()),
            Self::Interface(name) => of("Interface", name.expr()),
            Self::Virtual(name) => of("Virtual", name.expr()),
            Self::Ip(IpAddr::V4(ip)) => of("Ip", format!("::core::net::IpAddr::V4({})", ip.expr())),
            Self::Ip(IpAddr::V6(ip)) => {
                let bits = ip.to_bits();
                let ip = format!("::core::net::Ipv6Addr::from_bits({bits})");
                of("Ip", format!("::core::net::IpAddr::V6({ip})"))
            }
            Self::Loopback => "::tensorwire_configs::Address::Loopback".to_owned(),
        }
    }
}

impl Expr for Ipv4Addr {
    fn expr(&self) -> String {
        let [a, b, c, d] = self.octets();
        format!("::core::net::Ipv4Addr::new({a}, {b}, {c}, {d})")
    }
}

impl Expr for SocketAddrV4 {
    fn expr(&self) -> String {
        format!("::core::net::SocketAddrV4::new({}, {})", self.ip().expr(), self.port())
    }
}

impl Expr for String {
    fn expr(&self) -> String {
        format!("::std::string::String::from({self:?})")
    }
}

impl<T: Expr> Expr for Option<T> {
    fn expr(&self) -> String {
        match self {
            Some(value) => format!("::core::option::Option::Some({})", value.expr()),
            None => "::core::option::Option::None".to_owned(),
        }
    }
}

impl<T: Expr> Expr for Vec<T> {
    fn expr(&self) -> String {
        let items: Vec<String> = self.iter().map(Expr::expr).collect();
        format!("::std::vec![{}]", items.join(", "))
    }
}

impl<T: Expr, const N: usize> Expr for [T; N] {
    fn expr(&self) -> String {
        let items: Vec<String> = self.iter().map(Expr::expr).collect();
        format!("[{}]", items.join(", "))
    }
}

impl<A: Expr, B: Expr> Expr for (A, B) {
    fn expr(&self) -> String {
        format!("({}, {})", self.0.expr(), self.1.expr())
    }
}
