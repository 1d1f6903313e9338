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
    let board = Board::new();
    let _kept = (board.producer(), board.consumer(), board.sender());
    let text = board.handle().render();
    for (name, help) in HELP {
        assert!(text.contains(&format!("# HELP {name} {help}\n")), "{name}\n{text}");
    }
    let types = text.lines().filter(|line| line.starts_with("# TYPE ")).count();
    assert_eq!(types, HELP.len(), "{text}");
}

#[test]
fn the_causes_of_a_packet_add_up_to_what_was_offered() {
    let board = Board::new();
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
        dropped: DroppedImages { queue_full: 4, policy: 8, infer_failed: 16, sink_failed: 0 },
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
    let text = board.handle().render();
    let all = sum(&text, PACKETS) + value(&text, "tensorwire_packets_held");
    assert!((all - value(&text, "tensorwire_packets_offered_total")).abs() < 0.5, "{text}");
    assert!((sum(&text, IMAGES) - 63.0).abs() < 0.5, "{text}");
    assert!((value(&text, "tensorwire_images_handed_total") - 64.0).abs() < 0.5);
    assert!((value(&text, "tensorwire_producer_blocked_seconds") - 1.5).abs() < 1e-9);
    assert!((value(&text, "tensorwire_batch_buffers{state=\"free\"}") - 3.0).abs() < 1e-9);
}

#[test]
fn a_thread_shows_its_numbers_ten_times_a_second_and_takes_no_memory_for_it() {
    let board = Board::new();
    let (mut producer, consumer, mut sender) = (board.producer(), board.consumer(), board.sender());
    let mut looks = 0;
    let counters = TransmitCounters { sent: 7, ..TransmitCounters::default() };
    let taken = allocation_counter::measure(|| {
        for ms in 0..1000 {
            producer.show_at(Nanos::from_millis(ms), || {
                looks += 1;
                nothing_seen()
            });
            sender.show_at(Nanos::from_millis(ms), &counters);
            consumer.show(&ConsumerCounters { delivered: ms, ..ConsumerCounters::default() });
        }
    });
    assert_eq!((looks, taken.count_total), (10, 0));
    let text = board.handle().render();
    assert!((value(&text, "tensorwire_images_delivered_total") - 999.0).abs() < 0.5);
    assert!((value(&text, "tensorwire_tx_frames_total") - 7.0).abs() < 0.5);
}
