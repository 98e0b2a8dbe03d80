//! An unread log stops neither the server nor its shutdown.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where it fails")]

mod common;

use std::fs;
use std::io::Read;
use std::process::{Child, ChildStderr, Stdio};

use common::{Scratch, holdall, kill};
use rustix::process::Signal;
use testkit::{Wire, eventually};

/// Requests whose printed lines exceed the pipe and the log's queue, 1 MB to their 320 KB.
const REQUESTS: usize = 5000;

/// A server whose stderr is an unread pipe.
struct Unread {
    child: Child,
    stderr: ChildStderr,
    port: u16,
}

impl Unread {
    fn serve() -> Self {
        let scratch = Scratch::new();
        let ports = scratch.path("ports");
        let mut child = holdall(&["serve", "-p", "-1", "-t", "2", "-v"])
            .env("MEMCACHED_PORT_FILENAME", &ports)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        eventually("the port file", || ports.exists());
        let text = fs::read_to_string(ports).unwrap();
        let port = text.trim().strip_prefix("TCP INET: ").unwrap().parse().unwrap();
        let stderr = child.stderr.take().unwrap();
        Self { child, stderr, port }
    }

    fn connect(&self) -> Wire {
        Wire::connect(([127, 0, 0, 1], self.port).into())
    }

    /// Makes the server print more than is buffered. Each request must be answered.
    fn fill_the_log(&self) {
        let mut wire = self.connect();
        wire.expect(b"verbosity 2\r\n", b"OK\r\n");
        let request = format!("get {}\r\n", "k".repeat(200));
        for _ in 0..REQUESTS {
            wire.expect(request.as_bytes(), b"END\r\n");
        }
    }
}

impl Drop for Unread {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn an_unread_log_blocks_no_worker_and_lost_lines_are_counted() {
    let mut server = Unread::serve();
    server.fill_the_log();
    for _ in 0..4 {
        server.connect().expect(b"version\r\n", b"VERSION 1.6.45\r\n");
    }
    kill(server.child.id(), Signal::TERM);
    let mut log = String::new();
    server.stderr.read_to_string(&mut log).unwrap();
    assert!(server.child.wait().unwrap().success());
    let printed = log.lines().filter(|line| line.contains(" get kkk")).count();
    let lost: usize = log
        .lines()
        .filter_map(|line| line.split_once("holdall: warning: ")?.1.split_once(" log lines"))
        .map(|(count, _)| count.parse::<usize>().unwrap())
        .sum();
    assert!(lost > 0 && printed > 0, "{printed} printed, {lost} lost");
    assert!(printed + lost >= REQUESTS, "{printed} printed, {lost} lost of {REQUESTS}");
}

#[test]
fn an_unread_log_does_not_block_the_shutdown() {
    let mut server = Unread::serve();
    server.fill_the_log();
    kill(server.child.id(), Signal::TERM);
    eventually("the server's end", || server.child.try_wait().unwrap().is_some());
    assert!(server.child.wait().unwrap().success());
}
