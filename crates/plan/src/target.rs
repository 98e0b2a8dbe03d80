//! The members to query: addresses from the command line, from a topology file, and from discovery.

use std::path::Path;

use anyhow::Context as _;
use discovery::Discovery;
use thiserror::Error;

use crate::topology::{Hosts, Topology, TopologyError};

/// memcached's port, for addresses without one.
const PORT: u16 = 11211;

/// A member of the tier before it has answered.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Target {
    /// `HOST:PORT` or `unix:PATH`.
    pub address: String,
    /// Its place in the topology, as `region/cluster`; empty if unknown.
    pub group: String,
}

/// The reason why the members are unknown.
#[derive(Debug, Error)]
pub enum TargetsError {
    /// The topology is invalid or unreadable.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// A cluster of the topology has no addresses.
    #[error("{0} has a number of pods and no addresses: name the pods' addresses instead")]
    Pods(String),
    /// A source of discovery names no member.
    #[error("{0:#}")]
    Discovery(anyhow::Error),
}

impl TargetsError {
    /// The exit status for this error, by docs/exit-status.md.
    #[must_use]
    pub fn status(&self) -> u8 {
        match self {
            Self::Topology(_) | Self::Pods(_) => 2,
            Self::Discovery(_) => 1,
        }
    }
}

/// The members in the words and the topology, each once.
///
/// # Errors
///
/// If a source of discovery names none, or the topology is unreadable or has no addresses.
pub fn targets(words: &[String], topology: Option<&Path>) -> Result<Vec<Target>, TargetsError> {
    let mut targets = Vec::new();
    for word in words {
        if discovery::is_source(word) {
            let found = Discovery::new(None).servers(word).with_context(|| word.clone());
            let found = found.map_err(TargetsError::Discovery)?;
            targets.extend(found.iter().map(|member| target(&member.server(), "")));
        } else {
            targets.push(target(word, ""));
        }
    }
    if let Some(file) = topology {
        of_topology(&Topology::read(file)?, &mut targets)?;
    }
    let mut seen = std::collections::HashSet::new();
    targets.retain(|target| seen.insert(target.address.clone()));
    Ok(targets)
}

fn of_topology(topology: &Topology, targets: &mut Vec<Target>) -> Result<(), TargetsError> {
    let mut add = |hosts: &Hosts, port: u16, group: &str| {
        let Hosts::Named(hosts) = hosts else {
            return Err(TargetsError::Pods(group.to_owned()));
        };
        targets.extend(hosts.iter().map(|host| target(&with_port(host, port), group)));
        Ok(())
    };
    for region in &topology.regions {
        for (cluster, hosts) in region.servers() {
            add(hosts, topology.cache.port, &format!("{}/{cluster}", region.name))?;
        }
        for cluster in &region.clusters {
            // Without a list there is a router on every server's host.
            let hosts = cluster.routers.as_ref().unwrap_or(&cluster.servers);
            add(hosts, topology.router.port, &format!("{}/{}", region.name, cluster.name))?;
        }
    }
    Ok(())
}

fn target(address: &str, group: &str) -> Target {
    Target { address: with_port(address, PORT), group: group.to_owned() }
}

/// The address with a port; addresses with a port and paths stay unchanged.
fn with_port(address: &str, port: u16) -> String {
    if address.starts_with("unix:") {
        return address.to_owned();
    }
    hostport::with_port(address, port)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_without_a_port_gets_port_11211() {
        for (given, taken) in [
            ("a", "a:11211"),
            ("a:5000", "a:5000"),
            ("::1", "[::1]:11211"),
            ("[::1]", "[::1]:11211"),
            ("[::1]:7", "[::1]:7"),
            ("unix:/run/cache", "unix:/run/cache"),
        ] {
            assert_eq!(with_port(given, PORT), taken);
        }
    }

    #[test]
    fn a_topology_names_servers_and_routers_with_their_clusters() {
        let text = r#"
            name = "shop"
            [[region]]
            name = "west"
            master = true
            [[region.cluster]]
            name = "front"
            servers = ["10.0.0.1", "10.0.0.2"]
            gutter = ["10.0.0.9"]
            routers = ["10.0.1.1"]
        "#;
        let topology = Topology::parse(Path::new("t.toml"), text).unwrap();
        let mut targets = Vec::new();
        of_topology(&topology, &mut targets).unwrap();
        let shown: Vec<_> =
            targets.iter().map(|one| format!("{} {}", one.address, one.group)).collect();
        let expected = [
            "10.0.0.1:11211 west/front",
            "10.0.0.2:11211 west/front",
            "10.0.0.9:11211 west/front-gutter",
            "10.0.1.1:5000 west/front",
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn a_number_of_pods_is_refused() {
        let text = r#"
            name = "shop"
            [[region]]
            name = "west"
            master = true
            [[region.cluster]]
            name = "front"
            servers = 3
        "#;
        let topology = Topology::parse(Path::new("t.toml"), text).unwrap();
        let error = of_topology(&topology, &mut Vec::new()).unwrap_err().to_string();
        assert!(error.starts_with("west/front has a number of pods"), "{error}");
    }

    #[test]
    fn a_member_named_twice_is_a_single_target() {
        let words = ["a".to_owned(), "a:11211".to_owned(), "b".to_owned()];
        assert_eq!(targets(&words, None).unwrap().len(), 2);
    }
}
