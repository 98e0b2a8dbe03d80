//! Deliveries to a router with an unreachable server, and to a distant router.

use std::sync::atomic::{AtomicBool, AtomicU64};

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

use super::*;
use crate::delivery::OnGap;
use crate::disk_queue::SpoolFolder;
use crate::monitor::Monitor;
use crate::stats::Stats;

/// A cluster behind a router, with a server that may be unreachable.
#[derive(Default)]
struct Cluster {
    is_away: AtomicBool,
    flushes: AtomicU64,
    deleted: AtomicU64,
}

impl Cluster {
    /// Answers as a router does; a flush reaches the available servers.
    async fn serve(&self, stream: DuplexStream) -> io::Result<()> {
        let mut stream = BufStream::new(stream);
        let mut line = String::new();
        while stream.read_line(&mut line).await? > 0 {
            let is_away = self.is_away.load(Relaxed);
            let flushed = if is_away { "SERVER_ERROR tko\r\n" } else { "OK\r\n" };
            let answer = match line.split_whitespace().collect::<Vec<_>>()[..] {
                ["flush_all"] => {
                    self.flushes.fetch_add(1, Relaxed);
                    flushed
                }
                ["flush_prefix", _] => flushed,
                ["md", _, "q", "Pexecuted"] => {
                    self.deleted.fetch_add(1, Relaxed);
                    ""
                }
                _ => "MN\r\n",
            };
            stream.write_all(answer.as_bytes()).await?;
            stream.flush().await?;
            line.clear();
        }
        Ok(())
    }
}

struct Net(Arc<Cluster>);

impl Network for Net {
    type Stream = DuplexStream;

    async fn dial(&self, _address: &str) -> io::Result<DuplexStream> {
        let (ours, theirs) = duplex(4096);
        let cluster = Arc::clone(&self.0);
        tokio::spawn(async move {
            // It ends with the connection.
            let _ = cluster.serve(theirs).await;
        });
        Ok(ours)
    }
}

/// A cluster behind these routers.
pub(super) fn target<N>(network: Arc<N>, routers: &[&str], stats: &Arc<Stats>) -> Target<N> {
    Target {
        network,
        routers: routers.iter().map(ToString::to_string).collect(),
        is_compressed: false,
        limits: LIMITS,
        kept: tokio::sync::mpsc::channel(1).0,
        on_gap: OnGap::Stop,
        stats: Arc::clone(stats),
        index: 0,
        log: |_| {},
    }
}

pub(super) const LIMITS: Limits = Limits {
    batch_keys: 10,
    batch_bytes: 1000,
    batch_wait: Duration::from_millis(1),
    answer_within: Duration::from_secs(1),
    retry_first: Duration::from_millis(50),
    retry_max: Duration::from_secs(2),
    repeat_after: Duration::ZERO,
    repeats_seen: false,
    window_keys: 1000,
    away_after: Duration::from_secs(1),
};

fn delivery(seq: u64, work: Work) -> Arc<Delivery> {
    Arc::new(Delivery { seq, work, committed_us: 77, read_at: Instant::now(), is_seen: true })
}

#[tokio::test]
async fn a_flush_for_a_damaged_spool_is_logged() {
    static LINES: parking_lot::Mutex<Vec<String>> = parking_lot::Mutex::new(Vec::new());
    let folder = tempfile::tempdir().unwrap();
    let (queue, _) = SpoolFolder::open(folder.path(), "c", 1 << 20).unwrap();
    queue.note_loss().unwrap();
    let stats = Arc::new(Stats::new(["c".to_owned()]));
    let cluster = Arc::new(Cluster::default());
    let mut target = target(Arc::new(Net(Arc::clone(&cluster))), &["r"], &stats);
    target.on_gap = OnGap::Flush(Flush::All);
    target.log = |line| LINES.lock().push(line.to_owned());
    let (backlog, _acked) =
        Backlog::new(Some(queue), 1000, Duration::from_secs(1), Arc::clone(&stats), 0);
    let (_monitor, sampler) = Monitor::new(0, Vec::new(), Arc::clone(&stats), 0);
    let running = tokio::spawn(Destination::new(target, backlog, sampler).run());
    while cluster.flushes.load(Relaxed) == 0 {
        sleep(Duration::from_millis(1)).await;
    }
    running.abort();
    let line = "warning: cluster c: a part of its spool is damaged and cannot be read; \
                the cluster is flushed instead";
    assert_eq!(*LINES.lock(), [line]);
}

