//! Measures the cost of a get through the library and through a plain blocking socket. The figures
//! are in lab/results.
//!
//!     cargo run --release -p holdall-client --example throughput -- 127.0.0.1:11211 [SECONDS]
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a program for people")]

use std::future::Future;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use client::{BlockingClient, Client, block_on};

const KEY: &str = "throughput";
const VALUE_BYTES: usize = 64;

/// The work on an address while it may run; returns the number of gets.
type Work = fn(&str, &Running) -> u64;

/// Tells the work whether to continue.
#[derive(Clone)]
struct Running(Arc<AtomicBool>);

impl Running {
    fn goes_on(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Processor time of this program, in seconds.
fn cpu_secs() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn plain(address: &str, running: &Running) -> u64 {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_nodelay(true).unwrap();
    let request = format!("get {KEY}\r\n");
    let (mut buffer, mut gets) = ([0; 4096], 0);
    while running.goes_on() {
        socket.write_all(request.as_bytes()).unwrap();
        let mut len = 0;
        while !buffer[..len].ends_with(b"END\r\n") {
            len += socket.read(&mut buffer[len..]).unwrap();
        }
        gets += 1;
    }
    gets
}

fn plain_64(address: &str, running: &Running) -> u64 {
    std::thread::scope(|scope| {
        let callers: Vec<_> = (0..64).map(|_| scope.spawn(|| plain(address, running))).collect();
        callers.into_iter().map(|caller| caller.join().unwrap()).sum()
    })
}

fn client(address: &str) -> Client {
    Client::builder().servers([address]).build().unwrap()
}

fn blocking(address: &str, running: &Running) -> u64 {
    let (client, mut gets) = (BlockingClient::from(client(address)), 0);
    while running.goes_on() {
        assert_eq!(client.get(KEY).unwrap().unwrap().bytes.len(), VALUE_BYTES);
        gets += 1;
    }
    gets
}

fn tokio_callers(address: &str, running: &Running, callers: usize) -> u64 {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    let (client, gets) = (client(address), Arc::new(AtomicU64::new(0)));
    runtime.block_on(async {
        let tasks = (0..callers).map(|_| {
            let (client, gets, running) = (client.clone(), Arc::clone(&gets), running.clone());
            tokio::spawn(async move {
                while running.goes_on() {
                    assert_eq!(client.get(KEY).await.unwrap().unwrap().bytes.len(), VALUE_BYTES);
                    gets.fetch_add(1, Ordering::Relaxed);
                }
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.unwrap();
        }
    });
    gets.load(Ordering::Relaxed)
}

/// Batches of 24 keys, one after the other.
fn multiget(address: &str, running: &Running) -> u64 {
    let (client, mut gets) = (client(address), 0);
    while running.goes_on() {
        let got = block_on(client.get_many([KEY; 24])).unwrap();
        gets +=
            got.into_iter().filter(|one| one.as_ref().is_ok_and(Option::is_some)).count() as u64;
    }
    gets
}

/// Pages of 24 gets, each its own call.
fn page(address: &str, running: &Running) -> u64 {
    let (client, mut gets) = (client(address), 0);
    while running.goes_on() {
        type Call<'a> = Pin<Box<dyn Future<Output = bool> + 'a>>;
        let calls = (0..24).map(|_| -> Call<'_> {
            Box::pin(async { client.get(KEY).await.is_ok_and(|got| got.is_some()) })
        });
        gets += block_on(client::together(calls)).into_iter().filter(|got| *got).count() as u64;
    }
    gets
}

fn main() {
    let mut words = std::env::args().skip(1);
    let address = words.next().unwrap();
    let secs: f64 = words.next().map_or(1.0, |secs| secs.parse().unwrap());
    let setter = BlockingClient::from(client(&address));
    setter.set(KEY, [b'x'; VALUE_BYTES], 0).unwrap();
    let works: [(&str, Work); 7] = [
        ("plain blocking socket", plain),
        ("library, blocking", blocking),
        ("library, async, 1 caller", |address, running| tokio_callers(address, running, 1)),
        ("64 plain sockets and threads", plain_64),
        ("library, async, 64 callers", |address, running| tokio_callers(address, running, 64)),
        ("library, 24 keys a call", multiget),
        ("library, 24 calls together", page),
    ];
    println!("| work | thousand gets/s | CPU us a get | us a get |\n| --- | ---: | ---: | ---: |");
    for (name, work) in works {
        let running = Running(Arc::new(AtomicBool::new(true)));
        let ends = running.clone();
        let timer = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_secs_f64(secs));
            ends.0.store(false, Ordering::Relaxed);
        });
        let (begin, cpu) = (Instant::now(), cpu_secs());
        let gets = work(&address, &running) as f64;
        let (took, cpu) = (begin.elapsed().as_secs_f64(), cpu_secs() - cpu);
        timer.join().unwrap();
        let us = |secs: f64| secs * 1e6 / gets;
        println!("| {name} | {:.1} | {:.2} | {:.2} |", gets / took / 1e3, us(cpu), us(took));
    }
}
