//! The command lines. Exit status: 0; 1 when a server or a file fails; 2 when a server refused
//! items; 64 for a wrong command line.

mod commands;
mod copy;
mod look;

use std::ffi::OsString;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{CommandFactory as _, Parser};
use indicatif::{ProgressBar, ProgressStyle};

use crate::connection::{Error, Options};
use commands::{BigKeysArgs, CopyArgs, DumpArgs, KeysArgs, LatencyArgs, PingArgs, RestoreArgs};

/// The way to servers, the same for every command.
#[derive(Clone, Debug, clap::Args)]
pub struct Reach {
    /// TLS; servers are verified by these issuers (PEM)
    #[arg(long, value_name = "FILE", conflicts_with = "tls_insecure")]
    tls_ca: Option<PathBuf>,
    /// TLS with any certificate
    #[arg(long)]
    tls_insecure: bool,
    /// Logs in by the first line of a file: USER:PASSWORD
    #[arg(long, value_name = "FILE")]
    login: Option<PathBuf>,
    /// Seconds after which a silent server has failed
    #[arg(long, value_name = "SECS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3600))]
    timeout: u64,
}

impl Reach {
    /// The connection settings in the flags.
    #[must_use]
    pub fn options(&self) -> Options {
        Options {
            tls_ca: self.tls_ca.clone(),
            tls_insecure: self.tls_insecure,
            login: self.login.clone(),
            timeout: Duration::from_secs(self.timeout),
        }
    }
}

/// The command line of `ping`, `latency`, `keys`, `bigkeys`, `dump`, `restore` or `cp`, for manual
/// pages and completions; `None` for another.
#[must_use]
pub fn interface(name: &str) -> Option<clap::Command> {
    Some(match name {
        "ping" => PingArgs::command(),
        "latency" => LatencyArgs::command(),
        "keys" => KeysArgs::command(),
        "bigkeys" => BigKeysArgs::command(),
        "dump" => DumpArgs::command(),
        "restore" => RestoreArgs::command(),
        "cp" => CopyArgs::command(),
        _ => return None,
    })
}

/// Runs one of these commands; the arguments come after its name.
#[must_use]
pub fn main(name: &str, arguments: impl Iterator<Item = OsString>) -> ExitCode {
    match name {
        "ping" => run(name, arguments, look::ping),
        "latency" => run(name, arguments, look::latency),
        "keys" => run(name, arguments, look::keys),
        "bigkeys" => run(name, arguments, look::big_keys),
        "dump" => run(name, arguments, copy::dump),
        "restore" => run(name, arguments, copy::restore),
        _ => run(name, arguments, copy::copy),
    }
}

fn run<P: Parser>(
    name: &str,
    arguments: impl Iterator<Item = OsString>,
    command: impl FnOnce(P) -> Result<ExitCode, Error>,
) -> ExitCode {
    match usage::parse(&format!("holdall {name}"), arguments) {
        Ok(arguments) => command(arguments).unwrap_or_else(|error| failed(name, &error)),
        Err(status) => status,
    }
}

fn failed(name: &str, error: &Error) -> ExitCode {
    // When stderr is closed, there is no other place to report to.
    let _ = writeln!(io::stderr(), "holdall {name}: {error}");
    ExitCode::FAILURE
}

/// Prints a line; false once the reader is gone, as after `head`.
fn say(line: &str) -> Result<bool, Error> {
    match writeln!(io::stdout().lock(), "{line}") {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Error::File { file: "stdout".into(), error }),
    }
}

/// A line of progress on a terminal's stderr; nothing elsewhere.
fn progress(total: Option<u64>) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let (bar, form) = match total {
        Some(total) => (ProgressBar::new(total), "{pos} of {len} items  {per_sec}  {eta} left"),
        None => (ProgressBar::no_length(), "{pos} items  {per_sec}  {elapsed}"),
    };
    match ProgressStyle::with_template(form) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
