//! `stats workingset`, `hotkeys`, `mrc`, `eviction` and `latency`: estimates from samples.
//!
//! Names are `<group>:<label>:<quantity>`, and quantities end with their unit, as in Prometheus:
//! `_bytes`, `_seconds`, `_ratio` (0 to 1). Parts of keys are shown as in `lru_crawler metadump`.
//! Each group takes the newest samples first.

use proto::uri;
use sampling::{Collector, Command, WINDOWS, rate};

use super::Context;
use super::stat_line::{Sink, number};
use crate::shared::Shared;

/// The number of hot keys shown.
const HOT_KEYS: usize = 16;

/// The number of prefixes shown for each window.
const PREFIXES: usize = 32;

/// Sizes of memory for which `stats mrc` shows the hit ratio, as parts of the present one.
const SIZES: [(f64, &str); 9] = [
    (0.125, "0.125x"),
    (0.25, "0.25x"),
    (0.5, "0.5x"),
    (0.75, "0.75x"),
    (1.0, "1x"),
    (1.5, "1.5x"),
    (2.0, "2x"),
    (4.0, "4x"),
    (8.0, "8x"),
];

pub(super) fn working_set(context: &Context<'_>, sink: Sink<'_>) {
    let (_, now_secs) = context.shared.clock_now();
    samples(context, sink, |collector, _, sink| {
        let set = &collector.working_set;
        for (window, name, _) in WINDOWS {
            let mut show = |label: &str, estimate: &sampling::Estimate| {
                for (what, value) in [
                    ("min_bytes", estimate.bytes_min),
                    ("mean_bytes", estimate.bytes_mean),
                    ("max_bytes", estimate.bytes_max),
                    ("items", estimate.items),
                ] {
                    whole(sink, &format!("workingset:{label}:{what}"), value);
                }
                number(sink, &format!("workingset:{label}:sampled_items"), estimate.sampled);
            };
            show(name, &set.estimate(window, now_secs));
            for (prefix, estimate) in set.by_prefix(window, now_secs).iter().take(PREFIXES) {
                if !prefix.is_empty() {
                    show(&format!("{name}:{}", shown(prefix)), estimate);
                }
            }
            float(sink, &format!("workingset:{name}:sample_ratio"), set.rate(window));
        }
    });
}

pub(super) fn hot_keys(context: &Context<'_>, sink: Sink<'_>) {
    let (now_ms, _) = context.shared.clock_now();
    samples(context, sink, |collector, _, sink| {
        let (keys, interval_ms) = collector.hot_keys.top(HOT_KEYS, now_ms);
        seconds(sink, "hotkeys:interval_seconds", interval_ms.saturating_mul(1_000_000));
        whole(sink, "hotkeys:interval_requests", collector.hot_keys.requests());
        for (place, key) in keys.iter().enumerate() {
            let name = |what: &str| format!("hotkeys:{}:{what}", place + 1);
            sink(name("key").as_bytes(), shown(&key.key).as_bytes());
            float(sink, &name("share_ratio"), key.share);
            float(sink, &name("share_error_ratio"), key.share_error);
            whole(sink, &name("requests_per_second"), key.per_second);
            float(sink, &name("share_of_minutes_ratio"), key.share_of_minutes);
        }
    });
}

pub(super) fn miss_ratio_curve(context: &Context<'_>, sink: Sink<'_>) {
    samples(context, sink, |collector, memory_bytes, sink| {
        let curve = &collector.miss_ratio;
        for (times, name) in SIZES {
            let bytes = memory_bytes * times;
            whole(sink, &format!("mrc:{name}:bytes"), bytes);
            if let Some(ratio) = curve.hit_ratio(cut(bytes)) {
                float(sink, &format!("mrc:{name}:hit_ratio"), ratio);
            }
        }
        let memory = context.shared.engine.store().memory();
        number(sink, "mrc:memory_bytes", memory.limit.saturating_sub(memory.buffers));
        sink(b"mrc:weighs_size", if curve.weighs_size() { b"yes" } else { b"no" });
        whole(sink, "mrc:sampled_reads", curve.reads());
        number(sink, "mrc:sampled_items", curve.keys() as u64);
        float(sink, "mrc:sample_ratio", rate(curve.threshold()));
    });
}

/// The order of eviction, and the hits that each candidate would have had.
pub(super) fn eviction(context: &Context<'_>, sink: Sink<'_>) {
    let engine = &context.shared.engine;
    let (now_ms, _) = context.shared.clock_now();
    let policy = engine.store().policy();
    sink(b"eviction:policy", format!("{policy:?}").to_lowercase().as_bytes());
    let setting = engine.store().eviction();
    number(sink, "eviction:newcomer_factor", setting.newcomer_factor.into());
    sink(b"eviction:weighs_size", if setting.weighs_size { b"yes" } else { b"no" });
    samples(context, sink, |collector, _, sink| {
        let trials = &collector.trials;
        let since_ms = now_ms.saturating_sub(trials.chosen_ms());
        seconds(sink, "eviction:unchanged_seconds", since_ms.saturating_mul(1_000_000));
        number(sink, "eviction:changes", trials.changes());
        for (candidate, ratio) in trials.hit_ratios() {
            let by_size = if candidate.weighs_size { "_size" } else { "" };
            let name = format!("eviction:x{}{by_size}:hit_ratio", candidate.newcomer_factor);
            float(sink, &name, ratio);
        }
        whole(sink, "eviction:sampled_reads", trials.reads());
    });
}

pub(super) fn latency(context: &Context<'_>, sink: Sink<'_>) {
    samples(context, sink, |collector, _, sink| {
        for (command, name) in Command::ALL {
            let times = collector.latencies.of(command);
            let Some(quantiles) = times.quantiles() else { continue };
            whole(sink, &format!("latency:{name}:requests"), times.total());
            for (label, nanos) in quantiles {
                seconds(sink, &format!("latency:{name}:{label}_seconds"), nanos);
            }
        }
    });
}

/// Shows the estimators, including the newest samples, and then the state of the sampling.
fn samples(context: &Context<'_>, sink: Sink<'_>, show: impl FnOnce(&Collector, f64, Sink<'_>)) {
    context.shared.collect_samples();
    let shown = context.shared.engine.show_samples(|collector, memory_bytes| {
        show(collector, memory_bytes, sink);
        number(sink, "samples_dropped", collector.dropped);
    });
    sink(b"sampling", if shown.is_some() { b"yes" } else { b"no" });
}

impl Shared {
    /// Milliseconds since the start, and the present second for deadlines.
    pub(crate) fn clock_now(&self) -> (u64, u32) {
        let now = std::time::Instant::now();
        (self.clock.ms_at(now), self.clock.secs_at(now))
    }
}

/// A key, or part of one, on one line and without spaces.
fn shown(key: &[u8]) -> String {
    let mut text = Vec::with_capacity(key.len());
    uri::encode(key, &mut text);
    String::from_utf8(text).unwrap_or_default()
}

fn whole(sink: Sink<'_>, name: &str, value: f64) {
    number(sink, name, cut(value.round()));
}

fn float(sink: Sink<'_>, name: &str, value: f64) {
    sink(name.as_bytes(), format!("{value:.6}").as_bytes());
}

fn seconds(sink: Sink<'_>, name: &str, nanos: u64) {
    let text = format!("{}.{:09}", nanos / 1_000_000_000, nanos % 1_000_000_000);
    sink(name.as_bytes(), text.as_bytes());
}

/// A positive number without its fraction.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "cut at the greatest, and nothing here is negative"
)]
fn cut(value: f64) -> u64 {
    value as u64
}
