//! Makes the files for every host from one topology file.
//!
//! ```text
//!     topology.toml -> Topology (checked) -> systemd    -> hosts/<address>/...
//!                                         \ kubernetes -> <region>.yaml, kustomization.yaml
//! ```
//!
//! A topology describes regions, frontend clusters, gutter servers and regional pools in the sense
//! of *Scaling Memcache at Facebook* (sections 3.3, 4 and 5). Both forms share the parts that do
//! not depend on the kind of host: the routers' configuration and the invalidators'.
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
    /// The topology has a number of pods, but systemd needs addresses.
    #[error(
        "{group}: {count} pods are for Kubernetes; systemd needs addresses: servers = [\"10.0.0.1\", ..]"
    )]
    Pods {
        /// The group of servers, or the cluster of routers.
        group: String,
        /// The number of pods.
        count: u32,
    },
    /// The topology has addresses, but Kubernetes needs a number of pods.
    #[error("{group}: addresses are for systemd; Kubernetes needs a number of pods: servers = 3")]
    Addresses {
        /// The group of servers, or the cluster of routers.
        group: String,
    },
    /// `kubernetes.routers_max` is less than the router's number of pods.
    #[error("{cluster}: {pods} routers are more than kubernetes.routers_max = {most}")]
    RoutersMax {
        /// The cluster of the routers.
        cluster: String,
        /// Its minimum number of pods.
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

/// Files to write: paths below the folder of the output, and contents, in order.
pub type Files = std::collections::BTreeMap<String, String>;
