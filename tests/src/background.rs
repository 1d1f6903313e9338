//! The program while it runs: what it said so far, signals to it.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::{Output, PATIENCE};

/// A stream of the program, read by a thread of its own so that the program never waits for us.
#[derive(Debug)]
struct Stream {
    so_far: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
}

impl Stream {
    fn new(mut from: impl Read + Send + 'static) -> Self {
        let so_far = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&so_far);
        let reader = thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(read @ 1..) = from.read(&mut piece) {
                let mut sink = sink.lock().unwrap_or_else(PoisonError::into_inner);
                sink.extend_from_slice(&piece[..read]);
            }
        });
        Self { so_far, reader }
    }

    fn text(&self) -> String {
        let bytes = self.so_far.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn finish(self) -> String {
        self.reader.join().expect("a reader");
        let bytes = self.so_far.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8(bytes.clone()).expect("the program writes UTF-8")
    }
}

/// A program that was started. It is killed if the test that started it ends before it.
#[derive(Debug)]
pub struct Background {
    child: Option<Child>,
    what: String,
    stdout: Option<Stream>,
    stderr: Option<Stream>,
}

impl Background {
    /// Starts a command with nothing on its stdin.
    pub(crate) fn start(mut command: Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let what = format!("{command:?}");
        let mut child = command.spawn().expect("the program starts");
        let stdout = child.stdout.take().map(Stream::new);
        let stderr = child.stderr.take().map(Stream::new);
        Self { child: Some(child), what, stdout, stderr }
    }

    /// Waits until `there` says so of what is on stderr.
    ///
    /// # Panics
    ///
    /// If the program ends before, or does not come that far.
    #[track_caller]
    pub fn wait_until(&mut self, mut there: impl FnMut(&str) -> bool) {
        let start = Instant::now();
        loop {
            // Asked for before the text is read: what it said last is then in the text.
            let ended = self.ended();
            let said = self.stderr.as_ref().map(Stream::text).unwrap_or_default();
            if there(&said) {
                return;
            }
            assert!(!ended, "{} ended: {said}", self.what);
            assert!(start.elapsed() < PATIENCE, "{} does not come that far: {said}", self.what);
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until the receiver has said that it is ready.
    ///
    /// # Panics
    ///
    /// As [`Background::wait_until`].
    #[track_caller]
    pub fn wait_until_ready(&mut self) {
        self.wait_until(|said| said.lines().any(|line| line == "tensorwire: ready"));
    }

    fn ended(&mut self) -> bool {
        let child = self.child.as_mut().expect("it was not waited for");
        child.try_wait().expect("it can be waited for").is_some()
    }

    /// The number of its process.
    ///
    /// # Panics
    ///
    /// Never before it was waited for, and that ends the value.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.as_ref().expect("it was not waited for").id()
    }

    /// Sends a signal: `INT`, `TERM`.
    ///
    /// # Panics
    ///
    /// If the system refuses.
    #[track_caller]
    pub fn signal(&self, name: &str) {
        let id = self.child.as_ref().expect("it was not waited for").id().to_string();
        // The shell has `kill` built in: no other program is needed for it.
        let sent = Command::new("sh").args(["-c", "kill -s \"$0\" \"$1\"", name, &id]).status();
        assert!(sent.is_ok_and(|status| status.success()), "no SIG{name} to {id}");
    }

    /// Waits for its end.
    ///
    /// # Panics
    ///
    /// If it does not come.
    #[must_use]
    #[track_caller]
    pub fn wait(mut self) -> Output {
        let start = Instant::now();
        while !self.ended() {
            assert!(start.elapsed() < PATIENCE, "{} did not end", self.what);
            thread::sleep(Duration::from_millis(2));
        }
        let mut child = self.child.take().expect("it was not waited for");
        let code = child.wait().expect("it ended").code();
        let text = |stream: Option<Stream>| stream.map(Stream::finish).unwrap_or_default();
        Output { code, stdout: text(self.stdout.take()), stderr: text(self.stderr.take()) }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
