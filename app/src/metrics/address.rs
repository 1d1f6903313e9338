//! Where a run answers.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Where `status` asks if nobody says otherwise, where a bundle of the package answers, and
/// firmware by itself.
pub const END_POINT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9474);

/// `ADDR:PORT`, or a port of the loopback interface.
///
/// # Errors
///
/// What was expected.
pub fn end_point(text: &str) -> Result<SocketAddr, String> {
    let port = text.strip_prefix(':').unwrap_or(text).parse();
    let port = port.map(|port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    port.or_else(|_| text.parse()).map_err(|_| {
        "expected a port, or an address with one, as in 9474, 0.0.0.0:9474 or [::]:9474".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_alone_is_one_of_the_loopback_interface() {
        for (text, address) in [
            ("9474", "127.0.0.1:9474"),
            (":1", "127.0.0.1:1"),
            ("0.0.0.0:80", "0.0.0.0:80"),
            ("[::1]:9474", "[::1]:9474"),
        ] {
            assert_eq!(end_point(text).expect("an address").to_string(), address);
        }
        for bad in ["", "localhost", "65536", "-1", "1.2.3.4", "localhost:9474", "::1:x"] {
            assert!(end_point(bad).is_err(), "{bad}");
        }
    }
}
