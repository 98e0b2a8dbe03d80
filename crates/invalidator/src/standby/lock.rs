//! The lock of a group: one session at each of the database's servers.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::change_source::SourceError;

/// The time limit for asking one server.
const ASK_MAX: Duration = Duration::from_secs(2);

/// A session at one server, whose end releases its lock. The server ends a session that is silent
/// for [`Self::SILENCE_MAX`].
pub trait LockSession: Send + Sized + 'static {
    /// The database and its login.
    type Settings: Clone + Send + Sync + 'static;

    /// The silence after which a server ends a session, in seconds. It bounds the time of a
    /// takeover after the loss of a host.
    const SILENCE_MAX: u32 = 3;

    /// Connects to a server.
    ///
    /// # Errors
    ///
    /// When it cannot be reached or refuses the login.
    fn open(
        settings: &Self::Settings,
        server: &str,
        group: &str,
    ) -> impl Future<Output = Result<Self, SourceError>> + Send;

    /// Takes the lock if it is free; true when this session holds it, newly or already.
    ///
    /// # Errors
    ///
    /// When the session broke.
    fn take(&mut self) -> impl Future<Output = Result<bool, SourceError>> + Send;
}

/// The lock, held at every reachable server.
#[derive(Debug)]
pub struct GroupLock<S: LockSession> {
    settings: S::Settings,
    servers: Vec<(String, Option<S>)>,
    group: String,
}

impl<S: LockSession> GroupLock<S> {
    /// A lock of `group` that was not requested yet.
    #[must_use]
    pub fn new(settings: S::Settings, servers: &[String], group: &str) -> Self {
        let servers = servers.iter().map(|server| (server.clone(), None)).collect();
        Self { settings, servers, group: group.to_owned() }
    }

    /// Takes the lock, or verifies that it is held. True if every server that could be asked
    /// granted it; false if another holds it at one of them, and then nothing is held.
    ///
    /// # Errors
    ///
    /// When no server could be asked; [`SourceError::Wrong`] when all refuse permanently.
    pub async fn hold(&mut self) -> Result<bool, SourceError> {
        let mut asked = JoinSet::new();
        for (at, (server, session)) in self.servers.iter_mut().enumerate() {
            let (settings, group) = (self.settings.clone(), self.group.clone());
            let (server, session) = (server.clone(), session.take());
            asked.spawn(async move {
                let took = timeout(ASK_MAX, take(session, &settings, &server, &group)).await;
                let silent =
                    || SourceError::Lost(format!("{server}: no answer within {ASK_MAX:?}"));
                (at, took.unwrap_or_else(|_| Err(silent())))
            });
        }
        let (mut has_it, mut is_taken, mut failures) = (false, false, Vec::new());
        while let Some(answered) = asked.join_next().await {
            match answered {
                Ok((at, Ok((session, true)))) => {
                    self.servers[at].1 = Some(session);
                    has_it = true;
                }
                // The session is kept for the next request.
                Ok((at, Ok((session, false)))) => {
                    self.servers[at].1 = Some(session);
                    is_taken = true;
                }
                Ok((_, Err(error))) => failures.push(error),
                Err(_) => failures.push(SourceError::Lost("a question was given up".to_owned())),
            }
        }
        if is_taken && has_it {
            // Another holds it at one server: locks held at the others would keep both waiting.
            self.servers.iter_mut().for_each(|(_, session)| *session = None);
        }
        match (is_taken, has_it) {
            (true, _) => Ok(false),
            (false, true) => Ok(true),
            (false, false) => Err(failure_of_all(&failures)),
        }
    }
}

/// Requests the lock in a session, which is opened if there is none.
async fn take<S: LockSession>(
    session: Option<S>,
    settings: &S::Settings,
    server: &str,
    group: &str,
) -> Result<(S, bool), SourceError> {
    let mut session = match session {
        Some(session) => session,
        None => S::open(settings, server, group).await?,
    };
    let has_it = session.take().await?;
    Ok((session, has_it))
}

