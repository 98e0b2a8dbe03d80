//! Look-aside clients, the intended use of a cache: they get items and store the missing ones.
//!
//! They measure hit ratios, shares of memory and similar figures: every server receives gets of the
//! same keys in the same order, followed by stores of the keys that it misses.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

use anyhow::{Context, Result, ensure};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand_distr::{Distribution, Zipf};

use crate::load::blocking;

/// A key to get, and its value if it must be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    /// The first letter of the key: a family of similar keys.
    pub family: char,
    /// The rest of the key.
    pub number: u64,
    /// Bytes of the value.
    pub value_bytes: usize,
    /// As in `set`: seconds to live, 0 for no expiry.
    pub exptime: u32,
}

impl Item {
    fn write_key(&self, out: &mut String) {
        // Writing to a string cannot fail.
        let _ = write!(out, "{}{:0width$}", self.family, self.number, width = KEY_BYTES - 1);
    }
}

/// Bytes of a key.
const KEY_BYTES: usize = 16;
/// Keys in one get: a line of about 800 bytes.
const KEYS_AT_ONCE: usize = 48;
/// Stores in flight.
const STORES_AT_ONCE: usize = 256;

/// Hits and reads.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hits {
    /// Reads that found a value.
    pub hits: u64,
    /// Reads.
    pub reads: u64,
}

impl Hits {
    /// The share of reads that found a value.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "reads are far fewer than 2^52")]
    pub fn ratio(&self) -> f64 {
        self.hits as f64 / self.reads.max(1) as f64
    }

    /// Adds other counts.
    pub fn add(&mut self, other: Self) {
        self.hits += other.hits;
        self.reads += other.reads;
    }
}

/// A client of one server.
#[derive(Debug)]
pub struct Client {
    reader: BufReader<TcpStream>,
    value: Vec<u8>,
    line: String,
    request: String,
}

impl Client {
    /// Connects.
    ///
    /// # Errors
    ///
    /// When the server does not accept the connection.
    pub fn connect(address: SocketAddr) -> Result<Self> {
        let reader = BufReader::with_capacity(256 << 10, blocking(address)?);
        Ok(Self { reader, value: Vec::new(), line: String::new(), request: String::new() })
    }

    /// Gets every item, and stores the missing ones. An item that is listed twice may be missed
    /// twice.
    ///
    /// # Errors
    ///
    /// When the connection fails, or the server sends an unexpected reply.
    pub fn ask(&mut self, items: &[Item]) -> Result<Hits> {
        let mut hits = Hits::default();
        for some in items.chunks(KEYS_AT_ONCE) {
            let missing = self.missing(some)?;
            hits.add(Hits { hits: (some.len() - missing.len()) as u64, reads: some.len() as u64 });
            self.store(&missing)?;
        }
        Ok(hits)
    }

    /// Returns the number of missing items. Stores nothing.
    ///
    /// # Errors
    ///
    /// When the connection fails, or the server sends an unexpected reply.
    pub fn missing_of(&mut self, items: &[Item]) -> Result<usize> {
        let mut missing = 0;
        for some in items.chunks(KEYS_AT_ONCE) {
            missing += self.missing(some)?.len();
        }
        Ok(missing)
    }

    fn missing(&mut self, items: &[Item]) -> Result<Vec<Item>> {
        self.request.clear();
        self.request.push_str("get");
        for item in items {
            self.request.push(' ');
            item.write_key(&mut self.request);
        }
        self.request.push_str("\r\n");
        self.reader.get_mut().write_all(self.request.as_bytes())?;
        let mut missing = Vec::new();
        let mut asked = items.iter();
        loop {
            self.read_line()?;
            if self.line == "END" {
                missing.extend(asked);
                return Ok(missing);
            }
            let mut words = self.line.split(' ');
            let (Some("VALUE"), Some(key)) = (words.next(), words.next()) else {
                anyhow::bail!("a get was answered {:?}", self.line)
            };
            let mut own = String::new();
            // Values arrive in the order of the request.
            for item in asked.by_ref() {
                own.clear();
                item.write_key(&mut own);
                if own == key {
                    break;
                }
                missing.push(*item);
            }
            ensure!(own == key, "{key} was not asked for");
            let bytes: usize = words.nth(1).context("a length")?.parse()?;
            self.value.resize(bytes + 2, 0);
            self.reader.read_exact(&mut self.value)?;
        }
    }

    /// Stores every item. A refused store is not an error; it costs the server a hit.
    ///
    /// # Errors
    ///
    /// When the connection fails.
    pub fn store(&mut self, items: &[Item]) -> Result<()> {
        for some in items.chunks(STORES_AT_ONCE) {
            self.request.clear();
            for item in some {
                self.request.push_str("set ");
                item.write_key(&mut self.request);
                let _ = write!(self.request, " 0 {} {}\r\n", item.exptime, item.value_bytes);
                self.request.extend(std::iter::repeat_n('v', item.value_bytes));
                self.request.push_str("\r\n");
            }
            self.reader.get_mut().write_all(self.request.as_bytes())?;
            some.iter().try_for_each(|_| self.read_line())?;
        }
        Ok(())
    }

    /// A group of statistics, with their names.
    ///
    /// # Errors
    ///
    /// When the connection fails.
    pub fn stats(&mut self, group: &str) -> Result<Vec<(String, String)>> {
        self.reader.get_mut().write_all(format!("stats {group}\r\n").as_bytes())?;
        let mut all = Vec::new();
        loop {
            self.read_line()?;
            match self.line.strip_prefix("STAT ").and_then(|rest| rest.split_once(' ')) {
                Some((name, value)) => all.push((name.to_owned(), value.to_owned())),
                None => return Ok(all),
            }
        }
    }

    fn read_line(&mut self) -> Result<()> {
        self.line.clear();
        let len = self.reader.read_line(&mut self.line)?;
        ensure!(len > 0, "the server closed the connection");
        self.line.truncate(self.line.trim_end().len());
        Ok(())
    }
}

/// Keys of one family with a Zipf distribution. The same seed gives every server the same keys.
#[derive(Debug)]
pub struct ZipfFamily {
    item: Item,
    distribution: Zipf<f64>,
    rng: SmallRng,
}

impl ZipfFamily {
    /// Draws numbers for copies of `item`.
    ///
    /// # Errors
    ///
    /// When `keys` is 0 or the exponent is negative.
    pub fn new(item: Item, keys: u32, exponent: f64, seed: u64) -> Result<Self> {
        let distribution = Zipf::new(f64::from(keys), exponent)?;
        Ok(Self { item, distribution, rng: SmallRng::seed_from_u64(seed) })
    }

    /// The next `count` items.
    pub fn next(&mut self, count: usize) -> Vec<Item> {
        (0..count)
            .map(|_| {
                // A rank is a whole number below 2^32.
                #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "so")]
                let number = self.distribution.sample(&mut self.rng) as u64;
                Item { number, ..self.item }
            })
            .collect()
    }
}

/// Calls `turn` with 0, 1, 2.., up to `per_second` times per second, until it has made this many
/// calls.
///
/// # Errors
///
/// Any error of `turn`.
pub fn paced(
    per_second: u32,
    turns: u64,
    mut turn: impl FnMut(u64) -> Result<()>,
) -> Result<std::time::Duration> {
    let started = std::time::Instant::now();
    for number in 0..turns {
        let due = std::time::Duration::from_secs(1).mul_f64(number as f64 / f64::from(per_second));
        std::thread::sleep(due.saturating_sub(started.elapsed()));
        turn(number)?;
    }
    Ok(started.elapsed())
}
