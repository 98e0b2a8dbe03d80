//! From one topology file to the files that every host needs.
//!
//! ```text
//!     topology.toml -> Topology (checked) -> systemd    -> hosts/<address>/...
//!                                         \ kubernetes -> <region>.yaml, kustomization.yaml
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
mod target;
mod topology;

pub use invalidator::{Places, invalidator};
pub use kubernetes::kubernetes;
pub use routes::{prefix, routes};
pub use systemd::systemd;
pub use target::{Target, TargetsError, targets};
pub use topology::{
    Cache, Cluster, Database, DatabaseKind, Hosts, KUSTOMIZATION, Kubernetes, Region, Regional,
    Router, SslMode, Templates, Topology, TopologyError,
};

/// The topology has hosts of the other kind.
#[derive(Clone, Debug, thiserror::Error)]
pub enum PlanError {
    /// A number of pods stands where systemd needs addresses.
    #[error(
        "{group}: {count} pods are for Kubernetes; systemd needs addresses: servers = [\"10.0.0.1\", ..]"
    )]
    Pods {
        /// The group of servers, or the cluster of routers.
        group: String,
        /// The number of pods.
        count: u32,
    },
    /// Addresses stand where Kubernetes needs a number of pods.
    #[error("{group}: addresses are for systemd; Kubernetes needs a number of pods: servers = 3")]
    Addresses {
        /// The group of servers, or the cluster of routers.
        group: String,
    },
    /// `kubernetes.routers_max` is less than the pods that a router has.
    #[error("{cluster}: {pods} routers are more than kubernetes.routers_max = {most}")]
    RoutersMax {
        /// The cluster of the routers.
        cluster: String,
        /// Its pods at the least.
        pods: u32,
        /// The setting.
        most: u32,
    },
    /// A manifest cannot be written as YAML.
    #[error("YAML: {0}")]
    Yaml(String),
}

impl From<serde_saphyr::ser::Error> for PlanError {
    fn from(error: serde_saphyr::ser::Error) -> Self {
        Self::Yaml(error.to_string())
    }
}

/// Files to be written: paths below the folder of the output, and contents, in order.
pub type Files = std::collections::BTreeMap<String, String>;
