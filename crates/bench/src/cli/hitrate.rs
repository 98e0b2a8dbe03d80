//! `holdall bench hitrate`: miss-ratio curves of real servers.
//!
//! Relaxed is enough for `Progress`: a stop that is seen late costs a moment, and `answered` is for
//! display.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use anyhow::{Result, ensure};
use clap::Args;
use clap::builder::PossibleValuesParser;
use indicatif::ProgressBar;

use super::interrupt;
use super::run;
use super::{EXIT_PARTIAL, WrongUse, output};
use crate::hitrate::belady::Spool;
use crate::hitrate::policies::{Policy, simulate};
use crate::hitrate::presets::{Kind, Preset};
use crate::hitrate::replay::replay;
use crate::hitrate::servers::{self, Contender};
use crate::hitrate::synthetic::{Scan, Synthetic};
use crate::hitrate::trace::Format;
use crate::hitrate::{BOUND, BOUND_WITH_SIZES, Counts, Curve, Footprint, HitrateResult, Point};
use crate::hitrate::{INTERRUPTED, SCHEMA, SCHEMA_VERSION, Source, Workload};
use crate::host::Host;
use crate::process::Server;
use crate::terminal;
use generator::Progress;
use generator::keys::Pattern;
use generator::parse_error::ParseError;
use generator::sizes::{KeySize, ValueSize};
use generator::spec::Protocol;

/// Replays a trace look-aside (get; what is missed is stored) and draws miss-ratio curves beside
/// Belady's bound.
///
/// Each server is started anew at each memory size, and reads the requests from the first. A trace
/// is read request by request, so it may be larger than memory; the bound needs 16 bytes a request
/// in the folder for temporary files (TMPDIR).
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct HitrateArgs {
    /// A trace file; without one, requests are drawn.
    #[arg(value_name = "TRACE")]
    trace: Option<PathBuf>,
    /// How the file is written; without it, its name decides: *oracle* is binary, *twitter* and
    /// cluster* are Twitter's.
    #[arg(long, value_enum, requires = "trace")]
    format: Option<Format>,
    /// Memory sizes in MB, with commas.
    #[arg(short, long, default_value = "8,16,32,64", value_name = "MB")]
    memory: Sizes,
    /// Servers by name, with commas: holdall, holdall-bag, holdall-lru (strict), memcached, redis,
    /// redis-lfu, valkey, valkey-lfu.
    /// Without it, all that are installed.
    #[arg(long, value_delimiter = ',', value_name = "NAMES", value_parser = PossibleValuesParser::new(servers::KNOWN), hide_possible_values = true)]
    servers: Option<Vec<String>>,
    /// One more server that speaks memcached's text: NAME=COMMAND, in which {port} and {memory} are
    /// replaced.
    #[arg(long, value_name = "NAME=COMMAND")]
    start: Vec<Server>,
    /// Policies to simulate beside the servers, with commas.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "NAMES")]
    policies: Vec<Policy>,
    /// Bytes that an item takes beside key and value, for the policies and Belady's bound.
    #[arg(long, default_value_t = 0, value_name = "BYTES")]
    overhead: u32,
    /// Requests at most; of drawn ones, 2,000,000 unless said.
    #[arg(short = 'n', long, value_name = "REQUESTS", value_parser = clap::value_parser!(u64).range(1..))]
    requests: Option<u64>,
    /// Requests that are replayed before misses are counted.
    #[arg(long, default_value_t = 0, value_name = "REQUESTS")]
    warm_up: u64,
    /// A load of a known kind, in place of patterns and sizes.
    #[arg(long, value_enum, value_name = "KIND", conflicts_with_all = ["trace", "key_pattern", "value_size", "scan", "etc"])]
    load: Option<Kind>,
    /// Number of drawn keys.
    #[arg(short, long, default_value_t = 200_000, value_parser = clap::value_parser!(u64).range(1..=1 << 40))]
    keys: u64,
    /// Which of the drawn keys come next: zipf:EXPONENT, uniform, sequential, gaussian, hot:SHARE.
    #[arg(long, default_value = "zipf:0.99", value_name = "PATTERN")]
    key_pattern: Pattern,
    /// Bytes of drawn values: a number, LEAST-MOST, BYTES:WEIGHT,.., or etc.
    #[arg(short, long, default_value = "300", value_name = "BYTES")]
    value_size: ValueSize,
    /// Between drawn requests, after each EVERY, LENGTH keys that nobody asks for again.
    #[arg(long, value_name = "EVERY:LENGTH")]
    scan: Option<Scan>,
    /// Key and value sizes of Facebook's ETC pool (Atikoglu et al. 2012).
    #[arg(long, conflicts_with = "value_size")]
    etc: bool,
    /// Repeats the choices of drawn requests.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Keep the result in this file; `-`: print it, and the text to stderr.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// The default number of drawn requests.
const REQUESTS: u64 = 2_000_000;

const EXAMPLES: &str = "\
Examples:
  holdall bench hitrate --memory 8,16,32,64 --json h.json          Zipf's keys, on every server that is installed
  holdall bench hitrate --scan 100000:50000 --servers holdall,holdall-lru
  holdall bench hitrate --load seen-once --keys 2000000 --memory 128 --requests 6000000 --warm-up 3000000
  holdall bench hitrate --policies lru,s3-fifo,sieve,w-tiny-lfu,gdsf --overhead 40 --servers holdall
  holdall bench hitrate cluster52.csv --format twitter --memory 64,256,1024 --json h.json
  holdall bench hitrate msr.oracleGeneral.bin --requests 10000000
  holdall bench report h.json --out report.html                    the curves

Exit status: 0 measured; 1 nothing could be measured; 2 a trace or a replay ended early and what was seen is kept; 64 wrong usage; 130 interrupted, and what was seen is kept.";

/// Memory sizes in ascending order.
#[derive(Clone, Debug)]
struct Sizes(Vec<u32>);

impl FromStr for Sizes {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let form = "a list of MB with commas, each above the last";
        let refused = || ParseError::form(text, form);
        let sizes: Vec<u32> = text
            .split(',')
            .map(|size| size.trim().parse().ok().filter(|mb| (1..=1 << 20).contains(mb)))
            .collect::<Option<_>>()
            .ok_or_else(refused)?;
        if sizes.windows(2).any(|pair| pair[0] >= pair[1]) {
            return Err(refused());
        }
        Ok(Self(sizes))
    }
}

