//! Callers of one client that share the outcome of a look-aside read, or leave before it.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::future::Future;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::pin::Pin;
use std::sync::mpsc::{Receiver, channel};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use client::{Client, LookAside, block_on};

/// A connection whose requests the test answers.
struct Server {
    stream: TcpStream,
    lines: Receiver<String>,
}

impl Server {
    fn accept(listener: &TcpListener) -> Self {
        let (stream, _) = listener.accept().unwrap();
        let read = BufReader::new(stream.try_clone().unwrap());
        let (send, lines) = channel();
        thread::spawn(move || {
            read.lines().map_while(Result::ok).try_for_each(|line| send.send(line))
        });
        let mut server = Self { stream, lines };
        // The client asks what the server knows: leases, and no block of a store that it refuses.
        while server.line() != "version" {}
        server.stream.write_all(b"MN leases\r\nCLIENT_ERROR\r\nVERSION 1\r\n").unwrap();
        server
    }

    /// The next line that the client sends.
    fn line(&self) -> String {
        self.lines.recv_timeout(Duration::from_secs(60)).unwrap()
    }

    /// Gives a lease, and expects it back.
    fn give_lease(&mut self) {
        self.stream.write_all(b"LVALUE k 77 0 0\r\n\r\nEND\r\n").unwrap();
        assert_eq!((self.line().as_str(), self.line().as_str()), ("lease-set k 77 0 -1 0", ""));
        self.stream.write_all(b"NOT_STORED\r\n").unwrap();
    }

    /// Answers the request for a lease that `caller` sends now, and waits until `client` has the
    /// answer, the `count`th. The caller does not go on meanwhile.
    fn answer(&mut self, caller: &mut Caller<'_>, client: &Client, answer: &str, count: u64) {
        let line = loop {
            assert_eq!(caller.poll(), Poll::Pending, "no answer yet");
            if let Ok(line) = self.lines.recv_timeout(Duration::from_millis(1)) {
                break line;
            }
        };
        assert_eq!(line, "lease-get k");
        self.stream.write_all(answer.as_bytes()).unwrap();
        while client.servers().iter().map(|server| server.totals.answered).sum::<u64>() < count {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// A read of `k` that goes on only when the test says so.
struct Caller<'a>(Pin<Box<dyn Future<Output = String> + 'a>>);

impl<'a> Caller<'a> {
    fn new(reads: &'a LookAside) -> Self {
        Self(Box::pin(async {
            let load = || async { Err::<String, _>("another process loads") };
            reads.get_or_load("k", load).await.unwrap()
        }))
    }

    fn poll(&mut self) -> Poll<String> {
        self.0.as_mut().poll(&mut Context::from_waker(Waker::noop()))
    }
}

/// The first caller's request has its answer, a value, when another process deletes the key and
/// takes the lease. The second caller's request comes after that.
#[test]
fn a_value_from_before_a_delete_is_not_shared_with_a_later_caller() {
    let wait = "LVALUE k 1 0 0\r\n\r\nEND\r\n";
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let builder = Client::builder().servers([listener.local_addr().unwrap().to_string()]);
    let client = builder.timeout(Duration::from_secs(60)).build().unwrap();
    let reads = client.look_aside().takes_stale(false);
    let (mut first, mut second) = (Caller::new(&reads), Caller::new(&reads));
    assert_eq!(first.poll(), Poll::Pending);
    let mut server = Server::accept(&listener);
    server.answer(&mut first, &client, wait, 1);
    server.answer(&mut first, &client, "VALUE k 16 3\r\nold\r\nEND\r\n", 2);
    server.answer(&mut second, &client, wait, 3);
    assert_eq!(second.poll(), Poll::Pending, "another process loads");
    assert_eq!(first.poll(), Poll::Ready("old".to_owned()), "the value at its request");
    server.answer(&mut second, &client, "VALUE k 16 3\r\nnew\r\nEND\r\n", 4);
    assert_eq!(second.poll(), Poll::Ready("new".to_owned()));
}

/// Failover is a task between the driver and the servers. The lease of a departed caller reaches
/// the driver through it, and is returned by an idle client, and by one that closes.
#[test]
fn a_lease_through_a_gutter_is_returned_at_once() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let config = format!(
        r#"{{"pools": {{"main": {{"servers": ["{}"]}}, "gutter": {{"servers": ["127.0.0.1:1"]}}}},
            "route": {{"type": "FailoverWithExptimeRoute", "normal": "PoolRoute|main",
                "failover": "PoolRoute|gutter", "failover_exptime": 10}}}}"#,
        listener.local_addr().unwrap()
    );
    // No timer wakes the client meanwhile.
    let builder = Client::builder().config_text(&config).timeout(Duration::from_secs(3600));
    let client = builder.build().unwrap();
    let mut context = Context::from_waker(Waker::noop());
    let mut call = Box::pin(client.lease_get("k"));
    assert!(call.as_mut().poll(&mut context).is_pending());
    let mut server = Server::accept(&listener);
    assert_eq!(server.line(), "lease-get k");
    drop(call);
    server.give_lease();
    let mut call = Box::pin(client.lease_get("k"));
    assert!(call.as_mut().poll(&mut context).is_pending());
    assert_eq!(server.line(), "lease-get k");
    drop(call);
    let mut close = Box::pin(client.close());
    assert!(close.as_mut().poll(&mut context).is_pending());
    server.give_lease();
    block_on(close);
}
