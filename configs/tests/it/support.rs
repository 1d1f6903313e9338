//! Small files to break, and shorthands.

use std::path::PathBuf;

use tensorwire_configs::{Checked, Diagnostic, Options, Severity, check_str, shipped};

/// 3×16×16 images in 4 packets of 192 bytes, 4 images to a batch, 8 bits of sequence; sender and
/// receiver in the software loopback.
pub(crate) const MINI: &str = "\
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
            - {name: tq, id: 0, cpu_core: 1, batch_size: 16, memory_regions: [tx]}
        rx:
          flow_isolation: true
          queues:
            - {name: rq, id: 0, cpu_core: 2, batch_size: 16, timeout_us: 0, memory_regions: [rx]}
          flows:
            - name: f
              id: 0
              action: {type: queue, id: 0}
              match: {udp_src: 4096, udp_dst: 4096}
bench_rx: {interface_name: port, cpu_core: 3}
bench_tx:
  interface_name: port
  cpu_core: 4
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
  seq_bit_offset: 128
  seq_bit_width: 8
inference: {onnx_path: m.onnx, height: 16, width: 16, cpu_core: 5}
";

/// The same receiver on a port of a NIC.
pub(crate) fn mini_port() -> String {
    let text = with(MINI, "loopback: sw", "loopback: \"\"");
    let text = with(&text, "{name: out, kind: host,", "{name: out, kind: host_pinned,");
    with(&text, "address: loopback", "address: 0000:01:00.0")
}

/// `text` with the one `from` replaced; fails when it is not there, so that no test checks nothing.
pub(crate) fn with(text: &str, from: &str, to: &str) -> String {
    assert!(text.contains(from), "{from:?} is not in the file");
    text.replacen(from, to, 1)
}

/// The shipped file of that name.
pub(crate) fn file(name: &str) -> &'static str {
    shipped(name).expect("a shipped file")
}

pub(crate) fn check(text: &str) -> Checked {
    check_str("test.yaml", text, &Options::default())
}

/// The one finding of a rule; fails when there is none or more than one.
pub(crate) fn the<'c>(checked: &'c Checked, number: &str) -> &'c Diagnostic {
    let all: Vec<&Diagnostic> =
        checked.diagnostics.iter().filter(|found| found.code.to_string() == number).collect();
    match all.as_slice() {
        [one] => one,
        _ => panic!("{} findings of {number} in {:#?}", all.len(), checked.diagnostics),
    }
}

/// The line of the file that a finding points to.
pub(crate) fn line<'c>(checked: &'c Checked, found: &Diagnostic) -> &'c str {
    checked.source.line(found.position.line).map_or("", |(_, line)| line.trim())
}

/// Numbers of all errors, in file order.
pub(crate) fn errors(checked: &Checked) -> Vec<String> {
    let found = checked.diagnostics.iter().filter(|found| found.severity() == Severity::Error);
    found.map(|found| found.code.to_string()).collect()
}

/// The shared reference data, where this machine has it.
pub(crate) fn shared() -> Option<PathBuf> {
    let beside = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared");
    let path = std::env::var_os("TENSORWIRE_SHARED").map_or_else(beside, PathBuf::from);
    path.is_dir().then_some(path)
}
