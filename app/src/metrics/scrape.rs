//! The other side of the end point: asks it, and reads what it answers.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// How long an answer may take to come.
const PATIENCE: Duration = Duration::from_secs(3);
/// The longest answer that is read, in bytes.
const LONGEST: u64 = 1 << 20;

/// One number of an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Its name.
    pub name: String,
    /// Its labels, as they stand: `cause="late"`; empty without.
    pub labels: String,
    /// Its value.
    pub value: f64,
}

/// All numbers of an answer.
#[derive(Clone, Debug, Default)]
pub struct Scrape(Vec<Sample>);

/// Why there are no numbers.
#[derive(Debug)]
#[non_exhaustive]
pub enum ScrapeError {
    /// Nobody answers, or not to the end.
    Io(SocketAddr, io::Error),
    /// Who answers is no end point of ours.
    Foreign(SocketAddr, String),
}

impl fmt::Display for ScrapeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(at, error) => write!(f, "no answer from {at}: {error}"),
            Self::Foreign(at, what) => write!(f, "{at} is no end point of tensorwire: {what}"),
        }
    }
}

impl std::error::Error for ScrapeError {}

impl Scrape {
    /// Asks the end point at `address`.
    ///
    /// # Errors
    ///
    /// [`ScrapeError`] when it does not answer within three seconds, or answers something else.
    pub fn of(address: SocketAddr) -> Result<Self, ScrapeError> {
        let text = ask(address).map_err(|error| ScrapeError::Io(address, error))?;
        let foreign = |what: &str| ScrapeError::Foreign(address, what.to_owned());
        let (head, body) = text.split_once("\r\n\r\n").ok_or_else(|| foreign("no HTTP"))?;
        let status = head.lines().next().unwrap_or_default();
        if !status.starts_with("HTTP/1.1 200 ") {
            return Err(foreign(status));
        }
        let scrape = Self::parse(body).map_err(|line| foreign(&line))?;
        let ours = scrape.value("tensorwire_ready").is_some();
        if ours { Ok(scrape) } else { Err(foreign("it has no number `tensorwire_ready`")) }
    }

    /// Reads the text format of Prometheus; of what it allows, what the end point writes.
    ///
    /// # Errors
    ///
    /// The line that is none of it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        let samples = lines.map(|line| sample(line).ok_or_else(|| format!("{line:?}")));
        samples.collect::<Result<_, _>>().map(Self)
    }

    /// All numbers.
    #[must_use]
    pub fn samples(&self) -> &[Sample] {
        &self.0
    }

    /// The number of that name without labels.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<f64> {
        self.labelled(name, "")
    }

    /// The number of that name with exactly these labels.
    #[must_use]
    pub fn labelled(&self, name: &str, labels: &str) -> Option<f64> {
        let found = self.0.iter().find(|sample| sample.name == name && sample.labels == labels);
        found.map(|sample| sample.value)
    }

    /// The numbers of that name.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Sample> {
        self.0.iter().filter(move |sample| sample.name == name)
    }
}

fn sample(line: &str) -> Option<Sample> {
    let (key, value) = line.rsplit_once(' ')?;
    let value = value.parse().ok()?;
    let (name, labels) = match key.split_once('{') {
        Some((name, labels)) => (name, labels.strip_suffix('}')?),
        None => (key, ""),
    };
    let named = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    named.then(|| Sample { name: name.to_owned(), labels: labels.to_owned(), value })
}

fn ask(address: SocketAddr) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let request = format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut bytes = Vec::new();
    stream.take(LONGEST).read_to_end(&mut bytes)?;
    String::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;
    use crate::metrics::{Board, Server};

    #[test]
    fn what_the_end_point_says_is_read_back() {
        let board = Board::new("rx", "none");
        let _kept = (board.producer(), board.consumer());
        board.ready();
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let server = Server::start(any, board.numbers()).expect("a port");
        let scrape = Scrape::of(server.address()).expect("an answer");
        assert_eq!(scrape.value("tensorwire_ready"), Some(1.0));
        assert_eq!(scrape.labelled("tensorwire_packets_total", "cause=\"late\""), Some(0.0));
        assert_eq!(scrape.all("tensorwire_nic_lost_total").count(), 3);
        let text = board.numbers().render();
        let numbers = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
        assert_eq!(scrape.samples().len(), numbers.count());
    }

    #[test]
    fn a_line_that_is_no_number_is_named() {
        let parsed = Scrape::parse("# HELP a b\n\na{b=\"c d\"} 1.5\nx NaN\n").expect("numbers");
        assert_eq!(parsed.labelled("a", "b=\"c d\""), Some(1.5));
        assert!(parsed.value("x").is_some_and(f64::is_nan));
        for line in ["a", "a b", "a{b 1", " 1", "a-b 1", "{} 1"] {
            assert_eq!(Scrape::parse(line).expect_err("no number"), format!("{line:?}"));
        }
    }

    /// Answers one request with `answer`.
    fn once(answer: &'static [u8]) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("somebody asks");
            let mut request = [0; 512];
            let _ = stream.read(&mut request).expect("a request");
            stream.write_all(answer).expect("answered");
        });
        address
    }

    #[test]
    fn who_is_gone_or_is_somebody_else_is_named() {
        let gone = {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
            listener.local_addr().expect("bound")
        };
        let error = Scrape::of(gone).expect_err("nobody").to_string();
        assert!(error.starts_with(&format!("no answer from {gone}: ")), "{error}");
        for (answer, what) in [
            (&b"SSH-2.0-x\r\n"[..], "no HTTP"),
            (b"HTTP/1.1 404 Not Found\r\n\r\n", "HTTP/1.1 404 Not Found"),
            (b"HTTP/1.1 200 OK\r\n\r\n<html>", "\"<html>\""),
            (b"HTTP/1.1 200 OK\r\n\r\nother 1\n", "it has no number `tensorwire_ready`"),
        ] {
            let error = Scrape::of(once(answer)).expect_err("not ours").to_string();
            assert!(error.ends_with(&format!("tensorwire: {what}")), "{error}");
        }
    }
}
