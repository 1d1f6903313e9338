//! Addresses as a program may be given them besides a file.

use std::fmt;

/// `domain:bus:device.function`, all hexadecimal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PciAddress {
    /// Domain, 16 bits; up to 32 behind a volume management device.
    pub domain: u32,
    /// Bus.
    pub bus: u8,
    /// Device, below 0x20.
    pub device: u8,
    /// Function, below 8.
    pub function: u8,
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { domain, bus, device, function } = self;
        write!(f, "{domain:04x}:{bus:02x}:{device:02x}.{function:x}")
    }
}

/// Reads six hexadecimal pairs with colons between them.
///
/// ```
/// use tensorwire_configs::mac;
/// assert_eq!(mac("02:00:00:00:00:fE"), Some([2, 0, 0, 0, 0, 0xfe]));
/// assert_eq!(mac("2:0:0:0:0:fe"), None);
/// ```
#[must_use]
pub fn mac(text: &str) -> Option<[u8; 6]> {
    let mut bytes = [0; 6];
    let mut pairs = text.split(':');
    for byte in &mut bytes {
        let pair = pairs.next().filter(|pair| pair.len() == 2)?;
        if !pair.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        *byte = u8::from_str_radix(pair, 16).ok()?;
    }
    pairs.next().is_none().then_some(bytes)
}
