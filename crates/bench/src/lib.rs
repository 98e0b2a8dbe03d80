//! Load generator and side-by-side comparison of servers.
#![forbid(unsafe_code)]
