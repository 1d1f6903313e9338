//! Who confirms a bundle on trial: a command that asks the run how it is.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::error::BundleError;
use crate::store::Store;

/// How long it waits between two questions.
const BETWEEN: Duration = Duration::from_secs(1);

impl Store {
    /// Asks `command` for `after`, and confirms the bundle on trial if it answers 0 or 1 all the
    /// time. The name of that bundle; `None` where none is on trial any more.
    ///
    /// # Errors
    ///
    /// [`BundleError`] when it answers something else, or cannot be run: the trial goes on.
    pub fn confirm_by(
        &self,
        command: &[String],
        after: Duration,
    ) -> Result<Option<String>, BundleError> {
        let none = || BundleError::State("there is no command to ask".to_owned());
        let (program, more) = command.split_first().ok_or_else(none)?;
        let end = Instant::now() + after;
        loop {
            let output = Command::new(program).args(more).output();
            let output = output.map_err(|error| BundleError::Io {
                doing: "run",
                path: program.into(),
                error,
            })?;
            // 1: it runs and loses something, which a restart would not mend.
            if !matches!(output.status.code(), Some(0 | 1)) {
                let said = String::from_utf8_lossy(&output.stderr);
                let text = format!("not confirmed: {}: {}", output.status, said.trim());
                return Err(BundleError::State(text));
            }
            if Instant::now() >= end {
                return self.confirm();
            }
            thread::sleep(BETWEEN.min(end.saturating_duration_since(Instant::now())));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::Place;

    fn shell(line: &str) -> Vec<String> {
        ["sh", "-c", line].map(str::to_owned).to_vec()
    }

    #[test]
    fn a_run_that_answers_all_the_time_is_confirmed_and_no_other() {
        let place = Place::new();
        let store = place.store();
        store.install(&place.bundle("1.0", "true")).expect("installed");
        store.install(&place.bundle("2.0", "true")).expect("installed");
        let refused = |line: &str, seconds| {
            let told = store.confirm_by(&shell(line), Duration::from_secs(seconds));
            assert!(store.marker().expect("readable").is_some(), "still on trial: {line}");
            told.expect_err("refused").to_string()
        };
        let error = refused("echo stalled >&2; exit 5", 0);
        assert_eq!(error, "not confirmed: exit status: 5: stalled");
        assert!(refused("kill -9 $$", 0).starts_with("not confirmed: signal: 9"));
        // Well at first.
        let once = place.root().join("asked");
        let line = format!("test ! -e {0} && touch {0}", once.display());
        std::fs::remove_file(&once).unwrap_or_default();
        assert!(refused(&format!("{line} || exit 5"), 1).starts_with("not confirmed: exit status"));
        let error = store.confirm_by(&["/nowhere".to_owned()], Duration::ZERO);
        assert!(error.expect_err("refused").to_string().starts_with("cannot run /nowhere"));
        assert!(store.confirm_by(&[], Duration::ZERO).is_err());

        // It may lose something.
        let named = store.confirm_by(&shell("exit 1"), Duration::ZERO).expect("confirmed");
        assert_eq!(named.as_deref(), Some("2.0"));
        assert!(store.marker().expect("readable").is_none());
        let none = store.confirm_by(&shell("exit 0"), Duration::ZERO).expect("nothing on trial");
        assert_eq!(none, None);
    }
}
