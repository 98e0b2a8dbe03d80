//! Converts arguments to a draft: clap splits them, and the table defines their meaning.

use std::ffi::OsString;
use std::fmt::Display;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, ArgMatches, Command};

use super::draft::Draft;
use super::table::{self, Flag, Meaning};
use super::{EXIT_USAGE, Refusal, Style, extended};

/// The flags of a style, as clap reads them.
pub(crate) fn command(style: Style) -> Command {
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
        // getopt ignores such words, and memcached does the same.
        Style::Memcached => command.arg(Arg::new(EXTRA).action(ArgAction::Append).num_args(0..)),
        Style::Holdall => command,
    }
}

/// Splits arguments into flags and their values.
///
/// # Errors
///
/// An unknown flag, or one whose argument is missing.
pub(crate) fn split(
    style: Style,
    arguments: impl IntoIterator<Item = OsString>,
) -> Result<ArgMatches, Refusal> {
    command(style).try_get_matches_from(arguments).map_err(|error| refusal_of(style, &error))
}

/// clap's error as one line, without its colours and tips.
fn refusal_of(style: Style, error: &clap::Error) -> Refusal {
    let subject = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(name)) => name.clone(),
        _ => String::new(),
    };
    let hint = match error.get(ContextKind::SuggestedArg) {
        Some(ContextValue::String(name)) => Some(meant(style, &subject, name)),
        _ => None,
    };
    let message = match error.kind() {
        ErrorKind::UnknownArgument if subject.starts_with('-') => format!("unknown flag {subject}"),
        ErrorKind::UnknownArgument => format!("'{subject}' is not a flag"),
        ErrorKind::InvalidValue => format!("{subject} needs an argument"),
        ErrorKind::TooManyValues => format!("{subject} takes no argument"),
        ErrorKind::InvalidUtf8 => "an argument is not UTF-8".to_owned(),
        _ => {
            let text = error.render().to_string();
            text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned()
        }
    };
    Refusal { status: unknown_status(style), hint, ..Refusal::of_flag(message) }
}

/// The question whether `near` was meant. A single word may stand for all flags that start with
/// the word of `near`: `--memory` for `--memory-file` and `--memory-limit`.
fn meant(style: Style, subject: &str, near: &str) -> String {
    let word = |name: &str| name.trim_start_matches('-').split('-').next().map(str::to_owned);
    let is_single = !subject.trim_start_matches('-').contains('-');
    let names = table::flags_of(style).map(|flag| flag.long);
    let names = names.filter(|name| is_single && word(name) == word(near));
    let mut names: Vec<String> = names.map(|name| format!("--{name}")).collect();
    names.sort_unstable();
    match names.split_last() {
        Some((last, others)) if !others.is_empty() => {
            format!("did you mean {} or {last}?", others.join(", "))
        }
        _ => format!("did you mean {near}?"),
    }
}

/// The exit status for unknown flags: memcached's, under its name.
fn unknown_status(style: Style) -> u8 {
    match style {
        Style::Memcached => 1,
        Style::Holdall => EXIT_USAGE,
    }
}

/// Refuses unsupported flags before anything is printed: test suites use `--enable-ssl --version`
/// to find out if a memcached has TLS.
pub(crate) fn refuse(style: Style, matches: &ArgMatches) -> Result<(), Refusal> {
    for flag in table::flags_of(style) {
        if let Meaning::Refused(reason) = flag.meaning
            && is_given(matches, flag)
        {
            return Err(wrong(flag, reason));
        }
    }
    Ok(())
}

/// Puts the flags into the draft, in the order of the table.
///
/// # Errors
///
/// Fails at the first wrong value.
pub(crate) fn apply(
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
                    extended::apply(&list, draft, warnings).map_err(|(status, message)| {
                        let status = if status == 1 { unknown_status(style) } else { status };
                        Refusal { status, ..Refusal::of_flag(message) }
                    })?;
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

pub(crate) fn is_given(matches: &ArgMatches, flag: &Flag) -> bool {
    match flag.argument {
        None => matches.get_count(flag.long) > 0,
        Some(_) => matches.contains_id(flag.long),
    }
}

/// The values of an argument in order; none if the style does not have it.
pub(crate) fn values(matches: &ArgMatches, id: &str) -> Vec<String> {
    match matches.try_get_many::<String>(id) {
        Ok(Some(values)) => values.map(|value| without_margin(value).to_owned()).collect(),
        Ok(None) | Err(_) => Vec::new(),
    }
}

/// A value without white space before it. Manifests of Kubernetes give `"-m 1024"` as one argument,
/// whose value is then ` 1024`; memcached's `atoi` skips the space. A space may be the whole value
/// (`-D`).
fn without_margin(value: &str) -> &str {
    match value.trim_ascii_start() {
        "" => value,
        trimmed => trimmed,
    }
}

fn wrong(flag: &Flag, reason: impl Display) -> Refusal {
    Refusal::of_flag(format!("{}: {reason}", name_of(flag)))
}

fn name_of(flag: &Flag) -> String {
    match flag.short {
        Some(short) => format!("-{short} (--{})", flag.long),
        None => format!("--{}", flag.long),
    }
}

/// Words that are not flags.
pub(crate) const EXTRA: &str = "extra words";
