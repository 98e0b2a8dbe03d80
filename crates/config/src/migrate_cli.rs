//! The command line of `holdall migrate`.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};
use routeconf::{Params, load_file};
use tools::Connection;
use tools::cli::Reach;

use crate::{diff, migrated};

/// Takes over the settings of a memcached, mcrouter or twemproxy, and says what it could not take.
#[derive(Debug, Parser)]
#[command(
    name = "holdall migrate",
    version,
    after_help = "\
Notes go to stderr, the file or the command to stdout. docs/migrate-memcached.md and
docs/migrate-proxy.md go through it step by step.

Exit status: 0 done; 1 a server does not answer, or a file cannot be written; 2 a configuration
cannot be used; 64 a wrong command line."
)]
struct Arguments {
    #[command(subcommand)]
    from: From,
}

#[derive(Debug, Subcommand)]
enum From {
    /// Asks a running memcached for its settings, and prints a file for holdall serve --config
    #[command(
        after_help = "Examples:\n  holdall migrate memcached >server.toml\n  holdall migrate memcached 10.0.0.5:11211 --out server.toml"
    )]
    Memcached {
        /// Server: HOST, HOST:PORT or unix:PATH
        #[arg(value_name = "ADDRESS", default_value = "127.0.0.1:11211")]
        address: String,
        /// The file that is written [default: stdout]
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
        #[command(flatten)]
        reach: Reach,
    },
    /// Checks a configuration of mcrouter, and prints the command that runs it
    #[command(after_help = "Examples:\n  holdall migrate mcrouter /etc/mcrouter.json")]
    Mcrouter {
        /// The configuration
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Checks a configuration of twemproxy, and prints the command that runs it
    #[command(after_help = "Examples:\n  holdall migrate twemproxy /etc/nutcracker/nutcracker.yml")]
    Twemproxy {
        /// The configuration
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
}

const GOOD: u8 = 0;
const FAILED: u8 = 1;
const BROKEN: u8 = 2;
const EXIT_USAGE: u8 = 64;

/// The command line, for manual pages and completions.
#[must_use]
pub fn interface() -> clap::Command {
    Arguments::command()
}

/// Runs the command; the arguments come after its name.
#[must_use]
pub fn main(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let line = std::iter::once(OsString::from("holdall migrate")).chain(arguments);
    let arguments = match Arguments::try_parse_from(line) {
        Ok(arguments) => arguments,
        Err(error) => {
            // Nobody is left to tell when the stream is closed.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { EXIT_USAGE } else { GOOD });
        }
    };
    ExitCode::from(match arguments.from {
        From::Memcached { address, out, reach } => memcached(&address, out.as_deref(), &reach),
        From::Mcrouter { file } | From::Twemproxy { file } => proxy(&file),
    })
}

fn memcached(address: &str, out: Option<&Path>, reach: &Reach) -> u8 {
    let present = Connection::open(address, &reach.options())
        .and_then(|mut connection| diff::ask(&mut connection));
    let present = match present {
        Ok(present) => present,
        Err(error) => {
            eprint_error(&error.to_string());
            return FAILED;
        }
    };
    let made = migrated(&present);
    made.notes.iter().for_each(|note| eprint_error(note));
    let text = format!("# Settings of {address}, by holdall migrate memcached.\n{}", made.text);
    match out {
        None => print(&text),
        Some(path) => match fs::write(path, text) {
            Ok(()) => GOOD,
            Err(error) => {
                eprint_error(&format!("{}: {error}", path.display()));
                FAILED
            }
        },
    }
}

/// The proxy reads both languages as they are.
fn proxy(file: &Path) -> u8 {
    match load_file(file, &Params::default()) {
        Err(rejected) => {
            eprint_error(&rejected.render());
            BROKEN
        }
        Ok(loaded) => {
            for warning in &loaded.warnings {
                eprint_error(&warning.render(&loaded.config.files));
            }
            print(&format!("holdall route -f {}\n", file.display()))
        }
    }
}

fn eprint_error(message: &str) {
    // Nobody is left to tell when stderr is closed.
    let _ = writeln!(io::stderr(), "holdall migrate: {message}");
}

/// A reader that went away, as `head` does, is no failure.
fn print(text: &str) -> u8 {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => FAILED,
        _ => GOOD,
    }
}
