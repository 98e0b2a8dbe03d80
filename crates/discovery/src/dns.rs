//! Names as sources: every address of a name, and the servers in SRV records.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;

use simple_dns::TYPE;
use simple_dns::rdata::RData;

use crate::deadline::Deadline;
use crate::hosts::{Hosts, parse};
use crate::names::{self, System};
use crate::{Member, resolver};

/// Every address of `NAME:PORT`.
pub(crate) fn addresses(name: &str, deadline: Deadline) -> io::Result<Vec<Member>> {
    Ok(names::of_endpoint(name, deadline)?.into_iter().map(Member::from).collect())
}

/// The servers in the SRV records of `NAME` with the lowest priority; `NAME@ADDRESS:PORT` queries
/// that resolver, other names the system's. Weights are ignored: the pool's hash distributes keys.
/// A host keeps its address in `before`, if it still has it.
pub(crate) fn services(
    name: &str,
    before: &[Member],
    deadline: Deadline,
) -> io::Result<Vec<Member>> {
    let (name, resolvers) = match name.split_once('@') {
        Some((name, resolver)) => (name, names::of_endpoint(resolver, deadline)?),
        None => (name, System::read()?.resolvers),
    };
    resolver::of_any(&resolvers, deadline, |resolver, deadline| {
        let ask = |name: &str, kind| resolver::ask(name, kind, resolver, deadline);
        members(&ask(name, TYPE::SRV)?, before, ask)
    })
}

/// A service: its priority, its host, its port.
type Service = (u16, String, u16);

/// The servers in a reply. `ask` looks up hosts whose addresses it lacks.
pub(crate) fn members(
    reply: &[u8],
    before: &[Member],
    ask: impl Fn(&str, TYPE) -> io::Result<Vec<u8>>,
) -> io::Result<Vec<Member>> {
    let services: Vec<Service> = parse(reply)?
        .answers
        .iter()
        .filter_map(|record| match &record.rdata {
            RData::SRV(srv) => Some((srv.priority, srv.target.to_string(), srv.port)),
            _ => None,
        })
        .collect();
    let lowest = services.iter().map(|service| service.0).min();
    let mut hosts = Hosts::default();
    hosts.learn(reply)?;
    let mut members = Vec::new();
    for (_, host, port) in services.into_iter().filter(|service| Some(service.0) == lowest) {
        members.push(member(&mut hosts, host, port, before, &ask)?);
    }
    Ok(members)
}

/// The member at a host, whose addresses are looked up if unknown. A host without an IPv4 address
/// may have one of IPv6; if the first query fails, that is unknown. Of several addresses it keeps
/// the previous one, else it takes the lowest, IPv4 first, because resolvers change their order,
/// and a server that moves loses its keys.
fn member(
    hosts: &mut Hosts,
    host: String,
    port: u16,
    before: &[Member],
    ask: impl Fn(&str, TYPE) -> io::Result<Vec<u8>>,
) -> io::Result<Member> {
    for kind in [TYPE::A, TYPE::AAAA] {
        if hosts.addresses(&host).is_empty() {
            hosts.learn(&ask(&host, kind)?)?;
        }
    }
    let found = hosts.addresses(&host);
    let known = before.iter().find_map(|member| {
        let is_same = member.port == port && member.name.as_deref() == Some(&*host);
        member.host.parse().ok().filter(|address| is_same && found.contains(address))
    });
    let none = || io::Error::new(ErrorKind::NotFound, format!("{host} has no address"));
    let address = known.or_else(|| found.first().copied()).ok_or_else(none)?;
    let name = Some(host).filter(|name| Member::is_plain(name));
    Ok(Member { name, ..Member::from(SocketAddr::new(address, port)) })
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr, UdpSocket};
    use std::thread;

    use simple_dns::rdata::{A, AAAA, CNAME, SRV};
    use simple_dns::{CLASS, Name, Packet, QTYPE, ResourceRecord};

    use super::*;
    use crate::PATIENCE;

    fn record<'a>(name: &'a str, rdata: RData<'a>) -> ResourceRecord<'a> {
        ResourceRecord::new(Name::new(name).unwrap(), CLASS::IN, 5, rdata)
    }

    fn v4(last: u8) -> RData<'static> {
        RData::A(A { address: Ipv4Addr::new(127, 0, 0, last).into() })
    }

    fn v6() -> RData<'static> {
        RData::AAAA(AAAA { address: Ipv6Addr::LOCALHOST.into() })
    }

    fn alias(name: &str) -> RData<'_> {
        RData::CNAME(CNAME(Name::new(name).unwrap()))
    }

    /// A resolver's records of a service's only host, `host.CASE`.
    fn known(case: &str, kind: TYPE) -> Vec<ResourceRecord<'static>> {
        match (case, kind) {
            ("four", TYPE::A) => vec![record("host.four", v4(3)), record("host.four", v4(2))],
            ("six", TYPE::AAAA) => vec![record("host.six", v6())],
            ("alias", TYPE::A) => vec![
                record("host.alias", alias("other.alias")),
                record("other.alias", alias("real.alias")),
                record("real.alias", v4(4)),
            ],
            ("circle", _) => vec![record("host.circle", alias("host.circle"))],
            ("letters", TYPE::A) => vec![record("HOST.Letters", v4(5))],
            _ => Vec::new(),
        }
    }

    /// A resolver in a thread; its address.
    fn resolver() -> SocketAddr {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        thread::spawn(move || {
            let mut buffer = [0; 512];
            while let Ok((len, client)) = socket.recv_from(&mut buffer) {
                let asked = Packet::parse(&buffer[..len]).unwrap();
                let (name, QTYPE::TYPE(kind)) =
                    (asked.questions[0].qname.to_string(), asked.questions[0].qtype)
                else {
                    panic!("{asked:?}")
                };
                let case = name.rsplit('.').next().unwrap();
                let host = format!("host.{case}");
                let mut reply = Packet::new_reply(asked.id());
                if kind == TYPE::SRV {
                    let target = Name::new(&host).unwrap();
                    let srv = SRV { priority: 0, weight: 0, port: 7, target };
                    reply.answers.push(record(&name, RData::SRV(srv)));
                } else {
                    reply.answers = known(case, kind);
                }
                socket.send_to(&reply.build_bytes_vec().unwrap(), client).unwrap();
            }
        });
        address
    }

    #[test]
    fn a_host_may_have_ipv6_alone_or_be_an_alias() {
        let resolver = resolver();
        let found = |case: &str| {
            let found =
                services(&format!("_m._tcp.{case}@{resolver}"), &[], Deadline::after(PATIENCE));
            found.map(|all| all.iter().map(Member::server).collect::<Vec<_>>().join(" "))
        };
        for (case, want) in [
            ("four", "127.0.0.2:7"),
            ("six", "[::1]:7"),
            ("alias", "127.0.0.4:7"),
            ("letters", "127.0.0.5:7"),
        ] {
            assert_eq!(found(case).unwrap(), want, "{case}");
        }
        for case in ["circle", "nothing"] {
            let error = found(case).unwrap_err().to_string();
            assert_eq!(error, format!("host.{case} has no address"));
        }
    }

    #[test]
    fn a_host_keeps_the_address_that_it_had() {
        let source = format!("_m._tcp.four@{}", resolver());
        for (before, want) in [("127.0.0.3:7", "127.0.0.3:7"), ("127.0.0.9:7", "127.0.0.2:7")] {
            let before = [Member::of_line(&format!("{before} host.four")).unwrap()];
            let found = services(&source, &before, Deadline::after(PATIENCE)).unwrap();
            assert_eq!(found[0].server(), want);
        }
    }
}
