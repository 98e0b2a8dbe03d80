//! A run: the deployment, its users, the faults and their ends, and the numbers of every second.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use tokio::task::JoinHandle;

use crate::database::Kind;
use crate::deployment::Deployment;
use crate::folder::Folder;
use crate::link::Distance;
use crate::load::{Frontend, Load, Shape, open};
use crate::recorder::ClusterCounts;
use crate::result::{ClusterSecond, RegionSecond, Second, ms, over_1s};
use crate::script::Action;
use crate::stats::{self, Stats};

/// The lag of a replica that is made to lag.
pub(crate) const LAG: Duration = Duration::from_secs(3);

/// The time for which a killed or stopped server is down.
const AWAY: Duration = Duration::from_secs(5);

/// The span of the log that is delivered again.
const REPLAYED: Duration = Duration::from_secs(30);

/// The time for which a replay waits for the first position in the log.
const REMEMBERED_MAX: Duration = Duration::from_secs(60);

/// The interval at which a position in PostgreSQL's log is saved for a replay.
const SLOT_EVERY: Duration = Duration::from_secs(5);

/// Maximum number of seconds stored: a day. Longer runs drop their start.
const SECONDS_MAX: usize = 86_400;

/// A place in the log from which deletes can be sent again.
#[derive(Clone, Debug)]
struct Past {
    at: Instant,
    position: String,
    /// PostgreSQL: the slot that retains the log from there on.
    slot: Option<String>,
}

/// Automatic ends of actions.
#[derive(Clone, Copy, Debug)]
enum Recovery {
    /// Restart the server.
    Start(SocketAddr),
    /// Let it continue.
    Release(SocketAddr),
}

/// The running deployment, its load, and the events so far.
pub(crate) struct Stage {
    pub(crate) deployment: Deployment,
    pub(crate) load: Arc<Load>,
    pub(crate) frontends: Vec<Arc<Frontend>>,
    pub(crate) events: Vec<(f64, String)>,
    pub(crate) seconds: VecDeque<Second>,
    /// The counts at the end of the last second.
    pub(crate) tallies: Vec<ClusterCounts>,
    pub(crate) kind: Kind,
    pub(crate) is_cut: bool,
    pub(crate) is_lagging: bool,
    begin: Instant,
    users: Vec<JoinHandle<()>>,
    watcher: JoinHandle<()>,
    behind_ms: Arc<AtomicU64>,
    recoveries: Vec<(Instant, Recovery)>,
    /// Positions in the master region's log, oldest first.
    past: VecDeque<Past>,
    /// Slots made for that.
    slots: u32,
    /// Selects the next server.
    turn: usize,
    /// Numbers since the start: of the databases, the gutters, the invalidators.
    before: Before,
}

#[derive(Clone, Debug, Default)]
struct Before {
    queries: [(u64, u64); 2],
    gutter_hits: Vec<u64>,
    delivered: [u64; 2],
}

impl Stage {
    /// Starts everything, including users.
    pub(crate) async fn start(
        folder: &Folder,
        kind: Kind,
        shape: Shape,
        distance: Distance,
        tell: impl FnMut(&str),
    ) -> Result<Self> {
        let load = Arc::new(Load::new(shape)?);
        let deployment = Deployment::start(folder, kind, shape.rows, distance, tell).await?;
        let behind_ms = Arc::new(AtomicU64::new(0));
        let [east, west] = [0, 1].map(|at: usize| deployment.regions[at].database.options.clone());
        let watcher = tokio::spawn(stats::watch_lag(east, west, Arc::clone(&behind_ms)));
        let mut stage = Self {
            deployment,
            load,
            frontends: Vec::new(),
            events: Vec::new(),
            seconds: VecDeque::new(),
            tallies: Vec::new(),
            kind,
            is_cut: false,
            is_lagging: false,
            begin: Instant::now(),
            users: Vec::new(),
            watcher,
            behind_ms,
            recoveries: Vec::new(),
            past: VecDeque::new(),
            slots: 0,
            turn: 0,
            before: Before::default(),
        };
        for region in 0..stage.deployment.regions.len() {
            for at in 0..stage.deployment.regions[region].clusters.len() {
                stage.open(region, at)?;
            }
        }
        Ok(stage)
    }

    /// Seconds since the start of users.
    pub(crate) fn at(&self) -> f64 {
        self.begin.elapsed().as_secs_f64()
    }

    fn tell(&mut self, text: impl Into<String>) {
        let at = self.at();
        self.events.push((at, text.into()));
    }

    /// Starts a cluster's users.
    fn open(&mut self, region: usize, at: usize) -> Result<()> {
        let place = &self.deployment.regions[region];
        let cluster = &place.clusters[at];
        let options = [place.database.options.clone(), self.deployment.master_options(region)];
        let name = format!("{}/{}", place.name, cluster.name);
        let router = cluster.router.address.to_string();
        let frontend = Arc::new(Frontend::new(&self.load, name, region, router, options)?);
        self.users.extend(open(&self.load, &frontend));
        self.frontends.push(frontend);
        Ok(())
    }

