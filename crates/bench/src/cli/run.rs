//! `holdall bench run`: one load, one result.
//!
//! Relaxed is enough for `Progress`: a stop that is seen late costs a moment, and `answered` is for
//! display.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{io, thread};

use anyhow::{Result, bail, ensure};
use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::help_groups::grouped;
use super::interrupt::{self, INTERRUPTED};
use super::{EXIT_PARTIAL, WrongUse, output};
use crate::agents::{self, Gathered};
use crate::host::CpuTimes;
use crate::listeners;
use crate::memtier::json;
use crate::result::RunResult;
use crate::sampler::Sampler;
use crate::server_version;
use crate::sla::{Sla, Violations};
use crate::terminal;
use generator::bounds::{COUNT_MAX, KEYS_MAX, RATES, SECONDS_MAX, is_key_prefix};
use generator::keys::Pattern;
use generator::sizes::{KeySize, ValueSize};
use generator::spec::{Arrival, Pace, Protocol, Ratio, Spec, Target, Tls};
use generator::{self, Progress};

/// Sends one load and reports throughput and latency.
///
/// Without --rate the loop is closed: every connection asks again when it was answered, as fast as
/// the servers are. With --rate it is open: requests are due at times of their own, and latency
/// counts from the time at which a request was due, so that a stalled server cannot hide the
/// requests that it kept from being sent.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, mut_args(grouped))]
pub(super) struct RunArgs {
    #[command(flatten)]
    pub(super) load: LoadArgs,
    /// Requests a second, of all threads together: an open loop.
    #[arg(short, long, value_name = "PER_SECOND", value_parser = rate)]
    rate: Option<f64>,
    /// Seconds to measure.
    #[arg(long, default_value_t = 10.0, value_name = "SECONDS", value_parser = seconds)]
    time: f64,
    /// Seconds to run before measuring.
    #[arg(long, default_value_t = 1.0, value_name = "SECONDS", value_parser = seconds)]
    warm_up: f64,
    /// End after COUNT requests of each connection, in place of a time; nothing is left out as
    /// warm-up.
    #[arg(short = 'n', long, value_name = "COUNT", conflicts_with_all = ["time", "warm_up"], value_parser = clap::value_parser!(u64).range(1..))]
    requests: Option<u64>,
    /// Report the seconds in which this bound was exceeded, for example p99<1ms.
    #[arg(long, value_name = "BOUND")]
    sla: Option<Sla>,
    /// Hosts that run `holdall bench agent`, with commas: each has the threads and connections, all
    /// together the rate.
    #[arg(long, value_delimiter = ',', value_name = "HOST:PORT")]
    agents: Vec<String>,
    /// Write the result as memtier_benchmark's JSON into this file.
    #[arg(long, value_name = "FILE")]
    memtier_json: Option<PathBuf>,
    /// Keep the result, with whole histograms, in this file; `-`: print it, and the text to stderr.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// What is asked, apart from how fast and how long.
#[derive(Debug, Args)]
pub(super) struct LoadArgs {
    /// HOST, HOST:PORT, udp:HOST:PORT (gets only) or unix:PATH; may be given several times, and the
    /// keys are divided among them.
    #[arg(short, long = "server", value_name = "WHERE", default_value = "127.0.0.1:11211")]
    servers: Vec<Target>,
    /// The servers' language.
    #[arg(short, long, value_enum, default_value_t)]
    protocol: Protocol,
    /// Generator threads.
    #[arg(short, long, default_value_t = 1, value_parser = count)]
    threads: usize,
    /// Connections of each thread to each server.
    #[arg(short, long, default_value_t = 50, value_parser = count)]
    connections: usize,
    /// Requests of a connection that are sent together and waited for; in an open loop, requests in
    /// flight at most.
    #[arg(long, default_value_t = 1, value_parser = count)]
    pipeline: usize,
    /// Keys of one get.
    #[arg(long, default_value_t = 1, value_parser = count)]
    multiget: usize,
    /// Sets to gets.
    #[arg(long, default_value = "1:10", value_name = "SETS:GETS")]
    ratio: Ratio,
    /// Number of keys.
    #[arg(short, long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=KEYS_MAX))]
    keys: u64,
    /// What keys begin with.
    #[arg(long, default_value = "key:", value_parser = key_prefix)]
    key_prefix: String,
    /// Bytes of keys: shortest (12 digits), plain, a number, or etc (the distribution of Facebook's
    /// ETC pool).
    #[arg(long, default_value = "shortest", value_name = "BYTES")]
    key_size: KeySize,
    /// Which keys: uniform, sequential, gaussian, zipf or hot; the last three with a parameter, as
    /// in zipf:0.99.
    #[arg(long, default_value = "uniform", value_name = "PATTERN")]
    key_pattern: Pattern,
    /// Bytes of values: a number, LEAST-MOST, BYTES:WEIGHT,BYTES:WEIGHT.., or etc.
    #[arg(short, long, default_value = "64", value_name = "BYTES")]
    value_size: ValueSize,
    /// Facebook's ETC pool (Atikoglu et al. 2012): its key and value sizes, Zipf popularity, 30
    /// gets for each set.
    #[arg(long, conflicts_with_all = ["key_size", "value_size", "key_pattern", "ratio"])]
    etc: bool,
    /// Expiration time of what is stored, in seconds.
    #[arg(long, default_value_t = 0, value_name = "SECONDS")]
    ttl: u32,
    /// Store every key once before measuring.
    #[arg(long)]
    preload: bool,
    /// Compare every value with what was stored. Only where nothing else writes these keys.
    #[arg(long)]
    verify: bool,
    /// Close and reopen a connection after each REQUESTS requests; the time for that counts as the
    /// next request's.
    #[arg(long, value_name = "REQUESTS", value_parser = clap::value_parser!(u64).range(1..))]
    reconnect: Option<u64>,
    /// Speak TLS, with servers that have a certificate of an authority in this file (PEM).
    #[arg(long, value_name = "FILE", conflicts_with = "tls_insecure")]
    tls_ca: Option<PathBuf>,
    /// Use TLS, and accept any certificate.
    #[arg(long)]
    tls_insecure: bool,
    /// Certificate to show to servers (PEM), with --tls-key.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Key of --tls-cert (PEM).
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Log in by USER:PASSWORD, the first line of this file: in text as `memcached -Y` takes it, in
    /// binary by SASL PLAIN, with Redis by AUTH.
    #[arg(long, value_name = "FILE")]
    login: Option<PathBuf>,
    /// Processors for the generator threads, in turn, with commas.
    #[arg(long, value_delimiter = ',', value_name = "PROCESSORS")]
    pin: Vec<usize>,
    /// When the requests of an open loop are due.
    #[arg(long, value_enum, default_value_t)]
    arrival: Arrival,
    /// Repeats the choices of a run.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

const EXAMPLES: &str = "\
Examples:
  holdall bench run --preload                              gets and sets on 127.0.0.1:11211, as fast as it answers
  holdall bench run -s cache1 -s cache2 --preload --etc    two servers, Facebook's ETC pool
  holdall bench run --preload --rate 50000 --json r.json   50,000 requests a second, the result kept
  holdall bench run -s 127.0.0.1:6379 -p resp --preload    a Redis or Valkey server
  holdall bench run --preload --ratio 0:1 --multiget 100   gets of 100 keys
  holdall bench run --preload --tls-ca ca.pem -s cache1    over TLS
  holdall bench run --preload --login secret.txt -s cache1 with a server that asks for a login
  holdall bench run --preload -n 10000 -t 2 --pin 2,3      10,000 requests of each connection, by processors 2 and 3
  holdall bench run -s udp:cache1 --ratio 0:1              gets by UDP
  holdall bench run --preload --reconnect 1                a connection for each request
  holdall bench run -s cache1 --agents gen1:11999,gen2:11999   by two generator hosts, added up

Exit status: 0 measured; 1 no server could be reached; 2 the run ended early and what it saw is printed; 64 wrong usage; 130 interrupted, with what was seen until then.";

impl LoadArgs {
    /// When the requests of an open loop are due.
    pub(super) fn arrival(&self) -> Arrival {
        self.arrival
    }

