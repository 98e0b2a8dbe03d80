//! The blocking form: the same calls for threads without an executor.

use crate::client::{CasOutcome, Client, Lease};
use crate::error::Error;
use crate::error::LoadError;
use crate::look_aside::LookAside;
use crate::value::{Decode, Encode, Value};
use crate::waiting::block_on;

/// A [`Client`] whose calls block. See there for their effects; for calls that are missing here,
/// use [`block_on`] with the client's.
///
/// ```no_run
/// use client::{BlockingClient, Client};
///
/// # fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let client = BlockingClient::from(Client::builder().servers(["127.0.0.1:11211"]).build()?);
/// client.set("counter", 1, 0)?;
/// assert_eq!(client.incr("counter", 2)?, Some(3));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct BlockingClient(Client);

impl From<Client> for BlockingClient {
    fn from(client: Client) -> Self {
        Self(client)
    }
}

/// The calls, with the same signatures.
macro_rules! blocking {
    ($($(#[$doc:meta])* $name:ident($($argument:ident: $kind:ty),*) -> $output:ty;)*) => {
        impl BlockingClient {
            $(
                $(#[$doc])*
                ///
                /// # Errors
                ///
                /// As there.
                pub fn $name(&self, $($argument: $kind),*) -> Result<$output, Error> {
                    block_on(self.0.$name($($argument),*))
                }
            )*
        }
    };
}

blocking! {
    /// See [`Client::get`].
    get(key: impl AsRef<[u8]>) -> Option<Value>;
    /// See [`Client::gets`].
    gets(key: impl AsRef<[u8]>) -> Option<Value>;
    /// See [`Client::gat`].
    gat(key: impl AsRef<[u8]>, exptime: i64) -> Option<Value>;
    /// See [`Client::gats`].
    gats(key: impl AsRef<[u8]>, exptime: i64) -> Option<Value>;
    /// See [`Client::set`].
    set(key: impl AsRef<[u8]>, value: impl Encode, exptime: i64) -> ();
    /// See [`Client::add`].
    add(key: impl AsRef<[u8]>, value: impl Encode, exptime: i64) -> bool;
    /// See [`Client::replace`].
    replace(key: impl AsRef<[u8]>, value: impl Encode, exptime: i64) -> bool;
    /// See [`Client::append`].
    append(key: impl AsRef<[u8]>, bytes: &[u8]) -> bool;
    /// See [`Client::prepend`].
    prepend(key: impl AsRef<[u8]>, bytes: &[u8]) -> bool;
    /// See [`Client::cas`].
    cas(key: impl AsRef<[u8]>, value: impl Encode, exptime: i64, cas: u64) -> CasOutcome;
    /// See [`Client::delete`].
    delete(key: impl AsRef<[u8]>) -> bool;
    /// See [`Client::delete_held_off`].
    delete_held_off(key: impl AsRef<[u8]>, secs: u32) -> bool;
    /// See [`Client::incr`].
    incr(key: impl AsRef<[u8]>, by: u64) -> Option<u64>;
    /// See [`Client::decr`].
    decr(key: impl AsRef<[u8]>, by: u64) -> Option<u64>;
    /// See [`Client::touch`].
    touch(key: impl AsRef<[u8]>, exptime: i64) -> bool;
    /// See [`Client::lease_get`].
    lease_get(key: impl AsRef<[u8]>) -> Lease;
    /// See [`Client::lease_set`].
    lease_set(key: impl AsRef<[u8]>, value: impl Encode, exptime: i64, token: u64) -> bool;
    /// See [`Client::flush_all`].
    flush_all(delay_secs: u32) -> ();
    /// See [`Client::version`].
    version() -> String;
}

impl BlockingClient {
    /// The client whose calls are awaited.
    #[must_use]
    pub const fn client(&self) -> &Client {
        &self.0
    }

    /// See [`Client::get_many`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn get_many<K: AsRef<[u8]>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Result<Option<Value>, Error>>, Error> {
        block_on(self.0.get_many(keys))
    }

    /// See [`Client::gets_many`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn gets_many<K: AsRef<[u8]>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Result<Option<Value>, Error>>, Error> {
        block_on(self.0.gets_many(keys))
    }

    /// See [`Client::set_many`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn set_many<K: AsRef<[u8]>, V: Encode>(
        &self,
        values: impl IntoIterator<Item = (K, V)>,
        exptime: i64,
    ) -> Result<Vec<Result<(), Error>>, Error> {
        block_on(self.0.set_many(values, exptime))
    }

    /// See [`LookAside::get_or_load`]; `load` is called on this thread.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn get_or_load<T: Encode + Decode, E: Send + Sync + 'static>(
        &self,
        look_aside: &LookAside,
        key: impl AsRef<[u8]>,
        load: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, LoadError<E>> {
        block_on(look_aside.get_or_load(key, || async { load() }))
    }

    /// See [`Client::close`].
    pub fn close(&self) {
        block_on(self.0.close());
    }
}