    /// Executes an action.
    pub(crate) async fn act(&mut self, action: Action) -> Result<()> {
        match action {
            Action::AddCluster => self.add_cluster(Some("a")).await?,
            Action::AddColdCluster => self.add_cluster(None).await?,
            Action::BlackHole => self.trouble_server(true),
            Action::EndWarmUp => {
                self.deployment.end_warm_up(0)?;
                self.tell("clusters read the database for what they miss");
            }
            Action::KillServer => self.trouble_server(false),
            Action::Cut(is_cut) => {
                self.deployment.cut(is_cut);
                self.is_cut = is_cut;
                self.tell(if is_cut { "the regions are cut" } else { "the regions are joined" });
            }
            Action::Lag(is_lagging) => {
                self.deployment.lag(if is_lagging { LAG } else { Duration::ZERO }).await?;
                self.is_lagging = is_lagging;
                let secs = LAG.as_secs();
                self.tell(if is_lagging {
                    format!("the replica's database is {secs} s behind")
                } else {
                    "the replica's database follows at once".to_owned()
                });
            }
            Action::Replay => self.replay().await?,
        }
        Ok(())
    }

    async fn add_cluster(&mut self, warm_from: Option<&str>) -> Result<()> {
        let clusters = self.deployment.regions[0].clusters.len();
        let Some(letter) = ('a'..='z').nth(clusters) else { return Ok(()) };
        self.deployment.add_cluster(0, &letter.to_string(), warm_from).await?;
        self.open(0, clusters)?;
        self.tell(match warm_from {
            Some(warm) => format!("cluster east/{letter} is added, and filled from east/{warm}"),
            None => format!("cluster east/{letter} is added, and filled from the database"),
        });
        Ok(())
    }

    /// Kills or holds the next cache server, alternating between regions.
    fn trouble_server(&mut self, is_held: bool) {
        let all: Vec<(usize, usize, usize)> =
            (0..2_usize).flat_map(|server| (0..2).map(move |region| (region, 0, server))).collect();
        let (region, cluster, server) = all[self.turn % all.len()];
        self.turn += 1;
        let region = &mut self.deployment.regions[region];
        let process = &mut region.clusters[cluster].servers[server];
        let text =
            format!("{} is {}", process.name, if is_held { "a black hole" } else { "killed" });
        let address = process.address;
        let recovery = if is_held {
            process.hold();
            Recovery::Release(address)
        } else {
            process.kill();
            Recovery::Start(address)
        };
        self.recoveries.push((Instant::now() + AWAY, recovery));
        self.tell(text);
    }

