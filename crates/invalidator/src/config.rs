//! The configuration file: one source, the rules, the clusters.

mod canary;
mod fault;
mod left_over;
mod line_source;
mod routers;
mod source;
mod standby;
mod successor;

pub use fault::{ConfigError, Fault};
pub use source::{Kind, Source};

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use changes::key_file::KeyFiles;
use changes::keys::{Outbox, Rules, is_plain};
use changes::template::Template;
use serde::Deserialize;
use toml::de::{DeTable, DeValue};

use bytes::Bytes;

use crate::deliver::Limits;
use crate::delivery::{Flush, OnGap};
use crate::disk_queue::SpoolFolder;
use crate::network::Routers;
use crate::plan::{Cluster, Plan};
use crate::source::{lines, mysql, postgres};
use crate::standby::Group;
use canary::Canary;
use fault::NUMBER_MAX;
use standby::Standby;

/// The size of the largest file that is read.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// A file as written.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The file that remembers how far deletes were delivered.
    pub checkpoint: PathBuf,
    /// The folder for queued deletes of unavailable clusters; by default next to the checkpoint.
    #[serde(default)]
    spool: Option<PathBuf>,
    /// `address:port` of the status port; none without it.
    #[serde(default)]
    pub status: Option<String>,
    /// The OpenTelemetry collector that receives metrics, in addition to the environment's.
    #[serde(default)]
    pub otlp: Option<String>,
    /// The format of the log's lines: text or json.
    #[serde(default, deserialize_with = "parsed")]
    pub log_format: logging::Format,
    /// The events that are logged, such as `warn`.
    #[serde(default, deserialize_with = "parsed")]
    pub log_filter: logging::Filter,
    /// The database.
    pub source: Source,
    /// The rules that make keys.
    #[serde(default)]
    keys: Keys,
    /// The clusters to delete from.
    #[serde(rename = "cluster")]
    clusters: Vec<ClusterTable>,
    /// TLS and the login towards routers.
    #[serde(default)]
    routers: Option<routers::Routers>,
    /// Limits and waits.
    #[serde(default)]
    delivery: Delivery,
    /// The settings for re-reading deleted keys.
    #[serde(default)]
    monitor: Monitor,
    /// The canary's settings.
    #[serde(default)]
    canary: Option<Canary>,
    /// The group of invalidators that take turns.
    #[serde(default)]
    standby: Option<Standby>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    #[serde(default)]
    comments: bool,
    #[serde(default)]
    messages: Option<String>,
    #[serde(default)]
    outbox: Option<OutboxTable>,
    #[serde(default)]
    tables: BTreeMap<String, Templates>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct OutboxTable {
    table: String,
    column: String,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(untagged, expecting = "it must be a template or a list of templates")]
enum Templates {
    One(String),
    Several(Vec<String>),
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct ClusterTable {
    name: String,
    routers: Vec<String>,
    #[serde(default)]
    compression: Compression,
}

/// How batches are sent to a cluster's routers.
#[derive(Debug, Clone, Copy, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Compression {
    #[default]
    None,
    Zstd,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Delivery {
    batch_keys: usize,
    batch_bytes: usize,
    batch_wait_us: u64,
    /// Applies to all deletes; if it is absent, deletes not seen to be visible are repeated.
    repeat_after_ms: Option<u64>,
    answer_within_ms: u64,
    window_keys: usize,
    checkpoint_every_ms: u64,
    transaction_bytes_max: usize,
    away_after_ms: u64,
    spool_bytes_max: u64,
    on_gap: Gap,
    prefixes: Vec<String>,
}

/// The delay in milliseconds after which a delete not known to be visible is repeated.
const REPEAT_UNSEEN_AFTER_MS: u64 = 100;

/// The response to a gap in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Gap {
    /// End with the reason.
    Stop,
    /// Empty every cluster and go on.
    Flush,
    /// Empty every cluster of keys that begin as the templates do, or with one of
    /// `delivery.prefixes`, and go on.
    Prefixes,
}

