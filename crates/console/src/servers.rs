//! Draining and adding servers: changes the pools in the proxy's configuration, which its proxies
//! apply like every change of the file (decision 125).
//!
//! The text is edited, parsed as a configuration, and compared with the one before. A change with
//! any other effect than requested is refused, and the file stays unchanged.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use files::NewFile;
use routeconf::ast::{Command, Config, Listener, Member, Pool};
use routeconf::walk::{Question, Walker};
use routeconf::{FileSources, Loaded, Params, load};
use serde_json::{Value, json};

use crate::edit;
use crate::routes::Source;

/// Keys tried to estimate the share that moves: its error is a percentage point.
const KEYS_TRIED: u32 = 10_000;

/// The requested change.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum ChangeRequest {
    /// The server leaves every pool.
    Drain {
        /// The name in the configuration.
        server: String,
    },
    /// The server becomes the last of a pool.
    Add {
        /// `HOST:PORT`.
        server: String,
        /// The pool's name.
        pool: String,
    },
}

/// A change tried on the text, and not written yet.
#[derive(Debug)]
pub(crate) struct Change {
    file: PathBuf,
    before: String,
    after: String,
    old: Config,
    new: Config,
    /// The changed pools, each with its number of servers before and after.
    pools: Vec<(String, usize, usize)>,
}

impl ChangeRequest {
    /// The wish in an action's path and body.
    pub(crate) fn of(action: &str, server: &str, pool: &str) -> Option<Self> {
        let server = server.to_owned();
        match action {
            "drain" => Some(Self::Drain { server }),
            "add" => Some(Self::Add { server, pool: pool.to_owned() }),
            _ => None,
        }
    }

    /// The text for the line on stderr.
    pub(crate) fn description(&self) -> String {
        match self {
            Self::Drain { server } => format!("drains the server {server}"),
            Self::Add { server, pool } => format!("adds the server {server} to the pool {pool}"),
        }
    }

    fn server(&self) -> &str {
        let (Self::Drain { server } | Self::Add { server, .. }) = self;
        server
    }

    fn edited(&self, text: &str) -> Option<String> {
        match self {
            Self::Drain { server } => Some(edit::without(text, server)),
            Self::Add { server, pool } => edit::with(text, pool, server),
        }
    }

    /// The servers that a pool must have after the change.
    fn servers_after(&self, pool: &Pool) -> Vec<String> {
        let mut servers = names(pool);
        match self {
            Self::Drain { server } => servers.retain(|other| other != server),
            Self::Add { server, pool: name } if *name == pool.name => servers.push(server.clone()),
            Self::Add { .. } => {}
        }
        servers
    }
}

impl Change {
    /// Tries the change.
    ///
    /// # Errors
    ///
    /// Returns the reason why it cannot be made here.
    pub(crate) fn of(wish: &ChangeRequest, source: &Source) -> Result<Self, String> {
        let server = wish.server();
        let is_address = |byte: u8| byte.is_ascii_alphanumeric() || b".:-_[]".contains(&byte);
        if !server.bytes().all(is_address) || !server.contains(':') || server.len() > 255 {
            return Err("a server is named HOST:PORT".to_owned());
        }
        // Resolves links, so that a link remains.
        let failed = |error: io::Error| format!("{}: {error}", source.file.display());
        let file = source.file.canonicalize().map_err(failed)?;
        let before = FileSources::read_path(&file).map_err(failed)?;
        let old = read(&file, &before, source)?;
        let pools: Vec<&Pool> = old.config.pools.iter().collect();
        let changing: Vec<&Pool> =
            pools.iter().copied().filter(|pool| wish.servers_after(pool) != names(pool)).collect();
        match wish {
            ChangeRequest::Drain { .. } if changing.is_empty() => {
                return Err(format!("no pool of the configuration has the server {server}"));
            }
            ChangeRequest::Add { pool, .. } if changing.is_empty() => {
                return Err(format!("the configuration has no pool '{pool}'"));
            }
            _ => {}
        }
        for pool in &changing {
            refuse(wish, pool)?;
        }
        let elsewhere = || {
            "its servers do not stand in this file as a list: a source, an import or a macro has \
             them"
                .to_owned()
        };
        let after = wish.edited(&before).ok_or_else(elsewhere)?;
        let new = read(&file, &after, source)?;
        let is_wished = pools.len() == new.config.pools.len()
            && pools
                .iter()
                .zip(&new.config.pools)
                .all(|(old, new)| old.name == new.name && wish.servers_after(old) == names(new));
        if !is_wished {
            return Err(elsewhere());
        }
        let count =
            |pool: &&Pool| (pool.name.clone(), pool.members.len(), wish.servers_after(pool).len());
        let pools = changing.iter().map(count).collect();
        Ok(Self { file, before, after, old: old.config, new: new.config, pools })
    }

