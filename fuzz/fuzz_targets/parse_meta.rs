//! The words of each meta command: no panic, one line per reply, the same for any cut.
#![no_main]

#[path = "../../crates/proto/tests/common/mod.rs"]
mod common;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| common::check_meta(bytes));
