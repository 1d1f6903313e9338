//! The files in configs/.

use tensorwire_configs::{Address, Mode, RegionKind, SHIPPED, Severity, Verdict, geometry_report};
use tensorwire_core::flow::PortRange;
use tensorwire_core::geometry::{ElementType, Geometry, GeometrySpec};
use tensorwire_core::time::Nanos;

use crate::support::{check, file};

#[test]
fn all_files_of_the_folder_are_shipped_and_say_what_they_are_for() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found: Vec<String> = std::fs::read_dir(folder)
        .expect("the folder of this crate")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .filter(|name| name.ends_with(".yaml"))
        .collect();
    found.sort();
    let mut shipped: Vec<&str> = SHIPPED.iter().map(|(name, _)| *name).collect();
    shipped.sort_unstable();
    assert_eq!(found, shipped);
    for (name, text) in SHIPPED {
        assert!(text.starts_with("# "), "{name} begins with a comment");
        for part in ["# Needs: ", "# Runs: "] {
            assert!(text.contains(part), "{name} says {part}");
        }
    }
}

#[test]
fn all_files_pass_and_those_without_a_mac_warn_of_it_alone() {
    for (name, text) in SHIPPED {
        let checked = check(text);
        assert!(checked.config.is_some(), "{name}: {:#?}", checked.diagnostics);
        let warned: Vec<String> = checked
            .diagnostics
            .iter()
            .filter(|found| found.severity() == Severity::Warning)
            .map(|found| found.code.to_string())
            .collect();
        let sends_on_wire = text.contains("eth_dst_addr: \"00:00:00:00:00:00\"");
        let expected: &[&str] = if sends_on_wire { &["TW0807"] } else { &[] };
        assert_eq!(warned, expected, "{name}");
    }
    assert_eq!(check(file("resnet50_sw_loopback.yaml")).verdict(), Verdict::Clean);
}

#[test]
fn the_documented_values() {
    let checked = check(file("resnet50_wire_loopback.yaml"));
    let config = checked.config.expect("a valid file");
    assert_eq!(config.geometry, Geometry::new(&GeometrySpec::DOCUMENTED).expect("documented"));
    assert_eq!(config.master_core, 8);
    let sizes: Vec<(&str, RegionKind, u32, u32)> = config
        .regions
        .iter()
        .map(|region| (&*region.name, region.kind, region.buffers, region.buffer_bytes))
        .collect();
    let pinned = RegionKind::HostPinned;
    let expected = [
        ("Data_TX_GPU", pinned, 51_200, 2048),
        ("Data_RX_GPU", pinned, 51_200, 1240),
        ("Reorder_RX_GPU", pinned, 16, 9_633_792),
    ];
    assert_eq!(sizes, expected);
    let rx = config.rx.expect("a receiver");
    assert_eq!((rx.poller_core, rx.producer_core), (Some(18), Some(19)));
    assert_eq!((rx.batch_size, rx.timeout, rx.flow_isolation), (8192, Nanos::ZERO, true));
    assert_eq!((rx.region, rx.output_region), (1, 2));
    assert_eq!(rx.flow_table().map(|table| table.len()), Ok(1));
    let [flow] = rx.flows.as_slice() else { panic!("one flow") };
    assert_eq!(flow.id, 201);
    assert_eq!(flow.udp_src, Some(PortRange::single(4096)));
    assert!(rx.pools.retained && rx.pools.rx_ring == 8192);
    let tx = config.tx.expect("a sender");
    assert_eq!((tx.worker_core, tx.queue_core, tx.batch_size), (Some(16), Some(17), 4096));
    assert!(tx.offload_eth_src && matches!(tx.address, Address::Pci(_)));
    assert_eq!((tx.header.udp_src, tx.header.ip_dst), (4096, [2, 2, 2, 2]));
    let model = config.inference.expect("a model");
    assert_eq!((model.opt_min, model.opt_avg, model.opt_max), (1, 32, 256));
    assert_eq!((model.feature_dim, model.pca_every_n_batches), (2048, 4));
    assert_eq!((model.cpu_core, model.images_per_inference), (Some(15), 32));
    assert!(model.enable_fp16 && !model.enable_cuda_graph && !model.enable_dual_context);
    assert_eq!(model.onnx_path.as_deref(), Some("models/resnet50_features.onnx"));
    assert_eq!(model.engine_path.as_deref(), Some("models/resnet50_features.fp16in.engine"));
    assert_eq!(config.dataset.pcap_path.as_deref(), Some("data/cifar10_resnet.pcap"));
    assert_eq!(config.dataset.labels_path.as_deref(), Some("data/cifar10_resnet.pcap.labels"));
    assert!(config.stats.enabled && config.stats.top_k == 8);
}

#[test]
fn roles_layouts_and_types_by_file() {
    for (name, text) in SHIPPED {
        let checked = check(text);
        let (mode, config) = checked.for_mode(None).expect("a valid file");
        let expected = match name {
            name if name.contains("_tx") => Mode::Tx,
            name if name.contains("_rx") => Mode::Rx,
            _ => Mode::Both,
        };
        assert_eq!(mode, expected, "{name}");
        let spec = config.geometry.spec();
        let layout = (spec.seq_bit_offset, spec.seq_bit_width);
        let routable = ["routable", "socket", "veth"].iter().any(|word| name.contains(word));
        let expected = if routable { (336, 16) } else { (128, 12) };
        assert_eq!(layout, expected, "{name}");
        assert_eq!((spec.input, config.output_type()), (ElementType::Int8, ElementType::Fp16));
        assert_eq!(config.software_loopback, text.contains("loopback: \"sw\""), "{name}");
    }
}

#[test]
fn the_report_draws_the_sequence_number_where_it_is() {
    let report = |name| geometry_report(&check(file(name)).config.expect("a valid file"));
    insta::assert_snapshot!("geometry_documented", report("resnet50_rx_spark_xhost.yaml"));
    insta::assert_snapshot!("geometry_routable", report("resnet50_routable_loopback.yaml"));
}
