//! `holdall console`: a cache tier on a web page.
//!
//! ```text
//!     top::Poller -> Tier (history, ticks) -> answers (JSON) -> server -> page
//! ```
//!
//! One process asks the members as `holdall top` does, keeps the last minutes, and serves one page
//! that needs nothing else. The page is read-only; the actions (the flush of a prefix, and servers
//! that are drained or added) need a login and `--actions`.
//!
//! # Laws
//!
//! 1. A page costs the members what `holdall top` costs, however many pages are open.
//! 2. Every request is checked by `admission` before anything else is done for it.
//! 3. Keys, prefixes and statistics are chosen by others: the page makes text of them, never
//!    markup.
#![forbid(unsafe_code)]

mod admission;
mod answers;
pub mod cli;
mod edit;
mod flush;
mod history;
mod key;
mod login;
mod note;
mod page;
mod routes;
mod server;
mod servers;
mod slabs;
mod tier;
