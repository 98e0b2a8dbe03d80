//! `holdall bench sweep`: one load after another with one thing changed.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Args;

use super::help_groups::grouped;
use super::interrupt::{self, INTERRUPTED};
use super::run::{self, LoadArgs};
use super::{EXIT_PARTIAL, WrongUse, output};
use crate::host::Host;
use crate::process::{self, Launch, Running, Server};
use crate::result::RunResult;
use crate::sweep::{self, Over, Point, Points, Repeat, SweepResult};
use crate::terminal;
use crate::thread_use::{ThreadUse, thread_use, used};
use generator::spec::{Pace, Spec, Target};

/// Measures one load after another with one thing changed, and marks where more brings little.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, mut_args(grouped))]
pub(super) struct SweepArgs {
    /// What is changed.
    #[arg(value_enum)]
    over: Over,
    /// Its values, with commas.
    #[arg(value_name = "POINTS")]
    points: Points,
    #[command(flatten)]
    load: LoadArgs,
    /// Start a server for each point: a command in which {port}, {threads} and {group} are
    /// replaced.
    #[arg(long, value_name = "COMMAND", conflicts_with = "servers")]
    start: Option<String>,
    /// {threads} of --start where another thing is changed.
    #[arg(long, default_value_t = 1)]
    server_threads: usize,
    /// {group} of --start where another thing is changed.
    #[arg(long, default_value_t = 20)]
    group: usize,
    /// Bind each thread of the servers that --start starts to a processor, in turn.
    #[arg(long, requires = "start")]
    pin_servers: bool,
    /// Measurements of each point; the one with the median rate is kept whole, and the report shows
    /// the range of all.
    #[arg(long, default_value_t = 1, value_name = "COUNT", value_parser = run::count)]
    repeats: usize,
    /// Requests a second, of an open loop, where another thing is changed.
    #[arg(short, long, value_name = "PER_SECOND")]
    rate: Option<f64>,
    /// Seconds of each point.
    #[arg(long, default_value_t = 3.0, value_name = "SECONDS")]
    time: f64,
    /// Keep the result in this file; `-`: print it, and the text to stderr.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  holdall bench sweep connections 1,2,4,8,16,32,64,128 --preload --json c.json
  holdall bench sweep threads 1,2,4,8 --start 'memcached -p {port} -t {threads}' --preload --json t.json
  holdall bench sweep processes 1,2,4 --start 'memcached -p {port} -t {threads}' --preload --json p.json
  holdall bench sweep connections 1,4,16,64 --start 'memcached -p {port} -t {threads}' --server-threads 4 --pin-servers --repeats 3 --preload
  holdall bench sweep pinned 0,1 --start 'holdall serve -p {port} -t {threads}' --server-threads 4 --preload
  holdall bench sweep group 1,5,20,100 --start 'memcached -p {port} -R {group}' --pipeline 32 --preload
  holdall bench report c.json t.json --out report.html      the figures";

/// More servers than this are a mistake.
const PROCESSES_MAX: f64 = 256.0;

pub(super) fn run(args: &SweepArgs) -> Result<ExitCode> {
    let needs_start = args.over.is_of_server() && args.start.is_none();
    if needs_start {
        let over = args.over;
        bail!(WrongUse(format!("a sweep over {over} starts its servers: --start COMMAND")));
    }
    let least = if args.over == Over::Pinned || args.over == Over::ValueSize { 0.0 } else { 1.0 };
    if args.points.0.iter().any(|at| *at < least) {
        bail!(WrongUse(format!("{} begin at {least}", args.over)));
    }
    if args.over == Over::Processes && args.points.0.iter().any(|at| *at > PROCESSES_MAX) {
        bail!(WrongUse(format!("at most {PROCESSES_MAX} processes are started")));
    }
    let file = output::begun(args.json.as_deref(), &[])?;
    let mut base = args.load.spec()?;
    (base.seconds, base.warm_up) = (args.time, (args.time / 4.0).min(1.0));
    if let Some(rate) = args.rate {
        base.pace = Pace::Open { rate, arrival: args.load.arrival() };
    }
    if args.start.is_none() && base.preload && args.over != Over::ValueSize {
        run::preload(&base)?;
        base.preload = false;
    }
    let mut result = SweepResult {
        schema: sweep::SCHEMA.to_owned(),
        version: sweep::SCHEMA_VERSION,
        command: std::env::args().collect(),
        server: args.start.clone(),
        host: Host::here(),
        over: args.over,
        pinned: args.pin_servers,
        points: Vec::new(),
        knee: None,
        failure: None,
    };
    terminal::print(&format!("{:>12}  {}\n", "", args.over));
    let mut is_partial = false;
    for at in &args.points.0 {
        let point = match measure(args, &base, *at) {
            // Earlier measurements are kept.
            Err(_) if interrupt::happened() => break,
            point => point?,
        };
        terminal::print(&row(&point));
        is_partial |= point.result.failure.is_some();
        result.points.push(point);
        if is_partial {
            break;
        }
    }
    if interrupt::happened() {
        result.failure = Some(INTERRUPTED.to_owned());
        terminal::print("\ndoubt: the sweep ended early: interrupted\n");
    }
    let curve = result.drawn().map(|point| (point.at, point.result.total.rate));
    let curve = curve.collect::<Vec<_>>();
    let knee = sweep::knee(&curve).map(|knee| curve[knee].0);
    result.knee = result.points.iter().position(|point| Some(point.at) == knee);
    if let Some(knee) = knee {
        terminal::print(&format!("\nbeyond {knee} more brings little\n"));
    }
    output::keep_with(file, &result, result.doubts())?;
    Ok(if is_partial { ExitCode::from(EXIT_PARTIAL) } else { ExitCode::SUCCESS })
}

fn measure(args: &SweepArgs, base: &Spec, at: f64) -> Result<Point> {
    let mut spec = base.clone();
    args.over.apply(at, &mut spec);
    let servers = match &args.start {
        Some(command) => args.started(command, at)?,
        None => Vec::new(),
    };
    if !servers.is_empty() {
        let target = |server: &Running| Target::Tcp(server.address.to_string(), server.address);
        spec.targets = servers.iter().map(target).collect();
    }
    if spec.preload {
        run::preload(&spec)?;
    }
    let pids: Vec<u32> = servers.iter().filter_map(Running::pid).collect();
    if args.pin_servers || (args.over == Over::Pinned && at > 0.0) {
        pids.iter().try_for_each(|pid| sweep::pin_threads(*pid))?;
    }
    let all = || -> Result<Vec<ThreadUse>> {
        Ok(pids.iter().map(|pid| thread_use(*pid)).collect::<Result<Vec<_>>>()?.concat())
    };
    let mut measured = Vec::new();
    for _ in 0..args.repeats {
        let before = all()?;
        let result = run::measure(&spec)?;
        // A server that ended in the run is reported by the run.
        let threads = all().map(|after| used(&before, &after)).unwrap_or_default();
        let is_over = result.failure.is_some();
        measured.push((result, threads));
        if is_over {
            break;
        }
    }
    let repeats = measured.iter().map(|(result, _)| Repeat::of(result)).collect::<Vec<_>>();
    let (result, threads) = median(measured).context("a point without a measurement")?;
    let repeats = if repeats.len() > 1 { repeats } else { Vec::new() };
    Ok(Point { at, result, repeats, threads })
}

/// The measurement with the median rate; an interrupted one takes precedence, because it ends the
/// sweep.
fn median<T>(mut measured: Vec<(RunResult, T)>) -> Option<(RunResult, T)> {
    if measured.last().is_some_and(|(result, _)| result.failure.is_some()) {
        return measured.pop();
    }
    measured.sort_by(|(one, _), (other, _)| one.total.rate.total_cmp(&other.total.rate));
    let middle = measured.len().saturating_sub(1) / 2;
    (!measured.is_empty()).then(|| measured.swap_remove(middle))
}

impl SweepArgs {
    /// The servers of a point: one, or as many as the point requires.
    fn started(&self, command: &str, at: f64) -> Result<Vec<Running>> {
        let of = |over, number: usize| {
            if self.over == over { format!("{at:.0}") } else { number.to_string() }
        };
        let command = command
            .replace("{threads}", &of(Over::Threads, self.server_threads))
            .replace("{group}", &of(Over::Group, self.group));
        let launch = Launch::Command(process::words(&command));
        let server = Server { name: command.clone(), launch };
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked")]
        let count = if self.over == Over::Processes { at as usize } else { 1 };
        let start = |_| server.start(1024, None).with_context(|| format!("--start {command:?}"));
        (0..count).map(start).collect()
    }
}

fn row(point: &Point) -> String {
    let mut text = String::new();
    let (total, result) = (&point.result.total, &point.result);
    let _ = write!(
        text,
        "{:>12}  {:>10.0} requests a second, mean {:.1} us, p50 {:.1}, p99 {:.1}, p99.9 {:.1}",
        point.at,
        total.rate,
        total.latency.mean,
        total.latency.percentile(50.0),
        total.latency.percentile(99.0),
        total.latency.percentile(99.9)
    );
    if let Some((least, most)) = point.range(|repeat| repeat.rate) {
        let _ = write!(text, "; {} repeats, {least:.0} to {most:.0}", point.repeats.len());
    }
    let ticks = |pick: fn(&ThreadUse) -> u64| point.threads.iter().map(pick).sum::<u64>();
    if !point.threads.is_empty() {
        #[allow(clippy::cast_precision_loss, reason = "ticks of one measurement")]
        let share = |ticks: u64| {
            let per_second = rustix::param::clock_ticks_per_second() as f64;
            ticks as f64 / per_second / result.whole_seconds().max(1e-9) * 100.0
        };
        let _ = write!(
            text,
            "; server {:.0} % user, {:.0} % system",
            share(ticks(|thread| thread.user)),
            share(ticks(|thread| thread.system))
        );
    }
    let _ = writeln!(text);
    for doubt in result.doubts() {
        let _ = writeln!(text, "{:>12}  doubt: {doubt}", "");
    }
    text
}