impl Default for Delivery {
    fn default() -> Self {
        Self {
            batch_keys: 1000,
            batch_bytes: 1 << 16,
            batch_wait_us: 3000,
            repeat_after_ms: None,
            answer_within_ms: 1000,
            window_keys: 500_000,
            checkpoint_every_ms: 200,
            transaction_bytes_max: 32 << 20,
            away_after_ms: 1000,
            spool_bytes_max: 1 << 30,
            on_gap: Gap::Stop,
            prefixes: Vec::new(),
        }
    }
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Monitor {
    #[serde(default)]
    one_in: u32,
}

/// Reads a value from its text.
fn parsed<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: FromStr<Err: std::fmt::Display>,
{
    String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
}

/// The log format that a file requests, as far as it can be read. A reader of JSON lines should
/// also get the file's faults as JSON.
pub(crate) fn log_format(path: &Path) -> logging::Format {
    let Ok(text) = files::read_text(path, FILE_BYTES_MAX) else {
        return logging::Format::default();
    };
    let (table, _) = DeTable::parse_recoverable(&text);
    let mut entries = table.get_ref().iter();
    let named = entries.find_map(|(key, value)| match value.get_ref() {
        DeValue::String(format) if key.get_ref() == "log_format" => format.parse().ok(),
        _ => None,
    });
    named.unwrap_or_default()
}

impl Config {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// When it cannot be read or is wrong; the error has line and column.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = files::read_text(path, FILE_BYTES_MAX)
            .map_err(|error| ConfigError::new(path, error))?;
        Self::parse(path, &text)
    }

