//! The record of files that were read again while the server runs, for metrics.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Files that are read again together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// The file of settings (`--config`).
    Settings,
    /// Users and rights.
    Users,
    /// The certificate, its key and the issuers of clients' certificates.
    Certificates,
    /// Namespaces.
    Namespaces,
}

impl Part {
    /// Every part, in the order in which they are read.
    pub(crate) const ALL: [Self; 4] =
        [Self::Settings, Self::Users, Self::Certificates, Self::Namespaces];

    /// The part in logs.
    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Settings => "settings",
            Self::Users => "users and rights",
            Self::Certificates => "certificates",
            Self::Namespaces => "namespaces",
        }
    }

    /// The part in metrics.
    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::Users => "users",
            _ => self.title(),
        }
    }
}

/// How the last reading of each part went.
#[derive(Debug)]
pub(crate) struct Reloads {
    parts: [Outcome; 4],
}

#[derive(Debug)]
struct Outcome {
    /// 1, or 0 if the part could not be used and is as it was.
    successful: AtomicU64,
    /// Unix time of the last success, in seconds.
    succeeded_at: AtomicU64,
}

impl Default for Reloads {
    /// All parts were read now.
    fn default() -> Self {
        let read = || Outcome { successful: 1.into(), succeeded_at: unix_secs().into() };
        Self { parts: [read(), read(), read(), read()] }
    }
}

/// Relaxed: numbers for people.
impl Reloads {
    pub(crate) fn note(&self, part: Part, is_successful: bool) {
        let outcome = &self.parts[part as usize];
        outcome.successful.store(is_successful.into(), Ordering::Relaxed);
        if is_successful {
            outcome.succeeded_at.store(unix_secs(), Ordering::Relaxed);
        }
    }

    /// 1 if the part was read well the last time, and the Unix time of the last success.
    pub(crate) fn of(&self, part: Part) -> (u64, u64) {
        let outcome = &self.parts[part as usize];
        let load = |number: &AtomicU64| number.load(Ordering::Relaxed);
        (load(&outcome.successful), load(&outcome.succeeded_at))
    }
}

fn unix_secs() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
