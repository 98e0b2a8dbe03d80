//! Sources of servers (docs/discovery.md) as queried by one client: with its files, and with their
//! last answers.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use discovery::{AccessFiles, Discovery};

/// The access to sources, and the place of their saved answers.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct SourceSettings {
    pub(crate) dir: Option<PathBuf>,
    pub(crate) access: AccessFiles,
}

/// Sources of servers, queried with these settings.
#[derive(Debug, Default)]
pub(crate) struct OwnSources {
    settings: SourceSettings,
    pub(crate) discovery: Discovery,
}

impl OwnSources {
    /// # Errors
    ///
    /// The unusable file, and the reason.
    pub(crate) fn new(settings: &SourceSettings) -> io::Result<Arc<Self>> {
        let discovery = Discovery::new(settings.dir.clone()).with_access(&settings.access)?;
        Ok(Arc::new(Self { settings: settings.clone(), discovery }))
    }

    /// The same for another configuration, whose settings override these if it has any: earlier
    /// answers are kept.
    ///
    /// # Errors
    ///
    /// As of [`Self::new`].
    pub(crate) fn with_settings(self: Arc<Self>, other: &SourceSettings) -> io::Result<Arc<Self>> {
        let is_same = *other == SourceSettings::default() || *other == self.settings;
        if is_same { Ok(self) } else { Self::new(other) }
    }
}
