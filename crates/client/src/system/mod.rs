//! What connections need of the system, and where it is made: sockets that do not block, a poller of them, and the time.
//!
//! The tests inside of this crate get a simulated one under the same names (`simulation`). Which it is, is decided when the crate
//! is compiled: programs pay nothing for it, and no type has a parameter more.

#[cfg(not(test))]
mod real;

#[cfg(test)]
pub(crate) use crate::simulation::system::{Poller, Socket, now};
#[cfg(not(test))]
pub(crate) use real::{Poller, Socket, now};
