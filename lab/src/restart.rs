//! Measures the unavailability of a cache during a restart, and the share of items that survive.
//!
//! A server with a memory file (`-e`) is filled, ended and started again: once cleanly, once after
//! `kill -9`. The figures are the time from the start of the new process to its first reply, and
//! the share of sampled keys that are present before and after.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

use crate::load::blocking;
use processes::free_port;

/// The measurements with one size of values.
#[derive(Clone, Debug)]
pub struct Restarted {
    /// Bytes of each value.
    pub value_bytes: usize,
    /// Items stored.
    pub items: u64,
    /// From the signal to the end of the process.
    pub ended: Duration,
    /// From the start of the next process to its first reply, after a clean end.
    pub started: Duration,
    /// From the start of the next process to its first reply, after `kill -9`.
    pub recovered: Duration,
    /// Share of the sampled keys that were present: before, after the clean end, after `kill -9`.
    pub hits: [f64; 3],
}

/// Requests in flight.
const DEPTH: usize = 64;
/// The number of sampled keys.
const SAMPLE: u64 = 50_000;
/// Longest wait for a server.
const PATIENCE: Duration = Duration::from_secs(60);

/// Fills a server with `memory_mb` MB and a memory file in `folder`, and restarts it twice.
///
/// # Errors
///
/// When the server does not start, fails, or sends an invalid reply.
pub fn measure(
    holdall: &Path,
    folder: &Path,
    memory_mb: u32,
    value_bytes: usize,
) -> Result<Restarted> {
    let file = MemoryFile(folder.join(format!("holdall-bench-{}", std::process::id())));
    let (first, _) = Server::start(holdall, &file.0, memory_mb)?;
    // The number of items that fill nine tenths of the memory: the key, the header and the index.
    let items = u64::from(memory_mb) * (1 << 20) * 9 / 10 / (value_bytes as u64 + 56);
    fill(first.address, items, value_bytes)?;
    let before = hits(first.address, items)?;
    let ended = first.end(Signal::TERM)?;
    let (second, started) = Server::start(holdall, &file.0, memory_mb)?;
    let after = hits(second.address, items)?;
    second.end(Signal::KILL)?;
    let (third, recovered) = Server::start(holdall, &file.0, memory_mb)?;
    let hits = [before, after, hits(third.address, items)?];
    third.end(Signal::KILL)?;
    Ok(Restarted { value_bytes, items, ended, started, recovered, hits })
}

/// The results as a Markdown table.
#[must_use]
pub fn markdown(all: &[Restarted], memory_mb: u32) -> String {
    let mut text = format!(
        "| bytes | items in {memory_mb} MB | end ms | start ms | start after kill -9, ms | hits before | after | after kill -9 |\n\
         | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n"
    );
    for one in all {
        let ms = |time: Duration| time.as_millis();
        text.push_str(&format!(
            "| {} | {} | {} | {} | {} | {:.4} | {:.4} | {:.4} |\n",
            one.value_bytes,
            one.items,
            ms(one.ended),
            ms(one.started),
            ms(one.recovered),
            one.hits[0],
            one.hits[1],
            one.hits[2]
        ));
    }
    text
}

struct MemoryFile(PathBuf);

impl Drop for MemoryFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
        // A killed server leaves its socket behind.
        let _ = std::fs::remove_file(format!("{}.takeover", self.0.display()));
    }
}

struct Server {
    child: Child,
    address: SocketAddr,
}

impl Server {
    /// Starts a server. Also returns the time until its first reply.
    fn start(holdall: &Path, file: &Path, memory_mb: u32) -> Result<(Self, Duration)> {
        let port = free_port()?;
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let started = Instant::now();
        let mut child = Command::new(holdall)
            .args(["serve", "-p", &port.to_string(), "-m", &memory_mb.to_string(), "-e"])
            .arg(file)
            .stdin(Stdio::null())
            .spawn()
            .with_context(|| holdall.display().to_string())?;
        while !replies(address) {
            if let Some(status) = child.try_wait()? {
                bail!("holdall ended with {status}");
            }
            ensure!(started.elapsed() < PATIENCE, "holdall does not answer");
            #[allow(clippy::disallowed_methods, reason = "nothing says when a server listens")]
            thread::sleep(Duration::from_millis(1));
        }
        Ok((Self { child, address }, started.elapsed()))
    }

    fn end(mut self, signal: Signal) -> Result<Duration> {
        let started = Instant::now();
        let pid = Pid::from_raw(i32::try_from(self.child.id())?).context("a process id")?;
        kill_process(pid, signal)?;
        self.child.wait()?;
        Ok(started.elapsed())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It has already ended, unless something failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn replies(address: SocketAddr) -> bool {
    let Ok(mut stream) = TcpStream::connect(address) else { return false };
    stream.write_all(b"version\r\n").is_ok() && stream.read(&mut [0; 64]).is_ok_and(|len| len > 0)
}

fn fill(address: SocketAddr, items: u64, value_bytes: usize) -> Result<()> {
    let mut stream = blocking(address)?;
    let value = vec![b'v'; value_bytes];
    let (mut request, mut reply) = (Vec::new(), vec![0; 64 << 10]);
    for from in (0..items).step_by(DEPTH) {
        let to = items.min(from + DEPTH as u64);
        request.clear();
        for key in from..to {
            write!(request, "set key-{key:012} 0 0 {value_bytes}\r\n")?;
            request.extend_from_slice(&value);
            request.extend_from_slice(b"\r\n");
        }
        stream.write_all(&request).context("storing")?;
        let mut lines = 0;
        while lines < usize::try_from(to - from)? {
            let len = stream.read(&mut reply).context("storing")?;
            ensure!(len > 0, "the server closed the connection");
            lines += memchr::memchr_iter(b'\n', &reply[..len]).count();
        }
    }
    Ok(())
}

/// The share of sampled keys, of all ages, that are present.
fn hits(address: SocketAddr, items: u64) -> Result<f64> {
    let mut stream = blocking(address)?;
    let sample = SAMPLE.min(items);
    let (mut request, mut reply, mut found) = (Vec::new(), vec![0; 64 << 10], 0usize);
    for from in (0..sample).step_by(DEPTH) {
        let to = sample.min(from + DEPTH as u64);
        request.clear();
        for turn in from..to {
            write!(request, "mg key-{:012} s\r\n", turn * (items / sample))?;
        }
        stream.write_all(&request).context("probing")?;
        let mut lines = 0;
        while lines < usize::try_from(to - from)? {
            let len = stream.read(&mut reply).context("probing")?;
            ensure!(len > 0, "the server closed the connection");
            lines += memchr::memchr_iter(b'\n', &reply[..len]).count();
            // `HD s64` is a hit, `EN` a miss.
            found += memchr::memchr_iter(b'H', &reply[..len]).count();
        }
    }
    #[allow(clippy::cast_precision_loss, reason = "a sample is small")]
    Ok(found as f64 / sample as f64)
}
