//! The operating system for connections: non-blocking sockets, a poller for them, the time.
//!
//! Programs use the real one. With the feature `simulation`, which only tests enable, each thread
//! may enter a simulated network, and its sockets are made there. The choice costs programs
//! nothing, and no type has a parameter for it.

mod real;
#[cfg(feature = "simulation")]
pub mod simulated;

use std::time::Instant;

#[cfg(not(feature = "simulation"))]
use real as chosen;
#[cfg(feature = "simulation")]
use simulated as chosen;

pub(crate) use chosen::{Poller, Socket};

/// The present time, which a [`crate::Upstream`] receives once per turn.
#[inline]
#[must_use]
pub fn now() -> Instant {
    chosen::now()
}
