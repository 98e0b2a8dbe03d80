//! What other sessions of PostgreSQL see: `pg_current_snapshot()`, which names the transactions that run.
//!
//! A commit that waits for a synchronous standby is in the log and in that list. The session is an ordinary one, on a thread of its own:
//! the library asks without giving way.

use std::sync::mpsc;
use std::thread;

use pg_walstream::PgReplicationConnection;
use tokio::sync::oneshot;

use super::Settings;
use crate::change::{Mark, Witness};

/// A question, which is where its answer goes.
type Question = oneshot::Sender<Result<String, String>>;

/// A session at one server.
#[derive(Debug)]
pub struct PostgresWitness {
    settings: Settings,
    server: String,
    session: Option<mpsc::Sender<Question>>,
    seen: Option<Snapshot>,
}

impl PostgresWitness {
    pub(super) const fn new(settings: Settings, server: String) -> Self {
        Self { settings, server, session: None, seen: None }
    }

    /// Starts a session's thread, which ends when a question fails or nobody asks any more.
    fn start(&self) -> Result<mpsc::Sender<Question>, String> {
        let (ask, asked) = mpsc::channel::<Question>();
        let (settings, server) = (self.settings.clone(), self.server.clone());
        let serve = move || {
            let mut connection = None;
            while let Ok(question) = asked.recv() {
                let answer = snapshot(&settings, &server, &mut connection);
                let has_failed = answer.is_err();
                // Who asked may have gone away.
                let _ = question.send(answer);
                if has_failed {
                    return;
                }
            }
        };
        let started = thread::Builder::new().name("witness".to_owned()).spawn(serve);
        started.map(|_| ask).map_err(|error| error.to_string())
    }
}

/// Asks, and connects before that if it must.
fn snapshot(
    settings: &Settings,
    server: &str,
    connection: &mut Option<PgReplicationConnection>,
) -> Result<String, String> {
    let connection = match connection {
        Some(connection) => connection,
        none => none.insert(settings.connect(server, "").map_err(|error| error.to_string())?),
    };
    let found = connection.exec("SELECT pg_current_snapshot()::text");
    let found = found.map_err(|error| format!("{server}: {error}"))?;
    found.get_value(0, 0).ok_or_else(|| format!("{server}: no snapshot"))
}

impl Witness for PostgresWitness {
    async fn look(&mut self) -> Result<(), String> {
        // A session that does not answer is not used again.
        let session = match self.session.take() {
            Some(session) => session,
            None => self.start()?,
        };
        let gone = || "its session is gone".to_owned();
        let (question, answer) = oneshot::channel();
        session.send(question).map_err(|_| gone())?;
        let said = answer.await.map_err(|_| gone())??;
        let snapshot = Snapshot::parse(&said);
        self.seen = Some(snapshot.ok_or_else(|| format!("snapshot '{said}' is not understood"))?);
        self.session = Some(session);
        Ok(())
    }

    fn saw(&self, mark: &Mark) -> Option<bool> {
        let Mark::Xid(xid) = mark else { return None };
        Some(self.seen.as_ref().is_some_and(|snapshot| snapshot.saw(*xid)))
    }
}

/// `first that runs:next to come:those that run, by commas`.
#[derive(Debug, PartialEq, Eq)]
struct Snapshot {
    first: u64,
    next: u64,
    running: Vec<u64>,
}

impl Snapshot {
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split(':');
        let first = parts.next()?.parse().ok()?;
        let next = parts.next()?.parse().ok()?;
        let running = parts.next()?.split(',').filter(|one| !one.is_empty()).map(str::parse);
        let running = running.collect::<Result<_, _>>().ok()?;
        Some(Self { first, next, running })
    }

    /// True for a commit's transaction that does not run any more. Logs have the lower half of its number, which lies within two
    /// thousand million of the next one.
    fn saw(&self, xid: u32) -> bool {
        let (round, half) = (1_u64 << 32, 1_u64 << 31);
        let xid = self.next & !(round - 1) | u64::from(xid);
        let xid = if xid + half < self.next {
            xid + round
        } else if xid > self.next + half {
            xid.saturating_sub(round)
        } else {
            xid
        };
        xid < self.first || xid < self.next && !self.running.contains(&xid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_sees_what_does_not_run() {
        let snapshot = Snapshot::parse("10:20:12,15").unwrap();
        let saw: Vec<u32> = (8..23).filter(|xid| snapshot.saw(*xid)).collect();
        assert_eq!(saw, [8, 9, 10, 11, 13, 14, 16, 17, 18, 19]);
        assert_eq!(Snapshot::parse("727:727:").unwrap().running, [0_u64; 0]);
        for text in ["", "1:2", "1:x:", "1:2:3,"] {
            assert_eq!(Snapshot::parse(text).is_some(), text == "1:2:3,", "{text}");
        }
    }

    #[test]
    fn numbers_go_round() {
        let round = 1_u64 << 32;
        let snapshot = Snapshot { first: round + 1, next: round + 5, running: vec![round + 1] };
        let saw = |xid| snapshot.saw(xid);
        assert!(saw(u32::MAX) && saw(0) && !saw(1) && saw(2) && saw(4) && !saw(5) && !saw(1000));
        let before = Snapshot { first: round - 2, next: round - 1, running: vec![round - 2] };
        assert!(!before.saw(u32::MAX - 1) && !before.saw(0) && before.saw(u32::MAX - 2));
    }
}
