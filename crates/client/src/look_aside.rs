//! Look-aside reads with all measures against an overrun database (*Scaling Memcache at Facebook*,
//! 2, 3.1, 3.2.1, 3.3). `docs/look-aside.md` describes the same for other languages.
//!
//! ```text
//!     lease-get --hit--------> the value
//!               --wait-------> stale value; or the outcome of whoever loads in this process; or a
//!                              short sleep and another lease-get, until the lease has ended
//!               --token------> load, lease-set (refused if the key was deleted meanwhile);
//!                              a load that fails or is given up gives the token back
//!               --no leases--> get; on a miss load, and add: one in this process
//!               --failure----> load, and fill nothing: one in this process
//! ```
//!
//! Routes implement the gutter: a failover to a pool with short-lived items takes reads and fills
//! of a failed server, tokens included.

use std::future::{Future, ready};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::client::Client;
use crate::error::LoadError;
use crate::exact_markers::ReadFrom;
use crate::flights::Leader;
use crate::look_aside_counters::count;
use crate::markers::{Markers, Source};
use crate::reader::{Fill, Next, Reader, Settings};
use crate::value::{Decode, Encode, Value};
use upstream::system::now;
use upstream::{Command, Outcome};

/// First wait for another process's fill; each is twice as long as the one before. This and the
/// next are mcrouter's, for waiting at leases on the client's side; the paper says "a short amount
/// of time".
const WAIT_FIRST: Duration = Duration::from_millis(2);

/// The maximum single wait.
const WAIT_LONGEST: Duration = Duration::from_millis(500);

/// The total wait: longer than a lease's default lifetime (`-o lease_interval`, 10 s, and less than
/// one more), so that a waiting caller gets the next one.
const WAIT_TOTAL: Duration = Duration::from_secs(15);

/// Reads that load what they miss. Made by [`Client::look_aside`].
///
/// ```no_run
/// # async fn query(id: u64) -> Result<String, std::io::Error> { Ok(id.to_string()) }
/// # async fn run(client: client::Client) -> Result<(), Box<dyn std::error::Error>> {
/// let users = client.look_aside().exptime(300);
/// let name: String = users.get_or_load("user:17", || query(17)).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct LookAside {
    settings: Settings,
    exptime: i64,
    /// The start of the loads' snapshot, and the time afterwards in which their results may be
    /// stored.
    snapshot: Option<(Instant, Duration)>,
}

impl Client {
    /// Look-aside reads through this client, in order with its other calls; the same applies to
    /// clones of the result.
    #[must_use]
    pub fn look_aside(&self) -> LookAside {
        let settings = Settings {
            client: Arc::new(self.same()),
            takes_stale: true,
            wait_first: WAIT_FIRST,
            wait_longest: WAIT_LONGEST,
            wait_total: WAIT_TOTAL,
            early: 0.0,
            load_times: Arc::default(),
        };
        LookAside { settings, exptime: 0, snapshot: None }
    }
}

impl LookAside {
    /// The expiry time of fills, in memcached's form; by default 0, forever.
    #[must_use]
    pub const fn exptime(mut self, exptime: i64) -> Self {
        self.exptime = exptime;
        self
    }

    /// Sets whether values may be returned that may be older than a delete: a recently deleted
    /// value while another client fills or the servers' `lease_interval` since the key's last lease
    /// has not passed, and a value that another caller of this client started to load before the
    /// delete. On by default.
    #[must_use]
    pub const fn takes_stale(mut self, takes: bool) -> Self {
        self.settings.takes_stale = takes;
        self
    }

    /// The waits for another process's load: the first and the longest pause between two requests
    /// (2 ms and 500 ms by default), and their sum (15 s by default, longer than a lease lives),
    /// after which the value is loaded in spite of the lease and not stored.
    #[must_use]
    pub const fn waits(mut self, first: Duration, longest: Duration, total: Duration) -> Self {
        self.settings.wait_first = first;
        self.settings.wait_longest = longest;
        self.settings.wait_total = total;
        self
    }

    /// Makes one reader reload a value shortly before its end, so that the others do not miss it:
    /// earlier the longer loads take, and at random (XFetch). 1 is usual; a greater `beta` loads
    /// earlier; 0, the default, turns it off. That reader waits for its load; if it fails, it gets
    /// the present value. Clones share the measured times of loads.
    #[must_use]
    pub const fn early_refresh(mut self, beta: f64) -> Self {
        self.settings.early = if self.snapshot.is_none() { beta } else { 0.0 };
        self
    }

    /// For loads in a transaction whose snapshot was taken at `began`: it may be older than a
    /// delete before the lease, which the token does not show.
    ///
    /// Nothing is stored for a key whose deleted value is still kept, nor later than `repeat_after`
    /// after `began`. That is the invalidator's `repeat_after_ms`: it repeats the delete after that
    /// time, so an old value stored earlier does not stay. Nothing is refreshed early.
    #[must_use]
    pub const fn as_of(mut self, began: Instant, repeat_after: Duration) -> Self {
        self.snapshot = Some((began, repeat_after));
        self.settings.early = 0.0;
        self
    }

    /// Returns true if the snapshot allows the loaded value to be stored.
    fn is_young(&self, saw_stale: bool) -> bool {
        self.snapshot.is_none_or(|(began, repeat_after)| {
            !saw_stale && now().saturating_duration_since(began) < repeat_after
        })
    }

