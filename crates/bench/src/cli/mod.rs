//! `holdall bench`: command lines, and what is printed.

mod agent;
mod compare;
mod hitrate;
mod report;
mod run;
mod score;
mod search;
mod sweep;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::terminal;

/// Measures memcached, Redis and Valkey servers.
#[derive(Debug, Parser)]
#[command(name = "holdall bench", version, max_term_width = 120)]
struct Cli {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Agent(agent::AgentArgs),
    Run(Box<run::RunArgs>),
    Search(Box<search::SearchArgs>),
    Sweep(Box<sweep::SweepArgs>),
    Compare(compare::CompareArgs),
    Hitrate(Box<hitrate::HitrateArgs>),
    Report(report::ReportArgs),
    Score(Box<score::ScoreArgs>),
}

/// The run was interrupted or a server failed in it; what was seen until then is printed and marked.
const EXIT_PARTIAL: u8 = 2;

/// Runs `holdall bench` with the words after it.
#[must_use]
pub fn main(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(
        std::iter::once(OsString::from("holdall bench")).chain(arguments),
    ) {
        Ok(cli) => cli,
        Err(error) => {
            // A reader that went away, as `head` does, is no failure.
            let _ = error.print();
            return if error.use_stderr() { ExitCode::from(64) } else { ExitCode::SUCCESS };
        }
    };
    let outcome = match cli.what {
        What::Agent(args) => agent::run(&args),
        What::Run(args) => run::run(&args),
        What::Search(args) => search::run(&args),
        What::Sweep(args) => sweep::run(&args),
        What::Compare(args) => compare::run(&args),
        What::Hitrate(args) => hitrate::run(&args),
        What::Report(args) => report::run(&args),
        What::Score(args) => score::run(&args),
    };
    outcome.unwrap_or_else(|error| {
        terminal::complain(&format!("{error:#}"));
        ExitCode::FAILURE
    })
}