    async fn replay(&mut self) -> Result<()> {
        let end = Instant::now() + REMEMBERED_MAX;
        while self.past.is_empty() && Instant::now() < end {
            self.remember().await;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let Some(Past { position, slot, .. }) = self.past.front().cloned() else {
            self.tell("nothing was delivered yet: nothing to replay");
            return Ok(());
        };
        self.deployment.replay(0, &position, slot.as_deref()).await?;
        self.tell(format!("deletes since {position} are sent again"));
        Ok(())
    }

    /// Ends actions whose time is over.
    pub(crate) async fn recover(&mut self) -> Result<()> {
        let now = Instant::now();
        let (due, later) = self.recoveries.drain(..).partition(|(at, _)| *at <= now);
        self.recoveries = later;
        let due: Vec<(Instant, Recovery)> = due;
        for (_, recovery) in due {
            let (Recovery::Start(address) | Recovery::Release(address)) = recovery;
            let Some(process) =
                self.deployment.processes().find(|process| process.address == address)
            else {
                continue;
            };
            let text = match recovery {
                Recovery::Start(_) => {
                    process.restart().await?;
                    format!("{} is back, empty", process.name)
                }
                Recovery::Release(_) => {
                    process.release();
                    format!("{} answers again, with what it had", process.name)
                }
            };
            self.tell(text);
        }
        Ok(())
    }

    /// Records the numbers of the second that ends now.
    pub(crate) async fn tick(&mut self) {
        self.load.recorder.judge(false);
        let gutters: Vec<SocketAddr> = self.gutters();
        let invalidators = self.invalidators();
        self.remember().await;
        let gutters = stats::ask(&gutters).await;
        let invalidators = stats::ask(&invalidators).await;
        let tallies = self.load.recorder.second();
        let clusters = self.clusters_second(&tallies, &gutters);
        let regions = (0..2).map(|at| self.region_second(at, &invalidators[at])).collect();
        self.tallies = tallies;
        self.seconds.push_back(Second { at: self.at(), clusters, regions });
        if self.seconds.len() > SECONDS_MAX {
            self.seconds.pop_front();
        }
    }

    /// Records the log position of the master region's invalidator, and drops positions too old for
    /// a replay.
    async fn remember(&mut self) {
        let slot = self.slot_of_now().await;
        let invalidators = stats::ask(&self.invalidators()).await;
        // It has none before it reads.
        let position = invalidators.first().map_or("", |stats| stats.text("position")).to_owned();
        let is_place = slot.is_some() || self.kind == Kind::Mariadb;
        let mut gone = Vec::new();
        if position.is_empty() {
            gone.extend(slot);
        } else if is_place {
            self.past.push_back(Past { at: Instant::now(), position, slot });
        }
        while let Some(past) = self.past.pop_front_if(|past| past.at.elapsed() > REPLAYED) {
            gone.extend(past.slot);
        }
        for slot in gone {
            // A remaining one retains a part of the log until the end of the run.
            let _ = self.deployment.drop_slot(&slot).await;
        }
    }

    /// PostgreSQL retains no log before the confirmed position of the invalidator's slot, unless
    /// another slot is there: its copy, created periodically. The position queried afterwards is
    /// not before it.
    async fn slot_of_now(&mut self) -> Option<String> {
        let is_due = self.past.back().is_none_or(|last| last.at.elapsed() >= SLOT_EVERY);
        if self.kind != Kind::Postgresql || !is_due {
            return None;
        }
        self.slots += 1;
        let name = format!("behind_{}", self.slots);
        // There is none before the invalidator has started; it is retried.
        self.deployment.copy_slot(&name).await.ok().map(|()| name)
    }

    /// In the order of [`Self::frontends`].
    fn gutters(&self) -> Vec<SocketAddr> {
        let of = |frontend: &Arc<Frontend>| {
            let region = &self.deployment.regions[frontend.region];
            let name = frontend.name.rsplit('/').next();
            let cluster =
                region.clusters.iter().find(|cluster| Some(cluster.name.as_str()) == name);
            cluster.and_then(|cluster| cluster.gutter.first()).map(|gutter| gutter.address)
        };
        self.frontends.iter().filter_map(of).collect()
    }

    fn invalidators(&self) -> Vec<SocketAddr> {
        self.deployment
            .regions
            .iter()
            .filter_map(|region| Some(region.invalidator.as_ref()?.address))
            .collect()
    }

    fn clusters_second(
        &mut self,
        tallies: &[ClusterCounts],
        gutters: &[Stats],
    ) -> Vec<ClusterSecond> {
        self.before.gutter_hits.resize(tallies.len(), 0);
        let mut all = Vec::new();
        for (at, now) in tallies.iter().enumerate() {
            let before = self.tallies.get(at);
            let since = |count: fn(&ClusterCounts) -> u64| count(now) - before.map_or(0, count);
            let hits = gutters.get(at).map_or(0, |stats| stats.number("get_hits"));
            let gutter_hits = hits.saturating_sub(self.before.gutter_hits[at]);
            if gutters.get(at).is_some_and(Stats::is_there) {
                self.before.gutter_hits[at] = hits;
            }
            all.push(ClusterSecond {
                reads: since(|tally| tally.reads),
                hits: since(|tally| tally.hits),
                failed: since(|tally| tally.failed_reads + tally.failed_writes),
                gutter_hits,
                stale_max_ms: ms(now.second_us.max()),
                stale_over_1s: over_1s(&now.second_us),
            });
        }
        all
    }

    fn region_second(&mut self, at: usize, invalidator: &Stats) -> RegionSecond {
        // Relaxed: counts for display.
        let queries = &self.load.queries[at];
        let now = (queries.reads.load(Ordering::Relaxed), queries.writes.load(Ordering::Relaxed));
        let then = std::mem::replace(&mut self.before.queries[at], now);
        let delivered: u64 = invalidator.all(":delivered").sum();
        let new = delivered.checked_sub(self.before.delivered[at]);
        if invalidator.is_there() {
            self.before.delivered[at] = delivered;
        }
        RegionSecond {
            queries: now.0 - then.0,
            writes: now.1 - then.1,
            behind_ms: if at == 0 { 0 } else { self.behind_ms.load(Ordering::Relaxed) },
            // A restarted invalidator counts from 0.
            delivered: if invalidator.is_there() { new.unwrap_or(delivered) } else { 0 },
            waiting: invalidator.all(":waiting").sum(),
            delivery_p99_ms: ms(invalidator.all(":delivery_us_p99").max().unwrap_or(0)),
        }
    }

    /// Stops users, ends every fault, waits until everything is delivered, and looks up every
    /// written key in every cluster: records the number of lookups, and of old values.
    pub(crate) async fn end(&mut self) -> Result<(u64, u64)> {
        self.load.end();
        for user in self.users.drain(..) {
            // It may be waiting for a database that is cut off.
            if tokio::time::timeout(Duration::from_secs(60), user).await.is_err() {
                bail!("a user does not end");
            }
        }
        self.deployment.heal().await?;
        self.tell("users are gone, and everything works again");
        crate::settle::delivered(&self.deployment, &self.load, &self.frontends).await?;
        let found = crate::settle::look_everywhere(&self.deployment, &self.load).await?;
        self.tell(format!(
            "everything is delivered: {} values looked up, {} of them old",
            found.0, found.1
        ));
        self.load.recorder.judge(true);
        self.tallies = self.load.recorder.second();
        Ok(found)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.watcher.abort();
        self.users.iter().for_each(JoinHandle::abort);
    }
}
