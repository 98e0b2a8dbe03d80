//! Files as they were before they were read.

use std::collections::BTreeMap;
use std::io;

use files::Stamp;
use routeconf::{FileSources, Sources};

/// Files as they were before they were read: what changes while they are read is a change.
pub(crate) type Seen = BTreeMap<String, Option<Stamp>>;

/// These files as they are now.
pub(crate) fn look_at<'f>(files: impl IntoIterator<Item = &'f String>) -> Seen {
    files.into_iter().map(|file| (file.clone(), Stamp::of(file.as_ref()))).collect()
}

/// Looks at each file before it is read. A file that is broken or missing is seen, too: when that
/// is mended, the configuration may be one that can be used.
pub(crate) struct Looking<'a> {
    pub(crate) files: FileSources,
    pub(crate) seen: &'a mut Seen,
}

impl Sources for Looking<'_> {
    fn read(&mut self, name: &str) -> io::Result<(String, String)> {
        let path = self.files.path(name);
        self.seen.entry(path.display().to_string()).or_insert_with(|| Stamp::of(&path));
        self.files.read(name)
    }
}
