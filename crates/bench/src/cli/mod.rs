//! `holdall bench`: command lines and output.

mod agent;
mod alert;
mod compare;
mod help_groups;
mod hitrate;
mod interrupt;
mod memtier;
mod output;
mod report;
mod run;
mod score;
mod search;
mod stages;
mod study;
mod sweep;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Args, CommandFactory as _, Parser, Subcommand};

use crate::terminal;

/// Measures memcached, Redis and Valkey servers.
#[derive(Debug, Parser)]
#[command(name = "holdall bench", version, max_term_width = 120)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Agent(agent::AgentArgs),
    Run(Box<run::RunArgs>),
    Search(Box<search::SearchArgs>),
    Sweep(Box<sweep::SweepArgs>),
    Compare(compare::CompareArgs),
    Hitrate(Box<hitrate::HitrateArgs>),
    /// memtier_benchmark's command line.
    #[command(disable_help_flag = true)]
    Memtier(Foreign),
    /// mcblaster's command line.
    #[command(disable_help_flag = true)]
    Mcblaster(Foreign),
    Report(report::ReportArgs),
    Study(study::StudyArgs),
    Score(Box<score::ScoreArgs>),
    Stages(stages::StagesArgs),
    Alert(alert::AlertArgs),
}

/// A command line of another program's.
#[derive(Debug, Args)]
struct Foreign {
    /// Its flags.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

/// A server failed in the run; the results until then are printed and marked.
const EXIT_PARTIAL: u8 = 2;

/// A command line without a possible run, detected after parsing.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct WrongUse(String);

/// The command line, for manual pages and completions.
#[must_use]
pub fn interface() -> clap::Command {
    Cli::command()
}

/// Runs `holdall bench` with the given words.
#[must_use]
pub fn main(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let cli: Cli = match usage::parse("holdall bench", arguments) {
        Ok(cli) => cli,
        Err(status) => return status,
    };
    let outcome = match cli.command {
        Command::Agent(args) => agent::run(&args),
        Command::Run(args) => run::run(&args),
        Command::Search(args) => search::run(&args),
        Command::Sweep(args) => sweep::run(&args),
        Command::Compare(args) => compare::run(&args),
        Command::Hitrate(args) => hitrate::run(&args),
        Command::Memtier(args) => memtier::run(crate::memtier::parse(args.words.into_iter())),
        Command::Mcblaster(args) => {
            memtier::run(crate::memtier::parse_mcblaster(args.words.into_iter()))
        }
        Command::Study(args) => study::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Score(args) => score::run(&args),
        Command::Stages(args) => stages::run(&args),
        Command::Alert(args) => alert::run(&args),
    };
    let outcome = outcome.and_then(|status| terminal::printed().map(|()| status));
    interrupt::status_or(outcome.unwrap_or_else(|error| {
        terminal::eprint_error(&format!("{error:#}"));
        let is_wrong_use = error.is::<WrongUse>();
        if is_wrong_use { ExitCode::from(usage::EXIT_USAGE) } else { ExitCode::FAILURE }
    }))
}
