//! Samples CPU time once per second during a run: of the whole machine, each processor, and each
//! thread of the generator and of the servers that run here.
//!
//! The kernel counts interrupts and stolen time per processor, not per thread: a thread has time in
//! the program, time in the kernel, time waiting for a processor, and context switches.

use std::fs;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::host::CpuTimes;
use crate::thread_use::{ThreadUse, thread_use, used};

/// CPU time, second by second.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct CpuSeries {
    /// Of the machine; the sum of all processors' times.
    pub machine: Vec<Slice>,
    /// Of each processor over the whole measurement.
    pub processors: Vec<CpuTimes>,
    /// Of each thread.
    pub threads: Vec<ThreadSeries>,
}

/// The machine in one interval.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Slice {
    /// Its end, in seconds since the start of the measurement.
    pub end: f64,
    /// CPU time by use.
    pub times: CpuTimes,
    /// The use of each processor; switches are not separated.
    #[serde(default)]
    pub processors: Vec<CpuTimes>,
}

/// One thread.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ThreadSeries {
    /// Its owner.
    pub side: Side,
    /// Over the whole measurement.
    pub whole: ThreadUse,
    /// In each interval of `machine`: ticks in the program, ticks in the kernel, microseconds of
    /// waiting, switches.
    pub slices: Vec<(u64, u64, u64, u64)>,
}

/// The owner of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// This program's.
    Generator,
    /// A server's.
    Server,
}

/// A sampling thread, until it is ended.
#[derive(Debug)]
pub struct Sampler {
    end: Sender<()>,
    thread: JoinHandle<Option<CpuSeries>>,
}

/// Maximum number of threads kept; those with the least use are dropped.
const THREADS_MAX: usize = 64;

impl Sampler {
    /// Samples the machine, this process and `servers`, from `warm_up` on; after each second,
    /// `tell` receives the machine's use in it.
    #[must_use]
    pub fn begin(
        servers: Vec<u32>,
        warm_up: Duration,
        interval: Duration,
        tell: impl Fn(CpuTimes) + Send + 'static,
    ) -> Self {
        let (end, ended) = mpsc::channel();
        let thread = thread::spawn(move || {
            // A run that ends within its warm-up has no samples.
            if ended.recv_timeout(warm_up) != Err(RecvTimeoutError::Timeout) {
                return None;
            }
            let begun = Instant::now();
            let first = Reading::take(&servers)?;
            let (mut last, mut series) = (first.clone(), CpuSeries::default());
            loop {
                let is_over = ended.recv_timeout(interval) != Err(RecvTimeoutError::Timeout);
                let now = Reading::take(&servers)?;
                let end = begun.elapsed().as_secs_f64();
                if is_over {
                    return series.finished(&first, &last, &now, end);
                }
                series.add(&last, &now, end);
                tell(now.machine - last.machine);
                last = now;
            }
        });
        Self { end, thread }
    }

    /// Ends it; `None` if the kernel reports no times, or the run ended before the measurement.
    #[must_use]
    pub fn end(self) -> Option<CpuSeries> {
        // If the sampler has already ended, nothing receives this.
        let _ = self.end.send(());
        self.thread.join().ok()?
    }
}

#[derive(Clone)]
struct Reading {
    machine: CpuTimes,
    processors: Vec<CpuTimes>,
    threads: Vec<(Side, ThreadUse)>,
}

impl Reading {
    fn take(servers: &[u32]) -> Option<Self> {
        let stat = fs::read_to_string("/proc/stat").ok()?;
        let mut threads = Vec::new();
        let sides = [(Side::Generator, std::process::id())];
        let servers = servers.iter().map(|pid| (Side::Server, *pid));
        for (side, pid) in sides.into_iter().chain(servers) {
            // A server may be gone: the run itself reports that.
            let uses = thread_use(pid).unwrap_or_default();
            threads.extend(uses.into_iter().map(|thread| (side, thread)));
        }
        Some(Self {
            machine: CpuTimes::parse(&stat)?,
            processors: CpuTimes::parse_each(&stat),
            threads,
        })
    }

    fn of(&self, side: Side) -> Vec<ThreadUse> {
        let own = self.threads.iter().filter(|(of, _)| *of == side);
        own.map(|(_, thread)| thread.clone()).collect()
    }
}

impl CpuSeries {
    fn add(&mut self, last: &Reading, now: &Reading, end: f64) {
        let before = self.machine.len();
        let times = now.machine - last.machine;
        self.machine.push(Slice { end, times, processors: each(last, now) });
        for side in [Side::Generator, Side::Server] {
            for thread in used(&last.of(side), &now.of(side)) {
                let slice = (thread.user, thread.system, thread.waited_us, thread.switches);
                let known = self.threads.iter_mut().find(|series| series.whole.tid == thread.tid);
                if let Some(series) = known {
                    series.slices.resize(before, (0, 0, 0, 0));
                    series.slices.push(slice);
                } else {
                    let mut slices = vec![(0, 0, 0, 0); before];
                    slices.push(slice);
                    self.threads.push(ThreadSeries { side, whole: thread, slices });
                }
            }
        }
    }

