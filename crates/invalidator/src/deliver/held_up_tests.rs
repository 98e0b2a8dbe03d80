//! Deliveries to a cluster that is unavailable for long and then refuses single keys: with a disk
//! smaller than the queue, and without a disk.

use std::sync::atomic::{AtomicBool, AtomicU64};

use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio::task::JoinHandle;

use super::tests::{LIMITS, target};
use super::*;
use crate::delivery::OnGap;
use crate::disk_queue::SpoolFolder;
use crate::monitor::Monitor;
use crate::stats::Stats;

/// A router that may be down and that refuses as a test requires.
#[derive(Default)]
struct Router {
    is_there: AtomicBool,
    /// Keys that start with `bad` are refused.
    refuses_bad: AtomicBool,
    deleted: parking_lot::Mutex<Vec<String>>,
}

impl Network for Arc<Router> {
    type Stream = DuplexStream;

    async fn dial(&self, _address: &str) -> io::Result<DuplexStream> {
        if !self.is_there.load(Relaxed) {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let (ours, theirs) = duplex(1 << 16);
        let router = Self::clone(self);
        tokio::spawn(async move {
            let mut stream = BufStream::new(theirs);
            let mut line = String::new();
            while stream.read_line(&mut line).await.is_ok_and(|bytes| bytes > 0) {
                let answer = router.answer(&line);
                // At the end, no peer reads.
                let _: io::Result<()> = stream.write_all(answer.as_bytes()).await;
                let _: io::Result<()> = stream.flush().await;
                line.clear();
            }
        });
        Ok(ours)
    }
}

impl Router {
    fn answer(&self, line: &str) -> &'static str {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["md", key, ..] if key.starts_with("bad") && self.refuses_bad.load(Relaxed) => {
                "SERVER_ERROR away\r\n"
            }
            ["md", key, ..] => {
                self.deleted.lock().push(key.to_owned());
                if words.contains(&"q") { "" } else { "HD\r\n" }
            }
            _ => "MN\r\n",
        }
    }
}

/// A cluster's task and its deliveries.
struct Rig {
    router: Arc<Router>,
    stats: Arc<Stats>,
    acked: tokio::sync::watch::Receiver<u64>,
    /// Deliveries that fit.
    pushed: Arc<AtomicU64>,
    tasks: Vec<JoinHandle<()>>,
    _folder: TempDir,
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

const WINDOW: u64 = 100;

impl Rig {
    /// Pushes this number of deliveries of one key each, of which the first are bad.
    fn start(spool_bytes_max: u64, count: u64, bad: u64) -> Self {
        let router = Arc::new(Router::default());
        router.refuses_bad.store(true, Relaxed);
        let folder = tempfile::tempdir().unwrap();
        let queue = (spool_bytes_max > 0)
            .then(|| SpoolFolder::open(folder.path(), "c", spool_bytes_max).unwrap().0);
        let stats = Arc::new(Stats::new(["c".to_owned()]));
        let window = usize::try_from(WINDOW).unwrap();
        let (backlog, acked) =
            Backlog::new(queue, window, Duration::from_secs(1), Arc::clone(&stats), 0);
        let (_monitor, sampler) = Monitor::new(0, Vec::new(), Arc::clone(&stats), 0);
        let mut target = target(Arc::new(Arc::clone(&router)), &["r"], &stats);
        target.limits = Limits { window_keys: window, ..LIMITS };
        let destination = Destination::new(target, Arc::clone(&backlog), sampler);
        let pushed = Arc::new(AtomicU64::new(0));
        let (counted, pushing) = (Arc::clone(&pushed), Arc::clone(&backlog));
        let tasks = vec![
            tokio::spawn(backlog.write(OnGap::Stop, |_| {})),
            tokio::spawn(async move { destination.run().await.unwrap() }),
            tokio::spawn(async move {
                for seq in 1..=count {
                    let begin = if seq <= bad { "bad" } else { "k" };
                    let work = Work::Delete(vec![Bytes::from(format!("{begin}{seq:0100}"))]);
                    let (committed_us, read_at) = (seq * 1_000_000, Instant::now());
                    let delivery = Delivery { seq, work, committed_us, read_at, is_seen: true };
                    pushing.push(&Arc::new(delivery)).await;
                    counted.fetch_add(1, Relaxed);
                }
            }),
        ];
        Self { router, stats, acked, pushed, tasks, _folder: folder }
    }

