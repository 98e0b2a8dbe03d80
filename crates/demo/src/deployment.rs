//! The deployment: two regions, each with a database, an invalidator, a regional pool and frontend
//! clusters of cache servers, gutter and router; and the actions on them.
//!
//! ```text
//!     east (master)                                    west (replica)
//!       database --------- replication link ---------->  database
//!          ^  \                                             \  invalidator --> routers of west
//!          |   invalidator --> routers of east               \
//!          +------------------- application link ----------- writes; reads behind a remote marker
//! ```
//!
//! Configurations of routers and invalidators are made from a topology by the code of
//! `holdall plan`, so hosts get the configurations shown here.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use plan::{Hosts, Places, Regional, Templates, Topology};
use processes::free_port;
use rustix::process::Signal;
use tokio::time::sleep;

use crate::database::{ConnectOptions, Database, Kind, NAME, TABLES, USER};
use crate::folder::Folder;
use crate::link::{Distance, Link};
use crate::process::{Process, local};

/// Cache servers of a cluster.
const SERVERS: usize = 2;

/// Prefixes of keys in the regional pool: large, rarely read items, and remote markers.
const REGIONAL: [&str; 2] = ["photo:", MARKER];

/// The prefix of remote markers' keys.
pub(crate) const MARKER: &str = "rk:";

/// The prefixes of the keys of each table's rows.
pub(crate) const PREFIXES: [&str; TABLES.len()] = ["item:", "photo:"];

/// The invalidator's monitor samples one key in this many.
const MONITOR_ONE_IN: u32 = 10;

/// Invalidators' replication slot.
const SLOT: &str = "holdall";

/// The time within which a database must notice that the slot's last user is gone.
const RELEASED_MAX: Duration = Duration::from_secs(60);

/// A frontend cluster.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) name: String,
    pub(crate) servers: Vec<Process>,
    pub(crate) gutter: Vec<Process>,
    pub(crate) router: Process,
    /// The cluster that fills it.
    pub(crate) warm_from: Option<String>,
}

/// A region.
#[derive(Debug)]
pub(crate) struct Region {
    pub(crate) name: &'static str,
    folder: Folder,
    pub(crate) database: Database,
    pub(crate) regional: Vec<Process>,
    pub(crate) clusters: Vec<Cluster>,
    pub(crate) invalidator: Option<Process>,
}

/// Everything.
#[derive(Debug)]
pub(crate) struct Deployment {
    kind: Kind,
    /// The master region first.
    pub(crate) regions: Vec<Region>,
    replication: Link,
    application: Link,
}

impl Deployment {
    /// Starts everything, and fills the tables with these numbers of rows.
    pub(crate) async fn start(
        folder: &Folder,
        kind: Kind,
        rows: [u64; 2],
        distance: Distance,
        mut tell: impl FnMut(&str),
    ) -> Result<Self> {
        let password = format!("{:032x}", rand::random::<u128>());
        tell(&format!("starting two {} servers", kind.name()));
        let primary = Database::start(kind, folder, "east", 1, &password).await?;
        let replica = Database::start(kind, folder, "west", 2, &password).await?;
        tell(&format!("filling {} rows", rows.iter().sum::<u64>()));
        primary.fill(rows).await?;
        let replication = Link::to(primary.options.address, distance).await?;
        let application = Link::to(primary.options.address, distance).await?;
        replica.follow(replication.address).await?;
        until_replicated(&primary, &replica).await?;
        let mut deployment = Self { kind, regions: Vec::new(), replication, application };
        for (name, database) in [("east", primary), ("west", replica)] {
            tell(&format!("starting region {name}"));
            let folder = folder.below(name)?;
            folder.write("password", &password)?;
            let regional = servers(&folder, &format!("{name}/regional"), 1).await?;
            let (clusters, invalidator) = (Vec::new(), None);
            let region = Region { name, folder, database, regional, clusters, invalidator };
            deployment.regions.push(region);
            let at = deployment.regions.len() - 1;
            for cluster in ["a", "b"] {
                deployment.add_cluster(at, cluster, None).await?;
            }
        }
        Ok(deployment)
    }

    /// The connection of a region's applications to the master's database.
    pub(crate) fn master_options(&self, region: usize) -> ConnectOptions {
        let options = &self.regions[0].database.options;
        let address = if region == 0 { options.address } else { self.application.address };
        ConnectOptions { address, ..options.clone() }
    }

