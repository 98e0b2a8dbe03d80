//! The open loop against servers that are slow, that stall and that disconnect: due requests count,
//! at the server for which they were due.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, SocketAddr, TcpListener};
use std::thread;
use std::time::Duration;

use bench::result::RunResult;
use generator::spec::{Arrival, Pace, Ratio, Spec, Target};
use generator::{Outcome, Progress, run};

/// Answers each request with a miss after `delay`, on each connection independently.
fn server(delay: Duration) -> SocketAddr {
    serving(move |stream| {
        for _ in BufReader::new(stream).lines().map_while(Result::ok) {
            thread::sleep(delay);
            if (&*stream).write_all(b"END\r\n").is_err() {
                return;
            }
        }
    })
}

/// Answers nothing, and closes each connection after a while.
fn silent(patience: Duration) -> SocketAddr {
    serving(move |stream| {
        thread::sleep(patience);
        let _ = stream.shutdown(Shutdown::Both);
    })
}

fn serving(serve: impl Fn(&std::net::TcpStream) + Clone + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let serve = serve.clone();
            thread::spawn(move || serve(&stream));
        }
    });
    address
}

fn spec(servers: &[SocketAddr], rate: f64) -> Spec {
    Spec {
        targets: servers.iter().map(|at| Target::Tcp(at.to_string(), *at)).collect(),
        connections: 2,
        ratio: Ratio { sets: 0, gets: 1 },
        pace: Pace::Open { rate, arrival: Arrival::Fixed },
        seconds: 1.0,
        warm_up: 0.0,
        ..Spec::default()
    }
}

fn doubts(spec: &Spec, outcome: &Outcome) -> Vec<String> {
    RunResult::new(spec, outcome, (None, None), 0).unwrap().doubts()
}

#[test]
fn the_reported_rate_is_the_servers_rate() {
    // Two connections with 20 ms each answer at most a hundred per second.
    let spec = spec(&[server(Duration::from_millis(20))], 300.0);
    let outcome = run(&spec, &Progress::default()).unwrap();
    let result = RunResult::new(&spec, &outcome, (None, None), 0).unwrap();
    assert_eq!((result.total.requests, result.unanswered, result.seconds), (300, 0, 1.0));
    assert!(result.total.rate <= 102.0, "{} a second", result.total.rate);
    assert_eq!(result.series.iter().map(|second| second.requests).sum::<u64>(), {
        outcome.record.gets.in_time
    });
    assert!(result.whole_seconds() > 2.9, "the last reply came in second 3: {result:?}");
    let doubts = result.doubts();
    assert!(doubts.iter().any(|doubt| doubt.starts_with("the rate was not reached")), "{doubts:?}");
    // The server kept them waiting, not the generator.
    assert!(!doubts.iter().any(|doubt| doubt.contains("the generator was late")), "{doubts:?}");
}

#[test]
fn waiting_for_a_connection_is_not_generator_lag() {
    // The only connection is busy half of the time, and requests queue for it.
    let spec = Spec {
        connections: 1,
        pace: Pace::Open { rate: 50.0, arrival: Arrival::Poisson },
        seconds: 2.0,
        ..spec(&[server(Duration::from_millis(10))], 50.0)
    };
    let outcome = run(&spec, &Progress::default()).unwrap();
    assert!(outcome.record.gets.latency.max() > outcome.record.gets.service.min());
    assert!(
        outcome.record.lag.len() < outcome.record.gets.requests,
        "each of {} requests found a free connection",
        outcome.record.gets.requests
    );
}

#[test]
fn requests_due_at_a_stalled_server_stay_due_there() {
    let servers = [server(Duration::ZERO), silent(Duration::from_millis(700))];
    let spec = spec(&servers, 1000.0);
    let outcome = run(&spec, &Progress::default()).unwrap();
    assert!(outcome.failure.is_some());
    // Half of the keys are the second server's, although it has only two connections.
    #[allow(clippy::cast_precision_loss, reason = "small")]
    let (unanswered, due) = (outcome.record.unanswered as f64, due(&outcome) as f64);
    assert!((0.4..0.6).contains(&(unanswered / due)), "{unanswered} of {due}");
}

#[test]
fn due_requests_count_if_the_server_disconnects() {
    let spec = spec(&[silent(Duration::from_millis(500))], 1000.0);
    let outcome = run(&spec, &Progress::default()).unwrap();
    assert!(outcome.failure.is_some());
    let record = &outcome.record;
    #[allow(clippy::cast_precision_loss, reason = "small")]
    let unanswered = record.unanswered as f64;
    assert!((unanswered - outcome.elapsed * 1000.0).abs() < 5.0, "{unanswered}: {outcome:?}");
    assert_eq!((record.gets.requests, record.gets.latency.len()), (0, record.unanswered));
    // They waited for half of the time on average.
    #[allow(clippy::cast_precision_loss, reason = "small")]
    let median = record.gets.latency.value_at_percentile(50.0) as f64 / 1e9;
    assert!((median / outcome.elapsed - 0.5).abs() < 0.05, "{median} of {}", outcome.elapsed);
    let doubts = doubts(&spec, &outcome);
    assert!(doubts.iter().any(|doubt| doubt.starts_with("the run ended early")), "{doubts:?}");
}

#[test]
fn a_hot_key_is_requested_only_from_its_server() {
    let servers = [server(Duration::ZERO), silent(Duration::from_secs(60))];
    let hot = Spec { pattern: "hot:1".parse().unwrap(), ..spec(&servers, 500.0) };
    let outcome = run(&hot, &Progress::default()).unwrap();
    // The key is the first server's.
    assert_eq!((outcome.failure.as_deref(), outcome.record.unanswered), (None, 0));
    assert_eq!(outcome.record.gets.requests, 500);
}

fn due(outcome: &Outcome) -> u64 {
    outcome.record.gets.requests + outcome.record.unanswered
}

#[test]
fn a_closed_loop_records_seconds_without_replies() {
    let spec = Spec {
        pace: Pace::Closed,
        seconds: 9.0,
        ..spec(&[silent(Duration::from_millis(2300))], 1.0)
    };
    let outcome = run(&spec, &Progress::default()).unwrap();
    assert!(outcome.seconds >= 2.0);
    let requests: Vec<u64> = outcome.record.seconds.iter().map(|second| second.requests).collect();
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small")]
    let whole = outcome.seconds as usize;
    assert_eq!(requests, vec![0; whole]);
}
