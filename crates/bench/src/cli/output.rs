//! Files of results. They are opened before a long run, because their place may not be writable,
//! and get their names when they are complete: a failed run leaves an old file unchanged.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use files::NewFile;
use serde::Serialize;

use super::WrongUse;
use crate::terminal;

/// The place of a result.
pub(super) enum Output {
    /// The standard output.
    Stdout,
    /// A file of this name.
    File(PathBuf, NewFile),
}

/// Opens the file of a result; `-` is the standard output. An output that is one of `inputs` is
/// refused.
pub(super) fn begun(path: Option<&Path>, inputs: &[PathBuf]) -> Result<Option<Output>> {
    let begin = |path: &Path| {
        if path == Path::new("-") {
            terminal::leave_stdout_to_json();
            return Ok(Output::Stdout);
        }
        file(path, inputs)
    };
    path.map(begin).transpose()
}

/// Opens a file, which always has a name.
pub(super) fn file(path: &Path, inputs: &[PathBuf]) -> Result<Output> {
    let inputs: Vec<&Path> = inputs.iter().map(PathBuf::as_path).collect();
    let new = NewFile::create(path, &inputs).map_err(|error| {
        let message = format!("{} cannot be written: {error}", path.display());
        // The system's own errors are of other kinds.
        match error.kind() {
            io::ErrorKind::Other => WrongUse(message).into(),
            _ => anyhow::Error::msg(message),
        }
    })?;
    Ok(Output::File(path.to_owned(), new))
}

impl Output {
    /// Writes all of it, and moves the file into place.
    pub(super) fn put(self, text: &[u8]) -> Result<()> {
        match self {
            Self::Stdout => match io::stdout().lock().write_all(text) {
                Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                    Err(error).context("the result could not be printed")
                }
                _ => Ok(()),
            },
            Self::File(path, mut new) => {
                let written = new.write_all(text).and_then(|()| new.finish());
                written.with_context(|| format!("{} cannot be written", path.display()))
            }
        }
    }
}

/// Writes a result as JSON.
pub(super) fn keep(output: Option<Output>, result: &impl Serialize) -> Result<()> {
    let Some(output) = output else { return Ok(()) };
    let mut json = serde_json::to_vec_pretty(result)?;
    json.push(b'\n');
    output.put(&json)
}

/// Writes a result with its doubts.
pub(super) fn keep_with(
    output: Option<Output>,
    result: &impl Serialize,
    doubts: Vec<String>,
) -> Result<()> {
    #[derive(Serialize)]
    struct Doubted<'r, R> {
        #[serde(flatten)]
        result: &'r R,
        doubts: Vec<String>,
    }
    keep(output, &Doubted { result, doubts })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn failed_runs_keep_old_results_and_inputs_are_not_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r.json");
        fs::write(&path, "old").unwrap();
        drop(begun(Some(&path), &[]).unwrap());
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        keep(begun(Some(&path), &[]).unwrap(), &[1]).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "[\n  1\n]\n");
        let refused = file(&path, std::slice::from_ref(&path)).err().unwrap();
        assert!(refused.is::<WrongUse>(), "{refused}");
        let refused = file(&folder.path().join("none/r.json"), &[]).err().unwrap();
        assert!(!refused.is::<WrongUse>(), "{refused}");
    }
}