    fn own(&self) -> &ClusterStats {
        &self.stats.clusters[0]
    }

    async fn until(&mut self, acked: u64) {
        let done = self.acked.wait_for(|seen| *seen >= acked);
        let done = timeout(Duration::from_secs(3600), done).await.map(|done| *done.unwrap());
        assert!(done.is_ok(), "acknowledged {}", *self.acked.borrow());
    }

    async fn until_deleted(&self, count: usize) {
        for _ in 0..36_000 {
            if self.router.deleted.lock().len() >= count {
                return;
            }
            sleep(Duration::from_millis(100)).await;
        }
        panic!("deleted {} of {count}", self.router.deleted.lock().len());
    }

    /// Waits until the disk is full, and for one more minute.
    async fn until_full(&self) {
        while self.own().spool_failures.load(Relaxed) == 0 {
            sleep(Duration::from_millis(100)).await;
        }
        sleep(Duration::from_secs(60)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn refused_keys_on_a_full_disk_delay_no_other() {
    let mut rig = Rig::start(20_000, 2000, 5);
    rig.until_full().await;
    rig.router.is_there.store(true, Relaxed);
    rig.until_deleted(1995).await;
    rig.until(2000).await;
    sleep(Duration::from_secs(10)).await;
    let parked = rig.own().deferred.load(Relaxed);
    let oldest_us = rig.own().oldest_us.load(Relaxed);
    assert_eq!((parked, oldest_us), (5, 1_000_000), "the lag is that of what is refused");
    rig.router.refuses_bad.store(false, Relaxed);
    sleep(Duration::from_secs(10)).await;
    let own = rig.own();
    assert_eq!((own.spool_records.load(Relaxed), own.oldest_us.load(Relaxed)), (0, 0));
    assert_eq!((own.deferred.load(Relaxed), own.waiting.load(Relaxed)), (0, 0));
    let deleted: HashSet<String> = rig.router.deleted.lock().iter().cloned().collect();
    assert_eq!(deleted.len(), 2000);
}

#[tokio::test(start_paused = true)]
async fn memory_stays_bounded_with_a_disk_smaller_than_the_window() {
    let mut rig = Rig::start(5000, 3000, 0);
    rig.until_full().await;
    let on_disk = rig.own().spool_records.load(Relaxed);
    assert!((30..60).contains(&on_disk), "{on_disk}");
    assert!(rig.pushed.load(Relaxed) <= 2 * WINDOW + on_disk, "{:?}", rig.pushed);
    assert_eq!(*rig.acked.borrow(), on_disk, "what is on the disk does not hold the position");
    rig.router.is_there.store(true, Relaxed);
    while *rig.acked.borrow() < 3000 {
        rig.acked.changed().await.unwrap();
        assert!(rig.own().waiting.load(Relaxed) <= 2 * WINDOW, "{:?}", rig.own().waiting);
    }
    rig.until_deleted(3000).await;
    sleep(Duration::from_secs(10)).await;
    assert_eq!(rig.router.deleted.lock().len(), 3000, "each once");
}

#[tokio::test(start_paused = true)]
async fn without_a_disk_a_few_refused_keys_delay_no_other() {
    let mut rig = Rig::start(0, 1000, 1000);
    rig.router.is_there.store(true, Relaxed);
    sleep(Duration::from_secs(60)).await;
    assert_eq!((rig.pushed.load(Relaxed), rig.own().deferred.load(Relaxed)), (WINDOW, WINDOW));
    rig.router.refuses_bad.store(false, Relaxed);
    rig.until(1000).await;
    let mut rig = Rig::start(0, 1000, 5);
    rig.router.is_there.store(true, Relaxed);
    rig.until_deleted(995).await;
    assert_eq!(*rig.acked.borrow(), 0, "the position waits");
    rig.router.refuses_bad.store(false, Relaxed);
    rig.until(1000).await;
}

#[tokio::test(start_paused = true)]
async fn deletes_for_a_never_reached_cluster_count_in_the_lag() {
    let mut rig = Rig::start(0, 1, 0);
    sleep(Duration::from_secs(10)).await;
    assert_eq!(rig.own().oldest_us.load(Relaxed), 1_000_000);
    rig.router.is_there.store(true, Relaxed);
    rig.until(1).await;
    assert_eq!(rig.own().oldest_us.load(Relaxed), 0);
}
