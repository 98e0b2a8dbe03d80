//! A server that restarts with settings by which its log lacks changes, and is repaired later.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use changes::change::Event;
use changes::position::Position;
use invalidator::change_source::{ChangeSource, SourceError};
use invalidator::checkpoint::{self, Keep};
use invalidator::delivery::OnGap;
use invalidator::pipeline::{self, Ended, Since, World};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::world::{Session, Truth};
use crate::{plan, stats_of_clusters, world_of};

/// The log of that server.
struct Restarted {
    truth: Arc<Truth>,
    /// The turns of opening at which its check fails.
    failing: Vec<usize>,
    opened: usize,
    /// True if the failure is reported as that of one server among several, the others of which
    /// cannot be reached.
    is_one: bool,
}

impl ChangeSource for Restarted {
    type Probe = Session;

    fn probe(&self) -> Session {
        Session::new(Arc::clone(&self.truth))
    }

    async fn open(&mut self, from: Option<&Position>) -> Result<Position, SourceError> {
        self.opened += 1;
        if self.failing.contains(&self.opened) {
            if self.is_one {
                return Err(SourceError::Lost("another server may have everything".to_owned()));
            }
            return Err(SourceError::Lacking("the log leaves out statements".to_owned()));
        }
        Ok(from.cloned().unwrap_or_else(|| Position::of_lsn(1)))
    }

    async fn next(&mut self) -> Result<Event, SourceError> {
        match self.failing.is_empty() {
            true => Err(SourceError::Over),
            false => Err(SourceError::Lost("it restarts".to_owned())),
        }
    }

    fn behind_bytes(&self) -> Option<u64> {
        None
    }

    fn lacking(&self) -> Option<String> {
        let is_failing = self.is_one && self.failing.contains(&self.opened);
        is_failing.then(|| "the log leaves out statements".to_owned())
    }

    fn confirm(&mut self, _position: &Position) {}
}

async fn run(truth: &Arc<Truth>, failing: &[usize], has_flush: bool) -> Result<(), Ended> {
    let mut plan = plan();
    if !has_flush {
        plan.on_gap = OnGap::Stop;
    }
    let source =
        Restarted { truth: Arc::clone(truth), failing: failing.to_vec(), opened: 0, is_one: false };
    let (_ask, asked) = watch::channel(false);
    let (since, world) = (Since::Checkpoint, world_of(truth));
    pipeline::run(source, plan, since, world, stats_of_clusters(), asked).await
}

#[tokio::test(start_paused = true)]
async fn a_failed_check_is_noted_until_a_flush() {
    let truth = Truth::new(1);
    truth.calm();
    // Nothing was followed before, so nothing is lost.
    assert!(matches!(run(&truth, &[1], false).await, Err(Ended::Wrong(_))));
    run(&truth, &[], false).await.expect("the end of the input");
    // It fails at a reconnect, or at a start.
    for failing in [2, 1] {
        for has_flush in [false, true] {
            truth.cache(1, 0);
            let ended = run(&truth, &[failing], has_flush).await;
            assert!(matches!(ended, Err(Ended::Lacking(_))), "{ended:?}");
            // The server is repaired.
            assert!(matches!(run(&truth, &[], false).await, Err(Ended::Lacking(_))));
            assert!(truth.has_cached(1));
            run(&truth, &[], true).await.expect("the end of the input");
            assert!(!truth.has_cached(1));
            run(&truth, &[], false).await.expect("the end of the input");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_check_is_noted_when_a_stop_ends_the_wait_for_another_server() {
    let truth = Truth::new(1);
    truth.calm();
    run(&truth, &[], false).await.expect("the end of the input");
    let mut plan = plan();
    plan.on_gap = OnGap::Stop;
    let failing = (2..1000).collect();
    let source = Restarted { truth: Arc::clone(&truth), failing, opened: 0, is_one: true };
    let (ask, asked) = watch::channel(false);
    let (since, world) = (Since::Checkpoint, world_of(&truth));
    let running = pipeline::run(source, plan, since, world, stats_of_clusters(), asked);
    let stopping = async {
        sleep(Duration::from_secs(10)).await;
        ask.send(true).unwrap();
    };
    let (ended, ()) = tokio::join!(running, stopping);
    assert!(matches!(ended, Err(Ended::Lacking(_))), "{ended:?}");
    assert!(matches!(run(&truth, &[], false).await, Err(Ended::Lacking(_))));
}

/// A disk whose writes go on when nobody waits for them, as those of a file do. All take long
/// except that of the note.
struct SlowDisk(Arc<Mutex<Option<Vec<u8>>>>);

impl Keep for SlowDisk {
    fn read(&self) -> io::Result<Option<Vec<u8>>> {
        Ok(self.0.lock().unwrap().clone())
    }

    async fn replace(&self, bytes: Vec<u8>) -> io::Result<()> {
        let disk = Arc::clone(&self.0);
        let is_note = bytes.windows(9).any(|bytes| bytes == b"\nlacking\n");
        let written = tokio::spawn(async move {
            sleep(Duration::from_secs(if is_note { 0 } else { 10 })).await;
            *disk.lock().unwrap() = Some(bytes);
        });
        written.await.map_err(io::Error::other)
    }

    fn path(&self) -> &Path {
        Path::new("slow")
    }
}

#[tokio::test(start_paused = true)]
async fn a_save_that_began_before_the_note_does_not_overwrite_it() {
    let truth = Truth::new(1);
    truth.calm();
    run(&truth, &[], false).await.expect("the end of the input");
    let kept = world_of(&truth).keep.read().unwrap();
    let disk = Arc::new(Mutex::new(kept));
    let mut plan = plan();
    plan.on_gap = OnGap::Stop;
    let World { network, disk_queues, key_files, log, .. } = world_of(&truth);
    let keep = Arc::new(SlowDisk(Arc::clone(&disk)));
    let world = World { network, keep, disk_queues, key_files, log };
    let failing = vec![2];
    let source = Restarted { truth: Arc::clone(&truth), failing, opened: 0, is_one: false };
    let (_ask, asked) = watch::channel(false);
    let since = Since::Checkpoint;
    let ended = pipeline::run(source, plan, since, world, stats_of_clusters(), asked).await;
    assert!(matches!(ended, Err(Ended::Lacking(_))), "{ended:?}");
    // Whatever is still being written arrives.
    sleep(Duration::from_secs(60)).await;
    let kept = checkpoint::read(&SlowDisk(disk), "sim").unwrap().expect("a checkpoint");
    assert!(kept.is_lacking);
}
