//! The measurements of `holdall bench`, over the load generator of `holdall-generator`.
//!
//! ```text
//!     Spec (command line) -> generator (threads, connections) -> Record (histograms)
//!         -> RunResult (JSON) -> terminal, figures/ (HTML report)
//! ```
//!
//! `search`, `sweep`, `score` and `study` repeat runs; `agents/` spread one over several hosts;
//! `compare_results` puts two results side by side; `hitrate/` replays traces; `stages/` splits the
//! time of one request; `memtier/` translates the command lines of other generators.
#![forbid(unsafe_code)]

pub mod agents;
pub mod cli;
pub mod compare_results;
mod differences;
mod doubts;
pub mod figures;
pub mod hitrate;
pub mod host;
pub mod listeners;
mod load_words;
pub mod memtier;
pub mod power;
pub mod process;
pub mod result;
pub mod sampler;
pub mod score;
pub mod search;
pub mod server_version;
mod shell;
pub mod significance;
pub mod sla;
pub mod stages;
pub mod study;
pub mod sweep;
pub mod terminal;
pub mod thread_use;
pub mod time_series;