    /// The load of the arguments, with a pace and time chosen by the caller.
    pub(super) fn spec(&self) -> Result<Spec> {
        let mut spec = Spec {
            targets: self.servers.clone(),
            protocol: self.protocol,
            threads: self.threads,
            connections: self.connections,
            pipeline: self.pipeline,
            multiget: self.multiget,
            ratio: self.ratio,
            keys: self.keys,
            key_prefix: self.key_prefix.clone(),
            key_size: self.key_size,
            pattern: self.key_pattern,
            value_size: self.value_size.clone(),
            ttl: self.ttl,
            preload: self.preload,
            verify: self.verify,
            seed: self.seed,
            reconnect: self.reconnect.unwrap_or(0),
            tls: match &self.tls_ca {
                Some(file) => Some(Tls::Verified(file.clone())),
                None => self.tls_insecure.then_some(Tls::Unverified),
            },
            identity: self.tls_cert.clone().zip(self.tls_key.clone()),
            login: self.login.clone(),
            pin: self.pin.clone(),
            ..Spec::default()
        };
        ensure!(
            spec.identity.is_none() || spec.tls.is_some(),
            WrongUse("--tls-cert is shown in TLS: --tls-ca FILE or --tls-insecure".to_owned())
        );
        if self.etc {
            spec.key_size = KeySize::Etc;
            spec.value_size = ValueSize::Etc;
            spec.pattern = Pattern::Zipf { exponent: 0.99 };
            spec.ratio = Ratio { sets: 1, gets: 30 };
        }
        ensure!(
            !spec.targets.iter().any(Target::is_udp)
                || (spec.ratio.sets == 0
                    && spec.pipeline == 1
                    && spec.protocol == Protocol::Text
                    && spec.login.is_none()
                    && !spec.preload),
            WrongUse(
                "UDP is for gets in text, one at a time: --ratio 0:1 -p text, without --pipeline, --login and --preload (which TCP does)"
                    .to_owned()
            )
        );
        ensure!(
            spec.keys >= spec.targets.len() as u64,
            WrongUse(format!("{} keys are too few for {} servers", spec.keys, spec.targets.len()))
        );
        Ok(spec)
    }
}

pub(super) fn run(args: &RunArgs) -> Result<ExitCode> {
    let mut spec = args.load.spec()?;
    (spec.seconds, spec.warm_up) = (args.time, args.warm_up);
    if let Some(rate) = args.rate {
        spec.pace = Pace::Open { rate, arrival: args.load.arrival() };
    }
    if let Some(requests) = args.requests {
        (spec.requests, spec.seconds, spec.warm_up) = (requests, SECONDS_MAX, 0.0);
    }
    let file = output::begun(args.json.as_deref(), &[])?;
    let memtier = output::begun(args.memtier_json.as_deref(), &[])?;
    if spec.preload && args.agents.is_empty() {
        preload(&spec)?;
    }
    let result = measure_by(&spec, &args.agents, args.sla.as_ref())?;
    terminal::print(&terminal::summary(&result));
    output::keep_with(file, &result, result.doubts())?;
    let is_partial = result.failure.is_some() || result.wrong > 0;
    output::keep(memtier, &json::of(&[result], 1, None, &json::PERCENTILES)?)?;
    Ok(if is_partial { ExitCode::from(EXIT_PARTIAL) } else { ExitCode::SUCCESS })
}

/// Stores every key once, showing progress on a terminal.
pub(super) fn preload(spec: &Spec) -> Result<()> {
    let progress = interrupt::progress();
    let bar = ProgressBar::new(spec.keys);
    watched(&progress, &bar, &|| "storing".to_owned(), spec.keys, || {
        generator::fill(spec, &progress)
    })?;
    ensure!(!progress.stop.load(Ordering::Relaxed), "interrupted while storing the keys");
    Ok(())
}

/// Runs, showing progress on a terminal, and samples the processors and the threads of servers on
/// this machine.
pub(super) fn measure(spec: &Spec) -> Result<RunResult> {
    measure_by(spec, &[], None)
}

/// Runs on agents if any are named, otherwise like [`measure`].
fn measure_by(spec: &Spec, agents: &[String], sla: Option<&Sla>) -> Result<RunResult> {
    let progress = interrupt::progress();
    let server_versions = server_version::of_all(spec);
    let started = now();
    let before = CpuTimes::now();
    let bar = ProgressBar::new(0);
    let shares = Arc::new(Mutex::new(String::new()));
    let told = Arc::clone(&shares);
    let tell = move |times: CpuTimes| {
        let used = times.shares().into_iter().filter(|(_, share)| *share >= 0.5);
        let words: Vec<String> = used.map(|(name, share)| format!("{name} {share:.0} %")).collect();
        if let Ok(mut told) = told.lock() {
            // The sampler reports once per second.
            *told = format!("{}, {} switches a second", words.join(" "), times.switches);
        }
    };
    let live = || {
        let latency = progress.latest.lock().ok().and_then(|latest| latest.percentiles());
        let latency = latency.map(|(p50, p99)| format!(" p50 {p50} us, p99 {p99} us;"));
        let shares = shares.lock().map(|shares| shares.clone()).unwrap_or_default();
        format!("measuring{} {shares}", latency.unwrap_or_default())
    };
    let (gathered, series) = watched(&progress, &bar, &live, 0, || {
        let warm_up = Duration::from_secs_f64(spec.warm_up);
        let begin = || {
            let servers = listeners::pids_of(&spec.targets);
            Sampler::begin(servers, warm_up, Duration::from_secs(1), tell)
        };
        if agents.is_empty() {
            let sampler = begin();
            let outcome = generator::run(spec, &progress)?;
            return Ok((Gathered { outcome, parts: Vec::new() }, sampler.end()));
        }
        let mut sampler = None;
        let gathered = agents::run(spec, agents, &progress, || sampler = Some(begin()))?;
        Ok((gathered, sampler.and_then(Sampler::end)))
    })?;
    let cpu = before.zip(CpuTimes::now()).map(|(before, after)| after - before);
    let mut result = RunResult::new(spec, &gathered.outcome, (cpu, series), started)?;
    result.server_versions = server_versions;
    let seconds = &gathered.outcome.record.seconds;
    result.violations = sla.map(|sla| Violations::of(sla, spec.pace, seconds));
    if interrupt::happened() {
        result.failure.get_or_insert_with(|| INTERRUPTED.to_owned());
    }
    result.agents = gathered.parts.into_iter().map(|(agent, _)| agent).collect();
    Ok(result)
}

/// Seconds since 1970.
pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

/// Runs `work` while a line on the terminal shows its progress.
pub(super) fn watched<T: Send>(
    progress: &Progress,
    bar: &ProgressBar,
    what: &(dyn Fn() -> String + Sync),
    goal: u64,
    work: impl FnOnce() -> Result<T> + Send,
) -> Result<T> {
    let shown = io::stderr().is_terminal();
    bar.set_draw_target(if shown {
        ProgressDrawTarget::stderr()
    } else {
        ProgressDrawTarget::hidden()
    });
    let template = if goal > 0 {
        "{msg} {bar:30} {pos}/{len} {per_sec}"
    } else {
        "{spinner} {elapsed} {pos} requests {per_sec} {msg}"
    };
    bar.set_style(ProgressStyle::with_template(template)?);
    thread::scope(|scope| {
        let work = scope.spawn(work);
        while !work.is_finished() {
            bar.set_message(what());
            bar.set_position(progress.answered.load(Ordering::Relaxed));
            thread::sleep(Duration::from_millis(50));
        }
        bar.finish_and_clear();
        work.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a generator thread panicked")))
    })
}

pub(super) fn count(text: &str) -> Result<usize> {
    match text.parse() {
        Ok(count @ 1..=COUNT_MAX) => Ok(count),
        _ => bail!("a number from 1 to 100000 is wanted"),
    }
}

fn rate(text: &str) -> Result<f64> {
    match text.parse::<f64>() {
        Ok(rate) if RATES.contains(&rate) => Ok(rate),
        _ => bail!("a number of requests a second, from 0.1 to 1e9, is wanted"),
    }
}

pub(super) fn seconds(text: &str) -> Result<f64> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.0..=SECONDS_MAX).contains(&seconds) => Ok(seconds),
        _ => bail!("a number of seconds is wanted"),
    }
}

fn key_prefix(text: &str) -> Result<String> {
    if !is_key_prefix(text) {
        bail!("at most 200 bytes, no spaces or control characters");
    }
    Ok(text.to_owned())
}
