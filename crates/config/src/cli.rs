//! The command line of `holdall config`.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};
use options::settings::Given;
use options::{Cause, EXIT_USAGE, Environment, Invocation, Options, Refusal, Style};
use serde_json::{Value, json};
use tools::cli::Reach;
use tools::{Connection, server_settings};

use crate::{check, diff, schema, show};

/// Checks, shows and compares the settings of a server.
#[derive(Debug, Parser)]
#[command(
    name = "holdall config",
    version,
    after_help = "\
Settings are those of holdall serve: a flag's long name with _ for -, or the name of an -o option.
Flags count before variables of the environment (HOLDALL_MEMORY_LIMIT), those before the file.

Exit status: 0 all is well; 1 there are warnings or differences, or a server does not answer; 2 a
setting is wrong, or a file cannot be read; 64 a wrong command line."
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Names every fault of a file of settings, with its place and a hint
    #[command(
        after_help = "Examples:\n  holdall config check /etc/holdall/server.toml\n  holdall config check /etc/memcached.conf"
    )]
    Check {
        /// Files of settings: TOML where the name ends so, else flags as in /etc/memcached.conf
        #[arg(value_name = "FILE", required = true)]
        files: Vec<String>,
        /// Prints JSON
        #[arg(long)]
        json: bool,
    },
    /// Prints every setting that a server would have, and where it comes from
    #[command(
        after_help = "Examples:\n  holdall config show --config server.toml\n  holdall config show --json -m 4g -t 8"
    )]
    Show {
        /// Prints JSON; goes before the server's flags
        #[arg(long)]
        json: bool,
        /// The flags of holdall serve
        #[arg(value_name = "FLAG", trailing_var_arg = true, allow_hyphen_values = true)]
        flags: Vec<OsString>,
    },
    /// Compares a file of settings with a running server
    #[command(
        after_help = "Examples:\n  holdall config diff server.toml\n  holdall config diff server.toml 10.0.0.5:11211 --login login.txt\n\nMemcached's settings can be compared as well."
    )]
    Diff {
        /// The file of settings
        #[arg(value_name = "FILE")]
        file: String,
        /// Server: HOST, HOST:PORT or unix:PATH [default: where the file has it listen]
        #[arg(value_name = "ADDRESS")]
        address: Option<String>,
        /// Prints JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        reach: Reach,
    },
    /// Prints the JSON Schema of the TOML file, for editors
    #[command(after_help = "Examples:\n  holdall config schema >server.schema.json")]
    Schema,
}

/// No faults or differences.
const GOOD: u8 = 0;
/// There are differences, or a server fails.
const DIFFERENT: u8 = 1;
/// A setting is wrong.
const BROKEN: u8 = 2;

/// The largest file of settings, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The command line, for manual pages and completions.
#[must_use]
pub fn interface() -> clap::Command {
    Arguments::command()
}

/// Runs the command; the arguments come after its name.
#[must_use]
pub fn main(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let arguments: Arguments = match usage::parse("holdall config", arguments) {
        Ok(arguments) => arguments,
        Err(status) => return status,
    };
    ExitCode::from(match arguments.command {
        Command::Check { files, json } => check_files(&files, json),
        Command::Show { json, flags } => show_settings(json, flags),
        Command::Diff { file, address, json, reach } => compare(&file, address, json, &reach),
        Command::Schema => print(&format!("{:#}\n", schema())),
    })
}

fn check_files(files: &[String], as_json: bool) -> u8 {
    let has_colours = usage::has_colours();
    let (mut status, mut all) = (GOOD, Vec::new());
    for name in files {
        let text = match files::read_text(Path::new(name), FILE_BYTES_MAX) {
            Ok(text) => text,
            Err(error) => {
                eprint_error(&format!("{name}: {error}"));
                status = BROKEN;
                continue;
            }
        };
        let mut checked = check(name, text);
        checked.look_at_files();
        if !checked.faults.is_empty() {
            status = BROKEN;
        } else if !checked.warnings.is_empty() {
            status = status.max(DIFFERENT);
        }
        match checked.to_json() {
            Value::Array(faults) if as_json => all.extend(faults),
            _ => status = status.max(print(&checked.to_text(has_colours))),
        }
    }
    if as_json {
        status = status.max(print(&format!("{:#}\n", Value::Array(all))));
    }
    status
}

fn show_settings(as_json: bool, flags: Vec<OsString>) -> u8 {
    let (options, given) = match settle(flags) {
        Ok(settled) => settled,
        Err(refusal) => return refused(&refusal),
    };
    let shown = show::shown(&options, &given);
    print(&if as_json { format!("{:#}\n", show::to_json(&shown)) } else { show::table(&shown) })
}

fn compare(file: &str, address: Option<String>, as_json: bool, reach: &Reach) -> u8 {
    let flags = ["--config", file].map(OsString::from).to_vec();
    let (options, given) = match settle(flags) {
        Ok(settled) => settled,
        Err(refusal) => return refused(&refusal),
    };
    let address = address.unwrap_or_else(|| address_of(&options));
    let present = Connection::open(&address, &reach.options())
        .and_then(|mut connection| server_settings(&mut connection));
    let present = match present {
        Ok(present) => present,
        Err(error) => {
            eprint_error(&error.to_string());
            return DIFFERENT;
        }
    };
    let found = diff::differences(&options, &given, &present);
    let printed = if as_json {
        let found = diff::to_json(&found);
        print(&format!("{:#}\n", json!({ "server": address, "differences": found })))
    } else {
        print(&diff::lines(&found))
    };
    if found.is_empty() { printed } else { DIFFERENT }
}

/// The options of a server with these flags, in this environment.
fn settle(flags: Vec<OsString>) -> Result<(Options, Vec<Given>), Refusal> {
    match options::parse(Style::Holdall, flags, &Environment::of_process())? {
        Invocation::Run { options, given, warnings, .. } => {
            warnings.iter().for_each(|warning| eprint_error(&format!("warning: {warning}")));
            Ok((*options, given))
        }
        Invocation::Print(_) => Err(Refusal {
            hint: Some("see holdall config --help".to_owned()),
            ..Refusal::of_flag("the flags ask for a page".to_owned())
        }),
    }
}

/// The first address at which a server with these options listens.
fn address_of(options: &Options) -> String {
    match (options.tcp.first(), &options.unix.path) {
        (Some(endpoint), _) => {
            let host = endpoint.host.as_deref().unwrap_or("127.0.0.1");
            let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
            format!("{host}:{}", endpoint.port)
        }
        (None, Some(path)) => format!("unix:{}", path.display()),
        (None, None) => format!("127.0.0.1:{}", options::PORT),
    }
}

/// A wrong flag is a wrong command line; a fault in a file or a variable is a wrong setting.
fn refused(refusal: &Refusal) -> u8 {
    eprint_error(&refusal.to_string());
    match refusal.cause {
        Cause::Flag => EXIT_USAGE,
        Cause::Setting => BROKEN,
    }
}

fn eprint_error(message: &str) {
    // If stderr is closed, there is no reader.
    let _ = writeln!(io::stderr(), "holdall config: {message}");
}

/// A reader that has closed the pipe, as `head` does, is no failure.
fn print(text: &str) -> u8 {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => DIFFERENT,
        _ => GOOD,
    }
}
