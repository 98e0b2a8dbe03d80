//! A file of settings under construction.

use std::fmt::Write as _;

/// A file for `holdall serve --config`, and notes for the operator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// The TOML text.
    pub text: String,
    /// A sentence for each setting that was not converted, or should be checked.
    pub notes: Vec<String>,
}

impl Settings {
    /// Adds a line whose value is already TOML.
    pub(crate) fn set(&mut self, key: &str, value: impl std::fmt::Display) {
        // Writing into a string does not fail.
        let _ = writeln!(self.text, "{key} = {value}");
    }

    /// Adds a line whose value is a text.
    pub(crate) fn set_text(&mut self, key: &str, text: &str) {
        self.set(key, quoted(text));
    }

    /// Adds `listen`, a list of texts.
    pub(crate) fn listen(&mut self, hosts: impl IntoIterator<Item = impl AsRef<str>>) {
        let hosts: Vec<_> = hosts.into_iter().map(|host| quoted(host.as_ref())).collect();
        self.set("listen", format!("[{}]", hosts.join(", ")));
    }

    /// Adds `memory_limit`, in MB if it is a whole number of them.
    pub(crate) fn memory_limit(&mut self, bytes: u64) {
        match bytes % (1 << 20) {
            0 => self.set("memory_limit", bytes >> 20),
            _ => self.set_text("memory_limit", &format!("{}k", bytes >> 10)),
        }
    }

    pub(crate) fn note(&mut self, sentence: impl Into<String>) {
        self.notes.push(sentence.into());
    }
}

/// A basic string of TOML.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            _ if character.is_control() => {
                let _ = write!(quoted, "\\u{:04X}", u32::from(character));
            }
            _ => quoted.push(character),
        }
    }
    quoted + "\""
}
