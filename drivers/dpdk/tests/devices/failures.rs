//! Starts that fail, at every stage, and what is left of them: nothing.

use tensorwire_core::burst::PacketDesc;
use tensorwire_core::flow::{FlowMatch, PortRange};
use tensorwire_core::port::{PacketMemory, RxQueue, TxQueue};
use tensorwire_dpdk::{
    Device, Eal, EalConfig, EalError, FlowPlan, HostPages, PacketPool, PoolError, PoolSpec, Port,
    PortConfig, PortError, QueueConfig, Stage, Steering, ring_pair,
};

use crate::support::{FRAME, Wire, alone, alone_leaving, cores, eal, open, pool};

#[test]
fn dpdk_starts_once_per_process() {
    alone("failures::dpdk_starts_once_per_process", || {
        let none = Eal::start(&EalConfig::new(vec![]));
        assert_eq!(none.expect_err("no core"), EalError::NoCores);
        let mut config = EalConfig::new(cores());
        config.vdevs = vec!["net\0".to_owned()];
        assert!(matches!(Eal::start(&config), Err(EalError::Argument(_))));
        let eal = eal();
        let config = EalConfig::new(cores());
        assert_eq!(Eal::start(&config).expect_err("it runs"), EalError::Again);
        drop(eal);
        assert_eq!(Eal::start(&config).expect_err("it is over"), EalError::Again);
    });
}

#[test]
fn a_refused_start_names_the_arguments() {
    alone("failures::a_refused_start_names_the_arguments", || {
        let config = EalConfig { memory_mib: 1 << 30, ..EalConfig::new(cores()) };
        let error = Eal::start(&config).expect_err("2^50 bytes");
        let text = error.to_string();
        assert!(text.starts_with("rte_eal_init: "), "{text}");
        assert!(text.contains("-m 1073741824"), "{text}");
        assert_eq!(Eal::start(&config).expect_err("once"), EalError::Again);
    });
}

/// The port of a start that was refused before `stage` can be opened again at once, under the same
/// name, and pools have all their buffers.
#[test]
fn a_start_that_fails_at_any_stage_leaves_nothing() {
    alone("failures::a_start_that_fails_at_any_stage_leaves_nothing", || {
        let eal = eal();
        let buffers = pool(&eal, "buffers", 1023, FRAME);
        let queue = Some(QueueConfig { ring: 256, pool: buffers.clone() });
        let flows =
            Some(FlowPlan { flows: vec![FlowMatch::any(1)], outer: vec![], isolation: true });
        let config = PortConfig { rx: queue.clone(), tx: queue, flows, ..PortConfig::default() };
        let handles = eal.handles();
        for round in 0..3 {
            for stage in Stage::OPEN {
                let device = Device::attach(&eal, "net_ring_x").expect("no port is left over");
                let mut seen = Vec::new();
                let watch = |at| {
                    seen.push(at);
                    at != stage
                };
                let refused = Port::open(device, config.clone(), watch);
                assert_eq!(refused.expect_err("refused"), PortError::Stopped(stage), "{round}");
                assert_eq!(seen.last(), Some(&stage));
                assert_eq!(buffers.available(), 1023, "before {stage}");
                assert_eq!(eal.handles(), handles, "before {stage}");
            }
        }
        let mut port = open(Device::attach(&eal, "net_ring_x").expect("a device"), config);
        assert!(port.close());
        assert!(!port.close(), "a second shutdown has nothing to do");
        assert!(port.stats().is_err());
        drop(port);
        assert_eq!(eal.handles(), handles);
    });
}

