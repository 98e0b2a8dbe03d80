//! Replies of ElastiCache, etcd and DNS: servers, or an error.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| discovery::fuzzing::check(bytes));
