//! `holdall config check`: the faults of a file, and their places.

use std::ffi::OsString;
use std::path::Path;

use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};
use options::file::Fault;
use options::{Environment, Invocation, Style, file, parse};
use serde_json::{Value, json};

/// A file that was read, and its faults.
#[derive(Clone, Debug)]
pub struct Checked {
    /// The file's name as given.
    pub name: String,
    /// Its text.
    pub text: String,
    /// All faults, in the order of the text.
    pub faults: Vec<Fault>,
    /// Lines that the server accepts, and that have no effect.
    pub warnings: Vec<Fault>,
}

/// Checks the text of a file: TOML if the name ends with `.toml`, else memcached's format.
#[must_use]
pub fn check(name: &str, text: String) -> Checked {
    let (faults, warnings) = match Path::new(name).extension() {
        Some(ending) if ending == "toml" => (file::check(&text), Vec::new()),
        _ => in_memcacheds_format(name, &text),
    };
    Checked { name: name.to_owned(), text, faults, warnings }
}

/// Faults and warnings. The server stops at the first fault of such a file, and reports its line.
fn in_memcacheds_format(name: &str, text: &str) -> (Vec<Fault>, Vec<Fault>) {
    let arguments = ["--config", name].map(OsString::from);
    match parse(Style::Holdall, arguments, &Environment::default()) {
        Err(refusal) => {
            let whole = || Fault { span: 0..0, message: refusal.message.clone(), hint: None };
            (vec![placed(name, text, &refusal.message).unwrap_or_else(whole)], Vec::new())
        }
        // Others concern this command's environment, not the file.
        Ok(Invocation::Run { warnings, .. }) => {
            let of_file = warnings.iter().filter_map(|warning| placed(name, text, warning));
            (Vec::new(), of_file.collect())
        }
        Ok(Invocation::Print(_)) => (Vec::new(), Vec::new()),
    }
}

/// The finding of a message that starts with the file's name and a line; `None` for others.
fn placed(name: &str, text: &str, message: &str) -> Option<Fault> {
    let (line, message) = message.strip_prefix(name)?.strip_prefix(':')?.split_once(": ")?;
    let before = line.parse::<usize>().ok()?.checked_sub(1)?;
    let start: usize = text.split_inclusive('\n').take(before).map(str::len).sum();
    let length = text[start..].lines().next().map_or(0, str::len);
    Some(Fault { span: start..start + length, message: message.to_owned(), hint: None })
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
