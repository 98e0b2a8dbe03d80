//! A server that restarts with settings by which its log lacks changes, and is repaired later.

use std::sync::Arc;

use changes::change::Event;
use changes::position::Position;
use invalidator::change_source::{ChangeSource, SourceError};
use invalidator::delivery::OnGap;
use invalidator::pipeline::{self, Ended, Since};
use tokio::sync::watch;

use crate::world::{Session, Truth};
use crate::{plan, stats_of_clusters, world_of};

/// The log of that server.
struct Restarted {
    truth: Arc<Truth>,
    /// The turns of opening at which its check fails.
    failing: Vec<usize>,
    opened: usize,
}

impl ChangeSource for Restarted {
    type Probe = Session;

    fn probe(&self) -> Session {
        Session::new(Arc::clone(&self.truth))
    }

    async fn open(&mut self, from: Option<&Position>) -> Result<Position, SourceError> {
        self.opened += 1;
        if self.failing.contains(&self.opened) {
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

    fn confirm(&mut self, _position: &Position) {}
}

async fn run(truth: &Arc<Truth>, failing: &[usize], has_flush: bool) -> Result<(), Ended> {
    let mut plan = plan();
    if !has_flush {
        plan.on_gap = OnGap::Stop;
    }
    let source = Restarted { truth: Arc::clone(truth), failing: failing.to_vec(), opened: 0 };
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
