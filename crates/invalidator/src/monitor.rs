//! Measures how long old values stay readable: reads the keys of sampled deletes in every cluster.
//!
//! A sampled key is read just before its delete, on the same connection, which returns the cas
//! unique of the cached value. After the delete, it is read again at once and then at growing
//! intervals: a value with the same cas unique is the old one; otherwise the value is gone or
//! newer. The time from reading the change to seeing the old value gone goes into a histogram.
//! *Scaling Memcache at Facebook* (2013), 7.3 and figure 11, does this for one delete in a million.
//!
//! The atomics here are counters for `stats`. Relaxed is enough: no other data depends on them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::BufStream;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};

use crate::batch::{self, Wire};
use crate::clock::micros;
use crate::network::Network;
use crate::stats::{MonitorStats, Stats};

/// The looks after the first, by the time since the delete.
const LOOKS: [Duration; 5] = [
    Duration::from_millis(100),
    Duration::from_secs(1),
    Duration::from_secs(10),
    Duration::from_secs(60),
    Duration::from_secs(600),
];

/// Maximum number of samples that wait for a look.
const WAITING_MAX: usize = 4096;

/// Keys per read request.
const LOOK_KEYS_MAX: usize = 256;

/// A delete whose key is read again.
#[derive(Debug, Clone)]
pub struct Sample {
    /// The key.
    pub key: Bytes,
    /// The cas unique of the value cached before the delete.
    pub cas: Option<u64>,
    /// The time at which the change was read from the log.
    pub read_at: Instant,
}

/// Chooses samples and hands them to the monitor.
#[derive(Debug, Clone)]
pub struct Sampler {
    /// Samples one key in this many; 0 for none.
    one_in: u32,
    sender: mpsc::Sender<Sample>,
}

impl Sampler {
    /// True for sampled keys, which are the same in every invalidator.
    #[must_use]
    pub fn takes(&self, key: &[u8]) -> bool {
        self.one_in == 1 || self.one_in > 1 && crc32fast::hash(key).is_multiple_of(self.one_in)
    }

    /// Records a delivered sample.
    pub fn take(&self, sample: Sample, stats: &MonitorStats) {
        stats.sampled.fetch_add(1, Relaxed);
        if sample.cas.is_none() {
            return;
        }
        stats.cached.fetch_add(1, Relaxed);
        if self.sender.try_send(sample).is_err() {
            stats.skipped.fetch_add(1, Relaxed);
        }
    }
}

/// A cluster's monitor.
#[derive(Debug)]
pub struct Monitor {
    receiver: mpsc::Receiver<Sample>,
    /// Each look uses the next one, because another router may still return a value.
    routers: Vec<String>,
    stats: Arc<Stats>,
    index: usize,
    /// Old values still there: the time and number of the next look, and the sample.
    stale: Vec<(Instant, usize, Sample)>,
}

impl Monitor {
    /// A monitor for the cluster at `index`, which looks through `routers` in turn.
    #[must_use]
    pub fn new(
        one_in: u32,
        routers: Vec<String>,
        stats: Arc<Stats>,
        index: usize,
    ) -> (Self, Sampler) {
        let (sender, receiver) = mpsc::channel(WAITING_MAX);
        let monitor = Self { receiver, routers, stats, index, stale: Vec::new() };
        (monitor, Sampler { one_in, sender })
    }

