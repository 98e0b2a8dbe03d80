//! Measures the number of items that a server stores per GiB of resident memory.
//!
//! A server with `-m` MB receives more distinct items than fit, then a request for every key. The
//! figure uses the resident memory after that, not the configured limit.

use std::io::{Read, Write};

use anyhow::{Context, Result, ensure};

use crate::load::blocking;
use bench::process::Server;

/// The result for one server.
#[derive(Clone, Debug)]
pub struct Kept {
    /// The server.
    pub name: String,
    /// Bytes of each value.
    pub value_bytes: usize,
    /// Offered items.
    pub offered: u32,
    /// Stores without the reply `STORED`.
    pub refused: u32,
    /// Items found after all were offered.
    pub alive: u32,
    /// Resident memory after the fill, in bytes; `None` for a server that was not started here.
    pub resident_bytes: Option<u64>,
}

/// Bytes of every key.
const KEY_BYTES: usize = 32;

/// Requests in flight.
const DEPTH: u32 = 64;

const GIB: f64 = (1u64 << 30) as f64;

impl Kept {
    /// Items found per GiB of resident memory.
    #[must_use]
    pub fn per_gib(&self) -> Option<f64> {
        #[allow(clippy::cast_precision_loss, reason = "memory is far below 2^52 bytes")]
        self.resident_bytes.map(|bytes| f64::from(self.alive) * GIB / bytes as f64)
    }
}

/// Starts `server` with `memory_mb` MB, fills it beyond that, and counts the items.
///
/// # Errors
///
/// When the server cannot be started, fails, or replies differently from memcached.
pub fn measure(server: &Server, memory_mb: u32, value_bytes: usize) -> Result<Kept> {
    let running = server.start(memory_mb, None)?;
    // 1.5 times as many as fit if an item costs only its key, its value and 24 bytes.
    let fits = u64::from(memory_mb) * (1 << 20) / (KEY_BYTES + value_bytes + 24) as u64;
    let offered = u32::try_from(fits * 3 / 2)?;
    let mut stream = blocking(running.address)?;
    let (mut request, mut reply) = (Vec::new(), vec![0; 64 * 1024]);
    let (mut refused, mut alive) = (0, 0);
    let value = vec![b'v'; value_bytes];
    for from in (0..offered).step_by(DEPTH as usize) {
        let to = offered.min(from + DEPTH);
        request.clear();
        for key in from..to {
            write!(request, "set {key:0KEY_BYTES$} 0 0 {value_bytes}\r\n")?;
            request.extend_from_slice(&value);
            request.extend_from_slice(b"\r\n");
        }
        stream.write_all(&request).context("storing")?;
        let (mut lines, mut stored) = (0, 0);
        while lines < to - from {
            let len = stream.read(&mut reply).context("storing")?;
            ensure!(len > 0, "the server closed the connection");
            lines += count(&reply[..len], b'\n')?;
            // `D` occurs in STORED and in none of memcached's refusals.
            stored += count(&reply[..len], b'D')?;
        }
        refused += (to - from).saturating_sub(stored);
    }
    for from in (0..offered).step_by(DEPTH as usize) {
        let to = offered.min(from + DEPTH);
        request.clear();
        // A touch with exptime 0 replies TOUCHED or NOT_FOUND: a probe that moves no value.
        (from..to).try_for_each(|key| write!(request, "touch {key:0KEY_BYTES$} 0\r\n"))?;
        stream.write_all(&request).context("probing")?;
        let mut lines = 0;
        while lines < to - from {
            let len = stream.read(&mut reply).context("probing")?;
            ensure!(len > 0, "the server closed the connection");
            lines += count(&reply[..len], b'\n')?;
            alive += count(&reply[..len], b'C')?;
        }
    }
    let name = running.name.clone();
    Ok(Kept {
        name,
        value_bytes,
        offered,
        refused,
        alive,
        resident_bytes: running.resident_bytes(),
    })
}

fn count(bytes: &[u8], byte: u8) -> Result<u32> {
    Ok(u32::try_from(memchr::memchr_iter(byte, bytes).count())?)
}

/// The results as a Markdown table.
#[must_use]
pub fn markdown(all: &[Kept]) -> String {
    let mut text = String::from(
        "| bytes | server | offered | refused | alive | resident MiB | million items per resident GiB |\n\
         | ---: | --- | ---: | ---: | ---: | ---: | ---: |\n",
    );
    for kept in all {
        let mib =
            kept.resident_bytes.map_or_else(|| "-".to_owned(), |bytes| (bytes >> 20).to_string());
        let per_gib =
            kept.per_gib().map_or_else(|| "-".to_owned(), |items| format!("{:.2}", items / 1e6));
        text.push_str(&format!(
            "| {} | {} | {} | {} | {} | {mib} | {per_gib} |\n",
            kept.value_bytes, kept.name, kept.offered, kept.refused, kept.alive
        ));
    }
    text
}
