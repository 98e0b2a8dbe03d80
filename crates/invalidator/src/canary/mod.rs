//! The canary: a change of our own, written every few seconds and followed through the database's
//! log, the visibility barrier and the routers into every cluster.
//!
//! ```text
//!     plant keys in every cluster -> write the row -> the log -> .. -> deletes, as for any row
//!            and read them back                                          |
//!     canary_seconds of the cluster  <- gone, by every router's word <---+
//! ```
//!
//! The pipeline knows of it no more than a rule that turns the row into keys. So whatever keeps
//! changes of the application from a cluster keeps the canary from it, too: a log that leaves the
//! table out, a barrier that never opens, a router that lies, a server that is cut off. Each beat
//! has keys of its own, so a delete that comes late proves no more than the beat that it is for.

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

/// A router's answer is waited for one part in this many of the interval.
const ANSWERS_IN_INTERVAL: u32 = 4;

/// Orders to a cluster that may wait while it looks.
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
    /// Keeps its age.
    pub stats: Arc<Stats>,
    /// Says what happens to who operates it.
    pub log: fn(&str),
    /// Says each interval how old the proofs are.
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
            // A number that no earlier beat had, also of a process before this one.
            last = system_now_us().max(last + 1);
            self.beat(last, within, &orders).await;
        }
    }

    /// Plants, writes and has every cluster look.
    async fn beat(&mut self, beat: u64, within: Duration, orders: &[mpsc::Sender<Order>]) {
        let mut planted = Vec::new();
        for cluster in orders {
            let (done, answer) = oneshot::channel();
            // A cluster that is not done with the beats before leaves this one out.
            if cluster.try_send(Order::Plant { beat, done }).is_ok() {
                planted.push(answer);
            }
        }
        let all = async {
            for answer in planted {
                // A task that has ended says nothing.
                let _ = answer.await;
            }
        };
        // Without those that take longer than a router may.
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

/// Says when a canary is late, and when it is not any more.
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
                    "cluster {name}: no change is known to have arrived for {age:.1?}: {why}"
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
