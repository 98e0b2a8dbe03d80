//! The addresses of hosts in DNS replies, through aliases.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use simple_dns::rdata::RData;
use simple_dns::{CLASS, Packet, ResourceRecord};

/// Maximum number of aliases followed: replies may form a circle.
const ALIASES_MAX: usize = 16;

/// Hosts in records, by their names in lower case.
#[derive(Debug, Default)]
pub(crate) struct Hosts {
    addresses: BTreeMap<String, BTreeSet<IpAddr>>,
    /// The targets of aliases.
    aliases: BTreeMap<String, String>,
}

impl Hosts {
    /// Takes the answers of a reply, which are complete. The additional records may be only some
    /// of a host's addresses (RFC 2181, section 9).
    pub(crate) fn learn(&mut self, reply: &[u8]) -> io::Result<()> {
        self.add(&parse(reply)?.answers);
        Ok(())
    }

    /// Takes those of these records that are of the class of the query.
    pub(crate) fn add(&mut self, records: &[ResourceRecord<'_>]) {
        for record in records.iter().filter(|record| record.class == CLASS::IN) {
            let name = record.name.to_string().to_ascii_lowercase();
            let address: IpAddr = match &record.rdata {
                RData::A(a) => Ipv4Addr::from(a.address).into(),
                RData::AAAA(a) => Ipv6Addr::from(a.address).into(),
                RData::CNAME(alias) => {
                    self.aliases.insert(name, alias.0.to_string().to_ascii_lowercase());
                    continue;
                }
                _ => continue,
            };
            self.addresses.entry(name).or_default().insert(address);
        }
    }

    /// The known addresses of a host, or of its alias target, those of IPv4 first.
    pub(crate) fn addresses(&self, host: &str) -> BTreeSet<IpAddr> {
        let first = host.to_ascii_lowercase();
        let mut name = &first;
        for _ in 0..ALIASES_MAX {
            if let Some(found) = self.addresses.get(name) {
                return found.clone();
            }
            let Some(next) = self.aliases.get(name) else { break };
            name = next;
        }
        BTreeSet::new()
    }
}

pub(crate) fn parse(reply: &[u8]) -> io::Result<Packet<'_>> {
    Packet::parse(reply).map_err(|error| io::Error::other(format!("a bad DNS reply: {error:?}")))
}
