//! Invalidators of one group: one works, the others wait and take over.
//!
//! ```text
//!     waiting -> the lock is free -> working -> another has the lock -> waiting
//!        ^ the worker's position, by its status port, into the own checkpoint
//! ```
//!
//! The lock decides who works. Correctness does not depend on a single worker: a delete is right at
//! any moment after its commit, so two workers at the same time cost a miss, but no worker would
//! leave old values. That is why a worker whose lock session breaks continues until it sees that
//! another one has the lock (decision 105).
//!
//! The atomics here are values for `stats`. Relaxed is enough: no other data depends on them.

mod lock;
mod peer;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::change_source::SourceError;
use crate::checkpoint::{self, CheckpointError, Keep, Kept};
use crate::clock::system_now_us;
use crate::stats::Stats;

pub use lock::{GroupLock, LockSession};

/// The pause between two attempts to take the lock, or two checks that it is still held.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// The maximum random addition, so that two that hinder each other do not do so again.
const LOOK_LATER: u64 = 200;

/// The pause of a worker that could not check: it asks before the others when the database is back,
/// so a restart of only the database hands nothing over.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// The interval between two queries for the worker's position.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// The time for which a worker that ends because the log lacked changes reports that to the others.
const ANNOUNCE_FOR: Duration = Duration::from_secs(3);

/// The group of an invalidator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// Its name, which is a part of the lock's.
    pub name: String,
    /// The status ports of the others.
    pub peers: Vec<String>,
}

/// An invalidator of a group.
pub(crate) struct Member<S: LockSession, K> {
    pub(crate) group: Group,
    pub(crate) lock: GroupLock<S>,
    /// The source's name, which the checkpoint records.
    pub(crate) source: String,
    pub(crate) keep: Arc<K>,
    pub(crate) stats: Arc<Stats>,
    pub(crate) log: fn(&str),
}

impl<S: LockSession, K: Keep> Member<S, K> {
    /// Waits for the lock, and in the meantime saves the worker's position as its own. True if
    /// another worked before.
    ///
    /// # Errors
    ///
    /// A fault that a retry does not fix: a refused login, a checkpoint that cannot be written.
    pub(crate) async fn wait(&mut self) -> Result<bool, WaitError> {
        let mut waited = Waited::default();
        let mut asked_at: Option<Instant> = None;
        loop {
            match self.lock.hold().await {
                Ok(true) => break,
                Ok(false) => {
                    self.stats.heard_us.store(system_now_us(), Relaxed);
                    if !std::mem::replace(&mut waited.for_another, true) {
                        let name = &self.group.name;
                        (self.log)(&format!(
                            "another invalidator of group {name} works; this one waits"
                        ));
                    }
                    waited.refused = None;
                }
                Err(SourceError::Wrong(why)) => return Err(WaitError::Wrong(why)),
                Err(error) => waited.refuse(&error, self.log),
            }
            if asked_at.is_none_or(|at| at.elapsed() >= ASK_EVERY) {
                asked_at = Some(Instant::now());
                self.ask_peers().await?;
            }
            sleep(next_look()).await;
        }
        (self.log)(&format!("this invalidator works for group {}", self.group.name));
        Ok(waited.for_another)
    }

    /// Ends when another invalidator has the lock.
    pub(crate) async fn until_lost(&mut self) {
        let mut waited = Waited::default();
        let mut pause = next_look();
        loop {
            sleep(pause).await;
            pause = match self.lock.hold().await {
                Ok(true) => {
                    waited.refused = None;
                    next_look()
                }
                Ok(false) => {
                    let name = &self.group.name;
                    (self.log)(&format!(
                        "warning: another invalidator of group {name} has the lock"
                    ));
                    return;
                }
                // Old values would stay without a worker, so this one continues.
                Err(error) => {
                    waited.refuse(&error, self.log);
                    if matches!(error, SourceError::Wrong(_)) { next_look() } else { LOOK_AGAIN }
                }
            }
        }
    }

    /// Reports to the others for a while that the log lacked changes, and no longer works.
    pub(crate) async fn announce_missing_changes(&mut self) {
        self.stats.is_lacking.store(true, Relaxed);
        let end = Instant::now() + ANNOUNCE_FOR;
        while Instant::now() < end {
            // The state of the lock no longer matters.
            let _ = self.lock.hold().await;
            sleep(LOOK_EVERY).await;
        }
    }

