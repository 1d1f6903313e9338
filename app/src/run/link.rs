//! The links of a run: whether each is up, watched beside the threads that carry packets.
//!
//! A link that goes down costs images, which the reassembly names; why they are missing only the
//! link can say. A run goes on over it, since cables are put back. A device that is gone does not
//! come back to the process that had it, so the run ends and whoever started it starts it again.

use std::fmt;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use tensorwire_core::time::Nanos;

use crate::exit::{ExitCode, Failure};
use crate::sink::LinkTotals;
use crate::talk::Talk;

/// What a link is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkState {
    /// Frames can pass.
    Up,
    /// They cannot: the cable is pulled, or one of the ends is shut down.
    Down,
    /// The device does not exist any more.
    Gone,
    /// It is there and of no use until a new start sets it up, for this reason.
    Faulty(&'static str),
}

/// One look at a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// What it is now.
    pub state: LinkState,
    /// Times that it went down, where somebody counts them: what goes down and up again between
    /// two looks is seen by nobody else.
    pub downs: Option<u64>,
    /// Times that the device was reset, or asked for it, since it was opened.
    pub resets: u64,
}

impl Look {
    /// A look by somebody who counts nothing.
    #[must_use]
    pub const fn at(state: LinkState) -> Self {
        Self { state, downs: None, resets: 0 }
    }
}

/// Somebody who can say what a link is. It is asked some twenty times a second, and never blocks.
pub trait Probe: fmt::Debug {
    /// What it is now; `None`: that cannot be said.
    fn look(&mut self) -> Option<Look>;
}

/// An interface of the kernel, by its files in sysfs.
#[derive(Clone, Debug)]
pub struct KernelLink {
    folder: PathBuf,
}

impl KernelLink {
    /// The interface `name`.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self::under(Path::new("/sys/class/net"), name)
    }

    fn under(root: &Path, name: &str) -> Self {
        Self { folder: root.join(name) }
    }
}

impl Probe for KernelLink {
    fn look(&mut self) -> Option<Look> {
        let read = |file: &str| fs::read_to_string(self.folder.join(file));
        let state = match read("carrier") {
            Ok(text) if text.trim() == "1" => LinkState::Up,
            Ok(_) => LinkState::Down,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                // A system without sysfs has no file of any interface.
                let known = self.folder.parent().is_some_and(Path::exists);
                return known.then_some(Look::at(LinkState::Gone));
            }
            // EINVAL: the interface is shut down, so nobody knows whether there is a carrier.
            Err(error) if error.kind() == ErrorKind::InvalidInput => LinkState::Down,
            Err(_) => return None,
        };
        let downs = read("carrier_down_count").ok().and_then(|text| text.trim().parse().ok());
        Some(Look { downs, ..Look::at(state) })
    }
}

/// A link and what became of it so far.
#[derive(Debug)]
struct Link {
    name: String,
    probe: Box<dyn Probe + Send>,
    state: LinkState,
    /// The probe's count at the last look.
    counted: Option<u64>,
    downs: u64,
    resets: u64,
    down_since: Option<Nanos>,
    down_for: Nanos,
}

impl Link {
    /// Takes a look in; whether the state changed.
    fn take(&mut self, look: Look, now: Nanos) -> bool {
        let went_down = self.state == LinkState::Up && look.state != LinkState::Up;
        let counted = look.downs.zip(self.counted).map(|(new, old)| new.saturating_sub(old));
        self.downs += counted.unwrap_or(0).max(went_down.into());
        self.counted = look.downs.or(self.counted);
        self.resets = look.resets;
        if look.state == self.state {
            return false;
        }
        match (self.down_since.take(), look.state) {
            (None, _) => self.down_since = Some(now),
            (Some(since), LinkState::Up) => self.down_for = self.down_for.plus(now.since(since)),
            // Down, and then gone.
            (since, _) => self.down_since = since,
        }
        self.state = look.state;
        true
    }

