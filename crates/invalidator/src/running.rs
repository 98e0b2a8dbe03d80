//! `holdall invalidate run`: the pipeline with its status port, canary, signals and, in a group,
//! the wait for its turn.
//!
//! Relaxed is enough for the atomics here: they only inform people and carry no other data.

use std::ffi::OsString;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc;
use std::time::Duration;

use metrics::supervisor::{self, Watchdog};
use telemetry::Exporter;
use tokio::pin;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::canary::Canary;
use crate::change_source::{CanaryWriter, ChangeSource};
use crate::checkpoint::{self, KeptFile};
use crate::config::{Config, Kind};
use crate::disk_queue::SpoolFolder;
use crate::ended::Ended;
use crate::export::telemetry;
use crate::message::{Failure, Refusal, log};
use crate::network::Routers;
use crate::pipeline::{self, Since, World, system_now_us};
use crate::plan::Plan;
use crate::reload::Reload;
use crate::restart_on_panic::{Start, restart_on_panic};
use crate::signals::Signals;
use crate::source::lines::LinesSource;
use crate::source::mysql::{self, MysqlCanary, MysqlLock, MysqlSource};
use crate::source::postgres::{self, PostgresCanary, PostgresLock, PostgresSource};
use crate::standby::{GroupLock, LockSession, Member};
use crate::stats::Stats;
use crate::{status, status_socket};

/// The time limit for tasks of an earlier turn to release the spool.
const RELEASED_MAX: Duration = Duration::from_secs(5);

/// The time within which a live runtime starts a task.
const TURN_PATIENCE: Duration = Duration::from_secs(5);

/// The parts made from the configuration for each turn of work.
struct Parts<M, C, L: LockSession> {
    /// Makes the source.
    source: M,
    /// Makes the canary's writer, if there is a canary.
    canary: C,
    /// The group's lock, if there is a group.
    lock: Option<GroupLock<L>>,
}

/// Follows the log until a signal or a fault ends it.
///
/// Returns the arguments of the process that continues with the new configuration, if SIGHUP
/// requested one.
///
/// # Errors
///
/// The reason, unless a signal ended it.
pub(crate) async fn run(
    config: &Config,
    since: Since,
    start: Start,
    signals: Signals,
) -> Result<Option<Vec<OsString>>, Failure> {
    let plan = config.plan()?;
    let canary = config.canary().zip(plan.rules.canary.clone());
    let group = config.group();
    match config.source.kind {
        Kind::MariaDb | Kind::MySql => {
            let settings = config.mysql()?;
            let lock =
                group.map(|group| GroupLock::new(settings.clone(), &settings.servers, &group.name));
            let writer = || {
                canary.clone().map(|((every, servers), rule)| {
                    let settings = mysql::Settings { servers, ..settings.clone() };
                    (every, MysqlCanary::new(settings, rule, plan.rules.comments))
                })
            };
            let source = |_: &Since| MysqlSource::new(settings.clone(), plan.rules.clone());
            let parts: Parts<_, _, MysqlLock> = Parts { source, canary: writer, lock };
            follow(config, parts, since, start, signals).await
        }
        Kind::Postgresql => {
            let settings = config.postgres()?;
            let lock =
                group.map(|group| GroupLock::new(settings.clone(), &settings.servers, &group.name));
            let writer = || {
                canary.clone().map(|((every, servers), rule)| {
                    let settings = postgres::Settings { servers, ..settings.clone() };
                    (every, PostgresCanary::new(settings, rule))
                })
            };
            let source = |since: &Since| {
                // A position named by the user takes precedence.
                let is_shared = settings.is_shared && matches!(since, Since::Checkpoint);
                let settings = postgres::Settings { is_shared, ..settings.clone() };
                PostgresSource::new(settings, plan.rules.clone())
            };
            let parts: Parts<_, _, PostgresLock> = Parts { source, canary: writer, lock };
            follow(config, parts, since, start, signals).await
        }
        Kind::Ndjson | Kind::Debezium => {
            let settings = config.lines();
            let source = |_: &Since| LinesSource::new(settings.clone());
            let writer = || None::<(Duration, MysqlCanary)>;
            let parts: Parts<_, _, MysqlLock> = Parts { source, canary: writer, lock: None };
            follow(config, parts, since, start, signals).await
        }
    }
}

/// Starts to export metrics to an OpenTelemetry collector, if one is named. On drop, it sends the
/// last numbers.
fn export(config: &Config, stats: &Arc<Stats>) -> Result<Option<Exporter>, Failure> {
    let Some(telemetry) = telemetry(config)? else { return Ok(None) };
    stats.export_counts.get_or_init(|| Arc::clone(telemetry.export_counts()));
    let stats = Arc::clone(stats);
    Ok(Some(telemetry.start(move || stats.page(system_now_us()), log)?))
}