#[tokio::test(start_paused = true)]
async fn an_unreachable_server_delays_only_the_flush() {
    let stats = Arc::new(Stats::new(["c".to_owned()]));
    let cluster = Arc::new(Cluster::default());
    cluster.is_away.store(true, Relaxed);
    let target = target(Arc::new(Net(Arc::clone(&cluster))), &["r"], &stats);
    let (backlog, acked) =
        Backlog::<SpoolFolder>::new(None, 1000, Duration::from_secs(1), Arc::clone(&stats), 0);
    let (_monitor, sampler) = Monitor::new(0, Vec::new(), Arc::clone(&stats), 0);
    let running = tokio::spawn(Destination::new(target, Arc::clone(&backlog), sampler).run());
    backlog.push(&delivery(1, Work::Flush(Flush::All))).await;
    for seq in 2..7 {
        backlog.push(&delivery(seq, Work::Delete(vec![Bytes::from_static(b"k")]))).await;
        sleep(Duration::from_secs(10)).await;
        assert_eq!(cluster.deleted.load(Relaxed), seq - 1, "deletes go on");
    }
    assert_eq!(cluster.flushes.load(Relaxed), 1, "the others are not emptied again and again");
    assert_eq!(*acked.borrow(), 0, "the position waits");
    assert_eq!(stats.clusters[0].oldest_us.load(Relaxed), 77, "and the lag shows it");
    cluster.is_away.store(false, Relaxed);
    sleep(Duration::from_secs(10)).await;
    assert_eq!(cluster.flushes.load(Relaxed), 2);
    assert_eq!(*acked.borrow(), 6);
    assert_eq!(stats.clusters[0].oldest_us.load(Relaxed), 0);
    running.abort();
}

/// Refuses one key, and counts the requests for it.
struct Strict {
    asked: Arc<AtomicU64>,
    answer: &'static str,
}

impl Network for Strict {
    type Stream = DuplexStream;

    async fn dial(&self, _address: &str) -> io::Result<DuplexStream> {
        let (ours, theirs) = duplex(1 << 16);
        let (asked, refusal) = (Arc::clone(&self.asked), self.answer);
        tokio::spawn(async move {
            let mut stream = BufStream::new(theirs);
            let mut line = String::new();
            while stream.read_line(&mut line).await.is_ok_and(|bytes| bytes > 0) {
                let answer = match line.split_whitespace().collect::<Vec<_>>()[..] {
                    ["md", "bad", ..] => {
                        asked.fetch_add(1, Relaxed);
                        refusal
                    }
                    ["md", _, "q", ..] => "",
                    ["md", ..] => "HD\r\n",
                    _ => "MN\r\n",
                };
                // At the end, no peer reads.
                let _: io::Result<()> = stream.write_all(answer.as_bytes()).await;
                let _: io::Result<()> = stream.flush().await;
                line.clear();
            }
        });
        Ok(ours)
    }
}

