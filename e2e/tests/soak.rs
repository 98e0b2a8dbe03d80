//! The soak, short: every part of it runs, nothing is violated, and it can be interrupted.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test stops where it fails")]

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use e2e::folder::Folder;
use e2e::soak::Soak;
use rustix::process::{Pid, Signal, kill_process_group};
use testkit::process::raise_open_files;
use testkit::rng::seed_from_env;

/// Two deployments at a time are too many for two processors.
static ONE: Mutex<()> = Mutex::new(());

#[test]
fn a_short_soak_violates_nothing() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    raise_open_files(8192);
    let folder = Folder::new("soak");
    let soak = Soak {
        length: Duration::from_secs(20),
        seed: seed_from_env(),
        folder: folder.path().to_owned(),
        is_interrupted: Arc::new(AtomicBool::new(false)),
    };
    let page = soak.run();
    println!("{}", page.text);
    assert!(page.is_good, "{}", page.text);
    assert!(page.text.contains("**No violation.**"));
}

/// Ctrl-C also reaches the servers of the soak; the resulting failures are no violations.
#[test]
fn an_interrupted_soak_writes_its_report() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = Folder::new("soak-interrupted");
    let mut soak = Command::new(env!("CARGO_BIN_EXE_soak"));
    soak.arg("1").env("CARGO_TARGET_DIR", folder.path()).env("SEED", "1");
    let soak = soak.process_group(0).stdout(Stdio::piped()).spawn().unwrap();
    let log = folder.path().join("soak/soak-1.log");
    let end = Instant::now() + Duration::from_secs(120);
    while !fs::read_to_string(&log).is_ok_and(|text| text.contains(" begins: ")) {
        assert!(Instant::now() < end, "no trouble begins");
        thread::sleep(Duration::from_millis(100));
    }
    thread::sleep(Duration::from_secs(2));
    kill_process_group(Pid::from_child(&soak), Signal::INT).unwrap();
    let output = soak.wait_with_output().unwrap();
    let page = String::from_utf8_lossy(&output.stdout);
    assert!(page.contains("minutes of 60.0, **partial**: interrupted."), "{page}");
    assert!(page.contains("**No violation.**") && output.status.success(), "{page}");
}
