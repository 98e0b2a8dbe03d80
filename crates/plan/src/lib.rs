//! From one topology file to the files that every host needs.
//!
//! ```text
//!     topology.toml -> Topology (checked) -> systemd    -> hosts/<address>/...
//!                                         \ kubernetes -> <region>.yaml
//! ```
//!
//! A topology says what *Scaling Memcache at Facebook* calls regions, frontend clusters, gutter
//! servers and regional pools (sections 3.3, 4 and 5). Both forms share what does not depend upon
//! the kind of host: the routers' configuration and the invalidators'.
#![forbid(unsafe_code)]

pub mod cli;
mod invalidator;
mod kubernetes;
mod routes;
mod systemd;
mod topology;

pub use invalidator::{Places, invalidator};
pub use kubernetes::kubernetes;
pub use routes::{prefix, routes};
pub use systemd::systemd;
pub use topology::{
    Cache, Cluster, Database, DatabaseKind, Hosts, Kubernetes, Region, Regional, Router, Templates,
    Topology, TopologyError,
};

/// Files to be written: paths below the folder of the output, and contents, in order.
pub type Files = std::collections::BTreeMap<String, String>;
