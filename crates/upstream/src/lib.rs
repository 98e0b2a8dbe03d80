//! Connections to servers: requests in, replies out, for one event loop.
//!
//! ```text
//!     request -> Upstream::ask -> window -> Destination -> Pipeline -> socket
//!     ticket, reply -> Sink    <-           Destination <- Pipeline <- socket
//! ```
//!
//! One [`Upstream`] serves one thread at a time. Threads share the health of servers and counters
//! ([`Registry`]). It has no loop: its owner polls [`Upstream::poller`], calls
//! [`Upstream::on_events`] and, once per turn, [`Upstream::flush`]. The requests of one turn leave
//! in one write for each server.
#![forbid(unsafe_code)]

mod address;
mod counters;
mod datagrams;
mod destination;
mod destination_id;
mod dialect;
mod ejection;
mod guard;
mod latencies;
mod login;
mod micros;
mod packet;
mod pipeline;
mod registry;
mod reply;
mod reply_stats;
mod request;
mod sasl;
mod send_cell;
mod settings;
mod sink;
pub mod system;
mod tko;
mod tls;
mod traffic;
mod trail;
mod upstream;
mod wake;
mod window;
mod wire;

pub use address::Address;
pub use certs::{CertsError, ClientOptions as TlsOptions};
pub use counters::{Counters, Totals};
pub use destination::LOGIN_PATIENCE;
pub use destination_id::DestinationId;
pub use dialect::is_sendable;
pub use ejection::Ejection;
pub use latencies::Place;
pub use login::Login;
pub use micros::micros;
pub use proto::{Command, CommandClass, Failure};
pub use registry::{Registry, Report};
pub use reply::{Outcome, OwnedReply, Reply, write_key_words};
pub use request::{OwnedRequest, Request};
pub use send_cell::{SendCell, SendRefCell};
pub use settings::{Protocol, Settings};
pub use sink::{Exchange, Sink, Ticket};
pub use tko::{Health, State};
pub use tls::Tls;
pub use traffic::{Count, Event, Snapshot, Traffic};
pub use trail::{PoolCounts, Trail};
pub use upstream::Upstream;
pub use wake::Wake;
pub use window::{Waiting, Window};
pub use wire::write as write_command;
