//! Messages of PostgreSQL's plugin `pgoutput`: keys and positions, or a gap.
#![no_main]

#[path = "../../crates/changes/tests/common/mod.rs"]
mod common;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    common::keys_of_pgoutput(bytes);
});
