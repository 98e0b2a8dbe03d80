//! `holdall config check`: what is wrong with a file, and where.

use std::ffi::OsString;
use std::path::Path;

use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};
use options::file::Fault;
use options::{Environment, Style, file, parse};
use serde_json::{Value, json};

/// A file that was read, and its faults.
#[derive(Clone, Debug)]
pub struct Checked {
    /// The file as it was named.
    pub name: String,
    /// Its text.
    pub text: String,
    /// Everything that is wrong, in the order of the text.
    pub faults: Vec<Fault>,
}

/// Checks the text of a file: TOML where the name ends so, else memcached's format.
#[must_use]
pub fn check(name: &str, text: String) -> Checked {
    let faults = match Path::new(name).extension() {
        Some(ending) if ending == "toml" => file::check(&text),
        _ => in_memcacheds_format(name, &text).into_iter().collect(),
    };
    Checked { name: name.to_owned(), text, faults }
}

/// The server stops at the first fault of such a file, and says its line.
fn in_memcacheds_format(name: &str, text: &str) -> Option<Fault> {
    let arguments = ["--config", name].map(OsString::from);
    let refusal = parse(Style::Holdall, arguments, &Environment::default()).err()?;
    let placed = refusal.message.strip_prefix(name).and_then(|rest| rest.strip_prefix(':'));
    let placed = placed.and_then(|rest| rest.split_once(": "));
    let placed = placed.and_then(|(line, message)| Some((line.parse::<usize>().ok()?, message)));
    let Some((line, message)) = placed else {
        return Some(Fault { span: 0..0, message: refusal.message, hint: None });
    };
    let start: usize = text.split_inclusive('\n').take(line - 1).map(str::len).sum();
    let length = text[start..].lines().next().map_or(0, str::len);
    let message = message.to_owned();
    Some(Fault { span: start..start + length, message, hint: None })
}

impl Checked {
    /// The faults for people, each with its line underlined.
    #[must_use]
    pub fn for_people(&self, has_colours: bool) -> String {
        let renderer = if has_colours { Renderer::styled() } else { Renderer::plain() };
        let one = |fault: &Fault| {
            let place = AnnotationKind::Primary.span(fault.span.clone());
            let source = Snippet::source(self.text.as_str()).path(self.name.as_str());
            let mut group = Level::ERROR
                .primary_title(fault.message.as_str())
                .element(source.annotation(place));
            if let Some(hint) = &fault.hint {
                group = group.element(Level::HELP.message(hint.as_str()));
            }
            renderer.render(&[group]) + "\n"
        };
        self.faults.iter().map(one).collect()
    }

    /// The faults for programs.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let one = |fault: &Fault| {
            let (line, column) = files::place(&self.text, fault.span.start);
            json!({
                "file": self.name,
                "line": line,
                "column": column,
                "message": fault.message,
                "hint": fault.hint,
            })
        };
        self.faults.iter().map(one).collect()
    }
}
