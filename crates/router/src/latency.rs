//! Times of servers' answers by server and by pool, since the start and for the last minutes, for
//! `stats` and `stats latency`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use proto::reply::{write_stat, write_stat_u64};
use sampling::{FADE_MS, QUANTILES, RecentTimes};
use upstream::{Address, Place, Registry};

/// Histograms of microseconds since the start, by server and pool.
type ByPlace = BTreeMap<Place, Histogram<u64>>;

/// The interval at which workers' records are collected.
pub(crate) const COLLECT_PERIOD: Duration = Duration::from_secs(1);

/// The groups in which answers are summed.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Label {
    All,
    Pool(Arc<str>),
    Server(Address),
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::Pool(name) => write!(f, "pool:{name}"),
            Self::Server(address) => write!(f, "server:{address}"),
        }
    }
}

impl Label {
    /// The labels of a place's sums, except [`Self::All`].
    fn of(place: &Place) -> impl Iterator<Item = Self> {
        let pool = Some(&place.pool).filter(|pool| !pool.is_empty()).map(Arc::clone);
        let server = Self::Server(place.server.clone());
        pool.map(Self::Pool).into_iter().chain([server])
    }
}

/// The times of the last minutes. Workers do not record them: they record times since the start,
/// and the increase since then is recent.
#[derive(Debug)]
pub(crate) struct RecentAnswers(Mutex<Recent>);

#[derive(Debug)]
struct Recent {
    /// The records at the last collection.
    before: ByPlace,
    times: BTreeMap<Label, RecentTimes>,
    faded: Instant,
}

impl RecentAnswers {
    /// Creates an empty record.
    pub(crate) fn new(now: Instant) -> Self {
        let (before, times) = (ByPlace::new(), BTreeMap::new());
        Self(Mutex::new(Recent { before, times, faded: now }))
    }

    fn lock(&self) -> MutexGuard<'_, Recent> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the times recorded since the last call.
    pub(crate) fn collect(&self, registry: &Registry, now: Instant) {
        let by_place = registry.latencies();
        self.lock().take(by_place, now);
    }

    /// A quantile (0 to 1) of all answers, in microseconds; `None` without answers.
    pub(crate) fn quantile_us(&self, quantile: f64) -> Option<f64> {
        let nanos = self.lock().times.get(&Label::All)?.quantile(quantile)?;
        Some(nanos as f64 / 1000.0)
    }

