//! A NIC with what no virtual device has: `standin.c`, loaded in front of the program.

use std::process::Command;

use tensorwire_tests::{Output, Workplace, program, report, workspace};

/// Runs the program in `place` with `args`, the stand-in before it, told what to do by
/// `environment`. `None`, said with a reason, where it cannot be built or loaded.
pub(crate) fn run(place: &Workplace, environment: &str, args: &[&str]) -> Option<Output> {
    let library = place.file("standin.so");
    let source = workspace().join("tests/tests/dpdk/standin.c");
    let line = format!(
        "cc -shared -fPIC -O1 -Wall -Werror -DALLOW_EXPERIMENTAL_API \
         $(pkg-config --cflags libdpdk) -o {} {} -ldl",
        library.display(),
        source.display()
    );
    // DPDK in the program itself is not called through symbols that could be taken over.
    let linked = Command::new("ldd").arg(program()).output().ok()?;
    if !String::from_utf8_lossy(&linked.stdout).contains("librte_ethdev") {
        report("skipped: a stand-in for a NIC: DPDK is in the program, not a library of it");
        return None;
    }
    let _ = place.shell(&line).expect_code(0);
    // An address sanitizer or a coverage run may have its own.
    let preload = format!("LD_PRELOAD={}", library.display());
    let words: Vec<String> = args.iter().map(|word| format!("'{word}'")).collect();
    let line = format!("{environment} {preload} {} {}", program().display(), words.join(" "));
    Some(place.shell(&line))
}