    /// The topology as `holdall plan` reads it: everything that runs, by address.
    fn topology(&self) -> Topology {
        let named = |processes: &[Process]| {
            Hosts::Named(processes.iter().map(|process| process.address.to_string()).collect())
        };
        let cluster = |cluster: &Cluster| plan::Cluster {
            name: cluster.name.clone(),
            servers: named(&cluster.servers),
            gutter: Some(named(&cluster.gutter)),
            routers: Some(Hosts::Named(vec![cluster.router.address.to_string()])),
            warm_from: cluster.warm_from.clone(),
        };
        let region = |(at, region): (usize, &Region)| plan::Region {
            name: region.name.to_owned(),
            master: at == 0,
            database: Some(self.database_of(at, region)),
            invalidator: None,
            regional: Some(Regional {
                servers: named(&region.regional),
                prefixes: REGIONAL.map(str::to_owned).into(),
            }),
            clusters: region.clusters.iter().map(cluster).collect(),
        };
        Topology {
            name: "demo".to_owned(),
            cache: plan::Cache::default(),
            router: plan::Router::default(),
            kubernetes: plan::Kubernetes::default(),
            keys: self.keys(),
            regions: self.regions.iter().enumerate().map(region).collect(),
        }
    }

    /// A row stands for its key and the key's remote marker.
    fn keys(&self) -> BTreeMap<String, Templates> {
        let templates = |(table, prefix): (&str, &str)| {
            let key = format!("{prefix}{{id}}");
            let both = vec![key.clone(), format!("{MARKER}{key}")];
            (format!("{}.{table}", self.kind.schema()), Templates::Several(both))
        };
        TABLES.into_iter().zip(PREFIXES).map(templates).collect()
    }

    fn database_of(&self, at: usize, region: &Region) -> plan::Database {
        plan::Database {
            kind: match self.kind {
                Kind::Mariadb => plan::DatabaseKind::MariaDb,
                Kind::Postgresql => plan::DatabaseKind::Postgresql,
            },
            servers: vec![region.database.options.address.to_string()],
            user: USER.to_owned(),
            password: region.folder.path().join("password").display().to_string(),
            server_id: u32::try_from(4001 + at).ok(),
            database: Some(NAME.to_owned()),
            slot: SLOT.to_owned(),
            publication: "holdall".to_owned(),
            sslmode: None,
            sslrootcert: None,
        }
    }

    /// Adds a cluster to a region; a cold one is filled from `warm_from`.
    pub(crate) async fn add_cluster(
        &mut self,
        at: usize,
        name: &str,
        warm_from: Option<&str>,
    ) -> Result<()> {
        let region = &self.regions[at];
        let full = format!("{}/{name}", region.name);
        let folder = region.folder.clone();
        let port = free_port()?;
        let prefix = format!("/{full}/");
        let spool = folder.below("spool")?.path().display().to_string();
        let routes = folder.path().join("routes.json").display().to_string();
        // A cluster that is configured before its router runs answers nothing until then.
        let words = [
            "/proc/self/exe",
            "route",
            "-f",
            &routes,
            "-p",
            &port.to_string(),
            "--num-proxies",
            "1",
            "-t",
            "250",
            "--route-prefix",
            &prefix,
            "--async-dir",
            &spool,
        ];
        let router = Process::prepared(
            &folder,
            &format!("{full}/router"),
            words.map(str::to_owned).into(),
            local(port),
        );
        let cluster = Cluster {
            name: name.to_owned(),
            servers: servers(&folder, &format!("{full}/server"), SERVERS).await?,
            gutter: servers(&folder, &format!("{full}/gutter"), 1).await?,
            router,
            warm_from: warm_from.map(str::to_owned),
        };
        self.regions[at].clusters.push(cluster);
        self.write_routes(at)?;
        if let Some(cluster) = self.regions[at].clusters.last_mut() {
            cluster.router.restart().await?;
        }
        self.renew_invalidator(at).await
    }

    /// Ends the filling of cold clusters from warm ones.
    pub(crate) fn end_warm_up(&mut self, at: usize) -> Result<()> {
        for cluster in &mut self.regions[at].clusters {
            cluster.warm_from = None;
        }
        self.write_routes(at)
    }

    /// Routers detect the change themselves.
    fn write_routes(&self, at: usize) -> Result<()> {
        let topology = self.topology();
        let region = &topology.regions[at];
        let addresses = |group: &str| match region.servers().find(|(name, _)| name == group) {
            Some((_, Hosts::Named(addresses))) => addresses.clone(),
            _ => Vec::new(),
        };
        let text = plan::routes(&topology, region, addresses);
        self.regions[at].folder.write("routes.json", &text).map(drop)
    }

