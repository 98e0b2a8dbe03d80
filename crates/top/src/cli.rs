//! The command line of `holdall top`.

use std::ffi::OsString;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::{CommandFactory as _, Parser};
use tools::cli::Reach;

use crate::once;
use crate::order::Shown;
use crate::poller::{Extras, Poller};
use crate::row::{Health, Row};
use crate::view;
use plan::{TargetsError, targets};

/// Shows the servers, proxies and invalidators of a tier: rates, hit ratio, latency, memory,
/// evictions, hot keys, and who is away.
#[derive(Debug, Parser)]
#[command(
    name = "holdall top",
    version,
    after_help = "\
Every member is asked for memcached's 'stats', so memcached and mcrouter are shown for what they
tell. An invalidator is named by the address of its 'status'.

Examples:
  holdall top 10.0.0.1 10.0.0.2 10.0.0.5:5000     two servers and a proxy
  holdall top dns:cache.internal:11211            every address of a name
  holdall top --topology shop.toml                the servers and proxies of holdall plan
  holdall top --topology shop.toml --once --json  for a script

Exit status: 0; with --once 1 if a member did not answer; 2 for a wrong topology; 64 for a wrong
command line."
)]
struct Args {
    /// Members: HOST, HOST:PORT, unix:PATH, or a source of discovery
    #[arg(value_name = "ADDRESS")]
    addresses: Vec<String>,
    /// The topology file of holdall plan: its servers and proxies
    #[arg(long, value_name = "FILE")]
    topology: Option<PathBuf>,
    /// Seconds between two questions
    #[arg(short, long, value_name = "SECS", default_value_t = 1.0, value_parser = interval)]
    interval: f64,
    /// Prints two answers' numbers and ends
    #[arg(long)]
    once: bool,
    /// Prints JSON
    #[arg(long, requires = "once")]
    json: bool,
    #[command(flatten)]
    reach: Reach,
}

fn interval(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "it is no number".to_owned())?;
    if (0.1..=3600.0).contains(&seconds) {
        Ok(seconds)
    } else {
        Err("an interval has 0.1 to 3600 seconds".to_owned())
    }
}

/// The command line, for manual pages and completions.
#[must_use]
pub fn interface() -> clap::Command {
    Args::command()
}

/// Runs the command; the arguments come after its name.
#[must_use]
pub fn main(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let arguments: Args = match usage::parse("holdall top", arguments) {
        Ok(arguments) => arguments,
        Err(status) => return status,
    };
    run(&arguments).unwrap_or_else(|error| {
        // When the stream is closed, there is no other place to report to.
        let _ = writeln!(io::stderr(), "holdall top: {error:#}");
        ExitCode::from(error.downcast_ref().map_or(1, TargetsError::status))
    })
}

fn run(arguments: &Args) -> Result<ExitCode> {
    let mut words = arguments.addresses.clone();
    if words.is_empty() && arguments.topology.is_none() {
        words.push("127.0.0.1".to_owned());
    }
    let targets = targets(&words, arguments.topology.as_deref())?;
    let is_drawn = !arguments.once;
    if is_drawn && !io::stdout().is_terminal() {
        bail!("stdout is no terminal; --once prints the numbers, --once --json for a program");
    }
    let interval = Duration::from_secs_f64(arguments.interval);
    // From the first query, because a later wish would cause a second one at once.
    let wish = Extras { hot_keys: arguments.once, ..Extras::default() };
    let poller = Poller::start(targets, &arguments.reach.options(), interval, wish)?;
    if is_drawn {
        view::run(&poller, interval)?;
        return Ok(ExitCode::SUCCESS);
    }
    poller.wait_for(2);
    let members = poller.members();
    let rows = members.iter().enumerate().map(|(place, member)| Row::new(place, member));
    let rows = Shown::default().rows(rows.collect());
    let text = if arguments.json {
        format!("{:#}\n", once::json(&members, &rows))
    } else {
        once::text(&rows)
    };
    io::stdout().write_all(text.as_bytes())?;
    let is_away = rows.iter().any(|row| matches!(row.health, Health::Away(_)));
    Ok(if is_away { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
