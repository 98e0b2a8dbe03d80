//! The command line of `holdall migrate`.

use std::ffi::OsString;
use std::fmt::Display;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};
use files::NewFile;
use routeconf::{Params, load_file};
use serde_json::json;
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
Notes go to stderr, the file or the command to stdout; with --json all of it goes to stdout.
docs/migrate-memcached.md, migrate-redis.md and migrate-proxy.md go through it step by step.

Exit status: 0 done; 1 a server does not answer, or a file cannot be written; 2 a configuration
cannot be read or used; 64 a wrong command line."
)]
struct Arguments {
    #[command(subcommand)]
    from: From,
    /// Prints one JSON object: the file's text or where it was written, the command, the notes
    #[arg(long, global = true)]
    json: bool,
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
    let (made, out, input) = match arguments.from {
        From::Memcached { address, out, reach } => {
            (settings("memcached", &address, memcached(&address, &reach)), out, None)
        }
        From::Redis { address, out, reach } => {
            (settings("redis", &address, redis(&address, &reach)), out, None)
        }
        From::Mcrouter { file } | From::Twemproxy { file } => (proxy(&file), None, None),
        From::MemcachedProxy { file, listener, out } => {
            let name = file.display().to_string();
            let make = |text: &str| from_memcached_proxy(&name, text, &listener);
            (routing(&file, out.as_deref(), make), out, Some(file))
        }
        From::Envoy { file, listener, out } => {
            let name = file.display().to_string();
            let make = |text: &str| from_envoy(&name, text, listener.as_deref());
            (routing(&file, out.as_deref(), make), out, Some(file))
        }
    };
    let told = made.and_then(|made| tell(made, out.as_deref(), input.as_deref(), arguments.json));
    ExitCode::from(told.unwrap_or_else(|Failed { why, status }| {
        eprint_error(&why);
        status
    }))
}

/// The result of a conversion.
struct Made {
    /// The new file's text; none if the old file can be used.
    text: Option<String>,
    notes: Vec<String>,
    /// The proxy's command, if its configuration is in a file.
    command: Option<String>,
}

/// The reason for a failure, and the exit status.
struct Failed {
    why: String,
    status: u8,
}

impl Failed {
    fn of(file: &Path, why: impl Display, status: u8) -> Self {
        Self { why: format!("{}: {why}", file.display()), status }
    }
}

fn memcached(address: &str, reach: &Reach) -> Result<Settings, Error> {
    let mut connection = Connection::open(address, &reach.options())?;
    Ok(from_memcached(&server_settings(&mut connection)?))
}

fn redis(address: &str, reach: &Reach) -> Result<Settings, Error> {
    let options = reach.options();
    let mut connection = tools::Redis::open(address, &options)?;
    let redis = Redis::ask(&mut connection)?;
    Ok(from_redis(&Redis { has_login: options.login.is_some(), ..redis }))
}

fn settings(program: &str, address: &str, made: Result<Settings, Error>) -> Result<Made, Failed> {
    let made = made.map_err(|error| Failed { why: error.to_string(), status: FAILED })?;
    let head = format!("# Settings of {address}, by holdall migrate {program}.\n");
    Ok(Made { text: Some(head + &made.text), notes: made.notes, command: None })
}

/// Converts a file into a configuration for the proxy.
fn routing(
    file: &Path,
    out: Option<&Path>,
    make: impl FnOnce(&str) -> Result<Routing, Untranslatable>,
) -> Result<Made, Failed> {
    let text = fs::read_to_string(file).map_err(|error| Failed::of(file, error, BROKEN))?;
    let made = make(&text).map_err(|Untranslatable(why)| {
        // If a place is known, the message starts with it.
        match why.starts_with(&file.display().to_string()) {
            true => Failed { why, status: BROKEN },
            false => Failed::of(file, why, BROKEN),
        }
    })?;
    Ok(Made { text: Some(made.text), notes: made.notes, command: out.map(route) })
}

/// The proxy reads both languages directly.
fn proxy(file: &Path) -> Result<Made, Failed> {
    fs::File::open(file).map_err(|error| Failed::of(file, error, BROKEN))?;
    let loaded = load_file(file, &Params::default())
        .map_err(|rejected| Failed { why: rejected.render(), status: BROKEN })?;
    let notes = loaded.warnings.iter().map(|warning| warning.render(&loaded.config.files));
    Ok(Made { text: None, notes: notes.collect(), command: Some(route(file)) })
}

/// The command that runs a proxy with this configuration.
fn route(file: &Path) -> String {
    format!("holdall route -f {}", file.display())
}

/// Writes the file, or prints it without a name for one, and reports the notes and the command.
fn tell(made: Made, out: Option<&Path>, input: Option<&Path>, as_json: bool) -> Result<u8, Failed> {
    let Made { mut text, notes, command } = made;
    if let Some(path) = out {
        let text = text.take().unwrap_or_default();
        write(path, &text, input).map_err(|error| Failed::of(path, error, FAILED))?;
    }
    if as_json {
        let all = json!({"text": text, "out": out, "command": command, "notes": notes});
        return Ok(print(&format!("{all:#}\n")));
    }
    notes.iter().for_each(|note| eprint_error(note));
    let lines = text.into_iter().chain(command.map(|command| command + "\n"));
    Ok(print(&lines.collect::<String>()))
}

fn write(path: &Path, text: &str, input: Option<&Path>) -> io::Result<()> {
    let mut file = NewFile::create(path, input.as_slice())?;
    file.write_all(text.as_bytes())?;
    file.finish()
}

fn eprint_error(message: &str) {
    // If stderr is closed, the message cannot be delivered.
    let _ = writeln!(io::stderr(), "holdall migrate: {message}");
}

/// A closed reader, such as `head`, is not a failure.
fn print(text: &str) -> u8 {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            eprint_error(&format!("stdout: {error}"));
            FAILED
        }
        _ => GOOD,
    }
}
