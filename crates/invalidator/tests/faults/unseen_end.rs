//! A log that is gone up to its end, while a commit before that end is not visible yet.

use std::sync::Arc;
use std::time::Duration;

use changes::change::{Event, Mark};
use changes::position::Position;
use invalidator::change_source::{ChangeSource, SourceError};
use invalidator::pipeline::{self, Since};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::world::{Session, Truth};
use crate::{plan, stats_of_clusters, world_of};

/// The log of that database. A reader caches the old value after the flush; then comes the next
/// commit, at first over a connection that breaks before others see it.
struct Gone {
    truth: Arc<Truth>,
    turn: u32,
}

impl ChangeSource for Gone {
    type Probe = Session;

    fn probe(&self) -> Session {
        Session::new(Arc::clone(&self.truth))
    }

    async fn open(&mut self, from: Option<&Position>) -> Result<Position, SourceError> {
        Ok(from.cloned().unwrap_or_else(|| Position::of_lsn(u64::from(self.turn))))
    }

    async fn next(&mut self) -> Result<Event, SourceError> {
        self.turn += 1;
        let commit =
            Event::Commit { position: Position::of_lsn(20), committed_us: 1, mark: Mark::Xid(1) };
        match self.turn {
            1 => Err(SourceError::Purged("gone".to_owned())),
            2 => Ok(Event::Idle { position: Position::of_lsn(10) }),
            3 => {
                while self.truth.has_cached(1) {
                    sleep(Duration::from_millis(1)).await;
                }
                self.truth.cache(1, 0);
                Ok(commit)
            }
            4 => Ok(Event::Alive),
            5 => Err(SourceError::Lost("broken".to_owned())),
            6 => {
                self.truth.see(1);
                Ok(commit)
            }
            _ => Err(SourceError::Over),
        }
    }

    fn behind_bytes(&self) -> Option<u64> {
        None
    }

    fn confirm(&mut self, _position: &Position) {}
}

#[tokio::test(start_paused = true)]
async fn values_cached_after_a_flush_leave_when_the_commits_before_it_are_visible() {
    let truth = Truth::new(1);
    truth.calm();
    truth.cache(1, 0);
    let mut plan = plan();
    // A flush that nobody confirmed is not repeated.
    plan.limits.repeat_after = Duration::ZERO;
    let source = Gone { truth: Arc::clone(&truth), turn: 0 };
    let (_ask, asked) = watch::channel(false);
    let world = world_of(&truth);
    let run = pipeline::run(source, plan, Since::Now, world, stats_of_clusters(), asked);
    run.await.expect("the end of the input");
    assert!(!truth.has_cached(1));
}
