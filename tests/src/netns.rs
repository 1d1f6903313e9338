//! Two hosts on one machine: network namespaces joined by veth, made by the script that ships with
//! the project.

use std::ffi::OsStr;
use std::fs;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::background::Background;
use crate::{Workplace, config, program, report};

/// Which of the two hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Host {
    /// The sender's, at 10.77.0.1.
    Tx,
    /// The receiver's, at 10.77.0.2.
    Rx,
}

/// Two namespaces and the cable between them; gone with the value.
///
/// One at a time: what two of them lose would be up to how they share the machine.
#[derive(Debug)]
pub struct TwoHosts {
    prefix: String,
    _alone: MutexGuard<'static, ()>,
}

impl TwoHosts {
    /// Makes them, where this process may and `ip` is there. Otherwise says which test is skipped
    /// and why.
    ///
    /// # Panics
    ///
    /// If the system lets us begin and then refuses.
    #[must_use]
    pub fn new(test: &str) -> Option<Self> {
        Self::made(test, "netns-up")
    }

    /// The same with a switch in between: whoever sends does not see that the receiver's cable is
    /// pulled.
    ///
    /// # Panics
    ///
    /// As [`TwoHosts::new`].
    #[must_use]
    pub fn behind_a_switch(test: &str) -> Option<Self> {
        Self::made(test, "netns-switch")
    }

    fn made(test: &str, how: &str) -> Option<Self> {
        static ALONE: Mutex<()> = Mutex::new(());
        /// Other processes may have some at the same time.
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let why = if !is_root() {
            Some("not root: network namespaces need it")
        } else if !there("ip") {
            Some("no `ip` (package iproute2)")
        } else {
            let probe = format!("twp{}x{number}", std::process::id());
            let made = ip(&["netns", "add", &probe]);
            let _ = ip(&["netns", "del", &probe]);
            (!made).then_some("the system refuses network namespaces")
        };
        if let Some(why) = why {
            report(&format!("skipped: {test}: {why}"));
            return None;
        }
        // A test that failed has left nothing behind that another would see.
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let hosts = Self { prefix: format!("tw{}x{number}", std::process::id()), _alone: alone };
        hosts.script(&[how]);
        Some(hosts)
    }

    fn script(&self, args: &[&str]) {
        let mut command = Command::new(config("net_xhost.sh"));
        command.env("TW_NS", &self.prefix).args(args);
        let done = command.output().expect("the script starts");
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(done.status.success(), "net_xhost.sh {args:?}: {said}");
    }

    /// The name of the namespace of `host`.
    #[must_use]
    pub fn namespace(&self, host: Host) -> String {
        let side = match host {
            Host::Tx => "tx",
            Host::Rx => "rx",
        };
        format!("{}-{side}", self.prefix)
    }

    /// Pulls the cable at the receiver, or puts it back.
    ///
    /// # Panics
    ///
    /// If the system refuses.
    pub fn cable(&self, there: bool) {
        self.script(&["cable", if there { "up" } else { "down" }]);
    }

    /// Pulls the cable at the receiver once the sender's interface has sent `first` more bytes,
    /// and puts it back once it has sent another `then`, however long either takes.
    ///
    /// # Panics
    ///
    /// If the sender does not send them, or the system refuses.
    #[track_caller]
    pub fn cable_pulled(&self, first: u64, then: u64) {
        // One process for all of it: starting one takes longer than a look at the counter.
        let rx = self.namespace(Host::Rx);
        let script = format!(
            "sent() {{ read -r now < /sys/class/net/twx0/statistics/tx_bytes; }}
             wait_for() {{
                 for i in $(seq 6000); do
                     sent; [ $now -lt $1 ] || return 0; sleep 0.01
                 done
                 return 1
             }}
             set -e
             sent; wait_for $((now + {first})); ip -n {rx} link set twx1 down
             sent; wait_for $((now + {then})); ip -n {rx} link set twx1 up"
        );
        let pulled = ip(&["netns", "exec", &self.namespace(Host::Tx), "sh", "-c", &script]);
        assert!(pulled, "the sender did not send {first} and {then} bytes");
    }

    /// Takes the receiver's interface away, as when a device is unplugged.
    ///
    /// # Panics
    ///
    /// If the system refuses.
    pub fn remove_receiver(&self) {
        let gone = ip(&["-n", &self.namespace(Host::Rx), "link", "del", "twx1"]);
        assert!(gone, "the interface of the receiver stays");
    }

    /// Starts `tensorwire` with `args` on `host`, in the folder of `place`.
    ///
    /// # Panics
    ///
    /// If the program is not there.
    #[must_use]
    #[track_caller]
    pub fn start<S: AsRef<OsStr>>(&self, host: Host, place: &Workplace, args: &[S]) -> Background {
        let mut command = place.command("ip");
        command.args(["netns", "exec", &self.namespace(host)]).arg(program()).args(args);
        Background::start(command)
    }
}

impl Drop for TwoHosts {
    fn drop(&mut self) {
        let mut command = Command::new(config("net_xhost.sh"));
        // What is left behind is told by the next run of the test, which has another name.
        let _ = command.env("TW_NS", &self.prefix).arg("netns-down").status();
    }
}

fn is_root() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ids = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap_or_default();
    // Real, effective, saved, file system.
    ids.split_whitespace().nth(1) == Some("0")
}

fn there(program: &str) -> bool {
    let mut command = Command::new(program);
    command.arg("-V").stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

fn ip(args: &[&str]) -> bool {
    let mut command = Command::new("ip");
    command.args(args).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
