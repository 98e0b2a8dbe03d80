//! The effect of SIGHUP: a new process continues with the current configuration, unless it could
//! not start or would lose changes.
//!
//! Relaxed is enough for the flag and the numbers here: they carry no other data.

use std::fmt::Display;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use clap::ValueEnum as _;
use metrics::supervisor;
use tokio::time::timeout;

use crate::change_source::SourceError;
use crate::checkpoint::{self, KeptFile};
use crate::config::{Config, Gap, Kind};
use crate::delivery::OnGap;
use crate::export::telemetry;
use crate::message::{Failure, log};
use crate::source::mysql::MysqlSource;
use crate::source::postgres::PostgresSource;
use crate::stats::Stats;
use crate::status_socket;

/// The time limit for the database's answers. The new process waits for a server that is silent.
const DATABASE_MAX: Duration = Duration::from_secs(10);

/// The running configuration, and everything that decides whether another one can replace it.
#[derive(Debug)]
pub(crate) struct Reload {
    /// The configuration of this process.
    pub(crate) running: Config,
    /// The configuration file.
    pub(crate) path: PathBuf,
    /// `--on-gap`, which the new process receives, too.
    pub(crate) on_gap: Option<String>,
    /// True with `--console`.
    pub(crate) has_console: bool,
    /// The numbers of this process.
    pub(crate) stats: Arc<Stats>,
    /// Set when the end is requested to make place for a new process.
    pub(crate) is_reloading: Arc<AtomicBool>,
}

impl Reload {
    /// Checks the configuration. True if a new process may replace this one; otherwise, nothing
    /// changes.
    pub(crate) async fn begin(&self) -> bool {
        if let Err(why) = self.check().await {
            log(&format!("warning: SIGHUP: the configuration stays as it was: {why}"));
            return false;
        }
        log("SIGHUP: restarting with the new configuration at the saved position");
        supervisor::reloading();
        self.is_reloading.store(true, Relaxed);
        true
    }

    /// The process ends for another reason.
    pub(crate) fn cancel(&self) {
        self.is_reloading.store(false, Relaxed);
    }

    /// Refuses what the new process would refuse, as far as this is known before.
    async fn check(&self) -> Result<(), String> {
        let next = self.read().map_err(text)?;
        let (own, wanted) = (places(&self.running), places(&next));
        for (now, then) in own.iter().zip(&wanted) {
            let Some(address) = then.as_deref().filter(|_| now != then) else { continue };
            let free = status_socket::can_listen(address, &own).await;
            free.map_err(|error| format!("cannot listen on {address}: {error}"))?;
        }
        // A server that cannot be reached does not end the new process.
        match timeout(DATABASE_MAX, rehearse(&next)).await {
            Ok(Err(
                error @ (SourceError::Wrong(_) | SourceError::Lacking(_) | SourceError::Purged(_)),
            )) => Err(text(error)),
            _ => Ok(()),
        }
    }

    /// The new configuration, unless its files or folders cannot be used.
    fn read(&self) -> Result<Config, Failure> {
        let mut next = Config::read(&self.path)?;
        for config in [&self.running, &next] {
            if config.source.is_lines() && config.lines().listen.is_none() {
                return Err("lines on stdin cannot be read again".into());
            }
        }
        if let Some(gap) = &self.on_gap {
            let gap = Gap::from_str(gap, false)?;
            next.override_gap(gap).map_err(|why| format!("--on-gap: {why}"))?;
        }
        if self.has_console && next.status.is_none() {
            return Err("--console needs the status port: status = \"127.0.0.1:11290\"".into());
        }
        next.plan()?;
        next.network()?;
        telemetry(&next)?;
        let clusters = self.stats.clusters.iter();
        let waiting: Vec<_> = clusters.map(|cluster| cluster.spool_records.load(Relaxed)).collect();
        self.running.refuse_successor(&next, &waiting)?;
        checkpoint::read(&KeptFile(next.checkpoint.clone()), &next.source.name)?;
        match next.source.kind {
            Kind::MariaDb | Kind::MySql => drop(next.mysql()?),
            Kind::Postgresql => drop(next.postgres()?),
            Kind::Ndjson | Kind::Debezium => {}
        }
        Ok(next)
    }
}

fn text(why: impl Display) -> String {
    why.to_string()
}

/// The addresses at which an invalidator of this configuration listens.
fn places(config: &Config) -> [Option<String>; 2] {
    [config.status.clone(), config.lines().listen]
}

/// Asks the database whether its log can be followed from the checkpoint.
async fn rehearse(next: &Config) -> Result<(), SourceError> {
    let wrong = |why: &dyn Display| SourceError::Wrong(why.to_string());
    let plan = next.plan().map_err(|why| wrong(&why))?;
    let keep = KeptFile(next.checkpoint.clone());
    let kept = checkpoint::read(&keep, &next.source.name).map_err(|why| wrong(&why))?;
    let from = kept.as_ref().map(|kept| &kept.position);
    let rehearsed = match next.source.kind {
        Kind::MariaDb | Kind::MySql => {
            let settings = next.mysql().map_err(|why| wrong(&why))?;
            MysqlSource::new(settings, plan.rules).rehearse(from).await
        }
        Kind::Postgresql => {
            let settings = next.postgres().map_err(|why| wrong(&why))?;
            PostgresSource::new(settings, plan.rules).rehearse(from).await
        }
        Kind::Ndjson | Kind::Debezium => Ok(()),
    };
    match rehearsed {
        // The new process flushes the clusters and goes on.
        Err(SourceError::Purged(_)) if plan.on_gap != OnGap::Stop => Ok(()),
        rehearsed => rehearsed,
    }
}
