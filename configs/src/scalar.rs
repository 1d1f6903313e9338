//! Scalars: what text is an integer, an address, a port. One rule per type, used for every key.

use std::fmt;
use std::net::Ipv4Addr;

use crate::address::PciAddress;

/// Why a text is no integer of ours. Integers are decimal, `0x…` or `0o…`, unquoted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IntegerFault {
    /// `09`, `010`: eight, ten or text, depending on the reader.
    LeadingZero,
    /// `1_0`.
    Underscore,
    /// `+9`.
    Plus,
    /// `0X10`, `0O10`.
    UpperPrefix,
    /// `9.0`, `1e1`.
    Float,
    /// `-1`, and its digits are right.
    Negative,
    /// More than 64 bits.
    TooLarge,
    /// Something else.
    NoInteger,
}

impl fmt::Display for IntegerFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LeadingZero => "a leading zero: some readers take it for octal, some for text",
            Self::Underscore => "an underscore between digits, which YAML 1.2 reads as text",
            Self::Plus => "a plus sign",
            Self::UpperPrefix => "a prefix in capitals; hexadecimal is `0x`, octal is `0o`",
            Self::Float => "a floating-point number",
            Self::Negative => "a negative number",
            Self::TooLarge => "a number of more than 64 bits",
            Self::NoInteger => "no integer",
        })
    }
}

/// Reads an integer as this project defines it.
pub(crate) fn integer(text: &str) -> Result<u64, IntegerFault> {
    if let Some(rest) = text.strip_prefix('-') {
        return match integer(rest) {
            Ok(_) | Err(IntegerFault::TooLarge) => Err(IntegerFault::Negative),
            Err(fault) => Err(fault),
        };
    }
    if let Some(rest) = text.strip_prefix('+') {
        return integer(rest).map_or_else(Err, |_| Err(IntegerFault::Plus));
    }
    if let Some(digits) = text.strip_prefix("0x") {
        return radix(digits, 16);
    }
    if let Some(digits) = text.strip_prefix("0o") {
        return radix(digits, 8);
    }
    if text.starts_with("0X") || text.starts_with("0O") {
        return Err(IntegerFault::UpperPrefix);
    }
    if text.len() > 1 && text.starts_with('0') && all_digits(text) {
        return Err(IntegerFault::LeadingZero);
    }
    if text.contains('_') && all_digits(&text.replace('_', "")) {
        return Err(IntegerFault::Underscore);
    }
    if is_float(text) {
        return Err(IntegerFault::Float);
    }
    radix(text, 10)
}

fn radix(digits: &str, radix: u32) -> Result<u64, IntegerFault> {
    if digits.is_empty() || !digits.chars().all(|digit| digit.is_digit(radix)) {
        return Err(IntegerFault::NoInteger);
    }
    u64::from_str_radix(digits, radix).map_err(|_| IntegerFault::TooLarge)
}

fn all_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// A number with a point or an exponent (not `inf` or `nan`: those are words).
fn is_float(text: &str) -> bool {
    text.bytes().next().is_some_and(|byte| byte.is_ascii_digit() || byte == b'.')
        && text.bytes().any(|byte| matches!(byte, b'.' | b'e' | b'E'))
        && text.parse::<f64>().is_ok()
}

/// What a template leaves for the user to fill in: `<…>` or `${…}`.
pub(crate) fn placeholder(text: &str) -> bool {
    (text.starts_with('<') && text.ends_with('>') && text.len() > 2)
        || (text.starts_with("${") && text.ends_with('}'))
}

/// Reads a PCI address; `None` for everything that is not one.
pub(crate) fn pci(text: &str) -> Option<PciAddress> {
    let (domain, rest) = text.split_once(':')?;
    let (bus, rest) = rest.split_once(':')?;
    let (device, function) = rest.split_once('.')?;
    let hex = |text: &str, digits: std::ops::RangeInclusive<usize>| {
        let right = digits.contains(&text.len()) && text.bytes().all(|b| b.is_ascii_hexdigit());
        right.then(|| u32::from_str_radix(text, 16).ok()).flatten()
    };
    let device = u8::try_from(hex(device, 2..=2)?).ok().filter(|device| *device < 0x20)?;
    let function = u8::try_from(hex(function, 1..=1)?).ok().filter(|function| *function < 8)?;
    let bus = u8::try_from(hex(bus, 2..=2)?).ok()?;
    Some(PciAddress { domain: hex(domain, 4..=8)?, bus, device, function })
}

