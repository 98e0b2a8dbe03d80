//! Compares servers side by side: `server` for speed, `memory` for stored items, `udp` for UDP
//! compared with TCP.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line program")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, Parser, Subcommand};

use bench::process::Server;
use lab::compare::{self, Plan};
use lab::expiry::{self, ExpiryPlan};
use lab::instructions;
use lab::key_space::{self, KeySpacePlan};
use lab::memory;
use lab::report;
use lab::restart;
use lab::routed;
use lab::servers::{self, DO_NOTHING, MEMCACHED};
use lab::size_shift::{self, ShiftPlan};
use lab::thundering_herd::{self, HerdPlan};
use lab::transient::{self, TransientPlan, Variant};
use lab::udp_compare::{self, UdpPlan};
use processes::Quota;

/// Compares holdall with memcached and with a server that looks nothing up, on loopback, taking
/// turns.
#[derive(Debug, Parser)]
struct Cli {
    #[command(subcommand)]
    measurement: Measurement,
}

#[derive(Debug, Subcommand)]
enum Measurement {
    /// Throughput, server CPU and latency of each workload.
    Server(ServerArgs),
    /// The proxy beside twemproxy (Debian's nutcracker), both before the same two servers.
    Router(RouterArgs),
    /// Items kept for each GiB of resident memory.
    Memory(MemoryArgs),
    /// Instructions a request, counted by callgrind.
    Instructions(InstructionsArgs),
    /// Database reads with and without leases, while keys are invalidated under load.
    Herd(HerdArgs),
    /// One key against a million.
    Keys(KeysArgs),
    /// Restarts with the items kept.
    Restart(RestartArgs),
    /// UDP gets beside TCP gets of the same server.
    Udp(UdpArgs),
    /// Share of memory that short-lived keys hold.
    Transient(CacheArgs<TransientPlan>),
    /// Hit ratio after value sizes have shifted.
    Shift(CacheArgs<ShiftPlan>),
    /// Latency of gets while a million items expire in one second.
    Expiry(CacheArgs<ExpiryPlan>),
}

/// Options of a measurement that needs no others than its plan's.
#[derive(Debug, Args)]
struct CacheArgs<P: Args> {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    plan: P,
}

#[derive(Debug, Args)]
struct Common {
    /// A server to measure instead of the usual three: NAME=ADDRESS, or NAME=COMMAND with {port}
    /// and {memory}.
    #[arg(long = "server", value_name = "NAME=WHERE")]
    servers: Vec<Server>,
    /// Leave this one of the usual three out.
    #[arg(long, value_name = "NAME")]
    without: Vec<String>,
    /// Folder for the results.
    #[arg(long, default_value = "target/bench")]
    out: PathBuf,
}

#[derive(Debug, Args)]
struct ServerArgs {
    #[command(flatten)]
    common: Common,
    /// Only this workload, or those whose names contain it: get-1, get-16, multiget-24,
    /// multiget-100, mixed-90-10, set-16, set-16-evicting, hot-1, hot-16.
    #[arg(long)]
    only: Vec<String>,
    /// Rounds, each of which measures every server once.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Length of one measurement.
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// Sizes of values.
    #[arg(long, value_delimiter = ',', default_value = "64,1024")]
    value_bytes: Vec<usize>,
    /// Connections at once.
    #[arg(long, default_value_t = 50)]
    connections: usize,
    /// Keys stored before measuring.
    #[arg(long, default_value_t = 100_000)]
    keys: u32,
    /// The generator never sleeps, so that no server spends processor time on waking it.
    #[arg(long)]
    poll: bool,
    /// One short round: shows that everything runs, measures nothing worth keeping.
    #[arg(long)]
    quick: bool,
}

#[derive(Debug, Args)]
struct InstructionsArgs {
    /// The program to count; without it, `holdall` beside this program.
    #[arg(long)]
    holdall: Option<PathBuf>,
    /// Folder for callgrind's files.
    #[arg(long, default_value = "target/bench")]
    out: PathBuf,
    /// The file of recorded figures.
    #[arg(long, default_value = "lab/instructions.txt")]
    recorded: PathBuf,
    /// Write that file anew instead of comparing with it.
    #[arg(long)]
    record: bool,
    /// How much more than recorded is no reason to fail, in percent.
    #[arg(long, default_value_t = 10.0)]
    tolerance: f64,
}

