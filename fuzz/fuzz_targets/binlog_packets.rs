//! Packets of a MariaDB's or MySQL's binary log: keys and positions, or a gap.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| invalidator::source::mysql::fuzzing::check(bytes));
