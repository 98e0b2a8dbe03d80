//! Names: every address of one, and the servers that SRV records list.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, ToSocketAddrs, UdpSocket};
use std::time::Instant;

use simple_dns::rdata::RData;
use simple_dns::{CLASS, Name, Packet, PacketFlag, QCLASS, QTYPE, Question, RCODE, TYPE};

use crate::{Member, PATIENCE};

/// Every address of `NAME:PORT`, by the system's resolver.
pub(crate) fn addresses(name: &str) -> io::Result<Vec<Member>> {
    Ok(name.to_socket_addrs()?.map(Member::from).collect())
}

/// What the SRV records of `NAME` list, those of the lowest priority; `NAME@ADDRESS:PORT` asks that
/// resolver, others are asked that the system asks. Weights are not looked at: keys are spread by
/// the pool's hash.
pub(crate) fn services(name: &str) -> io::Result<Vec<Member>> {
    let (name, resolvers) = match name.split_once('@') {
        Some((name, resolver)) => (name, resolver.to_socket_addrs()?.collect()),
        None => (name, system_resolvers()?),
    };
    let mut failed = io::Error::other("there is no resolver in /etc/resolv.conf");
    for resolver in resolvers {
        match listed(name, resolver) {
            Ok(members) => return Ok(members),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

fn system_resolvers() -> io::Result<Vec<SocketAddr>> {
    let text = fs::read_to_string("/etc/resolv.conf")?;
    let servers = text.lines().filter_map(|line| line.trim().strip_prefix("nameserver"));
    let addresses = servers.filter_map(|address| address.trim().parse::<IpAddr>().ok());
    Ok(addresses.map(|address| SocketAddr::new(address, 53)).take(3).collect())
}

/// A service: its priority, its host, its port.
type Service = (u16, String, u16);

fn listed(name: &str, resolver: SocketAddr) -> io::Result<Vec<Member>> {
    members(&ask(name, TYPE::SRV, resolver)?, |host, kind| ask(host, kind, resolver))
}

/// The servers that a reply lists. Hosts whose addresses are not in it are asked for by `ask`.
pub(crate) fn members(
    reply: &[u8],
    ask: impl Fn(&str, TYPE) -> io::Result<Vec<u8>>,
) -> io::Result<Vec<Member>> {
    let packet = parse(reply)?;
    let services: Vec<Service> = packet
        .answers
        .iter()
        .filter_map(|record| match &record.rdata {
            RData::SRV(srv) => Some((srv.priority, srv.target.to_string(), srv.port)),
            _ => None,
        })
        .collect();
    let lowest = services.iter().map(|service| service.0).min();
    let mut hosts = Hosts::default();
    hosts.learn(&packet);
    let mut members = Vec::new();
    for (_, host, port) in services.into_iter().filter(|service| Some(service.0) == lowest) {
        let address = hosts.find(&host, &ask)?;
        let name = Some(host).filter(|name| Member::is_plain(name));
        members.push(Member { name, ..Member::from(SocketAddr::new(address, port)) });
    }
    Ok(members)
}

/// How many aliases of aliases are followed: replies may name each other in a circle.
const ALIASES_MAX: usize = 16;

/// What replies tell of hosts, by their names in small letters.
#[derive(Debug, Default)]
struct Hosts {
    addresses: BTreeMap<String, IpAddr>,
    /// The names that aliases stand for.
    aliases: BTreeMap<String, String>,
}

impl Hosts {
    /// Takes what a reply tells. Of several addresses the lowest counts, one of IPv4 if there is
    /// one: resolvers change their order, and a server that moves about loses its keys.
    fn learn(&mut self, packet: &Packet<'_>) {
        for record in packet.answers.iter().chain(&packet.additional_records) {
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
            let lowest = self.addresses.entry(name).or_insert(address);
            *lowest = address.min(*lowest);
        }
    }

    /// The address that is known of a host, or of the one that it is an alias of.
    fn known(&self, host: &str) -> Option<IpAddr> {
        let mut name = &host.to_ascii_lowercase();
        for _ in 0..ALIASES_MAX {
            if let Some(address) = self.addresses.get(name) {
                return Some(*address);
            }
            name = self.aliases.get(name)?;
        }
        None
    }

    /// The address of a host, which is asked for if it is not known. A host without one of IPv4 may
    /// have one of IPv6; where the first question fails, nothing is known of that.
    fn find(
        &mut self,
        host: &str,
        ask: impl Fn(&str, TYPE) -> io::Result<Vec<u8>>,
    ) -> io::Result<IpAddr> {
        for kind in [TYPE::A, TYPE::AAAA] {
            if self.known(host).is_none() {
                self.learn(&parse(&ask(host, kind)?)?);
            }
        }
        let none = || io::Error::new(ErrorKind::NotFound, format!("{host} has no address"));
        self.known(host).ok_or_else(none)
    }
}

fn parse(reply: &[u8]) -> io::Result<Packet<'_>> {
    Packet::parse(reply).map_err(|error| io::Error::other(format!("a bad DNS reply: {error:?}")))
}

/// Asks one question by UDP, and by TCP when the reply is too long for that.
fn ask(name: &str, kind: TYPE, resolver: SocketAddr) -> io::Result<Vec<u8>> {
    // Chosen by the kernel for the socket, as the port is: what an attacker must guess.
    let any: SocketAddr =
        if resolver.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0_u16; 8], 0).into() };
    let socket = UdpSocket::bind(any)?;
    socket.connect(resolver)?;
    let id = request_id();
    let wrong = |error: simple_dns::SimpleDnsError| {
        io::Error::new(ErrorKind::InvalidInput, format!("{name}: {error:?}"))
    };
    let mut packet = Packet::new_query(id);
    packet.set_flags(PacketFlag::RECURSION_DESIRED);
    let question = Name::new(name).map_err(wrong)?;
    packet.questions.push(Question::new(
        question,
        QTYPE::TYPE(kind),
        QCLASS::CLASS(CLASS::IN),
        false,
    ));
    let bytes = packet.build_bytes_vec().map_err(wrong)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.send(&bytes)?;
    let (mut buffer, begun) = (vec![0; 4096], Instant::now());
    loop {
        let len = socket.recv(&mut buffer)?;
        let reply = buffer.get(..len).unwrap_or_default();
        if let Ok(found) = Packet::parse(reply)
            && found.id() == id
        {
            match found.rcode() {
                _ if found.has_flags(PacketFlag::TRUNCATION) => {
                    return ask_by_tcp(&bytes, resolver);
                }
                RCODE::NoError => return Ok(reply.to_vec()),
                code => {
                    return Err(io::Error::other(format!("{name}: the resolver says {code:?}")));
                }
            }
        }
        if begun.elapsed() > PATIENCE {
            return Err(ErrorKind::TimedOut.into());
        }
    }
}

fn ask_by_tcp(question: &[u8], resolver: SocketAddr) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect_timeout(&resolver, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let len = u16::try_from(question.len()).map_err(io::Error::other)?;
    stream.write_all(&[&len.to_be_bytes()[..], question].concat())?;
    let mut len = [0; 2];
    stream.read_exact(&mut len)?;
    let mut reply = vec![0; usize::from(u16::from_be_bytes(len))];
    stream.read_exact(&mut reply)?;
    Ok(reply)
}

/// A number that nobody can guess.
fn request_id() -> u16 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    (RandomState::new().build_hasher().finish() & 0xffff) as u16
}

#[cfg(test)]
mod tests {
    use std::thread;

    use simple_dns::ResourceRecord;
    use simple_dns::rdata::{A, AAAA, CNAME, SRV};

    use super::*;

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

    /// What a resolver knows of a service's one host, `host.CASE`.
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
            let found = services(&format!("_m._tcp.{case}@{resolver}"));
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
}
