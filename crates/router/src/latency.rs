//! Response times by server and by pool, for `stats latency`.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use proto::reply::{write_stat, write_stat_u64};
use upstream::{Place, Registry};

/// Histograms of microseconds, by label.
type ByLabel = BTreeMap<String, Histogram<u64>>;

/// Quantiles that are told, and their names.
const QUANTILES: [(f64, &str); 5] =
    [(0.5, "p50"), (0.9, "p90"), (0.99, "p99"), (0.999, "p999"), (1.0, "max")];

/// Appends the lines: each pool, then each server.
pub(crate) fn stats(registry: &Registry, out: &mut Vec<u8>) {
    let by_place = registry.latencies();
    let pools = sums(&by_place, |place| {
        Some(&*place.pool).filter(|pool| !pool.is_empty()).map(str::to_owned)
    });
    let servers = sums(&by_place, |place| Some(place.server.to_string()));
    for (kind, sums) in [("pool", pools), ("server", servers)] {
        for (label, times_us) in sums {
            let name = |quantity: &str| format!("latency:{kind}:{label}:{quantity}");
            write_stat_u64(out, name("answers").as_bytes(), times_us.len());
            let mean = secs(times_us.mean());
            write_stat(out, name("mean_seconds").as_bytes(), mean.as_bytes());
            for (quantile, quantity) in QUANTILES {
                let us = times_us.value_at_quantile(quantile);
                let value = secs(us as f64);
                write_stat(out, name(&format!("{quantity}_seconds")).as_bytes(), value.as_bytes());
            }
        }
    }
}

fn secs(us: f64) -> String {
    format!("{:.6}", us / 1e6)
}

/// Adds up what has the same label.
fn sums(
    by_place: &BTreeMap<Place, Histogram<u64>>,
    label: impl Fn(&Place) -> Option<String>,
) -> ByLabel {
    let mut sums = ByLabel::new();
    for (place, times_us) in by_place {
        let Some(label) = label(place) else { continue };
        match sums.get_mut(&label) {
            // All take the same times.
            Some(sum) => drop(sum.add(times_us)),
            None => drop(sums.insert(label, times_us.clone())),
        }
    }
    sums
}
