//! `holdall watch`: connects to servers and proxies, and shows their events.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, IsTerminal, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::{CommandFactory as _, Parser};

use crate::interval::Interval;
use crate::line::{self, Line};
use crate::view;

/// Shows live what servers and proxies are asked: operations, pools, servers, keys, with hit ratios
/// and latencies.
///
/// It sums up the output of their `watch` command. A busy proxy reports a sample of about 2,000
/// requests per second and worker, with the number of requests that each one represents. A server
/// drops lines that are not read in time. Rates are scaled accordingly.
///
/// A holdall server reports gets (also gat and mg), stores, and deletes of items that it has. It
/// does not report touch, incr, decr, ma, me and deletes that miss. memcached reports each lookup of
/// a key as a get. Lookups of stores, and of deletes that memcached reports, are left out. Those of
/// touch, incr, decr, ma, me and of deletes that miss (before 1.6.23: of all deletes) count as gets,
/// also in the hit ratio.
#[derive(Debug, Parser)]
#[command(name = "holdall watch", bin_name = "holdall watch", version)]
struct Arguments {
    /// Servers and proxies: HOST or HOST:PORT
    #[arg(value_name = "ADDRESS", default_value = "127.0.0.1:11211")]
    addresses: Vec<String>,

    /// Seconds between two looks
    #[arg(short, long, value_name = "SECS", default_value_t = 1.0, value_parser = seconds)]
    interval: f64,

    /// Looks until it ends [default: until it is interrupted]
    #[arg(long, value_name = "N")]
    count: Option<u64>,

    /// Rows of each kind
    #[arg(long, value_name = "N", default_value_t = 10)]
    top: usize,

    /// A line of JSON for each look, for programs
    #[arg(long)]
    json: bool,
}

/// An invalid value of `--interval`.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("0.1 to 3600 seconds")]
struct WrongInterval;

fn seconds(text: &str) -> Result<f64, WrongInterval> {
    match text.parse() {
        Ok(secs) if (0.1..=3600.0).contains(&secs) => Ok(secs),
        _ => Err(WrongInterval),
    }
}

/// memcached's port, for addresses without one.
const PORT: u16 = 11211;

/// Lines read but not yet counted.
const LINES_MAX: usize = 10_000;

/// The time limit for a server to connect and to allow the watch.
const PATIENCE: Duration = Duration::from_secs(5);

/// A message from a connection.
enum Message {
    /// The watch of the server at this address has started.
    Begun(Arc<str>, SocketAddr),
    Line(Arc<str>, Line),
    /// It has ended, for this reason.
    End(Arc<str>, String),
}

/// The command line, for manual pages and completions.
#[must_use]
pub fn interface() -> clap::Command {
    Arguments::command()
}

/// Runs it. Ends with 0, 64 for a wrong command line, and 1 when no connection is left.
#[must_use]
pub fn main(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let arguments: Arguments = match usage::parse("holdall watch", arguments) {
        Ok(arguments) => arguments,
        Err(status) => return status,
    };
    let (sender, told) = sync_channel(LINES_MAX);
    for address in &arguments.addresses {
        let (address, sender) = (Arc::<str>::from(&**address), sender.clone());
        let follow = move || follow(&address, &sender);
        if let Err(error) = thread::Builder::new().name("watch".into()).spawn(follow) {
            eprint_error(&format!("cannot start a thread: {error}"));
            return ExitCode::FAILURE;
        }
    }
    drop(sender);
    show(&arguments, &told)
}

/// Reads an address's lines until it ends.
fn follow(address: &Arc<str>, sender: &SyncSender<Message>) {
    let why = match read(address, sender) {
        Ok(()) => "closed the connection".to_owned(),
        Err(error) => error.to_string(),
    };
    // At the end of the program, nothing receives this.
    let _ = sender.send(Message::End(Arc::clone(address), why));
}

/// The watched events, starting with the largest set that a server may know: memcached before
/// 1.6.23 does not know `deletions`, and memcached without a proxy does not know `proxyreqs`.
const WATCHED: [&str; 3] = [
    "watch fetchers mutations deletions proxyreqs\r\n",
    "watch fetchers mutations deletions\r\n",
    "watch fetchers mutations\r\n",
];