/// The drivers of DPDK's virtual devices that an address may name. A list, so that a mistyped one
/// is told before DPDK is started.
pub(crate) const VIRTUAL_DRIVERS: &[&str] = &[
    "net_ring",
    "net_memif",
    "net_af_packet",
    "net_af_xdp",
    "net_null",
    "net_pcap",
    "net_tap",
    "net_vhost",
    "net_virtio_user",
];

/// Whether `text` is a virtual device of DPDK: a driver, a number, and options as `,key=value`.
pub(crate) fn virtual_device(text: &str) -> bool {
    let (name, options) = text.split_once(',').map_or((text, None), |(a, b)| (a, Some(b)));
    let driver = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let numbered = name.len() > driver.len() && VIRTUAL_DRIVERS.contains(&driver);
    let option = |option: &str| {
        option.split_once('=').is_some_and(|(key, value)| !key.is_empty() && !value.is_empty())
    };
    let printable = !text.contains(|c: char| c.is_whitespace() || c.is_control());
    numbered && printable && options.is_none_or(|options| options.split(',').all(option))
}

/// Reads four decimal numbers up to 255. Leading zeros are decimal: `000.000.000.0` stands in
/// public examples, and whether `010` is eight or ten is settled by no standard, so only zeros may
/// lead a zero.
pub(crate) fn ipv4(text: &str) -> Option<Ipv4Addr> {
    let mut bytes = [0; 4];
    let mut parts = text.split('.');
    for byte in &mut bytes {
        let part = parts.next()?;
        let right = all_digits(part) && part.len() <= 3;
        let zero = part.bytes().all(|digit| digit == b'0');
        if !right || (part.len() > 1 && part.starts_with('0') && !zero) {
            return None;
        }
        *byte = part.parse().ok()?;
    }
    parts.next().is_none().then(|| Ipv4Addr::from(bytes))
}

/// A range of ports, both ends inside: `4096` or `1000-1010`.
pub(crate) fn ports(text: &str) -> Result<(u16, u16), PortFault> {
    let port = |text: &str| match integer(text) {
        Ok(port) => u16::try_from(port).map_err(|_| PortFault::TooLarge),
        Err(IntegerFault::TooLarge | IntegerFault::Negative) => Err(PortFault::TooLarge),
        Err(fault) => Err(PortFault::Spelling(fault)),
    };
    match text.split_once('-').filter(|(first, _)| !first.is_empty()) {
        None => port(text).map(|port| (port, port)),
        Some((first, last)) => {
            let (first, last) = (port(first.trim_end())?, port(last.trim_start())?);
            if first > last { Err(PortFault::Backwards) } else { Ok((first, last)) }
        }
    }
}

/// Why a text is no port or range of ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PortFault {
    /// An end is no integer.
    Spelling(IntegerFault),
    /// An end is not in 0..=65535.
    TooLarge,
    /// The first port is above the last.
    Backwards,
}

/// `text`, safe and short enough for a message.
pub(crate) fn shown(text: &str) -> String {
    const LONGEST: usize = 60;
    let mut shown: String =
        text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).take(LONGEST).collect();
    if text.chars().nth(LONGEST).is_some() {
        shown.push('…');
    }
    shown
}

/// The word of `known` that `text` probably means: the fewest edits, at most a third of its
/// length. Of two equally near ones the earlier.
pub(crate) fn nearest<'k>(text: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    near(text, known).min_by_key(|(edits, _)| *edits).map(|(_, word)| word)
}

/// [`nearest`], when no other word is as near.
pub(crate) fn meant<'k>(text: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    let mut found: Option<(usize, Option<&str>)> = None;
    for (edits, word) in near(text, known) {
        found = match found {
            Some((least, _)) if least < edits => found,
            Some((least, _)) if least == edits => Some((least, None)),
            _ => Some((edits, Some(word))),
        };
    }
    found.and_then(|(_, word)| word)
}

/// The words near enough to be proposed, each with its distance.
fn near<'k>(
    text: &str,
    known: impl Iterator<Item = &'k str>,
) -> impl Iterator<Item = (usize, &'k str)> {
    let length = text.chars().count();
    let limit = (length / 3).clamp(1, 4);
    let plain = |text: &str| text.to_lowercase().replace('-', "_");
    known
        .filter(move |word| !word.is_empty() && length <= 60)
        .map(move |word| (distance(&plain(text), &plain(word)), word))
        .filter(move |(edits, word)| *edits <= limit && *edits < word.chars().count())
}

