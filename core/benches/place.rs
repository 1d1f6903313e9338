//! What the policy costs per packet: parse and place at the documented geometry, in order and
//! shuffled by up to 200 positions, beside a plain copy of one payload.
//!
//! `cargo bench -p tensorwire-core --bench place`. One iteration is eight batches, 32,768 packets;
//! divide by that for the cost of one.

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use tensorwire_core::flow::{FlowMatch, FlowTable, PortRange};
use tensorwire_core::geometry::{Geometry, GeometrySpec};
use tensorwire_core::header::{self, HeaderSpec, PacketCheck, Verify};
use tensorwire_core::reassembly::{Action, Reassembly};
use tensorwire_core::time::Nanos;

const PACKETS: u32 = 8 * 4096;

fn main() {
    divan::main();
}

fn geometry() -> Geometry {
    Geometry::new(&GeometrySpec::DOCUMENTED).expect("the documented geometry is legal")
}

/// The first 64 bytes of each packet, as a receiver finds them: 64 bytes apart.
fn headers(order: &[u32]) -> Vec<[u8; 64]> {
    let geometry = geometry();
    let spec = HeaderSpec {
        eth_src: [2, 0, 0, 0, 0, 1],
        eth_dst: [2, 0, 0, 0, 0, 2],
        ip_src: [1, 1, 1, 1],
        ip_dst: [2, 2, 2, 2],
        udp_src: 4096,
        udp_dst: 4096,
    };
    let mut frame = vec![0; geometry.frame_bytes()];
    let mut all = Vec::with_capacity(order.len());
    for &number in order {
        header::build(&spec, &mut frame).expect("a frame of the geometry");
        assert!(header::set_sequence(&mut frame, geometry.seq_field(), number % 4096));
        let mut head = [0; 64];
        head.copy_from_slice(frame.first_chunk::<64>().expect("a frame has a header"));
        all.push(head);
    }
    all
}

fn shuffled(distance: u64) -> Vec<u32> {
    let mut seed = 1u64;
    let mut keyed: Vec<(u64, u32)> = (0..PACKETS)
        .map(|n| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (u64::from(n) + (seed >> 33) % distance, n)
        })
        .collect();
    keyed.sort_unstable();
    keyed.into_iter().map(|(_, n)| n).collect()
}

fn check(geometry: &Geometry) -> PacketCheck {
    let port = PortRange::single(4096);
    let mut flows = FlowTable::new();
    let flow = FlowMatch { udp_src: Some(port), udp_dst: Some(port), ..FlowMatch::any(201) };
    flows.push(&flow).expect("room for one flow");
    PacketCheck::new(geometry, &flows, Verify::None, false)
}

/// Gives one packet to the reassembly, as the producer does; how many were placed by it.
#[inline]
fn place(reassembly: &mut Reassembly<u32>, packet: u32, wire: u32) -> u32 {
    let (mut action, mut placed) = match reassembly.place(wire, Nanos::ZERO) {
        Some(place) => {
            black_box(place);
            (reassembly.next_action(), 1)
        }
        None => (reassembly.accept(packet, wire, Nanos::ZERO).ok().flatten(), 0),
    };
    while let Some(current) = action {
        placed += u32::from(matches!(current, Action::Place { .. }));
        action = reassembly.next_action();
    }
    placed
}

fn parse_and_place(bencher: Bencher<'_, '_>, order: &[u32]) {
    let geometry = geometry();
    let check = check(&geometry);
    let frame_bytes = u32::try_from(geometry.frame_bytes()).expect("1240");
    let headers = headers(order);
    bencher.counter(ItemsCount::new(PACKETS)).bench_local(|| {
        let mut reassembly = Reassembly::new(&geometry, 2, Nanos::ZERO);
        let mut placed = 0u32;
        for (packet, head) in (0u32..).zip(&headers) {
            let Ok(accepted) = check.check(black_box(head), frame_bytes, 0) else { continue };
            placed += place(&mut reassembly, packet, accepted.wire);
        }
        assert_eq!(placed, PACKETS, "every packet has its place");
    });
}

/// The parse alone.
#[divan::bench]
fn parse_only(bencher: Bencher<'_, '_>) {
    let geometry = geometry();
    let check = check(&geometry);
    let frame_bytes = u32::try_from(geometry.frame_bytes()).expect("1240");
    let headers = headers(&(0..PACKETS).collect::<Vec<_>>());
    bencher.counter(ItemsCount::new(PACKETS)).bench_local(|| {
        headers
            .iter()
            .filter_map(|h| check.check(black_box(h), frame_bytes, 0).ok())
            .map(|a| u64::from(a.wire))
            .sum::<u64>()
    });
}

/// The reassembly alone.
#[divan::bench]
fn place_only(bencher: Bencher<'_, '_>) {
    let geometry = geometry();
    bencher.counter(ItemsCount::new(PACKETS)).bench_local(|| {
        let mut reassembly = Reassembly::new(&geometry, 2, Nanos::ZERO);
        let mut placed = 0u32;
        for packet in 0..PACKETS {
            placed += place(&mut reassembly, packet, black_box(packet % 4096));
        }
        assert_eq!(placed, PACKETS, "every packet has its place");
    });
}

#[divan::bench]
fn in_order(bencher: Bencher<'_, '_>) {
    parse_and_place(bencher, &(0..PACKETS).collect::<Vec<_>>());
}

#[divan::bench]
fn shuffled_by_200(bencher: Bencher<'_, '_>) {
    parse_and_place(bencher, &shuffled(200));
}

#[divan::bench]
fn copy_of_the_payloads(bencher: Bencher<'_, '_>) {
    let source = vec![1u8; 1240 * 4096];
    let mut target = vec![0u8; 1176 * 4096];
    bencher.counter(ItemsCount::new(PACKETS)).bench_local(|| {
        for _ in 0..8 {
            for (to, from) in target.chunks_exact_mut(1176).zip(source.chunks_exact(1240)) {
                to.copy_from_slice(&from[64..]);
            }
            black_box(&mut target);
        }
    });
}
