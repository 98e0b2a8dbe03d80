//! The command line of `holdall invalidate`: `run|setup|check|flush|status`.

use std::error::Error;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use changes::position::Position;
use clap::{CommandFactory as _, Parser, Subcommand, ValueEnum as _};
use metrics::{Console, RunningConsole};

use crate::config::{self, Config, ConfigError, Fault, Gap, Kind};
use crate::finding::Finding;
use crate::flush;
use crate::json;
use crate::message::{EXIT_CONFIGURATION, Failure, Refusal, log};
use crate::pipeline::Since;
use crate::restart_on_panic::{History, Start, begin_again};
use crate::running::run;
use crate::setup;
use crate::signals::Signals;
use crate::source::mysql::MysqlSource;
use crate::source::postgres::PostgresSource;
use crate::{status, status_socket};

/// Deletes cached keys as the log of the database tells.
#[derive(Debug, Parser)]
#[command(name = "holdall invalidate", version, about, after_help = EXAMPLES)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  holdall invalidate setup --config invalidate.toml --user admin --password-file FILE
                                                  prepares the database
  holdall invalidate check --config invalidate.toml     says what is missing in the database's settings
  holdall invalidate check --config invalidate.toml --offline   reads the file alone
  holdall invalidate run --config invalidate.toml       follows the log until a signal ends it
  holdall invalidate run --config invalidate.toml --since mariadb-gtid:0-1-4711
                                                  deletes again what changed since then
  holdall invalidate run --config invalidate.toml --on-gap prefixes
                                                  goes on after a part of the log is gone
  holdall invalidate flush --config invalidate.toml --prefix user:
                                                  empties all clusters of keys that begin so
  holdall invalidate status --config invalidate.toml    lag, batches and errors of the running one
  holdall invalidate status --config invalidate.toml --json   the same for a program

docs/invalidation.md has the configuration file.";

#[derive(Debug, Subcommand)]
enum Command {
    /// Follows the log and deletes.
    Run {
        /// The configuration file.
        #[arg(long)]
        config: PathBuf,
        /// Where to begin: a position, or `now`; without it where the checkpoint says, or now if
        /// there is none.
        #[arg(long)]
        since: Option<String>,
        /// The response to a gap in the log; overrides the configuration's `on_gap`.
        #[arg(long)]
        on_gap: Option<Gap>,
        /// Serves a page about this invalidator and its routers there, by a process of its own;
        /// needs `status`. Flags of holdall console may follow behind commas.
        #[arg(long, value_name = "ADDRESS:PORT")]
        console: Option<String>,
        /// Set by a process that restarts itself after a panic.
        #[arg(long, hide = true, default_value_t)]
        after_panics: History,
    },
    /// Empties every cluster now. After you change the position, run it only when `run` reads the
    /// log again.
    Flush {
        /// The configuration file.
        #[arg(long)]
        config: PathBuf,
        /// Only keys that begin so; may be given several times. Without it everything.
        #[arg(long = "prefix")]
        prefixes: Vec<String>,
        /// Only this cluster; may be given several times.
        #[arg(long = "cluster")]
        clusters: Vec<String>,
    },
    /// Prepares the database: rights, publication and slot, the canary's table, an event trigger. A
    /// second run changes nothing.
    Setup(setup::Options),
    /// Asks every database server whether its log carries what the rules need; ends with 1 if not.
    Check {
        /// The configuration file.
        #[arg(long)]
        config: PathBuf,
        /// Prints JSON.
        #[arg(long)]
        json: bool,
        /// Reads the configuration file alone, and asks no database.
        #[arg(long)]
        offline: bool,
    },
    /// Prints the numbers of the running invalidator.
    Status {
        /// The configuration file, whose status port is asked.
        #[arg(long)]
        config: PathBuf,
        /// Prints JSON.
        #[arg(long)]
        json: bool,
    },
}

const NAME: &str = "holdall invalidate";

/// The command line, for manual pages and completions.
#[must_use]
pub fn interface() -> clap::Command {
    Arguments::command()
}

