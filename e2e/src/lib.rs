//! Tests against live servers.
#![forbid(unsafe_code)]
