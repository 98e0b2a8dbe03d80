//! Files of users and rights, and a login: the admitted user, or the faulty line.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| access::fuzzing::check(bytes));