    /// The value of a key, from the cache or else from `load`, which is called at most once.
    ///
    /// One caller of all clients loads a missing key; the others get the stale value, or wait. If
    /// `load` fails or the caller gives up, another client loads at once. Callers of one client
    /// share one load, and its error. Nothing is stored after a failure of the cache or of `load`,
    /// nor over a delete that came in between. `load` must not ask for the same key.
    ///
    /// # Errors
    ///
    /// Those of `load`. A failure of the cache is not an error.
    pub async fn get_or_load<T, E, F, L>(
        &self,
        key: impl AsRef<[u8]>,
        load: F,
    ) -> Result<T, LoadError<E>>
    where
        T: Encode + Decode,
        E: Send + Sync + 'static,
        F: FnOnce() -> L,
        L: Future<Output = Result<T, E>>,
    {
        self.run(key.as_ref(), ready(()), |()| load()).await
    }

    /// As [`Self::get_or_load`] in a region whose database is a replica: `load` receives whether to
    /// ask the local one or the master.
    ///
    /// # Errors
    ///
    /// Those of `load`.
    pub async fn get_or_load_from<T, E, F, L>(
        &self,
        markers: &Markers,
        key: impl AsRef<[u8]>,
        load: F,
    ) -> Result<T, LoadError<E>>
    where
        T: Encode + Decode,
        E: Send + Sync + 'static,
        F: FnOnce(Source) -> L,
        L: Future<Output = Result<T, E>>,
    {
        let key = key.as_ref();
        self.run(key, markers.source(key), load).await
    }

    /// As [`Self::get_or_load_from`], where writers use [`Markers::write_at`]: `load` receives
    /// also the place in the log that the region's database must have reached.
    ///
    /// # Errors
    ///
    /// Those of `load`.
    pub async fn get_or_load_at<T, E, F, L>(
        &self,
        markers: &Markers,
        key: impl AsRef<[u8]>,
        load: F,
    ) -> Result<T, LoadError<E>>
    where
        T: Encode + Decode,
        E: Send + Sync + 'static,
        F: FnOnce(ReadFrom) -> L,
        L: Future<Output = Result<T, E>>,
    {
        let key = key.as_ref();
        self.run(key, markers.read_from(key), load).await
    }

    /// `source` is awaited after the lease, and gives `load` the place to read from.
    async fn run<T, E, S, P, F, L>(&self, key: &[u8], source: P, load: F) -> Result<T, LoadError<E>>
    where
        T: Encode + Decode,
        E: Send + Sync + 'static,
        P: Future<Output = S>,
        F: FnOnce(S) -> L,
        L: Future<Output = Result<T, E>>,
    {
        let mut reader = Reader::new(&self.settings, key);
        let fill = match reader.next().await {
            Next::BadKey => return Err(LoadError::BadKey),
            Next::Failed(error) => match error.downcast::<E>() {
                Ok(error) => return Err(LoadError::Loader(error)),
                // A value of another type, from another query.
                Err(_) => Fill::Nothing,
            },
            Next::Load(fill) => fill,
            Next::Value(value) => match value.decode() {
                Ok(value) => return Ok(value),
                Err(_) => reader.delete_unreadable(),
            },
        };
        // The marker is read after the token: a write in between voids the token.
        let source = source.await;
        let counters = &self.settings.client.inner.counters;
        let is_early = matches!(fill, Fill::Refresh(_));
        count(if is_early { &counters.early } else { &counters.loads });
        let begun = now();
        let loaded = load(source).await;
        self.settings.load_times.note(now().saturating_duration_since(begun));
        match loaded {
            Ok(value) => {
                // A value that may not be stored returns its lease.
                let fill = if self.is_young(reader.saw_stale) { fill } else { Fill::Nothing };
                self.fill(key, &value, fill, reader.leader).await;
                Ok(value)
            }
            Err(error) => failed(fill, error, reader.leader),
        }
    }

    /// Stores the loaded value, and gives it to the waiting callers.
    async fn fill<T: Encode>(
        &self,
        key: &[u8],
        value: &T,
        fill: Fill<'_>,
        mut leader: Option<Leader<'_>>,
    ) {
        if let Some(leader) = &mut leader {
            leader.requests();
        }
        let request = match &fill {
            Fill::Add => Some((Command::Add, 0)),
            Fill::Lease(lease) => Some((Command::LeaseSet, lease.token())),
            Fill::Nothing => None,
            Fill::Refresh(old) => Some((Command::Cas, old.cas)),
        };
        let stored = match request {
            Some((op, number)) => {
                self.settings.client.store(op, key, value, self.exptime, number).await.ok()
            }
            None => None,
        };
        let counters = &self.settings.client.inner.counters;
        count(match stored {
            Some(Outcome::Stored) => &counters.fills,
            Some(Outcome::NotStored | Outcome::NotFound | Outcome::Exists) => &counters.refused,
            Some(_) | None => &counters.unfilled,
        });
        let mut is_current = false;
        if let Fill::Lease(lease) = fill
            && stored.is_some()
        {
            lease.spent();
            is_current = stored == Some(Outcome::Stored);
        }
        if let Some(leader) = leader {
            let copy = || {
                let (bytes, flags) = value.encode();
                Value { bytes: bytes.into_owned(), flags, cas: 0 }
            };
            leader.finish(copy, is_current);
        }
    }
}

/// The result of a failed load: the value that still exists, or the error, also for the waiting
/// callers.
fn failed<T: Decode, E: Send + Sync + 'static>(
    fill: Fill<'_>,
    error: E,
    leader: Option<Leader<'_>>,
) -> Result<T, LoadError<E>> {
    let error = Arc::new(error);
    if let Fill::Refresh(old) = fill {
        return old.decode().map_err(|_| LoadError::Loader(error));
    }
    // The lease first, so that another process's caller need not wait for this one.
    drop(fill);
    if let Some(leader) = leader {
        leader.fail(Arc::clone(&error) as Arc<dyn std::any::Any + Send + Sync>);
    }
    Err(LoadError::Loader(error))
}
