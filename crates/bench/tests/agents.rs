//! Agents: the results of eight add up exactly, and a lost one is reported together with the
//! results of the others.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bench::agents::{run, serve};
use generator::spec::{Arrival, Pace, Ratio, Spec, Target};
use generator::{Outcome, Progress};

/// A server of misses that counts its requests.
fn server() -> (SocketAddr, Arc<AtomicU64>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, asked) = (listener.local_addr().unwrap(), Arc::new(AtomicU64::new(0)));
    let counter = Arc::clone(&asked);
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let counter = Arc::clone(&counter);
            thread::spawn(move || {
                for _ in BufReader::new(&stream).lines().map_while(Result::ok) {
                    counter.fetch_add(1, Ordering::Relaxed);
                    if (&stream).write_all(b"END\r\n").is_err() {
                        return;
                    }
                }
            });
        }
    });
    (address, asked)
}

fn agents(count: usize) -> Vec<String> {
    let one = |_| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        thread::spawn(move || serve(&listener, &[], |_| {}));
        address
    };
    (0..count).map(one).collect()
}

fn spec(address: SocketAddr, pace: Pace, seconds: f64) -> Spec {
    Spec {
        targets: vec![Target::Tcp(address.to_string(), address)],
        connections: 2,
        ratio: Ratio { sets: 0, gets: 1 },
        pace,
        seconds,
        warm_up: 0.0,
        ..Spec::default()
    }
}

#[test]
fn eight_agents_add_up_exactly() {
    let (address, asked) = server();
    let pace = Pace::Open { rate: 4_000.0, arrival: Arrival::Fixed };
    let gathered = run(&spec(address, pace, 1.0), &agents(8), &Progress::default(), || {}).unwrap();
    let sum = &gathered.outcome;
    assert_eq!((sum.failure.as_deref(), gathered.parts.len()), (None, 8));
    // Every agent had its eighth of the rate, all had the same second, and the server saw the
    // counted requests.
    for (agent, _) in &gathered.parts {
        assert!((400..=510).contains(&agent.requests), "{agent:?}");
        assert!(agent.host.cpus > 0);
    }
    assert_eq!(sum.record.answered, asked.load(Ordering::Relaxed));
    let mut by_hand = Outcome::default();
    for (_, part) in &gathered.parts {
        by_hand.merge(part, "");
    }
    assert_eq!(sum.record.gets.latency, by_hand.record.gets.latency);
    let lengths: u64 = gathered.parts.iter().map(|(_, part)| part.record.gets.latency.len()).sum();
    assert_eq!(sum.record.gets.latency.len(), lengths);
    for value in sum.record.gets.latency.iter_recorded() {
        let at = value.value_iterated_to();
        let counts = gathered.parts.iter().map(|(_, part)| part.record.gets.latency.count_at(at));
        assert_eq!(value.count_at_value(), counts.sum::<u64>(), "{at} ns");
    }
}

#[test]
fn a_lost_agent_is_reported_with_the_results_of_the_others() {
    let (address, _) = server();
    // An agent that accepts everything and disconnects in the run.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let lost = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let mut lines = BufReader::new(&stream).lines().map_while(Result::ok);
        let host = r#"{"cpu":"","cpus":1,"memory_mb":1,"kernel":"","version":""}"#;
        lines.next().unwrap();
        writeln!(&stream, "{{\"ready\":{{\"host\":{host}}}}}").unwrap();
        lines.next().unwrap();
        writeln!(&stream, "\"connected\"").unwrap();
        lines.next().unwrap();
    });
    let mut names = agents(1);
    names.push(lost.clone());
    let gathered =
        run(&spec(address, Pace::Closed, 0.3), &names, &Progress::default(), || {}).unwrap();
    let failure = gathered.outcome.failure.unwrap();
    assert!(failure.contains(&lost) && failure.contains("closed"), "{failure}");
    assert!(gathered.outcome.record.gets.requests > 10, "what the other saw is kept");
}

#[test]
fn a_run_that_cannot_start_names_the_cause() {
    let (address, _) = server();
    let absent = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let see = |spec: &Spec, names: &[String]| {
        format!("{:#}", run(spec, names, &Progress::default(), || {}).unwrap_err())
    };
    let fine = spec(address, Pace::Closed, 0.1);
    let error = see(&fine, &[absent.to_string()]);
    assert!(error.contains(&absent.to_string()) && error.contains("no connection"), "{error}");
    // The agent is up, its servers are not.
    let names = agents(1);
    let error = see(&spec(absent, Pace::Closed, 0.1), &names);
    assert!(error.contains(&names[0]) && error.contains("refused"), "{error}");
    // This is not an agent.
    let error = see(&fine, &[address.to_string()]);
    assert!(error.contains("no message of ours: END"), "{error}");
}

