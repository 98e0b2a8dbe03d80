//! One cluster's side of the canary: plants the keys of a beat, and reads through every router
//! until they are gone.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use changes::canary_rule::CanaryRule;
use tokio::io::BufStream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until, timeout};

use super::wire::{PLANTED_S, first_there, plant};
use crate::batch::{BatchError, Wire};
use crate::canary_stats::{CanaryStats, Obstacle};
use crate::network::Network;
use crate::stats::Stats;

/// The first pause between two looks.
const PAUSE_MIN: Duration = Duration::from_millis(2);

/// A router that did not answer is skipped for this multiple of the answer time limit, so that
/// waiting for it takes only a part of the interval.
const RESTS_FOR: u32 = 2;

/// Maximum number of beats looked for at a time.
const BEATS_MAX: usize = 16;

/// The time after which a key may have expired and proves nothing.
const BELIEVED_FOR: Duration = Duration::from_secs(PLANTED_S / 2);

/// A command to a cluster's task.
#[derive(Debug)]
pub(super) enum Order {
    /// Plant the keys of this beat.
    Plant { beat: u64, done: oneshot::Sender<()> },
    /// The beat was written after this moment: look for its keys.
    Look { beat: u64, written: Instant },
    /// The beat was not written.
    Forget { why: String },
}

/// A watched cluster.
#[derive(Debug)]
pub(super) struct Cluster<N: Network> {
    network: Arc<N>,
    rule: CanaryRule,
    routers: Vec<Router<N::Stream>>,
    /// The time limit for an answer.
    within: Duration,
    stats: Arc<Stats>,
    index: usize,
    planted: Option<Beat>,
    /// Written and unproven beats, oldest first.
    written: VecDeque<Beat>,
    pause: Duration,
    look_at: Instant,
}

#[derive(Debug)]
struct Beat {
    number: u64,
    keys: Vec<Bytes>,
    /// When it was planted, then when it was written.
    at: Instant,
}

#[derive(Debug)]
struct Router<S> {
    address: String,
    wire: Option<Wire<S>>,
    /// A router that did not answer is skipped until this time.
    rests_until: Instant,
}

impl<N: Network> Cluster<N> {
    pub(super) fn new(
        network: Arc<N>,
        rule: CanaryRule,
        routers: &[String],
        within: Duration,
        stats: Arc<Stats>,
        index: usize,
    ) -> Self {
        let now = Instant::now();
        let router =
            |address: &String| Router { address: address.clone(), wire: None, rests_until: now };
        Self {
            network,
            rule,
            routers: routers.iter().map(router).collect(),
            within,
            stats,
            index,
            planted: None,
            written: VecDeque::new(),
            pause: PAUSE_MIN,
            look_at: now,
        }
    }

    fn own(&self) -> &CanaryStats {
        &self.stats.clusters[self.index].canary
    }

    /// Executes orders until no sender is left.
    pub(super) async fn run(mut self, mut orders: mpsc::Receiver<Order>) {
        loop {
            let is_looking = !self.written.is_empty();
            let order = tokio::select! {
                order = orders.recv() => order,
                () = sleep_until(self.look_at), if is_looking => {
                    self.look().await;
                    continue;
                }
            };
            match order {
                None => return,
                Some(Order::Plant { beat, done }) => {
                    self.plant(beat).await;
                    // The writer may have stopped waiting.
                    let _ = done.send(());
                }
                Some(Order::Look { beat, written }) => self.begin(beat, written),
                Some(Order::Forget { why }) => {
                    self.planted = None;
                    self.own().set_obstacle(Obstacle::Hop(why));
                }
            }
        }
    }

    /// Plants through one router, a different one at each beat.
    async fn plant(&mut self, beat: u64) {
        let keys: Vec<Bytes> = self.rule.keys(beat).collect();
        let value = beat.to_string();
        self.planted = None;
        self.routers.rotate_left(1);
        for at in 0..self.routers.len() {
            match self.through(at, Question::Plant(&keys, value.as_bytes())).await {
                Some(Ok(_)) => {
                    self.planted = Some(Beat { number: beat, keys, at: Instant::now() });
                    return;
                }
                Some(Err(why)) => self.own().set_obstacle(Obstacle::Hop(why)),
                None => {}
            }
        }
    }

