//! Names as sources: every address of a name, and the servers in SRV records.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};

use simple_dns::rdata::RData;
use simple_dns::{CLASS, TYPE};

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

/// The servers in a reply. `ask` looks up hosts.
pub(crate) fn members(
    reply: &[u8],
    before: &[Member],
    ask: impl Fn(&str, TYPE) -> io::Result<Vec<u8>>,
) -> io::Result<Vec<Member>> {
    let packet = parse(reply)?;
    // Names have no letter case, and a resolver may change it from reply to reply. The order of
    // servers and the hashes of keys, in contrast, depend on it.
    let services: Vec<Service> = packet
        .answers
        .iter()
        .filter(|record| record.class == CLASS::IN)
        .filter_map(|record| match &record.rdata {
            RData::SRV(srv) => {
                Some((srv.priority, srv.target.to_string().to_ascii_lowercase(), srv.port))
            }
            _ => None,
        })
        .collect();
    let lowest = services.iter().map(|service| service.0).min();
    let (mut additional, mut asked) = (Hosts::default(), Hosts::default());
    additional.add(&packet.additional_records);
    let mut members = Vec::new();
    for (_, host, port) in services.into_iter().filter(|service| Some(service.0) == lowest) {
        let previous = previous(before, &host, port);
        let known = previous.filter(|address| additional.addresses(&host).contains(address));
        let address = match known {
            Some(address) => address,
            None => look_up(&mut asked, &host, previous, &ask)?,
        };
        let name = Some(host).filter(|name| Member::is_plain(name));
        members.push(Member { name, ..Member::from(SocketAddr::new(address, port)) });
    }
    Ok(members)
}

/// The previous address of the service at this host and port.
fn previous(before: &[Member], host: &str, port: u16) -> Option<IpAddr> {
    let is_same = |member: &&Member| member.port == port && member.name.as_deref() == Some(host);
    before.iter().find(is_same)?.host.parse().ok()
}

