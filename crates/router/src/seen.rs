//! The state of files before they were read.

use std::collections::BTreeMap;
use std::io;

use files::Stamp;
use routeconf::{FileSources, Sources};

/// The state of files before they were read, so that changes during the reading count.
pub(crate) type Seen = BTreeMap<String, Option<Stamp>>;

/// The current state of these files.
pub(crate) fn look_at<'f>(files: impl IntoIterator<Item = &'f String>) -> Seen {
    files.into_iter().map(|file| (file.clone(), Stamp::of(file.as_ref()))).collect()
}

/// Records the state of each file before it is read, even of a broken or missing one: once that is
/// fixed, the configuration may be usable.
pub(crate) struct StampingSources<'a> {
    pub(crate) files: FileSources,
    pub(crate) seen: &'a mut Seen,
}

impl Sources for StampingSources<'_> {
    fn read(&mut self, name: &str) -> io::Result<(String, String)> {
        let path = self.files.path(name);
        self.seen.entry(path.display().to_string()).or_insert_with(|| Stamp::of(&path));
        self.files.read(name)
    }
}
