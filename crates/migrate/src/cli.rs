//! The command line of `holdall migrate`.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};
use routeconf::{Params, load_file};
use tools::cli::Reach;
use tools::{Connection, Error, server_settings};

use crate::{
    Redis, Routing, Settings, Untranslatable, from_envoy, from_memcached, from_memcached_proxy,
    from_redis,
};

/// Takes over the settings of a memcached, a Redis or another proxy, and says what it could not
/// take.
#[derive(Debug, Parser)]
#[command(
    name = "holdall migrate",
    version,
    after_help = "\
Notes go to stderr, the file or the command to stdout. docs/migrate-memcached.md, migrate-redis.md
and migrate-proxy.md go through it step by step.

Exit status: 0 done; 1 a server does not answer, or a file cannot be read or written; 2 a
configuration cannot be used; 64 a wrong command line."
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
    /// Asks a running Redis or Valkey for its settings, and prints a file for holdall serve
    /// --config
    #[command(
        after_help = "Examples:\n  holdall migrate redis redis://10.0.0.5:6379 --out server.toml\n\nNotes say which commands clients called and what to call in their place, and what of the data is\nno string."
    )]
    Redis {
        /// Server: HOST, HOST:PORT or redis://HOST:PORT
        #[arg(value_name = "ADDRESS", default_value = "127.0.0.1:6379")]
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
    /// Runs the Lua of memcached's proxy, and prints a configuration for holdall route
    #[command(
        after_help = "Examples:\n  holdall migrate memcached-proxy /etc/memcached/proxy.lua --out routes.json\n\nThe file is the one of -o proxy_arg, for the library routelib."
    )]
    MemcachedProxy {
        /// The configuration
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// The tag of the listener whose routes are wanted
        #[arg(long, value_name = "TAG", default_value = "default")]
        listener: String,
        /// The file that is written [default: stdout]
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
    /// Reads a configuration of Envoy, and prints one for holdall route
    #[command(
        after_help = "Examples:\n  holdall migrate envoy /etc/envoy/envoy.yaml --out routes.json\n\nListeners with redis_proxy or tcp_proxy are read, and the clusters that stand in the file."
    )]
    Envoy {
        /// The configuration, in YAML or JSON
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// The listener that is wanted [default: the first before cache servers]
        #[arg(long, value_name = "NAME")]
        listener: Option<String>,
        /// The file that is written [default: stdout]
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
}

const GOOD: u8 = 0;
const FAILED: u8 = 1;
const BROKEN: u8 = 2;

/// The command line, for manual pages and completions.
#[must_use]
pub fn interface() -> clap::Command {
    Arguments::command()
}

/// Runs the command; the arguments come after its name.
#[must_use]
pub fn main(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let arguments: Arguments = match usage::parse("holdall migrate", arguments) {
        Ok(arguments) => arguments,
        Err(status) => return status,
    };
    ExitCode::from(match arguments.from {
        From::Memcached { address, out, reach } => {
            settings("memcached", &address, out.as_deref(), memcached(&address, &reach))
        }
        From::Redis { address, out, reach } => {
            settings("redis", &address, out.as_deref(), redis(&address, &reach))
        }
        From::Mcrouter { file } | From::Twemproxy { file } => proxy(&file),
        From::MemcachedProxy { file, listener, out } => {
            let name = file.display().to_string();
            routing(&file, out.as_deref(), |text| from_memcached_proxy(&name, text, &listener))
        }
        From::Envoy { file, listener, out } => {
            let name = file.display().to_string();
            routing(&file, out.as_deref(), |text| from_envoy(&name, text, listener.as_deref()))
        }
    })
}

fn memcached(address: &str, reach: &Reach) -> Result<Settings, Error> {
    let mut connection = Connection::open(address, &reach.options())?;
    Ok(from_memcached(&server_settings(&mut connection)?))
}

fn redis(address: &str, reach: &Reach) -> Result<Settings, Error> {
    let mut connection = tools::Redis::open(address, &reach.options())?;
    Ok(from_redis(&Redis::ask(&mut connection)?))
}

fn settings(program: &str, address: &str, out: Option<&Path>, made: Result<Settings, Error>) -> u8 {
    match made {
        Ok(made) => {
            made.notes.iter().for_each(|note| eprint_error(note));
            let head = format!("# Settings of {address}, by holdall migrate {program}.\n");
            written(&(head + &made.text), out)
        }
        Err(error) => {
            eprint_error(&error.to_string());
            FAILED
        }
    }
}

/// Makes a configuration for the proxy of a file; with `out`, the command that runs it is printed.
fn routing(
    file: &Path,
    out: Option<&Path>,
    make: impl FnOnce(&str) -> Result<Routing, Untranslatable>,
) -> u8 {
    let text = match fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) => {
            eprint_error(&format!("{}: {error}", file.display()));
            return FAILED;
        }
    };
    match make(&text) {
        Ok(made) => {
            made.notes.iter().for_each(|note| eprint_error(note));
            match (written(&made.text, out), out) {
                (GOOD, Some(out)) => print(&format!("holdall route -f {}\n", out.display())),
                (status, _) => status,
            }
        }
        Err(Untranslatable(why)) => {
            // Where a place is known, the message begins with it.
            let name = file.display().to_string();
            eprint_error(&if why.starts_with(&name) { why } else { format!("{name}: {why}") });
            BROKEN
        }
    }
}

/// Writes into a file, or to stdout without one.
fn written(text: &str, out: Option<&Path>) -> u8 {
    let Some(path) = out else { return print(text) };
    match fs::write(path, text) {
        Ok(()) => GOOD,
        Err(error) => {
            eprint_error(&format!("{}: {error}", path.display()));
            FAILED
        }
    }
}

/// The proxy reads both languages as they are.
fn proxy(file: &Path) -> u8 {
    if let Err(error) = fs::File::open(file) {
        eprint_error(&format!("{}: {error}", file.display()));
        return FAILED;
    }
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