async fn follow<S, W, M, C, L>(
    config: &Config,
    parts: Parts<M, C, L>,
    since: Since,
    start: Start,
    signals: Signals,
) -> Result<Option<Vec<OsString>>, Failure>
where
    S: ChangeSource + 'static,
    W: CanaryWriter + 'static,
    M: Fn(&Since) -> S,
    C: Fn() -> Option<(Duration, W)>,
    L: LockSession,
{
    let plan = config.plan()?;
    config.refuse_left_over().map_err(|fault| Refusal::of_configuration(&fault.to_string()))?;
    let network = Arc::new(config.network()?);
    let stats = Arc::new(Stats::new(plan.clusters.iter().map(|cluster| cluster.name.clone())));
    stats.panics.store(start.before.panics, Relaxed);
    if let Some(group) = config.group() {
        stats.group.get_or_init(|| group.name);
    }
    let listener = status_socket::listen(config.status.as_deref()).await.map_err(|error| {
        Refusal::of_address(config.status.as_deref().unwrap_or_default(), error)
    })?;
    if let Some(listener) = listener {
        let pages = status::Status { stats: Arc::clone(&stats), now_us: system_now_us };
        tokio::spawn(metrics::serve(listener, Arc::new(pages)));
    }
    let _exporter = export(config, &stats)?;
    let keep = Arc::new(KeptFile(config.checkpoint.clone()));
    let is_ending = Arc::new(AtomicBool::new(false));
    restart_on_panic(start.clone(), Arc::clone(&stats), Arc::clone(&is_ending), log);
    let _watchdog = tell_supervisor(Arc::clone(&stats))?;
    let is_reloading = Arc::new(AtomicBool::new(false));
    let reload = Reload {
        running: config.clone(),
        path: start.config.clone(),
        on_gap: start.on_gap.clone(),
        has_console: start.console.is_some(),
        stats: Arc::clone(&stats),
        is_reloading: Arc::clone(&is_reloading),
    };
    let stop = signals.stop(is_ending, reload);
    let successor = {
        let stats = Arc::clone(&stats);
        move || start.arguments(start.before, stats.checkpoints.load(Relaxed) > 0)
    };
    let turns = Turns { config, plan, network, keep, stats, stop };
    let Parts { source, canary, lock } = parts;
    if let Some((group, lock)) = config.group().zip(lock) {
        let mut member = Member {
            group,
            lock,
            source: turns.plan.name.clone(),
            keep: Arc::clone(&turns.keep),
            stats: Arc::clone(&turns.stats),
            log,
        };
        turns.take(&mut member, source, canary, since).await?;
    } else {
        turns.work(source(&since), canary(), since).await?;
    }
    Ok(is_reloading.load(Relaxed).then(successor))
}

/// The state that all turns of one process share.
struct Turns<'c> {
    config: &'c Config,
    plan: Plan,
    network: Arc<Routers>,
    keep: Arc<KeptFile>,
    stats: Arc<Stats>,
    stop: watch::Receiver<bool>,
}

