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
    #[arg(long, conflicts_with_all = ["addresses", "nic", "layout", "report"])]
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
        Ok(outcome) => ended(&outcome),
        Err(error) => refused(&*error),
    }
}

/// The result of a run.
struct Outcome {
    /// The text for stdout.
    shown: String,
    /// The exit status if no server failed.
    status: u8,
    /// The servers that did not tell their version, and the reasons.
    failures: Vec<String>,
}

fn ended(outcome: &Outcome) -> ExitCode {
    match io::stdout().lock().write_all(outcome.shown.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => return refused(&error),
        _ => {}
    }
    let mut status = ExitCode::from(outcome.status);
    for failure in &outcome.failures {
        status = refused(failure);
    }
    status
}

fn refused(why: &dyn std::fmt::Display) -> ExitCode {
    // When stderr is closed, there is no other place to report to.
    let _ = writeln!(io::stderr(), "holdall doctor: {why}");
    ExitCode::from(EXIT_FAILURE)
}

fn run(arguments: &Arguments, host: &Host) -> Result<Outcome, Box<dyn std::error::Error>> {
    let done = |shown| Outcome { shown, status: 0, failures: Vec::new() };
    if arguments.undo {
        return Ok(done(changes("brought back", &undo(host)?, arguments.json)?));
    }
    if arguments.layout {
        return Ok(done(layout(host)));
    }
    let mut findings = examine(host, &arguments.nic);
    let mut failures = Vec::new();
    for address in &arguments.addresses {
        match ask(address) {
            Ok(version) => findings.extend(known(address, &version)),
            // The findings about the host and the other servers are still of use.
            Err(error) => failures.push(format!("{address}: {error}")),
        }
    }
    if arguments.apply {
        let shown = changes("written", &apply(host, &findings)?, arguments.json)?;
        return Ok(Outcome { failures, ..done(shown) });
    }
    let has_warning = findings.iter().any(|finding: &Finding| finding.level == Level::Warning);
    let shown = if arguments.json {
        serde_json::to_string_pretty(&findings)? + "\n"
    } else if arguments.report {
        report(host, &findings)
    } else {
        text(&findings)
    };
    Ok(Outcome { shown, status: if has_warning { EXIT_WARNING } else { 0 }, failures })
}

fn changes(done: &str, settings: &[Setting], json: bool) -> serde_json::Result<String> {
    if json {
        return Ok(serde_json::to_string_pretty(settings)? + "\n");
    }
    let lines = settings.iter().map(|setting| format!("{done}: {}\n", setting.command()));
    let shown: String = lines.collect();
    Ok(if shown.is_empty() { "nothing to change\n".to_owned() } else { shown })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::BufRead as _;
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    fn outcome(words: &[&str], host: &Host) -> Outcome {
        let words = std::iter::once("doctor").chain(words.iter().copied());
        run(&Arguments::parse_from(words), host).unwrap()
    }

    #[test]
    fn a_dead_server_hides_no_finding() {
        let old = TcpListener::bind("127.0.0.1:0").unwrap();
        let old_address = old.local_addr().unwrap().to_string();
        let answers = thread::spawn(move || {
            for _ in 0..3 {
                let (mut stream, _) = old.accept().unwrap();
                io::BufReader::new(&stream).read_line(&mut String::new()).unwrap();
                stream.write_all(b"VERSION 1.6.18\r\n").unwrap();
            }
        });
        let dead = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let folder = tempfile::tempdir().unwrap();
        let host = Host::at(folder.path());
        for (words, wanted) in [(&[][..], "1.6.18"), (&["--json"], "1.6.18"), (&["--apply"], "")] {
            let words = [words, &[dead.as_str(), old_address.as_str()]].concat();
            let outcome = outcome(&words, &host);
            assert!(outcome.shown.contains(wanted), "{words:?}: {}", outcome.shown);
            assert_eq!(outcome.failures.len(), 1, "{words:?}");
            assert!(outcome.failures[0].starts_with(&dead), "{:?}", outcome.failures);
            // `ExitCode` has no equality.
            let failed = format!("{:?}", ExitCode::from(EXIT_FAILURE));
            assert_eq!(format!("{:?}", ended(&outcome)), failed);
        }
        answers.join().unwrap();
    }

    #[test]
    fn changes_are_json_if_requested() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("proc/sys/net/ipv4/ip_local_port_range");
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, "50000\t60000\n").unwrap();
        let host = Host::at(folder.path());
        let changed = |words: &[&str]| -> Vec<Setting> {
            serde_json::from_str(&outcome(words, &host).shown).unwrap()
        };
        let name = "/proc/sys/net/ipv4/ip_local_port_range".to_owned();
        let setting = |value: &str| Setting { file: name.clone(), value: value.to_owned() };
        assert_eq!(changed(&["--apply", "--json"]), [setting("32768 60999")]);
        assert_eq!(changed(&["--apply", "--json"]), []);
        assert_eq!(changed(&["--undo", "--json"]), [setting("50000 60000")]);
    }
}