pub(super) fn run(args: &HitrateArgs) -> Result<ExitCode> {
    args.trace.as_deref().map(refuse_pipe).transpose()?;
    let workload = args.workload();
    let contenders = args.contenders()?;
    // An unreadable trace is reported before servers are started.
    drop(workload.requests()?);
    let inputs: Vec<PathBuf> = args.trace.iter().cloned().collect();
    let file = output::begun(args.json.as_deref(), &inputs)?;
    let progress = interrupt::progress();
    terminal::print(&format!("{}\n", workload.source.describe()));
    let (bounds, footprint, failure) = args.bounds(&workload, &progress)?;
    let mut result = HitrateResult {
        schema: SCHEMA.to_owned(),
        version: SCHEMA_VERSION,
        started: run::now(),
        command: std::env::args().collect(),
        host: Host::here(),
        workload,
        footprint,
        curves: bounds,
        failure,
    };
    terminal::print(&described(&result.footprint));
    let counted = result.curves.first().and_then(|curve| curve.points.first());
    ensure!(
        counted.is_some_and(|point| point.counts.gets > 0),
        WrongUse(format!(
            "no get is left to count: there are {} requests, and --warm-up is {}",
            result.footprint.requests, args.warm_up
        ))
    );
    if result.failure.is_none() {
        result.curves.extend(args.simulated(&result.workload, footprint.requests, &progress)?);
    }
    for contender in &contenders {
        if progress.stop.load(Ordering::Relaxed) {
            break;
        }
        let curve = args.curve(contender, &result.workload, footprint.requests, &progress)?;
        result.curves.push(curve);
    }
    if interrupt::happened() {
        result.failure.get_or_insert_with(|| INTERRUPTED.to_owned());
    }
    terminal::print(&terminal::curves(&result));
    output::keep_with(file, &result, result.doubts())?;
    let is_partial = result.failure.is_some()
        || result.curves.iter().flat_map(|curve| &curve.points).any(|p| p.failure.is_some());
    Ok(if is_partial { ExitCode::from(EXIT_PARTIAL) } else { ExitCode::SUCCESS })
}

