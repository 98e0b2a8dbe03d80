//! `soak HOURS`: a deployment under a mixed load and troubles; `cargo xtask soak` starts it.
//!
//! `SEED` repeats the plan of a run. The page goes to stdout and, with the log of troubles, to
//! `target/soak`. The status is 1 after a violation. Ctrl-C ends a run early.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line program")]

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use e2e::soak::Soak;
use signal_hook::consts::{SIGINT, SIGTERM};
use testkit::process::raise_open_files;
use testkit::rng::seed_from_env;

fn main() -> ExitCode {
    let hours = std::env::args().nth(1).and_then(|hours| hours.parse::<f64>().ok());
    let length = hours.and_then(|hours| Duration::try_from_secs_f64(hours * 3600.0).ok());
    let Some(length) = length else {
        eprintln!("usage: soak HOURS (a fraction is allowed: 0.05 are three minutes)");
        return ExitCode::from(2);
    };
    let is_interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        if let Err(error) = signal_hook::flag::register(signal, Arc::clone(&is_interrupted)) {
            eprintln!("soak: signal {signal}: {error}");
            return ExitCode::FAILURE;
        }
    }
    raise_open_files(8192);
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    let seed = seed_from_env();
    eprintln!("soak: seed {seed}, troubles in {}", target.join("soak").display());
    let soak = Soak { length, seed, folder: target.join("soak"), is_interrupted };
    let page = soak.run();
    println!("{}", page.text);
    eprintln!("soak: the page is {}", page.path.display());
    if page.is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