    /// Reads `text`, which errors call `path`.
    ///
    /// # Errors
    ///
    /// When it is wrong; the error has line and column.
    pub fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        let config: Self =
            toml::from_str(text).map_err(|error| ConfigError::within(path, text, error))?;
        config.values().map_err(|why| ConfigError::within(path, text, why))?;
        Ok(config)
    }

    fn values(&self) -> Result<(), Fault> {
        let rules = self.rules()?;
        // Lines may name keys themselves.
        let names_keys = self.source.kind == Kind::Ndjson;
        if !rules.comments && rules.messages.is_none() && !rules.need_rows() && !names_keys {
            return Err(Fault::NoKeys);
        }
        if self.clusters.is_empty() {
            return Err(Fault::NoCluster);
        }
        for (at, cluster) in self.clusters.iter().enumerate() {
            if cluster.routers.is_empty() {
                return Err(Fault::NoRouters(cluster.name.clone()));
            }
            let is_in_names =
                |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
            if cluster.name.is_empty() || !cluster.name.chars().all(is_in_names) {
                return Err(Fault::ClusterName(cluster.name.clone()));
            }
            if self.clusters[..at].iter().any(|other| other.name == cluster.name) {
                return Err(Fault::ClusterTwice(cluster.name.clone()));
            }
        }
        if !self.source.is_lines() && self.source.servers.is_empty() {
            return Err(Fault::NoServers);
        }
        if self.source.is_lines() && (self.canary.is_some() || self.standby.is_some()) {
            return Err(Fault::NoDatabase);
        }
        self.source.values(&rules)?;
        self.routers.as_ref().map_or(Ok(()), routers::Routers::values)?;
        if let Some(canary) = &self.canary {
            canary.values(&self.source, &rules)?;
        }
        if let Some(standby) = &self.standby {
            standby.values()?;
            if !self.group().is_some_and(|group| group.peers.is_empty()) && self.status.is_none() {
                return Err(Fault::PeersWithoutStatus);
            }
        }
        let delivery = &self.delivery;
        self.on_gap(delivery.on_gap)?;
        for (name, value) in [
            ("batch_keys", delivery.batch_keys),
            ("batch_bytes", delivery.batch_bytes),
            ("window_keys", delivery.window_keys),
            ("transaction_bytes_max", delivery.transaction_bytes_max),
        ] {
            if !(1..=NUMBER_MAX as usize).contains(&value) {
                return Err(Fault::Number(name));
            }
        }
        let (spool, transaction) =
            (delivery.spool_bytes_max, delivery.transaction_bytes_max as u64);
        if (1..transaction).contains(&spool) {
            return Err(Fault::SmallSpool(transaction));
        }
        Ok(())
    }

    fn rules(&self) -> Result<Rules, Fault> {
        let mut tables = BTreeMap::new();
        for (table, templates) in &self.keys.tables {
            if !table.contains('.') {
                return Err(Fault::TableName("keys.tables", table.clone()));
            }
            let templates = match templates {
                Templates::One(one) => std::slice::from_ref(one),
                Templates::Several(several) => several,
            };
            let parsed = templates.iter().map(|text| Template::parse(text));
            tables.insert(table.clone(), parsed.collect::<Result<Vec<_>, _>>()?);
        }
        let outbox = self.keys.outbox.as_ref();
        let outbox = outbox
            .map(|outbox| Outbox { table: outbox.table.clone(), column: outbox.column.clone() });
        Ok(Rules {
            comments: self.keys.comments,
            messages: self.keys.messages.clone(),
            outbox,
            tables,
            canary: self.canary.as_ref().map(|canary| canary.rule(&self.source)),
        })
    }

    /// Sets the response to gaps, overriding the file.
    ///
    /// # Errors
    ///
    /// When the prefixes of the keys are unknown.
    pub fn override_gap(&mut self, gap: Gap) -> Result<(), Fault> {
        self.delivery.on_gap = gap;
        self.on_gap(gap).map(drop)
    }

    /// The reason.
    fn on_gap(&self, gap: Gap) -> Result<OnGap, Fault> {
        Ok(match gap {
            Gap::Stop => OnGap::Stop,
            Gap::Flush => OnGap::Flush(Flush::All),
            Gap::Prefixes => OnGap::Flush(Flush::Prefixes(self.prefixes()?)),
        })
    }

    /// The prefixes of all keys: the declared ones, or else those of the templates.
    fn prefixes(&self) -> Result<Vec<Bytes>, Fault> {
        let declared = &self.delivery.prefixes;
        for prefix in declared {
            if !(1..=250).contains(&prefix.len()) || !is_plain(prefix.as_bytes()) {
                return Err(Fault::Prefix(prefix.clone()));
            }
        }
        let rules = self.rules()?;
        let is_named = rules.comments
            || rules.messages.is_some()
            || rules.outbox.is_some()
            || self.source.kind == Kind::Ndjson;
        if is_named && declared.is_empty() {
            return Err(Fault::NoPrefixes);
        }
        let mut prefixes: Vec<Bytes> =
            declared.iter().map(|prefix| Bytes::copy_from_slice(prefix.as_bytes())).collect();
        for template in rules.tables.values().flatten() {
            let prefix = template.prefix();
            if prefixes.iter().any(|other| prefix.as_bytes().starts_with(other)) {
                continue;
            }
            if prefix.is_empty() || !is_plain(prefix.as_bytes()) {
                return Err(Fault::TemplatePrefix(template.to_string()));
            }
            prefixes.retain(|other| !other.starts_with(prefix.as_bytes()));
            prefixes.push(Bytes::copy_from_slice(prefix.as_bytes()));
        }
        Ok(prefixes)
    }

    fn spool_folder(&self) -> PathBuf {
        self.spool.clone().unwrap_or_else(|| self.usual_spool_folder())
    }

    fn usual_spool_folder(&self) -> PathBuf {
        let mut beside = self.checkpoint.clone().into_os_string();
        beside.push(".spool");
        beside.into()
    }

    /// The place for keys that memory does not hold; none where `spool_bytes_max` is 0.
    #[must_use]
    pub fn key_files(&self) -> KeyFiles {
        KeyFiles::new((self.delivery.spool_bytes_max > 0).then(|| self.spool_folder()))
    }

    /// The clusters among `spooled`, which had deletes on the disk, whose files were removed.
    pub(crate) fn removed_spools(&self, mut spooled: Vec<String>) -> Vec<String> {
        spooled.retain(|name| SpoolFolder::is_removed(&self.spool_folder(), name));
        spooled
    }

    /// The clusters' places on the disk, and the faults found there; none where `spool_bytes_max`
    /// is 0. Files of the clusters `lost` were removed, with deletes in them.
    ///
    /// # Errors
    ///
    /// When a folder cannot be used.
    pub fn disk_queues(
        &self,
        lost: &[String],
    ) -> Result<(Vec<Option<SpoolFolder>>, Vec<String>), Fault> {
        let folder = self.spool_folder();
        let (mut disk_queues, mut damage) = (Vec::new(), Vec::new());
        for cluster in &self.clusters {
            if self.delivery.spool_bytes_max == 0 {
                disk_queues.push(None);
                continue;
            }
            let fault = |error| Fault::Spool {
                folder: folder.clone(),
                cluster: cluster.name.clone(),
                error,
            };
            let bytes_max = self.delivery.spool_bytes_max;
            let opened = SpoolFolder::open_unprepared(&folder, &cluster.name, bytes_max);
            let (disk_queue, found) = opened.map_err(fault)?;
            if lost.contains(&cluster.name) {
                disk_queue.note_loss().map_err(fault)?;
                damage.push(format!("{}: files of its spool were removed", cluster.name));
            }
            disk_queue.prepare();
            disk_queues.push(Some(disk_queue));
            damage.extend(found);
        }
        Ok((disk_queues, damage))
    }

    /// The declared pipeline.
    ///
    /// # Errors
    ///
    /// When a template cannot be read, or the prefixes of the keys are unknown.
    pub fn plan(&self) -> Result<Plan, Fault> {
        let ms = Duration::from_millis;
        let delivery = &self.delivery;
        let cluster = |table: &ClusterTable| Cluster {
            name: table.name.clone(),
            routers: table.routers.clone(),
            is_compressed: table.compression == Compression::Zstd,
        };
        Ok(Plan {
            name: self.source.name.clone(),
            rules: self.rules()?,
            clusters: self.clusters.iter().map(cluster).collect(),
            limits: Limits {
                batch_keys: delivery.batch_keys,
                batch_bytes: delivery.batch_bytes,
                batch_wait: Duration::from_micros(delivery.batch_wait_us),
                repeat_after: ms(delivery.repeat_after_ms.unwrap_or(REPEAT_UNSEEN_AFTER_MS)),
                repeats_seen: delivery.repeat_after_ms.is_some(),
                answer_within: ms(delivery.answer_within_ms),
                retry_first: ms(50),
                retry_max: ms(2000),
                window_keys: delivery.window_keys,
                away_after: ms(delivery.away_after_ms),
            },
            on_gap: self.on_gap(delivery.on_gap)?,
            is_shared: self.standby.is_some(),
            monitor_one_in: self.monitor.one_in,
            transaction_bytes_max: delivery.transaction_bytes_max,
            checkpoint_every: ms(delivery.checkpoint_every_ms),
        })
    }

    /// The group of invalidators that take turns; none without one.
    #[must_use]
    pub fn group(&self) -> Option<Group> {
        self.standby.as_ref().map(Standby::group)
    }

    /// The interval of the canary, and the servers to write it to; none without one.
    #[must_use]
    pub fn canary(&self) -> Option<(Duration, Vec<String>)> {
        let canary = self.canary.as_ref()?;
        Some((canary.every(), canary.servers(&self.source)))
    }

    /// The database, with its password.
    ///
    /// # Errors
    ///
    /// When the password's file cannot be read.
    pub fn mysql(&self) -> Result<mysql::Settings, ConfigError> {
        self.source.mysql()
    }

    /// The connection settings for routers; plaintext and no login by default.
    ///
    /// # Errors
    ///
    /// The unreadable file of certificates or of the password.
    pub fn network(&self) -> Result<Routers, ConfigError> {
        self.routers.as_ref().map_or_else(|| Ok(Routers::default()), routers::Routers::network)
    }

    /// The settings of a source of lines.
    #[must_use]
    pub fn lines(&self) -> lines::Settings {
        self.source.lines()
    }

    /// The settings for PostgreSQL.
    ///
    /// # Errors
    ///
    /// When the password's file cannot be read.
    pub fn postgres(&self) -> Result<postgres::Settings, ConfigError> {
        self.source.postgres(self.standby.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
checkpoint = "/tmp/cp"
[source]
kind = "mariadb"
servers = ["127.0.0.1:3306"]
user = "holdall"
server_id = 4001
[keys.tables]
"shop.users" = ["user:{id}", "mail:{mail}"]
"shop.items" = "item:{id}"
[[cluster]]
name = "east"
routers = ["127.0.0.1:5000"]
"#;

    fn refusal(text: &str) -> String {
        Config::parse(Path::new("f"), text)
            .map(|_| String::new())
            .unwrap_or_else(|error| error.to_string())
    }

    #[test]
    fn a_whole_file_becomes_a_plan() {
        let config = Config::parse(Path::new("f"), GOOD).unwrap();
        let plan = config.plan().unwrap();
        assert_eq!(plan.rules.tables["shop.users"].len(), 2);
        assert_eq!(plan.clusters[0].routers, ["127.0.0.1:5000"]);
    }

    #[test]
    fn configuration_errors_are_named() {
        for (from, to, said) in [
            ("kind = \"mariadb\"", "kind = \"oracle\"", "f:4:8: unknown variant"),
            ("server_id = 4001", "", "server_id"),
            ("server_id = 4001", "server_id = 4001\nserverid = 1", "serverid"),
            ("user:{id}", "user:{id", "'{' has no '}'"),
            ("\"shop.items\"", "items", "database.table"),
            ("routers = [\"127.0.0.1:5000\"]", "routers = []", "no routers"),
            ("name = \"east\"", "name = \"e t\"", "letters"),
            ("[[cluster]]", "[[clusters]]", "cluster"),
            ("servers = [\"127.0.0.1:3306\"]", "servers = []", "servers"),
            ("server_id = 4001", "server_id = 4001\ncheck_every_ms = 0", "check_every_ms: from 1"),
            ("server_id = 4001", "server_id = 4001\nsslmode = \"verify-ca\"", "verify-full"),
            ("[[cluster]]", "[canary]\n[[cluster]]", "canary.table"),
            ("[[cluster]]", "[canary]\ntable = \"c\"\n[[cluster]]", "database.table"),
            ("[[cluster]]", "[canary]\ntable = \"shop.users\"\n[[cluster]]", "of its own"),
            ("[[cluster]]", "[canary]\ntable = \"s.c\"\nkeys = 0\n[[cluster]]", "keys: from 1"),
            ("[[cluster]]", "[canary]\ntable = \"s.c\"\nevery_ms = 0\n[[cluster]]", "every_ms"),
            (
                "[[cluster]]",
                "[canary]\ntable = \"s.c\"\nname = \"a b\"\n[[cluster]]",
                "canary.name",
            ),
            (
                "[[cluster]]",
                "[canary]\ntable = \"s.c\"\nprefixes = [\"a b\"]\n[[cluster]]",
                "'a b'",
            ),
            ("[[cluster]]", "[routers]\nsslmode = \"prefer\"\n[[cluster]]", "verify-full"),
            ("[[cluster]]", "[routers]\nuser = \"a\"\n[[cluster]]", "password_file"),
            ("[[cluster]]", "[routers]\nsslkey = \"a\"\n[[cluster]]", "sslcert"),
            ("[[cluster]]", "[standby]\ngroup = \"a'b\"\n[[cluster]]", "standby.group"),
            (
                "[[cluster]]",
                "[delivery]\nspool_bytes_max = 16777216\n[[cluster]]",
                "f:12:1: delivery.spool_bytes_max: at least 33554432",
            ),
            (
                "[[cluster]]",
                "[standby]\ngroup = \"g\"\npeers = [\"a\"]\n[[cluster]]",
                "no address:port",
            ),
            (
                "[[cluster]]",
                "[standby]\ngroup = \"g\"\npeers = [\"a:1\"]\n[[cluster]]",
                "this invalidator's own port",
            ),
            (
                "[[cluster]]",
                "[canary]\ntable = \"s.c\"\nservers = [\"a:1\", \"b:1\"]\n[[cluster]]",
                "canary.servers",
            ),
        ] {
            assert!(GOOD.contains(from), "{from}");
            let refusal = refusal(&GOOD.replace(from, to));
            assert!(refusal.contains(said), "{to}: {refusal}");
        }
    }
}
