//! Replays against real servers: they miss items that do not fit in memory, and failures are
//! reported and counted separately.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use bench::hitrate::belady::Spool;
use bench::hitrate::policies::{Policy, simulate};
use bench::hitrate::replay::replay;
use bench::hitrate::servers;
use bench::hitrate::synthetic::Synthetic;
use bench::hitrate::trace::Format;
use bench::hitrate::{Source, Workload};
use generator::Progress;
use generator::keys::Pattern;
use generator::sizes::{KeySize, ValueSize};
use generator::spec::Protocol;

fn sequential(keys: u64, requests: u64) -> Workload {
    let synthetic = Synthetic {
        keys,
        pattern: Pattern::Sequential,
        key_size: KeySize::Shortest,
        value_size: ValueSize::Fixed(1000),
        scan: None,
        requests,
        seed: 1,
    };
    Workload { source: Source::Synthetic(synthetic), limit: None, warm_up: 0 }
}

#[test]
fn fitting_keys_miss_once_and_an_oversized_loop_always_misses() {
    for contender in servers::find(None, "/nowhere/holdall".as_ref(), 1).unwrap() {
        let name = &contender.server.name;
        let running = contender.server.start(16, None).unwrap();
        let progress = Progress::default();
        let see = |workload: &Workload| {
            let point = replay(running.address, contender.protocol, 16, workload, &progress);
            assert_eq!(point.failure, None, "{name}");
            point.counts
        };
        let counts = see(&sequential(2_000, 6_000));
        assert_eq!((counts.gets, counts.hits, counts.refused), (6_000, 4_000, 0), "{name}");
        // Counted only after the first round, over the same keys: nothing is missed.
        let counts = see(&Workload { warm_up: 100, ..sequential(2_000, 2_000) });
        assert_eq!((counts.gets, counts.hits), (1_900, 1_900), "{name}");
        // 60 MB in a circle through 16: the next item is the last evicted one. Redis samples, so it
        // keeps a few.
        let counts = see(&sequential(60_000, 120_000));
        let most = if contender.protocol == Protocol::Resp { 40_000 } else { 4_000 };
        assert!(counts.hits < most, "{name}: {counts:?}");
    }
}

#[test]
fn deletes_and_sets_of_a_trace_are_executed() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let operations = ["get", "get", "delete", "get", "set", "get"];
    for (second, operation) in operations.iter().enumerate() {
        writeln!(file, "{second},a:key,20,500,7,{operation},0").unwrap();
    }
    // Longer than a server accepts: never requested, and missed.
    writeln!(file, "9,b:key,20,5000000,7,get,0").unwrap();
    let source = Source::File { path: file.path().into(), format: Format::Twitter };
    let workload = Workload { source, limit: None, warm_up: 0 };
    for contender in servers::find(None, "/nowhere/holdall".as_ref(), 1).unwrap() {
        let running = contender.server.start(64, None).unwrap();
        let progress = Progress::default();
        let point = replay(running.address, contender.protocol, 64, &workload, &progress);
        assert_eq!(point.failure, None);
        assert_eq!((point.counts.gets, point.counts.hits), (5, 2), "{}", contender.server.name);
    }
}

/// Answers every read with `reply`, `times` times; then goes silent. It reads the remaining data,
/// because otherwise the kernel would reset the connection instead of closing it.
fn server(reply: &'static [u8], times: usize) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut buffer = [0; 65536];
        for _ in 0..times {
            if stream.read(&mut buffer).unwrap_or(0) == 0 || stream.write_all(reply).is_err() {
                return;
            }
        }
        stream.shutdown(Shutdown::Write).unwrap();
        let _ = io::copy(&mut stream, &mut io::sink());
    });
    address
}