/// An address of the host: the previous one if it still has that, else the lowest, IPv4 first,
/// because resolvers change their order, and a server that moves loses its keys. The additional
/// records of the first reply do not decide that, because they may be only some of the addresses.
/// IPv6 is looked up if there is no IPv4 or the previous address is of IPv6; if the query for IPv4
/// fails, that is unknown.
fn look_up(
    asked: &mut Hosts,
    host: &str,
    previous: Option<IpAddr>,
    ask: impl Fn(&str, TYPE) -> io::Result<Vec<u8>>,
) -> io::Result<IpAddr> {
    for kind in [TYPE::A, TYPE::AAAA] {
        let found = asked.addresses(host);
        let was_of_kind = previous.is_some_and(|address| {
            address.is_ipv6() == (kind == TYPE::AAAA) && !found.contains(&address)
        });
        if found.is_empty() || was_of_kind {
            asked.learn(&ask(host, kind)?)?;
        }
    }
    let found = asked.addresses(host);
    let none = || io::Error::new(ErrorKind::NotFound, format!("{host} has no address"));
    let kept = previous.filter(|address| found.contains(address));
    kept.or_else(|| found.first().copied()).ok_or_else(none)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr, UdpSocket};
    use std::thread;

    use simple_dns::rdata::{A, AAAA, CNAME, SRV};
    use simple_dns::{Name, Packet, QTYPE, ResourceRecord};

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
            ("part", TYPE::A) => vec![record("host.part", v4(3)), record("host.part", v4(2))],
            ("six", TYPE::AAAA) => vec![record("host.six", v6())],
            ("both", TYPE::A) => vec![record("host.both", v4(6))],
            ("both", TYPE::AAAA) => vec![record("host.both", v6())],
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

    /// The SRV record of a service at this host.
    fn service(host: &str) -> ResourceRecord<'_> {
        let target = Name::new(host).unwrap();
        record("_m._tcp.test", RData::SRV(SRV { priority: 0, weight: 0, port: 7, target }))
    }

    /// Some of the addresses of these hosts, which a resolver adds to the SRV records.
    fn additional(case: &str) -> Vec<ResourceRecord<'static>> {
        match case {
            "part" => vec![record("host.part", v4(3))],
            "both" => vec![record("host.both", v6())],
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
                reply.questions.clone_from(&asked.questions);
                if kind == TYPE::SRV {
                    reply.answers.push(service(&host));
                    reply.additional_records = additional(case);
                } else {
                    reply.answers = known(case, kind);
                }
                socket.send_to(&reply.build_bytes_vec().unwrap(), client).unwrap();
            }
        });
        address
    }

    #[test]
    fn a_host_may_be_ipv6_only_or_an_alias() {
        let resolver = resolver();
        let found = |case: &str| {
            let found =
                services(&format!("_m._tcp.{case}@{resolver}"), &[], Deadline::after(PATIENCE));
            found.map(|all| all.iter().map(Member::server).collect::<Vec<_>>().join(" "))
        };
        for (case, want) in [
            ("four", "127.0.0.2:7"),
            ("six", "[::1]:7"),
            ("both", "127.0.0.6:7"),
            ("part", "127.0.0.2:7"),
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
        let resolver = resolver();
        for (case, before, want) in [
            ("four", "127.0.0.3:7", "127.0.0.3:7"),
            ("four", "127.0.0.9:7", "127.0.0.2:7"),
            // The additional records have only 127.0.0.3.
            ("part", "127.0.0.2:7", "127.0.0.2:7"),
            ("part", "127.0.0.3:7", "127.0.0.3:7"),
            ("part", "127.0.0.9:7", "127.0.0.2:7"),
            // The additional records have only the address of IPv6.
            ("both", "127.0.0.6:7", "127.0.0.6:7"),
            ("both", "127.0.0.9:7", "127.0.0.6:7"),
            ("both", "[::1]:7", "[::1]:7"),
        ] {
            let before = [Member::of_line(&format!("{before} host.{case}")).unwrap()];
            let source = format!("_m._tcp.{case}@{resolver}");
            let found = services(&source, &before, Deadline::after(PATIENCE)).unwrap();
            assert_eq!(found[0].server(), want, "{case} {before:?}");
        }
    }

    fn reply(
        answers: Vec<ResourceRecord<'_>>,
        additional_records: Vec<ResourceRecord<'_>>,
    ) -> Vec<u8> {
        let mut packet = Packet::new_reply(0);
        (packet.answers, packet.additional_records) = (answers, additional_records);
        packet.build_bytes_vec().unwrap()
    }

    #[test]
    fn a_host_keeps_an_address_of_ipv6_that_the_additional_records_lack() {
        let before = [Member::of_line("[::1]:7 host.both").unwrap()];
        let services = reply(vec![service("host.both")], vec![record("host.both", v4(6))]);
        let found =
            members(&services, &before, |_, kind| Ok(reply(known("both", kind), Vec::new())));
        assert_eq!(found.unwrap(), before);
    }

    #[test]
    fn records_of_another_class_are_ignored() {
        let chaos = |record| ResourceRecord { class: CLASS::CH, ..record };
        let services = reply(vec![chaos(service("host.four"))], Vec::new());
        let none = |_: &str, _| Ok(reply(Vec::new(), Vec::new()));
        assert_eq!(members(&services, &[], none).unwrap(), []);
        let mut hosts = Hosts::default();
        hosts.add(&[chaos(record("host.four", v4(6))), chaos(record("other", alias("host.four")))]);
        assert!(hosts.addresses("host.four").is_empty() && hosts.addresses("other").is_empty());
    }

    #[test]
    fn the_letter_case_of_a_host_makes_no_other_member() {
        let found = |host: &str, before: &[Member]| {
            let services = reply(vec![service(host)], Vec::new());
            let ask = |_: &str, kind| Ok(reply(known("four", kind), Vec::new()));
            members(&services, before, ask).unwrap()
        };
        assert_eq!(found("HOST.Four", &[]), found("host.four", &[]));
        let before = [Member::of_line("127.0.0.3:7 host.four").unwrap()];
        assert_eq!(found("Host.FOUR", &before), before);
    }
}
