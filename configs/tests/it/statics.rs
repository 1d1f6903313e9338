//! Constants of a static build: they compile, and say what the file says.

use std::path::{Path, PathBuf};

use tensorwire_configs::statics::{BuildError, build, constants};
use tensorwire_core::geometry::{Geometry, Pools};

use crate::support::{MINI, check, with};

/// What [`constants`] made of MINI with a range of ports, kept beside this file; compiled here.
mod mini {
    include!("statics/mini.rs");

    // All of it is constant.
    const _: u32 = GEOMETRY.images_per_batch + RX_FLOWS[0].id + TX_BATCH;
}

fn text() -> String {
    let text = with(MINI, "udp_dst: 4096}", "udp_dst: 4000-5000, ipv4_len: 242}");
    let text = with(&text, "{name: tq, id: 0,", "{name: tq, id: 0, pacing_mbps: 900,");
    with(&text, "seq_bit_offset: 128", "seq_bit_offset: 336\n  flow_ids: [0]")
}

#[test]
fn the_constants_are_those_of_the_configuration() {
    let config = check(&text()).config.expect("a valid file");
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/it/statics/mini.rs");
    if std::env::var_os("TENSORWIRE_BLESS").is_some() {
        std::fs::write(&path, constants(&config)).expect("it can be written");
    }
    let kept = std::fs::read_to_string(&path).expect("the kept constants");
    assert_eq!(kept, constants(&config), "TENSORWIRE_BLESS=1 writes it");

    assert_eq!(Geometry::new(&mini::GEOMETRY), Ok(config.geometry));
    let rx = config.rx.expect("a receiver");
    assert_eq!(mini::RX_FLOWS[..], rx.flows[..]);
    assert_eq!(mini::RX_REORDERED[..], rx.reordered_flows[..]);
    let pools: Pools = mini::RX_POOLS;
    assert_eq!((pools, mini::RX_TIMEOUT), (rx.pools, rx.timeout));
    assert_eq!(mini::RX_CORES, [rx.poller_core, rx.producer_core]);
    assert_eq!(mini::RX_VERIFY, config.settings.verify);
    assert_eq!((mini::RX_ADDRESS, mini::RX_QUEUE), ("loopback", 0));
    let flags = [mini::RX_ACCEPT_TRAILER, mini::RX_DROP_PARTIAL, mini::RX_DROP_WHEN_FULL];
    assert_eq!(flags, [false; 3]);
    let tx = config.tx.expect("a sender");
    assert_eq!((mini::TX_HEADER, mini::TX_BATCH), (tx.header, tx.batch_size));
    assert_eq!(mini::TX_PACING_MBPS, 900);
    assert_eq!((mini::TX_ADDRESS, mini::TX_QUEUE), ("loopback", 0));
    assert_eq!(mini::TX_CORES, [tx.queue_core, tx.worker_core]);
}

#[test]
fn a_broken_file_fails_the_build_with_its_findings() {
    let folder = std::env::temp_dir();
    let name = format!("tensorwire-statics-{}", std::process::id());
    let (yaml, out) = (folder.join(format!("{name}.yaml")), folder.join(format!("{name}.rs")));
    std::fs::write(&yaml, with(MINI, "buf_size: 6144", "buf_size: 6143")).expect("a file");
    let refused = build(&yaml, &out).expect_err("the file is broken");
    let text = refused.to_string();
    assert!(matches!(refused, BuildError::Refused { .. }));
    assert!(text.contains("error[TW0507]") && text.contains("buf_size: 6143"), "{text}");
    assert!(!out.exists(), "nothing is written");
    std::fs::write(&yaml, MINI).expect("a file");
    build(&yaml, &out).expect("a valid file");
    let written = std::fs::read_to_string(&out).expect("the constants");
    assert_eq!(written, constants(&check(MINI).config.expect("a valid file")));
    for path in [&yaml, &out] {
        std::fs::remove_file(path).expect("it is there");
    }
    let missing = build(Path::new("no/such.yaml"), &out).expect_err("no such file");
    assert!(matches!(missing, BuildError::Read(_)));
    std::fs::write(&yaml, MINI).expect("a file");
    let nowhere = build(&yaml, Path::new("no/such/folder.rs")).expect_err("no such folder");
    assert!(matches!(nowhere, BuildError::Write { .. }));
    std::fs::remove_file(&yaml).expect("it is there");
}