#[test]
fn an_agent_stops_when_its_coordinator_does_and_serves_the_next() {
    let (address, asked) = server();
    let names = agents(1);
    let mut stream = TcpStream::connect(&names[0]).unwrap();
    let spec_json = serde_json::to_string(&spec(address, Pace::Closed, 600.0)).unwrap();
    for message in [
        &format!("{{\"prepare\":{{\"version\":2,\"spec\":{spec_json}}}}}"),
        "\"connect\"",
        "\"go\"",
    ] {
        writeln!(stream, "{message}").unwrap();
    }
    let begun = Instant::now();
    while asked.load(Ordering::Relaxed) == 0 {
        assert!(begun.elapsed() < Duration::from_secs(20), "the agent does not begin");
        thread::yield_now();
    }
    drop(stream);
    let fine = spec(address, Pace::Closed, 0.1);
    let gathered = run(&fine, &names, &Progress::default(), || {}).unwrap();
    assert_eq!(gathered.outcome.failure, None);
    // An interrupt is passed on, and the results until then are returned.
    let progress = Progress::default();
    let long = spec(address, Pace::Closed, 600.0);
    let stop = || progress.stop.store(true, Ordering::Relaxed);
    let gathered = run(&long, &names, &progress, stop).unwrap();
    assert!(gathered.outcome.seconds < 60.0);
}

/// Sends an agent a load, changed by `change`, and reads its first answer.
fn answer_to(agent: &str, change: impl FnOnce(&mut serde_json::Value)) -> String {
    let (address, _) = server();
    let mut spec = serde_json::to_value(spec(address, Pace::Closed, 0.1)).unwrap();
    change(&mut spec);
    let stream = TcpStream::connect(agent).unwrap();
    let message = serde_json::json!({ "prepare": { "version": 2, "spec": spec } });
    writeln!(&stream, "{message}").unwrap();
    BufReader::new(&stream).lines().next().unwrap().unwrap()
}

#[test]
fn an_agent_reads_only_files_its_command_line_allows() {
    let agent = &agents(1)[0];
    for (field, value) in [
        ("login", serde_json::json!("/etc/hostname")),
        ("tls", serde_json::json!({ "verified": "/etc/hostname" })),
        ("identity", serde_json::json!(["/etc/hostname", "/etc/hostname"])),
    ] {
        let answer = answer_to(agent, |spec| spec[field] = value);
        assert!(answer.starts_with("{\"failed\""), "{field}: {answer}");
        assert!(answer.contains("--allow-file /etc/hostname"), "{field}: {answer}");
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let allowing = listener.local_addr().unwrap().to_string();
    thread::spawn(move || serve(&listener, &["/etc/hostname".into()], |_| {}));
    let answer = answer_to(&allowing, |spec| spec["login"] = "/etc/hostname".into());
    assert!(answer.starts_with("{\"ready\""), "{answer}");
}

#[test]
fn an_agent_refuses_out_of_range_numbers() {
    let agents = agents(1);
    for (field, value) in [
        ("seconds", serde_json::json!(1e300)),
        ("warm_up", serde_json::json!(-1.0)),
        ("connections", serde_json::json!(3_000_000)),
    ] {
        let answer = answer_to(&agents[0], |spec| spec[field] = value);
        assert!(answer.starts_with("{\"failed\""), "{field}: {answer}");
    }
    let (address, _) = server();
    let fine = spec(address, Pace::Closed, 0.1);
    assert_eq!(run(&fine, &agents, &Progress::default(), || {}).unwrap().outcome.failure, None);
}

#[test]
fn a_silent_connection_does_not_block_an_agent() {
    let (names, (address, _)) = (agents(1), server());
    let _silent = TcpStream::connect(&names[0]).unwrap();
    let fine = spec(address, Pace::Closed, 0.1);
    assert_eq!(run(&fine, &names, &Progress::default(), || {}).unwrap().outcome.failure, None);
}

/// A server that stores, slowly.
fn slow_store() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || {
                let (mut reader, mut head, mut value) = (BufReader::new(&stream), vec![], [0; 66]);
                // A set's line, and a value of 64 bytes with its line end.
                while reader.read_until(b'\n', &mut head).is_ok_and(|bytes| bytes > 0)
                    && reader.read_exact(&mut value).is_ok()
                {
                    thread::sleep(Duration::from_millis(1));
                    if (&stream).write_all(b"STORED\r\n").is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

#[test]
fn an_interrupt_during_preload_ends_coordinator_and_agent() {
    let (names, progress) = (agents(1), Progress::default());
    let long = Spec { preload: true, keys: 1 << 40, ..spec(slow_store(), Pace::Closed, 1.0) };
    thread::scope(|scope| {
        let run = scope.spawn(|| run(&long, &names, &progress, || {}));
        thread::sleep(Duration::from_millis(300));
        progress.stop.store(true, Ordering::Relaxed);
        let error = format!("{:#}", run.join().unwrap().unwrap_err());
        assert!(error.contains("interrupted"), "{error}");
    });
    // The agent is free again.
    let (address, _) = server();
    let fine = spec(address, Pace::Closed, 0.1);
    assert_eq!(run(&fine, &names, &Progress::default(), || {}).unwrap().outcome.failure, None);
}
