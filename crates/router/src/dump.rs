//! `--config-dump-root`: the last good configuration on disk, for a start at which the
//! configuration cannot be read.
//!
//! Each proxy has one file. It is written whole when a configuration is loaded, and touched while
//! that one is in use. Its age is the time since it was last known to be good.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{self, Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use routeconf::Sources;
use serde_json::{Value, json};
use thiserror::Error;

use crate::options::{Options, Source};
use files::{Readers, make_folder, put};

/// The interval at which a dump in use is touched.
pub(crate) const TOUCH_PERIOD: Duration = Duration::from_secs(60);

/// A file that a configuration imports: its text, and its name for display.
pub(crate) type Import = (String, String);

/// All texts of a configuration.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Snapshot {
    pub(crate) main: Arc<str>,
    /// By the name in the configuration.
    pub(crate) imports: BTreeMap<String, Import>,
}

impl Sources for Snapshot {
    fn read(&mut self, name: &str) -> io::Result<(String, String)> {
        let found = self.imports.get(name).cloned();
        found.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "it is not in the dump"))
    }
}

/// The path of the dump, and its maximum age.
#[derive(Debug)]
pub(crate) struct Dump {
    pub(crate) path: PathBuf,
    age_max: Duration,
}

/// The reason why a dump cannot be written or used.
#[derive(Debug, Error)]
#[error("{}: {fault}", path.display())]
pub(crate) struct DumpError {
    path: PathBuf,
    fault: DumpFault,
}

#[derive(Debug, Error)]
enum DumpFault {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("it is no dump")]
    NoDump,
    #[error(transparent)]
    NoJson(#[from] serde_json::Error),
    #[error("it is {age_secs} s old, and may be {max_secs}")]
    TooOld { age_secs: u64, max_secs: u64 },
}

impl Dump {
    /// According to the options; `None` if they name none.
    pub(crate) fn of(options: &Options) -> Option<Self> {
        let folder =
            options.config_dump_root.as_ref().filter(|folder| !folder.as_os_str().is_empty());
        let path = folder?.join(format!("holdall-{}.json", name(options)));
        Some(Self { path, age_max: Duration::from_secs(options.max_dumped_config_age) })
    }

    /// Replaces the existing dump. Readers see the old or the new one.
    ///
    /// # Errors
    ///
    /// The system's error.
    pub(crate) fn save(&self, snapshot: &Snapshot) -> Result<(), DumpError> {
        let imports = snapshot.imports.iter();
        let imports: serde_json::Map<String, Value> = imports
            .map(|(name, (text, shown))| (name.clone(), json!({"text": text, "name": shown})))
            .collect();
        let text = json!({"config": &*snapshot.main, "imports": imports}).to_string();
        let folder = self.path.parent().unwrap_or_else(|| Path::new("."));
        let written =
            make_folder(folder, Readers::Own).and_then(|()| put(&self.path, &text, Readers::Own));
        written.map_err(|error| self.wrong(error.into()))
    }

    /// Records that it is still in use.
    pub(crate) fn touch(&self) {
        // On an error, the dump keeps its last recorded time of use.
        let file = File::options().write(true).open(&self.path);
        let _ = file.and_then(|file| file.set_modified(SystemTime::now()));
    }

    /// The saved configuration and its age.
    ///
    /// # Errors
    ///
    /// The reason why it cannot be used.
    pub(crate) fn last(&self) -> Result<(Snapshot, Duration), DumpError> {
        self.read().map_err(|fault| self.wrong(fault))
    }

    fn read(&self) -> Result<(Snapshot, Duration), DumpFault> {
        let data = fs::metadata(&self.path)?;
        // Opening a FIFO would wait for its writer.
        if !data.is_file() {
            return Err(DumpFault::NoDump);
        }
        let age = data.modified()?.elapsed().unwrap_or_default();
        if age >= self.age_max {
            let (age_secs, max_secs) = (age.as_secs(), self.age_max.as_secs());
            return Err(DumpFault::TooOld { age_secs, max_secs });
        }
        let value = serde_json::from_str(&fs::read_to_string(&self.path)?)?;
        let snapshot = understood(&value).ok_or(DumpFault::NoDump)?;
        Ok((snapshot, age))
    }

    fn wrong(&self, fault: DumpFault) -> DumpError {
        DumpError { path: self.path.clone(), fault }
    }
}

/// Distinguishes the proxies of a host: the port, or if the configuration file may name the
/// address, which is not read yet, a number for its path.
fn name(options: &Options) -> String {
    match options.source() {
        Some(Source::File(path)) if options.names_no_address() => {
            let path = path::absolute(&path).unwrap_or(path);
            format!("{:016x}", hashing::spooky_hash64(path.as_os_str().as_bytes(), 0))
        }
        _ => options.first_port().to_string(),
    }
}

fn understood(value: &Value) -> Option<Snapshot> {
    let imports = value.get("imports")?.as_object()?.iter().map(|(name, import)| {
        let text = |what| Some(import.get(what)?.as_str()?.to_owned());
        Some((name.clone(), (text("text")?, text("name")?)))
    });
    let imports = imports.collect::<Option<_>>()?;
    Some(Snapshot { main: value.get("config")?.as_str()?.into(), imports })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// A user with the right to write to the folder cannot make the proxy write elsewhere.
    #[test]
    fn a_dump_follows_no_symlink() {
        let folder = std::env::temp_dir().join(format!("router-link-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("precious"), "untouched").unwrap();
        let dump = Dump { path: folder.join("d.json"), age_max: Duration::MAX };
        for name in ["d.temp", "d.json"] {
            std::os::unix::fs::symlink(folder.join("precious"), folder.join(name)).unwrap();
        }
        dump.save(&Snapshot { main: "{}".into(), imports: BTreeMap::new() }).unwrap();
        assert_eq!(fs::read_to_string(folder.join("precious")).unwrap(), "untouched");
        assert!(dump.path.symlink_metadata().unwrap().is_file());
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn only_a_valid_recent_dump_is_restored() {
        let folder = std::env::temp_dir().join(format!("router-dump-{}", std::process::id()));
        let dump = |secs| Dump {
            path: folder.join("a/holdall-1.json"),
            age_max: Duration::from_secs(secs),
        };
        assert!(dump(9000).last().is_err());
        let import = ("{}".to_owned(), "/etc/pool.json".to_owned());
        let imports = [("file:pool.json".to_owned(), import)].into();
        let snapshot = Snapshot { main: "{\"a\": \"\u{e9}\\n\"}".into(), imports };
        dump(9000).save(&snapshot).unwrap();
        dump(9000).touch();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(
            [mode(&folder), mode(&folder.join("a")), mode(&dump(0).path)],
            [0o700, 0o700, 0o600]
        );
        assert_eq!(dump(9000).last().unwrap().0, snapshot);
        // mcrouter's 0: it is never used.
        assert!(dump(0).last().unwrap_err().to_string().contains("s old"));
        for wrong in ["", "{}", "[]", r#"{"config": 1, "imports": {}}"#, "{\"config\": \"x\""] {
            fs::write(&dump(0).path, wrong).unwrap();
            assert!(dump(9000).last().is_err(), "{wrong}");
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
