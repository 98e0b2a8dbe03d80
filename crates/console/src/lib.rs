//! `holdall console`: a cache tier on a web page.
//!
//! ```text
//!     top::Poller -> Tier (history, ticks) -> answers (JSON) -> server -> page
//! ```
//!
//! One process queries the members like `holdall top`, stores the last minutes, and serves one
//! self-contained page. The page is read-only; the actions (the flush of a prefix, and draining or
//! adding servers) need a login and `--actions`.
//!
//! # Laws
//!
//! 1. A page costs the members the same as `holdall top`, however many pages are open.
//! 2. `admission` checks every request before anything else is done for it.
//! 3. Keys, prefixes and statistics come from others: the page shows them as text, never as markup.
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
