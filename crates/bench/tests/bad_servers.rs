//! Servers that are absent, die, or answer garbage: a clear error, and the results until then are
//! kept.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener};
use std::thread;

use generator::spec::{Protocol, Ratio, Spec, Target};
use generator::{Progress, fill, run};

fn spec(address: SocketAddr) -> Spec {
    Spec {
        targets: vec![Target::Tcp(address.to_string(), address)],
        connections: 2,
        ratio: Ratio { sets: 0, gets: 1 },
        seconds: 2.0,
        warm_up: 0.0,
        ..Spec::default()
    }
}

/// Answers every read with `reply`, `times` times on each connection; then closes it.
fn server(reply: &'static [u8], times: usize) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || {
                let mut buffer = [0; 4096];
                for _ in 0..times {
                    if stream.read(&mut buffer).unwrap_or(0) == 0
                        || stream.write_all(reply).is_err()
                    {
                        return;
                    }
                }
                // Reads the remaining data, because otherwise the kernel would reset the connection
                // instead of closing it.
                stream.shutdown(Shutdown::Write).unwrap();
                let _ = io::copy(&mut stream, &mut io::sink());
            });
        }
    });
    address
}

#[test]
fn an_absent_server_is_reported() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = format!("{:#}", run(&spec(address), &Progress::default()).unwrap_err());
    assert!(error.contains(&address.to_string()) && error.contains("refused"), "{error}");
}

#[test]
fn a_dying_servers_replies_are_kept() {
    let outcome = run(&spec(server(b"END\r\n", 500)), &Progress::default()).unwrap();
    assert!(outcome.failure.unwrap().contains("closed"));
    assert!(
        (500..=1000).contains(&outcome.record.gets.requests),
        "{}",
        outcome.record.gets.requests
    );
    assert!(outcome.seconds < 2.0);
}

#[test]
fn requests_of_the_warm_up_that_are_never_answered_are_counted() {
    // The kernel accepts the connections; nothing reads from them.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let spec = Spec { warm_up: 0.1, seconds: 0.1, ..spec(listener.local_addr().unwrap()) };
    let outcome = run(&spec, &Progress::default()).unwrap();
    assert!(outcome.failure.unwrap().contains("no reply"));
    assert_eq!(outcome.record.unanswered, 2);
}

#[test]
fn garbage_ends_the_run_and_is_reported() {
    let cases: [(&[u8], &str); 6] = [
        (b"hello world\r\n", "hello world"),
        (b"STORED\r\n", "answered as a set"),
        (b"END\r\nEND\r\n", "more than was asked for"),
        (b"VALUE key:000000000001 0 99999999999\r\n", "no reply"),
        (b"VALUE k 0 3\r\nabcdef\r\nEND\r\n", "no reply"),
        (b"\0\0\0\0\r\n", "no reply"),
    ];
    for (reply, words) in cases {
        let outcome = run(&spec(server(reply, 10)), &Progress::default()).unwrap();
        let failure = outcome.failure.unwrap();
        assert!(failure.contains(words), "{}: {failure}", reply.escape_ascii());
    }
    for protocol in [Protocol::Binary, Protocol::Resp, Protocol::Meta] {
        let spec = Spec { protocol, ..spec(server(b"SSH-2.0-OpenSSH\r\n", 10)) };
        let failure = run(&spec, &Progress::default()).unwrap().failure.unwrap();
        assert!(failure.contains("SSH-2.0"), "{failure}");
    }
}

#[test]
fn a_server_that_refuses_to_store_is_not_measured() {
    let spec = Spec {
        keys: 2,
        connections: 1,
        threads: 2,
        ..spec(server(b"SERVER_ERROR out of memory\r\n", 1000))
    };
    let error = format!("{:#}", fill(&spec, &Progress::default()).unwrap_err());
    assert!(error.contains("refused"), "{error}");
}
