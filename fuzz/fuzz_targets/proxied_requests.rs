//! Requests of any kind through a proxy's worker to memcached, which executes them and nothing
//! contained in them.
#![no_main]

#[path = "../../crates/routes/tests/common/mod.rs"]
mod common;
#[path = "../../crates/routes/tests/proxied/mod.rs"]
mod proxied;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| proxied::check(bytes));
