//! The operators' view over HTTP (`--metrics`): the server's numbers for Prometheus, and its
//! health.
//!
//! ```text
//!     Endpoint -> Status -> admin::stats (the same groups that `stats` answers) -> Page
//! ```
//!
//! The endpoint's thread reads every value on request. The numbers are those of `stats`, so an
//! exporter next to the server agrees with this page.

mod exporter;
mod numbers;
mod own;
mod samples;
mod subjects;

use std::fmt;
use std::sync::Arc;

use metrics::{Check, Health, Kind, Page, Pages, Turns};
use net::Control;

use crate::admin::Context;
use crate::shared::Shared;
use numbers::Numbers;

/// The view of a running server.
pub(crate) struct Status {
    shared: Arc<Shared>,
    control: Control,
    health: Arc<Health>,
    turns: Turns,
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Status").field("health", &self.health).finish_non_exhaustive()
    }
}

impl Status {
    /// The view of a server whose workers run.
    pub(crate) fn new(shared: Arc<Shared>, control: Control, health: Arc<Health>) -> Self {
        Self { shared, control, health, turns: Turns::default() }
    }

    /// Checks that every worker turns. Wakes them for the next check.
    pub(crate) fn workers(&self) -> Check {
        let check = self.turns.look(&self.control.turns());
        self.control.wake();
        check
    }

    fn accepting(&self) -> Check {
        let stats = self.control.stats();
        let max = self.shared.connections_max() as u64;
        let has_room = stats.accepting_conns && stats.curr_connections < max;
        Check::that("accepting", has_room, || {
            let open = stats.curr_connections;
            format!("no new connections: {open} are open, and {max} may be")
        })
    }
}

impl Pages for Status {
    fn metrics(&self) -> Page {
        let (_, now_secs) = self.shared.clock_now();
        let context = Context { shared: &self.shared, control: &self.control, now_secs };
        let numbers = Numbers::collect(&context);
        let mut page = Page::new("memcached_");
        exporter::write(&mut page, &numbers);
        page.set_prefix("holdall_");
        own::write(&mut page, &numbers);
        let hung = self.turns.hung(&self.control.turns());
        self.control.wake();
        page.single("threads_hung", Kind::Gauge, "Workers whose event loop has stopped.", hung);
        let parts = self.shared.reloaded_parts().into_iter();
        let parts: Vec<_> =
            parts.map(|part| (part.label(), self.shared.reloads.of(part))).collect();
        metrics::reloads(&mut page, &parts);
        let listeners = self.control.listener_stats();
        metrics::listeners(&mut page, listeners.iter().map(net::ListenerStats::named));
        subjects::write(&mut page, &self.shared);
        samples::write(&mut page, &self.shared);
        if let Some(exports) = self.shared.exports() {
            exports.export_counts.write(&mut page);
        }
        metrics::process(&mut page, "serve");
        page
    }

    fn live(&self) -> Vec<Check> {
        vec![self.workers()]
    }

    fn ready(&self) -> Vec<Check> {
        vec![self.health.started(), self.health.staying(), self.accepting(), self.workers()]
    }

    fn started(&self) -> Vec<Check> {
        vec![self.health.started()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::stats::ALWAYS_ZERO;
    use crate::session::tests::Client;
    use metrics::Kind::Counter;
    use net::Service as _;

    /// Statistics shown elsewhere, or not useful as a number over time.
    const LEFT_OUT: &str = "pid version holdall_version libevent pointer_size connection_structures \
        max_connections cmd_get cmd_set cas_sets cmd_touch cmd_flush cas_badval hash_power_level arena_bytes \
        active_slabs slab_reassign_last_busy_status";

    /// A new statistic must be shown or left out on purpose.
    #[test]
    fn every_statistic_is_shown_or_excluded_explicitly() {
        let worker = crate::session::tests::worker(&[]);
        let numbers = Numbers::collect(&worker.context.admin());
        let rows = exporter::GENERAL.iter().chain(own::OWN);
        let shown: Vec<&str> = rows.map(|row| row.stat).collect();
        let is_command = |name: &str| {
            let command = name.strip_suffix("_hits").or_else(|| name.strip_suffix("_misses"));
            command.is_some_and(|command| exporter::COMMANDS.contains(&command))
        };
        let missing: Vec<&String> = numbers
            .general
            .keys()
            .filter(|name| {
                let name = name.as_str();
                !shown.contains(&name)
                    && !is_command(name)
                    && !ALWAYS_ZERO.contains(&name)
                    && !LEFT_OUT.split_whitespace().any(|left_out| left_out == name)
            })
            .collect();
        assert_eq!(missing, [""; 0]);
    }

    #[test]
    fn a_reset_sets_every_counter_back() {
        let mut worker = crate::session::tests::worker(&[]);
        let mut watcher = Client::new(&mut worker);
        watcher.send(&mut worker, b"watch mutations\r\n");
        worker.begin_turn(std::time::Instant::now());
        let mut client = Client::new(&mut worker);
        client.send(&mut worker, b"set a 0 0 1\r\nx\r\nget a b\r\nflush_prefix a\r\n");
        client.send(&mut worker, b"lru_crawler metadump all\r\n");
        let store = worker.context.shared.engine.store();
        store::Cleaner::new(store).unwrap().step(1, 100);
        let of_process = |stat: &str| stat == "uptime" || stat.starts_with("rusage");
        let counters = |worker: &crate::session::Worker| {
            let numbers = Numbers::collect(&worker.context.admin()).general;
            let rows = exporter::GENERAL.iter().chain(own::OWN);
            let rows = rows.filter(|row| row.kind == Counter && !of_process(row.stat));
            rows.filter(|row| numbers.get(row.stat).is_some_and(|value| value != "0"))
                .map(|row| row.stat)
                .collect::<Vec<_>>()
        };
        let before = counters(&worker);
        for name in ["lru_crawler_starts", "log_watcher_sent", "prefixes_invalidated"] {
            assert!(before.contains(&name), "{name} is not in {before:?}");
        }
        assert_eq!(client.send(&mut worker, b"stats reset\r\n"), b"RESET\r\n");
        assert_eq!(counters(&worker), [""; 0]);
    }

    #[test]
    fn every_row_names_an_existing_statistic() {
        let worker = crate::session::tests::worker(&[]);
        let numbers = Numbers::collect(&worker.context.admin());
        let of_tls = |stat: &str| stat.starts_with("ssl_") || stat.contains("cert");
        for row in exporter::GENERAL.iter().chain(own::OWN) {
            assert!(numbers.general.contains_key(row.stat) || of_tls(row.stat), "{}", row.stat);
        }
        for row in exporter::SETTINGS.iter().chain(exporter::CRAWLER) {
            assert!(numbers.settings.contains_key(row.stat), "{}", row.stat);
        }
    }
}
