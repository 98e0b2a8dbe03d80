//! Out of descriptors: old connections continue, the acceptor does not spin, and accepting resumes.
//!
//! A separate binary, which runs itself as the server under a low `RLIMIT_NOFILE` and is the
//! client.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test stops where it fails")]

mod common;

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, thread};

use common::{Client, Running, one_worker};
use processes::usage;
use rustix::process::{Resource, Rlimit, setrlimit};

const LIMIT: u64 = 64;

fn main() {
    if env::args().nth(1).as_deref() == Some("serve") {
        return serve();
    }
    let mut server = Command::new(env::current_exe().unwrap())
        .arg("serve")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    let address: SocketAddr = lines.next().unwrap().unwrap().parse().unwrap();
    // A busy machine may take any time; a server that had forgotten to accept again would never do
    // it.
    let resumed = (0..3).map(|_| exhaust(address, &server)).min().unwrap();
    println!("accepting again after {resumed:?}");
    drop(server.stdin.take());
    let disabled: u64 = lines.next().unwrap().unwrap().parse().unwrap();
    assert!(disabled >= 3, "listeners turned off {disabled} times");
    assert!(server.wait().unwrap().success());
    println!("test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out");
}

/// The server: ends when its standard input does.
fn serve() {
    setrlimit(Resource::Nofile, Rlimit { current: Some(LIMIT), maximum: Some(LIMIT) }).unwrap();
    let server = Running::start(&one_worker());
    println!("{}", server.address());
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
    println!("{}", server.control.stats().listen_disabled_num);
}

/// One cycle: more clients than descriptors, then fewer. Returns how long the last client then
/// waited.
fn exhaust(address: SocketAddr, server: &Child) -> Duration {
    let mut first = Client::to(address);
    first.send(b"echo\n");
    first.expect(b"echo\n");
    let mut queued: Vec<Client> = (0..LIMIT).map(|_| Client::to(address)).collect();
    thread::sleep(Duration::from_millis(100));
    let cpu_time = || usage::cpu_time(server.id()).unwrap();
    let before = cpu_time();
    thread::sleep(Duration::from_millis(500));
    // At most a tenth of a core, where spinning would use all of it.
    let used = cpu_time() - before;
    assert!(used <= Duration::from_millis(50), "spins while out of descriptors: {used:?}");
    first.send(b"echo\n");
    first.expect(b"echo\n");
    let mut last = queued.pop().unwrap();
    last.send(b"echo\n");
    last.0.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    assert!(last.0.read(&mut [0; 1]).is_err(), "there were descriptors enough");
    drop(queued);
    let freed_at = Instant::now();
    last.0.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    last.expect(b"echo\n");
    freed_at.elapsed()
}
