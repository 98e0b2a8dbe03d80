//! The server's TOML file: converts text to settings, with the place of every fault.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::draft::Draft;
use super::refusal::Conflict;
use super::settings::{self, Kind, Setting, settings};
use super::{Options, Style};

/// A fault of a file, and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The faulty bytes of the text.
    pub span: Range<usize>,
    /// The fault in words.
    pub message: String,
    /// Advice.
    pub hint: Option<String>,
}

/// A setting in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The setting's name.
    pub key: String,
    /// Its values: one, except for lists.
    pub values: Vec<String>,
    /// Its bytes in the text.
    pub span: Range<usize>,
}

/// A value that is not of the setting's kind.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("{} {found} where {wanted} is expected", if found.starts_with(['a', 'i']) { "an" } else { "a" })]
struct WrongKind {
    found: &'static str,
    wanted: &'static str,
}

/// A file without faults.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// The options of a server with only this file.
    pub options: Options,
    /// The warnings of its start; most begin with a flag and a colon.
    pub warnings: Vec<String>,
    /// The settings in the file, each with its bytes in the text.
    pub places: Vec<(String, Range<usize>)>,
}

/// The options that the text of a file gives.
///
/// # Errors
///
/// Returns all faults, in the order of the text; first each setting separately, and then all
/// together.
pub fn resolve(text: &str) -> Result<Resolved, Vec<Fault>> {
    let (entries, mut faults) = read(text);
    if !faults.is_empty() {
        faults.sort_by_key(|fault| fault.span.start);
        return Err(faults);
    }
    let (mut draft, known) = (Draft::new(Style::Holdall), settings());
    for entry in &entries {
        let setting = known.iter().find(|setting| setting.key == entry.key);
        // Each was applied before.
        let _ = setting.map(|setting| setting.apply(&mut draft, &entry.values));
    }
    let mut warnings = Vec::new();
    let options = draft
        .resolve(&super::Environment::default(), &mut warnings)
        .map_err(|conflict| vec![fault_of(&conflict, &entries, &known)])?;
    let places = entries.into_iter().map(|entry| (entry.key, entry.span)).collect();
    Ok(Resolved { options, warnings, places })
}

/// Reads the text of a file. Faulty entries are left out of the settings.
pub(crate) fn read(text: &str) -> (Vec<Entry>, Vec<Fault>) {
    let (table, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        let fault = |error: &toml::de::Error| {
            let span = error.span().unwrap_or_default();
            let message = error.message().trim_end().to_owned();
            // The line of a repeated key may be right.
            let hint = slip(text, span.start).filter(|_| !message.starts_with("duplicate key"));
            Fault { span, message, hint }
        };
        return (Vec::new(), errors.iter().map(fault).collect());
    }
    let (known, mut entries, mut faults) = (settings(), Vec::new(), Vec::new());
    for (key, value) in table.get_ref() {
        match entry(key, value, &known) {
            Ok(entry) => entries.push(entry),
            Err(fault) => faults.push(fault),
        }
    }
    entries.sort_by_key(|entry| entry.span.start);
    (entries, faults)
}

/// Advice about the line at this byte, which is not TOML: another language's line, or a text
/// without quotes.
fn slip(text: &str, at: usize) -> Option<String> {
    let before = text.get(..at)?.rfind('\n').map_or(0, |end| end + 1);
    let line = text.get(before..)?.lines().next()?.trim();
    if line.starts_with('-') {
        return Some("flags go into a file whose name does not end in .toml".to_owned());
    }
    let (name, value) = line.split_once('=')?;
    let value = value.split('#').next().unwrap_or_default().trim();
    let name = name.trim();
    let known = settings();
    let takes_text = known
        .iter()
        .find(|setting| setting.key == name)
        .is_none_or(|setting| matches!(setting.kind, Kind::Size | Kind::Text | Kind::List));
    let is_valid = value.parse::<f64>().is_ok() || value.parse::<bool>().is_ok();
    let is_bare = !is_valid && !value.is_empty() && !value.contains(['"', '\'', '[', ']', '{']);
    (takes_text && is_bare).then(|| format!("a text needs quotes: {name} = \"{value}\""))
}

