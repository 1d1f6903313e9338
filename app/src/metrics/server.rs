//! The end point: `GET /metrics` over HTTP/1.1, on the loopback interface unless told otherwise.
//!
//! One request a connection, one connection at a time, each within two seconds and eight kilobytes:
//! whoever asks slowly or at length keeps others waiting that long and no longer, and the run not
//! at all.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::Numbers;

/// The longest request that is read, in bytes.
const LONGEST: usize = 8192;
/// How long a request may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often the thread looks whether it is to end.
const LOOK: Duration = Duration::from_millis(25);

/// Answers until it is dropped.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Why there is no end point.
#[derive(Debug)]
pub struct ServerError {
    address: SocketAddr,
    error: io::Error,
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} cannot be listened on: {}", self.address, self.error)
    }
}

impl std::error::Error for ServerError {}

impl Server {
    /// Listens at `address` (port 0: one that is free) and answers with what `numbers` renders.
    ///
    /// # Errors
    ///
    /// [`ServerError`] when the port is taken, the address is not ours, or no thread can be made.
    pub fn start(address: SocketAddr, numbers: Numbers) -> Result<Self, ServerError> {
        let failed = |error| ServerError { address, error };
        let listener = TcpListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let bound = listener.local_addr().map_err(failed)?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::Builder::new()
            .name("tw-metrics".to_owned())
            .spawn(move || serve(&listener, &numbers, &stopped))
            .map_err(failed)?;
        Ok(Self { address: bound, stop, thread: Some(thread) })
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Relaxed: nothing is published with it.
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It has panicked or ended; the run is over either way.
            let _ = thread.join();
        }
    }
}

fn serve(listener: &TcpListener, numbers: &Numbers, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        match listener.accept() {
            // What cannot be answered was not asked any more.
            Ok((stream, _)) => drop(answer(stream, numbers, stop)),
            Err(_) => thread::sleep(LOOK),
        }
    }
}

/// The line of the request; `None` where it is none, too long or too slow.
fn request(stream: &mut TcpStream, stop: &AtomicBool) -> io::Result<Option<String>> {
    let end = Instant::now() + PATIENCE;
    let mut bytes = Vec::with_capacity(1024);
    let mut piece = [0; 1024];
    stream.set_read_timeout(Some(LOOK))?;
    while !bytes.windows(4).any(|four| four == b"\r\n\r\n") {
        if Instant::now() >= end || bytes.len() > LONGEST || stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
        match stream.read(&mut piece) {
            Ok(0) => return Ok(None),
            Ok(came) => bytes.extend_from_slice(piece.get(..came).unwrap_or_default()),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(error) => return Err(error),
        }
    }
    let text = String::from_utf8_lossy(&bytes);
    Ok(text.lines().next().map(str::to_owned))
}

fn answer(mut stream: TcpStream, numbers: &Numbers, stop: &AtomicBool) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let line = request(&mut stream, stop)?;
    let words: Vec<_> = line.as_deref().unwrap_or_default().split(' ').collect();
    let (status, body) = match words.as_slice() {
        [method @ ("GET" | "HEAD"), path, version] if version.starts_with("HTTP/1.") => {
            match path.split('?').next() {
                Some("/metrics") if *method == "GET" => ("200 OK", numbers.render()),
                Some("/metrics") => ("200 OK", String::new()),
                _ => ("404 Not Found", "the numbers are at /metrics\n".to_owned()),
            }
        }
        [_, _, version] if version.starts_with("HTTP/1.") => {
            ("405 Method Not Allowed", "only GET and HEAD\n".to_owned())
        }
        _ => ("400 Bad Request", "no request of HTTP/1.1 within 2 s and 8 KiB\n".to_owned()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::metrics::Board;

    /// A port that is free.
    fn any() -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, 0))
    }

    fn board() -> Board {
        Board::new("rx", "none")
    }

    fn ask(server: &Server, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(server.address()).expect("it listens");
        stream.write_all(request).expect("written");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("an answer");
        text
    }

    #[test]
    fn the_numbers_are_given_to_who_asks_and_to_nobody_else() {
        let board = board();
        let server = Server::start(any(), board.numbers()).expect("a port");
        assert!(server.address().ip().is_loopback());
        let text = ask(&server, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        let (head, body) = text.split_once("\r\n\r\n").expect("a head");
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())), "{head}");
        assert!(body.contains("\ntensorwire_ready 0\n"), "{body}");
        board.ready();
        let text = ask(&server, b"GET /metrics?x=y HTTP/1.0\r\n\r\n");
        assert!(text.contains("\ntensorwire_ready 1\n"), "{text}");
        let text = ask(&server, b"HEAD /metrics HTTP/1.1\r\n\r\n");
        assert!(text.ends_with("\r\n\r\n"), "{text}");
        for (request, status) in [
            (&b"GET / HTTP/1.1\r\n\r\n"[..], "404"),
            (b"POST /metrics HTTP/1.1\r\n\r\n", "405"),
            (b"hello\r\n\r\n", "400"),
            (b"GET /metrics\r\n\r\n", "400"),
            (b"\r\n\r\n", "400"),
            (b"\xff\xfe\r\n\r\n", "400"),
            (&[b'x'; LONGEST + 1][..], "400"),
        ] {
            let text = ask(&server, request);
            assert!(text.starts_with(&format!("HTTP/1.1 {status} ")), "{text}");
        }
    }

    #[test]
    fn who_asks_and_says_nothing_delays_nobody_for_ever_and_the_end_not_at_all() {
        let server = Server::start(any(), board().numbers()).expect("a port");
        let silent = TcpStream::connect(server.address()).expect("it listens");
        let text = ask(&server, b"GET /metrics HTTP/1.1\r\n\r\n");
        assert!(text.starts_with("HTTP/1.1 200"), "{text}");
        let again = TcpStream::connect(server.address()).expect("it listens");
        drop(server);
        drop((silent, again));
    }

    #[test]
    fn an_address_that_cannot_be_had_is_named() {
        let server = Server::start(any(), board().numbers()).expect("a port");
        let taken = server.address();
        let error = Server::start(taken, board().numbers()).expect_err("taken");
        assert!(error.to_string().starts_with(&format!("{taken} cannot")), "{error}");
        // Of TEST-NET-1 (RFC 5737): of no machine.
        let foreign = SocketAddr::from(([192, 0, 2, 1], 9474));
        let error = Server::start(foreign, board().numbers()).expect_err("not ours");
        assert!(error.to_string().starts_with("192.0.2.1:9474 cannot"), "{error}");
    }
}
