//! Instructions per request: the real server under callgrind, whose counts are reproducible.
//!
//! ```text
//!     base: start, store the keys, a few batches of each kind, end
//!         -> instructions of the worker's thread
//!     for each kind: as the base, and N batches of that kind more
//!         -> the difference over N is the figure
//! ```
//!
//! Start, growth and end cancel out. Sampling is off: it depends on elapsed time, which is fifty
//! times as long under callgrind. The remainder is the work of the worker's thread in user space.
//! It excludes the kernel's part, because a read is one call. The worker is the thread with the
//! most instructions, so this needs no symbols, which the packages' binary lacks. A fixed seed
//! chooses keys. The server's hash has a new seed each time, which changes a figure by far less
//! than one percent.

use std::fmt::Write as _;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

use crate::rng::Rng;
use processes::free_port;

/// The cost of one request, or of one key of a multiget.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// The name.
    pub name: String,
    /// Instructions in user space.
    pub instructions: f64,
}

/// A kind of request.
#[derive(Clone, Copy, Debug)]
struct Kind {
    name: &'static str,
    /// Requests in a batch, or keys in its single request.
    units: usize,
    shape: Shape,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Get,
    Miss,
    Multiget,
    Set,
}

const KINDS: [Kind; 5] = [
    Kind { name: "get-hit", units: 16, shape: Shape::Get },
    Kind { name: "get-hit-alone", units: 1, shape: Shape::Get },
    Kind { name: "get-miss", units: 16, shape: Shape::Miss },
    Kind { name: "multiget-key", units: 100, shape: Shape::Multiget },
    Kind { name: "set", units: 16, shape: Shape::Set },
];

/// Keys stored, and bytes of each value.
const KEYS: u32 = 10_000;
const VALUE_BYTES: usize = 64;

/// Batches of each kind in every run, and in the run that measures the kind.
const BASE_BATCHES: usize = 20;
const BATCHES: usize = 500;

/// The time for a server under callgrind to start, reply and end.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs `holdall` under callgrind, once for each kind and once for the base. Callgrind writes its
/// files into `folder`.
///
/// # Errors
///
/// When valgrind is missing, or the server fails or replies incorrectly.
pub fn measure(holdall: &Path, folder: &Path) -> Result<Vec<Figure>> {
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    let base = run(holdall, &folder.join("callgrind.base"), None)?;
    KINDS
        .iter()
        .map(|kind| {
            let out = folder.join(format!("callgrind.{}", kind.name));
            let more = run(holdall, &out, Some(*kind))?;
            let instructions = more.saturating_sub(base) as f64 / (BATCHES * kind.units) as f64;
            Ok(Figure { name: kind.name.to_owned(), instructions })
        })
        .collect()
}

