//! How long it takes to check the shipped files, from text to verdict and rendered findings.

use tensorwire_configs::render::{Format, render};
use tensorwire_configs::{Checked, Options, SHIPPED, check_str};

fn main() {
    divan::main();
}

/// All shipped files; the goal is 10 ms.
#[divan::bench]
fn shipped() -> usize {
    let all = SHIPPED.iter().map(|(name, text)| check_str(name, text, &Options::default()));
    let all: Vec<Checked> = all.collect();
    let all: Vec<&Checked> = all.iter().collect();
    render(&all, Format::Text).len()
}

/// 300 bytes of nested aliases.
#[divan::bench]
fn alias_bomb() -> usize {
    let mut bomb = String::from("a: &a [x,x,x,x,x,x,x,x,x]\n");
    for (before, now) in ('a'..'i').zip('b'..='i') {
        bomb.push_str(&format!("{now}: &{now} [{}]\n", vec![format!("*{before}"); 9].join(",")));
    }
    check_str("bomb.yaml", &bomb, &Options::default()).diagnostics.len()
}
