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

mod address;
mod alarm;
#[cfg(feature = "application")]
mod app;
pub mod cell;
mod context;
mod core;
mod counters;
mod datagrams;
mod deletes;
mod destination;
mod dialect;
mod ejection;
mod guard;
mod health;
mod host;
mod join;
mod latencies;
mod packet;
mod pipeline;
mod plan;
mod registry;
mod reply;
mod request;
pub mod route;
mod sasl;
mod settings;
#[cfg(test)]
mod simulation;
mod system;
mod tally;
mod task;
mod traffic;
mod upstream;
mod wake;
mod window;
mod wire;

pub use address::Address;
pub use alarm::Sleep;
#[cfg(feature = "application")]
pub use app::{
    BlockingClient, BuildError, Builder, CasOutcome, Client, Compression, Decode, Encode, Error,
    FLAG_INTEGER, FLAG_LZ4, FLAG_TEXT, FLAG_ZSTD, Lease, LoadError, LookAside, LookAsideTotals,
    Markers, Source, Together, Value, Written, block_on, together,
};
pub use certs::ClientOptions as TlsOptions;
pub use context::{Asking, Context};
pub use core::{Core, Submitted, Tree};
pub use counters::{Counters, Totals};
pub use deletes::{DeleteCounts, Deletes, Spooler, Target};
pub use guard::{Login, Tls};
pub use health::{Health, State};
pub use host::host_id;
pub use latencies::Place;
pub use pipeline::{Exchange, Sink, Ticket};
pub use plan::{BigValues, Distances, Plan, TreeFlags};
pub use registry::{Registry, Report};
pub use reply::{Failure, Outcome, OwnedReply, Reply};
pub use request::{Class, Op, OwnedRequest, Request};
pub use settings::{Protocol, Settings};
pub use traffic::{Count, Event, Snapshot, Traffic};
pub use upstream::{DestinationId, Upstream};
pub use window::{Waiting, Window};
