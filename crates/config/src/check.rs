//! `holdall config check`: the faults of a file, and their places.

use std::ffi::OsString;
use std::ops::Range;
use std::path::Path;

use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};
use options::file::{Fault, Resolved};
use options::settings::{self, Given, Origin};
use options::{Environment, Invocation, Options, Style, file, parse};
use serde_json::{Value, json};
use server::run::{Finding, findings};

/// A file that was read, and its faults.
#[derive(Clone, Debug)]
pub struct Checked {
    /// The file's name as given.
    pub name: String,
    /// Its text.
    pub text: String,
    /// All faults, in the order of the text.
    pub faults: Vec<Fault>,
    /// The warnings of a start with this file.
    pub warnings: Vec<Fault>,
    /// The options of a server with this file, if they are valid.
    options: Option<Options>,
    /// The settings in the file, each with its bytes in the text.
    places: Vec<(String, Range<usize>)>,
}

/// Checks the text of a file: TOML if the name ends with `.toml`, else memcached's format.
#[must_use]
pub fn check(name: &str, text: String) -> Checked {
    let is_toml = Path::new(name).extension().is_some_and(|ending| ending == "toml");
    let mut checked = Checked {
        name: name.to_owned(),
        text,
        faults: Vec::new(),
        warnings: Vec::new(),
        options: None,
        places: Vec::new(),
    };
    if is_toml {
        checked.as_toml()
    } else {
        checked.as_memcacheds()
    }
    checked
}

impl Checked {
    fn as_toml(&mut self) {
        match file::resolve(&self.text) {
            Ok(Resolved { options, warnings, places }) => {
                (self.options, self.places) = (Some(options), places);
                for warning in warnings {
                    let named = settings::named_in(&warning);
                    let (flag, key) = named.unwrap_or_default();
                    // An option of -o has the name of its setting.
                    let is_other = !flag.ends_with(&*key);
                    let hint = is_other.then(|| format!("{flag} is {key} in this file"));
                    let span = self.place(&key);
                    self.warnings.push(Fault { span, message: warning, hint });
                }
            }
            Err(faults) => self.faults = faults,
        }
    }

    /// The server stops at the first fault of such a file, and reports its line.
    fn as_memcacheds(&mut self) {
        let arguments = ["--config", &self.name].map(OsString::from);
        match parse(Style::Holdall, arguments, &Environment::default()) {
            Err(refusal) => {
                let whole = || Fault { span: 0..0, message: refusal.message.clone(), hint: None };
                let fault = placed(&self.name, &self.text, &refusal.message);
                self.faults.push(fault.unwrap_or_else(whole));
            }
            Ok(Invocation::Run { options, warnings, given, .. }) => {
                self.options = Some(*options);
                let place = |given: Given| match given.origin {
                    Origin::File { line, .. } => Some((given.key, span_of(&self.text, line)?)),
                    _ => None,
                };
                self.places = given.into_iter().filter_map(place).collect();
                for warning in warnings {
                    let (_, key) = settings::named_in(&warning).unwrap_or_default();
                    let fault = placed(&self.name, &self.text, &warning);
                    let span = self.place(&key);
                    let fault = fault.unwrap_or(Fault { span, message: warning, hint: None });
                    self.warnings.push(fault);
                }
            }
            Ok(Invocation::Print(_)) => {}
        }
    }

    /// Adds the faults and warnings of the files and addresses that the settings name.
    pub(crate) fn look_at_files(&mut self) {
        let Some(options) = &self.options else { return };
        for Finding { setting, message, is_fault } in findings(options) {
            let fault = Fault { span: self.place(setting), message, hint: None };
            if is_fault { self.faults.push(fault) } else { self.warnings.push(fault) }
        }
    }

    /// The bytes of a setting; the start of the text if it is not in the file.
    fn place(&self, key: &str) -> Range<usize> {
        let found = self.places.iter().find(|(known, _)| known == key);
        found.map(|(_, span)| span.clone()).unwrap_or_default()
    }
}

/// The finding of a message that starts with the file's name and a line; `None` for others.
fn placed(name: &str, text: &str, message: &str) -> Option<Fault> {
    let (line, message) = message.strip_prefix(name)?.strip_prefix(':')?.split_once(": ")?;
    let span = span_of(text, line.parse().ok()?)?;
    Some(Fault { span, message: message.to_owned(), hint: None })
}

/// The bytes of a line; the first one is 1.
fn span_of(text: &str, line: usize) -> Option<Range<usize>> {
    let start: usize = text.split_inclusive('\n').take(line.checked_sub(1)?).map(str::len).sum();
    let length = text[start..].lines().next().map_or(0, str::len);
    Some(start..start + length)
}

impl Checked {
    /// Faults and warnings for people, each with its line underlined.
    #[must_use]
    pub fn to_text(&self, has_colours: bool) -> String {
        let renderer = if has_colours { Renderer::styled() } else { Renderer::plain() };
        let one = |(level, fault): (&Level<'static>, &Fault)| {
            let place = AnnotationKind::Primary.span(fault.span.clone());
            let source = Snippet::source(self.text.as_str()).path(self.name.as_str());
            let mut group = level
                .clone()
                .primary_title(fault.message.as_str())
                .element(source.annotation(place));
            if let Some(hint) = &fault.hint {
                group = group.element(Level::HELP.message(hint.as_str()));
            }
            renderer.render(&[group]) + "\n"
        };
        let faults = self.faults.iter().map(|fault| (&Level::ERROR, fault));
        faults.chain(self.warnings.iter().map(|one| (&Level::WARNING, one))).map(one).collect()
    }

    /// Faults and warnings for programs.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let one = |(level, fault): (&str, &Fault)| {
            let (line, column) = files::place(&self.text, fault.span.start);
            json!({
                "severity": level,
                "file": self.name,
                "line": line,
                "column": column,
                "message": fault.message,
                "hint": fault.hint,
            })
        };
        let faults = self.faults.iter().map(|fault| ("error", fault));
        faults.chain(self.warnings.iter().map(|one| ("warning", one))).map(one).collect()
    }
}
