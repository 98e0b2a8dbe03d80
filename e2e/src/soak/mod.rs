//! The soak: a deployment under a mixed load, with concurrent troubles of many kinds, and a page
//! with the results.
//!
//! ```text
//!     run --> tier       servers, proxy, invalidator, database: real processes
//!         --> load       owners of keys; testkit::history judges their records
//!         --> troubles   kills, stalls, full disks, ...: a start, an end, and a recovery
//!         --> watch      probes of every path; memory, files, threads, logs of every process
//!                 all of them --> record --> report (the page)
//! ```
//!
//! The run consists of rounds. At the end of each, troubles pause and everything settles: kept
//! deletes are executed, caches agree with the database, and the owners read keys that a trouble
//! left in doubt. A failed request is accepted if a trouble held a process on its path. Any other
//! error, and any wrong reply, is a violation and ends the run.
//!
//! The seed determines the plan: the troubles and their order, commands, keys and values. Times and
//! interleavings depend on the machine.

mod load;
mod record;
mod report;
mod tier;
mod troubles;
mod watch;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use load::Owner;
use record::Record;
use tier::Tier;
use troubles::Deck;
use watch::Watch;

/// The longest time between two settlements.
const ROUND: Duration = Duration::from_secs(60);

/// The number of concurrent troubles.
const LANES: u64 = 3;

/// The configuration of a soak.
#[derive(Debug, Clone)]
pub struct Soak {
    /// The duration of the troubles.
    pub length: Duration,
    /// The seed of the plan.
    pub seed: u64,
    /// The folder of the page and of the log of troubles.
    pub folder: PathBuf,
    /// Ends the run early when it becomes true.
    pub is_interrupted: Arc<AtomicBool>,
}

/// The outcome of a soak.
#[derive(Debug)]
pub struct Page {
    /// The page, in Markdown.
    pub text: String,
    /// Its file.
    pub path: PathBuf,
    /// False after a violation.
    pub is_good: bool,
}

impl Soak {
    /// Runs until the end or the first violation.
    ///
    /// # Panics
    ///
    /// When the deployment does not start, or the page cannot be written.
    #[must_use]
    pub fn run(&self) -> Page {
        fs::create_dir_all(&self.folder).unwrap();
        let file = |ending: &str| self.folder.join(format!("soak-{}.{ending}", self.seed));
        let record = Record::new(&file("log"), Arc::clone(&self.is_interrupted));
        let tier = Tier::start(self.seed, &record);
        let watch = Watch::default();
        let owners = Owner::all(&tier, self.seed);
        let count = owners.len();
        thread::scope(|scope| {
            for owner in owners {
                let record = &record;
                scope.spawn(move || record.guard("load", || owner.run(record)));
            }
            for path in tier.paths() {
                let (record, watch) = (&record, &watch);
                if !path.is_proxied() {
                    let path = path.clone();
                    scope.spawn(move || {
                        record.guard("fill", || load::fill(&path, record, self.seed));
                    });
                }
                scope.spawn(move || record.guard("probe", || watch.probe(&path, record)));
            }
            scope.spawn(|| record.guard("watch", || watch.processes(&tier, &record)));
            record.guard("rounds", || self.rounds(&tier, &record, &watch, count));
            record.end();
        });
        let text = report::page(self, &tier, &record, &watch);
        let path = file("md");
        fs::write(&path, &text).unwrap();
        Page { text, path, is_good: record.violations().is_empty() }
    }

    fn rounds(&self, tier: &Tier, record: &Record, watch: &Watch, owners: usize) {
        let end = Instant::now() + self.length;
        let deck = Deck::new(self.seed);
        for round in 0.. {
            let round_end = end.min(Instant::now() + ROUND);
            thread::scope(|scope| {
                for lane in 0..LANES {
                    let deck = &deck;
                    let seed = self.seed ^ (round * LANES + lane + 1) << 32;
                    scope.spawn(move || {
                        record.guard("troubles", || {
                            troubles::lane(deck, tier, record, seed, round_end);
                        });
                    });
                }
            });
            if record.is_over() {
                return;
            }
            tier.settle(round);
            record.settle(owners);
            watch.compare(tier, record);
            println_progress(&record.progress(round));
            if Instant::now() >= end {
                return;
            }
        }
    }
}

/// Prints one line per round.
#[allow(clippy::print_stderr, reason = "progress of a run of hours")]
fn println_progress(line: &str) {
    eprintln!("{line}");
}

/// The bytes of a file; 0 when it does not exist.
fn file_bytes(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |data| data.len())
}