#[test]
fn dying_or_faulty_servers_are_reported_with_partial_counts() {
    // Each group has one request, because the key is the same.
    let workload = sequential(1, 1_000);
    let see = |reply: &'static [u8], times| {
        let address = server(reply, times);
        replay(address, Protocol::Text, 1, &workload, &Progress::default())
    };
    let point = see(b"VALUE k 0 1\r\nv\r\nEND\r\n", 10);
    assert!(point.failure.unwrap().contains("closed"));
    assert_eq!((point.counts.gets, point.counts.hits), (10, 10));
    for (reply, words) in [
        (&b"220 smtp\r\n"[..], "no reply to what was asked: 220 smtp"),
        (b"STORED\r\n", "answered as another request"),
        (b"SERVER_ERROR out of order\r\n", "refused: out of order"),
    ] {
        let failure = see(reply, 10).failure.unwrap();
        assert!(failure.contains(words), "{failure}");
    }
    let absent = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let point = replay(absent, Protocol::Text, 1, &workload, &Progress::default());
    assert!(point.failure.unwrap().contains("no connection"));
}

#[test]
fn an_unreadable_trace_is_an_error() {
    let source = Source::File { path: "/nowhere/trace.csv".into(), format: Format::Csv };
    let error = Workload { source, limit: None, warm_up: 0 }.requests().err().unwrap();
    assert!(format!("{error:#}").contains("/nowhere/trace.csv"));
}

/// A server that holds nothing; returns the bytes of the keys and values that it was sent.
fn counting_server() -> (SocketAddr, JoinHandle<u64>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let count = move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut requests = BufReader::new(stream.try_clone().unwrap());
        let (mut line, mut bytes) = (String::new(), 0);
        while requests.read_line(&mut line).unwrap() > 0 {
            let words: Vec<&str> = line.split_whitespace().collect();
            if words[0] == "set" {
                let mut value = vec![0; words[4].parse::<usize>().unwrap() + 2];
                requests.read_exact(&mut value).unwrap();
                bytes += (words[1].len() + value.len() - 2) as u64;
                stream.write_all(b"STORED\r\n").unwrap();
            } else {
                stream.write_all(b"END\r\n").unwrap();
            }
            line.clear();
        }
        bytes
    };
    (address, thread::spawn(count))
}

#[test]
fn bounds_and_simulated_caches_count_the_keys_that_are_sent() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    writeln!(file, "key,size,key_size").unwrap();
    for line in ["1,20,1", "22,20,2", "3,20,16", "four,20,40", "5,20,300"] {
        writeln!(file, "{line}").unwrap();
    }
    let source = Source::File { path: file.path().into(), format: Format::Csv };
    let workload = Workload { source, limit: None, warm_up: 0 };
    let (address, bytes) = counting_server();
    let progress = Progress::default();
    assert_eq!(replay(address, Protocol::Text, 1, &workload, &progress).failure, None);
    let stored = bytes.join().unwrap();
    assert_eq!(stored, 16 + 16 + 16 + 40 + 250 + 5 * 20);

    // The same requests again: all of them hit only if every item of the first round fits.
    let both = || workload.requests().unwrap().chain(workload.requests().unwrap());
    let mut spool = Spool::new(Arc::default()).unwrap();
    both().for_each(|request| spool.push(&request.unwrap()).unwrap());
    let mut known = spool.known().unwrap();
    assert_eq!(known.footprint.bytes, stored);
    let hits = |counts: &[bench::hitrate::Counts]| [counts[0].hits, counts[1].hits];
    let capacities = [stored, stored - 1];
    assert_eq!(hits(&known.bound(&capacities, 0, 0).unwrap()), [5, 4]);
    assert_eq!(hits(&known.bound_with_sizes(&capacities, 0, 0).unwrap())[0], 5);
    let lines = std::fs::read_to_string(file.path()).unwrap();
    let again = lines.lines().skip(1).fold(String::new(), |all, line| all + line + "\n");
    file.write_all(again.as_bytes()).unwrap();
    let counts = simulate(&[Policy::Lru], &capacities, 0, &workload, &progress).unwrap();
    // A loop that does not fit never hits.
    assert_eq!(hits(&counts[0]), [5, 0]);
}