#[derive(Debug, Args)]
struct KeysArgs {
    #[command(flatten)]
    common: Common,
    /// Rounds, each of which measures both sides once.
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Length of one measurement.
    #[arg(long, default_value_t = 0.5)]
    seconds: f64,
    /// Keys stored.
    #[arg(long, default_value_t = 1_000_000)]
    keys: u32,
}

#[derive(Debug, Args)]
struct HerdArgs {
    #[command(flatten)]
    common: Common,
    /// Clients at once.
    #[arg(long, default_value_t = 200)]
    clients: u32,
    /// Keys that they read.
    #[arg(long, default_value_t = 20)]
    keys: u32,
    /// Seconds for each of the four ways; more than ten, so that leases are given a second time.
    #[arg(long, default_value_t = 12)]
    seconds: u64,
}

#[derive(Debug, Args)]
struct UdpArgs {
    #[command(flatten)]
    common: Common,
    /// Rounds, each of which measures every way of asking once.
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Length of one measurement.
    #[arg(long, default_value_t = 0.5)]
    seconds: f64,
    /// Sizes of values; the paper's is 32.
    #[arg(long, value_delimiter = ',', default_value = "32")]
    value_bytes: Vec<usize>,
    /// Requests outstanding.
    #[arg(long, default_value_t = 50)]
    outstanding: usize,
    /// Keys stored before measuring.
    #[arg(long, default_value_t = 100_000)]
    keys: u32,
}

#[derive(Debug, Args)]
struct RouterArgs {
    /// Workers of each proxy. One has a core of its own, beside the generator and the servers on
    /// the other; more share both cores with them. twemproxy has one thread, so as many processes
    /// of it share a port.
    #[arg(long, default_value_t = 2)]
    workers: usize,
    /// Limit each proxy, with all its workers, to this percentage of a processor, by a control
    /// group (as root), so that neither the generator nor the servers are the bottleneck. Latencies
    /// then mean nothing.
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(5..=400))]
    share: Option<u32>,
    /// A memcached with its own proxy (1.6.23 or later, built with it) to compare with, too.
    #[arg(long, value_name = "PROGRAM")]
    memcached_proxy: Option<PathBuf>,
    /// Only these kinds of load.
    #[arg(long, value_delimiter = ',', default_value = "get-1,get-16,multiget-24,set-16")]
    only: Vec<String>,
    /// Rounds, each of which measures every proxy once.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Length of one measurement.
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// Connections at once.
    #[arg(long, default_value_t = 50)]
    connections: usize,
    /// One short round: shows that everything runs, measures nothing worth keeping.
    #[arg(long)]
    quick: bool,
    /// Folder for the results.
    #[arg(long, default_value = "target/bench")]
    out: PathBuf,
}

#[derive(Debug, Args)]
struct MemoryArgs {
    #[command(flatten)]
    common: Common,
    /// Memory limit of the servers.
    #[arg(long, default_value_t = 1024)]
    megabytes: u32,
    /// Sizes of values.
    #[arg(long, value_delimiter = ',', default_value = "64,256,1024")]
    value_bytes: Vec<usize>,
}

#[derive(Debug, Args)]
struct RestartArgs {
    /// Folder for the results.
    #[arg(long, default_value = "target/bench")]
    out: PathBuf,
    /// Folder for the memory file.
    #[arg(long, default_value = "/dev/shm")]
    folder: PathBuf,
    /// Memory limit of the server.
    #[arg(long, default_value_t = 4096)]
    megabytes: u32,
    /// Sizes of values.
    #[arg(long, value_delimiter = ',', default_value = "64,1024")]
    value_bytes: Vec<usize>,
}

