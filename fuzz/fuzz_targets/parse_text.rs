//! A text connection: any bytes, and any cut of them, give the same requests.
#![no_main]

#[path = "../../crates/proto/tests/common/mod.rs"]
mod common;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| common::check_text(bytes));
