//! The loss of one server, until its items are back (the guide's "blast radius",
//! sections 5 and 6).

use serde::Serialize;

use crate::tier::Tier;

/// The server counts as filled when its hit ratio is this near to its former value.
const NEAR: f64 = 0.01;

/// Number of simulated steps of filling.
const STEPS: u32 = 1000;

/// The loss of one server at the peak.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Loss {
    /// Share of the items, and of the hot keys if they are many.
    pub share: f64,
    /// Additional reads of the database per second at once, without a gutter.
    pub database_reads: f64,
    /// Total reads of the database per second, as a share of its capacity; if that is known.
    pub database_used: Option<f64>,
    /// Share of the remaining servers' gets under the SLA that is used when they take over the
    /// load; `None` if no server remains.
    pub cpu_used: Option<f64>,
    /// Seconds until an empty server in its place is within 0.01 of the hit ratio.
    pub refill_secs: f64,
}

impl Tier<'_> {
    pub(crate) fn loss_of_one(&self, servers: f64, capacity: f64) -> Loss {
        let share = 1.0 / servers;
        let extra = self.demand.peak * self.hits.ratio * share;
        let reads = self.hits.database_reads.1 + extra;
        Loss {
            share,
            database_reads: extra,
            database_used: self.input.database.map(|database| reads / database.reads_per_second),
            cpu_used: (servers > 1.0).then(|| self.demand.peak / capacity / (servers - 1.0)),
            refill_secs: self.refill_secs(servers),
        }
    }

    /// An empty server is filled by its own misses: each stores an item. Its hit ratio with this
    /// part of its memory filled is that of a tier with the same part of all memory.
    fn refill_secs(&self, servers: f64) -> f64 {
        let gets = self.demand.peak / servers;
        let step = self.hits.memory_bytes / servers / f64::from(STEPS);
        let items_of_a_step = step / self.items.item_bytes;
        let goal = self.hits.ratio - NEAR;
        let mut secs = 0.0;
        for number in 0..STEPS {
            let filled = step * (f64::from(number) + 0.5) * servers;
            let ratio = self.curve.hit_ratio(filled);
            if ratio >= goal {
                break;
            }
            secs += items_of_a_step / (gets * (1.0 - ratio));
        }
        secs
    }
}
