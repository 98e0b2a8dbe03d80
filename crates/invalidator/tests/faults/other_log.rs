//! A gap after which another log is read, for example that of a promoted server without the end of
//! the former one: positions of the first log mean something else there.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use changes::change::Event;
use changes::position::Position;
use invalidator::change_source::{ChangeSource, SourceError};
use invalidator::pipeline::{self, Since};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::world::{Session, Truth};
use crate::{plan, stats_of_clusters, world_of};

const FIRST: u64 = 100;
const OTHER: u64 = 5;

/// Both logs. The other one ends after a position was confirmed.
struct Replaced {
    truth: Arc<Truth>,
    opened: u32,
    confirmed: Arc<Mutex<Vec<Position>>>,
}

impl ChangeSource for Replaced {
    type Probe = Session;

    fn probe(&self) -> Session {
        Session::new(Arc::clone(&self.truth))
    }

    async fn open(&mut self, _from: Option<&Position>) -> Result<Position, SourceError> {
        self.opened += 1;
        Ok(Position::of_lsn(if self.opened == 1 { FIRST } else { OTHER }))
    }

    async fn next(&mut self) -> Result<Event, SourceError> {
        sleep(Duration::from_millis(10)).await;
        match self.opened {
            1 => Err(SourceError::Purged("another log".to_owned())),
            _ if self.confirmed.lock().unwrap().is_empty() => Ok(Event::Alive),
            _ => Err(SourceError::Over),
        }
    }

    fn behind_bytes(&self) -> Option<u64> {
        None
    }

    fn confirm(&mut self, position: &Position) {
        self.confirmed.lock().unwrap().push(position.clone());
    }
}

#[tokio::test(start_paused = true)]
async fn no_position_of_the_log_before_a_gap_is_confirmed() {
    let truth = Truth::new(1);
    truth.calm();
    let confirmed = Arc::default();
    let source =
        Replaced { truth: Arc::clone(&truth), opened: 0, confirmed: Arc::clone(&confirmed) };
    let (_ask, asked) = watch::channel(false);
    let world = world_of(&truth);
    let mut plan = plan();
    plan.is_shared = true;
    let run = pipeline::run(source, plan, Since::Now, world, stats_of_clusters(), asked);
    run.await.expect("the end of the input");
    assert_eq!(*confirmed.lock().unwrap(), [Position::of_lsn(OTHER)]);
}
