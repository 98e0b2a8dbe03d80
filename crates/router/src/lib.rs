//! The proxy: a memcached front over a tree of routes.
#![forbid(unsafe_code)]

mod admin;
mod budget;
mod config;
mod config_info;
mod delete_spool;
mod dump;
mod failure;
mod flag_values;
mod front;
mod help_groups;
mod history;
pub mod ignored_flags;
mod latency;
mod listeners;
mod logins;
mod metrics;
pub mod options;
mod outages;
mod periodic;
mod reload;
mod routing;
pub mod run;
mod seen;
mod shared;
mod sources;
mod stats;
