//! Deliveries to a router one of whose servers is out of reach.

use std::sync::atomic::{AtomicBool, AtomicU64};

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

use super::*;
use crate::disk_queue::SpoolFolder;
use crate::monitor::Monitor;
use crate::stats::Stats;

/// A cluster behind a router, one of whose servers may be out of reach.
#[derive(Default)]
struct Cluster {
    is_away: AtomicBool,
    flushes: AtomicU64,
    deleted: AtomicU64,
}

impl Cluster {
    /// Answers as a router does; a flush reaches the servers that are there.
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

const LIMITS: Limits = Limits {
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

#[tokio::test(start_paused = true)]
async fn a_server_out_of_reach_keeps_a_flush_waiting_and_nothing_else() {
    let stats = Arc::new(Stats::new(["c".to_owned()]));
    let cluster = Arc::new(Cluster::default());
    cluster.is_away.store(true, Relaxed);
    let target = Target {
        network: Arc::new(Net(Arc::clone(&cluster))),
        routers: vec!["r".to_owned()],
        limits: LIMITS,
        kept: tokio::sync::mpsc::channel(1).0,
        on_gap: OnGap::Stop,
        stats: Arc::clone(&stats),
        index: 0,
    };
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
