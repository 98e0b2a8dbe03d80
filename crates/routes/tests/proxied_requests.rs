//! Requests made from the seeds of `fuzz/seeds/proxied_requests`, and from random bytes, in front
//! of Debian's memcached.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod common;
mod proxied;

use std::fs;
use std::path::Path;

use testkit::Rng;

#[test]
fn a_server_executes_only_the_requested_commands() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/proxied_requests");
    let mut seeds: Vec<_> = fs::read_dir(folder).unwrap().map(|one| one.unwrap().path()).collect();
    seeds.sort();
    assert!(!seeds.is_empty());
    for seed in seeds {
        proxied::check(&fs::read(seed).unwrap());
    }
    let mut rng = Rng::new(1);
    for _ in 0..2000 {
        let bytes: Vec<u8> = (0..rng.below(300)).map(|_| rng.next_u64().to_le_bytes()[0]).collect();
        proxied::check(&bytes);
    }
}
