//! `stats`, `stats servers` and `stats latency`, by mcrouter's names.

use std::fmt::Write;
use std::process;
use std::sync::atomic::Ordering;

use client::{Protocol, Report, State};
use proto::reply::{END, write_stat, write_stat_u64};

use crate::shared::{Shared, unix_secs};

impl Shared {
    /// The answer to `stats` with these words.
    pub(crate) fn stats(&self, words: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        match words.trim_ascii() {
            b"" | b"all" | b"detailed" => self.general(&mut out),
            b"servers" => self.servers(&mut out, |_| true),
            b"suspect_servers" => {
                self.servers(&mut out, |report| is_tko(report.state));
            }
            b"latency" => crate::latency::stats(&self.registry, &mut out),
            b"version" => write_stat(&mut out, b"mcrouter-version", self.version.as_bytes()),
            _ => {
                return b"CLIENT_ERROR bad stats command\r\n".to_vec();
            }
        }
        out.extend_from_slice(END);
        out
    }

    fn general(&self, out: &mut Vec<u8>) {
        let reports = self.registry.report();
        let count = |holds: fn(&Report) -> bool| {
            reports.iter().filter(|report| holds(report)).count() as u64
        };
        let sum = |field: fn(&Report) -> u64| reports.iter().map(field).sum::<u64>();
        let current = self.current();
        let load = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        write_stat(out, b"version", self.version.as_bytes());
        let stats = self.control.get().map(net::Control::stats).unwrap_or_default();
        let numbers: [(&str, u64); 32] = [
            ("pid", u64::from(process::id())),
            ("uptime", self.started.elapsed().as_secs()),
            ("time", unix_secs()),
            ("num_proxies", self.options.num_proxies as u64),
            ("num_clients", stats.curr_connections),
            ("num_servers", reports.len() as u64),
            ("num_servers_new", count(|report| report.state == State::New)),
            ("num_servers_up", count(|report| report.state == State::Up)),
            ("num_servers_down", count(|report| is_tko(report.state))),
            ("num_servers_closed", count(|report| report.totals.connected == 0)),
            ("num_suspect_servers", count(|report| is_tko(report.state))),
            ("num_soft_tko_count", count(|report| report.state == State::SoftTko)),
            ("num_hard_tko_count", count(|report| report.state == State::HardTko)),
            ("num_connections_opened", sum(|report| report.totals.connects)),
            ("request_sent_count", sum(|report| report.totals.asked)),
            ("request_success_count", sum(|report| report.totals.answered)),
            (
                "request_error_count",
                sum(|report| report.totals.failed + report.totals.timeouts + report.totals.tko),
            ),
            (
                "request_replied_count",
                sum(|report| {
                    report.totals.answered + report.totals.failed + report.totals.timeouts
                }),
            ),
            ("result_data_timeout_count", sum(|report| report.totals.timeouts)),
            ("result_tko_count", sum(|report| report.totals.tko)),
            ("destination_inflight_reqs", sum(|report| report.totals.pending)),
            ("destination_writes", sum(|report| report.totals.writes)),
            ("broken_replies", sum(|report| report.totals.broken)),
            ("udp_gets_lost", sum(|report| report.totals.udp_lost)),
            ("udp_gets_reordered", sum(|report| report.totals.udp_reordered)),
            ("udp_datagrams_late", sum(|report| report.totals.udp_late)),
            ("config_age", current.since.elapsed().as_secs()),
            ("config_last_attempt", load(&self.config.last_attempt)),
            ("config_last_success", load(&self.config.last_success)),
            ("config_failures", load(&self.config.failures)),
            ("config_generation", current.generation),
            ("bytes_read", stats.bytes_read),
        ];
        for (name, number) in numbers {
            write_stat_u64(out, name.as_bytes(), number);
        }
        let (watchers, lines, skipped) = self.watchers.counts();
        write_stat_u64(out, b"log_watchers", watchers);
        write_stat_u64(out, b"log_watcher_sent", lines);
        write_stat_u64(out, b"log_watcher_skipped", skipped);
        self.asynclog(out);
    }

    /// What became of failed deletes; `asynclog_requests` is mcrouter's name.
    fn asynclog(&self, out: &mut Vec<u8>) {
        let counts = self.deletes.get().map(client::Deletes::counts).unwrap_or_default();
        let numbers = [
            ("asynclog_requests", counts.kept),
            ("asynclog_failures", counts.failed),
            ("asynclog_replayed", counts.replayed),
            ("asynclog_refused", counts.refused),
            ("asynclog_expired", counts.expired),
            ("asynclog_lost", counts.lost),
            ("asynclog_pending", counts.pending),
            ("asynclog_bytes", counts.bytes),
        ];
        for (name, number) in numbers {
            write_stat_u64(out, name.as_bytes(), number);
        }
    }

    /// One line a server.
    fn servers(&self, out: &mut Vec<u8>, wanted: impl Fn(&Report) -> bool) {
        for report in self.registry.report().iter().filter(|report| wanted(report)) {
            let Report { address, timeout, totals, .. } = report;
            let protocol = match report.protocol {
                Protocol::Binary => "binary",
                Protocol::Text => "ascii",
            };
            let security = if report.is_encrypted { "tls" } else { "plain" };
            let ms = timeout.as_millis();
            let name = format!("{address}:{protocol}:{security}:notcompressed-{ms}");
            let mut line = format!(
                "avg_latency_us:{:.3} pending_reqs:0 inflight_reqs:{}",
                totals.latency_us, totals.pending
            );
            let state = match report.state {
                State::New => "new",
                State::Up if totals.connected == 0 => "closed",
                State::Up => "up",
                State::SoftTko | State::HardTko => "down",
            };
            // Writing into a string does not fail.
            let _ = write!(line, " {state}:1;");
            let results = [
                ("found", totals.found),
                ("notfound", totals.not_found),
                ("timeout", totals.timeouts),
                ("tko", totals.tko),
                ("error", totals.failed),
                ("udp", totals.udp_asked),
                ("udp_lost", totals.udp_lost),
                ("udp_reordered", totals.udp_reordered),
            ];
            for (result, count) in results.iter().filter(|(_, count)| *count > 0) {
                let _ = write!(line, " {result}:{count}");
            }
            write_stat(out, name.as_bytes(), line.as_bytes());
        }
    }
}

const fn is_tko(state: State) -> bool {
    matches!(state, State::SoftTko | State::HardTko)
}
