//! Arguments to [`Options`]: clap splits them, the table says what they mean.

use std::ffi::OsString;
use std::fmt::Display;
use std::path::Path;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, ArgMatches, Command};

use super::conf::{self, Content};
use super::draft::Draft;
use super::table::{self, Flag, Meaning};
use super::{EXIT_USAGE, Environment, Options, Refusal, Style, extended, help};

/// The request of a command line.
#[derive(Clone, Debug)]
pub enum Invocation {
    /// Print this on stdout, and end with status 0.
    Print(String),
    /// Run the server; the warnings are for stderr, a line each.
    Run {
        /// The server's options.
        options: Box<Options>,
        /// Options that were accepted without effect, and all that an operator should know.
        warnings: Vec<String>,
    },
}

/// Reads the arguments after the program's name (and sub-command).
///
/// # Errors
///
/// A [`Refusal`] of the first thing that is unknown, wrong or not supported.
pub fn parse(
    style: Style,
    arguments: impl IntoIterator<Item = OsString>,
    environment: &Environment,
) -> Result<Invocation, Refusal> {
    let matches = split(style, arguments)?;
    let mut draft = Draft::new(style);
    let mut warnings = Vec::new();

    refuse(style, &matches)?;
    if let Some(page) = page_of(style, &matches) {
        return Ok(Invocation::Print(page));
    }
    for file in values(&matches, "config") {
        apply_file(&file, style, &mut draft, &mut warnings)?;
    }
    apply(style, &matches, &mut draft, &mut warnings)?;
    for extra in values(&matches, EXTRA) {
        warnings.push(format!("'{extra}' is not a flag and has no effect"));
    }
    let options = draft.resolve(environment, &mut warnings)?;
    let mut seen = std::collections::BTreeSet::new();
    warnings.retain(|warning| seen.insert(warning.clone()));
    Ok(Invocation::Run { options: Box::new(options), warnings })
}

/// The command line of `holdall serve` with its help, for manual pages and completions.
#[must_use]
pub fn interface() -> Command {
    let command = command(Style::Holdall).no_binary_name(false);
    help::described(command).about("The cache server: memcached's protocols, port and flags")
}

fn command(style: Style) -> Command {
    let mut command = Command::new("serve")
        .no_binary_name(true)
        .disable_help_flag(true)
        .disable_version_flag(true)
        .infer_long_args(true);
    for flag in table::flags_of(style) {
        let action = if flag.argument.is_some() { ArgAction::Append } else { ArgAction::Count };
        let mut arg = Arg::new(flag.long)
            .long(flag.long)
            .action(action)
            .allow_hyphen_values(flag.argument.is_some());
        if let Some(short) = flag.short {
            arg = arg.short(short);
        }
        command = command.arg(arg);
    }
    match style {
        // getopt leaves such words alone, and so does memcached.
        Style::Memcached => command.arg(Arg::new(EXTRA).action(ArgAction::Append).num_args(0..)),
        Style::Holdall => command,
    }
}

fn split(
    style: Style,
    arguments: impl IntoIterator<Item = OsString>,
) -> Result<ArgMatches, Refusal> {
    command(style).try_get_matches_from(arguments).map_err(|error| refusal_of(&error))
}

/// clap's error as one line, without its colours and tips.
fn refusal_of(error: &clap::Error) -> Refusal {
    let subject = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(name)) => name.clone(),
        _ => String::new(),
    };
    let message = match error.kind() {
        ErrorKind::UnknownArgument if subject.starts_with('-') => {
            let meant = match error.get(ContextKind::SuggestedArg) {
                Some(ContextValue::String(name)) => format!("; did you mean {name}?"),
                _ => String::new(),
            };
            format!("unknown flag {subject}{meant}")
        }
        ErrorKind::UnknownArgument => format!("'{subject}' is not a flag"),
        ErrorKind::InvalidValue => format!("{subject} needs an argument"),
        ErrorKind::TooManyValues => format!("{subject} takes no argument"),
        ErrorKind::InvalidUtf8 => "an argument is not UTF-8".to_owned(),
        _ => {
            let text = error.render().to_string();
            text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned()
        }
    };
    Refusal { status: 1, message }
}

