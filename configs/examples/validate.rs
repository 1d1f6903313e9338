//! Checks the files that are named and prints what is found: `cargo run -p tensorwire-configs
//! --example validate FILE…`. The program `tensorwire validate` does the same, and more.
#![expect(clippy::print_stdout, reason = "an example of the library, not part of it")]

use std::path::Path;
use std::process::ExitCode;

use tensorwire_configs::render::{Format, render, summary};
use tensorwire_configs::{Options, Verdict, check_file, geometry_report};

fn main() -> ExitCode {
    let mut worst = Verdict::Clean;
    for path in std::env::args().skip(1) {
        match check_file(Path::new(&path), &Options::default()) {
            Ok(checked) => {
                print!("{}", render(&[&checked], Format::Text));
                println!("{}", summary(&checked));
                if let Some(config) = &checked.config {
                    print!("\n{}", geometry_report(config));
                }
                worst = worst.max(checked.verdict());
            }
            Err(error) => {
                println!("{error}");
                return ExitCode::from(7);
            }
        }
    }
    if worst == Verdict::Invalid { ExitCode::from(3) } else { ExitCode::SUCCESS }
}
