//! The cost of observation. One server and one proxy are scraped and export metrics each second,
//! with one request in 10,000 traced; another pair is not observed. Closed loops measure the
//! throughput of the pairs in turn. The table also has the program's own processor time per
//! request, which depends less on a machine's neighbours.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Parser;
use lab::compare::Spread;
use processes::usage::cpu_time_of_live_threads;

use crate::rig::{self, Running, free_port};

/// Throughput with metrics scraped and requests traced, beside throughput without.
#[derive(Parser)]
#[command(name = "cargo xtask bench telemetry")]
struct Options {
    /// Rounds, in each of which both take their turn.
    #[arg(long, default_value_t = 15)]
    rounds: usize,
    /// Seconds of each turn.
    #[arg(long, default_value = "2")]
    seconds: String,
}

/// The share of traced requests.
const ONE_IN: &str = "1/10000";

/// The environment of the observed pair: it exports each second.
const VARIABLES: [&str; 2] = ["OTEL_METRIC_EXPORT_INTERVAL=1000", "OTEL_BSP_SCHEDULE_DELAY=1000"];

pub(super) fn run(args: &[String]) -> ExitCode {
    let name = String::from("cargo xtask bench telemetry");
    let options = Options::parse_from(std::iter::once(&name).chain(args));
    rig::ended("telemetry", compare(&options))
}

/// A server and its proxy.
type Pair = [Program; 2];

struct Program {
    port: u16,
    pid: u32,
}

/// Requests per second, and microseconds of the program's processor time per request.
struct Turn {
    rate: f64,
    cpu_us: f64,
}

fn compare(options: &Options) -> Result<()> {
    rig::build(&["-p", "holdall"])?;
    let mut running = Running::new();
    let pairs = [pair(&mut running, None)?, pair(&mut running, Some(&collector()?))?];
    for [server, proxy] in &pairs {
        load(server, &["--preload", "--time", "0.3"])?;
        load(proxy, &["--time", "0.3"])?;
    }
    println!("| way | plain, gets/s | observed, gets/s | ratio (spread) | CPU, ratio (spread) |");
    println!("| --- | ---: | ---: | ---: | ---: |");
    for (way, name) in ["server", "proxy"].into_iter().enumerate() {
        let mut turns: [Vec<Turn>; 2] = Default::default();
        for round in 0..options.rounds {
            // The order alternates, so that a machine that slows down favours neither.
            for turn in [round % 2, 1 - round % 2] {
                turns[turn].push(load(&pairs[turn][way], &["--time", &options.seconds])?);
            }
        }
        let [plain, observed] = &turns;
        let of = |measure: fn(&Turn) -> f64| {
            let ratios =
                plain.iter().zip(observed).map(|(one, other)| measure(other) / measure(one));
            Spread::of(ratios).map_or_else(String::new, |spread| {
                format!("{:.3} ({:.3}..{:.3})", spread.median, spread.min, spread.max)
            })
        };
        let rate = |turns: &[Turn]| {
            Spread::of(turns.iter().map(|turn| turn.rate)).map_or(0.0, |spread| spread.median)
        };
        let (rates, cpu) = (of(|turn| turn.rate), of(|turn| turn.cpu_us));
        println!("| {name} | {:.0} | {:.0} | {rates} | {cpu} |", rate(plain), rate(observed));
    }
    Ok(())
}

/// Runs a closed loop of gets for some time.
fn load(program: &Program, words: &[&str]) -> Result<Turn> {
    let common = ["--ratio", "0:1", "--keys", "20000", "-t", "1", "-c", "50"];
    let address = format!("127.0.0.1:{}", program.port);
    let cpu = || cpu_time_of_live_threads(program.pid).context("the program has ended");
    let before = cpu()?;
    let row = rig::run(&[&["-s", &address], &common[..], words].concat())?;
    let used = cpu()?.saturating_sub(before);
    Ok(Turn { rate: row.per_second, cpu_us: used.as_secs_f64() * 1e6 / row.requests })
}

/// Starts a pair, observed if there is a collector.
fn pair(running: &mut Running, collector: Option<&str>) -> Result<Pair> {
    let (server, router) = (free_port()?, free_port()?);
    let config = format!(
        r#"{{"pools": {{"A": {{"servers": ["127.0.0.1:{server}"]}}}}, "route": "PoolRoute|A"}}"#
    );
    let (server_port, router_port) = (server.to_string(), router.to_string());
    let serve = ["serve", "-l", "127.0.0.1", "-p", &server_port, "-t", "1", "-u", "root"];
    let route = ["route", "--config", &config, "-p", &router_port, "--asynclog-disable"];
    let mut start = |words: &[&str], port, sampling: &[&str]| {
        let Some(collector) = collector else {
            return Ok(Program { port, pid: running.start(words, port)? });
        };
        let status = free_port()?;
        let address = format!("127.0.0.1:{status}");
        let program = rig::program("holdall").display().to_string();
        let observed = ["--metrics", &address, "--otlp", collector];
        let words = [&VARIABLES[..], &[&program], words, &observed, sampling].concat();
        // `env` executes the program, which keeps its id.
        let pid = running.start_program(&PathBuf::from("env"), &words, port)?;
        thread::spawn(move || scrape(status));
        anyhow::Ok(Program { port, pid })
    };
    Ok([start(&serve, server, &[])?, start(&route, router, &["--trace-sample", ONE_IN])?])
}

/// Reads the metrics page each second.
fn scrape(port: u16) {
    loop {
        if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) {
            let asked = stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
            let mut page = Vec::new();
            // A missing page favours the observed pair; the next page will come.
            let _ = asked.and_then(|()| stream.read_to_end(&mut page));
        }
        thread::sleep(Duration::from_secs(1));
    }
}

/// Starts a collector that discards its input. Returns its address.
fn collector() -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let url = format!("http://{}", listener.local_addr()?);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || take(stream));
        }
    });
    Ok(url)
}

/// Replies to requests until the other side closes. A request is complete at its declared length.
fn take(mut stream: TcpStream) {
    let (mut bytes, mut buffer) = (Vec::new(), vec![0; 1 << 16]);
    while let Ok(len @ 1..) = stream.read(&mut buffer) {
        bytes.extend_from_slice(&buffer[..len]);
        while let Some(end) = request_end(&bytes) {
            bytes.drain(..end);
            if stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").is_err() {
                return;
            }
        }
    }
}

/// The length of the request at the start of `bytes`, once it has arrived completely.
fn request_end(bytes: &[u8]) -> Option<usize> {
    let head = bytes.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let text = std::str::from_utf8(bytes.get(..head)?).ok()?.to_ascii_lowercase();
    let length = text.lines().find_map(|line| line.strip_prefix("content-length:"))?;
    let end = head + length.trim().parse::<usize>().ok()?;
    (bytes.len() >= end).then_some(end)
}