/// The trace is read once for each curve, and from a pipe only the first reader gets its beginning.
fn refuse_pipe(trace: &Path) -> Result<()> {
    // Opening reports a missing one.
    let is_file = trace.metadata().map_or(true, |found| found.is_file());
    let named = trace.display();
    ensure!(
        is_file,
        WrongUse(format!("{named}: a trace is a file, because it is read repeatedly"))
    );
    Ok(())
}

impl HitrateArgs {
    fn workload(&self) -> Workload {
        let source = match &self.trace {
            Some(path) => Source::File {
                path: path.clone(),
                format: self.format.unwrap_or_else(|| Format::of_name(path)),
            },
            None if let Some(kind) = self.load => Source::Preset(Preset {
                kind,
                keys: self.keys,
                requests: self.requests.unwrap_or(REQUESTS),
                seed: self.seed,
            }),
            None => Source::Synthetic(Synthetic {
                keys: self.keys,
                pattern: self.key_pattern,
                key_size: if self.etc { KeySize::Etc } else { KeySize::Shortest },
                value_size: if self.etc { ValueSize::Etc } else { self.value_size.clone() },
                scan: self.scan,
                requests: self.requests.unwrap_or(REQUESTS),
                seed: self.seed,
            }),
        };
        Workload { source, limit: self.requests, warm_up: self.warm_up }
    }

    fn contenders(&self) -> Result<Vec<Contender>> {
        let own = servers::own_program()?;
        // Servers given by command stand alone unless others are requested, too.
        let mut contenders = match (&self.servers, self.start.is_empty()) {
            (None, false) => Vec::new(),
            (names, _) => servers::find(names.as_deref(), &own, 1)?,
        };
        contenders.extend(
            self.start
                .iter()
                .map(|server| Contender { server: server.clone(), protocol: Protocol::Text }),
        );
        ensure!(!contenders.is_empty(), "no server is installed; --start NAME=COMMAND");
        Ok(contenders)
    }

    /// The bounds, the trace's footprint, and why the trace could not be read to its end.
    fn bounds(
        &self,
        workload: &Workload,
        progress: &Progress,
    ) -> Result<(Vec<Curve>, Footprint, Option<String>)> {
        let bar = ProgressBar::new(0);
        run::watched(progress, &bar, &|| "reading the trace".to_owned(), 0, || {
            let (mut spool, mut failure) = (Spool::new(Arc::clone(&progress.stop))?, None);
            for request in workload.requests()? {
                match request {
                    Ok(request) => spool.push(&request)?,
                    Err(error) => {
                        failure = Some(format!("{error:#}"));
                        break;
                    }
                }
                progress.answered.fetch_add(1, Ordering::Relaxed);
                ensure!(!progress.stop.load(Ordering::Relaxed), INTERRUPTED);
            }
            let mut known = spool.known()?;
            ensure!(
                known.footprint.requests > 0,
                "no request could be read: {}",
                failure.unwrap_or_default()
            );
            let (capacities, warm_up) = (self.capacities(), workload.warm_up);
            let bound = known.bound(&capacities, self.overhead, warm_up)?;
            let mut curves = vec![self.calculated(BOUND, bound)];
            if !self.policies.is_empty() {
                let bound = known.bound_with_sizes(&capacities, self.overhead, warm_up)?;
                curves.push(self.calculated(BOUND_WITH_SIZES, bound));
            }
            Ok((curves, known.footprint, failure))
        })
    }

