use tensorwire_core::counters::{DroppedImages, MalformedCounters};
use tensorwire_core::reassembly::ReassemblyCounters;

use super::*;

fn nothing_seen() -> Seen {
    Seen {
        status: ProducerStatus {
            packets: PacketCounters::default(),
            reassembly: ReassemblyCounters::default(),
            images: ImageCounters::default(),
            pushed: 0,
            end: None,
            backlog: 0,
            waiting: false,
            blocked: Nanos::ZERO,
            returning: 0,
        },
        nic: NicStats::default(),
        buffers: (0, 0),
        reordered: (0, Nanos::ZERO),
    }
}

/// The value of a number in the text of all.
fn value(text: &str, number: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(number)?.strip_prefix(' '));
    line.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {number} in\n{text}"))
}

/// The sum over a name.
fn sum(text: &str, name: &str) -> f64 {
    let of = |line: &str| {
        line.strip_prefix(name)?.strip_prefix('{')?.split_once("} ")?.1.parse::<f64>().ok()
    };
    text.lines().filter_map(of).sum::<f64>()
}

#[test]
fn every_number_has_a_help_and_every_help_a_number() {
    let board = Board::new("both", "none");
    let link = LinkTotals { name: "eth0".to_owned(), ..LinkTotals::default() };
    let _kept = (board.producer(), board.consumer(), board.sender(), board.links(&[link]));
    let text = board.numbers().render();
    for (name, help) in HELP {
        assert!(text.contains(&format!("# HELP {name} {help}\n")), "{name}\n{text}");
    }
    let types = text.lines().filter(|line| line.starts_with("# TYPE ")).count();
    assert_eq!(types, HELP.len(), "{text}");
}

#[test]
fn the_causes_of_a_packet_add_up_to_what_was_offered() {
    let board = Board::new("both", "none");
    let kept = board.producer();
    let packets = PacketCounters {
        placed: 1,
        duplicate: 2,
        late: 4,
        wild: 8,
        short: 16,
        long: 32,
        malformed: MalformedCounters {
            vlan: 64,
            fragment: 128,
            ihl: 256,
            checksum: 512,
            not_udp: 1024,
        },
        other_flow: 2048,
        no_buffer: 4096,
        early: 8192,
        held: 16_384,
        offered: 32_767,
        trimmed: 0,
    };
    assert!(packets.balanced());
    let images = ImageCounters {
        damaged: 1,
        missing: 2,
        dropped: DroppedImages {
            queue_full: 4,
            policy: 8,
            infer_failed: 16,
            sink_failed: 0,
            shutdown: 0,
        },
        unfinished: 32,
        pending: 64,
        delivered: 0,
    };
    let status = ProducerStatus {
        packets,
        images,
        blocked: Nanos::from_millis(1500),
        ..nothing_seen().status
    };
    kept.show(&Seen { status, buffers: (3, 2), ..nothing_seen() });
    let text = board.numbers().render();
    let all = sum(&text, PACKETS) + value(&text, "tensorwire_packets_held");
    assert!((all - value(&text, "tensorwire_packets_offered_total")).abs() < 0.5, "{text}");
    assert!((sum(&text, IMAGES) - 63.0).abs() < 0.5, "{text}");
    assert!((value(&text, "tensorwire_images_handed_total") - 64.0).abs() < 0.5);
    assert!((value(&text, "tensorwire_producer_blocked_seconds_total") - 1.5).abs() < 1e-9);
    assert!((value(&text, "tensorwire_batch_buffers{state=\"free\"}") - 3.0).abs() < 1e-9);
}

#[test]
fn what_counts_seconds_is_a_counter_and_what_has_a_unit_names_it() {
    let board = Board::new("both", "none");
    let link = LinkTotals { name: "eth0".to_owned(), ..LinkTotals::default() };
    let _kept = (board.producer(), board.consumer(), board.sender(), board.links(&[link]));
    let text = board.numbers().render();
    for line in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let (name, kind) = line.split_once(' ').expect("a name and its type");
        assert_eq!(name.ends_with("_total"), kind == "counter", "{line}");
        let base = name.strip_prefix("tensorwire_").expect("the prefix");
        assert!(base.chars().all(|c| c.is_ascii_lowercase() || c == '_'), "{line}");
        assert!(!base.contains("_ms") && !base.contains("_us"), "{line}: base units");
    }
    assert!(text.contains("tensorwire_build_info{version="), "{text}");
}

#[test]
fn to_show_numbers_takes_no_memory() {
    let board = Board::new("both", "none");
    let (producer, consumer, sender) = (board.producer(), board.consumer(), board.sender());
    let taken = allocation_counter::measure(|| {
        for sent in 0..1000 {
            producer.show(&nothing_seen());
            let counters = ConsumerCounters { delivered: sent, ..ConsumerCounters::default() };
            consumer.show(&Taken { counters, ..Taken::default() });
            sender.show(&TransmitCounters { sent, ..TransmitCounters::default() });
        }
    });
    assert_eq!(taken.count_total, 0);
    let text = board.numbers().render();
    assert!((value(&text, "tensorwire_images_delivered_total") - 999.0).abs() < 0.5);
    assert!((value(&text, "tensorwire_tx_frames_total") - 999.0).abs() < 0.5);
}
