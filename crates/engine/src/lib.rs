//! The meaning of memcached's commands, over the store: no bytes on the wire, no socket, no wall
//! clock.
//!
//! ```text
//!     Shared (one): the store, settings, a pending flush, every worker's counters
//!       └ Worker (per thread): get  touch  store  concat  delete  arithmetic  meta_get  lease_get
//! ```
//!
//! A request arrives as a [`Key`] (hashed once) and plain arguments. The result is an outcome, and
//! for reads the item itself. Each protocol turns outcomes into its own words.
//!
//! # Laws
//!
//! 1. A mutation is one [`store::Section::update`]: its condition is judged and its item linked
//!    under the key's lock.
//! 2. Memory is reserved outside any section, so an evicting reservation never waits for this
//!    thread's own reading.
//! 3. An expired or flushed item is a miss to every client; a mutation that meets one unlinks it.
//! 4. If a result depends on the present value (incr, append), the reservation has the shape that
//!    was seen. The operation starts over if the shape has changed under the lock, which only
//!    another client's success can cause.
//! 5. Only their worker writes counters; readers sum them.
#![forbid(unsafe_code)]

mod arithmetic;
mod batches;
mod concat;
mod delete;
mod exptime;
mod key;
mod lease;
mod lease_tokens_and_holdoffs;
mod meta_get;
mod mutate;
mod namespaces;
mod new_value;
mod retrieve;
mod samples;
mod shared;
mod stats;
mod subjects;
mod worker;

pub use arithmetic::{Arithmetic, Counted, Direction, Vivify};
pub use delete::{Delete, Deleted, NoRoom};
pub use exptime::{DEAD, deadline_of, ttl_of};
pub use key::Key;
pub use lease::{FlushPrefixError, LEASE_WAIT, LeaseMiss, LeaseStats};
pub use meta_get::{MetaGet, MetaHit};
pub use mutate::{Condition, Mode, Stored, Verdict};
pub use namespaces::{Limits, RATE_MAX, RateReached, Rule, RulesError, Subject};
pub use new_value::NewValue;
pub use retrieve::{Miss, Touched};
pub use samples::{SAMPLES_INTERVAL, Sampling};
pub use shared::{FlushNotAllowed, LeaseSettings, Settings, Shared};
pub use stats::{
    CLASS_COUNTERS, COUNTERS, ClassCounter, Counter, SUBJECT_COUNTERS, SubjectCounter, Totals,
};
pub use subjects::SubjectStats;
pub use worker::{Cas, Worker};
