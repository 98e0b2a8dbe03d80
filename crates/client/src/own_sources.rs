//! Sources of servers (docs/discovery.md) as one client asks them: with its files, and with the
//! servers that they named last.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use discovery::{AccessFiles, Discovery};

/// How sources are asked, and where it is kept what they named.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct SourceSettings {
    pub(crate) dir: Option<PathBuf>,
    pub(crate) access: AccessFiles,
}

/// Sources of servers, asked with these settings.
#[derive(Debug, Default)]
pub(crate) struct OwnSources {
    settings: SourceSettings,
    pub(crate) discovery: Discovery,
}

impl OwnSources {
    /// # Errors
    ///
    /// The file that cannot be used, and the reason.
    pub(crate) fn new(settings: &SourceSettings) -> io::Result<Arc<Self>> {
        let discovery = Discovery::new(settings.dir.clone()).with_access(&settings.access)?;
        Ok(Arc::new(Self { settings: settings.clone(), discovery }))
    }

    /// The same for another configuration, whose settings go before these if it has any: what was
    /// found is not forgotten.
    ///
    /// # Errors
    ///
    /// As of [`Self::new`].
    pub(crate) fn with_settings(self: Arc<Self>, other: &SourceSettings) -> io::Result<Arc<Self>> {
        let is_same = *other == SourceSettings::default() || *other == self.settings;
        if is_same { Ok(self) } else { Self::new(other) }
    }
}
