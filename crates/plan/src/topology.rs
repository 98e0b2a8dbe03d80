//! The topology file: the parts of a deployment and their hosts.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::spelling::{bad_address, bad_label, bad_memory_file, repeated};

/// The file by which kustomize finds those of the regions, `NAME.yaml`.
pub const KUSTOMIZATION: &str = "kustomization.yaml";

/// The largest `-m` of a server, in MiB.
const MEMORY_MB_MAX: u32 = 1 << 24;

/// The most workers of a server, and of a router.
const THREADS_MAX: u32 = 1024;
const ROUTER_THREADS_MAX: u32 = 256;

/// The largest `-c` of a server.
const CONNECTIONS_MAX: u32 = 10_000_000;

/// A deployment.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Topology {
    /// Begins the names of all that is made.
    pub name: String,
    /// Settings of every cache server.
    #[serde(default)]
    pub cache: Cache,
    /// Settings of every router.
    #[serde(default)]
    pub router: Router,
    /// Settings that only Kubernetes needs.
    #[serde(default)]
    pub kubernetes: Kubernetes,
    /// The keys of rows: templates by `database.table`, as in the invalidator's configuration.
    #[serde(default)]
    pub keys: BTreeMap<String, Templates>,
    /// The regions, one of which is the master.
    #[serde(rename = "region")]
    pub regions: Vec<Region>,
}

/// One template, or several.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Templates {
    /// `"user:{id}"`
    One(String),
    /// `["user:{id}", "name:{name}"]`
    Several(Vec<String>),
}

/// Settings of a cache server.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Cache {
    /// MiB of memory (`-m`).
    pub memory_mb: u32,
    /// Workers (`-t`).
    pub threads: u32,
    /// Connections (`-c`).
    pub connections: u32,
    /// TCP port.
    pub port: u16,
    /// The file that keeps the items over a restart (`-e`); on Kubernetes over that of a container,
    /// in a volume of memory.
    pub memory_file: Option<PathBuf>,
}

impl Default for Cache {
    fn default() -> Self {
        Self { memory_mb: 1024, threads: 4, connections: 4096, port: 11211, memory_file: None }
    }
}

/// Settings of a router.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Router {
    /// TCP port.
    pub port: u16,
    /// Workers (`--num-proxies`).
    pub threads: u32,
    /// Seconds that an item lives in the gutter.
    pub gutter_ttl: u32,
}

impl Default for Router {
    fn default() -> Self {
        Self { port: 5000, threads: 2, gutter_ttl: 10 }
    }
}

/// Settings of Kubernetes' manifests.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Kubernetes {
    /// The image, which has `holdall` as its entry point.
    pub image: String,
    /// The namespace.
    pub namespace: String,
    /// Pods of each cluster's router, at most: Kubernetes adds them by the processors' time that
    /// they use. Without it their number is fixed.
    pub routers_max: Option<u32>,
}

impl Default for Kubernetes {
    fn default() -> Self {
        Self {
            image: "holdall:latest".to_owned(),
            namespace: "default".to_owned(),
            routers_max: None,
        }
    }
}

/// A region: a database and the clusters that cache it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Region {
    /// Part of routing prefixes: `/region/cluster/`.
    pub name: String,
    /// True if writes go to its database.
    #[serde(default)]
    pub master: bool,
    /// The database whose log invalidates the region's caches.
    pub database: Option<Database>,
    /// The host on which the invalidator runs. By default beside the first router.
    pub invalidator: Option<String>,
    /// Servers that all clusters of the region share.
    pub regional: Option<Regional>,
    /// The frontend clusters.
    #[serde(rename = "cluster")]
    pub clusters: Vec<Cluster>,
}

/// A region's database.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Database {
    /// `mariadb`, `mysql` or `postgresql`.
    pub kind: DatabaseKind,
    /// `host:port` of the server, and of others with the same log.
    pub servers: Vec<String>,
    /// The user that reads the log.
    pub user: String,
    /// The file of the password: a path on the host; on Kubernetes the name of a Secret with a key
    /// `password`.
    pub password: String,
    /// MariaDB and MySQL: as whom the invalidator follows the log; no replica and no other
    /// invalidator has this number.
    pub server_id: Option<u32>,
    /// PostgreSQL: the database.
    pub database: Option<String>,
    /// PostgreSQL: the replication slot.
    #[serde(default = "default_name")]
    pub slot: String,
    /// PostgreSQL: the publication.
    #[serde(default = "default_name")]
    pub publication: String,
    /// Encryption of the invalidator's connections, and verification of the server; verified, if
    /// it is not named.
    pub sslmode: Option<SslMode>,
    /// The file of trusted issuers of the servers' certificates, where the invalidator runs.
    pub sslrootcert: Option<String>,
}

