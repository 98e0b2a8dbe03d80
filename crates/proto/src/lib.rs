//! memcached's wire formats: bytes to requests, replies to bytes.
#![forbid(unsafe_code)]