/// Starts and ends one server. Returns the instructions of its worker.
fn run(holdall: &Path, out: &Path, kind: Option<Kind>) -> Result<u64> {
    for old in outputs(out)? {
        fs::remove_file(old)?;
    }
    let port = free_port()?;
    let mut child = Command::new("valgrind")
        .args(["-q", "--tool=callgrind", "--separate-threads=yes"])
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(holdall)
        .args(["serve", "-l", "127.0.0.1", "-t", "1", "-m", "64", "-u", "root"])
        .args(["-o", "no_sampling", "-p"])
        .arg(port.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .context("valgrind (the Debian package of that name)")?;
    let driven = drive(&mut child, port, kind);
    let ended = driven.and_then(|()| end(&mut child));
    if ended.is_err() {
        // It may have ended already.
        let _ = child.kill();
        let _ = child.wait();
    }
    ended?;
    let totals = outputs(out)?.into_iter().map(|file| total(&fs::read_to_string(file)?));
    let totals = totals.collect::<Result<Vec<_>>>()?;
    totals.into_iter().max().context("callgrind has written nothing")
}

fn drive(child: &mut Child, port: u16, kind: Option<Kind>) -> Result<()> {
    let mut stream = connect(child, port)?;
    let mut client = Client { rng: Rng::new(1), request: Vec::new(), reply: Vec::new() };
    for from in (0..KEYS).step_by(16) {
        client.request.clear();
        (from..from + 16).for_each(|key| client.push_set(key));
        client.exchange(&mut stream, 16 * "STORED\r\n".len())?;
    }
    for kind in &KINDS {
        client.batches(&mut stream, *kind, BASE_BATCHES)?;
    }
    kind.map_or(Ok(()), |kind| client.batches(&mut stream, kind, BATCHES))
}

fn connect(child: &mut Child, port: u16) -> Result<TcpStream> {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Ok(stream) = TcpStream::connect(("127.0.0.1", port)) {
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            return Ok(stream);
        }
        if let Some(status) = child.try_wait()? {
            bail!("the server ended: {status}");
        }
        ensure!(Instant::now() < end, "the server does not accept");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Makes the server write its counts.
fn end(child: &mut Child) -> Result<()> {
    kill_process(Pid::from_child(child), Signal::TERM)?;
    let end = Instant::now() + PATIENCE;
    while child.try_wait()?.is_none() {
        ensure!(Instant::now() < end, "the server does not end");
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

struct Client {
    rng: Rng,
    request: Vec<u8>,
    reply: Vec<u8>,
}

impl Client {
    fn batches(&mut self, stream: &mut TcpStream, kind: Kind, count: usize) -> Result<()> {
        let value_reply = format!("VALUE key:000000000000 0 {VALUE_BYTES}\r\n").len();
        let value_reply = value_reply + VALUE_BYTES + 2;
        let end = "END\r\n".len();
        for _ in 0..count {
            self.request.clear();
            if kind.shape == Shape::Multiget {
                self.request.extend_from_slice(b"get");
            }
            for _ in 0..kind.units {
                let key = self.rng.below(KEYS);
                match kind.shape {
                    Shape::Get => write!(self.request, "get key:{key:012}\r\n")?,
                    Shape::Miss => write!(self.request, "get mis:{key:012}\r\n")?,
                    Shape::Multiget => write!(self.request, " key:{key:012}")?,
                    Shape::Set => self.push_set(key),
                }
            }
            let want = match kind.shape {
                Shape::Get => kind.units * (value_reply + end),
                Shape::Miss => kind.units * end,
                Shape::Multiget => {
                    self.request.extend_from_slice(b"\r\n");
                    kind.units * value_reply + end
                }
                Shape::Set => kind.units * "STORED\r\n".len(),
            };
            self.exchange(stream, want)?;
        }
        Ok(())
    }

    fn push_set(&mut self, key: u32) {
        let line = format!("set key:{key:012} 0 0 {VALUE_BYTES}\r\n");
        self.request.extend_from_slice(line.as_bytes());
        self.request.resize(self.request.len() + VALUE_BYTES, b'v');
        self.request.extend_from_slice(b"\r\n");
    }

    fn exchange(&mut self, stream: &mut TcpStream, want: usize) -> Result<()> {
        stream.write_all(&self.request)?;
        self.reply.resize(want, 0);
        stream.read_exact(&mut self.reply)?;
        ensure!(self.reply.ends_with(b"\r\n"), "a reply has not the length it must have");
        Ok(())
    }
}

/// Callgrind's files of one run, one per thread.
fn outputs(out: &Path) -> Result<Vec<std::path::PathBuf>> {
    let (Some(folder), Some(name)) = (out.parent(), out.file_name()) else {
        bail!("{}: not a file in a folder", out.display());
    };
    let begin = format!("{}-", name.to_string_lossy());
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(&begin) {
            files.push(entry.path());
        }
    }
    Ok(files)
}

/// The sum at the end of callgrind's file.
fn total(file: &str) -> Result<u64> {
    let line = file.lines().rev().find_map(|line| line.strip_prefix("totals: "));
    Ok(line.context("a file of callgrind's without totals")?.trim().parse()?)
}

/// The figures, one per line.
#[must_use]
pub fn to_text(figures: &[Figure]) -> String {
    let mut text = String::new();
    for figure in figures {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{} {:.0}", figure.name, figure.instructions);
    }
    text
}

/// Reads the output of [`to_text`]. Lines that start with `#` are comments.
///
/// # Errors
///
/// When a line is not a name and a number.
pub fn from_text(text: &str) -> Result<Vec<Figure>> {
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    lines
        .map(|line| {
            let (name, number) = line.split_once(' ').context(line.to_owned())?;
            let instructions = number.trim().parse().with_context(|| line.to_owned())?;
            Ok(Figure { name: name.to_owned(), instructions })
        })
        .collect()
}

/// The figures that exceed the recorded ones by more than `tolerance` (a fraction of 1), and those
/// that are not recorded.
#[must_use]
pub fn risen(now: &[Figure], recorded: &[Figure], tolerance: f64) -> Vec<String> {
    let mut complaints = Vec::new();
    for figure in now {
        let before = recorded.iter().find(|before| before.name == figure.name);
        match before {
            Some(before) if figure.instructions <= before.instructions * (1.0 + tolerance) => {}
            Some(before) => complaints.push(format!(
                "{}: {:.0} instructions, {:.0} recorded",
                figure.name, figure.instructions, before.instructions
            )),
            None => complaints.push(format!("{}: not recorded", figure.name)),
        }
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn increased_figures_are_named() {
        let recorded = from_text("# comment\nget 100\nset 200\n").unwrap();
        let now = from_text("get 105\nset 225\nnew 1\n").unwrap();
        assert_eq!(
            risen(&now, &recorded, 0.1),
            ["set: 225 instructions, 200 recorded", "new: not recorded"]
        );
        assert_eq!(from_text(&to_text(&now)).unwrap(), now);
        assert!(from_text("get\n").is_err() && from_text("get x\n").is_err());
    }

    #[test]
    fn the_total_of_a_callgrind_file_is_read() {
        assert_eq!(total("fn=x\n1 2\n\ntotals: 12345\n").unwrap(), 12345);
        assert!(total("fn=x\n").is_err());
    }
}
