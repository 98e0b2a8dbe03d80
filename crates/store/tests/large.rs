//! Large limits: they reserve address space, and no more than that.
#![allow(
    clippy::unwrap_used,
    dead_code,
    reason = "a test stops where it fails; it uses a part of what is shared"
)]

mod common;

use common::{get, set};
use store::{Config, Store};

const TIB: u64 = 1 << 40;

/// Resident memory of the process, in bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

#[test]
fn a_store_of_any_size_starts_and_takes_no_memory_before_it_is_used() {
    for memory_bytes in [TIB / 2, TIB, 4 * TIB, 16 * TIB] {
        let before = resident();
        let store = Store::new(Config { memory_bytes, seed: 1, ..Config::default() }).unwrap();
        let me = store.join().unwrap();
        me.begin_turn(1);
        for number in 0..1000u32 {
            set(&me, &number.to_le_bytes(), &[b'v'; 100], 0, 0).unwrap();
        }
        assert_eq!(get(&me, &7u32.to_le_bytes()).unwrap(), [b'v'; 100]);
        let taken = resident().saturating_sub(before);
        assert!(taken < 64 << 20, "{taken} bytes for a limit of {memory_bytes}");
        drop(me);
    }
}