/// The invalidator's modes of TLS, which are libpq's.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum SslMode {
    /// Never TLS.
    Disable,
    /// TLS if the server has it.
    Prefer,
    /// TLS with any certificate.
    Require,
    /// TLS with a certificate of a trusted issuer.
    VerifyCa,
    /// TLS with a certificate of a trusted issuer, for the host's name.
    VerifyFull,
}

impl SslMode {
    /// Its name in configurations.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Disable => "disable",
            Self::Prefer => "prefer",
            Self::Require => "require",
            Self::VerifyCa => "verify-ca",
            Self::VerifyFull => "verify-full",
        }
    }
}

fn default_name() -> String {
    "holdall".to_owned()
}

impl Database {
    /// What its kind needs and it has not.
    fn lacks(&self) -> Option<&'static str> {
        match self.kind {
            DatabaseKind::Postgresql if self.database.is_none() => {
                Some("database.database: PostgreSQL needs it")
            }
            DatabaseKind::MariaDb | DatabaseKind::MySql
                if self.server_id.is_none_or(|id| id == 0) =>
            {
                Some(
                    "database.server_id: give it a number above 0 that no replica and no other invalidator has",
                )
            }
            _ => None,
        }
    }
}

/// The database whose log is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DatabaseKind {
    /// MariaDB.
    MariaDb,
    /// MySQL.
    MySql,
    /// PostgreSQL.
    Postgresql,
}

impl DatabaseKind {
    /// The name in configurations.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::MariaDb => "mariadb",
            Self::MySql => "mysql",
            Self::Postgresql => "postgresql",
        }
    }
}

/// A regional pool (section 4.2 of the paper).
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Regional {
    /// Its servers.
    pub servers: Hosts,
    /// Begins of the keys that are kept there.
    pub prefixes: Vec<String>,
}

/// A frontend cluster.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cluster {
    /// Part of routing prefixes.
    pub name: String,
    /// Its servers.
    pub servers: Hosts,
    /// Servers that stand in for failed ones (section 3.3).
    pub gutter: Option<Hosts>,
    /// The hosts of routers; by default on every server's host, on Kubernetes two.
    pub routers: Option<Hosts>,
    /// Another cluster of the region, from which this one is filled while it is cold (section 4.3).
    pub warm_from: Option<String>,
}

/// Hosts by address, or how many pods.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum Hosts {
    /// Addresses.
    Named(Vec<String>),
    /// A number of pods.
    Count(u32),
}

impl Hosts {
    /// How many.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Named(addresses) => addresses.len(),
            Self::Count(count) => *count as usize,
        }
    }
}

/// The reason why a file is not a topology: it is unreadable, has another form, or contradicts
/// itself.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {why}", path.display())]
pub struct TopologyError {
    /// The file.
    pub path: PathBuf,
    /// The fault, its place, and what to do.
    pub why: String,
}

impl Topology {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// If it is unreadable, has another form, or contradicts itself.
    pub fn read(path: &Path) -> Result<Self, TopologyError> {
        let text = fs::read_to_string(path).map_err(|error| refused(path, &error.to_string()))?;
        Self::parse(path, &text)
    }

    /// Reads `text`, which errors call `path`.
    ///
    /// # Errors
    ///
    /// If it has another form, or contradicts itself.
    pub fn parse(path: &Path, text: &str) -> Result<Self, TopologyError> {
        let topology: Self =
            toml::from_str(text).map_err(|error| refused(path, &error.to_string()))?;
        topology.contradiction().map_or(Ok(topology), |why| Err(refused(path, &why)))
    }

    fn contradiction(&self) -> Option<String> {
        if let Some(why) = bad_label("name", &self.name) {
            return Some(why);
        }
        if let Some(why) = self.bad_number() {
            return Some(why);
        }
        if let Some(why) = self.cache.memory_file.as_deref().and_then(bad_memory_file) {
            return Some(format!("cache.memory_file: {why}"));
        }
        let masters = self.regions.iter().filter(|region| region.master).count();
        if masters != 1 {
            return Some(format!("{masters} regions have master = true: one must"));
        }
        if let Some(twice) = repeated(self.regions.iter().map(|region| region.name.as_str())) {
            return Some(format!("region '{twice}' is there twice"));
        }
        self.regions.iter().find_map(|region| self.contradiction_in(region))
    }

    /// The number that a server or a router would refuse.
    fn bad_number(&self) -> Option<String> {
        let (cache, router) = (&self.cache, &self.router);
        [
            ("cache.memory_mb", cache.memory_mb, MEMORY_MB_MAX),
            ("cache.threads", cache.threads, THREADS_MAX),
            ("cache.connections", cache.connections, CONNECTIONS_MAX),
            ("cache.port", cache.port.into(), u16::MAX.into()),
            ("router.port", router.port.into(), u16::MAX.into()),
            ("router.threads", router.threads, ROUTER_THREADS_MAX),
        ]
        .into_iter()
        .find(|(_, value, most)| !(1..=*most).contains(value))
        .map(|(name, value, most)| format!("{name}: from 1 to {most}, not {value}"))
    }

