//! An end at which every delete was executed.

use std::sync::Arc;

use bytes::Bytes;
use changes::change::{Change, Event, Mark};
use changes::position::Position;
use invalidator::change_source::{ChangeSource, SourceError};
use invalidator::checkpoint;
use invalidator::pipeline::{self, Since};
use tokio::sync::watch;

use crate::world::{Session, Truth};
use crate::{plan, stats_of_clusters, world_of};

/// A log with one transaction.
struct Short {
    truth: Arc<Truth>,
    events: Vec<Event>,
}

impl ChangeSource for Short {
    type Probe = Session;

    fn probe(&self) -> Session {
        Session::new(Arc::clone(&self.truth))
    }

    async fn open(&mut self, _from: Option<&Position>) -> Result<Position, SourceError> {
        Ok(Position::of_lsn(1))
    }

    async fn next(&mut self) -> Result<Event, SourceError> {
        self.events.pop().ok_or(SourceError::Over)
    }

    fn behind_bytes(&self) -> Option<u64> {
        None
    }

    fn confirm(&mut self, _position: &Position) {}
}

#[tokio::test(start_paused = true)]
async fn the_checkpoint_names_no_cluster_without_deletes_on_the_disk() {
    let truth = Truth::new(1);
    truth.calm();
    truth.see(1);
    truth.cache(1, 0);
    let (content, position) = (Bytes::from_static(b"k1"), Position::of_lsn(2));
    let change = Change::Message { prefix: "mc".to_owned(), content };
    let commit = Event::Commit { position: position.clone(), committed_us: 1, mark: Mark::Xid(1) };
    let events = vec![commit, Event::Change(change)];
    let source = Short { truth: Arc::clone(&truth), events };
    let (_ask, asked) = watch::channel(false);
    let world = world_of(&truth);
    let keep = Arc::clone(&world.keep);
    let run = pipeline::run(source, plan(), Since::Now, world, stats_of_clusters(), asked);
    run.await.expect("the end of the input");
    let kept = checkpoint::read(&*keep, "sim").unwrap().expect("a checkpoint");
    assert_eq!((truth.has_cached(1), kept.position, kept.spooled), (false, position, vec![]));
}
