//! The canary: a change written by the invalidator every few seconds and followed through the
//! database's log, the visibility barrier and the routers into every cluster.
//!
//! ```text
//!     plant keys in every cluster -> write the row -> the log -> .. -> deletes, as for any row
//!            and read them back                                          |
//!     canary_seconds of the cluster  <- gone, by every router's word <---+
//! ```
//!
//! The pipeline knows only a rule that turns the row into keys. So a fault that keeps the
//! application's changes from a cluster also keeps the canary from it: a log that omits the table,
//! a barrier that never opens, a router that lies, a server that is cut off. Each beat has separate
//! keys, so a late delete proves only its own beat.

mod cluster;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use changes::canary_rule::CanaryRule;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use crate::change_source::CanaryWriter;
use crate::clock::system_now_us;
use crate::network::Network;
use crate::plan::Cluster;
use crate::stats::Stats;
use cluster::Order;

/// The wait for a router's answer is one part in this many of the interval.
const ANSWERS_IN_INTERVAL: u32 = 4;

/// Maximum number of orders queued while a cluster's task looks.
const ORDERS_MAX: usize = 4;

/// The parts of the canary.
#[derive(Debug)]
pub struct Canary<N, W> {
    /// Its row and its keys.
    pub rule: CanaryRule,
    /// The interval between two beats.
    pub every: Duration,
    /// The longest wait for a router.
    pub answer_within: Duration,
    /// The clusters, in the order of the statistics.
    pub clusters: Vec<Cluster>,
    /// Makes connections to routers.
    pub network: Arc<N>,
    /// Writes to the database.
    pub writer: W,
    /// Stores its age.
    pub stats: Arc<Stats>,
    /// Reports events to the operator.
    pub log: fn(&str),
    /// Reports the ages of the proofs each interval.
    pub tell: fn(&str),
}

impl<N: Network, W: CanaryWriter> Canary<N, W> {
    /// Writes and follows until the task is dropped.
    pub async fn run(mut self) {
        let within = self.answer_within.min(self.every / ANSWERS_IN_INTERVAL);
        let (mut tasks, mut orders) = (JoinSet::new(), Vec::new());
        for (index, cluster) in self.clusters.iter().enumerate() {
            let (sender, receiver) = mpsc::channel(ORDERS_MAX);
            let (network, stats) = (Arc::clone(&self.network), Arc::clone(&self.stats));
            let rule = self.rule.clone();
            let watched =
                cluster::Cluster::new(network, rule, &cluster.routers, within, stats, index);
            tasks.spawn(watched.run(receiver));
            orders.push(sender);
        }
        let (stats, every, log, tell) = (Arc::clone(&self.stats), self.every, self.log, self.tell);
        tasks.spawn(async move { report(&stats, every, log, tell).await });
        let mut ticks = interval(self.every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut last = 0;
        loop {
            ticks.tick().await;
            // A number that no earlier beat had, even in an earlier process.
            last = system_now_us().max(last + 1);
            self.beat(last, within, &orders).await;
        }
    }

    /// Plants, writes and makes every cluster look.
    async fn beat(&mut self, beat: u64, within: Duration, orders: &[mpsc::Sender<Order>]) {
        let mut planted = Vec::new();
        for cluster in orders {
            let (done, answer) = oneshot::channel();
            // A cluster that still works on earlier beats skips this one.
            if cluster.try_send(Order::Plant { beat, done }).is_ok() {
                planted.push(answer);
            }
        }
        let all = async {
            for answer in planted {
                // A task that has ended sends nothing.
                let _ = answer.await;
            }
        };
        // Clusters that take longer than a router may are left out.
        let _ = timeout(within * 2, all).await;
        let written = Instant::now();
        let wrote = timeout(self.every, self.writer.write(beat)).await;
        let refused = match wrote {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(format!("the canary's row cannot be written: {error}")),
            Err(_) => Some(format!("writing the canary's row took longer than {:?}", self.every)),
        };
        for cluster in orders {
            let order = match &refused {
                None => Order::Look { beat, written },
                Some(why) => Order::Forget { why: why.clone() },
            };
            // See above.
            let _ = cluster.try_send(order);
        }
    }
}

/// Reports when a canary is late, and when it no longer is.
async fn report(stats: &Stats, every: Duration, log: fn(&str), tell: fn(&str)) {
    let mut were_late = vec![false; stats.clusters.len()];
    let mut ticks = interval(every / 4);
    for tick in 0_u64.. {
        ticks.tick().await;
        for (cluster, was_late) in stats.clusters.iter().zip(&mut were_late) {
            let is_late = cluster.canary.is_late(every);
            if std::mem::replace(was_late, is_late) == is_late {
                continue;
            }
            let (name, age) = (&cluster.name, cluster.canary.age());
            if is_late {
                let why = cluster.canary.obstacle();
                log(&format!(
                    "warning: cluster {name}: no change is known to have arrived for {age:.1?}: {why}"
                ));
            } else {
                log(&format!("cluster {name}: changes arrive again"));
            }
        }
        if tick.is_multiple_of(4) {
            tell(&stats.canary_line());
        }
    }
}