    /// Appends the lines of `stats latency`: the last minutes, then since the start.
    pub(crate) fn stats(&self, registry: &Registry, out: &mut Vec<u8>) {
        for (label, times) in &self.lock().times {
            let Some(quantiles) = times.quantiles() else { continue };
            let answers = format!("latency:recent:{label}:answers");
            write_stat(out, answers.as_bytes(), format!("{:.0}", times.total()).as_bytes());
            for (quantity, nanos) in quantiles {
                let name = format!("latency:recent:{label}:{quantity}_seconds");
                write_stat(out, name.as_bytes(), secs(nanos as f64 / 1000.0).as_bytes());
            }
        }
        for (label, times_us) in sums(&registry.latencies()) {
            let name = |quantity: &str| format!("latency:{label}:{quantity}");
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

impl Recent {
    fn take(&mut self, by_place: ByPlace, now: Instant) {
        let since = now.saturating_duration_since(self.faded);
        if since >= Duration::from_millis(FADE_MS) {
            self.faded = now;
            self.times.values_mut().for_each(|times| times.fade(since.as_secs_f64()));
        }
        for (place, times_us) in &by_place {
            let before = self.before.get(place);
            if before.is_some_and(|before| before.len() == times_us.len()) {
                continue;
            }
            for label in Label::of(place).chain([Label::All]) {
                let times = self.times.entry(label).or_default();
                for (us, count) in grown(times_us, before) {
                    times.add(us.saturating_mul(1000), count as f64);
                }
            }
        }
        if !self.before.keys().eq(by_place.keys()) {
            // The times of a removed server are dropped.
            let present: BTreeSet<Label> = by_place.keys().flat_map(Label::of).collect();
            self.times.retain(|label, _| *label == Label::All || present.contains(label));
        }
        self.before = by_place;
    }
}

/// The times recorded since `before`, with their counts. Counts fall when a worker stops using a
/// server; then other workers' counts in that bucket are left out, up to that amount.
fn grown<'h>(
    now: &'h Histogram<u64>,
    before: Option<&'h Histogram<u64>>,
) -> impl Iterator<Item = (u64, u64)> + 'h {
    let recorded = now.iter_recorded().map(|at| (at.value_iterated_to(), at.count_at_value()));
    recorded.filter_map(move |(us, count)| {
        // Above its maximum time it has no bucket, and would return the count of its last.
        let known = before.filter(|before| us <= before.max()).map_or(0, |it| it.count_at(us));
        count.checked_sub(known).filter(|more| *more > 0).map(|more| (us, more))
    })
}

fn secs(us: f64) -> String {
    format!("{:.6}", us / 1e6)
}

/// Sums by label.
fn sums(by_place: &ByPlace) -> BTreeMap<Label, Histogram<u64>> {
    let mut sums = BTreeMap::<_, Histogram<u64>>::new();
    for (place, times_us) in by_place {
        for label in Label::of(place) {
            match sums.get_mut(&label) {
                // All accept the same times.
                Some(sum) => drop(sum.add(times_us)),
                None => drop(sums.insert(label, times_us.clone())),
            }
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    fn place(pool: &str, port: u16) -> Place {
        let server = Address::from(SocketAddr::from(([127, 0, 0, 1], port)));
        Place { pool: pool.into(), server }
    }

    /// Workers' records since the start: times in microseconds with their counts.
    fn recorded(places: &[(Place, &[(u64, u64)])]) -> ByPlace {
        let of = |times: &[(u64, u64)]| {
            let mut histogram = Histogram::new(2).unwrap();
            times.iter().for_each(|(us, count)| histogram.record_n(*us, *count).unwrap());
            histogram
        };
        places.iter().map(|(place, times)| (place.clone(), of(times))).collect()
    }

    fn after(start: Instant, secs: u64) -> Instant {
        start + Duration::from_secs(secs)
    }

    #[test]
    fn recent_replies_count_in_total_and_by_pool_and_server() {
        let start = Instant::now();
        let recent = RecentAnswers::new(start);
        let (one, two, lone) = (place("A", 1), place("A", 2), place("", 3));
        let first = recorded(&[(one.clone(), &[(100, 5)]), (two.clone(), &[(10_000, 5)])]);
        recent.lock().take(first, after(start, 1));
        let times: [(Place, &[_]); 3] =
            [(one, &[(100, 15)]), (two, &[(10_000, 5)]), (lone, &[(50, 1)])];
        recent.lock().take(recorded(&times), after(start, 2));
        let state = recent.lock();
        let told: Vec<(String, f64)> =
            state.times.iter().map(|(label, times)| (label.to_string(), times.total())).collect();
        let want = [
            ("all", 21.0),
            ("pool:A", 20.0),
            ("server:127.0.0.1:1", 15.0),
            ("server:127.0.0.1:2", 5.0),
            ("server:127.0.0.1:3", 1.0),
        ];
        assert_eq!(told, want.map(|(label, answers)| (label.to_owned(), answers)));
        let p50 = state.times[&Label::Pool("A".into())].quantile(0.5).unwrap();
        assert!((97_000..=103_000).contains(&p50), "{p50}");
    }

    /// A server that was slow at first, and has since answered as often quickly: the quantiles
    /// since the start stay bad, but the recent ones do not.
    #[test]
    fn slow_replies_of_the_past_fade() {
        let start = Instant::now();
        let recent = RecentAnswers::new(start);
        let mut last = ByPlace::new();
        for secs in 1..=1200_u64 {
            let (slow, quick) = (100 * secs.min(600), 100 * secs.saturating_sub(600));
            last = recorded(&[(place("A", 1), &[(200_000, slow), (100, quick)])]);
            recent.lock().take(last.clone(), after(start, secs));
            let p99_us = recent.quantile_us(0.99).unwrap();
            let is_slow = secs <= 600;
            assert!(!is_slow || p99_us > 190_000.0, "{p99_us} after {secs} s");
        }
        let p99_us = recent.quantile_us(0.99).unwrap();
        assert!((97.0..103.0).contains(&p99_us), "{p99_us}");
        assert!(last[&place("A", 1)].value_at_quantile(0.99) > 190_000);
    }

    #[test]
    fn a_new_longest_time_is_counted() {
        let start = Instant::now();
        let recent = RecentAnswers::new(start);
        // The longest bucket of the first has a count.
        recent.lock().take(recorded(&[(place("A", 1), &[(255, 7)])]), after(start, 1));
        let more = recorded(&[(place("A", 1), &[(255, 7), (50_000_000, 1)])]);
        recent.lock().take(more, after(start, 2));
        assert_eq!(recent.lock().times[&Label::All].total(), 8.0);
        assert!(recent.quantile_us(1.0).is_some_and(|us| us > 48_000_000.0));
    }

    #[test]
    fn times_of_a_removed_server_are_dropped() {
        let start = Instant::now();
        let recent = RecentAnswers::new(start);
        let of_both = [(place("A", 1), &[(100, 9)][..]), (place("B", 2), &[(100, 9)])];
        recent.lock().take(recorded(&of_both), after(start, 1));
        recent.lock().take(recorded(&of_both[..1]), after(start, 2));
        let labels = recent.lock().times.keys().map(Label::to_string).collect::<Vec<_>>();
        assert_eq!(labels, ["all", "pool:A", "server:127.0.0.1:1"]);
        // It returns and starts at zero.
        let anew = [(place("A", 1), &[(100, 9)][..]), (place("B", 2), &[(100, 2)])];
        recent.lock().take(recorded(&anew), after(start, 3));
        assert_eq!(recent.lock().times[&Label::Pool("B".into())].total(), 2.0);
        assert_eq!(recent.lock().times[&Label::All].total(), 20.0);
        // One of two workers has stopped using a server: nothing is counted twice.
        let fewer = [(place("A", 1), &[(100, 4)][..]), (place("B", 2), &[(100, 2)])];
        recent.lock().take(recorded(&fewer), after(start, 4));
        assert_eq!(recent.lock().times[&Label::All].total(), 20.0);
    }
}