#[test]
fn calls_that_fail_are_named() {
    alone("failures::calls_that_fail_are_named", || {
        let eal = eal();
        let unknown = Device::attach(&eal, "net_nothing0").expect_err("no such driver");
        assert!(matches!(unknown, PortError::Call { stage: Stage::Attach, .. }), "{unknown}");
        let nic = Device::pci(&eal, "0000:ff:1f.7").expect_err("no such NIC");
        assert!(nic.to_string().starts_with("0000:ff:1f.7: attach: rte_eth_dev_get_port"), "{nic}");
        let [a, _b] = ring_pair(&eal, 64).expect("two devices");
        let error = Port::open(a, PortConfig::default(), |_| true).expect_err("no queue");
        assert_eq!(error, PortError::NoQueue);
    });
}

#[test]
fn pools_that_cannot_be_are_refused() {
    alone("failures::pools_that_cannot_be_are_refused", || {
        let eal = eal();
        let spec = |buffers, name: &str| PoolSpec {
            name: name.to_owned(),
            buffers,
            frame_bytes: FRAME,
            device_bytes: 0,
        };
        let make = |spec: &PoolSpec, bytes| {
            let memory = Box::new(HostPages::plain(bytes).expect("memory"));
            PacketPool::new(&eal, spec, memory).map(|_| ())
        };
        let small = make(&spec(100, "p"), 4096);
        assert_eq!(small, Err(PoolError::Storage { given: 4096, needed: 140_800 }));
        assert_eq!(make(&spec(0, "p"), 4096), Err(PoolError::Empty));
        let long = "a name of more than 25 bytes";
        assert_eq!(make(&spec(1, long), 4096), Err(PoolError::Name(long.to_owned())));
        // A name that is taken: DPDK itself refuses, and the memory is known to it no more.
        let first = pool(&eal, "taken", 15, FRAME);
        let twice = make(&spec(15, "taken"), 1 << 20).expect_err("the name is taken");
        assert!(matches!(twice, PoolError::Call(_)), "{twice}");
        drop(first);
        assert_eq!(make(&spec(15, "taken"), 1 << 20), Ok(()));
    });
}

/// No virtual device has rules (see docs/dpdk.md): the refusal is what can be tried here.
#[test]
fn flows_that_a_device_cannot_match_are_matched_in_software() {
    alone("failures::flows_that_a_device_cannot_match_are_matched_in_software", || {
        let eal = eal();
        let flow = FlowMatch { udp_dst: Some(PortRange::single(4096)), ..FlowMatch::any(201) };
        for isolation in [false, true] {
            let buffers = pool(&eal, "flows", 511, FRAME);
            let [a, _b] = ring_pair(&eal, 64).expect("two devices");
            let config = PortConfig {
                rx: Some(QueueConfig { ring: 64, pool: buffers }),
                flows: Some(FlowPlan { flows: vec![flow], outer: vec![], isolation }),
                ..PortConfig::default()
            };
            let port = open(a, config);
            let Steering::Software { rule, error, .. } = port.steering() else {
                panic!("a ring has no rules: {}", port.steering());
            };
            let call = if isolation { "rte_flow_isolate" } else { "rte_flow_create" };
            assert_eq!((*rule, error.call), ((!isolation).then_some(0), call));
            assert_eq!(error.code, libc::ENOSYS);
        }
    });
}

#[test]
fn a_packet_that_is_kept_keeps_the_memory() {
    let name = "failures::a_packet_that_is_kept_keeps_the_memory";
    // The pool stays, and is counted.
    alone_leaving(1, name, || {
        let eal = eal();
        let mut wire = Wire::rings(&eal, 511, FRAME);
        let (mut tx, mut rx) = wire.ends();
        tx.send(FRAME, |frame| frame.fill(7)).expect("room");
        tx.flush();
        let mut packets = [const { PacketDesc::EMPTY }; 1];
        assert_eq!(rx.rx_burst(&mut packets), 1);
        let view = rx.view().clone();
        drop(wire);
        // The ports are gone, and the view keeps the memory of the packet.
        let bytes = view.bytes(&packets[0]);
        assert!(bytes.iter().all(|&byte| byte == 7) && bytes.len() == FRAME);
    });
}
