//! memcached's commands as typed calls.

use crate::client::{CasOutcome, Client, Lease, succeeded};
use crate::error::Error;
use crate::slot::HOT_MISS;
use crate::value::{Encode, Value};
use upstream::{Command, Outcome, OwnedReply, OwnedRequest, Request};

impl Client {
    fn value_of(&self, reply: OwnedReply) -> Result<Option<Value>, Error> {
        match reply.outcome {
            Outcome::Found => {
                let (bytes, flags) = self.inner.codec.unpack(reply.value, reply.flags)?;
                Ok(Some(Value { bytes, flags, cas: reply.number }))
            }
            Outcome::NotFound => Ok(None),
            other => Err(Error::Unexpected(other)),
        }
    }

    async fn fetch(&self, op: Command, key: &[u8], exptime: i64) -> Result<Option<Value>, Error> {
        let reply = self.ask(Request { exptime, ..Request::new(op, key) }).await?;
        self.value_of(reply)
    }

    /// The value of a key; `None` is a miss.
    ///
    /// # Errors
    ///
    /// See [`Error`]: the key must not be filled.
    pub async fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>, Error> {
        self.fetch(Command::Get, key.as_ref(), 0).await
    }

    /// As [`Self::get`], with the cas unique.
    ///
    /// # Errors
    ///
    /// See [`Error`].
    pub async fn gets(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>, Error> {
        self.fetch(Command::Gets, key.as_ref(), 0).await
    }

    /// The value, whose time to live starts again.
    ///
    /// # Errors
    ///
    /// See [`Error`].
    pub async fn gat(&self, key: impl AsRef<[u8]>, exptime: i64) -> Result<Option<Value>, Error> {
        self.fetch(Command::Gat, key.as_ref(), exptime).await
    }

    /// As [`Self::gat`], with the cas unique.
    ///
    /// # Errors
    ///
    /// See [`Error`].
    pub async fn gats(&self, key: impl AsRef<[u8]>, exptime: i64) -> Result<Option<Value>, Error> {
        self.fetch(Command::Gats, key.as_ref(), exptime).await
    }

    /// The values of many keys, in their order, each with its own outcome. Each server gets one
    /// request.
    ///
    /// # Errors
    ///
    /// If nothing was sent: a bad key, or too much is outstanding.
    pub async fn get_many<K: AsRef<[u8]>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Result<Option<Value>, Error>>, Error> {
        self.fetch_many(Command::Get, keys).await
    }

    /// As [`Self::get_many`], with cas uniques.
    ///
    /// # Errors
    ///
    /// As there.
    pub async fn gets_many<K: AsRef<[u8]>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Result<Option<Value>, Error>>, Error> {
        self.fetch_many(Command::Gets, keys).await
    }

    async fn fetch_many<K: AsRef<[u8]>>(
        &self,
        op: Command,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Result<Option<Value>, Error>>, Error> {
        let requests = keys.into_iter().map(|key| self.checked(Request::new(op, key.as_ref())));
        // The keys are no longer borrowed, so that the future can be sent whatever their type.
        let replies = self.begin(requests.collect::<Result<_, _>>()?)?;
        let replies = replies.await.into_iter();
        Ok(replies.map(|reply| succeeded(reply).and_then(|reply| self.value_of(reply))).collect())
    }

    /// Packs a value and sends a store; returns every answer except failures.
    pub(crate) async fn store<V: Encode + ?Sized>(
        &self,
        op: Command,
        key: &[u8],
        value: &V,
        exptime: i64,
        number: u64,
    ) -> Result<Outcome, Error> {
        let pending = self.begin(vec![self.packed(op, key, value, exptime, number)?])?;
        let reply = pending.await.pop().ok_or(Error::Closed)?;
        succeeded(reply).map(|reply| reply.outcome)
    }

    fn packed<V: Encode + ?Sized>(
        &self,
        op: Command,
        key: &[u8],
        value: &V,
        exptime: i64,
        number: u64,
    ) -> Result<OwnedRequest, Error> {
        let (bytes, flags) = value.encode();
        let (bytes, flags) = self.inner.codec.pack(bytes, flags)?;
        self.checked(Request { flags, exptime, number, value: &bytes, ..Request::new(op, key) })
    }

    /// Stores.
    ///
    /// # Errors
    ///
    /// See [`Error`]; the value may have been stored or not.
    pub async fn set(
        &self,
        key: impl AsRef<[u8]>,
        value: impl Encode,
        exptime: i64,
    ) -> Result<(), Error> {
        match self.store(Command::Set, key.as_ref(), &value, exptime, 0).await? {
            Outcome::Stored => Ok(()),
            other => Err(Error::Unexpected(other)),
        }
    }

    /// Stores by `op` (set, add or replace) without waiting for the answer, which is dropped. The
    /// request will be sent, in the order of this handle's calls.
    ///
    /// # Errors
    ///
    /// The request will not be sent.
    pub fn store_untold(
        &self,
        op: Command,
        key: impl AsRef<[u8]>,
        value: impl Encode,
        exptime: i64,
    ) -> Result<(), Error> {
        self.post(self.packed(op, key.as_ref(), &value, exptime, 0)?)
    }

    /// Stores many values; the outcomes are in their order.
    ///
    /// # Errors
    ///
    /// If nothing was sent.
    pub async fn set_many<K: AsRef<[u8]>, V: Encode>(
        &self,
        values: impl IntoIterator<Item = (K, V)>,
        exptime: i64,
    ) -> Result<Vec<Result<(), Error>>, Error> {
        let requests = values
            .into_iter()
            .map(|(key, value)| self.packed(Command::Set, key.as_ref(), &value, exptime, 0));
        let pending = self.begin(requests.collect::<Result<_, _>>()?)?;
        let replies = pending.await.into_iter();
        Ok(replies.map(|reply| succeeded(reply).and_then(is_stored).map(drop)).collect())
    }

    /// Stores if the item does not exist. Returns true if it was stored.
    ///
    /// # Errors
    ///
    /// See [`Error`].
    pub async fn add(
        &self,
        key: impl AsRef<[u8]>,
        value: impl Encode,
        exptime: i64,
    ) -> Result<bool, Error> {
        stored_or_not(self.store(Command::Add, key.as_ref(), &value, exptime, 0).await?)
    }

    /// Stores if the item exists. Returns true if it was stored.
    ///
    /// # Errors
    ///
    /// See [`Error`].
    pub async fn replace(
        &self,
        key: impl AsRef<[u8]>,
        value: impl Encode,
        exptime: i64,
    ) -> Result<bool, Error> {
        stored_or_not(self.store(Command::Replace, key.as_ref(), &value, exptime, 0).await?)
    }

    /// Appends bytes to an item, which must not be compressed. Returns false if it does not exist.
    ///
    /// # Errors
    ///
    /// See [`Error`].
    pub async fn append(&self, key: impl AsRef<[u8]>, bytes: &[u8]) -> Result<bool, Error> {
        let request = Request { value: bytes, ..Request::new(Command::Append, key.as_ref()) };
        stored_or_not(self.ask(request).await?.outcome)
    }

    /// As [`Self::append`], but in front.
    ///
    /// # Errors
    ///
    /// See [`Error`].
    pub async fn prepend(&self, key: impl AsRef<[u8]>, bytes: &[u8]) -> Result<bool, Error> {
        let request = Request { value: bytes, ..Request::new(Command::Prepend, key.as_ref()) };
        stored_or_not(self.ask(request).await?.outcome)
    }

    /// Stores if the item is still the one of [`Value::cas`].
    ///
    /// # Errors
    ///
    /// See [`Error`].
    pub async fn cas(
        &self,
        key: impl AsRef<[u8]>,
        value: impl Encode,
        exptime: i64,
        cas: u64,
    ) -> Result<CasOutcome, Error> {
        match self.store(Command::Cas, key.as_ref(), &value, exptime, cas).await? {
            Outcome::Stored => Ok(CasOutcome::Stored),
            Outcome::Exists => Ok(CasOutcome::Exists),
            Outcome::NotFound => Ok(CasOutcome::NotFound),
            other => Err(Error::Unexpected(other)),
        }
    }

    /// Deletes. Returns false if there was no item.
    ///
    /// # Errors
    ///
    /// See [`Error`].
    pub async fn delete(&self, key: impl AsRef<[u8]>) -> Result<bool, Error> {
        self.delete_held_off(key, 0).await
    }

    /// Deletes, and refuses `add` for a number of seconds (at most 3600). Only holdall's servers do
    /// this.
    ///
    /// # Errors
    ///
    /// See [`Error`]. The text of [`Error::Cache`] starts with `deleted, but` if the server deleted
    /// the key and had no room for the rest.
    pub async fn delete_held_off(&self, key: impl AsRef<[u8]>, secs: u32) -> Result<bool, Error> {
        let exptime = i64::from(secs);
        let request = Request { exptime, ..Request::new(Command::Delete, key.as_ref()) };
        match self.ask(request).await?.outcome {
            Outcome::Deleted => Ok(true),
            Outcome::NotFound => Ok(false),
            other => Err(Error::Unexpected(other)),
        }
    }

    /// Counts up, modulo 2^64; `None` if the item does not exist.
    ///
    /// # Errors
    ///
    /// See [`Error`]; the item may have been counted or not.
    pub async fn incr(&self, key: impl AsRef<[u8]>, by: u64) -> Result<Option<u64>, Error> {
        self.count(Command::Incr, key.as_ref(), by).await
    }

    /// Counts down to at least 0; `None` if the item does not exist.
    ///
    /// # Errors
    ///
    /// As for [`Self::incr`].
    pub async fn decr(&self, key: impl AsRef<[u8]>, by: u64) -> Result<Option<u64>, Error> {
        self.count(Command::Decr, key.as_ref(), by).await
    }

    async fn count(&self, op: Command, key: &[u8], number: u64) -> Result<Option<u64>, Error> {
        let reply = self.ask(Request { number, ..Request::new(op, key) }).await?;
        match reply.outcome {
            Outcome::Number => Ok(Some(reply.number)),
            Outcome::NotFound => Ok(None),
            other => Err(Error::Unexpected(other)),
        }
    }

    /// Sets the time to live. Returns false if the item does not exist.
    ///
    /// # Errors
    ///
    /// See [`Error`].
    pub async fn touch(&self, key: impl AsRef<[u8]>, exptime: i64) -> Result<bool, Error> {
        let request = Request { exptime, ..Request::new(Command::Touch, key.as_ref()) };
        match self.ask(request).await?.outcome {
            Outcome::Touched => Ok(true),
            Outcome::NotFound => Ok(false),
            other => Err(Error::Unexpected(other)),
        }
    }

    /// The value, or the right to fill it, or the request to wait (*Scaling Memcache at Facebook*,
    /// 3.2.1).
    ///
    /// # Errors
    ///
    /// See [`Error`]; [`crate::Failure::ClientError`] if a server does not support leases.
    pub async fn lease_get(&self, key: impl AsRef<[u8]>) -> Result<Lease, Error> {
        let mut reply = self.ask_lease(Request::new(Command::LeaseGet, key.as_ref())).await?;
        if reply.outcome != Outcome::Lease {
            let hit = self.value_of(reply)?;
            return hit.map(Lease::Hit).ok_or(Error::Unexpected(Outcome::NotFound));
        }
        let (token, bytes) = (reply.number, std::mem::take(&mut reply.value));
        let stale = if bytes.is_empty() {
            None
        } else {
            // An unreadable stale value is ignored; the token counts.
            let unpacked = self.inner.codec.unpack(bytes, reply.flags).ok();
            unpacked.map(|(bytes, flags)| Value { bytes, flags, cas: 0 })
        };
        Ok(if token == HOT_MISS { Lease::Wait { stale } } else { Lease::Fill { token, stale } })
    }

    /// Stores the value loaded by the holder of a token. Returns false if the key was changed in
    /// the meantime, or the token does not match.
    ///
    /// # Errors
    ///
    /// See [`Error`].
    pub async fn lease_set(
        &self,
        key: impl AsRef<[u8]>,
        value: impl Encode,
        exptime: i64,
        token: u64,
    ) -> Result<bool, Error> {
        match self.store(Command::LeaseSet, key.as_ref(), &value, exptime, token).await? {
            Outcome::Stored => Ok(true),
            Outcome::NotStored | Outcome::NotFound | Outcome::StaleStored => Ok(false),
            other => Err(Error::Unexpected(other)),
        }
    }
}

fn is_stored(reply: OwnedReply) -> Result<(), Error> {
    if reply.outcome == Outcome::Stored { Ok(()) } else { Err(Error::Unexpected(reply.outcome)) }
}

fn stored_or_not(outcome: Outcome) -> Result<bool, Error> {
    match outcome {
        Outcome::Stored => Ok(true),
        Outcome::NotStored => Ok(false),
        other => Err(Error::Unexpected(other)),
    }
}
