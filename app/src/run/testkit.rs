//! A place with a small configuration and captures, and runs of it in this process.

use std::fs;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::thread;

use clap::Parser;
use tempfile::TempDir;
use tensorwire_core::geometry::Geometry;

use super::plan::Plan;
use super::signals::StopRequest;
use crate::cli::{Cli, Command, RunArgs};
use crate::dataset::testkit::{self, MINI, data_frames, pcap_of};
use crate::exit::Failure;
use crate::sink::Summary;
use crate::talk::Talk;

/// 3×16×16 images in 4 packets of 192 bytes, 4 images to a batch; no inference.
const CONFIG: &str = "\
daqiri:
  cfg:
    version: 1
    stream_type: raw
    master_core: 0
    loopback: sw
    memory_regions:
      - {name: tx, kind: host, num_bufs: 16384, buf_size: 256}
      - {name: rx, kind: host, num_bufs: 16384, buf_size: 256}
      - {name: out, kind: host, num_bufs: 16, buf_size: 6144}
    interfaces:
      - name: port
        address: loopback
        tx:
          queues:
            - {name: tq, id: 0, batch_size: 16, memory_regions: [tx]}
        rx:
          queues:
            - {name: rq, id: 0, batch_size: 16, timeout_us: 0, memory_regions: [rx]}
          flows:
            - name: f
              id: 0
              action: {type: queue, id: 0}
              match: {udp_src: 4096, udp_dst: 4096}
bench_rx: {interface_name: port}
bench_tx:
  interface_name: port
  payload_size: 192
  header_size: 64
  eth_dst_addr: 02:00:00:00:00:02
  ip_src_addr: 1.1.1.1
  ip_dst_addr: 2.2.2.2
  udp_src_port: 4096
  udp_dst_port: 4096
reorder:
  out_payload_len: 192
  packets_per_image: 4
  images_per_batch: 4
  seq_bit_offset: 336
  seq_bit_width: 8
inference: {height: 16, width: 16}
tensorwire: {inference_backend: none, quiesce_wait_s: 1, startup_wait_s: 20}
";

/// A folder with the configuration `c.yaml`.
pub(crate) struct Case {
    dir: TempDir,
    text: String,
}

impl Case {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        Self { dir, text: CONFIG.to_owned() }
    }

    /// The configuration with the one `from` replaced; fails when it is not there.
    pub(crate) fn with(mut self, from: &str, to: &str) -> Self {
        assert!(self.text.contains(from), "{from:?} is not in the file");
        self.text = self.text.replacen(from, to, 1);
        self
    }

    /// The configuration with a `dataset:` block.
    pub(crate) fn dataset(mut self, capture: &str, labels: Option<&str>) -> Self {
        let path = |name| self.path(name).display().to_string();
        let labels = labels.map_or(String::new(), |name| format!(", labels_path: {}", path(name)));
        let block = format!("dataset: {{pcap_path: {}{labels}}}\n", path(capture));
        self.text.push_str(&block);
        self
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn file(self, name: &str, content: impl AsRef<[u8]>) -> Self {
        fs::write(self.path(name), content).expect("writable");
        self
    }

    /// A capture of the frames with these numbers.
    pub(crate) fn capture(self, name: &str, images: u64) -> Self {
        self.file(name, pcap_of(&frames(images)))
    }

    pub(crate) fn args(&self, flags: &[&str]) -> RunArgs {
        fs::write(self.path("c.yaml"), &self.text).expect("writable");
        let config = self.path("c.yaml").display().to_string();
        let line = [&["tensorwire", "run", &config, "--no-pin"], flags].concat();
        match Cli::try_parse_from(line) {
            Ok(Cli { command: Command::Run(args) }) => *args,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn plan(&self, flags: &[&str]) -> Result<Plan, Failure> {
        Plan::new(&self.args(flags), Talk::new(true))
    }

    pub(crate) fn planned(&self, flags: &[&str]) -> Plan {
        self.plan(flags).unwrap_or_else(|failure| panic!("{failure:?}"))
    }

    /// Exit code and reason of a refusal, with the folder's name left out.
    pub(crate) fn refusal(&self, flags: &[&str]) -> (u8, String) {
        let failure = self.plan(flags).expect_err("refused");
        let folder = format!("{}/", self.dir.path().display());
        (failure.exit.code(), failure.reason.replace(&folder, ""))
    }

    /// Runs, as `main` does: on a thread with a stack as large as that of a process. (Without
    /// optimisation the rings, which live in boxes, are made on the stack.)
    pub(crate) fn run(&self, flags: &[&str]) -> Summary {
        let run = || self.execute(flags).unwrap_or_else(|failure| panic!("{failure:?}"));
        on_a_large_stack(run)
    }

    /// The failure of a run that did not start.
    pub(crate) fn failure(&self, flags: &[&str]) -> Failure {
        on_a_large_stack(|| self.execute(flags).expect_err("no start"))
    }

    fn execute(&self, flags: &[&str]) -> Result<Summary, Failure> {
        let args = self.args(&[flags, &["--json"]].concat());
        let stop = StopRequest::install().expect("signals can be taken");
        let plan = Plan::new(&args, Talk::new(true))?;
        super::execute(&plan, &args, &stop)
    }
}

fn on_a_large_stack<R: Send>(body: impl FnOnce() -> R + Send) -> R {
    thread::scope(|scope| {
        let thread = thread::Builder::new().stack_size(8 << 20).spawn_scoped(scope, body);
        thread.expect("a thread").join().unwrap_or_else(|panic| resume_unwind(panic))
    })
}

/// The geometry of the configuration.
pub(crate) fn geometry() -> Geometry {
    testkit::geometry(&MINI)
}

/// The frames of that many images.
pub(crate) fn frames(images: u64) -> Vec<Vec<u8>> {
    data_frames(&geometry(), 0..images * 4)
}

/// Whether nothing but these files lies in the folder of `path`.
pub(crate) fn only(path: &Path, names: &[&str]) -> bool {
    let entries = fs::read_dir(path.parent().unwrap_or(path)).expect("readable");
    let mut found: Vec<String> = entries
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    found.sort();
    found == names
}