    /// Starts the region's invalidator with a configuration of all its clusters, from the position
    /// of the last one.
    async fn renew_invalidator(&mut self, at: usize) -> Result<()> {
        let topology = self.topology();
        let (plan, region) = (&topology.regions[at], &mut self.regions[at]);
        let database = plan.database.as_ref().context("a region without a database")?;
        let folder = region.folder.path().display().to_string();
        let status = match &region.invalidator {
            Some(old) => old.address,
            None => local(free_port()?),
        };
        let places = Places {
            password_file: &database.password,
            folder: &folder,
            status: &status.to_string(),
        };
        let routers = |name: &str| {
            let found = plan.clusters.iter().find(|cluster| cluster.name == name);
            match found.and_then(|cluster| cluster.routers.as_ref()) {
                Some(Hosts::Named(addresses)) => addresses.clone(),
                _ => Vec::new(),
            }
        };
        let mut text = plan::invalidator(&topology, plan, database, routers, &places);
        text += &format!("\n[monitor]\none_in = {MONITOR_ONE_IN}\n");
        let config = region.folder.write("invalidate.toml", &text)?;
        if let Some(running) = &mut region.invalidator {
            running.stop(Signal::TERM);
            return running.restart().await;
        }
        let config = config.display().to_string();
        let words = ["/proc/self/exe", "invalidate", "run", "--config", &config].map(str::to_owned);
        let name = format!("{}/invalidator", region.name);
        let process =
            Process::start(&region.folder, &name, words.into(), status, Signal::TERM).await?;
        region.invalidator = Some(process);
        Ok(())
    }

    /// Starts the region's invalidator from an earlier position of the log; PostgreSQL needs a
    /// `slot` of that time.
    pub(crate) async fn replay(
        &mut self,
        at: usize,
        since: &str,
        slot: Option<&str>,
    ) -> Result<()> {
        let Region { database, invalidator: Some(invalidator), .. } = &mut self.regions[at] else {
            return Ok(());
        };
        invalidator.stop(Signal::TERM);
        if let Some(slot) = slot {
            let drop = format!("SELECT pg_drop_replication_slot('{SLOT}')");
            let end = Instant::now() + RELEASED_MAX;
            // The follower is gone, but its server may not have noticed yet.
            while let Err(error) = database.run(&drop).await {
                if Instant::now() > end {
                    return Err(error);
                }
                sleep(Duration::from_millis(50)).await;
            }
            let copy = format!("SELECT pg_copy_logical_replication_slot('{slot}', '{SLOT}')");
            database.run(&copy).await?;
        }
        invalidator.spawn(&["--since", since])?;
        invalidator.accepts().await
    }

    /// Retains the master region's log from its invalidator's position on.
    pub(crate) async fn copy_slot(&self, name: &str) -> Result<()> {
        let copy = format!("SELECT pg_copy_logical_replication_slot('{SLOT}', '{name}')");
        self.regions[0].database.run(&copy).await
    }

    /// Releases it.
    pub(crate) async fn drop_slot(&self, name: &str) -> Result<()> {
        self.regions[0].database.run(&format!("SELECT pg_drop_replication_slot('{name}')")).await
    }

    /// Delays the replica's database; zero ends that.
    pub(crate) async fn lag(&self, delay: Duration) -> Result<()> {
        if !self.regions[1].database.lag(delay).await? {
            self.replication.delay(delay);
        }
        Ok(())
    }

    /// Cuts or joins the regions, for replication and applications.
    pub(crate) fn cut(&self, is_cut: bool) {
        self.replication.cut(is_cut);
        self.application.cut(is_cut);
    }

    /// Everything that listens, for its numbers.
    pub(crate) fn processes(&mut self) -> impl Iterator<Item = &mut Process> {
        self.regions.iter_mut().flat_map(|region| {
            let clusters = region.clusters.iter_mut().flat_map(|cluster| {
                let caches = cluster.servers.iter_mut().chain(&mut cluster.gutter);
                caches.chain(std::iter::once(&mut cluster.router))
            });
            region.regional.iter_mut().chain(clusters).chain(&mut region.invalidator)
        })
    }

    /// Ends every fault: held processes continue, killed ones restart, links and replica are as at
    /// the start.
    pub(crate) async fn heal(&mut self) -> Result<()> {
        self.cut(false);
        self.lag(Duration::ZERO).await?;
        for process in self.processes() {
            process.release();
            if !process.is_running() {
                process.restart().await?;
            }
        }
        Ok(())
    }
}

async fn servers(folder: &Folder, name: &str, count: usize) -> Result<Vec<Process>> {
    let mut all = Vec::new();
    for number in 1..=count {
        let words = [
            "serve",
            "-p",
            "{port}",
            "-l",
            "127.0.0.1",
            "-U",
            "0",
            "-t",
            "1",
            "-m",
            "64",
            "-o",
            "lease_interval=0",
        ];
        all.push(Process::holdall(folder, &format!("{name}-{number}"), &words).await?);
    }
    Ok(all)
}

/// Waits until the replica has the primary's rows.
async fn until_replicated(primary: &Database, replica: &Database) -> Result<()> {
    let mut at = crate::database::Session::new(primary.options.clone());
    let mut there = crate::database::Session::new(replica.options.clone());
    let end = tokio::time::Instant::now() + Duration::from_secs(120);
    at.pulse(Some(1)).await?;
    while there.pulse(None).await.unwrap_or(0) != 1 {
        if tokio::time::Instant::now() > end {
            anyhow::bail!("the replica does not follow:\n{}", replica.process.last_words());
        }
        sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}
