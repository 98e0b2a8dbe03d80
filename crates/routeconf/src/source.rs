//! Sources of configuration text, and positions in it.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// The maximum size of a file, in bytes.
pub const FILE_BYTES_MAX: u64 = 32 << 20;

/// A place in a file, part of every error and every part of a configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct At {
    /// Index into [`Files`].
    pub file: u16,
    /// From 1; 0 means the file as a whole.
    pub line: u32,
    /// From 1, in characters.
    pub column: u32,
}

/// The files that were read, in order, starting with the requested one. A reload watches them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files(Vec<String>);

impl Files {
    /// Adds a file and returns its index. Beyond 65,535 files all further ones share the last
    /// index.
    pub(crate) fn add(&mut self, name: &str) -> u16 {
        if let Some(known) = self.0.iter().position(|file| file == name) {
            return u16::try_from(known).unwrap_or(u16::MAX);
        }
        let index = u16::try_from(self.0.len()).unwrap_or(u16::MAX);
        self.0.push(name.to_owned());
        index
    }

    /// The names, as requested.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// The name of one file.
    #[must_use]
    pub fn name(&self, file: u16) -> &str {
        self.0.get(usize::from(file)).map_or("?", String::as_str)
    }

    /// `file:line:column`, or only the file.
    #[must_use]
    pub fn place(&self, at: At) -> String {
        match at.line {
            0 => self.name(at.file).to_owned(),
            line => format!("{}:{line}:{}", self.name(at.file), at.column),
        }
    }
}

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The configuration works as its author intends, but with a limit worth knowing.
    Note,
    /// The configuration works, but not as its author intends.
    Warning,
    /// The configuration cannot be used.
    Error,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "error",
        })
    }
}

/// One finding about a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// The place that it is about.
    pub at: At,
    /// Its severity.
    pub severity: Severity,
    /// The finding, in one sentence without a full stop.
    pub message: String,
    /// The remedy, if one is known.
    pub hint: Option<String>,
}

impl Diagnostic {
    pub(crate) fn error(at: At, message: impl Into<String>) -> Self {
        Self { at, severity: Severity::Error, message: message.into(), hint: None }
    }

    pub(crate) fn warning(at: At, message: impl Into<String>) -> Self {
        Self { at, severity: Severity::Warning, message: message.into(), hint: None }
    }

    pub(crate) fn note(at: At, message: impl Into<String>) -> Self {
        Self { at, severity: Severity::Note, message: message.into(), hint: None }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Asks whether the nearest known name was meant, and replaces another hint. If none is near,
    /// the hint stays.
    pub(crate) fn meant<'n>(
        mut self,
        name: &str,
        known: impl IntoIterator<Item = &'n str>,
    ) -> Self {
        self.hint = usage::hint(name, known).or(self.hint);
        self
    }

    /// `file:line:column: error: message (hint)`, with unprintable characters escaped.
    #[must_use]
    pub fn render(&self, files: &Files) -> String {
        let place = files.place(self.at);
        let hint = self.hint.as_ref().map(|hint| format!(" ({hint})")).unwrap_or_default();
        let text = format!("{place}: {}: {}{hint}", self.severity, self.message);
        text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
    }
}

/// A result with one finding as its error, which ends the work at hand. Boxed, as results are
/// common and findings rare.
pub(crate) type Fallible<T> = Result<T, Box<Diagnostic>>;

pub(crate) fn fail<T>(at: At, message: impl Into<String>) -> Fallible<T> {
    Err(Box::new(Diagnostic::error(at, message)))
}

/// Reads the imports of a configuration.
pub trait Sources {
    /// The text of the file `name`, as a configuration writes it (`file:PATH` or `PATH`), and the
    /// name to show for it.
    ///
    /// # Errors
    ///
    /// Any reason why it cannot be read; larger than [`FILE_BYTES_MAX`], not UTF-8.
    fn read(&mut self, name: &str) -> io::Result<(String, String)>;
}

/// Real files; relative names are relative to the folder of the main file, or else to the current
/// one.
#[derive(Debug)]
pub struct FileSources {
    folder: PathBuf,
}

impl FileSources {
    /// Sources for the configuration at this path.
    #[must_use]
    pub fn beside(main: &Path) -> Self {
        Self { folder: main.parent().map(Path::to_path_buf).unwrap_or_default() }
    }

    /// The file for a name. A missing one is assumed next to the main file.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        let path = Path::new(name.strip_prefix("file:").unwrap_or(name));
        let beside = self.folder.join(path);
        if !beside.exists() && path.exists() { path.to_path_buf() } else { beside }
    }

    /// Reads one file, with the limits of [`Sources::read`].
    ///
    /// # Errors
    ///
    /// As for [`Sources::read`].
    pub fn read_path(path: &Path) -> io::Result<String> {
        files::read_text(path, FILE_BYTES_MAX)
    }
}

impl Sources for FileSources {
    fn read(&mut self, name: &str) -> io::Result<(String, String)> {
        let path = self.path(name);
        Ok((Self::read_path(&path)?, path.display().to_string()))
    }
}

/// Files in memory, by name: for tests, and for texts from other sources.
#[derive(Clone, Debug, Default)]
pub struct MemorySources(pub BTreeMap<String, String>);

impl Sources for MemorySources {
    fn read(&mut self, name: &str) -> io::Result<(String, String)> {
        let name = name.strip_prefix("file:").unwrap_or(name);
        match self.0.get(name) {
            Some(text) => Ok((text.clone(), name.to_owned())),
            None => Err(io::Error::new(io::ErrorKind::NotFound, "there is no such file")),
        }
    }
}