fn read(address: &Arc<str>, sender: &SyncSender<Message>) -> io::Result<()> {
    let mut stream = connect(address)?;
    let peer = stream.peer_addr()?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut lines = BufReader::new(stream.try_clone()?);
    let is_memcached = is_memcached(&mut stream, &mut lines)?;
    let mut line = Vec::new();
    let mut answer = String::new();
    for command in WATCHED {
        stream.write_all(command.as_bytes())?;
        line.clear();
        if lines.read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        String::from_utf8_lossy(&line).trim_end().clone_into(&mut answer);
        // Any other answer is a refusal, which fewer kinds would not change.
        if answer != "ERROR" {
            break;
        }
    }
    if answer != "OK" {
        return Err(io::Error::other(format!("it cannot be watched: it answers {answer:?}")));
    }
    stream.set_read_timeout(None)?;
    if sender.send(Message::Begun(Arc::clone(address), peer)).is_err() {
        return Ok(());
    }
    loop {
        line.clear();
        if lines.read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&line);
        let line = line::read(text.trim_end(), is_memcached);
        if sender.send(Message::Line(Arc::clone(address), line)).is_err() {
            return Ok(());
        }
    }
}

/// True if the server has statistics without holdall's version.
fn is_memcached(stream: &mut TcpStream, lines: &mut impl BufRead) -> io::Result<bool> {
    stream.write_all(b"stats\r\n")?;
    let (mut has_stats, mut is_holdall) = (false, false);
    let mut line = Vec::new();
    while lines.read_until(b'\n', &mut line)? > 0 && line.starts_with(b"STAT ") {
        has_stats = true;
        is_holdall |= line.starts_with(b"STAT holdall_version ");
        line.clear();
    }
    Ok(has_stats && !is_holdall)
}

fn connect(address: &str) -> io::Result<TcpStream> {
    let mut last = io::Error::other("names no address");
    for found in std::net::ToSocketAddrs::to_socket_addrs(&hostport::with_port(address, PORT))? {
        match TcpStream::connect_timeout(&found, PATIENCE) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Sums and prints, interval by interval.
fn show(arguments: &Arguments, told: &Receiver<Message>) -> ExitCode {
    let is_terminal = io::stdout().is_terminal();
    let (mut left, mut looks) = (arguments.addresses.len(), 0);
    // The watched servers, as typed and as named by a proxy.
    let mut watched: BTreeMap<Arc<str>, String> = BTreeMap::new();
    while arguments.count.is_none_or(|count| looks < count) {
        let mut interval = Interval::default();
        let began = Instant::now();
        let end = began + Duration::from_secs_f64(arguments.interval);
        while let Some(wait) = end.checked_duration_since(Instant::now()) {
            match told.recv_timeout(wait) {
                Ok(Message::Begun(address, peer)) => {
                    watched.insert(address, peer.to_string());
                }
                Ok(Message::Line(from, Line::Request(seen))) => {
                    let is_asked = |(typed, peer): (&Arc<str>, &String)| {
                        **typed == *seen.server || *peer == seen.server
                    };
                    let is_told_by_server = watched.iter().any(is_asked);
                    interval.add(*seen, &from, is_told_by_server);
                }
                Ok(Message::Line(_, Line::Skipped(count))) => interval.skipped += count,
                Ok(Message::Line(_, Line::Other)) => {}
                Ok(Message::End(from, why)) => {
                    watched.remove(&from);
                    eprint_error(&format!("{from}: {why}"));
                    left -= 1;
                }
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => return ExitCode::FAILURE,
            }
            if left == 0 {
                return ExitCode::FAILURE;
            }
        }
        interval.end();
        let secs = began.elapsed().as_secs_f64();
        let at_secs = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let text = if arguments.json {
            view::json(&interval, at_secs, secs, arguments.top)
        } else if is_terminal {
            format!("{}{}", view::CLEAR, view::table(&interval, secs, arguments.top))
        } else {
            view::table(&interval, secs, arguments.top) + "\n"
        };
        let mut out = io::stdout().lock();
        if out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_err() {
            // The reader of the output is gone.
            return ExitCode::SUCCESS;
        }
        looks += 1;
    }
    ExitCode::SUCCESS
}

fn eprint_error(line: &str) {
    // When stderr is closed, there is no other place to report to.
    let _ = writeln!(io::stderr(), "holdall watch: {line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_needs_no_port() {
        for address in ["::1", "[::1]", "127.0.0.1"] {
            // Some host may have a server there; most refuse the connection.
            let error = connect(address).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(!error.contains("lookup") && !error.contains("invalid"), "{error}");
        }
    }
}