    /// Starts to look for the keys of a planted and now written beat.
    fn begin(&mut self, number: u64, written: Instant) {
        let Some(beat) = self.planted.take() else { return };
        if beat.number != number || beat.at > written {
            return;
        }
        self.written.retain(|beat| beat.at.elapsed() < BELIEVED_FOR);
        // The oldest stay, because a lagging log reaches them next.
        self.written.truncate(BEATS_MAX - 1);
        self.written.push_back(Beat { at: written, ..beat });
        self.pause = PAUSE_MIN;
        self.look_at = Instant::now();
    }

    /// Looks for the keys of all beats, newest first: its proof covers those before it.
    async fn look(&mut self) {
        let mut beats = std::mem::take(&mut self.written);
        while let Some(beat) = beats.back() {
            if self.is_proven(beat).await {
                self.own().prove(beat.at);
                beats.clear();
                break;
            }
            self.written.extend(beats.pop_back());
        }
        self.written.make_contiguous().reverse();
        self.pause = (self.pause * 2).min(self.within);
        self.look_at = Instant::now() + self.pause;
    }

    /// True if a router reports that the keys are gone, and none contradicts.
    async fn is_proven(&mut self, beat: &Beat) -> bool {
        let mut is_gone = false;
        for at in 0..self.routers.len() {
            match self.through(at, Question::FirstThere(&beat.keys)).await {
                Some(Ok(None)) => is_gone = true,
                Some(Ok(Some(key))) => {
                    let obstacle = format!(
                        "{}: key {} of a change that was written {:.1} s ago is still there",
                        self.routers[at].address,
                        String::from_utf8_lossy(&key),
                        beat.at.elapsed().as_secs_f64()
                    );
                    self.own().set_obstacle(Obstacle::StillThere(obstacle));
                    return false;
                }
                Some(Err(why)) => {
                    self.own().set_obstacle(Obstacle::Hop(why));
                    return false;
                }
                None => {}
            }
        }
        is_gone
    }

    /// Asks through a router. None for an unreachable one: it serves no client, and deletes use
    /// another.
    async fn through(
        &mut self,
        at: usize,
        question: Question<'_>,
    ) -> Option<Result<Option<Bytes>, String>> {
        let router = &mut self.routers[at];
        if Instant::now() < router.rests_until {
            return None;
        }
        let (network, address) = (self.network.as_ref(), &router.address);
        let mut held = router.wire.take();
        loop {
            // An idle connection may have been closed in the meantime.
            let is_old = held.is_some();
            let asked = timeout(self.within, asked(network, address, held.take(), question)).await;
            match asked.unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut).into())) {
                Ok((wire, answer)) => {
                    router.wire = Some(wire);
                    return Some(answer.map_err(|why| format!("{address}: {why}")));
                }
                Err(BatchError::Io(error)) if is_old && error.kind() != io::ErrorKind::TimedOut => {
                }
                Err(BatchError::Io(error)) => {
                    router.rests_until = Instant::now() + self.within * RESTS_FOR;
                    let why = format!("{address}: {error}");
                    self.own().set_obstacle(Obstacle::Hop(why));
                    return None;
                }
                Err(error) => return Some(Err(format!("{address}: {error}"))),
            }
        }
    }
}

/// A question to a router.
#[derive(Debug, Clone, Copy)]
enum Question<'q> {
    /// Plant this value under these keys.
    Plant(&'q [Bytes], &'q [u8]),
    /// Return the first of these keys that is still there.
    FirstThere(&'q [Bytes]),
}

/// The connection and its answer, which may be a refusal.
type Asked<S> = (Wire<S>, Result<Option<Bytes>, String>);

async fn asked<N: Network>(
    network: &N,
    address: &str,
    held: Option<Wire<N::Stream>>,
    question: Question<'_>,
) -> Result<Asked<N::Stream>, BatchError> {
    let mut wire = match held {
        Some(wire) => wire,
        None => BufStream::new(network.dial(address).await?),
    };
    let answer = match question {
        Question::Plant(keys, value) => plant(&mut wire, keys, value).await.map(|()| None),
        Question::FirstThere(keys) => {
            first_there(&mut wire, keys).await.map(Option::<&Bytes>::cloned)
        }
    };
    match answer {
        Ok(found) => Ok((wire, Ok(found))),
        Err(BatchError::Refused(why)) => Ok((wire, Err(why))),
        Err(error) => Err(error),
    }
}
