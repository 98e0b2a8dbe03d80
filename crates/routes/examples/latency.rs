//! The latency of a get: by UDP directly from the library, by TCP through a router, and the
//! combinations (figure 3 of the paper).
//!
//! `latency [NAME=ADDRESS[/udp]].. [--gets N]`: asks each path in turn, one get at a time, and
//! prints mean, median, p95 and p99 of each in microseconds. `cargo xtask bench udp` starts
//! everything it needs.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a measurement stops where it fails")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use routes::route::DestinationRoute;
use routes::{Core, Submitted, Tree};
use upstream::{Command, Outcome, Registry, Reply, Request, Settings, Sink, Ticket, Upstream};

/// The number of keys, and the bytes of each value.
const KEYS: usize = 1000;
const VALUE_BYTES: usize = 100;

#[derive(Default)]
struct Last(Option<Outcome>);

impl Sink for Last {
    fn answer(&mut self, _ticket: Ticket, reply: &Reply<'_>) {
        self.0 = Some(reply.outcome);
    }
}

struct Way {
    name: String,
    core: Core,
    times_us: Vec<f64>,
    failed: u32,
}

impl Way {
    fn new(text: &str) -> Self {
        let (name, address) = text.split_once('=').unwrap();
        let (address, udp) = address.split_once('/').map_or((address, ""), |both| both);
        let address: SocketAddr = address.parse().unwrap();
        let udp_gets = (udp == "udp").then(|| Duration::from_millis(50));
        let settings = Settings { udp_gets, ..Settings::default() };
        let upstream = Upstream::new(0, Registry::default(), Instant::now()).unwrap();
        let core = Core::new(upstream, 1, 2, |upstream| {
            let id = upstream.destination(&address.into(), &settings);
            let root = Arc::new(DestinationRoute {
                id,
                label: address.to_string().into(),
                asynclog: None,
                keeps_prefix: false,
                shadows: Default::default(),
            });
            Tree { root, destinations: vec![id], keeps_prefixes: false }
        });
        let (times_us, failed) = (Vec::new(), 0);
        Self { name: name.to_owned(), core: core.unwrap(), times_us, failed }
    }

    fn ask(&mut self, request: &Request<'_>) -> Outcome {
        let mut last = Last::default();
        self.core.turn(Instant::now());
        if let Submitted::Done(reply) = self.core.submit(request, 1) {
            return reply.outcome;
        }
        self.core.settle(&mut last);
        while last.0.is_none() {
            let poller = self.core.poller();
            let flags = rustix::event::PollFlags::IN;
            let mut fds = [rustix::event::PollFd::from_borrowed_fd(poller, flags)];
            let wait = rustix::time::Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
            rustix::event::poll(&mut fds, Some(&wait)).unwrap();
            self.core.turn(Instant::now());
            self.core.on_events(&mut last);
            self.core.settle(&mut last);
        }
        last.0.unwrap()
    }
}

fn main() {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut gets = 20_000;
    if let Some(at) = arguments.iter().position(|word| word == "--gets") {
        gets = arguments[at + 1].parse().unwrap();
        arguments.drain(at..at + 2);
    }
    let mut ways: Vec<Way> = arguments.iter().map(|text| Way::new(text)).collect();
    let value = vec![b'v'; VALUE_BYTES];
    for number in 0..KEYS {
        let key = format!("key:{number}");
        let set = Request { value: &value, ..Request::new(Command::Set, key.as_bytes()) };
        for way in &mut ways {
            assert_eq!(way.ask(&set), Outcome::Stored, "{}", way.name);
        }
    }
    for number in 0..gets + gets / 10 {
        let key = format!("key:{}", number * 7919 % KEYS);
        for way in &mut ways {
            let began = Instant::now();
            let outcome = way.ask(&Request::new(Command::Get, key.as_bytes()));
            let took = began.elapsed();
            // The first tenth warms up.
            if number >= gets / 10 {
                way.times_us.push(took.as_secs_f64() * 1e6);
                way.failed += u32::from(outcome != Outcome::Found);
            }
        }
    }
    println!(
        "{:24} {:>8} {:>8} {:>8} {:>8} {:>7}",
        "way", "mean us", "p50", "p95", "p99", "failed"
    );
    for way in &mut ways {
        way.times_us.sort_by(f64::total_cmp);
        let at = |share: usize| way.times_us[(way.times_us.len() - 1) * share / 100];
        let mean = way.times_us.iter().sum::<f64>() / way.times_us.len() as f64;
        let (p50, p95, p99) = (at(50), at(95), at(99));
        println!("{:24} {mean:8.1} {p50:8.1} {p95:8.1} {p99:8.1} {:7}", way.name, way.failed);
    }
}