/// The lock's failure after every server failed: one that a retry does not fix only if all do.
fn failure_of_all(failures: &[SourceError]) -> SourceError {
    let mut texts: Vec<_> = failures.iter().map(ToString::to_string).collect();
    // They come in any order, and each new text is logged.
    texts.sort_unstable();
    let why = texts.join("; ");
    let is_wrong = |failure: &SourceError| matches!(failure, SourceError::Wrong(_));
    if failures.iter().all(is_wrong) { SourceError::Wrong(why) } else { SourceError::Lost(why) }
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::HashMap;
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;

    /// Servers: whether each is reachable, and which session holds its lock.
    #[derive(Debug, Default)]
    pub(in crate::standby) struct Servers {
        away: Vec<String>,
        /// The servers that refuse new logins.
        refusing: Vec<String>,
        holders: HashMap<String, u64>,
        sessions: u64,
    }

    impl Servers {
        /// Both end, together with their sessions.
        pub(in crate::standby) fn crash(&mut self) {
            self.away = NAMES.map(str::to_owned).into();
            self.holders.clear();
        }

        pub(in crate::standby) fn is_back(&mut self) {
            self.away.clear();
        }

        pub(in crate::standby) fn is_held(&self) -> bool {
            NAMES.iter().all(|name| self.holders.contains_key(*name))
        }
    }

    const NAMES: [&str; 2] = ["a", "b"];

    pub(in crate::standby) type World = Arc<Mutex<Servers>>;

    #[derive(Debug)]
    pub(in crate::standby) struct Session {
        world: World,
        server: String,
        number: u64,
    }

    impl LockSession for Session {
        type Settings = World;

        async fn open(world: &World, server: &str, _group: &str) -> Result<Self, SourceError> {
            let mut servers = world.lock();
            if servers.away.iter().any(|away| away == server) {
                return Err(SourceError::Lost("away".to_owned()));
            }
            if servers.refusing.iter().any(|refusing| refusing == server) {
                return Err(SourceError::Wrong(format!("{server}: denied")));
            }
            servers.sessions += 1;
            let (world, number) = (Arc::clone(world), servers.sessions);
            Ok(Self { world, server: server.to_owned(), number })
        }

        async fn take(&mut self) -> Result<bool, SourceError> {
            let mut servers = self.world.lock();
            if servers.away.contains(&self.server) {
                return Err(SourceError::Lost("away".to_owned()));
            }
            Ok(*servers.holders.entry(self.server.clone()).or_insert(self.number) == self.number)
        }
    }

    impl Drop for Session {
        fn drop(&mut self) {
            let mut servers = self.world.lock();
            if servers.holders.get(&self.server) == Some(&self.number) {
                servers.holders.remove(&self.server);
            }
        }
    }

    pub(in crate::standby) fn lock(world: &World) -> GroupLock<Session> {
        GroupLock::new(Arc::clone(world), &NAMES.map(str::to_owned), "g")
    }

    #[tokio::test]
    async fn a_released_lock_passes_to_the_next_holder() {
        let world = World::default();
        let (mut first, mut second) = (lock(&world), lock(&world));
        assert_eq!(first.hold().await, Ok(true));
        assert_eq!(second.hold().await, Ok(false));
        assert_eq!(first.hold().await, Ok(true), "it stays held");
        drop(first);
        assert_eq!(second.hold().await, Ok(true));
    }

    #[tokio::test]
    async fn an_unavailable_server_is_ignored_until_it_returns() {
        let world = World::default();
        let (mut first, mut second) = (lock(&world), lock(&world));
        world.lock().away = vec!["a".to_owned()];
        assert_eq!(first.hold().await, Ok(true));
        world.lock().away = vec!["b".to_owned()];
        assert_eq!(second.hold().await, Ok(true), "each holds it at another server");
        world.lock().away.clear();
        assert_eq!(first.hold().await, Ok(false), "the second has it at one of them");
        assert_eq!(second.hold().await, Ok(true), "and the first gave up its own");
        world.lock().away = vec!["a".to_owned(), "b".to_owned()];
        assert!(matches!(second.hold().await, Err(SourceError::Lost(_))));
    }

    #[tokio::test]
    async fn a_refused_login_counts_only_if_no_server_can_be_asked() {
        let world = World::default();
        world.lock().refusing = vec!["b".to_owned()];
        let (mut first, mut second) = (lock(&world), lock(&world));
        assert_eq!(first.hold().await, Ok(true));
        assert_eq!(second.hold().await, Ok(false));
        // The primary restarts.
        world.lock().away = vec!["a".to_owned()];
        let why = "away; b: denied".to_owned();
        assert_eq!(second.hold().await, Err(SourceError::Lost(why)));
        world.lock().away.clear();
        world.lock().refusing.push("a".to_owned());
        drop(first);
        let why = "a: denied; b: denied".to_owned();
        assert_eq!(lock(&world).hold().await, Err(SourceError::Wrong(why)));
    }
}
