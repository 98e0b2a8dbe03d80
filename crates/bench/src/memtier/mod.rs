//! memtier_benchmark's command line, JSON and text, and mcblaster's command line and text, so that
//! scripts and dashboards for them continue to work with `holdall bench memtier`,
//! `holdall bench mcblaster`, or a link of their name.
//!
//! A flag has its original meaning as far as this generator can reproduce it. A flag without an
//! effect here gets a warning; a flag that would change the measurement and is not supported is
//! refused, as is an unknown one.

mod flag_error;
mod flags;
pub(crate) mod hdr_files;
pub mod json;
mod mcblaster;
pub(crate) mod mcblaster_text;
mod options;
mod refusals;
pub(crate) mod table;
#[cfg(test)]
mod tests;

pub use flag_error::FlagError;
pub use mcblaster::parse as parse_mcblaster;
pub use options::parse;

use std::path::PathBuf;

use generator::spec::Spec;

/// The program whose command line it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// memtier_benchmark.
    Memtier,
    /// mcblaster.
    Mcblaster,
}

/// The run of a command line.
#[derive(Clone, Debug)]
pub struct Invocation {
    /// The load.
    pub spec: Spec,
    /// Requests per connection, as requested; `None` if a time was given.
    pub requests: Option<u64>,
    /// The number of runs.
    pub runs: usize,
    /// The file for memtier's JSON.
    pub json: Option<PathBuf>,
    /// The prefix of the names of histogram files.
    pub hdr_files: Option<PathBuf>,
    /// The file for the text, instead of the standard output.
    pub out: Option<PathBuf>,
    /// The program whose text is printed.
    pub program: Program,
    /// Report each of several runs separately.
    pub all_runs: bool,
    /// Omit the distribution from the text.
    pub hides_histogram: bool,
    /// Reported percentiles.
    pub percentiles: Vec<f64>,
    /// Percentage of missed keys above which there is a warning.
    pub misses_max: Option<f64>,
    /// Accepted flags without an effect.
    pub warnings: Vec<String>,
}

/// The result of parsing a command line.
#[derive(Clone, Debug)]
pub enum Parsed {
    /// A run.
    Run(Box<Invocation>),
    /// Help or a version, to be printed.
    Print(String),
}
