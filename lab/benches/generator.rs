//! One thread of `holdall bench run` compared with a minimal loop for the same load:
//! `cargo xtask bench generator`.
//!
//! The loop draws a key for each get, writes a batch, counts the bytes of its replies and records
//! one latency per batch, without reading the replies. Both query the same do-nothing server on the
//! first processor, in turn, from the second.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "the result is for a reader")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bench::result::RunResult;
use clap::Parser;
use hdrhistogram::Histogram;
use lab::rng::Rng;
use lab::servers::{self, DO_NOTHING};
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::thread::{CpuSet, sched_setaffinity};

#[derive(Debug, Parser)]
struct Options {
    /// Where the programs are.
    #[arg(long, default_value = "target/release")]
    folder: PathBuf,
    /// Times that each is measured.
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// Seconds of a measurement.
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// Connections.
    #[arg(long, default_value_t = 50)]
    connections: usize,
    /// Requests of a connection that are sent together.
    #[arg(long, value_delimiter = ',', default_value = "1,16")]
    pipeline: Vec<usize>,
    /// Given by `cargo bench`.
    #[arg(long, hide = true)]
    bench: bool,
}

/// Keys in the key space.
const KEYS: u32 = 100_000;

/// The reply of the do-nothing server for one key, in bytes.
const REPLY_BYTES: usize = "VALUE key:000000000000 0 64\r\n\r\nEND\r\n".len() + 64;

fn main() -> Result<()> {
    let options = Options::parse();
    let mut own = CpuSet::new();
    own.set(1);
    sched_setaffinity(None, &own).context("two processors are needed")?;
    let servers = servers::usual(&options.folder, false);
    let nothing = servers.iter().find(|server| server.name == DO_NOTHING);
    let server = nothing.context("no do-nothing server")?.start(64, Some(0))?;
    println!("| pipeline | loop, thousand/s | generator, thousand/s | generator to loop |");
    println!("| ---: | ---: | ---: | --- |");
    for &depth in &options.pipeline {
        let (mut loops, mut generators, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        for round in 0..options.rounds.max(1) {
            // Each goes first in every second round.
            let (mut by_loop, mut by_generator) = (0.0, 0.0);
            for turn in 0..2 {
                if (round + turn) % 2 == 0 {
                    by_loop = least_loop(server.address, depth, &options)?;
                } else {
                    by_generator = generator(server.address, depth, &options)?;
                }
            }
            eprintln!("{depth}: loop {by_loop:.0}, generator {by_generator:.0} a second");
            loops.push(by_loop);
            generators.push(by_generator);
            ratios.push(by_generator / by_loop);
        }
        let (least, most) = (sorted(&mut ratios)[0], ratios[ratios.len() - 1]);
        println!(
            "| {depth} | {:.1} | {:.1} | {:.3} ({least:.3}..{most:.3}) |",
            median(&mut loops) / 1e3,
            median(&mut generators) / 1e3,
            median(&mut ratios)
        );
    }
    Ok(())
}

fn sorted(values: &mut [f64]) -> &[f64] {
    values.sort_by(f64::total_cmp);
    values
}

fn median(values: &mut [f64]) -> f64 {
    let values = sorted(values);
    f64::midpoint(values[(values.len() - 1) / 2], values[values.len() / 2])
}

/// Gets per second of `holdall bench run`, as a user runs it.
fn generator(address: SocketAddr, depth: usize, options: &Options) -> Result<f64> {
    let kept = std::env::temp_dir().join(format!("generator-{}.json", std::process::id()));
    let mut command = Command::new(options.folder.join("holdall"));
    command.args(["bench", "run", "--ratio", "0:1", "--warm-up", "0.2", "--json"]).arg(&kept);
    command.args(["-s", &address.to_string(), "--keys", &KEYS.to_string()]);
    command.args(["-c", &options.connections.to_string(), "--pipeline", &depth.to_string()]);
    command.args(["--time", &options.seconds.to_string()]);
    let output = command.output().context("holdall bench run")?;
    let result = read(&kept);
    let _ = std::fs::remove_file(&kept);
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(result?.gets.rate)
}

fn read(kept: &Path) -> Result<RunResult> {
    RunResult::read(&std::fs::read_to_string(kept)?)
}

struct Conn {
    stream: TcpStream,
    sent: Instant,
    missing: usize,
}

/// Gets per second of the loop.
fn least_loop(address: SocketAddr, depth: usize, options: &Options) -> Result<f64> {
    let poller = epoll::create(CreateFlags::CLOEXEC)?;
    let mut conns = Vec::new();
    for index in 0..options.connections.max(1) {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        epoll::add(&poller, &stream, EventData::new_u64(index as u64), EventFlags::IN)?;
        conns.push(Conn { stream, sent: Instant::now(), missing: 0 });
    }
    let (mut rng, mut request) = (Rng::new(1), b"get key:000000000000\r\n".repeat(depth));
    let mut latency = Histogram::<u64>::new_with_bounds(100, 600_000_000_000, 3)?;
    let mut events: Vec<Event> = Vec::with_capacity(conns.len());
    let mut buffer = vec![0; 256 * 1024];
    let warm = Instant::now() + Duration::from_millis(200);
    let end = warm + Duration::try_from_secs_f64(options.seconds)?;
    let (mut gets, mut now) = (0_u64, Instant::now());
    for conn in &mut conns {
        conn.send(&mut request, &mut rng, now)?;
    }
    while now < end {
        events.clear();
        epoll::wait(&poller, rustix::buffer::spare_capacity(&mut events), None)?;
        now = Instant::now();
        for event in &events {
            let conn = &mut conns[usize::try_from(event.data.u64())?];
            let came = conn.stream.read(&mut buffer)?;
            ensure!(came > 0 && came <= conn.missing, "not the reply that was asked for");
            conn.missing -= came;
            if conn.missing == 0 {
                let nanos = u64::try_from((now - conn.sent).as_nanos())?;
                if now >= warm {
                    gets += depth as u64;
                    latency.saturating_record_n(nanos, depth as u64);
                }
                conn.send(&mut request, &mut rng, now)?;
            }
        }
    }
    #[allow(clippy::cast_precision_loss, reason = "gets of a second")]
    let rate = gets as f64 / (now - warm).as_secs_f64();
    Ok(rate)
}

impl Conn {
    /// The socket takes a batch whole, since it is small and no reply is outstanding.
    fn send(&mut self, request: &mut [u8], rng: &mut Rng, now: Instant) -> Result<()> {
        let mut gets = 0;
        for get in request.chunks_exact_mut("get key:000000000000\r\n".len()) {
            let mut key = rng.below(KEYS);
            for digit in get[14..20].iter_mut().rev() {
                *digit = b'0' + u8::try_from(key % 10)?;
                key /= 10;
            }
            gets += 1;
        }
        (self.sent, self.missing) = (now, gets * REPLY_BYTES);
        Ok(self.stream.write_all(request)?)
    }
}