    /// With the use since `last`, unless the kernel's clock did not tick; `None` if it never did.
    fn finished(
        mut self,
        first: &Reading,
        last: &Reading,
        now: &Reading,
        end: f64,
    ) -> Option<Self> {
        if (now.machine - last.machine).total() > 0 {
            self.add(last, now, end);
        }
        if self.machine.is_empty() {
            return None;
        }
        self.processors = each(first, now);
        for series in &mut self.threads {
            series.slices.resize(self.machine.len(), (0, 0, 0, 0));
            let whole = series.slices.iter().fold((0, 0, 0, 0), |sum, slice| {
                (sum.0 + slice.0, sum.1 + slice.1, sum.2 + slice.2, sum.3 + slice.3)
            });
            let (user, system, waited_us, switches) = whole;
            series.whole = ThreadUse { user, system, waited_us, switches, ..series.whole.clone() };
        }
        self.threads.sort_by_key(|series| std::cmp::Reverse(series.whole.ticks()));
        self.threads.truncate(THREADS_MAX);
        self.threads.sort_by_key(|series| (series.side == Side::Generator, series.whole.tid));
        // Threads that always slept are noise.
        self.threads.retain(|series| series.whole.ticks() > 0 || series.whole.switches > 0);
        Some(self)
    }

    /// Seconds that the slices cover.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.machine.last().map_or(0.0, |slice| slice.end)
    }

    /// Each slice with the seconds that it covers.
    pub fn spans(&self) -> impl Iterator<Item = (&Slice, f64)> {
        let mut begin = 0.0;
        self.machine
            .iter()
            .map(move |slice| (slice, slice.end - std::mem::replace(&mut begin, slice.end)))
    }
}

/// CPU time of each processor between two readings.
fn each(first: &Reading, last: &Reading) -> Vec<CpuTimes> {
    let pairs = first.processors.iter().zip(&last.processors);
    pairs.map(|(before, after)| *after - *before).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_thread_and_the_machine_are_sampled() {
        let (told, hears) = mpsc::channel();
        let sampler = Sampler::begin(
            vec![u32::MAX],
            Duration::from_millis(1),
            Duration::from_millis(50),
            move |times| told.send(times).unwrap_or_default(),
        );
        // A fixed amount of work, however long it takes.
        let clock = || rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        let begun = clock();
        while clock() - begun < (rustix::time::Timespec { tv_sec: 0, tv_nsec: 300_000_000 }) {
            std::hint::black_box(0);
        }
        let series = sampler.end().unwrap();
        assert!(series.machine.len() >= 2, "{}", series.machine.len());
        assert!(series.machine.iter().any(|slice| slice.times.user + slice.times.system > 0));
        assert!(hears.try_recv().is_ok());
        assert_eq!(
            series.processors.len(),
            CpuTimes::parse_each(&fs::read_to_string("/proc/stat").unwrap()).len()
        );
        for slice in &series.machine {
            assert_eq!(slice.processors.len(), series.processors.len());
        }
        let busy = series.threads.iter().map(|thread| thread.whole.ticks()).max();
        assert!(busy > Some(4), "{:?}", series.threads);
        assert!(series.threads.iter().all(|thread| thread.slices.len() == series.machine.len()));
    }

    /// A machine that was busy for a number of ticks, and a thread with as many switches.
    fn reading(ticks: u64) -> Reading {
        let thread = ThreadUse { tid: 1, switches: ticks, ..ThreadUse::default() };
        let machine = CpuTimes { user: ticks, switches: ticks, ..CpuTimes::default() };
        Reading { machine, processors: vec![machine], threads: vec![(Side::Server, thread)] }
    }

    #[test]
    fn a_partial_last_second_counts_by_its_length() {
        let (first, second, last) = (reading(0), reading(100), reading(130));
        let mut series = CpuSeries::default();
        series.add(&first, &second, 1.0);
        let whole = series.clone().finished(&first, &second, &last, 1.3).unwrap();
        assert_eq!(
            whole.machine.iter().map(|slice| slice.times.user).collect::<Vec<_>>(),
            [100, 30]
        );
        assert_eq!((whole.seconds(), whole.threads[0].whole.switches), (1.3, 130));
        let whole = series.finished(&first, &second, &second, 1.001).unwrap();
        assert_eq!((whole.machine.len(), whole.seconds()), (1, 1.0));
        let none = CpuSeries::default().finished(&first, &first, &first, 1e-6);
        assert!(none.is_none(), "a run without a tick has no shares of time");
    }

    #[test]
    fn a_run_that_ends_in_its_warm_up_has_no_samples() {
        let day = Duration::from_secs(86_400);
        assert!(Sampler::begin(Vec::new(), day, day, |_| {}).end().is_none());
    }
}
