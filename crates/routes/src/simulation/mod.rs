//! A router's workers in simulated time; see the crate `simulation`.

mod recovery;
mod shape;
mod workers;
