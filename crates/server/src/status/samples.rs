//! Estimates from samples: latencies, working set, hot keys, miss-ratio curve.

use metrics::{Kind, Page};
use sampling::{Collector, Command, LATENCY_BOUNDS_NS, WINDOWS};

use crate::shared::Shared;
use Kind::{Counter, Gauge, Histogram};

/// Sizes of memory for which the hit ratio is shown, as parts of the present one.
const SIZES: [(f64, &str); 5] = [(0.25, "0.25"), (0.5, "0.5"), (1.0, "1"), (2.0, "2"), (4.0, "4")];

/// Writes them, or nothing if nothing is sampled. The prefix is `holdall_`.
pub(super) fn write(page: &mut Page, shared: &Shared) {
    shared.collect_samples();
    let (now_ms, now_secs) = shared.clock_now();
    // Without sampling there is nothing to show.
    let _ = shared.engine.show_samples(|collector, memory_bytes| {
        latencies(page, collector);
        working_set(page, collector, now_secs);
        hit_ratios(page, collector, memory_bytes);
        let (keys, _) = collector.hot_keys.top(1, now_ms);
        let share = keys.first().map_or(0.0, |key| key.share);
        let help = "Part of all requests that names the most requested key.";
        page.single("hottest_key_ratio", Gauge, help, format_args!("{share:.6}"));
        let help = "Samples for which there was no room.";
        page.single("samples_dropped_total", Counter, help, collector.dropped);
    });
}

#[expect(clippy::cast_precision_loss, reason = "a bound has few digits")]
fn latencies(page: &mut Page, collector: &Collector) {
    let name = "request_duration_seconds";
    let help = "Time from a request's bytes to its reply, in the server; estimated from samples.";
    page.family(name, Histogram, help);
    for (command, label) in Command::ALL {
        let counts = collector.latencies.counts_of(command);
        let bounds = LATENCY_BOUNDS_NS.iter().zip(counts.up_to());
        let buckets = bounds.map(|(bound, count)| (*bound as f64 / 1e9, count));
        let sum = counts.sum_nanos() / 1e9;
        let labels = [("command", label)];
        page.histogram(name, &labels, buckets, counts.cells(), sum, counts.total());
    }
}

fn working_set(page: &mut Page, collector: &Collector, now_secs: u32) {
    let name = "working_set_bytes";
    page.family(name, Gauge, "Bytes of the items that were used in the window; estimated.");
    for (window, label, _) in WINDOWS {
        let estimate = collector.working_set.estimate(window, now_secs);
        let bytes = format_args!("{:.0}", estimate.bytes_mean);
        page.sample(name, &[("window", label)], bytes);
    }
}

fn hit_ratios(page: &mut Page, collector: &Collector, memory_bytes: f64) {
    let name = "predicted_hit_ratio";
    page.family(name, Gauge, "Part of reads that would hit with this multiple of the memory.");
    for (times, label) in SIZES {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "cut at the greatest, and nothing here is negative"
        )]
        let bytes = (memory_bytes * times) as u64;
        if let Some(ratio) = collector.miss_ratio.hit_ratio(bytes) {
            page.sample(name, &[("memory", label)], format_args!("{ratio:.6}"));
        }
    }
}