    /// The effect of the change, for people: pools, and the share of keys that move.
    pub(crate) fn shown(&self) -> Value {
        let pool = |(name, before, after): &(String, usize, usize)| json!({"name": name, "servers_before": before, "servers_after": after});
        json!({
            "file": self.file,
            "pools": self.pools.iter().map(pool).collect::<Vec<_>>(),
            "moved_ratio": self.moved_ratio(),
        })
    }

    /// Writes the change, and the former text into `FILE.before`.
    ///
    /// # Errors
    ///
    /// When a file cannot be written, or changed in the meantime.
    pub(crate) fn write(&self) -> Result<(), String> {
        let failed = |error: io::Error| format!("{}: {error}", self.file.display());
        let now = FileSources::read_path(&self.file).map_err(failed)?;
        if now != self.before {
            return Err("the file has changed meanwhile: look again".to_owned());
        }
        // It contains the same data as the file, so the same users may read it.
        let before = NewFile::create_like(&kept(&self.file), &self.file);
        write(before, &self.before).map_err(failed)?;
        write(NewFile::create(&self.file, &[]), &self.after).map_err(failed)
    }

    /// The share of keys without a routing prefix that move to another server.
    fn moved_ratio(&self) -> f64 {
        let now_secs = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |age| age.as_secs());
        let host_id = routeconf::host_id();
        let (old, new) = (Walker::new(&self.old), Walker::new(&self.new));
        let pairs = || self.old.listeners.iter().zip(&self.new.listeners);
        let moves = |place: u32| {
            let key = format!("key:{place}");
            let key = key.as_bytes();
            let operation = Command::Get;
            let question = Question { operation, key, host_id, client: None, now_secs };
            let of = |walker: &Walker<'_>, listener: &Listener| {
                walker.server(listener, &question).map(|server| walker.member_name(server))
            };
            pairs().any(|(before, after)| of(&old, before) != of(&new, after))
        };
        let moved = (0..KEYS_TRIED).filter(|place| moves(*place)).count();
        u32::try_from(moved).map_or(1.0, |moved| f64::from(moved) / f64::from(KEYS_TRIED))
    }
}

/// Refuses wishes that an edit of only the list of servers cannot fulfil.
fn refuse(wish: &ChangeRequest, pool: &Pool) -> Result<(), String> {
    let name = &pool.name;
    if pool.weights.is_some() || pool.tags.is_some() {
        return Err(format!("pool {name} has a second list with a place for each server"));
    }
    let servers = wish.servers_after(pool);
    if servers.is_empty() {
        return Err(format!("it is the last server of pool {name}"));
    }
    if matches!(wish, ChangeRequest::Add { server, .. } if names(pool).contains(server)) {
        return Err(format!("pool {name} has the server already"));
    }
    Ok(())
}

fn read(file: &Path, text: &str, source: &Source) -> Result<Loaded, String> {
    let params = source.route_prefix.as_deref().map_or_else(Params::default, Params::new);
    let name = file.display().to_string();
    load(&name, text, &params, &mut FileSources::beside(file)).map_err(|error| error.render())
}

/// The servers of a pool; a route in place of a server has no name here and never leaves.
fn names(pool: &Pool) -> Vec<String> {
    let name = |member: &Member| match member {
        Member::Server(server) => server.address.to_string(),
        Member::Route(_) => String::new(),
    };
    pool.members.iter().map(name).collect()
}

/// `FILE.before`.
fn kept(file: &Path) -> PathBuf {
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(".before");
    file.with_file_name(name)
}

