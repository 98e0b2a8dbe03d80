//! `holdall demo`: the architecture of *Scaling Memcache at Facebook* as one process tree, to
//! observe, break and measure.
//!
//! ```text
//!     cli -> run -> stage: deployment (process, database, link)   the processes
//!                          load -> client library -> routers      the users
//!                          recorder -> staleness::Checker         their writes and reads, judged
//!            stage -> seconds -> view, lines                      live
//!                             -> result -> JSON, report           at the end
//! ```
//!
//! All parts are real: the children are `holdall serve`, `route` and `invalidate`, and databases
//! from their packages.
#![forbid(unsafe_code)]

pub mod cli;
mod database;
mod deployment;
mod folder;
mod lines;
mod link;
mod load;
mod message;
mod process;
mod recorder;
mod report;
mod result;
mod run;
mod script;
mod settle;
mod stage;
mod stats;
mod view;

pub use result::Outcome;