/// Insertions, deletions, replacements and swaps of neighbours between two texts (optimal string
/// alignment).
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replaced = above[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = replaced.min(above[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(before[j - 2] + 1);
            }
            row.push(least);
        }
        before = std::mem::replace(&mut above, row);
    }
    above[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_decimal_hex_or_octal_and_nothing_else() {
        let right = [("0", 0), ("9", 9), ("0x9", 9), ("0xAb", 171), ("0o11", 9)];
        for (text, value) in right {
            assert_eq!(integer(text), Ok(value), "{text}");
        }
        assert_eq!(integer("18446744073709551615"), Ok(u64::MAX));
        let wrong = [
            ("09", IntegerFault::LeadingZero),
            ("08", IntegerFault::LeadingZero),
            ("010", IntegerFault::LeadingZero),
            ("00", IntegerFault::LeadingZero),
            ("-010", IntegerFault::LeadingZero),
            ("1_0", IntegerFault::Underscore),
            ("+9", IntegerFault::Plus),
            ("0X9", IntegerFault::UpperPrefix),
            ("9.0", IntegerFault::Float),
            ("1.5", IntegerFault::Float),
            ("1e1", IntegerFault::Float),
            ("-1", IntegerFault::Negative),
            ("18446744073709551616", IntegerFault::TooLarge),
            ("5001junk", IntegerFault::NoInteger),
            ("", IntegerFault::NoInteger),
            ("0x", IntegerFault::NoInteger),
            ("0xg", IntegerFault::NoInteger),
            ("0o8", IntegerFault::NoInteger),
            ("٣", IntegerFault::NoInteger),
            ("nan", IntegerFault::NoInteger),
            ("1:30", IntegerFault::NoInteger),
        ];
        for (text, fault) in wrong {
            assert_eq!(integer(text), Err(fault), "{text}");
        }
    }

    #[test]
    fn pci_addresses_are_four_hexadecimal_parts() {
        let right = ["0000:01:00.0", "0002:01:00.1", "0000:03:00.0", "0000:b3:00.0"];
        for text in right {
            assert_eq!(pci(text).map(|pci| pci.to_string()).as_deref(), Some(text));
        }
        assert_eq!(pci("10000:E1:1f.7").map(|pci| pci.domain), Some(0x10000));
        let wrong = ["60.0", "01:00.0", "0000:01:00", "0000:01:20.0", "0000:01:00.8", "loopback"];
        for text in
            wrong.iter().chain(&["0000:1:00.0", "0000:01:00.0 ", "0000:01:00.00", "+000:01:00.0"])
        {
            assert_eq!(pci(text), None, "{text}");
        }
    }

    #[test]
    fn addresses_of_four_numbers() {
        assert_eq!(ipv4("1.1.1.1"), Some(Ipv4Addr::new(1, 1, 1, 1)));
        assert_eq!(ipv4("000.000.000.0"), Some(Ipv4Addr::UNSPECIFIED));
        for text in
            ["1.1.1", "1.1.1.256", "010.0.0.1", "1.1.1.1.1", "1.1.1.", "a.b.c.d", "+1.1.1.1"]
        {
            assert_eq!(ipv4(text), None, "{text}");
        }
    }

    #[test]
    fn ports_and_ranges_of_ports() {
        assert_eq!(ports("4096"), Ok((4096, 4096)));
        assert_eq!(ports("1000-1010"), Ok((1000, 1010)));
        assert_eq!(ports("1010-1000"), Err(PortFault::Backwards));
        assert_eq!(ports("70000"), Err(PortFault::TooLarge));
        assert_eq!(ports("-1"), Err(PortFault::TooLarge));
        assert_eq!(ports("1000-"), Err(PortFault::Spelling(IntegerFault::NoInteger)));
    }

    #[test]
    fn the_nearest_word_is_near() {
        let words = ["batch_size", "buf_size", "tx_eth_src", "device", "sw"];
        let near = |text| nearest(text, words.into_iter());
        assert_eq!(near("batch_sise"), Some("batch_size"));
        assert_eq!(near("Batch-Size"), Some("batch_size"));
        assert_eq!(near("tx_eth_scr"), Some("tx_eth_src"));
        assert_eq!(near("devcie"), Some("device"));
        assert_eq!(near("zebra"), None);
        assert_eq!(near("x"), None, "one letter is near to nothing");
    }

    #[test]
    fn placeholders_are_what_templates_use() {
        for text in ["<rx-pcie-addr>", "<0000:00:00.0>", "<MAC>", "${ETH_DST_ADDR}"] {
            assert!(placeholder(text), "{text}");
        }
        for text in ["<>", "<", "a<b>", "$X", "0000:01:00.0"] {
            assert!(!placeholder(text), "{text}");
        }
    }
}
