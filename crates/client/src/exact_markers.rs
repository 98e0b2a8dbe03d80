//! Remote markers with a place in the database's log, so that nothing has to delete them: a miss is
//! read from the region's replica if that has reached the place, and otherwise from the master.
//!
//! A writer sets the marker without a place, writes, puts the place of its write into the marker,
//! and deletes the key. With several writers of a key, the marker gets the place behind all of
//! them, by compare and swap.

use std::future::Future;

use crate::client::CasOutcome;
use crate::error::{Error, LoadError};
use crate::markers::{Markers, Source, Written};
use crate::position::Position;
use crate::value::{FLAG_INTEGER, Value};

/// Attempts to put a place into a marker that others also change.
const ATTEMPTS: u32 = 16;

/// The maximum length of a place's text. Behind a longer one, of many writes to MySQL, the marker
/// has no place again.
const PLACE_MAX: usize = 1000;

/// The database for reading a miss.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ReadFrom {
    /// The region's own.
    Local,
    /// The region's own if it has reached this place; else the master.
    LocalAt(Position),
    /// The master.
    Master,
}

impl From<Source> for ReadFrom {
    fn from(source: Source) -> Self {
        match source {
            Source::Local => Self::Local,
            Source::Master => Self::Master,
        }
    }
}

impl Markers {
    /// The database from which a miss of `key` is read, if writers use [`Self::write_at`]. A marker
    /// that cannot be read counts as one without a place.
    pub async fn read_from(&self, key: impl AsRef<[u8]>) -> ReadFrom {
        match self.client.get(self.marker(key)).await {
            Ok(None) => ReadFrom::Local,
            Ok(Some(value)) => place(&value).map_or(ReadFrom::Master, ReadFrom::LocalAt),
            Err(_) => ReadFrom::Master,
        }
    }

    /// As [`Self::write`], with a `write` that also returns the place of its commit in the master's
    /// log. Only time may delete such markers, so the process that follows the replica's log
    /// deletes only the key. Readers use [`crate::LookAside::get_or_load_at`].
    ///
    /// # Errors
    ///
    /// Those of `write`; the marker then stays until it expires, which costs reads from the master.
    /// A key that is too long with the prefix is refused before any step.
    pub async fn write_at<T, E, F, W>(
        &self,
        key: impl AsRef<[u8]>,
        write: F,
    ) -> Result<Written<T>, LoadError<E>>
    where
        F: FnOnce() -> W,
        W: Future<Output = Result<(T, Position), E>>,
    {
        let (key, marker) = (key.as_ref(), self.marker(&key));
        // Its failure does not matter: the next step writes the marker again, or fails itself.
        let _ = self.set(&marker).await?;
        let (output, place) = write().await.map_err(LoadError::loader)?;
        let unmarked = self.put(&marker, place).await.err();
        let undeleted = self.client.delete(key).await.err();
        Ok(Written { output, unmarked, undeleted })
    }

    /// Puts a place into a marker, behind the place that it has.
    async fn put(&self, marker: &[u8], place_of_write: Position) -> Result<(), Error> {
        for _ in 0..ATTEMPTS {
            let there = self.client.gets(marker).await?;
            let place = match there.as_ref().map(place) {
                // An ongoing or a failed write: the place suffices for this one.
                None | Some(None) => Some(place_of_write.clone()),
                Some(Some(other)) => place_of_write.clone().behind_both(other),
            };
            let value = marked(place.as_ref());
            let exptime = i64::from(self.ttl_secs);
            let is_put = match there {
                None => self.client.add(marker, value, exptime).await?,
                Some(there) => {
                    let done = self.client.cas(marker, value, exptime, there.cas).await?;
                    done == CasOutcome::Stored
                }
            };
            if is_put {
                return Ok(());
            }
        }
        self.client.set(marker, marked(None), i64::from(self.ttl_secs)).await
    }
}

/// The value of a marker.
fn marked(place: Option<&Position>) -> Value {
    let text = place.map(ToString::to_string).filter(|text| text.len() <= PLACE_MAX);
    let flags = if text.is_none() { FLAG_INTEGER } else { 0 };
    Value { bytes: text.unwrap_or_else(|| "1".to_owned()).into_bytes(), flags, cas: 0 }
}

/// The place in a marker.
fn place(value: &Value) -> Option<Position> {
    str::from_utf8(&value.bytes).ok()?.parse().ok()
}
