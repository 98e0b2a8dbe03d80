//! `holdall watch`: connects to servers and proxies, and shows their events.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::{CommandFactory as _, Parser};
use tools::cli::Reach;
use tools::{Connection, Options};

use crate::interval::Interval;
use crate::line::{self, Line};
use crate::view;

/// Shows live what servers and proxies are asked: operations, pools, servers, keys, with hit ratios
/// and latencies.
///
/// It sums up the output of their `watch` command. A busy proxy reports a sample of about 2,000
/// requests per second and worker, with the number of requests that each one represents. A server
/// drops lines that are not read in time. The rates of each address are scaled accordingly.
///
/// A holdall server reports gets (also gat and mg), stores, and deletes of items that it has. It
/// does not report touch, incr, decr, ma, me and deletes that miss. memcached reports each lookup
/// of a key as a get. Lookups of stores, and of deletes that memcached reports, are left out. Those
/// of touch, incr, decr, ma, me and of deletes that miss (before 1.6.23: of all deletes) count as
/// gets, also in the hit ratio.
#[derive(Debug, Parser)]
#[command(name = "holdall watch", bin_name = "holdall watch", version)]
struct Arguments {
    /// Servers and proxies: HOST, HOST:PORT or unix:PATH
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

    #[command(flatten)]
    reach: Reach,
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

/// Lines read but not yet counted.
const LINES_MAX: usize = 10_000;

/// A message from a connection.
enum Message {
    /// The watch of the server at this address has started; a unix socket has no other address.
    Begun(Arc<str>, Option<SocketAddr>),
    Line(Arc<str>, Line),
    /// It has ended, for this reason, which names it.
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
        let reach = arguments.reach.options();
        let follow = move || follow(&address, &reach, &sender);
        if let Err(error) = thread::Builder::new().name("watch".into()).spawn(follow) {
            eprint_error(&format!("cannot start a thread: {error}"));
            return ExitCode::FAILURE;
        }
    }
    drop(sender);
    show(&arguments, &told)
}

/// Reads an address's lines until it ends.
fn follow(address: &Arc<str>, reach: &Options, sender: &SyncSender<Message>) {
    if let Err(error) = read(address, reach, sender) {
        // At the end of the program, nothing receives this.
        let _ = sender.send(Message::End(Arc::clone(address), error.to_string()));
    }
}

/// The watched events, starting with the largest set that a server may know: memcached before
/// 1.6.23 does not know `deletions`, and memcached without a proxy does not know `proxyreqs`.
const WATCHED: [&str; 3] = [
    "watch fetchers mutations deletions proxyreqs\r\n",
    "watch fetchers mutations deletions\r\n",
    "watch fetchers mutations\r\n",
];

/// Ends without an error once nothing receives the lines.
fn read(
    address: &Arc<str>,
    reach: &Options,
    sender: &SyncSender<Message>,
) -> Result<(), tools::Error> {
    let mut connection = Connection::open(address, reach)?;
    let is_memcached = is_memcached(&mut connection)?;
    let mut answer = String::new();
    for command in WATCHED {
        connection.send(command.as_bytes())?;
        answer = connection.line()?;
        // Any other answer is a refusal, which fewer kinds would not change.
        if answer != "ERROR" {
            break;
        }
    }
    if answer != "OK" {
        return Err(connection.unexpected("watch", &answer));
    }
    // Without requests there are no lines.
    connection.wait_without_limit()?;
    let mut message = Message::Begun(Arc::clone(address), connection.peer());
    while sender.send(message).is_ok() {
        let line = line::read(connection.line()?.trim_end(), is_memcached);
        message = Message::Line(Arc::clone(address), line);
    }
    Ok(())
}

/// True if the server has statistics without holdall's version.
fn is_memcached(connection: &mut Connection) -> Result<bool, tools::Error> {
    connection.send(b"stats\r\n")?;
    let (mut has_stats, mut is_holdall) = (false, false);
    loop {
        let line = connection.line()?;
        if !line.starts_with("STAT ") {
            return Ok(has_stats && !is_holdall);
        }
        has_stats = true;
        is_holdall |= line.starts_with("STAT holdall_version ");
    }
}

/// Sums and prints, interval by interval.
fn show(arguments: &Arguments, told: &Receiver<Message>) -> ExitCode {
    let is_terminal = io::stdout().is_terminal();
    let addresses = arguments.addresses.len();
    let (mut left, mut looks) = (addresses, 0);
    let of_one = || Interval::of_one(addresses);
    // The watched servers, as typed and as named by a proxy.
    let mut watched: BTreeMap<Arc<str>, String> = BTreeMap::new();
    while arguments.count.is_none_or(|count| looks < count) {
        let mut each: BTreeMap<Arc<str>, Interval> = BTreeMap::new();
        let began = Instant::now();
        let end = began + Duration::from_secs_f64(arguments.interval);
        while let Some(wait) = end.checked_duration_since(Instant::now()) {
            match told.recv_timeout(wait) {
                Ok(Message::Begun(address, peer)) => {
                    let peer = peer.map_or_else(|| address.to_string(), |peer| peer.to_string());
                    watched.insert(address, peer);
                }
                Ok(Message::Line(from, Line::Request(seen))) => {
                    let is_asked = |(typed, peer): (&Arc<str>, &String)| {
                        **typed == *seen.server || *peer == seen.server
                    };
                    let is_told_by_server = watched.iter().any(is_asked);
                    let interval = each.entry(Arc::clone(&from)).or_insert_with(of_one);
                    interval.add(*seen, &from, is_told_by_server);
                }
                Ok(Message::Line(from, Line::Skipped(count))) => {
                    each.entry(from).or_insert_with(of_one).skipped += count;
                }
                Ok(Message::Line(_, Line::Other)) => {}
                Ok(Message::End(from, why)) => {
                    watched.remove(&from);
                    eprint_error(&why);
                    left -= 1;
                }
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => return ExitCode::FAILURE,
            }
            if left == 0 {
                return ExitCode::FAILURE;
            }
        }
        let interval = Interval::of_all(each);
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
