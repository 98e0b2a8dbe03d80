//! memtier_benchmark's command line, JSON and text, and mcblaster's command line and text, so that
//! scripts and dashboards written for them go on working under `holdall bench memtier`,
//! `holdall bench mcblaster`, or a link of their name.
//!
//! A flag means what it means there as far as this generator can do it. What changes nothing here
//! is warned about; what would change what is measured and cannot be done is refused, as is what is
//! unknown.

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

/// The run that a command line asks for.
#[derive(Clone, Debug)]
pub struct Invocation {
    /// The load.
    pub spec: Spec,
    /// Requests of each connection, as they were asked for; `None` where a time was.
    pub requests: Option<u64>,
    /// The number of runs.
    pub runs: usize,
    /// The file for memtier's JSON.
    pub json: Option<PathBuf>,
    /// The beginning of the names of files for histograms.
    pub hdr_files: Option<PathBuf>,
    /// The file for the text, instead of the standard output.
    pub out: Option<PathBuf>,
    /// The program whose text is printed.
    pub program: Program,
    /// Tell each of several runs by itself.
    pub all_runs: bool,
    /// Leave the distribution out of the text.
    pub hides_histogram: bool,
    /// Percentiles that are told.
    pub percentiles: Vec<f64>,
    /// Percent of keys that are not found above which it is said.
    pub misses_max: Option<f64>,
    /// Flags that were accepted and change nothing.
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
