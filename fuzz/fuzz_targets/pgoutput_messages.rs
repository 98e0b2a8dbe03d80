//! Messages of PostgreSQL's plugin `pgoutput`: keys and positions, or a gap.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| changes::fuzzing::check(bytes));
