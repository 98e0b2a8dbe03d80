//! Converts events to lines: text for people, or one JSON object per line.

use std::env;
use std::ffi::OsString;
use std::fmt::{self, Debug, Display, Write};
use std::str::FromStr;

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime as _, SystemTime};
use tracing_subscriber::layer::Context;

use crate::filter::PARTS;

/// The form of lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// `TIME NAME: MESSAGE`; in systemd's journal, which adds the time, a priority in place of the
    /// time.
    #[default]
    Text,
    /// An object with time, level, program, part and message.
    Json,
}

impl Format {
    /// The form of `--log-format` on a command line, if given; for a process whose command line
    /// cannot be used otherwise.
    #[must_use]
    pub fn of_arguments(arguments: &[OsString]) -> Option<Self> {
        let value =
            |(at, word): (usize, &OsString)| match word.to_str()?.strip_prefix("--log-format")? {
                "" => arguments.get(at + 1)?.to_str().map(str::to_owned),
                rest => rest.strip_prefix('=').map(str::to_owned),
            };
        arguments.iter().enumerate().rev().find_map(value)?.parse().ok()
    }
}

/// A text that is not a [`Format`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not one of text and json")]
pub struct BadFormat(String);

impl FromStr for Format {
    type Err = BadFormat;

    fn from_str(text: &str) -> Result<Self, BadFormat> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err(BadFormat(text.to_owned())),
        }
    }
}

/// Writes events of [`PARTS`], but not those of libraries.
#[derive(Clone, Copy)]
pub(crate) struct Lines {
    name: &'static str,
    format: Format,
    is_journal: bool,
}

impl Lines {
    pub(crate) fn new(name: &'static str, format: Format) -> Self {
        Self { name, format, is_journal: is_journal() }
    }
}

impl<S: Subscriber> Layer<S> for Lines {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let metadata = event.metadata();
        if PARTS.contains(&metadata.target()) {
            let (level, part) = (*metadata.level(), metadata.target());
            event.record(&mut Message(|message: &dyn Debug| {
                crate::write(format_args!("{}", Line { form: *self, level, part, message }));
            }));
        }
    }
}

/// A whole line.
pub(crate) struct Line<'a> {
    pub(crate) form: Lines,
    pub(crate) level: Level,
    pub(crate) part: &'a str,
    pub(crate) message: &'a dyn Debug,
}

impl Display for Line<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { form: Lines { name, format, is_journal }, level, part, message } = *self;
        match format {
            Format::Json => {
                let (word, message) = (word_of(level), InJson(message));
                writeln!(
                    out,
                    "{{\"time\":\"{Now}\",\"level\":\"{word}\",\"program\":\"{name}\",\
                     \"part\":\"{part}\",\"message\":\"{message}\"}}"
                )
            }
            Format::Text => {
                let (prefix, message) = (prefix_of(level), Visible(message));
                if is_journal {
                    writeln!(out, "<{}>{name}: {prefix}{message}", priority_of(level))
                } else {
                    writeln!(out, "{Now} {name}: {prefix}{message}")
                }
            }
        }
    }
}

/// The object for the end of a process that does not serve.
pub(crate) fn fatal_json(
    name: &str,
    message: &str,
    place: Option<&str>,
    hint: Option<&str>,
) -> String {
    let word = word_of(Level::ERROR);
    let message = InJson(&format_args!("{message}"));
    let mut line = format!(
        "{{\"time\":\"{Now}\",\"level\":\"{word}\",\"program\":\"{name}\",\"message\":\"{message}\""
    );
    for (key, value) in [("place", place), ("hint", hint)] {
        if let Some(value) = value {
            // Writing into a string does not fail.
            let _ = write!(line, ",\"{key}\":\"{}\"", InJson(&format_args!("{value}")));
        }
    }
    line.push_str("}\n");
    line
}

/// Finds an event's message.
struct Message<F>(F);

impl<F: FnMut(&dyn Debug)> Visit for Message<F> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            (self.0)(value);
        }
    }
}

/// The time in RFC 3339 format, in UTC.
struct Now;

impl Display for Now {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        SystemTime.format_time(&mut Writer::new(out))
    }
}

/// A message without characters that move a cursor, change colours or start a line.
struct Visible<'a>(&'a dyn Debug);

impl Display for Visible<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let escape = |character: char, out: &mut fmt::Formatter<'_>| match character {
            _ if character.is_control() => write!(out, "{}", character.escape_default()),
            _ => out.write_char(character),
        };
        write!(Each { out, write: escape }, "{:?}", self.0)
    }
}

/// A message inside of a string of JSON.
struct InJson<'a>(&'a dyn Debug);

impl Display for InJson<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let escape = |character: char, out: &mut fmt::Formatter<'_>| match character {
            '"' | '\\' => write!(out, "\\{character}"),
            _ if character.is_control() => write!(out, "\\u{:04x}", u32::from(character)),
            _ => out.write_char(character),
        };
        write!(Each { out, write: escape }, "{:?}", self.0)
    }
}

/// Writes each character by a given rule.
struct Each<'a, 'f, F> {
    out: &'a mut fmt::Formatter<'f>,
    write: F,
}

impl<F: Fn(char, &mut fmt::Formatter<'_>) -> fmt::Result> Write for Each<'_, '_, F> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.chars().try_for_each(|character| (self.write)(character, self.out))
    }
}

/// `true` if stderr is a stream of systemd's journal. Source: systemd.exec(5), `JOURNAL_STREAM`.
fn is_journal() -> bool {
    let Ok(stream) = env::var("JOURNAL_STREAM") else { return false };
    let Ok(stat) = rustix::fs::fstat(std::io::stderr()) else { return false };
    stream == format!("{}:{}", stat.st_dev, stat.st_ino)
}

const fn word_of(level: Level) -> &'static str {
    match level {
        Level::ERROR => "error",
        Level::WARN => "warning",
        Level::INFO => "info",
        _ => "debug",
    }
}

const fn prefix_of(level: Level) -> &'static str {
    match level {
        Level::ERROR => "error: ",
        Level::WARN => "warning: ",
        Level::INFO => "",
        _ => "debug: ",
    }
}

/// syslog's priorities, in the line prefixes of sd-daemon(3).
const fn priority_of(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        _ => 7,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTILE: &str = "get \u{1b}[2J\r\n\"x\\\u{85}\u{0}é";

    #[test]
    fn control_characters_of_a_message_are_escaped() {
        let shown = Visible(&format_args!("{HOSTILE}")).to_string();
        assert_eq!(shown, "get \\u{1b}[2J\\r\\n\"x\\\\u{85}\\u{0}é");
    }

    #[test]
    fn json_gives_the_message_back() {
        let line = format!("\"{}\"", InJson(&format_args!("{HOSTILE}")));
        assert!(!line.contains(char::is_control), "{line:?}");
        let read: String = serde_json::from_str(&line).unwrap();
        assert_eq!(read, HOSTILE);
    }

    #[test]
    fn the_time_is_utc() {
        let now = Now.to_string();
        assert!(now.len() > 20 && now.ends_with('Z') && now.as_bytes()[10] == b'T', "{now}");
    }
}
