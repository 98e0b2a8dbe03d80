//! The command line of `holdall console`.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::{CommandFactory as _, Parser};
use plan::{TargetsError, targets};
use scram::random;
use tokio::net::TcpListener;
use tokio::runtime;
use tokio::signal::unix::{SignalKind, signal};
use tools::cli::Reach;

use crate::admission::Admission;
use crate::answers::Answers;
use crate::login::Logins;
use crate::note::note;
use crate::routes::Source;
use crate::server::{Console, serve};
use crate::tier::Tier;

const EXIT_USAGE: u8 = 64;

/// Shows a tier on a web page: its map, charts, memory, keys, invalidation, advice and findings.
#[derive(Debug, Parser)]
#[command(
    name = "holdall console",
    version,
    after_help = "\
Every member is asked for memcached's 'stats' as by holdall top, and servers of holdall for hot keys
and samples while a page is open. The page needs no other host.

Examples:
  holdall console 10.0.0.1 10.0.0.2 10.0.0.5:5000     then open http://127.0.0.1:8811/
  holdall console --topology shop.toml --config mcrouter.json
  holdall console dns:cache.internal:11211 --listen 10.0.0.9:8811 --users /etc/holdall/users

Exit status: 0 after a signal; 1 if it cannot begin; 2 for a wrong topology; 64 for a wrong command
line."
)]
struct Args {
    /// Members: HOST, HOST:PORT, unix:PATH, or a source of discovery
    #[arg(value_name = "ADDRESS")]
    addresses: Vec<String>,
    /// The topology file of holdall plan: its servers and proxies
    #[arg(long, value_name = "FILE")]
    topology: Option<PathBuf>,
    /// The proxy's configuration: shows its pools, and the way of a key
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The prefix of keys without one, as the proxy has it
    #[arg(long, value_name = "PREFIX", requires = "config")]
    route_prefix: Option<String>,
    /// The address of the page; one that other hosts reach needs --users
    #[arg(short, long, value_name = "ADDRESS", default_value = "127.0.0.1:8811")]
    listen: SocketAddr,
    /// Asks for a login: a file as of holdall serve -Y, lines by holdall passwd
    #[arg(long, value_name = "FILE")]
    users: Option<PathBuf>,
    /// A name by which browsers reach the page, beside addresses and localhost
    #[arg(long, value_name = "HOST")]
    name: Vec<String>,
    /// Lets users flush a prefix
    #[arg(long, requires = "users")]
    actions: bool,
    /// Seconds between two questions
    #[arg(short, long, value_name = "SECS", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=3600))]
    interval: u64,
    #[command(flatten)]
    reach: Reach,
}

/// The command line, for manual pages and completions.
#[must_use]
pub fn interface() -> clap::Command {
    Args::command()
}

/// Runs the command; the arguments come after its name.
#[must_use]
pub fn main(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let line = std::iter::once(OsString::from("holdall console")).chain(arguments);
    match Args::try_parse_from(line) {
        Ok(arguments) => run(&arguments).map_or_else(
            |error| {
                note(&format!("{error:#}"));
                ExitCode::from(error.downcast_ref().map_or(1, TargetsError::status))
            },
            |()| ExitCode::SUCCESS,
        ),
        Err(error) => {
            // Nobody is left to tell when the stream is closed.
            let _ = error.print();
            ExitCode::from(if error.use_stderr() { EXIT_USAGE } else { 0 })
        }
    }
}

fn run(arguments: &Args) -> Result<()> {
    if arguments.users.is_none() && !arguments.listen.ip().is_loopback() {
        bail!("--listen {}: other hosts could look: give --users as well", arguments.listen);
    }
    let mut words = arguments.addresses.clone();
    if words.is_empty() && arguments.topology.is_none() {
        words.push("127.0.0.1".to_owned());
    }
    let targets = targets(&words, arguments.topology.as_deref())?;
    let warn = |warning: access::Warning<'_>| note(&format!("warning: {warning}"));
    let logins = arguments.users.as_deref().map(|file| Logins::open(file, warn)).transpose()?;
    let secret: [u8; 16] = random().map_err(|error| anyhow::anyhow!("{error}"))?;
    let token = format!("{:032x}", u128::from_ne_bytes(secret));
    let admission =
        Admission { names: arguments.name.clone(), logins, acts: arguments.actions, token };
    let runtime = runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    runtime.block_on(async {
        let listen = arguments.listen;
        let listener = TcpListener::bind(listen).await.with_context(|| listen.to_string())?;
        let address = listener.local_addr()?;
        let (mut end, mut interrupt) =
            (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let interval = Duration::from_secs(arguments.interval);
        let tier = Tier::start(targets, arguments.reach.options(), interval)?;
        let source = |file| Source { file, route_prefix: arguments.route_prefix.clone() };
        let answers = Answers { tier, config: arguments.config.clone().map(source) };
        // Nobody may read it, and the page is there.
        let _ = writeln!(io::stdout(), "http://{address}/");
        tokio::select! {
            () = serve(listener, Arc::new(Console::new(answers, admission))) => {}
            _ = end.recv() => {}
            _ = interrupt.recv() => {}
        }
        anyhow::Ok(())
    })?;
    // A question under way is not waited for.
    runtime.shutdown_background();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(words: &[&str]) -> String {
        let line = [&["holdall console"], words].concat();
        match Args::try_parse_from(line) {
            Ok(arguments) => run(&arguments).unwrap_err().to_string(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn other_hosts_need_a_login() {
        for address in ["0.0.0.0:0", "[::]:0", "10.0.0.1:0"] {
            let why = refusal(&["--listen", address]);
            assert!(why.contains("give --users as well"), "{why}");
        }
        let why = refusal(&["--actions"]);
        assert!(why.contains("--users"), "{why}");
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let why = refusal(&["--users", "/nowhere/users", "--listen", "127.0.0.1:0"]);
        assert!(why.contains("/nowhere/users"), "{why}");
    }
}