    /// Reads keys until the sampler is gone.
    pub async fn run(mut self, network: Arc<impl Network>) {
        let mut wires: VecDeque<_> = self.routers.iter().map(|_| None).collect();
        loop {
            let due = self.stale.iter().map(|(at, ..)| *at).min();
            let due = due.unwrap_or_else(|| Instant::now() + Duration::from_secs(3600));
            let mut samples: Vec<(usize, Sample)> = Vec::new();
            tokio::select! {
                first = self.receiver.recv() => {
                    let Some(first) = first else { return };
                    samples.push((0, first));
                    while samples.len() < LOOK_KEYS_MAX && let Ok(next) = self.receiver.try_recv() {
                        samples.push((0, next));
                    }
                }
                () = sleep_until(due) => {}
            }
            let now = Instant::now();
            while samples.len() < LOOK_KEYS_MAX
                && let Some(at) = self.stale.iter().position(|(at, ..)| *at <= now)
            {
                let (_, look, sample) = self.stale.swap_remove(at);
                samples.push((look, sample));
            }
            let Some(mut wire) = wires.pop_front() else { return };
            self.look(network.as_ref(), &mut wire, samples).await;
            wires.push_back(wire);
            self.routers.rotate_left(1);
        }
    }

    async fn look<N: Network>(
        &mut self,
        network: &N,
        wire: &mut Option<Wire<N::Stream>>,
        samples: Vec<(usize, Sample)>,
    ) {
        if wire.is_none() {
            let dialed = timeout(Duration::from_secs(1), network.dial(&self.routers[0])).await;
            *wire = dialed.ok().and_then(Result::ok).map(BufStream::new);
        }
        let keys: Vec<&Bytes> = samples.iter().map(|(_, sample)| &sample.key).collect();
        let found = match wire {
            Some(wire) => timeout(Duration::from_secs(1), batch::peek(wire, &keys))
                .await
                .ok()
                .and_then(Result::ok),
            None => None,
        };
        let Some(found) = found else {
            // This time the state is unknown, so the same look is repeated.
            *wire = None;
            let at = Instant::now() + LOOKS[0];
            self.stale.extend(samples.into_iter().map(|(look, sample)| (at, look, sample)));
            self.stale.truncate(WAITING_MAX);
            return;
        };
        for ((look, sample), cas) in samples.into_iter().zip(found) {
            self.judge(look, sample, cas);
        }
    }

    fn judge(&mut self, look: usize, sample: Sample, cas: Option<u64>) {
        let stats = &self.stats.clusters[self.index].monitor;
        let now = Instant::now();
        let is_old = cas.is_some() && cas == sample.cas;
        if is_old && let Some(pause) = LOOKS.get(look) {
            if look == 0 {
                stats.still_stale.fetch_add(1, Relaxed);
            }
            self.stale.push((now + *pause, look + 1, sample));
            return;
        }
        if look > 0 && !is_old {
            stats.still_stale.fetch_sub(1, Relaxed);
        }
        let us = micros(now.duration_since(sample.read_at));
        stats.stale_us.lock().saturating_record(us);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sampling_has_the_set_rate_and_is_deterministic() {
        let (sender, _receiver) = mpsc::channel(1);
        let sampler = Sampler { one_in: 100, sender };
        let taken = |from: u32| {
            (from..from + 100_000).filter(|n| sampler.takes(format!("key-{n}").as_bytes())).count()
        };
        let count = taken(0);
        assert!((800..1200).contains(&count), "{count}");
        assert_eq!(count, taken(0));
    }

    #[tokio::test]
    async fn an_old_value_counts_until_it_is_gone() {
        let stats = Arc::new(Stats::new(["c".to_owned()]));
        let (mut monitor, _sampler) = Monitor::new(1, vec!["c".to_owned()], Arc::clone(&stats), 0);
        let sample = Sample { key: "k".into(), cas: Some(7), read_at: Instant::now() };
        monitor.judge(0, sample.clone(), Some(7));
        assert_eq!(stats.clusters[0].monitor.still_stale.load(Relaxed), 1);
        assert_eq!(stats.clusters[0].monitor.stale_us.lock().len(), 0);
        monitor.judge(1, sample.clone(), Some(8));
        assert_eq!(stats.clusters[0].monitor.still_stale.load(Relaxed), 0);
        monitor.judge(0, sample, None);
        assert_eq!(stats.clusters[0].monitor.stale_us.lock().len(), 2);
    }

    /// A cluster in which each old value stays for a time derived from its key, counted from the
    /// start.
    struct Slow(Instant);

    /// Half a second on average, more than a second for one in twenty.
    fn stale_for(key: &[u8]) -> Duration {
        let number = crc32fast::hash(&[key, b"!"].concat());
        let share = f64::from(number) / f64::from(u32::MAX);
        Duration::from_secs_f64(0.05 / (1.0 - share * 0.999)).min(Duration::from_secs(20))
    }

    impl Network for Slow {
        type Stream = tokio::io::DuplexStream;

        async fn dial(&self, _address: &str) -> std::io::Result<tokio::io::DuplexStream> {
            use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _};
            let (ours, theirs) = tokio::io::duplex(1 << 16);
            let begin = self.0;
            tokio::spawn(async move {
                let mut stream = BufStream::new(theirs);
                let mut line = String::new();
                while stream.read_line(&mut line).await.is_ok_and(|length| length > 0) {
                    let words: Vec<&str> = line.trim_end().split(' ').collect();
                    let answer = match words[..] {
                        ["mg", key, "c"] if begin.elapsed() < stale_for(key.as_bytes()) => "HD c7",
                        ["mg", ..] => "EN",
                        _ => "MN",
                    };
                    stream.write_all(format!("{answer}\r\n").as_bytes()).await.unwrap();
                    if answer == "MN" {
                        stream.flush().await.unwrap();
                    }
                    line.clear();
                }
            });
            Ok(ours)
        }
    }

