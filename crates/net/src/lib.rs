//! Listeners, event loop, buffers. Moves bytes, independently of commands and protocols.
//!
//! [`Listen::bind`] binds the addresses, [`start`] serves them with one [`Service`] per worker,
//! [`Control`] observes and ends it. Each worker has its own epoll loop (level-triggered),
//! connections, read buffer and output scratch; an acceptor thread hands connections to the
//! workers, evenly or gathered on few ([`Placement`]). Workers share only counters.
#![deny(unsafe_code)]

mod accept;
mod activation;
mod arrivals;
mod config;
mod conn;
mod conn_id;
mod conn_table;
mod control;
mod datagrams;
mod inherited_fd;
mod io;
mod listen;
mod mailbox;
mod open_files;
mod peer;
mod placement;
mod server;
mod service;
#[cfg(feature = "simulation")]
mod simulated_socket;
mod socket_handover;
mod sockets;
mod timer_wheel;
mod tls;
mod unsent;
mod worker;

pub use activation::activated;
pub use config::{BufferBudget, Config, Unbudgeted};
pub use conn_id::ConnId;
pub use control::{ConnInfo, ConnState, Control, ListenerStats, Stats};
pub use datagrams::DATAGRAM_BYTES;
pub use inherited_fd::inherited_listener;
pub use io::{FLUSH_BYTES, INPUT_MAX, Input, Output};
pub use listen::Listen;
pub use mailbox::Waker;
pub use open_files::{open_files_max, raise_open_files, raise_open_files_to_most};
pub use peer::{ListenAddress, Peer};
pub use placement::{Consolidation, Placement};
pub use server::{Handle, start};
pub use service::{CloseReason, DatagramFate, Flow, Occupation, Service};
#[cfg(feature = "simulation")]
pub use simulated_socket::SimulatedSocket;
pub use socket_handover::Inherited;
pub use sockets::Sockets;
pub use tls::{TlsAcceptor, TlsError, TlsMode, TlsOptions, Verify, knows_suite};