    fn contradiction_in(&self, region: &Region) -> Option<String> {
        if let Some(why) = bad_label("a region's name", &region.name) {
            return Some(why);
        }
        let at = |why: String| Some(format!("region '{}': {why}", region.name));
        if format!("{}.yaml", region.name) == KUSTOMIZATION {
            return at("its file of manifests would have kustomize's name".to_owned());
        }
        if region.clusters.is_empty() {
            return at("it has no [[region.cluster]]".to_owned());
        }
        if let Some(twice) = repeated(region.clusters.iter().map(|cluster| cluster.name.as_str())) {
            return at(format!("cluster '{twice}' is there twice"));
        }
        if let Some(why) =
            region.clusters.iter().find_map(|cluster| bad_label("a cluster's name", &cluster.name))
        {
            return at(why);
        }
        if let Some(why) = region.bad_hosts() {
            return at(why);
        }
        if let Some(twice) = repeated(region.servers().map(|(group, _)| group)) {
            return at(format!(
                "two groups of servers have the name '{twice}': give the cluster another one"
            ));
        }
        let is_warm = |cluster: &Cluster, warm: &String| {
            *warm != cluster.name && region.clusters.iter().any(|other| other.name == *warm)
        };
        if let Some(cold) = region
            .clusters
            .iter()
            .find(|cluster| cluster.warm_from.as_ref().is_some_and(|warm| !is_warm(cluster, warm)))
        {
            return at(format!("cluster '{}': warm_from names no other cluster", cold.name));
        }
        if region.database.is_some() && self.keys.is_empty() {
            return at(
                "it has a database, but [keys] names no table: no delete would ever be sent"
                    .to_owned(),
            );
        }
        if let Some(lack) = region.database.as_ref().and_then(Database::lacks) {
            return at(lack.to_owned());
        }
        let regional = region.regional.as_ref();
        if regional.is_some_and(|regional| regional.prefixes.is_empty()) {
            return at("regional.prefixes is empty: no key would go there".to_owned());
        }
        let servers = region.servers().filter_map(|(_, hosts)| match hosts {
            Hosts::Named(addresses) => Some(addresses.iter().map(String::as_str)),
            Hosts::Count(_) => None,
        });
        let twice = repeated(servers.flatten())?;
        at(format!("{twice} is a cache server twice; two on one host need two addresses"))
    }
}

fn refused(path: &Path, why: &str) -> TopologyError {
    TopologyError { path: path.to_owned(), why: why.to_owned() }
}

impl Region {
    /// The reason why a list of hosts is unusable.
    fn bad_hosts(&self) -> Option<String> {
        // Without routers, no delete would reach the cluster.
        let needs_routers = self.database.is_some();
        let of_clusters = self.clusters.iter().flat_map(|cluster| {
            let routers = cluster.routers.as_ref();
            let routers = routers.filter(|hosts| needs_routers || hosts.len() > 0);
            let of = |list| format!("cluster '{}': {list}", cluster.name);
            [
                Some((of("servers"), &cluster.servers)),
                cluster.gutter.as_ref().map(|hosts| (of("gutter"), hosts)),
                routers.map(|hosts| (of("routers"), hosts)),
            ]
        });
        let regional = self.regional.as_ref();
        let regional = regional.map(|regional| ("regional.servers".to_owned(), &regional.servers));
        let bad = of_clusters.chain([regional]).flatten().find_map(|(list, hosts)| match hosts {
            hosts if hosts.len() == 0 => Some(format!("{list} is empty")),
            Hosts::Named(addresses) => addresses.iter().find_map(|address| bad_address(address)),
            Hosts::Count(_) => None,
        });
        bad.or_else(|| self.invalidator.as_deref().and_then(bad_address))
    }

    /// All groups of cache servers, with their names.
    pub fn servers(&self) -> impl Iterator<Item = (String, &Hosts)> {
        let of_cluster = |cluster: &Cluster| cluster.name.clone();
        let of_gutter = |cluster: &Cluster| format!("{}-gutter", cluster.name);
        let clusters = self.clusters.iter().flat_map(move |cluster| {
            let gutter = cluster.gutter.as_ref().map(|hosts| (of_gutter(cluster), hosts));
            std::iter::once((of_cluster(cluster), &cluster.servers)).chain(gutter)
        });
        let regional = self.regional.as_ref();
        clusters.chain(regional.map(|regional| ("regional".to_owned(), &regional.servers)))
    }
}
