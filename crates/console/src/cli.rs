//! The command line of `holdall console`.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::{CommandFactory as _, Parser};
use plan::{TargetsError, targets};
use scram::random;
use tokio::io::AsyncReadExt as _;
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

/// Between two attempts to bind the address that a predecessor still holds.
const BIND_EACH: Duration = Duration::from_secs(1);

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
    /// Lets users flush a prefix, and with --config drain and add servers
    #[arg(long, requires = "users")]
    actions: bool,
    /// Seconds between two questions
    #[arg(short, long, value_name = "SECS", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=3600))]
    interval: u64,
    /// Set by the process that this console is about: it ends with that process, by its stdin
    #[arg(long, hide = true)]
    beside: bool,
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
    let arguments: Args = match usage::parse("holdall console", arguments) {
        Ok(arguments) => arguments,
        Err(status) => return status,
    };
    if let Some(why) = conflict(&arguments) {
        note(&why);
        return ExitCode::from(usage::EXIT_USAGE);
    }
    run(&arguments).map_or_else(
        |error| {
            note(&format!("{error:#}"));
            ExitCode::from(error.downcast_ref().map_or(1, TargetsError::status))
        },
        |()| ExitCode::SUCCESS,
    )
}

/// The reason why these flags cannot be combined.
fn conflict(arguments: &Args) -> Option<String> {
    let is_exposed = arguments.users.is_none() && !arguments.listen.ip().is_loopback();
    let why =
        || format!("--listen {}: other hosts could look: give --users as well", arguments.listen);
    is_exposed.then(why)
}

fn run(arguments: &Args) -> Result<()> {
    let mut words = arguments.addresses.clone();
    if words.is_empty() && arguments.topology.is_none() {
        words.push("127.0.0.1".to_owned());
    }
    let mut targets = targets(&words, arguments.topology.as_deref())?;
    let source = |file| Source { file, route_prefix: arguments.route_prefix.clone() };
    let config = arguments.config.clone().map(source);
    match config.as_ref().map(Source::servers) {
        Some(Ok(servers)) if arguments.beside => targets.extend(servers),
        // The file is read again for each request.
        Some(Err(rejected)) => rejected.render().lines().for_each(note),
        Some(Ok(_)) | None => {}
    }
    let warn = |warning: access::Warning<'_>| note(&format!("warning: {warning}"));
    let logins = arguments.users.as_deref().map(|file| Logins::open(file, warn)).transpose()?;
    let secret: [u8; 16] = random().map_err(|error| anyhow::anyhow!("{error}"))?;
    let token = format!("{:032x}", u128::from_ne_bytes(secret));
    let admission =
        Admission { names: arguments.name.clone(), logins, acts: arguments.actions, token };
    let runtime = runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    runtime.block_on(async {
        let listen = arguments.listen;
        // It is polled only next to another process.
        let mut ended = pin!(end_of_stdin());
        let listener = bind(listen, arguments.beside.then_some(ended.as_mut())).await?;
        let address = listener.local_addr()?;
        let (mut end, mut interrupt) =
            (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let interval = Duration::from_secs(arguments.interval);
        let tier = Tier::start(targets, arguments.reach.options(), interval)?;
        let answers = Answers { tier, config };
        if arguments.beside {
            note(&format!("http://{address}/"));
        } else {
            // Its reader may be gone, but the page is up.
            let _ = writeln!(io::stdout(), "http://{address}/");
        }
        tokio::select! {
            () = serve(listener, Arc::new(Console::new(answers, admission))) => {}
            () = ended, if arguments.beside => {}
            _ = end.recv() => {}
            _ = interrupt.recv() => {}
        }
        anyhow::Ok(())
    })?;
    // A running request is not waited for.
    runtime.shutdown_background();
    Ok(())
}

/// Binds the address of the page. Next to another process, the predecessor's console may still hold
/// it: then it waits, until `end`.
async fn bind(
    listen: SocketAddr,
    mut end: Option<Pin<&mut impl Future<Output = ()>>>,
) -> Result<TcpListener> {
    let mut is_told = false;
    loop {
        let bound = TcpListener::bind(listen).await;
        let is_taken = |error: &io::Error| error.kind() == io::ErrorKind::AddrInUse;
        let (Some(end), true) = (&mut end, bound.as_ref().is_err_and(is_taken)) else {
            return bound.with_context(|| listen.to_string());
        };
        if !is_told {
            note(&format!("{listen} is in use: trying again"));
        }
        is_told = true;
        tokio::select! {
            () = tokio::time::sleep(BIND_EACH) => {}
            () = end => bail!("{listen} was in use until the end"),
        }
    }
}

/// Returns once the other end of stdin is closed.
async fn end_of_stdin() {
    let mut stdin = tokio::io::stdin();
    let mut bytes = [0; 64];
    while stdin.read(&mut bytes).await.is_ok_and(|read| read > 0) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(words: &[&str]) -> String {
        let line = [&["holdall console"], words].concat();
        match Args::try_parse_from(line) {
            Ok(arguments) => {
                conflict(&arguments).unwrap_or_else(|| run(&arguments).unwrap_err().to_string())
            }
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn access_from_other_hosts_requires_users() {
        for address in ["0.0.0.0:0", "[::]:0", "10.0.0.1:0"] {
            let why = refusal(&["--listen", address]);
            assert!(why.contains("give --users as well"), "{why}");
        }
        let why = refusal(&["--actions"]);
        assert!(why.contains("--users"), "{why}");
    }

    #[test]
    fn a_missing_file_is_named() {
        let why = refusal(&["--users", "/nowhere/users", "--listen", "127.0.0.1:0"]);
        assert!(why.contains("/nowhere/users"), "{why}");
    }
}
