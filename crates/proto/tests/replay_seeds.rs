//! Replays the fuzz targets' seeds (`fuzz/seeds/<target>/`): inputs that once broke holdall or
//! other programs must not break it again.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]
#![allow(clippy::print_stdout, reason = "a failing test shows which seed was last")]

mod common;

use std::fs;
use std::path::Path;

/// Runs `check` on every seed of `target`, and asserts that there are some.
fn replay(target: &str, check: impl Fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(target);
    let mut count = 0;
    for seed in fs::read_dir(&folder).unwrap() {
        let path = seed.unwrap().path();
        println!("{}", path.display());
        check(&fs::read(&path).unwrap());
        count += 1;
    }
    assert!(count > 0, "no seeds in {}", folder.display());
}

#[test]
fn parse_text() {
    replay("parse_text", common::check_text);
}

#[test]
fn parse_meta() {
    replay("parse_meta", common::check_meta);
}

#[test]
fn parse_binary() {
    replay("parse_binary", common::check_binary);
}

#[test]
fn parse_udp() {
    replay("parse_udp", common::check_udp);
}

#[test]
fn parse_answer() {
    replay("parse_answer", common::check_answer);
}
