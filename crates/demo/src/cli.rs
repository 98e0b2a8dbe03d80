//! `holdall demo`: the command line.

use std::ffi::OsString;
use std::fs;
use std::io::{self, IsTerminal as _, Write as _};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::{CommandFactory as _, Parser};
use tokio::signal::unix::{SignalKind, signal};

use crate::database::Kind;
use crate::folder::Folder;
use crate::link::Distance;
use crate::load::Shape;
use crate::message::eprint_error;
use crate::process::{CHILD, become_child};
use crate::result::Outcome;
use crate::run::{Plan, run};
use crate::script::{Script, parse};

/// Two regions with databases, caches, gutters, routers and invalidators, and users who read and
/// write: on this machine, now.
#[derive(Debug, Parser)]
#[command(name = "holdall demo", version, about, after_help = EXAMPLES, args_override_self = true)]
struct Arguments {
    /// The database system; its programs must be installed
    #[arg(long, value_enum, default_value_t = Kind::Mariadb)]
    database: Kind,

    /// Requests a second, in each cluster
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rate: u32,

    /// Percent of the requests that write
    #[arg(long, value_name = "PERCENT", default_value_t = 5.0, value_parser = percent)]
    writes: f64,

    /// Rows; a tenth of them are photos, which clusters share in the regional pool
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(100..=10_000_000))]
    rows: u32,

    /// Skew of the reads over rows: the exponent of Zipf's law
    #[arg(long, value_name = "S", default_value_t = 0.9, value_parser = skew)]
    skew: f64,

    /// Without remote markers: users of the replica region may not see what they wrote
    #[arg(long)]
    no_markers: bool,

    /// Round-trip time between the regions, for example 80ms
    #[arg(long, value_name = "MS", default_value = "0ms", value_parser = round_trip)]
    distance: Duration,

    /// Percent of the packets between the regions that are lost and sent again
    #[arg(long, value_name = "PERCENT", default_value_t = 0.0, value_parser = percent)]
    loss: f64,

    /// End after N seconds; without it, at the key q, or when the script is over
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=604_800))]
    seconds: Option<u32>,

    /// What is done, and when: "10s kill-server; 20s add-cluster". Also black-hole, lag, no-lag,
    /// cut, join, add-cold-cluster, end-warm-up, replay
    #[arg(long, value_name = "STEPS", value_parser = parse)]
    script: Option<Script>,

    /// Print lines, also in a terminal
    #[arg(long)]
    plain: bool,

    /// Write the figures to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Write the report to this file: one page that needs nothing else
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  holdall demo                                        live view; the keys are on the screen
  holdall demo --report demo.html                     and a report at the end
  holdall demo --plain --seconds 60 --script '10s kill-server; 20s lag; 35s no-lag; 40s add-cluster' --json demo.json
  holdall demo --database postgresql
  holdall demo --distance 80ms --loss 1               regions an ocean apart

docs/demo.md is a tour.";

fn percent(text: &str) -> Result<f64> {
    number(text, 0.0..=100.0)
}

fn skew(text: &str) -> Result<f64> {
    number(text, 0.0..=3.0)
}

/// Maximum round trip in milliseconds.
const ROUND_TRIP_MS_MAX: u64 = 10_000;

fn round_trip(text: &str) -> Result<Duration> {
    let ms = text.strip_suffix("ms").and_then(|number| number.parse().ok());
    let ms = ms.filter(|ms| *ms <= ROUND_TRIP_MS_MAX);
    ms.map(Duration::from_millis)
        .with_context(|| format!("a number from 0 to {ROUND_TRIP_MS_MAX} and 'ms', as in 80ms"))
}

fn number(text: &str, range: RangeInclusive<f64>) -> Result<f64> {
    let number = text.parse().ok().filter(|number| range.contains(number));
    number.with_context(|| format!("{} to {}", range.start(), range.end()))
}

const NAME: &str = "holdall demo";

/// The command line, for manual pages and completions.
#[must_use]
pub fn interface() -> clap::Command {
    Arguments::command()
}

/// Runs the command; the arguments come after `demo`.
#[must_use]
pub fn main(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let mut arguments = arguments.peekable();
    if arguments.next_if(|word| word == CHILD).is_some() {
        return become_child(arguments);
    }
    let words: Vec<OsString> = arguments.collect();
    let parsed: Arguments = match usage::parse(NAME, words.iter().cloned()) {
        Ok(parsed) => parsed,
        Err(status) => return status,
    };
    let words = words.iter().map(|word| word.to_string_lossy().into_owned());
    let command = std::iter::once(NAME.to_owned()).chain(words).collect();
    match done(parsed, command) {
        Ok(code) => code,
        Err(error) => {
            eprint_error(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn done(arguments: Arguments, command: Vec<String>) -> Result<ExitCode> {
    arguments.database.check()?;
    let photos = u64::from(arguments.rows / 10);
    let shape = Shape {
        rows: [u64::from(arguments.rows) - photos, photos],
        rate: f64::from(arguments.rate),
        writes: arguments.writes / 100.0,
        skew: arguments.skew,
        with_markers: !arguments.no_markers,
    };
    let script = arguments.script.unwrap_or_default();
    let is_live = !arguments.plain && io::stdout().is_terminal() && io::stdin().is_terminal();
    let seconds = arguments.seconds.map(|seconds| Duration::from_secs(u64::from(seconds)));
    // Without keys to press and without an end, it would run forever.
    let after_script =
        script.0.last().map_or(Duration::ZERO, |(time, _)| *time) + Duration::from_secs(20);
    let ends_after = if is_live { seconds } else { Some(seconds.unwrap_or(after_script)) };
    let distance = Distance { round_trip: arguments.distance, loss: arguments.loss / 100.0 };
    let kind = arguments.database;
    let plan = Plan { kind, shape, script, distance, is_live, ends_after, command };
    // The demo itself needs one thread more than its users; this thread starts the children, and
    // stays.
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let outcome = runtime.block_on(async {
        let folder = Folder::new()?;
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut hang_up = signal(SignalKind::hangup())?;
        tokio::select! {
            outcome = run(&folder, plan) => outcome.map(Some),
            _ = terminate.recv() => Ok(None),
            _ = interrupt.recv() => Ok(None),
            _ = hang_up.recv() => Ok(None),
        }
    });
    runtime.shutdown_background();
    let Some(outcome) = outcome? else {
        eprint_error("interrupted: everything is ended");
        return Ok(ExitCode::from(130));
    };
    written(&outcome, arguments.json, arguments.report)?;
    Ok(if outcome.is_consistent() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn written(outcome: &Outcome, json: Option<PathBuf>, report: Option<PathBuf>) -> Result<()> {
    if let Some(path) = json {
        let text = serde_json::to_string_pretty(outcome)? + "\n";
        fs::write(&path, text).with_context(|| path.display().to_string())?;
    }
    if let Some(path) = report {
        let page = crate::report::page(outcome)?;
        fs::write(&path, page).with_context(|| path.display().to_string())?;
    }
    io::stdout().write_all(crate::lines::summary(outcome).as_bytes())?;
    Ok(())
}
