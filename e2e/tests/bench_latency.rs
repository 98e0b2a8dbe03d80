//! `holdall bench` against servers with known delays: it must report the injected delays.
//!
//! `cargo xtask test` runs this file while nothing else runs.
//!
//! On a busy machine, every latency is longer than the injected delay. This extra time does not
//! grow with the delay, but an error of the generator would. So each test runs at one scale and, if
//! it fails there, again with times four and sixteen times as long. It fails if it fails at every
//! scale.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

#[path = "bench/measured.rs"]
mod measured;

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use measured::measured;

const SCALES: [u32; 3] = [1, 4, 16];

#[track_caller]
fn holds_at_some_scale(test: impl Fn(u32) -> Result<(), String>) {
    let mut complaints = Vec::new();
    for scale in SCALES {
        match test(scale) {
            Ok(()) => return,
            Err(complaint) => complaints.push(format!("times {scale}: {complaint}")),
        }
    }
    panic!("{}", complaints.join("\n"));
}

fn must(holds: bool, words: String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(words) }
}

/// A server that answers each get with a miss after `delay`, which takes the number of the request
/// on its connection; and the list of the real delays.
fn server(
    delay: impl Fn(u32) -> Duration + Send + Sync + 'static,
) -> (SocketAddr, Arc<Mutex<Vec<f64>>>) {
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

fn serve(mut stream: &TcpStream, delay: &dyn Fn(u32) -> Duration, seen: &Mutex<Vec<f64>>) {
    let _ = stream.set_nodelay(true);
    let mut count = 0;
    for line in BufReader::new(stream).lines().map_while(Result::ok) {
        let reply: &[u8] = if line == "version" {
            b"VERSION 1\r\n"
        } else {
            assert!(line.starts_with("get key:"), "{line}");
            let begun = Instant::now();
            thread::sleep(delay(count));
            seen.lock().unwrap().push(begun.elapsed().as_secs_f64() * 1e6);
            count += 1;
            b"END\r\n"
        };
        if stream.write_all(reply).is_err() {
            return;
        }
    }
}

/// The value at or below which `percent` of the sorted values lie.
fn percentile(sorted: &[f64], percent: f64) -> f64 {
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "small"
    )]
    let at = (sorted.len() as f64 * percent / 100.0).ceil() as usize;
    sorted[at.clamp(1, sorted.len()) - 1]
}

#[test]
fn injected_delays_are_measured_within_three_percent() {
    holds_at_some_scale(|scale| {
        // 30 ms; one in fifty 120 ms; one in two hundred 300 ms.
        let (address, injected) = server(move |count| {
            scale
                * Duration::from_millis(match count * 7 % 200 {
                    0 => 300,
                    n if n % 50 == 1 => 120,
                    _ => 30,
                })
        });
        let load = "--ratio 0:1 -c 100 --arrival fixed --warm-up 0";
        let rate = 600.0 / f64::from(scale);
        let words = format!("run -s {address} {load} --rate {rate} --time {}", 4 * scale);
        let result = measured(&words);
        let mut injected = injected.lock().unwrap().clone();
        injected.sort_by(f64::total_cmp);
        // Every due request was sent, and no other; each thread may have one more due at the very
        // end.
        assert!((2400..=2402).contains(&result.gets.requests), "{} gets", result.gets.requests);
        assert_eq!(u64::try_from(injected.len()), Ok(result.gets.requests));
        for percent in [50.0, 99.0, 99.9] {
            let (want, got) =
                (percentile(&injected, percent), result.gets.latency.percentile(percent));
            let is_near = (got - want).abs() / want < 0.03;
            must(is_near, format!("p{percent}: {got} us where {want} were injected"))?;
        }
        Ok(())
    });
}

#[test]
fn a_stall_shows_only_in_the_open_loop() {
    holds_at_some_scale(|scale| {
        // The server stalls in the first tenth of each second.
        let started = Instant::now();
        let (address, _) = server(move |_| {
            let stall = scale * Duration::from_millis(100);
            let into = started.elapsed().as_micros() % (10 * stall).as_micros();
            let into = Duration::from_micros(u64::try_from(into).unwrap());
            if into < stall { stall - into } else { scale * Duration::from_micros(500) }
        });
        let load = format!("run -s {address} --ratio 0:1 -c 4 --warm-up 0 --time {}", 3 * scale);
        let closed = measured(&load);
        let open = measured(&format!("{load} --rate {}", 1000 / scale));
        let p99 =
            |latency: &bench::result::Latency| latency.percentile(99.0) / 1000.0 / f64::from(scale);
        let [closed, service] = [&closed.gets.latency, &open.gets.service].map(p99);
        let open = p99(&open.gets.latency);
        must(closed < 50.0, format!("closed loop: {closed} of 100"))?;
        must(open >= 80.0, format!("open loop: {open} of 100"))?;
        must(service < open, format!("service time {service}, latency {open}"))
    });
}

#[test]
fn an_unserved_rate_shows_as_waiting_time() {
    let (address, _) = server(|_| Duration::from_millis(20));
    let load = "--ratio 0:1 -c 2 --rate 200 --arrival fixed --warm-up 0 --time 1";
    let result = measured(&format!("run -s {address} {load}"));
    // Two connections with 20 ms each answer at most a hundred requests per second; the others
    // wait, and their waiting time counts.
    assert_eq!(result.gets.requests + result.unanswered, 200);
    let median = result.gets.latency.percentile(50.0);
    assert!(median > 400_000.0, "{median} us");
    assert!(result.gets.service.percentile(50.0) >= 20_000.0);
}
