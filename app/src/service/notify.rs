//! The protocol of `sd_notify(3)`: lines of `KEY=value` in a datagram to a socket whose name is in
//! the environment. It is small enough to be written out, and needs no library.

use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process;
use std::time::Duration;

/// The manager's socket; without one nothing is said.
#[derive(Debug)]
pub struct Notify {
    socket: Option<UnixDatagram>,
    watchdog: Option<Duration>,
}

/// Why the manager cannot be told.
#[derive(Debug)]
#[non_exhaustive]
pub enum NotifyError {
    /// The name is neither a path nor an abstract one.
    Name(String),
    /// The socket cannot be reached.
    Io(String, io::Error),
}

impl fmt::Display for NotifyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => write!(f, "`{name}` is neither an absolute path nor @name"),
            Self::Io(name, error) => write!(f, "`{name}` cannot be reached: {error}"),
        }
    }
}

impl std::error::Error for NotifyError {}

impl Notify {
    /// As the environment says: `NOTIFY_SOCKET`, `WATCHDOG_USEC`, `WATCHDOG_PID`.
    ///
    /// # Errors
    ///
    /// [`NotifyError`] when there is a name and nobody behind it.
    pub fn from_env() -> Result<Self, NotifyError> {
        let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let number = |name| variable(name).and_then(|value| value.to_str()?.parse::<u64>().ok());
        let ours = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(process::id()));
        let watchdog = number("WATCHDOG_USEC").filter(|&micros| micros > 0 && ours);
        Self::new(variable("NOTIFY_SOCKET").as_deref(), watchdog.map(Duration::from_micros))
    }

    /// No manager.
    #[must_use]
    pub const fn nobody() -> Self {
        Self { socket: None, watchdog: None }
    }

    /// The manager behind the socket `name`: a path, or `@` and an abstract name. `watchdog` is the
    /// time within which it wants to be fed.
    ///
    /// # Errors
    ///
    /// [`NotifyError`] when there is a name and nobody behind it.
    pub fn new(name: Option<&OsStr>, watchdog: Option<Duration>) -> Result<Self, NotifyError> {
        let Some(name) = name else { return Ok(Self { socket: None, watchdog: None }) };
        let shown = || name.to_string_lossy().into_owned();
        let address = match name.as_bytes() {
            [b'/', ..] => SocketAddr::from_pathname(name),
            [b'@', rest @ ..] => SocketAddr::from_abstract_name(rest),
            _ => return Err(NotifyError::Name(shown())),
        };
        let connect = |address: SocketAddr| {
            let socket = UnixDatagram::unbound()?;
            socket.connect_addr(&address)?;
            // The run waits for no manager.
            socket.set_nonblocking(true)?;
            Ok(socket)
        };
        let socket = address.and_then(connect).map_err(|error| NotifyError::Io(shown(), error))?;
        Ok(Self { socket: Some(socket), watchdog })
    }

    /// The time within which the manager wants to be fed; `None`: it does not.
    #[must_use]
    pub const fn watchdog(&self) -> Option<Duration> {
        self.watchdog
    }

    /// Says `lines`. A manager that is gone or has no room is not waited for: it will miss the food
    /// if that was it, and the next is said a little later.
    pub fn say(&self, lines: &str) {
        if let Some(socket) = &self.socket {
            let _ = socket.send(lines.as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(socket: &UnixDatagram) -> String {
        let mut bytes = [0; 256];
        let came = socket.recv(&mut bytes).expect("something was said");
        String::from_utf8_lossy(&bytes[..came]).into_owned()
    }

    #[test]
    fn a_path_and_an_abstract_name_are_heard() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).expect("a socket");
        let notify = Notify::new(Some(path.as_os_str()), None).expect("reached");
        notify.say("READY=1\n");
        assert_eq!(heard(&socket), "READY=1\n");

        let name = format!("tensorwire-test-{}", process::id());
        let address = SocketAddr::from_abstract_name(&name).expect("a name");
        let socket = UnixDatagram::bind_addr(&address).expect("a socket");
        let second = Some(Duration::from_secs(1));
        let notify = Notify::new(Some(OsStr::new(&format!("@{name}"))), second).expect("reached");
        notify.say("WATCHDOG=1\n");
        assert_eq!((heard(&socket).as_str(), notify.watchdog()), ("WATCHDOG=1\n", second));
    }

    #[test]
    fn without_a_manager_nothing_is_said_and_a_wrong_one_is_named() {
        let alone = Notify::new(None, Some(Duration::from_secs(1))).expect("nobody");
        alone.say("READY=1\n");
        assert_eq!(alone.watchdog(), None);
        for (name, what) in [
            ("notify", "neither an absolute path nor @name"),
            ("vsock:2:1234", "neither an absolute path nor @name"),
            ("/no/such/socket", "cannot be reached"),
            ("@tensorwire-nobody", "cannot be reached"),
        ] {
            let error = Notify::new(Some(OsStr::new(name)), None).expect_err("refused");
            assert!(error.to_string().contains(what), "{error}");
        }
    }

    /// A manager that does not read is not waited for.
    #[test]
    fn a_manager_that_hangs_holds_nobody_up() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("notify");
        let _socket = UnixDatagram::bind(&path).expect("a socket");
        let notify = Notify::new(Some(path.as_os_str()), None).expect("reached");
        for _ in 0..10_000 {
            notify.say("WATCHDOG=1\n");
        }
    }
}