    /// Runs all these deletes at once, watching one in `one_in`, until the longest is over.
    async fn watched(one_in: u32, keys: u32) -> Arc<Stats> {
        let stats = Arc::new(Stats::new(["c".to_owned()]));
        let (monitor, sampler) = Monitor::new(one_in, vec!["c".to_owned()], Arc::clone(&stats), 0);
        let begin = Instant::now();
        let running = tokio::spawn(monitor.run(Arc::new(Slow(begin))));
        for number in 0..keys {
            let key = Bytes::from(format!("key-{number}"));
            if sampler.takes(&key) {
                let sample = Sample { key, cas: Some(7), read_at: begin };
                sampler.take(sample, &stats.clusters[0].monitor);
            }
            if number % 1000 == 0 {
                tokio::task::yield_now().await;
                tokio::time::sleep(Duration::from_nanos(1)).await;
            }
        }
        tokio::time::sleep(Duration::from_secs(120)).await;
        running.abort();
        stats
    }

    #[tokio::test(start_paused = true)]
    async fn samples_agree_with_the_whole() {
        const KEYS: u32 = 60_000;
        let (all, sampled) = (watched(1, KEYS).await, watched(10, KEYS).await);
        let figures = |stats: &Stats| {
            let monitor = &stats.clusters[0].monitor;
            assert_eq!(monitor.skipped.load(Relaxed), 0);
            let stale = monitor.stale_us.lock().clone();
            (monitor.sampled.load(Relaxed), stale)
        };
        let ((count, all), (some, sampled)) = (figures(&all), figures(&sampled));
        assert_eq!(count, u64::from(KEYS));
        assert!((5_000..7_000).contains(&some), "{some}");
        let near = |name: &str, one: f64, other: f64| {
            assert!((one - other).abs() <= one * 0.1, "{name}: {one} of all, {other} of samples");
        };
        for quantile in [0.5, 0.9, 0.99, 0.999] {
            let at = |one: &hdrhistogram::Histogram<u64>| one.value_at_quantile(quantile);
            near(&format!("at {quantile}"), f64(at(&all)), f64(at(&sampled)));
        }
        for us in [100_000, 1_000_000] {
            let share = |one: &hdrhistogram::Histogram<u64>| {
                f64(one.count_between(us + 1, u64::MAX)) / f64(one.len())
            };
            near(&format!("over {us} us"), share(&all), share(&sampled));
        }
    }

    #[allow(clippy::cast_precision_loss, reason = "a share to compare")]
    fn f64(number: u64) -> f64 {
        number as f64
    }
}
