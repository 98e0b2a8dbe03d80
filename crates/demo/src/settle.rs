//! The end of a run: waits until everything is delivered; then no cache may show an old value.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use client::Client;
use staleness::{Read, Shown};
use tokio::time::sleep;

use crate::database::{Session, TABLES};
use crate::deployment::Deployment;
use crate::load::{Frontend, Load, version_of};
use crate::stats;

/// The time limit for delivering everything.
const DELIVERED_MAX: Duration = Duration::from_secs(180);

/// The time after which the last delete has been sent a second time.
const REPEATED: Duration = Duration::from_millis(1500);

/// The time limit of an answer, generous for slow machines.
const ANSWER_MAX: Duration = Duration::from_secs(60);

/// Keys per request.
const BATCH: usize = 200;

/// Waits until all writes have reached every cluster: a mark that is written last is gone from
/// each, no invalidator has waiting deletes, and no router has any in its spool.
pub(crate) async fn delivered(
    deployment: &Deployment,
    load: &Load,
    frontends: &[Arc<Frontend>],
) -> Result<()> {
    let end = Instant::now() + DELIVERED_MAX;
    let mark = load.shape.keys() - 1;
    let name = load.shape.name(mark);
    for frontend in frontends {
        while frontend.client.set(&name, "1 mark", 0).await.is_err() {
            give_up(end, "does not take a value", frontend)?;
            sleep(Duration::from_millis(20)).await;
        }
    }
    write_mark(deployment, load, mark).await?;
    for frontend in frontends {
        while !matches!(frontend.client.get(&name).await, Ok(None)) {
            give_up(end, "still has what was written last", frontend)?;
            sleep(Duration::from_millis(20)).await;
        }
    }
    let of_regions = deployment.regions.iter();
    let invalidators: Vec<SocketAddr> = of_regions
        .clone()
        .filter_map(|region| Some(region.invalidator.as_ref()?.address))
        .collect();
    let routers: Vec<SocketAddr> = of_regions
        .flat_map(|region| region.clusters.iter().map(|cluster| cluster.router.address))
        .collect();
    for (addresses, number) in [
        (&invalidators, "waiting"),
        (&invalidators, "spool_records"),
        (&routers, "asynclog_pending"),
    ] {
        loop {
            let all = stats::ask(addresses).await;
            let is_done =
                |stats: &stats::Stats| stats.is_there() && stats.all(number).sum::<u64>() == 0;
            if all.iter().all(is_done) {
                break;
            }
            if Instant::now() > end {
                bail!("deletes still wait: {number}");
            }
            sleep(Duration::from_millis(50)).await;
        }
    }
    sleep(REPEATED).await;
    Ok(())
}

fn give_up(end: Instant, what: &str, frontend: &Frontend) -> Result<()> {
    if Instant::now() > end {
        bail!("{} {what}", frontend.name);
    }
    Ok(())
}

/// Writes the mark like a user's write, with a key that no user reads.
async fn write_mark(deployment: &Deployment, load: &Load, mark: u64) -> Result<()> {
    let (table, id) = load.shape.row(mark);
    let mut session = Session::new(deployment.master_options(0));
    let version = load.next_version(mark).await;
    session.write(TABLES[table], id, version).await
}

/// Looks up every written key in every cache server, bypassing the routers; returns the number of
/// found values, and of old ones. The gutter is left out: its items, kept for ten seconds, are
/// requested only while a server is down.
pub(crate) async fn look_everywhere(deployment: &Deployment, load: &Load) -> Result<(u64, u64)> {
    let keys = load.written().await;
    let (mut found, mut old) = (0, 0);
    for region in &deployment.regions {
        let of_clusters = region.clusters.iter().flat_map(|cluster| &cluster.servers);
        for server in of_clusters.chain(&region.regional) {
            let address = server.address.to_string();
            let client = Client::builder().servers([address]).timeout(ANSWER_MAX).build();
            let client = client.map_err(|error| anyhow::anyhow!("{error}"))?;
            for keys in keys.chunks(BATCH) {
                for (is_found, is_old) in look(load, &client, keys).await? {
                    found += u64::from(is_found);
                    old += u64::from(is_old);
                }
            }
        }
    }
    Ok((found, old))
}

/// For each key: true if it is cached, and true if the value is old.
async fn look(load: &Load, client: &Client, keys: &[u64]) -> Result<Vec<(bool, bool)>> {
    let recorder = &load.recorder;
    let called = recorder.now();
    let names: Vec<String> = keys.iter().map(|key| load.shape.name(*key)).collect();
    let values = client.get_many(&names).await.map_err(|error| anyhow::anyhow!("{error}"))?;
    let returned = recorder.now();
    let judged = keys.iter().zip(values).map(|(key, value)| {
        let value = value.map_err(|error| anyhow::anyhow!("a server does not answer: {error}"))?;
        let Some(value) = value else { return Ok((false, false)) };
        let read = Read { cluster: 0, key: *key, called, returned, version: version_of(value) };
        Ok((true, recorder.look(&read) != Shown::Stale(0)))
    });
    judged.collect()
}
