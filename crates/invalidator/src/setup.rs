//! `holdall invalidate setup`: prepares the database, prints the statements for it, or undoes them.

use std::path::PathBuf;

use crate::config::{Config, Kind};
use crate::message::Failure;
use crate::source::{mysql, postgres};

/// The options of the command.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Options {
    /// The configuration file.
    #[arg(long)]
    pub(crate) config: PathBuf,
    /// Prints the statements and runs nothing.
    #[arg(long)]
    print: bool,
    /// Removes what was set up.
    #[arg(long)]
    remove: bool,
    /// The database user who runs the statements; the configuration's without it.
    #[arg(long)]
    user: Option<String>,
    /// The file with that user's password.
    #[arg(long, requires = "user")]
    password_file: Option<PathBuf>,
}

/// Runs the command; returns the text to print.
///
/// # Errors
///
/// When the database refuses a statement, or there is none.
pub(crate) async fn setup(config: &Config, options: &Options) -> Result<String, Failure> {
    let rules = config.plan()?.rules;
    let password = options.password_file.as_ref().map(std::fs::read_to_string).transpose()?;
    let password = password.map(|password| password.trim_end_matches('\n').to_owned());
    let done = match config.source.kind {
        Kind::MariaDb | Kind::MySql => {
            let mut settings = config.mysql()?;
            let user = &settings.user;
            let statements = match options.remove {
                true => mysql::setup::remove(user, &rules),
                false => mysql::setup::install(user, &rules),
            };
            if options.print {
                return Ok(statements.iter().map(|one| format!("{one};\n")).collect());
            }
            // A replica would not pass the statements on.
            settings.servers = config.canary().map_or(settings.servers, |(_, servers)| servers);
            log_in_as(options, password, &mut settings.user, &mut settings.password);
            mysql::setup::run(&settings, &statements).await
        }
        Kind::Postgresql => {
            let mut settings = config.postgres()?;
            let statements = match options.remove {
                true => postgres::setup::remove(&settings, &rules),
                false => postgres::setup::install(&settings, &rules),
            };
            let statements = statements.map_err(|error| error.to_string())?;
            if options.print {
                return Ok(statements);
            }
            log_in_as(options, password, &mut settings.user, &mut settings.password);
            postgres::setup::run(&settings, &statements).await
        }
        Kind::Ndjson | Kind::Debezium => return Err("a source of lines has no database".into()),
    };
    let server = done?;
    let done = if options.remove { "removed" } else { "set up" };
    Ok(format!("{server}: {done}\n"))
}

fn log_in_as(options: &Options, given: Option<String>, user: &mut String, password: &mut String) {
    if let Some(other) = &options.user {
        user.clone_from(other);
        *password = given.unwrap_or_default();
    }
}
