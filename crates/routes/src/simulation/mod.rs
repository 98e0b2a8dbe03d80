//! Workers as a router has them, in simulated time: see the crate `simulation`.

mod recovery;
mod shape;
mod workers;