    fn totals(&self, now: Nanos) -> LinkTotals {
        let still = self.down_since.map_or(Nanos::ZERO, |since| now.since(since));
        LinkTotals {
            name: self.name.clone(),
            up: self.state == LinkState::Up,
            downs: self.downs,
            resets: self.resets,
            down_seconds: self.down_for.plus(still).as_secs_f64(),
        }
    }
}

/// The links of a run.
#[derive(Debug, Default)]
pub struct Links(Vec<Link>);

impl Links {
    /// No link yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Watches one more from `now` on, unless nobody can say what it is. What happened to it before
    /// does not count.
    pub fn watch(&mut self, name: &str, mut probe: Box<dyn Probe + Send>, now: Nanos) {
        let Some(look) = probe.look() else { return };
        let up = look.state == LinkState::Up;
        self.0.push(Link {
            name: name.to_owned(),
            probe,
            state: look.state,
            counted: look.downs,
            downs: 0,
            resets: look.resets,
            down_since: (!up).then_some(now),
            down_for: Nanos::ZERO,
        });
    }

    /// Looks at all of them and says what changed.
    ///
    /// # Errors
    ///
    /// A [`Failure`] (exit 5) that names a device that is gone.
    pub fn look(&mut self, now: Nanos, talk: Talk) -> Result<(), Failure> {
        for link in &mut self.0 {
            let Some(look) = link.probe.look() else { continue };
            let new = look.resets > link.resets;
            let changed = link.take(look, now);
            let name = &link.name;
            if new {
                talk.say(format_args!("link {name}: its NIC is reset, or asks for it"));
            }
            match look.state {
                _ if !changed => {}
                LinkState::Up => {
                    let seconds = link.down_for.as_secs_f64();
                    talk.say(format_args!("link {name}: up again, down for {seconds:.1} s so far"));
                }
                LinkState::Down => talk.say(format_args!("link {name}: down")),
                LinkState::Gone => return Err(lost(name, "the device is gone")),
                LinkState::Faulty(why) => return Err(lost(name, why)),
            }
        }
        Ok(())
    }

    /// What became of each.
    #[must_use]
    pub fn totals(&self, now: Nanos) -> Vec<LinkTotals> {
        self.0.iter().map(|link| link.totals(now)).collect()
    }
}

