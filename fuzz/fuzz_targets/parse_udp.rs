//! A datagram: its frame, and its payload in either protocol.
#![no_main]

#[path = "../../crates/proto/tests/common/mod.rs"]
mod common;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| common::check_udp(bytes));
