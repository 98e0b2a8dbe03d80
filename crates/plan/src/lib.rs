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

mod accepted;
pub mod cli;
mod invalidator;
mod kubernetes;
mod routes;
mod spelling;
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

/// The reason why a topology does not become files.
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
    /// A host would get two units with one name.
    #[error(
        "{host}: {unit} of {first} and of {second} would be the same unit: give one of them another host"
    )]
    Unit {
        /// The host.
        host: String,
        /// The unit.
        unit: &'static str,
        /// The group, cluster or region that the first one is for.
        first: String,
        /// The group, cluster or region that the second one is for.
        second: String,
    },
    /// A cache server and a router on one host have the same port.
    #[error("{host}: its cache server and its router have port {port}: change router.port")]
    Port {
        /// The host.
        host: String,
        /// The port.
        port: u16,
    },
    /// An address has a port.
    #[error("'{0}': leave out the port: cache.port and router.port are those of all hosts")]
    AddressPort(String),
    /// A router's host is a name.
    #[error("'{0}': a router needs an IP address to listen on")]
    RouterName(String),
    /// Two objects of Kubernetes would have the same name.
    #[error("two objects of kind {kind} would be named {name}: rename a cluster or a region")]
    Name {
        /// Their kind.
        kind: String,
        /// Their name.
        name: String,
    },
    /// The name of an object of Kubernetes is too long.
    #[error("{name} has {} letters, and Kubernetes allows {most}: shorten a name", name.len())]
    LongName {
        /// The name.
        name: String,
        /// The maximum number of letters.
        most: usize,
    },
    /// A program would refuse the configuration that is made for it.
    #[error("region '{region}': its {who} would refuse its configuration: {why}")]
    Configuration {
        /// The region.
        region: String,
        /// The program.
        who: &'static str,
        /// Its reason.
        why: String,
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
