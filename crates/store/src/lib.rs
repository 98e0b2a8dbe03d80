//! Items, memory and concurrency.
#![deny(unsafe_code)]
