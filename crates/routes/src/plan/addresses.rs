//! Addresses of servers that a configuration names.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, ToSocketAddrs};

use routeconf::ast::{Member, Server, ServerAddress};
use upstream::Address;

use super::Plan;

impl Plan {
    /// The hosts written as names, whose addresses may change.
    #[must_use]
    pub fn hosts(&self) -> BTreeSet<String> {
        let named = self.servers().filter_map(|server| named(&server.address));
        named.map(|(host, _)| host.to_owned()).collect()
    }

    /// Takes the addresses of hosts, or the reason why they are unknown. Of several addresses a
    /// server gets the lowest, IPv4 first, because resolvers change their order, and a server that
    /// moves loses its keys.
    pub fn set_addresses(&mut self, found: &BTreeMap<String, Result<BTreeSet<IpAddr>, String>>) {
        let mut placed = Vec::new();
        for server in self.servers() {
            let Some((host, port)) = named(&server.address) else { continue };
            let addresses = match found.get(host) {
                None => continue,
                Some(Ok(found)) => Ok(at_port(found, port)),
                Some(Err(why)) => Err(format!(
                    "{}: {}: {why}",
                    self.config.files.place(server.at),
                    server.address
                )),
            };
            placed.push((server.address.to_string(), addresses));
        }
        for (name, addresses) in placed {
            match addresses {
                Err(why) => _ = self.not_found.insert(name, why),
                Ok(addresses) => {
                    let Some(lowest) = addresses.first() else { continue };
                    self.not_found.remove(&name);
                    self.addresses.insert(name.clone(), (*lowest).into());
                    self.candidates.insert(name, addresses);
                }
            }
        }
    }

    /// Keeps the addresses of servers: those that still have that address, and those whose names
    /// are now not found.
    pub(super) fn remember(&mut self, before: &BTreeMap<String, Address>) {
        for (name, address) in before {
            let Address::Tcp(known) = address else { continue };
            let has_it = self.candidates.get(name).is_some_and(|found| found.contains(known));
            if self.not_found.remove(name).is_some() || has_it {
                self.addresses.insert(name.clone(), address.clone());
            }
        }
    }

    fn servers(&self) -> impl Iterator<Item = &Server> {
        let members = self.config.pools.iter().flat_map(|pool| &pool.members);
        members.filter_map(|member| match member {
            Member::Server(server) => Some(server),
            Member::Route(_) => None,
        })
    }
}

/// The address of a server that is not written with a name.
pub(super) fn written(address: &ServerAddress) -> Option<Address> {
    match address {
        ServerAddress::Unix(path) => Some(Address::Unix(path.into())),
        ServerAddress::Tcp { host, port } => match host.split_once('%') {
            // Only the system knows the number of a zone; this needs no resolver.
            Some((address, _)) if address.parse::<Ipv6Addr>().is_ok() => {
                let mut found = (host.as_str(), *port).to_socket_addrs().ok()?;
                found.next().map(Address::Tcp)
            }
            _ => Some(Address::Tcp(SocketAddr::new(host.parse().ok()?, *port))),
        },
    }
}

/// The name and the port of a server that is written with a name.
fn named(address: &ServerAddress) -> Option<(&str, u16)> {
    match address {
        ServerAddress::Tcp { host, port } if written(address).is_none() => Some((host, *port)),
        _ => None,
    }
}

fn at_port(found: &BTreeSet<IpAddr>, port: u16) -> BTreeSet<SocketAddr> {
    found.iter().map(|address| SocketAddr::new(*address, port)).collect()
}

#[cfg(test)]
mod tests {
    use routeconf::{MemorySources, Params, load};
    use upstream::Settings;

    use super::*;
    use crate::TreeFlags;

    fn plan(addresses: &[&str]) -> Plan {
        let text = r#"{"pools": {"A": {"servers": ["cache:1", "127.0.0.9:1"]}},
                       "route": "PoolRoute|A"}"#;
        let (params, mut none) = (Params::new("/././"), MemorySources::default());
        let loaded = load("test.json", text, &params, &mut none).unwrap();
        let mut plan = Plan::new(loaded.config, Settings::default(), TreeFlags::default()).unwrap();
        assert_eq!(plan.hosts(), BTreeSet::from(["cache".to_owned()]));
        let found = addresses.iter().map(|address| address.parse().unwrap()).collect();
        plan.set_addresses(&BTreeMap::from([("cache".to_owned(), Ok(found))]));
        plan
    }

    fn place(plan: &Plan) -> String {
        plan.addresses["cache:1"].to_string()
    }

    #[test]
    fn a_name_with_several_addresses_stays_the_same_server() {
        let first = plan(&["::1", "127.0.0.3", "127.0.0.2"]);
        assert_eq!(place(&first), "127.0.0.2:1");
        let mut joined = plan(&["127.0.0.1", "127.0.0.3", "127.0.0.2"]);
        assert_eq!(place(&joined), "127.0.0.1:1");
        joined.succeed(&first);
        assert_eq!(place(&joined), "127.0.0.2:1");
        assert_eq!(joined.targets(), first.targets());
        let mut gone = plan(&["127.0.0.4", "127.0.0.3"]);
        gone.succeed(&joined);
        assert_eq!(place(&gone), "127.0.0.3:1");
    }
}