impl Turns<'_> {
    /// Works once, until something ends it.
    async fn work(
        &self,
        source: impl ChangeSource + 'static,
        canary: Option<(Duration, impl CanaryWriter + 'static)>,
        since: Since,
    ) -> Result<(), Failure> {
        let (disk_queues, damage) = self.config.disk_queues(&self.lost_spools())?;
        damage.iter().for_each(|line| log(&format!("warning: {line}")));
        Ok(self.pipeline(source, canary, since, disk_queues, self.stop.clone()).await?)
    }

    /// Works whenever this invalidator has the group's lock, and otherwise waits.
    async fn take<S, W, L>(
        &self,
        member: &mut Member<L, KeptFile>,
        source: impl Fn(&Since) -> S,
        canary: impl Fn() -> Option<(Duration, W)>,
        mut since: Since,
    ) -> Result<(), Failure>
    where
        S: ChangeSource + 'static,
        W: CanaryWriter + 'static,
        L: LockSession,
    {
        let mut stop = self.stop.clone();
        loop {
            self.rest();
            let has_waited = tokio::select! {
                waited = member.wait() => waited.map_err(Ended::from)?,
                _ = stop.wait_for(|stop| *stop) => return Ok(()),
            };
            let has_checkpoint = checkpoint::read(self.keep.as_ref(), &self.plan.name)?.is_some();
            if since == Since::Checkpoint && has_waited && !has_checkpoint {
                since = Since::Unknown;
            }
            let disk_queues = self.disk_queues().await?;
            self.stats.is_working.store(true, Relaxed);
            let (ask, asked) = watch::channel(false);
            let made = source(&since);
            let run = self.pipeline(made, canary(), since, disk_queues, asked);
            pin!(run);
            let (ended, is_lost) = tokio::select! {
                ended = &mut run => (ended, false),
                () = member.until_lost() => {
                    // The receiver exists until `run` has ended.
                    let _ = ask.send(true);
                    (run.await, true)
                }
                _ = stop.wait_for(|stop| *stop) => {
                    // See above.
                    let _ = ask.send(true);
                    (run.await, false)
                }
            };
            if let Err(Ended::Lacking(_)) = &ended {
                member.announce_missing_changes().await;
            }
            ended?;
            if !is_lost {
                return Ok(());
            }
            // The request on the command line was fulfilled.
            since = Since::Checkpoint;
        }
    }

    async fn pipeline(
        &self,
        source: impl ChangeSource + 'static,
        canary: Option<(Duration, impl CanaryWriter + 'static)>,
        since: Since,
        disk_queues: Vec<Option<SpoolFolder>>,
        stop: watch::Receiver<bool>,
    ) -> Result<(), Ended> {
        let (network, keep) = (Arc::clone(&self.network), Arc::clone(&self.keep));
        let key_files = self.config.key_files();
        let world = World { network, keep, disk_queues, key_files, log };
        let canary = canary.and_then(|(every, writer)| self.start_canary(every, writer));
        let (plan, stats) = (self.plan.clone(), Arc::clone(&self.stats));
        let ended = pipeline::run(source, plan, since, world, stats, stop).await;
        if let Some(canary) = canary {
            canary.abort();
        }
        ended
    }

    /// Another invalidator works from now on, or will soon.
    fn rest(&self) {
        self.stats.is_working.store(false, Relaxed);
        self.stats.source_connected.store(false, Relaxed);
        self.stats.delivered_position.lock().clear();
        *self.stats.last_check.lock() = None;
        self.stats.clusters.iter().for_each(|cluster| cluster.rest());
        supervisor::status("waits: another invalidator of its group works");
    }

    /// The clusters with deletes on the disk, by the checkpoint, whose files were removed.
    fn lost_spools(&self) -> Vec<String> {
        // A checkpoint that cannot be used is reported where its position is needed.
        let kept = checkpoint::read(self.keep.as_ref(), &self.plan.name).ok().flatten();
        kept.map(|kept| self.config.removed_spools(kept.spooled)).unwrap_or_default()
    }

    /// The spool's folders, which tasks of the last turn may still hold briefly.
    async fn disk_queues(&self) -> Result<Vec<Option<SpoolFolder>>, Failure> {
        let end = Instant::now() + RELEASED_MAX;
        let lost = self.lost_spools();
        loop {
            match self.config.disk_queues(&lost) {
                Ok((disk_queues, damage)) => {
                    damage.iter().for_each(|line| log(&format!("warning: {line}")));
                    return Ok(disk_queues);
                }
                Err(fault) if Instant::now() >= end => return Err(fault.into()),
                Err(_) => sleep(Duration::from_millis(50)).await,
            }
        }
    }

    fn start_canary(
        &self,
        every: Duration,
        writer: impl CanaryWriter + 'static,
    ) -> Option<JoinHandle<()>> {
        let rule = self.plan.rules.canary.clone()?;
        self.stats.canary_every.get_or_init(|| every);
        self.stats.clusters.iter().for_each(|cluster| cluster.canary.begin());
        let canary = Canary {
            rule,
            every,
            answer_within: self.plan.limits.answer_within,
            clusters: self.plan.clusters.clone(),
            network: Arc::clone(&self.network),
            writer,
            stats: Arc::clone(&self.stats),
            log,
            tell: supervisor::status,
        };
        Some(tokio::spawn(canary.run()))
    }
}

/// Reports to systemd that the process runs, and then regularly that its runtime works and changes
/// arrive. An unavailable database or cluster is no reason for a restart.
fn tell_supervisor(stats: Arc<Stats>) -> Result<Watchdog, Failure> {
    if let Err(error) = supervisor::ready(false) {
        log(&format!("warning: the service manager was not told: {error}"));
    }
    let runtime = tokio::runtime::Handle::current();
    Ok(Watchdog::start(None, move || {
        let (turned, turns) = mpsc::channel();
        runtime.spawn(async move {
            let _ = turned.send(());
        });
        turns.recv_timeout(TURN_PATIENCE).is_ok() && !stats.is_stuck()
    })
    .map_err(|error| format!("no watchdog thread: {error}"))?)
}
