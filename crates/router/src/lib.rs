//! The proxy: a memcached front over a tree of routes.
#![forbid(unsafe_code)]

mod admin;
mod config;
mod doors;
mod dump;
mod facts;
mod front;
mod keeping;
mod latency;
mod metrics;
mod observer;
pub mod options;
mod reload;
mod routing;
pub mod run;
mod shared;
mod stats;
pub mod unused;
