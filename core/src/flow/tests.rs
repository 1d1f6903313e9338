use proptest::prelude::{Strategy, any, prop};
use proptest::{prop_assert_eq, proptest};

use super::{
    FlowMatch, FlowTable, FlowTableError, MAX_FLOWS, PortRange, PortRangeError, UdpHeader,
};

fn header(src_port: u16, dst_port: u16, ip_total_len: u16) -> UdpHeader {
    UdpHeader { src_port, dst_port, ip_total_len, udp_len: 8 }
}

fn table(flows: &[FlowMatch]) -> FlowTable {
    let mut table = FlowTable::new();
    for flow in flows {
        table.push(flow).expect("room for the flows of a test");
    }
    table
}

#[test]
fn the_documented_flow() {
    let port = Some(PortRange::single(4096));
    let table = table(&[FlowMatch { udp_src: port, udp_dst: port, ..FlowMatch::any(201) }]);
    assert_eq!(table.matches(&header(4096, 4096, 10)), Some(201));
    assert_eq!(table.matches(&header(4096, 4097, 10)), None);
    assert_eq!(table.matches(&header(4095, 4096, 10)), None);
    assert!(!table.matches_ipv4_len());
}

#[test]
fn the_first_match_wins_and_ranges_include_their_ends() {
    let range = PortRange::new(1000, 1010).expect("in order");
    let table = table(&[
        FlowMatch { udp_dst: Some(range), ..FlowMatch::any(0) },
        FlowMatch { ipv4_len: Some(1050), ..FlowMatch::any(7) },
        FlowMatch { udp_dst: Some(PortRange::single(1010)), ..FlowMatch::any(1) },
    ]);
    assert_eq!(table.matches(&header(9, 1000, 0)), Some(0), "id 0 is legal");
    assert_eq!(table.matches(&header(9, 1010, 1050)), Some(0));
    assert_eq!(table.matches(&header(9, 999, 1050)), Some(7));
    assert_eq!(table.matches(&header(9, 1011, 1051)), None);
    assert!(table.matches_ipv4_len());
}

#[test]
fn an_empty_table_matches_nothing_and_any_matches_all() {
    assert!(FlowTable::new().is_empty() && !table(&[FlowMatch::any(1)]).is_empty());
    assert_eq!(FlowTable::new().matches(&header(1, 2, 3)), None);
    let any = table(&[FlowMatch::any(u32::MAX)]);
    assert_eq!(any.matches(&header(u16::MAX, 0, 0)), Some(u32::MAX));
}

#[test]
fn a_full_table_and_a_duplicate_id_are_refused() {
    let mut table = FlowTable::new();
    for id in 0..MAX_FLOWS {
        let id = u32::try_from(id).expect("a small number");
        assert_eq!(table.push(&FlowMatch::any(id)), Ok(()));
        assert_eq!(table.push(&FlowMatch::any(id)), Err(FlowTableError::DuplicateId { id }));
    }
    assert_eq!(table.push(&FlowMatch::any(999)), Err(FlowTableError::Full { id: 999 }));
    assert_eq!(table.len(), MAX_FLOWS);
    assert_eq!(
        FlowTableError::Full { id: 999 }.to_string(),
        "no room for flow 999: the table holds 64 flows"
    );
}

#[test]
fn a_reversed_port_range_is_refused() {
    let error = PortRangeError { first: 10, last: 9 };
    assert_eq!(PortRange::new(10, 9), Err(error));
    assert_eq!(error.to_string(), "port range 10-9 is empty: it ends before it begins");
    assert_eq!(PortRange::from(80).to_string(), "80");
    assert_eq!(PortRange::new(80, 81).expect("in order").to_string(), "80-81");
}

fn any_range() -> impl Strategy<Value = Option<PortRange>> {
    // Few ports, so that ranges meet and miss each other.
    prop::option::of(
        (0..6u16, 0..6u16).prop_map(|(a, b)| PortRange::new(a.min(b), a.max(b)).expect("in order")),
    )
}

proptest! {
    #[test]
    fn matching_is_what_a_list_of_the_ports_says(
        flows in prop::collection::vec((any_range(), any_range(), prop::option::of(0..3u16)), 0..8),
        (src, dst, len) in (0..7u16, 0..7u16, 0..4u16),
        id in any::<u16>(),
    ) {
        let mut table = FlowTable::new();
        let mut expected = None;
        for (i, (udp_src, udp_dst, ipv4_len)) in (0u32..).zip(flows) {
            let id = u32::from(id) + i;
            table.push(&FlowMatch { id, udp_src, udp_dst, ipv4_len }).expect("eight flows fit");
            let listed = |range: Option<PortRange>, port: u16| {
                range.is_none_or(|range| (range.first()..=range.last()).any(|p| p == port))
            };
            let hit = listed(udp_src, src) && listed(udp_dst, dst)
                && (ipv4_len.is_none() || ipv4_len == Some(len));
            if hit && expected.is_none() {
                expected = Some(id);
            }
        }
        prop_assert_eq!(table.matches(&header(src, dst, len)), expected);
    }
}