/// Runs the command; the arguments come after `invalidate`.
#[must_use]
pub fn main(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let parsed: Arguments = match usage::parse(NAME, arguments) {
        Ok(parsed) => parsed,
        Err(status) => return status,
    };
    // People run the other commands.
    let format = match &parsed.command {
        Command::Run { config, .. } => config::log_format(config),
        _ => logging::Format::Text,
    };
    if matches!(parsed.command, Command::Run { .. })
        && let Err(why) = status_socket::take_passed()
    {
        logging::fatal(NAME, format, &why.to_string(), None);
        return ExitCode::FAILURE;
    }
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let done = match runtime {
        Ok(runtime) => {
            let done = runtime.block_on(command(parsed.command));
            // A name lookup may still be running; nothing waits for it.
            runtime.shutdown_background();
            done
        }
        Err(error) => Err(error.into()),
    };
    match done {
        Ok(Done::Again(arguments)) => {
            let error = begin_again(&arguments);
            logging::fatal(NAME, format, &format!("it cannot begin again: {error}"), None);
            ExitCode::FAILURE
        }
        Ok(Done::Said(text)) => {
            let _ = io::stdout().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Ok(Done::Found(text)) => {
            let _ = io::stdout().write_all(text.as_bytes());
            ExitCode::FAILURE
        }
        Err(why) => {
            logging::fatal(NAME, format, &why.to_string(), None);
            ExitCode::from(status_of(why.as_ref()))
        }
    }
}

/// The exit status for a failure.
fn status_of(why: &(dyn Error + 'static)) -> u8 {
    match why.downcast_ref::<Refusal>() {
        Some(refusal) => refusal.status,
        None if why.is::<ConfigError>() || why.is::<Fault>() => EXIT_CONFIGURATION,
        None => 1,
    }
}

/// The result of a command.
enum Done {
    /// It printed this text.
    Said(String),
    /// It printed this text for a program: there are faults.
    Found(String),
    /// Another process replaces this one, with these arguments.
    Again(Vec<OsString>),
}

async fn command(command: Command) -> Result<Done, Failure> {
    let text = match command {
        Command::Run { config: path, since, on_gap, console, after_panics } => {
            // This comes first, because a SIGHUP may already have arrived.
            let signals = Signals::catch()?;
            let mut config = Config::read(&path)?;
            logging::start(NAME, config.log_format, &config.log_filter);
            if let Some(gap) = on_gap {
                config.override_gap(gap).map_err(|why| Refusal::of_flag("--on-gap", why))?;
            }
            let on_gap = on_gap.and_then(|gap| gap.to_possible_value());
            let _console = console.as_deref().map(|text| beside(text, &config)).transpose()?;
            let start = Start {
                config: path,
                since: since.clone(),
                on_gap: on_gap.map(|gap| gap.get_name().to_owned()),
                console,
                before: after_panics,
            };
            let since = match since.as_deref() {
                None => Since::Checkpoint,
                Some("now") => Since::Now,
                Some(text) => {
                    let position = text.parse::<Position>();
                    Since::Position(position.map_err(|why| Refusal::of_flag("--since", why))?)
                }
            };
            let successor = run(&config, since, start, signals).await?;
            return Ok(successor.map_or_else(|| Done::Said(String::new()), Done::Again));
        }
        Command::Flush { config, prefixes, clusters } => {
            let config = Config::read(&config)?;
            flush::now(&config.network()?, &config.plan()?, &prefixes, &clusters).await?
        }
        Command::Setup(options) => setup::setup(&Config::read(&options.config)?, &options).await?,
        Command::Check { config, json, offline } => {
            return check(&Config::read(&config)?, json, offline).await;
        }
        Command::Status { config, json } => {
            let config = Config::read(&config)?;
            let address = config.status.ok_or_else(|| Refusal::of_configuration(NO_STATUS))?;
            let asked = status::ask(&address).await;
            let text = asked.map_err(|error| format!("{address}: {error}"))?;
            if json { format!("{:#}\n", json::status(&text)) } else { text }
        }
    };
    Ok(Done::Said(text))
}

const NO_STATUS: &str = "the configuration names no status port: status = \"127.0.0.1:11290\"";

/// Starts the console of this invalidator and the routers of its clusters.
fn beside(text: &str, config: &Config) -> Result<RunningConsole, Failure> {
    let console = Console::parse(text).map_err(|why| Refusal::of_flag("--console", why))?;
    let status = config.status.clone();
    let status = status.ok_or_else(|| Refusal::of_flag("--console", NO_STATUS))?;
    let routers = config.plan()?.clusters.into_iter().flat_map(|cluster| cluster.routers);
    let members: Vec<String> = std::iter::once(status).chain(routers).collect();
    let running = console.start(&members, None, log);
    Ok(running.map_err(|error| format!("--console: it cannot be started: {error}"))?)
}

async fn check(config: &Config, as_json: bool, is_offline: bool) -> Result<Done, Failure> {
    let plan = config.plan()?;
    let findings = match config.source.kind {
        _ if is_offline => Ok(Vec::new()),
        Kind::MariaDb | Kind::MySql => {
            let settings = config.mysql()?;
            MysqlSource::new(settings, plan.rules).check().await
        }
        Kind::Postgresql => {
            let settings = config.postgres()?;
            PostgresSource::new(settings, plan.rules).check().await
        }
        // The sender's log is unknown.
        Kind::Ndjson | Kind::Debezium => Ok(Vec::new()),
    };
    let findings = findings?;
    let has_fault = findings.iter().any(Finding::is_fault);
    if as_json {
        let text = format!("{:#}\n", json::check(&findings));
        return Ok(if has_fault { Done::Found(text) } else { Done::Said(text) });
    }
    let text = findings.iter().fold(String::new(), |mut text, finding| {
        let note = if finding.is_fault() { "" } else { "note: " };
        let _ = writeln!(text, "{note}{}", finding.text);
        text
    });
    if has_fault { Err(text.trim_end().into()) } else { Ok(Done::Said(text + "ok\n")) }
}
