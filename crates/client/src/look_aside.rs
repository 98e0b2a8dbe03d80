//! Look-aside reads with everything that keeps a database from being overrun (*Scaling Memcache at
//! Facebook*, 2, 3.1, 3.2.1, 3.3).
//!
//! ```text
//!     lease-get --hit--------> the value
//!               --wait-------> stale value, or a short sleep and another lease-get;
//!                              after the last one load, and fill nothing
//!               --token------> load, lease-set (refused if the key was deleted meanwhile)
//!               --no leases--> get; on a miss load, and add
//!               --failure----> load, and fill nothing
//! ```
//!
//! The gutter is a matter of routes: a failover to a pool whose items live a short time takes reads
//! and fills of a dead server, tokens included.

use std::future::Future;
use std::time::Duration;

use crate::client::{Client, Lease};
use crate::error::{Error, LoadError};
use crate::look_aside_counters::count;
use crate::markers::{Markers, Source};
use crate::value::{Decode, Encode, Value};
use upstream::{Command, Failure, Outcome};

/// First wait for somebody else's fill; each is twice as long as the one before. This and the next
/// two are mcrouter's, for waiting at leases on the client's side; the paper says "a short amount
/// of time".
const WAIT_FIRST: Duration = Duration::from_millis(2);

/// The longest single wait.
const WAIT_LONGEST: Duration = Duration::from_millis(500);

/// Waits before the value is loaded in spite of the lease.
const WAITS_MAX: u32 = 10;

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
    client: Client,
    exptime: i64,
    takes_stale: bool,
}

/// What may be done with a value that was loaded.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Fill {
    Add,
    Lease(u64),
    Nothing,
}

enum Found {
    Miss(Fill),
    Value(Value),
}

impl Client {
    /// Look-aside reads through this client.
    #[must_use]
    pub fn look_aside(&self) -> LookAside {
        LookAside::new(self.clone())
    }
}

impl LookAside {
    pub(crate) const fn new(client: Client) -> Self {
        Self { client, exptime: 0, takes_stale: true }
    }

    /// The expiry time of what is filled, as memcached takes it; 0, for ever, by default.
    #[must_use]
    pub const fn exptime(mut self, exptime: i64) -> Self {
        self.exptime = exptime;
        self
    }

    /// Gives out, or not, a value that was deleted a short time ago while somebody else fills; by
    /// default it does.
    #[must_use]
    pub const fn takes_stale(mut self, takes: bool) -> Self {
        self.takes_stale = takes;
        self
    }

    /// The value of a key, from the cache or else from `load`, which is called once at the most.
    ///
    /// One caller of all clients loads a missing key; the others wait a short time for it, or get
    /// the stale value. Nothing is stored after a failure of the cache or of `load`, nor over a
    /// delete that came in between.
    ///
    /// # Errors
    ///
    /// Those of `load`. That the cache fails is none.
    pub async fn get_or_load<T, E, F, L>(
        &self,
        key: impl AsRef<[u8]>,
        load: F,
    ) -> Result<T, LoadError<E>>
    where
        T: Encode + Decode,
        F: FnOnce() -> L,
        L: Future<Output = Result<T, E>>,
    {
        self.run(key.as_ref(), None, |_| load()).await
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
        F: FnOnce(Source) -> L,
        L: Future<Output = Result<T, E>>,
    {
        self.run(key.as_ref(), Some(markers), load).await
    }

    async fn run<T, E, F, L>(
        &self,
        key: &[u8],
        markers: Option<&Markers>,
        load: F,
    ) -> Result<T, LoadError<E>>
    where
        T: Encode + Decode,
        F: FnOnce(Source) -> L,
        L: Future<Output = Result<T, E>>,
    {
        let counters = &self.client.inner.counters;
        let found = match self.find(key).await {
            Err(Error::BadKey) => return Err(LoadError::BadKey),
            Err(_) => Found::Miss(Fill::Nothing),
            Ok(found) => found,
        };
        let fill = match found {
            Found::Miss(fill) => fill,
            Found::Value(value) => match value.decode() {
                Ok(value) => return Ok(value),
                Err(_) => self.heal(key),
            },
        };
        // The marker is looked up behind the token: a write in between takes the token away.
        let source = match markers {
            Some(markers) => markers.source(key).await,
            None => Source::Local,
        };
        count(&counters.loads);
        let value = load(source).await.map_err(LoadError::Loader)?;
        match self.fill(key, &value, fill).await {
            Ok(Outcome::Stored) => count(&counters.fills),
            Ok(Outcome::NotStored | Outcome::NotFound) => count(&counters.refused),
            Ok(_) | Err(_) => count(&counters.unfilled),
        }
        Ok(value)
    }

    async fn fill<T: Encode>(&self, key: &[u8], value: &T, fill: Fill) -> Result<Outcome, Error> {
        let (op, token) = match fill {
            Fill::Add => (Command::Add, 0),
            Fill::Lease(token) => (Command::LeaseSet, token),
            Fill::Nothing => return Ok(Outcome::Ok),
        };
        self.client.store(op, key, value, self.exptime, token).await
    }

    /// What cannot be read is deleted, so that the next one fills the key.
    fn heal(&self, key: &[u8]) -> Fill {
        // If that fails, the item stays until it expires.
        let _ = self.client.tell(crate::Request::new(Command::Delete, key));
        Fill::Nothing
    }

    async fn find(&self, key: &[u8]) -> Result<Found, Error> {
        let (client, counters) = (&self.client, &self.client.inner.counters);
        let mut wait = WAIT_FIRST;
        for _ in 0..=WAITS_MAX {
            if !client.inner.leases.are_asked() {
                return self.find_without_leases(key).await;
            }
            match client.lease_get(key).await {
                Ok(Lease::Hit(value)) => {
                    count(&counters.hits);
                    return Ok(Found::Value(value));
                }
                Ok(Lease::Fill { token, .. }) => return Ok(Found::Miss(Fill::Lease(token))),
                Ok(Lease::Wait { stale: Some(value) }) if self.takes_stale => {
                    count(&counters.stale);
                    return Ok(Found::Value(value));
                }
                Ok(Lease::Wait { .. }) => {
                    count(&counters.waits);
                    client.sleep(wait).await;
                    wait = (wait * 2).min(WAIT_LONGEST);
                }
                Err(Error::Cache(Failure::ClientError, _)) => client.inner.leases.are_missing(),
                Err(Error::Undecodable(_)) => return Ok(Found::Miss(self.heal(key))),
                Err(error) => return Err(error),
            }
        }
        Ok(Found::Miss(Fill::Nothing))
    }

    async fn find_without_leases(&self, key: &[u8]) -> Result<Found, Error> {
        match self.client.get(key).await {
            Ok(Some(value)) => {
                count(&self.client.inner.counters.hits);
                Ok(Found::Value(value))
            }
            Ok(None) => Ok(Found::Miss(Fill::Add)),
            Err(Error::Undecodable(_)) => Ok(Found::Miss(self.heal(key))),
            Err(error) => Err(error),
        }
    }
}
