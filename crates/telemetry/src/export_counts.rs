//! Counts of exports, which the metrics show.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use metrics::{Kind, Page};
use spans::Spans;

/// Counts of exports and spans. Relaxed is enough: they order nothing else.
#[derive(Debug, Default)]
pub struct ExportCounts {
    spans: Arc<Spans>,
    pub(crate) spans_exported: AtomicU64,
    pub(crate) spans_failed: AtomicU64,
    pub(crate) metrics: Outcomes,
    pub(crate) traces: Outcomes,
}

/// Requests to a collector.
#[derive(Debug, Default)]
pub(crate) struct Outcomes {
    taken: AtomicU64,
    failed: AtomicU64,
}

impl Outcomes {
    pub(crate) fn count(&self, is_taken: bool) {
        // Relaxed: see `ExportCounts`.
        let count = if is_taken { &self.taken } else { &self.failed };
        count.fetch_add(1, Ordering::Relaxed);
    }
}

impl ExportCounts {
    /// The queue of spans to export.
    #[must_use]
    pub const fn spans(&self) -> &Arc<Spans> {
        &self.spans
    }

    /// Adds the counts to `page`.
    pub fn write(&self, page: &mut Page) {
        // Relaxed: see the type.
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        page.set_prefix("holdall_telemetry_");
        page.family("exports_total", Kind::Counter, "Requests to the OpenTelemetry collector.");
        for (signal, outcomes) in [("metrics", &self.metrics), ("traces", &self.traces)] {
            for (result, count) in [("taken", &outcomes.taken), ("failed", &outcomes.failed)] {
                let labels = [("signal", signal), ("result", result)];
                page.sample("exports_total", &labels, get(count));
            }
        }
        let help = "Spans of sampled requests: exported, dropped for a full queue, or not taken by \
                    the collector.";
        page.family("spans_total", Kind::Counter, help);
        for (result, count) in [
            ("exported", get(&self.spans_exported)),
            ("dropped", self.spans.dropped()),
            ("failed", get(&self.spans_failed)),
        ] {
            page.sample("spans_total", &[("result", result)], count);
        }
    }
}
