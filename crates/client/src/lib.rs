//! Connections to servers, and the tree of routes that chooses among them.
//!
//! ```text
//!     request -> Core::submit -> Route::pick, or a task that runs Route::route -> Upstream::ask -> Destination -> socket
//!     ticket, reply -> Sink   <- the oldest question that has no answer (Pipeline)             <- Destination <- socket
//! ```
//!
//! One [`Core`] serves one thread at a time; all it shares with others is the health of servers and counters ([`Registry`]). It has no
//! loop of its own: whoever owns it polls [`Core::poller`], and calls [`Core::on_events`] and, once a turn,
//! [`Core::settle`]. What was asked in a turn goes to each server in one write.
//!
//! Deletes that fail can be kept and replayed: [`Spooler`].
//! Applications need none of that: a `Client` has threads that do it.
//!
//! [`Plan`] makes trees from a configuration; [`route`] has the routes.
#![forbid(unsafe_code)]

mod alarm;
#[cfg(feature = "application")]
mod app;
mod context;
mod core;
mod deletes;
mod host;
mod join;
mod plan;
pub mod route;
#[cfg(test)]
mod simulation;
mod task;

pub use alarm::Sleep;
#[cfg(feature = "application")]
pub use app::{
    BlockingClient, BuildError, Builder, CasOutcome, Client, Compression, Decode, Encode, Error,
    FLAG_INTEGER, FLAG_LZ4, FLAG_TEXT, FLAG_ZSTD, Lease, LoadError, LookAside, LookAsideTotals,
    Markers, Source, Together, Value, Written, block_on, together,
};
pub use context::{Asking, Context};
pub use core::{Core, Submitted, Tree};
pub use deletes::{DeleteCounts, Deletes, Spooler, Target};
pub use host::host_id;
pub use plan::{BigValues, Distances, Plan, TreeFlags};
pub use upstream::{
    Address, Class, Count, Counters, DestinationId, Event, Exchange, Failure, Health, Login, Op,
    Outcome, OwnedReply, OwnedRequest, Place, PoolCounts, Protocol, Registry, Reply, Report,
    Request, Settings, Sink, Snapshot, State, Ticket, Tls, TlsOptions, Totals, Traffic, Upstream,
    Waiting, Window, cell,
};
