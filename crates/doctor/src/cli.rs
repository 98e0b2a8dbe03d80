//! `holdall doctor`.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser};

use crate::{
    Finding, Host, Level, Setting, apply, ask, examine, known, layout, report, text, undo,
};

/// Says what on this host costs cache servers speed, memory or safety, and how to mend it.
#[derive(Debug, Parser)]
#[command(name = "holdall doctor", version, after_help = EXAMPLES)]
struct Arguments {
    /// Servers to ask for their version, which may have known faults: HOST:PORT
    #[arg(value_name = "ADDRESS")]
    addresses: Vec<String>,
    /// The network interface that carries requests [default: every physical one]
    #[arg(long, value_name = "NAME")]
    nic: Vec<String>,
    /// Prints JSON
    #[arg(long)]
    json: bool,
    /// Writes the settings that are safe to change, until the host starts anew
    #[arg(long, conflicts_with_all = ["undo", "layout", "report"])]
    apply: bool,
    /// Brings back what --apply changed
    #[arg(long, conflicts_with_all = ["addresses", "nic", "json", "layout", "report"])]
    undo: bool,
    /// Prints on which CPUs threads and interrupts belong
    #[arg(long, conflicts_with_all = ["json", "report"])]
    layout: bool,
    /// Prints host, servers and findings for the description of a fault, without secrets
    #[arg(long, conflicts_with = "json")]
    report: bool,
    /// The folder that has the host's proc and sys
    #[arg(long, value_name = "FOLDER", default_value = "/", hide = true)]
    root: PathBuf,
}

const EXAMPLES: &str = "\
Examples:
  holdall doctor                    everything that it finds, why it matters, what mends it
  holdall doctor 10.0.0.5:11211     known faults of that server's version as well
  holdall doctor --apply            as root: writes what can be changed without a restart
  holdall doctor --undo             brings the former settings back
  holdall doctor --layout           the table of threads and interrupts by core

Exit status: 0 without a warning; 1 with one; 2 when a setting or a server fails; 64 for a wrong
command line. docs/doctor.md lists the checks.";

const EXIT_WARNING: u8 = 1;
const EXIT_FAILURE: u8 = 2;

/// The command line, for manual pages and completions.
#[must_use]
pub fn interface() -> clap::Command {
    Arguments::command()
}

/// Runs the command; the arguments come after `doctor`.
#[must_use]
pub fn main(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let arguments: Arguments = match usage::parse("holdall doctor", arguments) {
        Ok(arguments) => arguments,
        Err(status) => return status,
    };
    let host = Host::at(Path::new(&arguments.root));
    let is_missing = |nic: &&String| !host.has(&format!("/sys/class/net/{nic}"));
    if let Some(nic) = arguments.nic.iter().find(is_missing) {
        let _ = writeln!(io::stderr(), "holdall doctor: --nic: there is no interface '{nic}'");
        return ExitCode::from(usage::EXIT_USAGE);
    }
    match run(&arguments, &host) {
        Ok((shown, status)) => match io::stdout().lock().write_all(shown.as_bytes()) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => refused(&error),
            _ => ExitCode::from(status),
        },
        Err(error) => refused(&*error),
    }
}

fn refused(why: &dyn std::fmt::Display) -> ExitCode {
    // When stderr is closed, there is no other place to report to.
    let _ = writeln!(io::stderr(), "holdall doctor: {why}");
    ExitCode::from(EXIT_FAILURE)
}

/// The text for stdout, and the exit status.
fn run(arguments: &Arguments, host: &Host) -> Result<(String, u8), Box<dyn std::error::Error>> {
    if arguments.undo {
        return Ok((changes("brought back", &undo(host)?), 0));
    }
    if arguments.layout {
        return Ok((layout(host), 0));
    }
    let mut findings = examine(host, &arguments.nic);
    for address in &arguments.addresses {
        let version = ask(address).map_err(|error| format!("{address}: {error}"))?;
        findings.extend(known(address, &version));
    }
    if arguments.apply {
        return Ok((changes("written", &apply(host, &findings)?), 0));
    }
    let has_warning = findings.iter().any(|finding: &Finding| finding.level == Level::Warning);
    let shown = if arguments.json {
        serde_json::to_string_pretty(&findings)? + "\n"
    } else if arguments.report {
        report(host, &findings)
    } else {
        text(&findings)
    };
    Ok((shown, if has_warning { EXIT_WARNING } else { 0 }))
}

fn changes(done: &str, settings: &[Setting]) -> String {
    let lines = settings.iter().map(|setting| format!("{done}: {}\n", setting.command()));
    let shown: String = lines.collect();
    if shown.is_empty() { "nothing to change\n".to_owned() } else { shown }
}
