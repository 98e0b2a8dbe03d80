//! A finding, its reason, and the settings that fix it.

use serde::{Deserialize, Serialize};

use crate::ethtool;

/// The weight of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// May be intended; useful to know.
    Note,
    /// Costs speed, memory or safety.
    Warning,
}

/// A setting to write: `echo VALUE >FILE`, or `ethtool`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// The file in `/proc/sys` or `/sys`, or the words of `ethtool` before the value.
    pub file: String,
    /// The value.
    pub value: String,
}

impl Setting {
    /// The shell command for it.
    #[must_use]
    pub fn command(&self) -> String {
        if let Some(command) = ethtool::command(&self.file, &self.value) {
            return command;
        }
        if self.value.contains(' ') {
            return format!("echo '{}' >{}", self.value, self.file);
        }
        format!("echo {} >{}", self.value, self.file)
    }
}

/// A fault of the host or of a server's settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The check's name.
    pub check: &'static str,
    /// Its weight.
    pub level: Level,
    /// The fact.
    pub found: String,
    /// The reason why it matters.
    pub why: &'static str,
    /// A command that fixes it.
    pub command: String,
    /// Settings that `--apply` writes; none if that would not be safe.
    pub settings: Vec<Setting>,
}

impl Finding {
    /// A finding that a person must fix.
    pub(crate) fn by_hand(
        check: &'static str,
        level: Level,
        found: impl Into<String>,
        why: &'static str,
        command: impl Into<String>,
    ) -> Self {
        let (found, command) = (found.into(), command.into());
        Self { check, level, found, why, command, settings: Vec::new() }
    }

    /// A finding that settings fix.
    pub(crate) fn by_settings(
        check: &'static str,
        level: Level,
        found: impl Into<String>,
        why: &'static str,
        settings: Vec<Setting>,
    ) -> Self {
        let lines: Vec<String> = settings.iter().map(Setting::command).collect();
        Self { check, level, found: found.into(), why, command: lines.join("\n"), settings }
    }
}

/// A setting in `/proc/sys`.
pub(crate) fn sysctl(name: &str, value: &str) -> Vec<Setting> {
    vec![Setting { file: format!("/proc/sys/{name}"), value: value.to_owned() }]
}
