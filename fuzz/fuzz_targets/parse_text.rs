//! A text connection: any bytes give the same requests, however they are cut.
#![no_main]

#[path = "../../crates/proto/tests/common/mod.rs"]
mod common;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| common::check_text(bytes));