fn lost(name: &str, why: &str) -> Failure {
    Failure { exit: ExitCode::Device, reason: format!("link {name}: {why}") }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    /// A link that is what the test says, look by look; then nobody can say.
    #[derive(Debug)]
    struct Scripted(VecDeque<Option<Look>>);

    fn links(looks: &[Option<Look>]) -> Links {
        let mut links = Links::new();
        let probe = Scripted(looks.iter().copied().collect());
        links.watch("eth0", Box::new(probe), Nanos::ZERO);
        links
    }

    impl Probe for Scripted {
        fn look(&mut self) -> Option<Look> {
            self.0.pop_front().flatten()
        }
    }

    const fn seen(state: LinkState) -> Option<Look> {
        Some(Look::at(state))
    }

    const fn counted(state: LinkState, downs: u64) -> Option<Look> {
        Some(Look { state, downs: Some(downs), resets: 0 })
    }

    const UP: Option<Look> = seen(LinkState::Up);
    const DOWN: Option<Look> = seen(LinkState::Down);

    /// The totals at the end of one look a second, the first at 0 s.
    #[track_caller]
    fn after(looks: &[Option<Look>]) -> LinkTotals {
        let mut links = links(looks);
        for second in 1..looks.len() as u64 {
            links.look(Nanos::from_secs(second), Talk::new(true)).expect("it is there");
        }
        let end = Nanos::from_secs(looks.len() as u64);
        links.totals(end).pop().expect("it is watched")
    }

    fn totals(up: bool, downs: u64, down_seconds: f64) -> LinkTotals {
        LinkTotals { name: "eth0".to_owned(), up, downs, down_seconds, resets: 0 }
    }

    #[test]
    fn a_link_that_goes_down_and_comes_up_is_counted_with_its_time() {
        assert_eq!(after(&[UP, UP, UP]), totals(true, 0, 0.0));
        assert_eq!(after(&[UP, DOWN, DOWN, UP]), totals(true, 1, 2.0));
        assert_eq!(after(&[UP, DOWN, UP, DOWN, UP]), totals(true, 2, 2.0));
        // Still down: until now.
        assert_eq!(after(&[UP, DOWN, DOWN, DOWN]), totals(false, 1, 3.0));
        // Down from the start: it did not go down while it was watched.
        assert_eq!(after(&[DOWN, DOWN, UP]), totals(true, 0, 2.0));
        // What cannot be said changes nothing.
        assert_eq!(after(&[UP, None, DOWN, None, UP]), totals(true, 1, 2.0));
    }

    #[test]
    fn what_happens_between_two_looks_is_counted_by_who_saw_it() {
        let up = |downs| counted(LinkState::Up, downs);
        assert_eq!(after(&[up(7), up(9), up(9)]), totals(true, 2, 0.0));
        // Once down, however it is seen.
        assert_eq!(after(&[up(7), counted(LinkState::Down, 8), up(8)]), totals(true, 1, 1.0));
        // The state first, then the count.
        assert_eq!(after(&[up(7), counted(LinkState::Down, 7), up(7)]), totals(true, 1, 1.0));
        // A count that begins anew (another interface of that name) takes nothing back.
        assert_eq!(after(&[up(7), up(0), up(1)]), totals(true, 1, 0.0));
    }

    #[test]
    fn a_device_that_is_gone_ends_the_run_by_name() {
        let mut links = links(&[UP, DOWN, seen(LinkState::Gone)]);
        links.look(Nanos::from_secs(1), Talk::new(true)).expect("it is down");
        let gone = links.look(Nanos::from_secs(2), Talk::new(true)).expect_err("it is gone");
        assert_eq!(gone.exit, ExitCode::Device);
        assert_eq!(gone.reason, "link eth0: the device is gone");
        assert_eq!(links.totals(Nanos::from_secs(3)), [totals(false, 1, 2.0)]);
    }

    #[test]
    fn a_nic_that_is_reset_is_counted_and_one_that_asks_for_it_ends_the_run_by_name() {
        let reset = |state, resets| Some(Look { resets, ..Look::at(state) });
        // A driver that does it by itself: down for the while, and the run goes on.
        let recovered = after(&[
            UP,
            reset(LinkState::Down, 1),
            reset(LinkState::Up, 1),
            reset(LinkState::Up, 1),
        ]);
        assert_eq!(recovered, LinkTotals { resets: 1, ..totals(true, 1, 1.0) });
        let mut links = links(&[UP, reset(LinkState::Faulty("it asks for a reset"), 2)]);
        let ended = links.look(Nanos::from_secs(1), Talk::new(true)).expect_err("of no use");
        assert_eq!(
            (ended.exit, &*ended.reason),
            (ExitCode::Device, "link eth0: it asks for a reset")
        );
        let at_the_end = LinkTotals { resets: 2, ..totals(false, 1, 0.0) };
        assert_eq!(links.totals(Nanos::from_secs(1)), [at_the_end]);
    }

    #[test]
    fn a_link_that_nobody_can_tell_is_not_watched() {
        assert_eq!(links(&[None]).totals(Nanos::ZERO), []);
    }

    #[test]
    fn the_kernel_says_it_in_files() {
        let root = tempfile::tempdir().expect("a folder");
        let folder = root.path().join("eth0");
        let mut link = KernelLink::under(root.path(), "eth0");
        assert_eq!(link.look(), seen(LinkState::Gone));
        fs::create_dir(&folder).expect("made");
        fs::write(folder.join("carrier"), "1\n").expect("written");
        // Kernels before 4.16 do not count.
        assert_eq!(link.look(), UP);
        fs::write(folder.join("carrier_down_count"), "3\n").expect("written");
        assert_eq!(link.look(), counted(LinkState::Up, 3));
        fs::write(folder.join("carrier"), "0\n").expect("written");
        assert_eq!(link.look(), counted(LinkState::Down, 3));
        // No sysfs at all: nothing is known of any interface.
        assert_eq!(KernelLink::under(&root.path().join("none"), "eth0").look(), None);
    }
}
