//! Remote markers (*Scaling Memcache at Facebook*, 5): in a region whose database is a replica, a
//! marker for a key shows that the replica may lack the last write, so that a miss is read from the
//! master.
//!
//! A writer sets the marker in the region, writes to the master **with the key and the marker to be
//! invalidated by the replication stream**, and deletes the key in the local cluster. When the
//! write arrives at the region's replica, the process that follows its log deletes both. The
//! paper's gaps remain: of two writers of one key, the first to be replicated deletes the marker of
//! both, and an evicted marker has no effect. So markers belong in a separate regional pool with
//! enough room, selected by their prefix. [`Markers::write_at`] closes the first gap.

use std::future::Future;
use std::sync::Arc;

use crate::client::Client;
use crate::error::{Error, LoadError};
use crate::value::FLAG_INTEGER;
use upstream::{Command, Outcome, Request};

/// The database to read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Source {
    /// The region's own.
    Local,
    /// The master.
    Master,
}

/// The outcome of the three steps of a write.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Written<T> {
    /// The write's own result.
    pub output: T,
    /// The error that prevented the marker, if any: readers may see the replica's older value until
    /// it has caught up.
    pub unmarked: Option<Error>,
    /// The error that prevented the delete, if any: readers may see the cached older value until
    /// the replication stream deletes it.
    pub undeleted: Option<Error>,
}

/// Markers of one region.
///
/// ```no_run
/// # use client::{Client, Markers, Source};
/// # async fn update(sql: String) -> Result<(), std::io::Error> { Ok(()) }
/// # async fn select(from: Source) -> Result<String, std::io::Error> { Ok(String::new()) }
/// # async fn run(client: Client) -> Result<(), Box<dyn std::error::Error>> {
/// let markers = Markers::new(client.clone(), "remote:", 300);
/// markers.write("user:17", |marker| {
///     let marker = String::from_utf8_lossy(&marker).into_owned();
///     update(format!("UPDATE users SET ... /* invalidate user:17 {marker} */"))
/// }).await?;
/// let name: String =
///     client.look_aside().get_or_load_from(&markers, "user:17", |from| select(from)).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Markers {
    /// Shared, since a clone might use other connections.
    pub(crate) client: Arc<Client>,
    prefix: Vec<u8>,
    pub(crate) ttl_secs: u32,
}

impl Client {
    /// As [`Markers::new`], through this client, in order with its other calls.
    #[must_use]
    pub fn markers(&self, prefix: impl AsRef<[u8]>, ttl_secs: u32) -> Markers {
        Markers::new(self.same(), prefix, ttl_secs)
    }
}

impl Markers {
    /// Markers whose keys start with `prefix`, by which routes send them to the regional pool.
    /// Unless deleted, they live for `ttl_secs`: longer than the maximum replication lag (the paper
    /// names no time).
    #[must_use]
    pub fn new(client: Client, prefix: impl AsRef<[u8]>, ttl_secs: u32) -> Self {
        Self { client: Arc::new(client), prefix: prefix.as_ref().to_vec(), ttl_secs }
    }

    /// The key of the marker of `key`.
    #[must_use]
    pub fn marker(&self, key: impl AsRef<[u8]>) -> Vec<u8> {
        [self.prefix.as_slice(), key.as_ref()].concat()
    }

    /// The database from which a miss of `key` is read. A marker that cannot be read counts as set.
    pub async fn source(&self, key: impl AsRef<[u8]>) -> Source {
        match self.client.get(self.marker(key)).await {
            Ok(None) => Source::Local,
            Ok(Some(_)) | Err(_) => Source::Master,
        }
    }

    /// Writes the data of `key`: sets the marker, calls `write` with the marker's key, which is to
    /// be invalidated with the write, and deletes `key` in the local cluster. The write continues
    /// if the cache fails; [`Written`] reports that.
    ///
    /// # Errors
    ///
    /// Those of `write`; the marker then stays until it expires, which costs reads from the master.
    /// A key that is too long with the prefix is refused before any step.
    pub async fn write<T, E, F, W>(
        &self,
        key: impl AsRef<[u8]>,
        write: F,
    ) -> Result<Written<T>, LoadError<E>>
    where
        F: FnOnce(Vec<u8>) -> W,
        W: Future<Output = Result<T, E>>,
    {
        let (key, marker) = (key.as_ref(), self.marker(&key));
        let unmarked = self.set(&marker).await?;
        let output = write(marker).await.map_err(LoadError::loader)?;
        let undeleted = self.client.delete(key).await.err();
        Ok(Written { output, unmarked, undeleted })
    }

    /// Sets a marker without a place in the log; returns the error that prevented it, if any.
    ///
    /// # Errors
    ///
    /// A key that is too long.
    pub(crate) async fn set<E>(&self, marker: &[u8]) -> Result<Option<Error>, LoadError<E>> {
        let set = Request {
            exptime: i64::from(self.ttl_secs),
            flags: FLAG_INTEGER,
            value: b"1",
            ..Request::new(Command::Set, marker)
        };
        match self.client.ask(set).await {
            Ok(reply) if reply.outcome == Outcome::Stored => Ok(None),
            Ok(reply) => Ok(Some(Error::Unexpected(reply.outcome))),
            Err(Error::BadKey) => Err(LoadError::BadKey),
            Err(error) => Ok(Some(error)),
        }
    }
}
