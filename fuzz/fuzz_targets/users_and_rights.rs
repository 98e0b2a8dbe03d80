//! Files of users and rights, and a login: who is let in, or the line that is wrong.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| access::fuzzing::check(bytes));
