//! `gpu`: what the GPUs of this machine are doing.

use std::io::{self, Write};
use std::thread;
use std::time::{Duration, Instant};

use crate::cli::GpuArgs;
use crate::exit::{ExitCode, Failure};
use crate::gpu::{self, Source};
use crate::run::plan::failure;
use crate::run::signals::StopRequest;

/// How often a wait looks whether a signal came.
const LOOK: Duration = Duration::from_millis(50);
/// Interval of a single reading that needs one.
const ONCE_MS: u64 = 100;

/// Reads the GPUs, once or until a signal.
///
/// # Errors
///
/// A [`Failure`]: 5 when no GPU can be read, 7 when stdout cannot be written.
pub fn gpu(args: &GpuArgs) -> Result<ExitCode, Failure> {
    let stop = StopRequest::install()
        .map_err(|error| failure(ExitCode::Device, format!("signals: {error}")))?;
    let mut source =
        gpu::open(args.watch.unwrap_or(ONCE_MS)).map_err(|why| failure(ExitCode::Device, why))?;
    watch(args, source.as_mut(), &mut io::stdout().lock(), &|| stop.requested())
}

/// The loop of the command, over any source and sink.
fn watch(
    args: &GpuArgs,
    source: &mut dyn Source,
    out: &mut dyn Write,
    stopped: &dyn Fn() -> bool,
) -> Result<ExitCode, Failure> {
    let began = Instant::now();
    if !args.csv {
        super::say(&source.describe());
    } else if !put(out, gpu::csv_header())? {
        return Ok(ExitCode::Complete);
    }
    let mut due = began;
    loop {
        let readings = source.read(args.index).map_err(|why| failure(ExitCode::Device, why))?;
        let seconds = began.elapsed().as_secs_f64();
        for reading in &readings {
            let text = if args.csv { gpu::csv(seconds, reading) } else { gpu::text(reading) };
            if !put(out, &text)? {
                return Ok(ExitCode::Complete);
            }
        }
        let Some(interval) = args.watch else { return Ok(ExitCode::Complete) };
        due += Duration::from_millis(interval);
        while Instant::now() < due && !stopped() {
            thread::sleep(LOOK.min(due.saturating_duration_since(Instant::now())));
        }
        if stopped() {
            return Ok(ExitCode::Complete);
        }
    }
}

/// Writes, at once; false if nobody reads any more.
fn put(out: &mut dyn Write, text: &str) -> Result<bool, Failure> {
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(failure(ExitCode::File, format!("stdout cannot be written: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::gpu::Reading;

    /// GPUs that count their readings, and fail after some.
    struct Fake {
        readings: u32,
        fails_after: u32,
    }

    impl Source for Fake {
        fn describe(&self) -> String {
            "a stand-in".into()
        }

        fn read(&mut self, wanted: Option<u32>) -> Result<Vec<Reading>, String> {
            if self.readings == self.fails_after {
                return Err("GPU 0: fell off the bus".into());
            }
            self.readings += 1;
            let reading =
                |index| Reading { index, gpu_percent: Some(self.readings), ..Reading::default() };
            Ok(wanted.map_or(0..2, |index| index..index + 1).map(reading).collect())
        }
    }

    /// A reader that goes away after some bytes.
    struct Pipe {
        bytes: Vec<u8>,
        room: usize,
    }

    impl Write for Pipe {
        fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
            if self.bytes.len() + buf.len() > self.room {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            self.bytes.extend_from_slice(buf);
            Ok(buf.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn run(args: GpuArgs, fails_after: u32, room: usize) -> (Result<ExitCode, Failure>, String) {
        let (mut source, mut pipe) =
            (Fake { readings: 0, fails_after }, Pipe { bytes: Vec::new(), room });
        let polls = Cell::new(0);
        // A signal after the third reading.
        let stopped = || {
            polls.set(polls.get() + 1);
            polls.get() > 6
        };
        let result = watch(&args, &mut source, &mut pipe, &stopped);
        (result, String::from_utf8(pipe.bytes).expect("text"))
    }

    #[test]
    fn one_reading_of_one_gpu_or_of_all() {
        let args = GpuArgs { index: None, watch: None, csv: true };
        let (result, text) = run(args, 9, usize::MAX);
        assert_eq!((result, text.lines().count()), (Ok(ExitCode::Complete), 3));
        let (_, text) = run(GpuArgs { index: Some(1), watch: None, csv: true }, 9, usize::MAX);
        assert!(text.lines().nth(1).is_some_and(|row| row.contains(",1,")), "{text}");
        let (_, text) = run(GpuArgs { index: Some(1), watch: None, csv: false }, 9, usize::MAX);
        assert!(text.starts_with("GPU 1 ") && !text.contains("GPU 0 "), "{text}");
    }

    #[test]
    fn a_watch_ends_with_a_signal_a_closed_pipe_or_a_gpu_that_is_gone() {
        let args = || GpuArgs { index: Some(0), watch: Some(1), csv: true };
        let (result, text) = run(args(), 1_000, usize::MAX);
        assert_eq!(result, Ok(ExitCode::Complete));
        assert!(text.lines().count() > 2, "{text}");
        let (result, text) = run(args(), 1_000, csv_room());
        assert_eq!((result, text.lines().count()), (Ok(ExitCode::Complete), 1));
        let (result, _) = run(args(), 1, usize::MAX);
        assert_eq!(result.expect_err("gone").exit, ExitCode::Device);
    }

    /// Room for the header alone.
    fn csv_room() -> usize {
        gpu::csv_header().len()
    }
}