#[tokio::test(start_paused = true)]
async fn a_rejected_delete_is_logged_and_retried_slowly() {
    static TOLD: parking_lot::Mutex<Vec<String>> = parking_lot::Mutex::new(Vec::new());
    for (answer, times, lines) in [
        ("CLIENT_ERROR bad command line format\r\n", 2..30, 2..4),
        ("SERVER_ERROR away\r\n", 300..1200, 0..1),
    ] {
        TOLD.lock().clear();
        let asked = Arc::new(AtomicU64::new(0));
        let stats = Arc::new(Stats::new(["c".to_owned()]));
        let strict = Arc::new(Strict { asked: Arc::clone(&asked), answer });
        let mut target = target(strict, &["r"], &stats);
        target.log = |line| TOLD.lock().push(line.to_owned());
        let (backlog, acked) =
            Backlog::<SpoolFolder>::new(None, 1000, Duration::from_secs(1), Arc::clone(&stats), 0);
        let (_monitor, sampler) = Monitor::new(0, Vec::new(), Arc::clone(&stats), 0);
        let running = tokio::spawn(Destination::new(target, Arc::clone(&backlog), sampler).run());
        for (seq, key) in [(1, "bad"), (2, "good")] {
            backlog
                .push(&delivery(seq, Work::Delete(vec![Bytes::from_static(key.as_bytes())])))
                .await;
        }
        sleep(Duration::from_secs(100)).await;
        assert!(times.contains(&asked.load(Relaxed)), "{answer}: {}", asked.load(Relaxed));
        assert!(lines.contains(&TOLD.lock().len()), "{:?}", TOLD.lock());
        assert!(
            TOLD.lock().iter().all(|line| line.contains("'bad' is answered 'CLIENT_ERROR bad"))
        );
        assert_eq!(*acked.borrow(), 0, "the position waits");
        running.abort();
    }
}

/// Routers of which only the last accepts, once it is up.
struct Late(Arc<Cluster>);

impl Network for Late {
    type Stream = DuplexStream;

