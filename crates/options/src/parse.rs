//! Converts arguments, files and environment to [`Options`].

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgMatches, Command};
use files::Stamp;

use super::arguments::{EXTRA, apply, command, is_given, refuse, split, values};
use super::draft::Draft;
use super::layers::Layers;
use super::settings::Given;
use super::table::{self, Meaning};
use super::{Environment, Options, Refusal, Style, help};

/// The request of a command line.
#[derive(Clone, Debug)]
pub enum Invocation {
    /// Print this on stdout, and end with status 0.
    Print(String),
    /// Run the server; the warnings are for stderr, one per line.
    Run {
        /// The server's options.
        options: Box<Options>,
        /// Options that were accepted without effect, and other notes for the operator.
        warnings: Vec<String>,
        /// The given settings, each once with its effective value.
        given: Vec<Given>,
        /// The files that they came from, in their state before they were read.
        files: Vec<(PathBuf, Option<Stamp>)>,
    },
}

/// Reads the arguments after the program's name (and sub-command).
///
/// # Errors
///
/// A [`Refusal`] of the first unknown, wrong or unsupported option.
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
    let mut layers = Layers::new(&matches);
    if style == Style::Holdall {
        layers.read(values(&matches, "config"), environment, &mut draft, &mut warnings)?;
    }
    apply(style, &matches, &mut draft, &mut warnings)?;
    for extra in values(&matches, EXTRA) {
        warnings.push(format!("'{extra}' is not a flag and has no effect"));
    }
    let options =
        draft.resolve(environment, &mut warnings).map_err(|conflict| layers.refusal(&conflict))?;
    let mut seen = std::collections::BTreeSet::new();
    warnings.retain(|warning| seen.insert(warning.clone()));
    let (given, files) = layers.into_given();
    Ok(Invocation::Run { options: Box::new(options), warnings, given, files })
}

/// The command line of `holdall serve` with its help, for manual pages and completions.
#[must_use]
pub fn interface() -> Command {
    let command = command(Style::Holdall).no_binary_name(false);
    help::described(command).about("The cache server: memcached's protocols, port and flags")
}

fn page_of(style: Style, matches: &ArgMatches) -> Option<String> {
    table::flags_of(style).find_map(|flag| match flag.meaning {
        Meaning::Print(page) if is_given(matches, flag) => Some(help::page(page, style)),
        _ => None,
    })
}
