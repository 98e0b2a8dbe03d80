//! Replies of a server, parsed by a client.
#![no_main]

#[path = "../../crates/proto/tests/common/mod.rs"]
mod common;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| common::check_answer(bytes));