/// Writes a file as a whole: a reader sees the old or the new one.
fn write(new: io::Result<NewFile>, text: &str) -> io::Result<()> {
    let mut new = new?;
    new.write_all(text.as_bytes())?;
    new.finish()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};

    use super::*;

    const TEXT: &str = r#"{"pools":{
        // the old ones
        "A":{"servers":["10.0.0.1:7","10.0.0.2:7","10.0.0.3:7"]},
        "B":{"servers":["10.0.0.1:7","10.0.0.9:7"]},
        "one":{"servers":["10.0.0.8:7"]},
        "weighed":{"servers":["10.0.0.4:7","10.0.0.5:7"],"weights":[1,2]}},
        "route":"PoolRoute|A"}"#;

    fn source(text: &str) -> (tempfile::TempDir, Source) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("mcrouter.json");
        fs::write(&file, text).unwrap();
        (folder, Source { file, route_prefix: None })
    }

    fn wish(action: &str, server: &str, pool: &str) -> ChangeRequest {
        ChangeRequest::of(action, server, pool).unwrap()
    }

    #[test]
    fn a_server_that_is_drained_leaves_every_pool() {
        let (folder, source) = source(TEXT);
        let change = Change::of(&wish("drain", "10.0.0.1:7", ""), &source).unwrap();
        let shown = change.shown();
        let pools = json!([
            {"name": "A", "servers_before": 3, "servers_after": 2},
            {"name": "B", "servers_before": 2, "servers_after": 1},
        ]);
        assert_eq!(shown["pools"], pools);
        let moved = shown["moved_ratio"].as_f64().unwrap();
        assert!((0.3..1.0).contains(&moved), "{moved}");
        assert_eq!(fs::read_to_string(&source.file).unwrap(), TEXT, "nothing is written yet");
        change.write().unwrap();
        let now = fs::read_to_string(&source.file).unwrap();
        assert_eq!(now, TEXT.replace("\"10.0.0.1:7\",", ""));
        let before = folder.path().join("mcrouter.json.before");
        assert_eq!(fs::read_to_string(before).unwrap(), TEXT);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "nothing else is left");
    }

    /// A proxy that runs as another user reads the file by its group.
    #[test]
    fn changed_files_and_their_backups_keep_owner_and_mode() {
        let (_folder, source) = source(TEXT);
        let of = |path: &Path| {
            let data = fs::metadata(path).unwrap();
            (data.uid(), data.gid(), data.mode() & 0o7777)
        };
        if of(&source.file).0 == 0 {
            chown(&source.file, Some(65534), Some(65534)).unwrap();
        }
        fs::set_permissions(&source.file, fs::Permissions::from_mode(0o640)).unwrap();
        let old = of(&source.file);
        for server in ["10.0.0.1:7", "10.0.0.2:7"] {
            let change = Change::of(&wish("drain", server, ""), &source).unwrap();
            change.write().unwrap();
            assert_eq!((of(&source.file), of(&kept(&source.file))), (old, old));
        }
    }

    #[test]
    fn a_server_that_is_added_is_the_last_of_its_pool() {
        let (_folder, source) = source(TEXT);
        let change = Change::of(&wish("add", "10.0.0.4:7", "A"), &source).unwrap();
        assert_eq!(change.shown()["pools"][0]["servers_after"], 4);
        change.write().unwrap();
        let now = fs::read_to_string(&source.file).unwrap();
        assert_eq!(now, TEXT.replace("\"10.0.0.3:7\"", "\"10.0.0.3:7\",\"10.0.0.4:7\""));
    }

    #[test]
    fn a_change_without_the_expected_effect_is_refused() {
        let (_folder, source) = source(TEXT);
        let of = |action: &str, server: &str, pool: &str| {
            Change::of(&wish(action, server, pool), &source).unwrap_err()
        };
        assert!(of("drain", "10.0.0.7:7", "").contains("no pool of the configuration"));
        assert!(of("drain", "10.0.0.8:7", "").contains("the last server of pool one"));
        assert!(of("drain", "10.0.0.4:7", "").contains("a second list"));
        assert!(of("add", "10.0.0.1:7", "A").contains("already"));
        assert!(of("add", "10.0.0.1:7", "C").contains("no pool 'C'"));
        for odd in ["10.0.0.1", "a b:1", "\"],:1", "10.0.0.1:7\n", ""] {
            assert!(of("add", odd, "A").contains("HOST:PORT"), "{odd:?}");
        }
        // It is not a port, so the result is not a configuration.
        assert!(!of("add", "10.0.0.6:99999", "A").is_empty());
        assert!(of("add", "10.0.0.6:7:ascii:plain", "A").contains("list"));
        assert_eq!(fs::read_to_string(&source.file).unwrap(), TEXT);
    }

    #[test]
    fn servers_from_macros_and_sources_are_not_changed() {
        let text = r#"{"pools":{"A":{"inherit":"file:%","servers":["10.0.0.1:7","10.0.0.2:7"]},
            "@p":"@"},"route":"PoolRoute|A"}"#;
        let (_folder, broken) = source(text);
        assert!(Change::of(&wish("drain", "10.0.0.1:7", ""), &broken).is_err());
        let text = r#"{"macros":{"all":{"type":"macroDef","result":["10.0.0.1:7","10.0.0.2:7"]}},
            "pools":{"A":{"servers":"@all"}},"route":"PoolRoute|A"}"#;
        let (_folder, by_macro) = source(text);
        let why = Change::of(&wish("drain", "10.0.0.1:7", ""), &by_macro).unwrap_err();
        assert!(why.contains("a source, an import or a macro"), "{why}");
        let why = Change::of(&wish("add", "10.0.0.3:7", "A"), &by_macro).unwrap_err();
        assert!(why.contains("a source, an import or a macro"), "{why}");
    }

    #[test]
    fn a_concurrently_changed_file_is_not_overwritten() {
        let (_folder, source) = source(TEXT);
        let change = Change::of(&wish("drain", "10.0.0.1:7", ""), &source).unwrap();
        fs::write(&source.file, "{}").unwrap();
        assert!(change.write().unwrap_err().contains("meanwhile"));
        assert_eq!(fs::read_to_string(&source.file).unwrap(), "{}");
    }
}
