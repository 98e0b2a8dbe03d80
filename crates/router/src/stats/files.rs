//! mcrouter's files of statistics:
//! `libmcrouter.mcrouter.PORT.{stats,startup_options,config_sources_info}`, in JSON.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use routeconf::FileSources;
use serde_json::{Map, Number, Value};
use thiserror::Error;
use upstream::PoolCounts;
use upstream::{Place, Registry};

use crate::config_info::pretty;
use crate::options::{Options, Validate};
use crate::shared::Shared;
use crate::stats::mean;
use files::{Readers, make_folder, put};

/// The results of requests to pools, by pool name.
pub(crate) type Counted = BTreeMap<String, Arc<PoolCounts>>;

/// The reason why the files cannot be written.
#[derive(Debug, Error)]
#[error("{}: {fault}", path.display())]
pub(crate) struct FilesError {
    path: PathBuf,
    fault: Fault,
}

#[derive(Debug, Error)]
enum Fault {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error("it has no list 'stats_enabled_pools'")]
    NoList,
}

/// The place of the files, and their content in addition to `stats ods`.
#[derive(Debug)]
pub(crate) struct Files {
    folder: PathBuf,
    /// The pools in them.
    pools: Counted,
}

impl Files {
    /// According to the options; `None` if they name none. It makes the folder.
    ///
    /// # Errors
    ///
    /// The folder or file that cannot be made or read.
    pub(crate) fn open(options: &Options) -> Result<Option<Self>, FilesError> {
        // A check of the configuration writes no files.
        let is_wanted = options.validate_config != Some(Validate::Exit)
            && !options.test_mode
            && options.stats_logging_interval > 0;
        let Some(folder) = options.stats_root.clone().filter(|_| is_wanted) else {
            return Ok(None);
        };
        let wrong = |path: &Path, fault| FilesError { path: path.to_owned(), fault };
        make_folder(&folder, Readers::All).map_err(|error| wrong(&folder, error.into()))?;
        let pools = options.pool_stats_config_file.as_deref();
        let pools = pools.map(|path| pools_in(path).map_err(|fault| wrong(path, fault)));
        let pools = pools.transpose()?;
        Ok(Some(Self { folder, pools: pools.unwrap_or_default() }))
    }

    /// The pools in the files.
    pub(crate) const fn pools(&self) -> &Counted {
        &self.pools
    }

    /// Writes the files again.
    ///
    /// # Errors
    ///
    /// The system's error.
    pub(crate) fn write(&self, shared: &Shared) -> io::Result<()> {
        let prefix = &format!("libmcrouter.mcrouter.{}", shared.listeners.first_port);
        let put = |name: &str, text: &str| self.put(&format!("{prefix}.{name}"), text);
        put("startup_options", &pretty(startup_options(&shared.options)))?;
        put("config_sources_info", &shared.current().info.sources)?;
        let lines = shared.lines();
        let numbers = lines.ods().filter_map(|(name, value)| {
            let number: Number = value.parse().ok()?;
            Some((format!("{prefix}.{name}"), Value::Number(number)))
        });
        let pools = self.of_pools(&shared.registry, prefix);
        put("stats", &pretty(numbers.chain(pools).collect()))
    }

    /// Replaces a file atomically: readers see the whole new one, or the old one.
    fn put(&self, name: &str, text: &str) -> io::Result<()> {
        put(&self.folder.join(name), &format!("{text}\n"), Readers::All)
    }

    fn of_pools(&self, registry: &Registry, prefix: &str) -> Vec<(String, Value)> {
        let (times, reports) = (registry.latencies(), registry.report());
        let mut found = Vec::new();
        for (pool, counts) in &self.pools {
            let of_pool = |place: &&Place| *place.pool == **pool;
            let (mut answers, mut us) = (0, 0.0);
            for place in times.keys().filter(of_pool) {
                let Some(one) = times.get(place) else { continue };
                answers += one.len();
                us += one.mean() * one.len() as f64;
            }
            let servers = times.keys().filter(of_pool);
            let connections: u64 = servers
                .flat_map(|place| reports.iter().filter(|one| one.address == place.server))
                .map(|report| report.totals.connected)
                .sum();
            let duration_us = if answers == 0 { 0.0 } else { us / answers as f64 };
            let name = |what: &str| format!("{prefix}.{pool}.{what}");
            // Relaxed: counts, which order nothing else.
            let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
            let total_us = mean(read(&counts.total_us), read(&counts.replied));
            found.push((name("requests.sum"), read(&counts.asked).into()));
            found.push((name("final_result_error.sum"), read(&counts.failed).into()));
            found.push((name("total_duration_us.avg"), total_us.into()));
            found.push((name("connections"), connections.into()));
            found.push((name("duration_us.avg"), duration_us.into()));
        }
        found
    }
}

fn startup_options(options: &Options) -> Map<String, Value> {
    let values = options.values().into_iter();
    let mut map: Map<String, Value> =
        values.map(|(name, value)| (name.to_owned(), value.into())).collect();
    map.insert("pid".to_owned(), std::process::id().to_string().into());
    map
}

/// `{"stats_enabled_pools": ["A", "B"]}`
fn pools_in(path: &Path) -> Result<Counted, Fault> {
    let value: Value = serde_json::from_str(&FileSources::read_path(path)?)?;
    let pools = value.get("stats_enabled_pools").and_then(Value::as_array);
    let pools = pools.ok_or(Fault::NoList)?.iter().filter_map(Value::as_str);
    Ok(pools.map(|pool| (pool.to_owned(), Arc::default())).collect())
}
