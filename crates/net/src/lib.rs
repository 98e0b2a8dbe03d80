//! Listeners, event loop, buffers: moves bytes, knows no command.
//!
//! [`Listen::bind`] binds the addresses, [`start`] serves them with one [`Service`] a worker, [`Control`] watches and
//! ends it. Each worker has its own epoll loop (level-triggered), connections, read buffer and output scratch; an
//! acceptor thread hands connections to the workers, evenly or gathered on few ([`Spread`]). Workers share nothing but counters.
#![forbid(unsafe_code)]

mod accept;
mod conn;
mod control;
mod datagrams;
mod handed;
mod inherit;
mod io;
mod listen;
mod mailbox;
mod peer;
mod server;
mod service;
mod slots;
mod spread;
mod tls;
mod udp;
mod wheel;
mod worker;

pub use control::{ConnInfo, ConnState, Control, Stats};
pub use handed::handed_listener;
pub use inherit::Inherited;
pub use io::{FLUSH_BYTES, INPUT_MAX, Input, Output};
pub use listen::{Listen, Sockets};
pub use mailbox::Waker;
pub use peer::{ListenAddress, Peer};
pub use server::{BufferBudget, Config, Handle, Unbudgeted, start};
pub use service::{CloseReason, ConnId, Flow, Service};
pub use spread::{Gathering, Spread};
pub use tls::{TlsAcceptor, TlsMode, TlsOptions, Verify, knows_suite};
pub use udp::{DATAGRAM_BYTES, DATAGRAM_PAYLOAD, DatagramReply, FRAME_BYTES, frame, parse_frame};
