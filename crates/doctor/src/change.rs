//! Writes settings to the host, and restores the former ones.

use std::io;

use serde::{Deserialize, Serialize};

use crate::ethtool;
use crate::finding::{Finding, Setting};
use crate::host::Host;

/// The file with former settings, until `undo` or the next reboot.
pub const UNDO_FILE: &str = "/run/holdall-doctor.json";

#[derive(Debug, Default, Deserialize, Serialize)]
struct Former {
    /// In the order in which they were changed.
    settings: Vec<Setting>,
}

/// A setting could not be changed.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// Writing failed, mostly because the caller is not root.
    #[error("{file}: {error}")]
    Write {
        /// The file.
        file: String,
        /// The reason.
        error: io::Error,
    },
    /// The file of former settings is damaged.
    #[error("{UNDO_FILE}: {0}; it is left as it is")]
    Damaged(serde_json::Error),
    /// There is no earlier change.
    #[error("{UNDO_FILE} is not there: nothing was changed since the host started")]
    NothingToUndo,
}

/// Writes the settings of all findings, and returns the changed ones. Each former one is stored
/// before the write.
///
/// # Errors
///
/// Returns the first failure; earlier settings stay changed and stored.
pub fn apply(host: &Host, findings: &[Finding]) -> Result<Vec<Setting>, ChangeError> {
    let mut former = remembered(host)?.unwrap_or_default();
    let mut changed = Vec::new();
    for setting in findings.iter().flat_map(|finding| &finding.settings) {
        let failed = |error| ChangeError::Write { file: setting.file.clone(), error };
        let before = read(host, &setting.file)
            .ok_or_else(|| failed(io::Error::from(io::ErrorKind::NotFound)))?;
        let value = chosen(&before);
        if value == setting.value {
            continue;
        }
        former.settings.push(Setting { file: setting.file.clone(), value });
        remember(host, &former)?;
        write(host, setting).map_err(failed)?;
        changed.push(setting.clone());
    }
    Ok(changed)
}

/// Restores the former settings, last first, and returns them.
///
/// # Errors
///
/// Returns the first failure; it and those before it stay stored.
pub fn undo(host: &Host) -> Result<Vec<Setting>, ChangeError> {
    let mut former = remembered(host)?.ok_or(ChangeError::NothingToUndo)?;
    let mut undone = Vec::new();
    while let Some(setting) = former.settings.last().cloned() {
        let failed = |error| ChangeError::Write { file: setting.file.clone(), error };
        write(host, &setting).map_err(failed)?;
        former.settings.pop();
        remember(host, &former)?;
        undone.push(setting);
    }
    let removed = host.remove(UNDO_FILE);
    removed.map_err(|error| ChangeError::Write { file: UNDO_FILE.to_owned(), error })?;
    Ok(undone)
}

/// The current value of a setting.
fn read(host: &Host, name: &str) -> Option<String> {
    ethtool::read(host, name).unwrap_or_else(|| host.text(name))
}

fn write(host: &Host, setting: &Setting) -> io::Result<()> {
    let by_ethtool = ethtool::write(host, &setting.file, &setting.value);
    by_ethtool.unwrap_or_else(|| host.write(&setting.file, &setting.value))
}

/// The selected value of choices such as `always [madvise] never`; otherwise words are separated by
/// one space, as they are written.
fn chosen(text: &str) -> String {
    let choice = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    choice.map_or_else(
        || text.split_whitespace().collect::<Vec<_>>().join(" "),
        |(choice, _)| choice.to_owned(),
    )
}

fn remembered(host: &Host) -> Result<Option<Former>, ChangeError> {
    let text = host.text(UNDO_FILE);
    text.map(|text| serde_json::from_str(&text).map_err(ChangeError::Damaged)).transpose()
}

fn remember(host: &Host, former: &Former) -> Result<(), ChangeError> {
    let text = serde_json::to_string_pretty(former).map_err(ChangeError::Damaged)?;
    host.keep(UNDO_FILE, &text)
        .map_err(|error| ChangeError::Write { file: UNDO_FILE.to_owned(), error })
}
