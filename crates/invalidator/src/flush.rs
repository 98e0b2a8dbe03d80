//! `holdall invalidate flush`: empties clusters at once, without a log.

use std::fmt::{self, Write as _};

use bytes::Bytes;
use changes::keys::is_plain;
use tokio::io::BufStream;
use tokio::time::timeout;

use crate::batch;
use crate::delivery::Flush;
use crate::network::Network;
use crate::plan::{Cluster, Plan};

/// The reason why not every cluster was emptied.
#[derive(Debug, thiserror::Error)]
pub enum FlushError {
    /// The configuration has no cluster of this name.
    #[error("there is no cluster '{0}'")]
    UnknownCluster(String),
    /// No key can start with this.
    #[error("'{0}' cannot be the beginning of a key")]
    NotAPrefix(String),
    /// Some clusters failed: one line per cluster.
    #[error("{0}")]
    Incomplete(String),
}

/// The failures of all routers of a cluster; none for a router that did not answer in time.
#[derive(Debug)]
struct NoRouter(Vec<(String, Option<batch::BatchError>)>);

impl fmt::Display for NoRouter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (router, error)) in self.0.iter().enumerate() {
            let before = if at == 0 { "" } else { "; " };
            match error {
                Some(error) => write!(f, "{before}{router}: {error}")?,
                None => write!(f, "{before}{router}: no answer")?,
            }
        }
        Ok(())
    }
}

/// Empties the named clusters (all if none is named) of keys that start with any of these prefixes
/// (of everything without one). Returns one line per cluster.
///
/// # Errors
///
/// When a name or prefix is invalid, or a cluster refused; the others are emptied even then.
pub async fn now(
    network: &impl Network,
    plan: &Plan,
    prefixes: &[String],
    clusters: &[String],
) -> Result<String, FlushError> {
    let is_known = |name: &&String| !plan.clusters.iter().any(|cluster| cluster.name == **name);
    if let Some(name) = clusters.iter().find(is_known) {
        return Err(FlushError::UnknownCluster(name.clone()));
    }
    let is_prefix =
        |prefix: &String| (1..=250).contains(&prefix.len()) && is_plain(prefix.as_bytes());
    if let Some(prefix) = prefixes.iter().find(|prefix| !is_prefix(prefix)) {
        return Err(FlushError::NotAPrefix(prefix.clone()));
    }
    let flush = if prefixes.is_empty() {
        Flush::All
    } else {
        let bytes = |prefix: &String| Bytes::copy_from_slice(prefix.as_bytes());
        Flush::Prefixes(prefixes.iter().map(bytes).collect())
    };
    let (mut text, mut has_failed) = (String::new(), false);
    for cluster in &plan.clusters {
        if !clusters.is_empty() && !clusters.contains(&cluster.name) {
            continue;
        }
        let done = one(network, plan, cluster, &flush).await;
        has_failed |= done.is_err();
        let said = done.map_or_else(|why| format!("not flushed: {why}"), |()| "flushed".to_owned());
        let _ = writeln!(text, "{}: {said}", cluster.name);
    }
    if has_failed {
        text.truncate(text.trim_end().len());
        Err(FlushError::Incomplete(text))
    } else {
        Ok(text)
    }
}

/// Uses the first router that executes it.
async fn one(
    network: &impl Network,
    plan: &Plan,
    cluster: &Cluster,
    flush: &Flush,
) -> Result<(), NoRouter> {
    let mut failures = Vec::new();
    for router in &cluster.routers {
        let asked = async {
            let mut wire =
                BufStream::new(network.dial(router).await.map_err(batch::BatchError::from)?);
            batch::flush(&mut wire, flush).await
        };
        match timeout(plan.limits.answer_within, asked).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => failures.push((router.clone(), Some(error))),
            Err(_) => failures.push((router.clone(), None)),
        }
    }
    Err(NoRouter(failures))
}
