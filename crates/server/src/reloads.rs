//! The record of files that the running server has read again, for metrics.

use metrics::LastReload;

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

    /// The part's name in logs.
    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Settings => "settings",
            Self::Users => "users and rights",
            Self::Certificates => "certificates",
            Self::Namespaces => "namespaces",
        }
    }

    /// The part's name in metrics.
    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::Users => "users",
            _ => self.title(),
        }
    }
}

/// The result of the last reading of each part.
#[derive(Debug, Default)]
pub(crate) struct Reloads([LastReload; 4]);

impl Reloads {
    /// The last reading of the part.
    pub(crate) fn of(&self, part: Part) -> &LastReload {
        &self.0[part as usize]
    }
}