    async fn ask_peers(&self) -> Result<(), CheckpointError> {
        for address in &self.group.peers {
            let Some(peer) = peer::ask(address).await else { continue };
            if !peer.is_working {
                continue;
            }
            let own = checkpoint::read(self.keep.as_ref(), &self.source)?;
            // A worker that found the loss at its start has no position.
            let stays = || own.as_ref().filter(|_| peer.is_lacking).map(|own| own.position.clone());
            let Some(position) = peer.position.or_else(stays) else { continue };
            // Only a flush removes the note.
            let is_lacking = peer.is_lacking || own.as_ref().is_some_and(|own| own.is_lacking);
            let spooled = own.as_ref().map(|own| own.spooled.clone()).unwrap_or_default();
            let kept = Kept { position, is_lacking, spooled };
            if own.as_ref() != Some(&kept) {
                checkpoint::write(self.keep.as_ref(), &self.source, &kept).await?;
            }
            self.stats.position.lock().clone_from(&kept.position.to_string());
            return Ok(());
        }
        Ok(())
    }
}

/// The pause before the next check of the lock.
fn next_look() -> Duration {
    LOOK_EVERY + Duration::from_millis(system_now_us() % LOOK_LATER)
}

/// The reason why an invalidator stops waiting.
#[derive(Debug, thiserror::Error)]
pub enum WaitError {
    /// A fault that a retry does not fix.
    #[error("{0}")]
    Wrong(String),
    /// The checkpoint cannot be used.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
}

/// The messages already logged about waiting.
#[derive(Debug, Default)]
struct Waited {
    for_another: bool,
    refused: Option<String>,
}

impl Waited {
    /// Logs why the lock cannot be requested, once for each reason.
    fn refuse(&mut self, error: &SourceError, log: fn(&str)) {
        let why = error.to_string();
        if self.refused.as_ref() != Some(&why) {
            log(&format!("warning: the group's lock cannot be asked for: {why}; trying again"));
            self.refused = Some(why);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{io, path::Path};

    use changes::position::Position;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::lock::tests::{Session, World, lock};
    use super::*;
    use crate::checkpoint::KeptFile;

    /// A checkpoint that was never written.
    #[derive(Debug)]
    struct Nothing;

    impl Keep for Nothing {
        fn read(&self) -> io::Result<Option<Vec<u8>>> {
            Ok(None)
        }

        async fn replace(&self, _bytes: Vec<u8>) -> io::Result<()> {
            Ok(())
        }

        fn path(&self) -> &Path {
            Path::new("none")
        }
    }

    fn member(world: &World) -> Member<Session, Nothing> {
        member_with(world, Nothing)
    }

    fn member_with<K: Keep>(world: &World, keep: K) -> Member<Session, K> {
        Member {
            group: Group { name: "g".to_owned(), peers: Vec::new() },
            lock: lock(world),
            source: "default".to_owned(),
            keep: Arc::new(keep),
            stats: Arc::new(Stats::new([])),
            log: |_| {},
        }
    }

    /// The status port of a peer with these stats, for one query.
    async fn peer(stats: Stats) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut asked = [0; b"stats\r\nquit\r\n".len()];
            stream.read_exact(&mut asked).await.unwrap();
            stream.write_all(stats.text(0).as_bytes()).await.unwrap();
        });
        address
    }

    #[tokio::test]
    async fn a_loss_found_before_anything_was_delivered_is_noted() {
        let folder = tempfile::tempdir().unwrap();
        let keep = KeptFile(folder.path().join("cp"));
        let own = Kept {
            position: Position::of_lsn(7),
            is_lacking: false,
            spooled: vec!["east".to_owned()],
        };
        checkpoint::write(&keep, "default", &own).await.unwrap();
        for is_lacking in [false, true] {
            let stats = Stats::new([]);
            stats.is_lacking.store(is_lacking, Relaxed);
            let mut member = member_with(&World::default(), keep.clone());
            member.group.peers = vec![peer(stats).await];
            member.ask_peers().await.unwrap();
            let kept = checkpoint::read(&keep, "default").unwrap();
            assert_eq!(kept, Some(Kept { is_lacking, ..own.clone() }));
        }
    }

    /// The waiting invalidator checks each half second.
    #[tokio::test(start_paused = true)]
    async fn the_active_instance_retakes_the_lock_after_an_outage() {
        let world = World::default();
        let mut first = member(&world);
        assert!(!first.wait().await.expect("the lock is free"));
        let lost = tokio::spawn(async move { first.until_lost().await });
        for outage in 0..20 {
            sleep(Duration::from_millis(3_000 + outage * 31)).await;
            world.lock().crash();
            sleep(Duration::from_secs(2)).await;
            assert!(!world.lock().is_held());
            world.lock().is_back();
            sleep(LOOK_AGAIN * 2).await;
            assert!(world.lock().is_held(), "outage {outage}");
        }
        assert!(!lost.is_finished());
    }
}
