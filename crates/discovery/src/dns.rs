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
    members(&ask(name, TYPE::SRV, resolver)?, |host| ask(host, TYPE::A, resolver))
}

/// The servers that a reply lists. Hosts whose addresses are not in it are asked for by `ask`.
pub(crate) fn members(
    reply: &[u8],
    ask: impl Fn(&str) -> io::Result<Vec<u8>>,
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
    let mut known = hosts(&packet);
    let mut members = Vec::new();
    for (_, host, port) in services.into_iter().filter(|service| Some(service.0) == lowest) {
        if !known.contains_key(&host) {
            known.extend(hosts(&parse(&ask(&host)?)?));
        }
        let address = known
            .get(&host)
            .ok_or_else(|| io::Error::new(ErrorKind::NotFound, format!("{host} has no address")))?;
        let name = Some(host.clone()).filter(|name| Member::is_plain(name));
        members.push(Member { name, ..Member::from(SocketAddr::new(*address, port)) });
    }
    Ok(members)
}

/// The addresses that a reply tells.
fn hosts(packet: &Packet<'_>) -> BTreeMap<String, IpAddr> {
    let records = packet.answers.iter().chain(&packet.additional_records);
    let address = records.filter_map(|record| match &record.rdata {
        RData::A(a) => Some((record.name.to_string(), Ipv4Addr::from(a.address).into())),
        RData::AAAA(a) => Some((record.name.to_string(), Ipv6Addr::from(a.address).into())),
        _ => None,
    });
    address.collect()
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
