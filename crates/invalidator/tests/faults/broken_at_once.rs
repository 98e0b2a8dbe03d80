//! A server that accepts each connection to its log and breaks it before any event, and at last
//! stays quiet.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use changes::change::Event;
use changes::position::Position;
use invalidator::change_source::{ChangeSource, SourceError};
use invalidator::pipeline::{self, Since};
use invalidator::stats::Stats;
use tokio::sync::watch;

use crate::world::{Session, Truth};
use crate::{plan, stats_of_clusters, world_of};

/// The connections that break before the first event.
const BREAKS: usize = 20;

/// The log of that server. After the breaks, it has two signs of life and ends.
struct Breaking {
    truth: Arc<Truth>,
    stats: Arc<Stats>,
    opened: usize,
    events: u32,
}

impl Breaking {
    fn is_connected(&self) -> bool {
        self.stats.source_connected.load(Relaxed)
    }
}

impl ChangeSource for Breaking {
    type Probe = Session;

    fn probe(&self) -> Session {
        Session::new(Arc::clone(&self.truth))
    }

    async fn open(&mut self, _from: Option<&Position>) -> Result<Position, SourceError> {
        self.opened += 1;
        if self.opened == 1 {
            // The start itself counts as heard, and it comes before the first connection.
            self.stats.heard_us.store(1, Relaxed);
        }
        Ok(Position::of_lsn(0))
    }

    async fn next(&mut self) -> Result<Event, SourceError> {
        if self.events > 0 {
            assert!(self.is_connected(), "an event came");
            self.events += 1;
            return if self.events > 2 { Err(SourceError::Over) } else { Ok(Event::Alive) };
        }
        assert!(!self.is_connected(), "connection {} had no event", self.opened);
        assert_eq!(self.stats.heard_us.load(Relaxed), 1, "nothing was heard");
        if self.opened <= BREAKS {
            return Err(SourceError::Lost("broken".to_owned()));
        }
        self.events = 1;
        Ok(Event::Alive)
    }

    fn behind_bytes(&self) -> Option<u64> {
        None
    }

    fn confirm(&mut self, _position: &Position) {}
}

#[tokio::test(start_paused = true)]
async fn connections_without_an_event_do_not_count_as_heard() {
    let truth = Truth::new(1);
    truth.calm();
    let stats = stats_of_clusters();
    let (opened, events) = (0, 0);
    let source = Breaking { truth: Arc::clone(&truth), stats: Arc::clone(&stats), opened, events };
    let (_ask, asked) = watch::channel(false);
    let run =
        pipeline::run(source, plan(), Since::Now, world_of(&truth), Arc::clone(&stats), asked);
    run.await.expect("the end of the input");
    assert!(stats.heard_us.load(Relaxed) > 1);
}