fn entry(
    key: &Spanned<toml::de::DeString<'_>>,
    value: &Spanned<DeValue<'_>>,
    known: &[Setting],
) -> Result<Entry, Fault> {
    let name = key.get_ref().as_ref();
    let Some(setting) = known.iter().find(|setting| setting.key == name) else {
        return Err(unknown(key.span(), name, known));
    };
    let fault = |message: String, hint| Fault { span: value.span(), message, hint };
    let values = texts(value.get_ref(), setting.kind)
        .map_err(|wrong| fault(format!("{name}: {wrong}"), Some(setting.help.to_owned())))?;
    setting
        .apply(&mut Draft::new(Style::Holdall), &values)
        .map_err(|wrong| fault(format!("{name}: {wrong}"), Some(setting.help.to_owned())))?;
    Ok(Entry { key: name.to_owned(), values, span: key.span().start..value.span().end })
}

fn unknown(span: Range<usize>, name: &str, known: &[Setting]) -> Fault {
    let hint = match settings::why_not(name) {
        Some(reason) => Some(format!("{name} cannot stand in a file: {reason}")),
        None => {
            let hyphens = name.replace('-', "_");
            settings::nearest(&hyphens, known).map(|near| format!("did you mean {near}?"))
        }
    };
    Fault { span, message: format!("there is no setting '{name}'"), hint }
}

/// The value in the form of the command line.
fn texts(value: &DeValue<'_>, kind: Kind) -> Result<Vec<String>, WrongKind> {
    let text = match (kind, value) {
        (Kind::Switch, DeValue::Boolean(is_on)) => is_on.to_string(),
        (Kind::Count | Kind::Number | Kind::Size | Kind::Fraction, DeValue::Integer(number)) => {
            whole(number)
                .ok_or(WrongKind { found: "number that large", wanted: "a smaller one" })?
        }
        (Kind::Fraction, DeValue::Float(number)) => number.as_str().replace('_', ""),
        (Kind::Size | Kind::Text | Kind::List, DeValue::String(text)) => text.to_string(),
        (Kind::List, DeValue::Array(elements)) => {
            let one = |element: &Spanned<DeValue<'_>>| texts(element.get_ref(), Kind::Text);
            let all: Result<Vec<_>, _> = elements.iter().map(one).collect();
            return all.map(|lists| lists.concat());
        }
        (_, other) => return Err(WrongKind { found: other.type_str(), wanted: wanted(kind) }),
    };
    Ok(vec![text])
}

fn whole(number: &toml::de::DeInteger<'_>) -> Option<String> {
    let digits = number.as_str().replace('_', "");
    i64::from_str_radix(&digits, number.radix()).ok().map(|number| number.to_string())
}

fn wanted(kind: Kind) -> &'static str {
    match kind {
        Kind::Switch => "true or false",
        Kind::Count | Kind::Number => "a whole number",
        Kind::Fraction => "a number",
        Kind::Size => "a whole number, or a string such as \"4g\",",
        Kind::Text => "a string",
        Kind::List => "a string, or an array of strings,",
    }
}

/// The fault of settings that do not go together.
fn fault_of(conflict: &Conflict, entries: &[Entry], known: &[Setting]) -> Fault {
    let flag = conflict.name;
    let setting = known.iter().find(|setting| setting.is_called(flag));
    let key = setting.map(|setting| setting.key.as_str());
    let entry = entries.iter().find(|entry| Some(entry.key.as_str()) == key);
    Fault {
        span: entry.map(|entry| entry.span.clone()).unwrap_or_default(),
        message: conflict.to_string(),
        hint: key.map(|key| format!("{flag} is {key} in this file")),
    }
}
