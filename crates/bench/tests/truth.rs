//! The generator against servers whose delays are known: what it reports must be what was injected.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use bench::generator::spec::{Arrival, Pace, Ratio, Spec, Target};
use bench::generator::{Outcome, Progress, run};

/// Answers each get with a miss, after whatever `delay` says for the request that came as the nth on its connection.
fn server(
    delay: impl Fn(u64) -> Duration + Send + Sync + 'static,
) -> (SocketAddr, Arc<Mutex<Vec<u64>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let injected = Arc::new(Mutex::new(Vec::new()));
    let (delay, seen) = (Arc::new(delay), Arc::clone(&injected));
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let (delay, seen) = (Arc::clone(&delay), Arc::clone(&seen));
            thread::spawn(move || serve(&stream, &*delay, &seen));
        }
    });
    (address, injected)
}

fn serve(stream: &TcpStream, delay: &dyn Fn(u64) -> Duration, seen: &Mutex<Vec<u64>>) {
    let _ = stream.set_nodelay(true);
    for (count, line) in (0..).zip(BufReader::new(stream).lines().map_while(Result::ok)) {
        assert!(line.starts_with("get key:"), "{line}");
        let begun = Instant::now();
        thread::sleep(delay(count));
        // What was injected is what the sleep really took.
        seen.lock().unwrap().push(u64::try_from(begun.elapsed().as_nanos()).unwrap());
        if (&*stream).write_all(b"END\r\n").is_err() {
            return;
        }
    }
}

fn measured(address: SocketAddr, connections: usize, pace: Pace, seconds: f64) -> Outcome {
    let spec = Spec {
        targets: vec![Target::Tcp(address.to_string(), address)],
        connections,
        ratio: Ratio { sets: 0, gets: 1 },
        pace,
        seconds,
        warm_up: 0.0,
        ..Spec::default()
    };
    let outcome = run(&spec, &Progress::default()).unwrap();
    assert_eq!(outcome.failure, None);
    outcome
}

/// The value below which `share` of the sorted values lie.
fn quantile(sorted: &[u64], share: f64) -> f64 {
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "small"
    )]
    let at = (sorted.len() as f64 * share).ceil() as usize;
    #[allow(clippy::cast_precision_loss, reason = "nanoseconds of a short run")]
    let value = sorted[at.clamp(1, sorted.len()) - 1] as f64;
    value
}

#[test]
fn injected_delays_are_measured_within_three_percent() {
    // 30 ms, one in fifty 120 ms, one in two hundred 300 ms.
    let (address, injected) = server(|count| {
        Duration::from_millis(match count * 7 % 200 {
            0 => 300,
            n if n % 50 == 1 => 120,
            _ => 30,
        })
    });
    let open = Pace::Open { rate: 600.0, arrival: Arrival::Fixed };
    let outcome = measured(address, 100, open, 4.0);
    let latency = &outcome.record.gets.latency;
    let mut injected = injected.lock().unwrap().clone();
    injected.sort_unstable();
    assert!(latency.len() >= 2_300, "{} requests", latency.len());
    for share in [0.5, 0.99, 0.999] {
        let want = quantile(&injected, share);
        #[allow(clippy::cast_precision_loss, reason = "nanoseconds of a short run")]
        let got = latency.value_at_quantile(share) as f64;
        let apart = (got - want).abs() / want;
        assert!(apart < 0.03, "p{}: {got} where {want} was injected", share * 100.0);
    }
}

#[test]
fn a_stall_shows_in_the_open_loop_alone() {
    // Everything stands still in the first 100 ms of each second.
    let started = Instant::now();
    let (address, _) = server(move |_| {
        let into = started.elapsed().subsec_millis();
        if into < 100 {
            Duration::from_millis(u64::from(100 - into))
        } else {
            Duration::from_micros(500)
        }
    });
    let closed = measured(address, 4, Pace::Closed, 3.0);
    let open = Pace::Open { rate: 1000.0, arrival: Arrival::Poisson };
    let open = measured(address, 4, open, 3.0);
    let p99 = |outcome: &Outcome| outcome.record.gets.latency.value_at_percentile(99.0) / 1_000_000;
    assert!(p99(&closed) < 50, "closed loop: {} ms", p99(&closed));
    assert!(p99(&open) >= 80, "open loop: {} ms", p99(&open));
    let service = open.record.gets.service.value_at_percentile(99.0) / 1_000_000;
    assert!(service < p99(&open), "the service time leaves the waiting out: {service} ms");
}

#[test]
fn a_rate_that_is_not_served_is_said_to_be() {
    let (address, _) = server(|_| Duration::from_millis(20));
    let pace = Pace::Open { rate: 1000.0, arrival: Arrival::Fixed };
    let outcome = measured(address, 2, pace, 1.0);
    // Two connections with 20 ms each answer 100 a second; the others' waiting counts.
    assert!(outcome.record.gets.latency.value_at_percentile(50.0) > 300_000_000);
    assert!(outcome.record.gets.requests + outcome.record.unanswered >= 950);
}
