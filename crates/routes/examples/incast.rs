//! Multigets of many keys over many servers, by UDP, with several window widths (figure 4 of the
//! paper).
//!
//! `incast ADDRESS:FIRST_PORT SERVERS KEYS VALUE_BYTES ROUNDS WINDOW..`, where a window is a number
//! or `adaptive`. For each window it prints how long a multiget takes until its last key has
//! arrived or is lost, and how many keys were lost. `cargo xtask bench window` makes the servers
//! and the link.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a measurement stops where it fails")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use routes::route::{DestinationRoute, RouteRef, Select, Selecting};
use routes::{Context, Core, Submitted, Tree};
use upstream::{
    Command, Failure, Outcome, Registry, Reply, Request, Settings, Sink, Ticket, Upstream, Window,
};

/// A get that takes longer is lost.
const LOST_AFTER: Duration = Duration::from_millis(20);

#[derive(Default)]
struct Got {
    found: usize,
    lost: usize,
    missed: usize,
}

impl Sink for Got {
    fn answer(&mut self, _ticket: Ticket, reply: &Reply<'_>) {
        match reply.outcome {
            Outcome::Found | Outcome::Stored => self.found += 1,
            Outcome::Failed(Failure::Timeout | Failure::RemoteError) => self.lost += 1,
            _ => self.missed += 1,
        }
    }
}

impl Got {
    fn all(&self) -> usize {
        self.found + self.lost + self.missed
    }
}

/// Chooses by the number in the key.
#[derive(Debug)]
struct ByNumber(Vec<RouteRef>);

impl Select for ByNumber {
    fn name(&self) -> String {
        "by-number".to_owned()
    }

    fn select(&self, _cx: &Context, request: &mut Request<'_>) -> &RouteRef {
        let digits = std::str::from_utf8(&request.key[1..]).unwrap();
        &self.0[digits.parse::<usize>().unwrap() % self.0.len()]
    }
}

fn core(first: SocketAddr, servers: u16, window: Option<Window>) -> Core {
    let settings = Settings { udp_gets: Some(LOST_AFTER), ..Settings::default() };
    let mut upstream = Upstream::new(0, Registry::default(), Instant::now()).unwrap();
    if let Some(window) = window {
        upstream.set_window(window);
    }
    let core = Core::new(upstream, 1, 2, |upstream| {
        let ids = (0..servers).map(|number| {
            let address = SocketAddr::new(first.ip(), first.port() + number);
            upstream.destination(&address.into(), &settings)
        });
        let ids: Vec<_> = ids.collect();
        let routes = ids.iter().map(|id| -> RouteRef {
            Arc::new(DestinationRoute {
                id: *id,
                label: "".into(),
                asynclog: None,
                keeps_prefix: false,
                shadows: Default::default(),
            })
        });
        let root = Arc::new(Selecting(ByNumber(routes.collect())));
        Tree { root, destinations: ids, keeps_prefixes: false }
    });
    core.unwrap()
}

/// Asks for all keys, and waits for all answers.
fn round(core: &mut Core, keys: &[String], op: Command, value: &[u8]) -> (Duration, Got) {
    let (began, mut got) = (Instant::now(), Got::default());
    core.turn(began);
    for key in keys {
        let request = Request { value, ..Request::new(op, key.as_bytes()) };
        if let Submitted::Done(_) = core.submit(&request, 1) {
            got.missed += 1;
        }
    }
    core.settle(&mut got);
    while got.all() < keys.len() {
        let flags = rustix::event::PollFlags::IN;
        let mut fds = [rustix::event::PollFd::from_borrowed_fd(core.poller(), flags)];
        let wait = core.deadline().map_or(Duration::from_millis(1), |end| {
            end.saturating_duration_since(Instant::now()).min(Duration::from_millis(1))
        });
        let wait = rustix::time::Timespec::try_from(wait).unwrap();
        rustix::event::poll(&mut fds, Some(&wait)).unwrap();
        core.turn(Instant::now());
        core.on_events(&mut got);
        core.settle(&mut got);
    }
    (began.elapsed(), got)
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let first: SocketAddr = words[0].parse().unwrap();
    let (servers, keys): (u16, usize) = (words[1].parse().unwrap(), words[2].parse().unwrap());
    let (bytes, rounds): (usize, usize) = (words[3].parse().unwrap(), words[4].parse().unwrap());
    let keys: Vec<String> = (0..keys).map(|number| format!("k{number}")).collect();
    let value = vec![b'v'; bytes];
    let (_, stored) = round(&mut core(first, servers, None), &keys, Command::Set, &value);
    assert_eq!(stored.found, keys.len(), "not all could be stored");
    println!("| window | mean ms | p50 | p95 | keys lost in 1,000 | width at the end |");
    println!("| --- | --- | --- | --- | --- | --- |");
    for name in &words[5..] {
        let window = match name.parse() {
            Ok(width) => Window::Fixed(width),
            Err(_) => Window::Adaptive,
        };
        let mut core = core(first, servers, Some(window));
        let (mut times, mut lost, mut missed) = (Vec::new(), 0, 0);
        for number in 0..rounds + rounds / 4 {
            let (took, got) = round(&mut core, &keys, Command::Get, b"");
            // The first rounds find the width.
            if number >= rounds / 4 {
                times.push(took.as_secs_f64() * 1000.0);
                lost += got.lost;
                missed += got.missed;
            }
        }
        assert_eq!(missed, 0, "evicted or refused");
        times.sort_by(f64::total_cmp);
        let at = |share: usize| times[(times.len() - 1) * share / 100];
        let mean = times.iter().sum::<f64>() / times.len() as f64;
        let share = lost as f64 * 1000.0 / (keys.len() * times.len()) as f64;
        let width = core.context().window().map_or(0.0, |(width, _, _)| width);
        println!(
            "| {name} | {mean:.2} | {:.2} | {:.2} | {share:.2} | {width:.0} |",
            at(50),
            at(95)
        );
    }
}