    /// The curves of the simulated policies.
    fn simulated(
        &self,
        workload: &Workload,
        requests: u64,
        progress: &Progress,
    ) -> Result<Vec<Curve>> {
        if self.policies.is_empty() {
            return Ok(Vec::new());
        }
        progress.answered.store(0, Ordering::Relaxed);
        let bar = ProgressBar::new(requests);
        let counts = run::watched(progress, &bar, &|| "policies".to_owned(), requests, || {
            simulate(&self.policies, &self.capacities(), self.overhead, workload, progress)
        })?;
        let named = self.policies.iter().map(|policy| policy.name());
        Ok(named.zip(counts).map(|(name, counts)| self.calculated(name, counts)).collect())
    }

    fn capacities(&self) -> Vec<u64> {
        self.memory.0.iter().map(|mb| u64::from(*mb) << 20).collect()
    }

    /// A curve without a server.
    fn calculated(&self, name: &str, counts: Vec<Counts>) -> Curve {
        let points = self.memory.0.iter().zip(counts).map(|(memory_mb, counts)| Point {
            memory_mb: *memory_mb,
            counts,
            seconds: 0.0,
            resident_bytes: None,
            failure: None,
        });
        Curve { name: name.to_owned(), command: Vec::new(), points: points.collect() }
    }

    fn curve(
        &self,
        contender: &Contender,
        workload: &Workload,
        requests: u64,
        progress: &Progress,
    ) -> Result<Curve> {
        let name = contender.server.name.clone();
        let mut curve =
            Curve { name, command: contender.server.words().to_vec(), points: Vec::new() };
        for memory_mb in &self.memory.0 {
            let running = contender.server.start(*memory_mb, None)?;
            progress.answered.store(0, Ordering::Relaxed);
            let bar = ProgressBar::new(requests);
            let what = || format!("{} {memory_mb} MB", curve.name);
            let point = run::watched(progress, &bar, &what, requests, || {
                let address = running.address;
                let point = replay(address, contender.protocol, *memory_mb, workload, progress);
                Ok(Point { resident_bytes: running.resident_bytes(), ..point })
            })?;
            terminal::print(&row(&curve.name, &point));
            curve.points.push(point);
            if progress.stop.load(Ordering::Relaxed) {
                break;
            }
        }
        Ok(curve)
    }
}

fn described(footprint: &Footprint) -> String {
    #[allow(clippy::cast_precision_loss, reason = "bytes of a trace")]
    let megabytes = footprint.bytes as f64 / f64::from(1 << 20);
    format!(
        "{} requests, {} keys, {megabytes:.1} MB of keys and values\n\n",
        footprint.requests, footprint.keys
    )
}

fn row(name: &str, point: &Point) -> String {
    let mut text = String::new();
    #[allow(clippy::cast_precision_loss, reason = "counts of one replay")]
    let rate = point.counts.gets as f64 / point.seconds.max(1e-9);
    let resident = point.resident_mb().map(|mb| format!(", {mb:.0} MB resident"));
    let resident = resident.unwrap_or_default();
    if point.counts.gets > 0 {
        let _ = writeln!(
            text,
            "{name:16} {:>7} MB  {:>6.2} % of {} gets missed, {rate:.0} gets a second{resident}",
            point.memory_mb,
            point.counts.miss_ratio() * 100.0,
            point.counts.gets
        );
    }
    if let Some(failure) = &point.failure {
        let _ = writeln!(text, "{name:16} {:>7} MB  ended early: {failure}", point.memory_mb);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_that_is_no_file_is_wrong_use() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(refuse_pipe(file.path()).is_ok());
        for path in ["/dev/null", "/"] {
            assert!(refuse_pipe(path.as_ref()).unwrap_err().is::<WrongUse>(), "{path}");
        }
    }
}
