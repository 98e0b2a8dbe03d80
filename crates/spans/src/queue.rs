//! The bounded queue of ended spans: many threads add, the exporter removes.
//!
//! A thread that ends a span never waits: without room the span is dropped and counted.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::Thread;

use crossbeam_queue::ArrayQueue;

use crate::span::Span;

/// The maximum number of waiting spans; OpenTelemetry's default (`OTEL_BSP_MAX_QUEUE_SIZE`).
const SPANS_MAX: usize = 2048;

/// Spans per batch; OpenTelemetry's default (`OTEL_BSP_MAX_EXPORT_BATCH_SIZE`).
const BATCH: usize = 512;

/// Ended spans that wait for the exporter.
#[derive(Debug)]
pub struct Spans {
    queue: ArrayQueue<Span>,
    dropped: AtomicU64,
    /// Woken when a batch is complete.
    exporter: OnceLock<Thread>,
}

impl Default for Spans {
    fn default() -> Self {
        let (dropped, exporter) = (AtomicU64::new(0), OnceLock::new());
        Self { queue: ArrayQueue::new(SPANS_MAX), dropped, exporter }
    }
}

impl Spans {
    /// Wakes `exporter` whenever a batch is complete.
    pub fn wakes(&self, exporter: Thread) {
        // The first stays: a queue has one exporter.
        let _ = self.exporter.set(exporter);
    }

    /// Adds a span, or drops it.
    pub(crate) fn push(&self, span: Span) {
        if self.queue.push(span).is_err() {
            // Relaxed: a count, which orders nothing else.
            self.dropped.fetch_add(1, Ordering::Relaxed);
        } else if self.has_batch()
            && let Some(exporter) = self.exporter.get()
        {
            exporter.unpark();
        }
    }

    /// True if the spans of a whole batch wait.
    #[must_use]
    pub fn has_batch(&self) -> bool {
        self.queue.len() >= BATCH
    }

    /// Takes the oldest spans, up to one batch.
    #[must_use]
    pub fn take(&self) -> Vec<Span> {
        std::iter::from_fn(|| self.queue.pop()).take(BATCH).collect()
    }

    /// Spans that found no room.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        // Relaxed: see above.
        self.dropped.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::open_span::OpenSpan;
    use crate::span::Kind;
    use std::sync::Arc;

    #[test]
    fn a_full_queue_drops_and_counts() {
        let spans = Arc::new(Spans::default());
        for _ in 0..SPANS_MAX + 3 {
            OpenSpan::begin(&spans, None, Kind::Server, "get").end();
        }
        assert_eq!(spans.dropped(), 3);
        let mut taken = 0;
        while let count @ 1.. = spans.take().len() {
            assert!(count <= BATCH);
            taken += count;
        }
        assert_eq!(taken, SPANS_MAX);
    }

    #[test]
    fn an_unfinished_span_is_dropped() {
        let spans = Arc::new(Spans::default());
        drop(OpenSpan::begin(&spans, None, Kind::Client, "get"));
        assert!(spans.take().is_empty());
    }
}
