//! `lab gather`: the processor time of a reply whose values are copied behind their headers,
//! compared with one whose values the kernel gathers in place (`sendmsg` with a slice for each).
//!
//! The values are scattered over a gigabyte, so most are in no processor cache, as in a store. Both
//! ways send the same bytes over loopback to a thread that reads and discards them.

use std::io::{IoSlice, Read};
use std::net::{TcpListener, TcpStream};
use std::process::ExitCode;
use std::thread;

use anyhow::{Result, ensure};
use clap::Parser;
use rand::{RngExt, SeedableRng, rngs::SmallRng};
use rustix::net::{SendAncillaryBuffer, SendFlags};
use rustix::time::{ClockId, clock_gettime};

/// Processor time of replies: values copied, beside values gathered by the kernel.
#[derive(Parser)]
#[command(name = "cargo xtask bench gather")]
struct Options {
    /// Rounds, in each of which both ways take their turn.
    #[arg(long, default_value_t = 10)]
    rounds: usize,
}

/// Values of a reply, and bytes of each.
const REPLIES: [(usize, usize); 10] = [
    (16, 512),
    (16, 1024),
    (24, 1024),
    (100, 1024),
    (16, 2048),
    (16, 4096),
    (16, 8192),
    (1, 16384),
    (1, 32768),
    (1, 131_072),
];

const MEMORY_BYTES: usize = 1 << 30;

/// Bytes that one way sends in a round.
const ROUND_BYTES: usize = 64 << 20;

const HEADER: &[u8] = b"VALUE key:0000000000000000000000000000 0 1024\r\n";
const TAIL: &[u8] = b"\r\nEND\r\n";

pub(super) fn run(args: &[String]) -> ExitCode {
    let name = String::from("cargo xtask bench gather");
    let options = Options::parse_from(std::iter::once(&name).chain(args));
    match compare(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lab: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn compare(options: &Options) -> Result<()> {
    let memory = vec![b'v'; MEMORY_BYTES];
    println!("| values | bytes | copied, ns a value | gathered, ns a value | ratio (spread) |");
    println!("| ---: | ---: | ---: | ---: | ---: |");
    for (count, bytes) in REPLIES {
        let mut sender = Sender::connect()?;
        let (mut copied, mut gathered, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        for round in 0..options.rounds {
            let replies = (ROUND_BYTES / (count * bytes)).max(1);
            let places = places(&memory, (count, bytes), replies, round as u64);
            let before = thread_nanos();
            places.chunks(count).try_for_each(|values| sender.copy(values))?;
            let between = thread_nanos();
            places.chunks(count).try_for_each(|values| sender.gather(values))?;
            let after = thread_nanos();
            copied.push((between - before) / places.len() as f64);
            gathered.push((after - between) / places.len() as f64);
            ratios.push((after - between) / (between - before));
        }
        let (least, ratio, greatest) = spread(ratios);
        println!(
            "| {count} | {bytes} | {:.0} | {:.0} | {ratio:.2} ({least:.2}..{greatest:.2}) |",
            spread(copied).1,
            spread(gathered).1,
        );
    }
    Ok(())
}

/// The values of all replies of a round, at random places in `memory`.
fn places(memory: &[u8], (count, bytes): (usize, usize), replies: usize, seed: u64) -> Vec<&[u8]> {
    let mut random = SmallRng::seed_from_u64(seed);
    let place = |_| {
        let at = random.random_range(0..memory.len() - bytes);
        &memory[at..at + bytes]
    };
    (0..count * replies).map(place).collect()
}

/// A connection whose other end reads and discards.
struct Sender {
    socket: TcpStream,
    scratch: Vec<u8>,
}

impl Sender {
    fn connect() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let socket = TcpStream::connect(listener.local_addr()?)?;
        socket.set_nodelay(true)?;
        let (mut reader, _) = listener.accept()?;
        thread::spawn(move || {
            let mut buffer = vec![0; 1 << 20];
            while reader.read(&mut buffer).is_ok_and(|count| count > 0) {}
        });
        Ok(Self { socket, scratch: Vec::new() })
    }

    fn copy(&mut self, values: &[&[u8]]) -> Result<()> {
        self.scratch.clear();
        for value in values {
            self.scratch.extend_from_slice(HEADER);
            self.scratch.extend_from_slice(value);
            self.scratch.extend_from_slice(TAIL);
        }
        let mut rest = &self.scratch[..];
        while !rest.is_empty() {
            let sent = rustix::net::send(&self.socket, rest, SendFlags::NOSIGNAL)?;
            rest = &rest[sent..];
        }
        Ok(())
    }

    fn gather(&mut self, values: &[&[u8]]) -> Result<()> {
        // The text between two values is contiguous, as in a server's buffer.
        self.scratch.clear();
        self.scratch.extend_from_slice(TAIL);
        self.scratch.extend_from_slice(HEADER);
        let between = &self.scratch[..];
        let mut slices = vec![IoSlice::new(HEADER)];
        for value in values {
            slices.extend([IoSlice::new(value), IoSlice::new(between)]);
        }
        slices.pop();
        slices.push(IoSlice::new(TAIL));
        let mut rest = &mut slices[..];
        while !rest.is_empty() {
            let mut control = SendAncillaryBuffer::default();
            let sent = rustix::net::sendmsg(&self.socket, rest, &mut control, SendFlags::NOSIGNAL)?;
            ensure!(sent > 0, "the connection has ended");
            IoSlice::advance_slices(&mut rest, sent);
        }
        Ok(())
    }
}

/// Processor time of this thread, in nanoseconds.
#[expect(clippy::cast_precision_loss, reason = "below 53 bits")]
fn thread_nanos() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// Minimum, median and maximum.
fn spread(mut numbers: Vec<f64>) -> (f64, f64, f64) {
    numbers.sort_by(f64::total_cmp);
    (numbers[0], numbers[numbers.len() / 2], numbers[numbers.len() - 1])
}
