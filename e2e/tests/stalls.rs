//! A worker that stalls between its requests: the clients of the other workers are served.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test stops where it fails")]

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use processes::FrozenThread;
use testkit::Server;

/// Connections; each worker has some.
const CLIENTS: usize = 8;

/// The number of sets that are sent together.
const BATCH: u64 = 20;

/// The thread of the server's first worker.
fn first_worker(server: &Server) -> u32 {
    let tasks = fs::read_dir(format!("/proc/{}/task", server.pid())).unwrap();
    let mut tasks = tasks.map(|task| task.unwrap());
    let is_first = |name: String| name.trim() == "worker-0";
    let task = tasks.find(|task| is_first(fs::read_to_string(task.path().join("comm")).unwrap()));
    task.unwrap().file_name().to_str().unwrap().parse().unwrap()
}

/// Freezes the worker in a system call on one of its sockets, and so outside of a request. A stall
/// within a request would hold memory up (decision 74).
fn freeze_between_requests(server: &Server, worker: u32) -> FrozenThread {
    loop {
        let frozen = FrozenThread::new(worker).unwrap();
        thread::sleep(Duration::from_millis(20));
        if is_in_socket_call(server, worker) {
            return frozen;
        }
    }
}

/// `true` if the first argument of the thread's current system call is a socket or an epoll
/// instance.
fn is_in_socket_call(server: &Server, thread: u32) -> bool {
    let process = format!("/proc/{}", server.pid());
    let call = fs::read_to_string(format!("{process}/task/{thread}/syscall")).unwrap();
    let first = call.split(' ').nth(1).and_then(|word| word.trim().strip_prefix("0x"));
    let Some(first) = first.and_then(|digits| u64::from_str_radix(digits, 16).ok()) else {
        return false;
    };
    let opened = fs::read_link(format!("{process}/fd/{first}"));
    opened.is_ok_and(|file| {
        let file = file.to_string_lossy();
        file.starts_with("socket:") || file.contains("eventpoll")
    })
}

/// Memory is full, so each store needs the memory of an evicted item, even while one of the threads
/// that may still read it stalls.
#[test]
fn a_stalled_worker_causes_no_refused_store() {
    let server = Server::holdall(&["-m", "64", "-t", "2"]);
    let worker = first_worker(&server);
    match FrozenThread::new(worker) {
        Ok(frozen) => drop(frozen),
        Err(error) => {
            eprintln!("NOT RUN: no thread can be stopped: {error}");
            return;
        }
    }
    let (is_over, value) = (AtomicBool::new(false), "v".repeat(64));
    let stored: [AtomicU64; CLIENTS] = Default::default();
    let counts = || stored.each_ref().map(|count| count.load(Ordering::Relaxed));
    thread::scope(|scope| {
        for (client, stored) in stored.iter().enumerate() {
            let (server, is_over, value) = (&server, &is_over, &value);
            scope.spawn(move || {
                let mut wire = server.connect();
                while !is_over.load(Ordering::Relaxed) {
                    let first = stored.load(Ordering::Relaxed);
                    let set = |key| format!("set {client}:{key} 0 0 64\r\n{value}\r\n");
                    let sets: String = (first..first + BATCH).map(set).collect();
                    wire.expect(sets.as_bytes(), "STORED\r\n".repeat(20).as_bytes());
                    stored.fetch_add(BATCH, Ordering::Relaxed);
                }
            });
        }
        while server.stat("evictions") == 0 {
            thread::sleep(Duration::from_millis(100));
        }
        let frozen = freeze_between_requests(&server, worker);
        thread::sleep(Duration::from_millis(200));
        let before = counts();
        thread::sleep(Duration::from_secs(2));
        let after = counts();
        drop(frozen);
        is_over.store(true, Ordering::Relaxed);
        let served = before.iter().zip(&after).filter(|(before, after)| after > before).count();
        assert!((1..CLIENTS).contains(&served), "{served} of {CLIENTS} clients were served");
        let meanwhile = after.iter().sum::<u64>() - before.iter().sum::<u64>();
        eprintln!("{meanwhile} stores of {served} clients while a worker stood still");
        // More than any reserve holds: memory was freed during the stall.
        assert!(meanwhile > 2000, "{meanwhile} stores");
    });
}
