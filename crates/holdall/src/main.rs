//! The `holdall` program: wiring only.
#![forbid(unsafe_code)]
fn main() {}
