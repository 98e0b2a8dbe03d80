//! Listeners, event loop, buffers: moves bytes, knows no command.
#![forbid(unsafe_code)]

mod io;
mod mailbox;
mod peer;
mod service;
mod udp;

pub use io::{FLUSH_BYTES, INPUT_MAX, Input, Output};
pub use mailbox::Waker;
pub use peer::{ListenAddress, Peer};
pub use service::{CloseReason, Flow, Service};
pub use udp::{DATAGRAM_BYTES, DATAGRAM_PAYLOAD, DatagramReply, FRAME_BYTES, parse_frame, split};