/// Refuses what is not supported before anything is printed: `--enable-ssl --version` is how test
/// suites ask whether a memcached has TLS.
fn refuse(style: Style, matches: &ArgMatches) -> Result<(), Refusal> {
    for flag in table::flags_of(style) {
        if let Meaning::Refused(reason) = flag.meaning
            && is_given(matches, flag)
        {
            return Err(wrong(flag, reason));
        }
    }
    Ok(())
}

fn page_of(style: Style, matches: &ArgMatches) -> Option<String> {
    table::flags_of(style).find_map(|flag| match flag.meaning {
        Meaning::Print(page) if is_given(matches, flag) => Some(help::page(page, style)),
        _ => None,
    })
}

/// The largest `--config`, in bytes.
const CONF_BYTES_MAX: u64 = 1 << 20;

/// `-d` in a file is left out, as Debian's wrapper does: it is the service manager that keeps the
/// process.
fn apply_file(
    file: &str,
    style: Style,
    draft: &mut Draft,
    warnings: &mut Vec<String>,
) -> Result<(), Refusal> {
    let text = files::read_text(Path::new(file), CONF_BYTES_MAX)
        .map_err(|error| Refusal { status: 1, message: format!("--config {file}: {error}") })?;
    let lines = conf::lines(&text).map_err(|(number, reason)| Refusal {
        status: EXIT_USAGE,
        message: format!("{file}:{number}: {reason}"),
    })?;
    let daemon = draft.options.daemon;
    for line in lines {
        let place = |refusal: Refusal| Refusal {
            status: refusal.status,
            message: format!("{file}:{}: {}", line.number, refusal.message),
        };
        match line.content {
            Content::Directive(word) => warnings.push(format!(
                "{file}:{}: '{word}' has no effect here: it is not a flag",
                line.number
            )),
            Content::Arguments(words) => {
                // Of the other style: a file names no further file.
                let matches = split(Style::Memcached, words.into_iter().map(OsString::from))
                    .and_then(|matches| refuse(style, &matches).map(|()| matches))
                    .map_err(place)?;
                apply(Style::Memcached, &matches, draft, warnings).map_err(place)?;
            }
        }
    }
    draft.options.daemon = daemon;
    Ok(())
}

fn apply(
    style: Style,
    matches: &ArgMatches,
    draft: &mut Draft,
    warnings: &mut Vec<String>,
) -> Result<(), Refusal> {
    for flag in table::flags_of(style).filter(|flag| is_given(matches, flag)) {
        match flag.meaning {
            Meaning::Used(set) if flag.argument.is_none() => {
                for _ in 0..matches.get_count(flag.long) {
                    set(draft, "").map_err(|reason| wrong(flag, reason))?;
                }
            }
            Meaning::Used(set) => {
                for value in values(matches, flag.long) {
                    set(draft, &value).map_err(|reason| wrong(flag, reason))?;
                }
            }
            Meaning::Extended => {
                for list in values(matches, flag.long) {
                    extended::apply(&list, draft, warnings)
                        .map_err(|(status, message)| Refusal { status, message })?;
                }
            }
            Meaning::NoEffect(reason) => {
                warnings.push(format!("{} has no effect here: {reason}", name_of(flag)));
            }
            Meaning::Refused(reason) => return Err(wrong(flag, reason)),
            Meaning::Print(_) | Meaning::Config => {}
        }
    }
    Ok(())
}

fn is_given(matches: &ArgMatches, flag: &Flag) -> bool {
    match flag.argument {
        None => matches.get_count(flag.long) > 0,
        Some(_) => matches.contains_id(flag.long),
    }
}

/// The values of an argument in order; none where the style does not know it.
fn values(matches: &ArgMatches, id: &str) -> Vec<String> {
    match matches.try_get_many::<String>(id) {
        Ok(Some(values)) => values.cloned().collect(),
        Ok(None) | Err(_) => Vec::new(),
    }
}

fn wrong(flag: &Flag, reason: impl Display) -> Refusal {
    Refusal { status: EXIT_USAGE, message: format!("{}: {reason}", name_of(flag)) }
}

fn name_of(flag: &Flag) -> String {
    match flag.short {
        Some(short) => format!("-{short} (--{})", flag.long),
        None => format!("--{}", flag.long),
    }
}

/// Words that are not flags.
const EXTRA: &str = "extra words";