    async fn dial(&self, address: &str) -> io::Result<DuplexStream> {
        if address == "first" || self.0.is_away.load(Relaxed) {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        Net(Arc::clone(&self.0)).dial(address).await
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_cluster_is_unavailable_only_if_no_router_accepts() {
    let stats = Arc::new(Stats::new(["c".to_owned()]));
    let cluster = Arc::new(Cluster::default());
    cluster.is_away.store(true, Relaxed);
    let target = target(Arc::new(Late(Arc::clone(&cluster))), &["first", "last"], &stats);
    let (backlog, acked) =
        Backlog::<SpoolFolder>::new(None, 1000, Duration::from_secs(1), Arc::clone(&stats), 0);
    let (_monitor, sampler) = Monitor::new(0, Vec::new(), Arc::clone(&stats), 0);
    let running = tokio::spawn(Destination::new(target, Arc::clone(&backlog), sampler).run());
    let clusters =
        || stats.ready().iter().any(|check| check.name == "clusters" && check.fault.is_none());
    sleep(Duration::from_secs(10)).await;
    let own = &stats.clusters[0];
    assert!(!clusters());
    assert!(own.last_error.lock().contains("refused"), "{}", own.last_error.lock());
    assert_eq!(own.retried.load(Relaxed), 0, "nothing was sent");
    cluster.is_away.store(false, Relaxed);
    sleep(Duration::from_secs(3)).await;
    assert!(clusters(), "nothing has to be sent for that");
    backlog.push(&delivery(1, Work::Delete(vec![Bytes::from_static(b"k")]))).await;
    sleep(Duration::from_secs(1)).await;
    assert_eq!((*acked.borrow(), cluster.deleted.load(Relaxed)), (1, 1));
    running.abort();
}

/// A distant router: requests arrive after a delay, and so do its answers.
struct Far {
    trip: Duration,
    /// The delivery whose keys it refuses, and the batch after which it closes the connection.
    refuses: Option<u64>,
    closes: Option<usize>,
    /// Keys in the order of deletion, over all connections.
    deleted: Arc<parking_lot::Mutex<Vec<String>>>,
}

impl Network for Arc<Far> {
    type Stream = DuplexStream;

    async fn dial(&self, _address: &str) -> io::Result<DuplexStream> {
        sleep(self.trip * 2).await;
        let (ours, theirs) = duplex(1 << 20);
        let far = Self::clone(self);
        tokio::spawn(async move {
            let (reader, mut writer) = tokio::io::split(theirs);
            let mut lines = tokio::io::BufReader::new(reader).lines();
            let (sender, mut answers) = tokio::sync::mpsc::unbounded_channel();
            tokio::spawn(async move {
                while let Some((due, answer)) = answers.recv().await {
                    sleep_until(due).await;
                    // The peer may be gone.
                    let _: io::Result<()> = writer.write_all(answer).await;
                }
            });
            let mut batches = 0;
            while let Ok(Some(line)) = lines.next_line().await {
                let is_refused =
                    |key: &str| far.refuses.is_some_and(|seq| key.starts_with(&format!("{seq}.")));
                let answer: &[u8] = match line.split(' ').collect::<Vec<_>>()[..] {
                    ["md", key, ..] if is_refused(key) => b"SERVER_ERROR away\r\n",
                    ["md", key, ..] => {
                        far.deleted.lock().push(key.to_owned());
                        if line.contains(" q ") { b"" } else { b"HD\r\n" }
                    }
                    _ => {
                        batches += 1;
                        b"MN\r\n"
                    }
                };
                if Some(batches) == far.closes {
                    return;
                }
                // At the end, no peer reads.
                let _ = sender.send((Instant::now() + far.trip * 2, answer));
            }
        });
        Ok(ours)
    }
}

/// Delivers this number of batches of ten keys; returns the time, the deleted keys, and the number
/// of keys that wait for their server.
async fn deliver_far(
    batches: u64,
    refuses: Option<u64>,
    closes: Option<usize>,
) -> (Duration, Vec<String>, u64) {
    let deleted = Arc::default();
    let trip = Duration::from_millis(40);
    let far = Arc::new(Far { trip, refuses, closes, deleted: Arc::clone(&deleted) });
    let stats = Arc::new(Stats::new(["c".to_owned()]));
    let target = target(Arc::new(far), &["r"], &stats);
    let (backlog, mut acked) =
        Backlog::<SpoolFolder>::new(None, 100_000, Duration::from_secs(1), Arc::clone(&stats), 0);
    let (_monitor, sampler) = Monitor::new(0, Vec::new(), Arc::clone(&stats), 0);
    let running = tokio::spawn(Destination::new(target, Arc::clone(&backlog), sampler).run());
    let begin = Instant::now();
    for seq in 1..=batches {
        let keys = (0..10).map(|key| Bytes::from(format!("{seq}.{key}"))).collect();
        backlog.push(&delivery(seq, Work::Delete(keys))).await;
    }
    let all = async { acked.wait_for(|acked| *acked == batches).await.map(|_| ()) };
    let is_acked = timeout(Duration::from_secs(60), all).await.is_ok();
    let waiting = stats.clusters[0].deferred.load(Relaxed);
    assert_eq!(is_acked, refuses.is_none(), "the position waits for what was refused");
    running.abort();
    let deleted = deleted.lock().clone();
    (begin.elapsed(), deleted, waiting)
}

fn in_order(batches: u64) -> Vec<String> {
    (1..=batches).flat_map(|seq| (0..10).map(move |key| format!("{seq}.{key}"))).collect()
}

#[tokio::test(start_paused = true)]
async fn batches_to_a_distant_router_are_pipelined_in_order() {
    let (took, deleted, _) = deliver_far(200, None, None).await;
    assert_eq!(deleted, in_order(200));
    // One after the other, they would take 16 seconds of simulated time.
    assert!(took < Duration::from_secs(2), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn deletes_refused_by_a_distant_server_wait_alone() {
    let (_, deleted, waiting) = deliver_far(100, Some(20), None).await;
    assert_eq!(waiting, 10);
    let missing: Vec<_> = in_order(100).into_iter().filter(|key| !deleted.contains(key)).collect();
    assert_eq!(missing, in_order(20)[190..], "its keys alone");
}

#[tokio::test(start_paused = true)]
async fn batches_on_a_connection_that_breaks_are_sent_again() {
    let (_, deleted, waiting) = deliver_far(100, None, Some(20)).await;
    assert_eq!(waiting, 0);
    let missing: Vec<_> = in_order(100).into_iter().filter(|key| !deleted.contains(key)).collect();
    assert_eq!(missing, [""; 0]);
}
