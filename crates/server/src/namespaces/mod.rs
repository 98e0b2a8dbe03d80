//! The file of namespaces (`-o namespaces=FILE`), read at the start and on each reload.

mod parse;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use engine::{Rule, RulesError, Shared};
use thiserror::Error;

use parse::{MistakeAt, rules};

/// The file and its rules at the last reading.
#[derive(Debug)]
pub(crate) struct NamespacesFile {
    /// Absolute, since it is read again.
    path: PathBuf,
    /// Users log in, so there may be lines for them.
    has_users: bool,
    rules: Mutex<Vec<Rule>>,
}

/// The file that cannot be used, and the reason.
#[derive(Debug, Error)]
#[error("{}: {fault}", path.display())]
pub(crate) struct NamespacesError {
    path: PathBuf,
    fault: Fault,
}

#[derive(Debug, Error)]
enum Fault {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Line(#[from] MistakeAt),
    #[error(
        "more than {} prefixes and users since the server's start; name fewer, or restart it",
        store::NAMESPACES_MAX
    )]
    TooMany,
    #[error("more than {} lines of prefixes and users; write fewer", store::NAMESPACES_MAX)]
    TooManyLines,
    #[error("no thread may count the items now; try again")]
    NoThread,
}

impl From<RulesError> for Fault {
    fn from(error: RulesError) -> Self {
        match error {
            RulesError::NoThread => Self::NoThread,
            RulesError::TooMany => Self::TooMany,
        }
    }
}

impl NamespacesFile {
    /// Reads the file.
    ///
    /// # Errors
    ///
    /// Fails if it cannot be used.
    pub(crate) fn open(path: &Path, has_users: bool) -> Result<Arc<Self>, NamespacesError> {
        let path = path.to_owned();
        let file = Self { path, has_users, rules: Mutex::default() };
        let rules = file.read().map_err(|fault| file.error(fault))?;
        *file.rules.lock().unwrap_or_else(PoisonError::into_inner) = rules;
        Ok(Arc::new(file))
    }

    fn read(&self) -> Result<Vec<Rule>, Fault> {
        let text = files::read_text(&self.path, FILE_BYTES_MAX)?;
        let rules = rules(&text, self.has_users)?;
        if rules.len() > store::NAMESPACES_MAX {
            return Err(Fault::TooManyLines);
        }
        Ok(rules)
    }

    fn error(&self, fault: impl Into<Fault>) -> NamespacesError {
        NamespacesError { path: self.path.clone(), fault: fault.into() }
    }

    /// Applies the rules of the last reading to `engine`.
    ///
    /// # Errors
    ///
    /// Fails if they are too many.
    pub(crate) fn apply(&self, engine: &Shared) -> Result<(), NamespacesError> {
        let rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner).clone();
        engine.set_rules(rules).map_err(|fault| self.error(fault))
    }

    /// Reads the file again and applies it to `engine`. If it cannot be used, nothing changes.
    ///
    /// # Errors
    ///
    /// Fails if it cannot be used.
    pub(crate) fn reload(&self, engine: &Shared) -> Result<(), NamespacesError> {
        let rules = self.read().map_err(|fault| self.error(fault))?;
        engine.set_rules(rules.clone()).map_err(|fault| self.error(fault))?;
        *self.rules.lock().unwrap_or_else(PoisonError::into_inner) = rules;
        Ok(())
    }
}

/// The largest file, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    /// A later refusal would come when the server to be replaced no longer serves.
    #[test]
    fn a_file_with_too_many_lines_is_refused_when_it_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("namespaces");
        let open = |count: usize| {
            let lines: String = (0..count).map(|one| format!("prefix p{one}:\n")).collect();
            std::fs::write(&path, lines).unwrap();
            NamespacesFile::open(&path, false)
        };
        open(store::NAMESPACES_MAX).unwrap();
        let error = open(store::NAMESPACES_MAX + 1).unwrap_err().to_string();
        assert!(
            error.ends_with("more than 1024 lines of prefixes and users; write fewer"),
            "{error}"
        );
    }
}
