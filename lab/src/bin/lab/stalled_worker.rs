//! The latency of one worker's clients while the other worker is frozen during its requests.
//!
//! Both programs have two workers and a full memory, so that every store has to evict. One worker
//! serves stores and gets without pause and is frozen for two seconds at a random moment. A client
//! of the other worker stores and gets all the time.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use bench::process::{Running, Server};
use lab::bystander::{Bystander, Seen, Work};
use lab::load::fill;
use lab::servers::usual;
use lab::workload::{Batches, Kind, Workload};
use processes::FrozenThread;

use crate::rig::{self, median};

/// The time for which the worker is stopped.
const STOP: Duration = Duration::from_secs(2);

/// Rounds. Each round stops one worker of every server once.
const ROUNDS: usize = 5;

/// More items than 64 MB hold.
const ITEMS: u32 = 700_000;

/// Connections, enough for each worker to get some.
const CONNECTIONS: usize = 8;

/// Measures and prints a table.
pub(crate) fn run() -> ExitCode {
    rig::ended("stalled-worker", measure())
}

fn measure() -> Result<()> {
    rig::build(&["-p", "holdall"])?;
    let servers = usual(&rig::folder(), false);
    let servers: Vec<Server> =
        servers.iter().take(2).map(|server| server.with(&server.name, &["-t", "2"])).collect();
    let mut all = vec![Vec::new(); servers.len()];
    for round in 1..=ROUNDS {
        for (server, rounds) in servers.iter().zip(&mut all) {
            eprintln!("round {round}: {}", server.name);
            rounds.push(stop_one(server)?);
        }
    }
    println!(
        "One of two workers frozen for {STOP:?}, {ROUNDS} rounds; stores and gets of a client of \
         the other, ms: medians of the rounds, and the greatest.\n"
    );
    println!(
        "| server | requests | stores refused | p99.9 before | p99.9 meanwhile | longest before | \
         longest meanwhile |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: |"
    );
    for (server, rounds) in servers.iter().zip(&all) {
        let figure = |pick: fn(&[Seen; 2]) -> f64| {
            let values: Vec<f64> = rounds.iter().map(pick).collect();
            let most = values.iter().copied().fold(0.0, f64::max);
            format!("{:.2} ({most:.2})", median(values))
        };
        let count = |pick: fn(&[Seen; 2]) -> u64| rounds.iter().map(pick).sum::<u64>();
        println!(
            "| {} | {} | {} | {} | {} | {} | {} |",
            server.name,
            count(|[_, seen]| seen.latency.len()),
            count(|[_, seen]| seen.refused),
            figure(|[seen, _]| seen.ms(0.999)),
            figure(|[_, seen]| seen.ms(0.999)),
            figure(|[seen, _]| seen.ms(1.0)),
            figure(|[_, seen]| seen.ms(1.0)),
        );
    }
    Ok(())
}

/// A bystander's replies before a worker is stopped, and during the stop.
fn stop_one(server: &Server) -> Result<[Seen; 2]> {
    let running = server.start(64, None)?;
    let workload = Workload { kind: Kind::Get { depth: 1 }, value_bytes: 64 };
    fill(running.address, &Batches::new(workload, ITEMS, 1), 0..ITEMS)?;
    let worker = a_worker(&running)?;
    let (with_it, with_others) = divide(running.address, worker)?;
    // Relaxed: it signals the end and orders nothing.
    let is_over = Arc::new(AtomicBool::new(false));
    let loads: Vec<_> = with_it.into_iter().map(|stream| load(stream, &is_over)).collect();
    let Some(stream) = with_others.into_iter().next() else { bail!("one worker serves all") };
    let quiet = Bystander::on(stream.try_clone()?, Work::SetAndGet);
    thread::sleep(STOP);
    let before = quiet.end()?;
    let frozen = FrozenThread::new(worker)?;
    let bystander = Bystander::on(stream, Work::SetAndGet);
    thread::sleep(STOP);
    let meanwhile = bystander.end()?;
    drop(frozen);
    is_over.store(true, Ordering::Relaxed);
    for load in loads {
        ensure!(load.join().is_ok_and(|ended| ended.is_ok()), "a stopped worker's client failed");
    }
    Ok([before, meanwhile])
}

/// The thread id of one worker.
fn a_worker(running: &Running) -> Result<u32> {
    let Some(pid) = running.pid() else { bail!("a server that was started elsewhere") };
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let task = task?;
        if fs::read_to_string(task.path().join("comm"))?.contains("worker")
            && let Some(thread) = task.file_name().to_str().and_then(|name| name.parse().ok())
        {
            return Ok(thread);
        }
    }
    bail!("{} has no worker", running.name)
}

/// Divides connections into those that this worker serves and the others.
fn divide(address: SocketAddr, worker: u32) -> Result<(Vec<TcpStream>, Vec<TcpStream>)> {
    let streams: Result<Vec<_>, _> =
        (0..CONNECTIONS).map(|_| TcpStream::connect(address)).collect();
    let streams = streams?;
    // After a reply the connection belongs to a worker.
    streams.iter().try_for_each(|stream| is_answered(stream, Duration::from_secs(5)).map(drop))?;
    let frozen = FrozenThread::new(worker)?;
    let (mut with_it, mut with_others) = (Vec::new(), Vec::new());
    for stream in streams {
        let is_others = is_answered(&stream, Duration::from_millis(300))?;
        if is_others { &mut with_others } else { &mut with_it }.push(stream);
    }
    drop(frozen);
    for mut stream in &with_it {
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        stream.read_exact(&mut [0; 4])?;
    }
    for stream in with_it.iter().chain(&with_others) {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    }
    Ok((with_it, with_others))
}

/// Whether the server replies within this time.
fn is_answered(mut stream: &TcpStream, within: Duration) -> Result<bool> {
    stream.set_read_timeout(Some(within))?;
    stream.write_all(b"mn\r\n")?;
    match stream.read_exact(&mut [0; 4]) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Stores and gets in batches, so that the worker of the connection is always processing some.
fn load(mut stream: TcpStream, is_over: &Arc<AtomicBool>) -> JoinHandle<Result<()>> {
    let is_over = Arc::clone(is_over);
    thread::spawn(move || {
        let port = stream.local_addr()?.port();
        let value = "w".repeat(64);
        let (mut number, mut reply) = (0_u64, vec![0; 64 << 10]);
        while !is_over.load(Ordering::Relaxed) {
            let mut request = String::new();
            for _ in 0..50 {
                number += 1;
                let key = format!("load:{port}:{number}");
                request.push_str(&format!("set {key} 0 0 64\r\n{value}\r\nget {key} none\r\n"));
            }
            request.push_str("mn\r\n");
            stream.write_all(request.as_bytes())?;
            let mut end = Vec::new();
            while !end.ends_with(b"MN\r\n") {
                let len = stream.read(&mut reply)?;
                ensure!(len > 0, "the server closed the connection");
                end.extend_from_slice(&reply[len.saturating_sub(4)..len]);
            }
        }
        Ok(())
    })
}
