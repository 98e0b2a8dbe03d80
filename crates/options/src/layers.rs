//! The layers of settings, in descending priority: flags, environment, files, defaults.
//!
//! A setting counts from the highest layer that gives it; its values in lower ones are checked and
//! ignored. Lists are not joined, except `-l` of a file in memcached's format, whose flags count as
//! if they came before those of the command line.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fmt::Display;
use std::path::{Path, PathBuf};

use clap::ArgMatches;
use files::Stamp;

use super::arguments::{apply, is_given, refuse, split, values};
use super::conf::{self, Content};
use super::draft::Draft;
use super::extended::{EXTENDED, Value};
use super::refusal::Conflict;
use super::settings::{self, Given, Kind, Origin, Setting, settings};
use super::table::{Meaning, flags};
use super::{Environment, Refusal, Style, file};

/// The given settings, each with the highest layer that gives it.
pub(crate) struct Layers {
    known: Vec<Setting>,
    given: BTreeMap<String, Given>,
    of_flags: BTreeSet<String>,
    files: Vec<(PathBuf, Option<Stamp>)>,
}

impl Layers {
    /// Only the command line.
    pub(crate) fn new(matches: &ArgMatches) -> Self {
        let known = settings();
        let given = of_matches(matches, &known, &Origin::Flag);
        let of_flags = given.iter().map(|given| given.key.clone()).collect();
        let given = given.into_iter().map(|given| (given.key.clone(), given)).collect();
        Self { known, given, of_flags, files: Vec::new() }
    }

    /// Reads files and environment into the draft, except settings of the command line.
    ///
    /// # Errors
    ///
    /// Fails if a file cannot be read, and at the first fault in files and environment.
    pub(crate) fn read(
        &mut self,
        mut files: Vec<String>,
        environment: &Environment,
        draft: &mut Draft,
        warnings: &mut Vec<String>,
    ) -> Result<(), Refusal> {
        let variables = self.of_environment(environment, warnings)?;
        if files.is_empty() {
            let named = |(name, _): &&(String, String)| name == FILE_VARIABLE;
            files.extend(environment.variables.iter().find(named).map(|(_, file)| file.clone()));
        }
        if files.len() > 1 && files.iter().any(|file| is_toml(file)) {
            return Err(Refusal::of_flag(
                "--config: beside a .toml file there can be no other".to_owned(),
            ));
        }
        let mut lower = Vec::new();
        for name in &files {
            let path = environment.folder.join(name);
            self.files.push((path.clone(), Stamp::of(&path)));
            let text = files::read_text(&path, FILE_BYTES_MAX)
                .map_err(|error| Refusal::of_setting(format!("--config {name}: {error}")))?;
            if is_toml(name) {
                lower.extend(self.of_toml(name, &text)?);
            } else {
                self.read_conf(name, &text, draft, &mut lower, warnings)?;
            }
        }
        for given in lower.into_iter().chain(variables) {
            if !self.of_flags.contains(&given.key) {
                self.given.insert(given.key.clone(), given);
            }
        }
        let below = self.given.values().filter(|given| given.origin != Origin::Flag);
        for given in below {
            // Each was applied to a separate draft before.
            let setting = self.known.iter().find(|setting| setting.key == given.key);
            let _ = setting.map(|setting| setting.apply(draft, &given.values));
        }
        Ok(())
    }

    /// The refusal of settings that do not go together: of the command line, unless a lower layer
    /// gives the faulty one.
    pub(crate) fn refusal(&self, conflict: &Conflict) -> Refusal {
        let setting = self.known.iter().find(|setting| setting.is_called(conflict.name));
        let given = setting.and_then(|setting| self.given.get(&setting.key));
        match given.map(|given| &given.origin) {
            Some(Origin::Flag) => Refusal::of_flag(conflict.to_string()),
            Some(place @ (Origin::File { .. } | Origin::Environment(_))) => {
                Refusal::of_setting(format!("{place}: {conflict}"))
            }
            Some(Origin::Default) | None => Refusal::of_setting(conflict.to_string()),
        }
    }

