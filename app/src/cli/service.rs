//! The commands around a run that goes on as a service.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use clap::Args;

use crate::run::args::seconds;

/// Where `status` asks if nobody says otherwise, and where the unit of the package answers.
pub const METRICS_PORT: u16 = 9474;

/// `status`.
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// Where the run answers: what its --metrics says
    #[arg(long, value_name = "[ADDR:]PORT", value_parser = end_point)]
    #[arg(default_value_t = SocketAddr::from((Ipv4Addr::LOCALHOST, METRICS_PORT)))]
    pub address: SocketAddr,
    /// It is asked twice, so far apart: what is lost now is what grew meanwhile
    #[arg(long, value_name = "S", default_value = "1", value_parser = seconds)]
    pub interval: Duration,
    /// Print one JSON object on stdout
    #[arg(long)]
    pub json: bool,
}

/// `ADDR:PORT`, or a port of the loopback interface.
pub(crate) fn end_point(text: &str) -> Result<SocketAddr, String> {
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