fn main() -> ExitCode {
    let done = match Cli::parse().measurement {
        Measurement::Server(args) => server(args),
        Measurement::Router(args) => router(&args),
        Measurement::Memory(args) => memory(&args),
        Measurement::Udp(args) => udp(&args),
        Measurement::Instructions(args) => count_instructions(&args),
        Measurement::Keys(args) => keys(&args),
        Measurement::Restart(args) => restart(&args),
        Measurement::Herd(args) => herd(&args),
        Measurement::Transient(args) => args.measure("transient.md", |plan, servers| {
            transient::run(plan, &Variant::all(servers), |what| eprintln!("{what}"))
        }),
        Measurement::Shift(args) => args.measure("shift.md", |plan, servers| {
            size_shift::run(plan, servers, |what| eprintln!("{what}"))
        }),
        Measurement::Expiry(args) => args.measure("expiry.md", |plan, servers| {
            expiry::run(plan, servers, pin_generator()?, |what| eprintln!("{what}"))
        }),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("server-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn server(args: ServerArgs) -> Result<()> {
    let server_core = pin_generator()?;
    let mut plan = Plan {
        servers: args.common.servers(false)?,
        only: args.only,
        value_bytes: args.value_bytes,
        rounds: args.rounds.max(1),
        round: Duration::try_from_secs_f64(args.seconds).context("--seconds")?,
        connections: args.connections.max(1),
        keys: args.keys.clamp(1, 99_999_999),
        server_core,
        polls: args.poll,
    };
    if args.quick {
        plan.rounds = 1;
        plan.round = Duration::from_millis(100);
        plan.keys = plan.keys.min(10_000);
    }
    let outcomes = compare::run(&plan, |what| eprintln!("{what}"))?;
    let table = report::markdown(&outcomes);
    args.common.save("server.json", &report::json(&outcomes))?;
    args.common.save("server.md", &table)?;
    print!("{table}");
    Ok(())
}

fn restart(args: &RestartArgs) -> Result<()> {
    let holdall = std::env::current_exe()?.with_file_name("holdall");
    let mut all = Vec::new();
    for &value_bytes in &args.value_bytes {
        eprintln!("values of {value_bytes} bytes");
        all.push(restart::measure(&holdall, &args.folder, args.megabytes, value_bytes)?);
    }
    let table = restart::markdown(&all, args.megabytes);
    fs::create_dir_all(&args.out)?;
    fs::write(args.out.join("restart.md"), &table)?;
    print!("{table}");
    Ok(())
}

fn udp(args: &UdpArgs) -> Result<()> {
    let plan = UdpPlan {
        servers: args.common.servers(true)?,
        value_bytes: args.value_bytes.clone(),
        rounds: args.rounds.max(1),
        round: Duration::try_from_secs_f64(args.seconds).context("--seconds")?,
        outstanding: args.outstanding.clamp(1, 256),
        keys: args.keys.clamp(1, 99_999_999),
        server_core: pin_generator()?,
    };
    let table = udp_compare::run(&plan, |what| eprintln!("{what}"))?;
    args.common.save("udp.md", &table)?;
    print!("{table}");
    Ok(())
}

/// Counts, then compares with the recorded figures or records the new ones.
fn count_instructions(args: &InstructionsArgs) -> Result<()> {
    let beside = std::env::current_exe()?.with_file_name("holdall");
    let holdall = args.holdall.as_ref().unwrap_or(&beside);
    let figures = instructions::measure(holdall, &args.out)?;
    let text = instructions::to_text(&figures);
    print!("{text}");
    if args.record {
        let text = format!("{INSTRUCTIONS_HEAD}{text}");
        return fs::write(&args.recorded, text)
            .with_context(|| args.recorded.display().to_string());
    }
    let recorded =
        fs::read_to_string(&args.recorded).with_context(|| args.recorded.display().to_string())?;
    let recorded = instructions::from_text(&recorded)?;
    let complaints = instructions::risen(&figures, &recorded, args.tolerance / 100.0);
    anyhow::ensure!(complaints.is_empty(), "{}", complaints.join("; "));
    Ok(())
}

/// The first lines of the file of recorded figures.
const INSTRUCTIONS_HEAD: &str = "\
# Instructions a request (multiget-key: a key) of the packages' static binary. `cargo xtask test`
# fails where one has risen by more than a tenth. `server-bench instructions --holdall BINARY
# --record` writes this file anew; say in the commit why a figure rose.
";

fn keys(args: &KeysArgs) -> Result<()> {
    let plan = KeySpacePlan {
        servers: args.common.servers(false)?,
        keys: args.keys.clamp(1, 99_999_999),
        value_bytes: 64,
        rounds: args.rounds.max(1),
        round: Duration::try_from_secs_f64(args.seconds).context("--seconds")?,
        connections: 50,
        server_core: pin_generator()?,
    };
    let table = key_space::run(&plan, |what| eprintln!("{what}"))?;
    args.common.save("keys.md", &table)?;
    print!("{table}");
    Ok(())
}

fn herd(args: &HerdArgs) -> Result<()> {
    let servers = args.common.servers(false)?;
    let server =
        servers.into_iter().find(|server| ![MEMCACHED, DO_NOTHING].contains(&&*server.name));
    let plan = HerdPlan {
        server: server.context("no server that knows leases")?,
        clients: args.clients.max(1),
        keys: args.keys.max(1),
        invalidate_every: Duration::from_millis(100),
        database: Duration::from_millis(5),
        pause: Duration::from_millis(10),
        length: Duration::from_secs(args.seconds.max(1)),
    };
    let table = thundering_herd::run(&plan, |what| eprintln!("{what}"))?;
    args.common.save("herd.md", &table)?;
    print!("{table}");
    Ok(())
}

/// Pins the generator to its own core if there are two, and returns the core for the servers.
fn pin_generator() -> Result<Option<usize>> {
    let cores = std::thread::available_parallelism()?.get();
    let server_core = (cores > 1).then_some(0);
    if server_core.is_some() {
        confine_to(1)?;
    } else {
        eprintln!("one core only: servers and generator share it, ratios mean little");
    }
    Ok(server_core)
}

/// [`RouterArgs::workers`] describes the assignment of cores.
fn router(args: &RouterArgs) -> Result<()> {
    let server_core = (args.workers == 1).then_some(0);
    if server_core.is_some() {
        confine_to(1)?;
    }
    let exe = std::env::current_exe()?;
    let folder = exe.parent().unwrap_or_else(|| Path::new("."));
    let servers = [routed::server(folder)?, routed::server(folder)?];
    let addresses = servers.each_ref().map(|server| server.address);
    let configs = routed::Configs::write(&addresses)?;
    let mut proxies = configs.proxies(folder, args.workers, args.memcached_proxy.as_deref());
    // Removed after the proxies have ended.
    let mut quotas = Vec::new();
    if let Some(percent) = args.share {
        for (number, proxy) in proxies.iter_mut().enumerate() {
            let quota = Quota::new(&number.to_string(), percent)?;
            *proxy = routed::within(&quota, proxy);
            quotas.push(quota);
        }
    }
    let plan = Plan {
        servers: proxies,
        only: args.only.clone(),
        value_bytes: vec![64],
        rounds: if args.quick { 1 } else { args.rounds.max(1) },
        round: if args.quick {
            Duration::from_millis(100)
        } else {
            Duration::try_from_secs_f64(args.seconds).context("--seconds")?
        },
        connections: args.connections.max(1),
        keys: 20_000,
        server_core,
        polls: false,
    };
    let outcomes = compare::run(&plan, |what| eprintln!("{what}"))?;
    let table = routed::markdown(&outcomes);
    fs::create_dir_all(&args.out)?;
    fs::write(args.out.join("router.md"), &table)?;
    print!("{table}");
    Ok(())
}

fn confine_to(core: usize) -> Result<()> {
    let mut own = rustix::thread::CpuSet::new();
    own.set(core);
    rustix::thread::sched_setaffinity(None, &own).context("cannot run on one core")
}

fn memory(args: &MemoryArgs) -> Result<()> {
    let mut all = Vec::new();
    for &value_bytes in &args.value_bytes {
        for server in args.common.servers(false)? {
            if server.name == DO_NOTHING {
                continue;
            }
            eprintln!("{value_bytes} bytes, {}", server.name);
            all.push(memory::measure(&server, args.megabytes, value_bytes)?);
        }
    }
    let table = memory::markdown(&all);
    args.common.save("memory.md", &table)?;
    print!("{table}");
    Ok(())
}

impl<P: Args> CacheArgs<P> {
    /// Saves and prints the table that `run` makes of the servers other than the do-nothing server.
    fn measure(&self, name: &str, run: impl FnOnce(&P, &[Server]) -> Result<String>) -> Result<()> {
        let mut servers = self.common.servers(false)?;
        servers.retain(|server| server.name != DO_NOTHING);
        let table = run(&self.plan, &servers)?;
        self.common.save(name, &table)?;
        print!("{table}");
        Ok(())
    }
}

impl Common {
    fn servers(&self, with_udp: bool) -> Result<Vec<Server>> {
        if !self.servers.is_empty() {
            return Ok(self.servers.clone());
        }
        let exe = std::env::current_exe()?;
        let mut servers = servers::usual(exe.parent().unwrap_or_else(|| Path::new(".")), with_udp);
        servers.retain(|server| !self.without.contains(&server.name));
        Ok(servers)
    }

    fn save(&self, name: &str, text: &str) -> Result<()> {
        let path = self.out.join(name);
        fs::create_dir_all(&self.out)
            .and_then(|()| fs::write(&path, text))
            .with_context(|| path.display().to_string())
    }
}