    /// The given settings with their effective values, and the files that were read.
    pub(crate) fn into_given(self) -> (Vec<Given>, Vec<(PathBuf, Option<Stamp>)>) {
        (self.given.into_values().collect(), self.files)
    }

    fn of_environment(
        &self,
        environment: &Environment,
        warnings: &mut Vec<String>,
    ) -> Result<Vec<Given>, Refusal> {
        let mut given = Vec::new();
        for (name, value) in &environment.variables {
            let key = name.to_lowercase();
            let Some(setting) = self.known.iter().find(|setting| setting.key == key) else {
                if !is_foreign(name, value) {
                    let near = settings::nearest(&key, &self.known);
                    warnings.push(unknown(name, near));
                }
                continue;
            };
            let name = format!("HOLDALL_{name}");
            // Kubernetes sets this for a Service with the name `holdall`.
            if key == "port" && (value.starts_with("tcp://") || value.starts_with("udp://")) {
                warnings.push(format!("{name}={value} is Kubernetes's and has no effect"));
                continue;
            }
            let values = vec![value.clone()];
            setting
                .apply(&mut Draft::new(Style::Holdall), &values)
                .map_err(|wrong| Refusal::of_setting(format!("{name}: {wrong}")))?;
            given.push(Given { key, values, origin: Origin::Environment(name) });
        }
        Ok(given)
    }

    fn of_toml(&self, name: &str, text: &str) -> Result<Vec<Given>, Refusal> {
        let (entries, faults) = file::read(text);
        if let Some(fault) = faults.first() {
            let (line, column) = files::place(text, fault.span.start);
            let message = fault.message.lines().next().unwrap_or_default();
            let message = format!("{name}:{line}:{column}: {message}");
            return Err(Refusal { hint: fault.hint.clone(), ..Refusal::of_setting(message) });
        }
        let given = |entry: file::Entry| {
            let (line, _) = files::place(text, entry.span.start);
            let origin = Origin::File { file: name.to_owned(), line };
            Given { key: entry.key, values: entry.values, origin }
        };
        Ok(entries.into_iter().map(given).collect())
    }

    /// Reads a file in memcached's format. `-d` is ignored, as in Debian's wrapper: the service
    /// manager keeps the process.
    fn read_conf(
        &mut self,
        name: &str,
        text: &str,
        draft: &mut Draft,
        lower: &mut Vec<Given>,
        warnings: &mut Vec<String>,
    ) -> Result<(), Refusal> {
        let of_flags_count = self.given.get("listen").map_or(0, |given| given.values.len());
        let at = |number, reason: &dyn Display| {
            Refusal::of_setting(format!("{name}:{number}: {reason}"))
        };
        let lines = conf::lines(text).map_err(|(number, reason)| at(number, &reason))?;
        for line in lines {
            let place = |refusal: Refusal| at(line.number, &refusal);
            let words = match line.content {
                Content::Directive(word) => {
                    let number = line.number;
                    warnings.push(format!(
                        "{name}:{number}: '{word}' has no effect here: it is not a flag"
                    ));
                    continue;
                }
                Content::Arguments(words) => words,
            };
            // Of the other style: a file cannot name another file.
            let matches = split(Style::Memcached, words.into_iter().map(OsString::from))
                .and_then(|matches| refuse(Style::Holdall, &matches).map(|()| matches))
                .map_err(place)?;
            let mut scratch = Draft::new(Style::Holdall);
            let mut of_line = Vec::new();
            apply(Style::Memcached, &matches, &mut scratch, &mut of_line).map_err(place)?;
            let number = line.number;
            warnings.extend(of_line.iter().map(|warning| format!("{name}:{number}: {warning}")));
            draft.options.takeover |= scratch.options.takeover;
            let origin = Origin::File { file: name.to_owned(), line: line.number };
            for mut given in of_matches(&matches, &self.known, &origin) {
                if given.key == "listen" {
                    if let Some(of_flags) = self.given.get_mut("listen") {
                        draft.interfaces.extend(scratch.interfaces.clone());
                        let at = of_flags.values.len() - of_flags_count;
                        of_flags.values.splice(at..at, given.values);
                        continue;
                    }
                    let before = lower.iter().rev().find(|before| before.key == given.key);
                    let mut all = before.map(|before| before.values.clone()).unwrap_or_default();
                    all.append(&mut given.values);
                    given.values = all;
                }
                lower.push(given);
            }
        }
        Ok(())
    }
}

