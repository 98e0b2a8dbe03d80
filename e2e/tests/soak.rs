//! The soak, short: every part of it runs, and nothing is violated.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test stops where it fails")]

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use e2e::folder::Folder;
use e2e::soak::Soak;
use testkit::process::raise_open_files;
use testkit::rng::seed_from_env;

#[test]
fn some_seconds_of_troubles_violates_nothing() {
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