/// The settings that flags give, in the order of the table.
fn of_matches(matches: &ArgMatches, known: &[Setting], origin: &Origin) -> Vec<Given> {
    let mut found = Vec::new();
    let mut give = |key: &str, values: Vec<String>| {
        if known.iter().any(|setting| setting.key == key) {
            found.push(Given { key: key.to_owned(), values, origin: origin.clone() });
        }
    };
    let in_line = |flag: &&_| is_known(matches, flag) && is_given(matches, flag);
    for flag in flags().filter(in_line) {
        let key = settings::key_of_flag(flag);
        match (flag.meaning, flag.argument) {
            (Meaning::Used(_), None) if key == "verbose" => {
                give(&key, vec![matches.get_count(flag.long).min(3).to_string()]);
            }
            (Meaning::Used(_), None) => give(&key, vec!["true".to_owned()]),
            (Meaning::Used(_), Some(_)) => {
                let mut values = values(matches, flag.long);
                if key != "listen" {
                    values.drain(..values.len().saturating_sub(1));
                }
                give(&key, values);
            }
            (Meaning::Extended, _) => {
                for list in values(matches, flag.long) {
                    list.split(',').for_each(|element| of_element(element, known, &mut give));
                }
            }
            _ => {}
        }
    }
    found
}

/// True for a variable that is intentionally not one of the server's settings: `HOLDALL_CONFIG`,
/// those of builds and tests, and those that Kubernetes sets for each Service whose name starts
/// with `holdall`.
fn is_foreign(name: &str, value: &str) -> bool {
    let is_part = |part: &str| name.starts_with(&part[1..]) || name.contains(part);
    name == FILE_VARIABLE
        || OF_BUILDS.contains(&name)
        || ["_SERVICE_HOST", "_SERVICE_PORT", "_PORT_"].into_iter().any(is_part)
        || ["tcp://", "udp://", "sctp://"].iter().any(|scheme| value.starts_with(scheme))
}

/// The warning about an unknown variable, with the key of the likely one, if any.
fn unknown(name: &str, near: Option<String>) -> String {
    let hint = match near {
        Some(near) => format!("did you mean HOLDALL_{}?", near.to_uppercase()),
        None => "holdall config show lists the settings".to_owned(),
    };
    format!("HOLDALL_{name} is unknown and has no effect; {hint}")
}

/// The setting that one element of `-o` gives.
fn of_element(element: &str, known: &[Setting], give: &mut impl FnMut(&str, Vec<String>)) {
    let (name, value) = element.split_once('=').unwrap_or((element, ""));
    let Some(option) = EXTENDED.iter().find(|option| option.name == name) else { return };
    if !matches!(option.meaning, Meaning::Used(_)) {
        return;
    }
    let (key, turns_off) = settings::key_of_option(name);
    let setting = known.iter().find(|setting| setting.key == key);
    let is_switch = setting.is_some_and(|setting| setting.kind == Kind::Switch);
    let value = match (option.value, turns_off) {
        (Value::None, true) if is_switch => "false",
        // `no_slab_automove`: 0 of `slab_automove`.
        (Value::None, true) => "0",
        (Value::None, false) => "true",
        _ if value.is_empty() => option.default,
        _ => value,
    };
    give(key, vec![value.to_owned()]);
}

/// `true` if the style of this command line has the flag.
fn is_known(matches: &ArgMatches, flag: &super::table::Flag) -> bool {
    matches.try_contains_id(flag.long).is_ok()
}

fn is_toml(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|ending| ending == "toml")
}

/// The variable that names the file, without its prefix.
pub(crate) const FILE_VARIABLE: &str = "CONFIG";

/// Variables of builds and tests of this program, without their prefix.
const OF_BUILDS: [&str; 3] = ["BIN", "DYNAMIC_BIN", "COMMIT"];

/// The largest file, in bytes.
pub(crate) const FILE_BYTES_MAX: u64 = 1 << 20;
