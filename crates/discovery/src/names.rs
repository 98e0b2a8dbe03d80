//! Every address of a name: `/etc/hosts`, and the resolvers of `/etc/resolv.conf`.
//!
//! It does not use the C library (decision 152): musl's `getaddrinfo` returns 48 addresses of a
//! name with more, different ones each time, without an error.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV6};

use simple_dns::TYPE;

use crate::deadline::Deadline;
use crate::hosts::Hosts;
use crate::resolver;

/// Maximum number of resolvers, as in resolv.conf(5).
const RESOLVERS_MAX: usize = 3;

/// The maximum of `ndots`, as in resolv.conf(5).
const DOTS_MAX: usize = 15;

/// This machine's configuration for name lookups.
#[derive(Debug)]
pub(crate) struct System {
    /// The text of `/etc/hosts`.
    hosts: String,
    pub(crate) resolvers: Vec<SocketAddr>,
    /// Domains in which a name is searched.
    search: Vec<String>,
    /// A name with fewer dots is searched in the domains first.
    dots: usize,
}

impl System {
    /// Reads the files. A missing one counts as empty.
    ///
    /// # Errors
    ///
    /// The unreadable file, and the reason.
    pub(crate) fn read() -> io::Result<Self> {
        let text = |path: &str| match fs::read(path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(io::Error::new(error.kind(), format!("{path}: {error}")))
            }
            // Comments may be in any encoding.
            bytes => Ok(String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned()),
        };
        let (hosts, resolv_conf) = (text("/etc/hosts")?, text("/etc/resolv.conf")?);
        // Only a resolver with a scope needs it.
        let interfaces = text("/proc/self/net/if_inet6").unwrap_or_default();
        Ok(Self::of(hosts, &resolv_conf, &interfaces))
    }

    /// From the texts of `/etc/hosts` and `/etc/resolv.conf`, and the kernel's list of interfaces
    /// with IPv6. If no resolver is named there, it uses this host's.
    fn of(hosts: String, resolv_conf: &str, interfaces: &str) -> Self {
        let local = SocketAddr::from((Ipv4Addr::LOCALHOST, 53));
        let mut system = Self { hosts, resolvers: Vec::new(), search: Vec::new(), dots: 1 };
        let mut is_named = false;
        for line in resolv_conf.lines() {
            let line = line.split(['#', ';']).next().unwrap_or_default();
            let mut words = line.split_whitespace();
            match words.next() {
                Some("nameserver") => {
                    is_named = true;
                    let named = words.next().and_then(|word| resolver_at(word, interfaces));
                    system.resolvers.extend(named);
                }
                // The last line wins.
                Some("search" | "domain") => system.search = words.map(str::to_owned).collect(),
                Some("options") => {
                    let mut dots =
                        words.filter_map(|word| word.strip_prefix("ndots:")?.parse().ok());
                    system.dots = dots.next_back().unwrap_or(system.dots).min(DOTS_MAX);
                }
                _ => {}
            }
        }
        system.resolvers.truncate(RESOLVERS_MAX);
        if !is_named {
            system.resolvers.push(local);
        }
        system
    }

    /// Every address of a host: the host itself if it is an address, else those of `/etc/hosts`,
    /// else those from a resolver.
    ///
    /// # Errors
    ///
    /// If it has none, or if the known ones may be incomplete.
    pub(crate) fn addresses(&self, host: &str, deadline: Deadline) -> io::Result<BTreeSet<IpAddr>> {
        if let Ok(address) = host.parse() {
            return Ok(BTreeSet::from([address]));
        }
        if host.is_empty() {
            return Err(io::Error::new(ErrorKind::InvalidInput, "there is no name"));
        }
        let listed = self.listed(host);
        if !listed.is_empty() {
            return Ok(listed);
        }
        resolver::of_any(&self.resolvers, deadline, |resolver, deadline| {
            self.searched(host, |name, kind| resolver::ask(name, kind, resolver, deadline))
        })
    }

    /// The addresses in `/etc/hosts`.
    fn listed(&self, host: &str) -> BTreeSet<IpAddr> {
        let host = host.trim_end_matches('.');
        let line = |line: &str| {
            let mut words = line.split('#').next()?.split_whitespace();
            let address = words.next()?.parse::<IpAddr>().ok()?;
            words.any(|word| word.eq_ignore_ascii_case(host)).then_some(address)
        };
        self.hosts.lines().filter_map(line).collect()
    }

    /// The addresses of the first candidate name of the host that has any. If a query for an
    /// earlier candidate fails, the later ones do not count: they may be another service's, such as
    /// those of a wildcard, while the resolver does not reach the domain of the right one.
    fn searched(
        &self,
        host: &str,
        ask: impl Fn(&str, TYPE) -> io::Result<Vec<u8>>,
    ) -> io::Result<BTreeSet<IpAddr>> {
        for name in self.candidates(host) {
            let mut hosts = Hosts::default();
            for kind in [TYPE::A, TYPE::AAAA] {
                match ask(&name, kind) {
                    Ok(reply) => hosts.learn(&reply)?,
                    Err(error) if error.kind() == ErrorKind::NotFound => {}
                    // The addresses of only one kind would be incomplete.
                    Err(error) => return Err(error),
                }
            }
            let found = hosts.addresses(&name);
            if !found.is_empty() {
                return Ok(found);
            }
        }
        Err(io::Error::new(ErrorKind::NotFound, format!("{host} has no address")))
    }

    /// The candidate names of a host, in the order of resolv.conf(5).
    fn candidates(&self, host: &str) -> Vec<String> {
        if let Some(whole) = host.strip_suffix('.') {
            return vec![whole.to_owned()];
        }
        let domains = self.search.iter().map(|domain| domain.trim_matches('.'));
        let searched = domains.filter(|domain| !domain.is_empty());
        let mut names: Vec<_> = searched.map(|domain| format!("{host}.{domain}")).collect();
        let has_dots = host.matches('.').count() >= self.dots;
        names.insert(if has_dots { 0 } else { names.len() }, host.to_owned());
        names
    }
}

/// The resolver at an address of `/etc/resolv.conf`. A link-local one has a scope, `%INTERFACE` or
/// `%NUMBER`; `interfaces` is the text of `/proc/net/if_inet6`.
fn resolver_at(address: &str, interfaces: &str) -> Option<SocketAddr> {
    let Some((address, scope)) = address.split_once('%') else {
        return Some(SocketAddr::new(address.parse().ok()?, 53));
    };
    // An address, the interface's number in hexadecimal, .., the interface.
    let number = |line: &str| {
        let mut words = line.split_whitespace();
        let number = words.nth(1)?;
        if words.last() == Some(scope) { u32::from_str_radix(number, 16).ok() } else { None }
    };
    let number = scope.parse().ok().or_else(|| interfaces.lines().find_map(number))?;
    Some(SocketAddrV6::new(address.parse().ok()?, 53, 0, number).into())
}

/// Every address of `HOST:PORT`.
///
/// # Errors
///
/// As of [`System::addresses`]; and if there is no port.
pub(crate) fn of_endpoint(endpoint: &str, deadline: Deadline) -> io::Result<Vec<SocketAddr>> {
    let parts = endpoint.rsplit_once(':').and_then(|(host, port)| {
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        Some((bare.unwrap_or(host), port.parse().ok()?))
    });
    let (host, port) = parts.ok_or_else(|| {
        io::Error::new(ErrorKind::InvalidInput, format!("{endpoint:?} is not HOST:PORT"))
    })?;
    if let Ok(address) = host.parse() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let found = System::read()?.addresses(host, deadline)?;
    Ok(found.into_iter().map(|address| SocketAddr::new(address, port)).collect())
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Ipv6Addr, TcpListener, UdpSocket};
    use std::thread;
    use std::time::Duration;

    use simple_dns::rdata::{A, AAAA, RData};
    use simple_dns::{CLASS, Name, Packet, PacketFlag, QTYPE, RCODE, ResourceRecord};

    use super::*;

    /// The number of the host's addresses, more than fit in a datagram and than musl's
    /// `getaddrinfo` returns.
    const ADDRESSES: u8 = 60;

    /// The reply to a query, by its name: the addresses of `many` come in another order each time,
    /// `part` has an answer to one of two queries, `cut` never has a whole one, `found` needs a
    /// domain. `down` fails in the domain, and has an address outside of it.
    fn reply(asked: &[u8], is_udp: bool, turn: usize) -> Vec<u8> {
        let asked = Packet::parse(asked).unwrap();
        let (name, kind) = (asked.questions[0].qname.to_string(), asked.questions[0].qtype);
        let mut reply = Packet::new_reply(asked.id());
        reply.questions.clone_from(&asked.questions);
        let record = |rdata| ResourceRecord::new(Name::new(&name).unwrap(), CLASS::IN, 5, rdata);
        let v4 = |last: u8| record(RData::A(A { address: Ipv4Addr::new(10, 0, 0, last).into() }));
        match (&*name, kind) {
            ("cut", _) => reply.set_flags(PacketFlag::TRUNCATION),
            ("many", QTYPE::TYPE(TYPE::A)) if is_udp => reply.set_flags(PacketFlag::TRUNCATION),
            ("many", QTYPE::TYPE(TYPE::A)) => {
                reply.answers = (1..=ADDRESSES).map(v4).collect();
                reply.answers.rotate_left(turn % usize::from(ADDRESSES));
            }
            ("many" | "found.example.com", QTYPE::TYPE(TYPE::AAAA)) => {
                let address = Ipv6Addr::LOCALHOST.into();
                reply.answers.push(record(RData::AAAA(AAAA { address })));
            }
            ("found.example.com", _) => {}
            ("part" | "down", QTYPE::TYPE(TYPE::A)) => reply.answers.push(v4(1)),
            ("down", _) => {}
            ("part" | "down.example.com", _) => *reply.rcode_mut() = RCODE::ServerFailure,
            _ => *reply.rcode_mut() = RCODE::NameError,
        }
        reply.build_bytes_vec().unwrap()
    }

    /// A system that uses a resolver by UDP and TCP, with a search domain.
    fn system() -> System {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = tcp.local_addr().unwrap();
        let udp = UdpSocket::bind(address).unwrap();
        thread::spawn(move || {
            let mut buffer = [0; 512];
            while let Ok((len, client)) = udp.recv_from(&mut buffer) {
                udp.send_to(&reply(&buffer[..len], true, 0), client).unwrap();
            }
        });
        thread::spawn(move || {
            for (turn, mut client) in tcp.incoming().map_while(Result::ok).enumerate() {
                let mut len = [0; 2];
                client.read_exact(&mut len).unwrap();
                let mut asked = vec![0; usize::from(u16::from_be_bytes(len))];
                client.read_exact(&mut asked).unwrap();
                let reply = reply(&asked, false, turn * 7);
                let len = u16::try_from(reply.len()).unwrap().to_be_bytes();
                client.write_all(&[&len[..], &reply].concat()).unwrap();
            }
        });
        let hosts = "10.9.9.9 Listed other # many\n# 10.9.9.8 listed\n::2 listed\n".to_owned();
        System { resolvers: vec![address], ..System::of(hosts, "search example.com.\n", "") }
    }

    fn find(system: &System, host: &str) -> io::Result<BTreeSet<IpAddr>> {
        system.addresses(host, Deadline::after(Duration::from_secs(20)))
    }

    #[test]
    fn every_address_of_a_name_is_found() {
        let system = system();
        let all: BTreeSet<IpAddr> =
            (1..=ADDRESSES).map(|last| Ipv4Addr::new(10, 0, 0, last).into()).collect();
        let all: BTreeSet<IpAddr> = all.into_iter().chain([Ipv6Addr::LOCALHOST.into()]).collect();
        for _ in 0..3 {
            assert_eq!(find(&system, "many.").unwrap(), all);
            assert_eq!(find(&system, "many").unwrap(), all);
        }
    }

    #[test]
    fn an_incomplete_address_list_is_an_error() {
        let system = system();
        for (host, why) in [
            ("part", "ServerFailure"),
            ("cut", "longer than"),
            ("none", "none has no address"),
            ("down", "down.example.com: "),
        ] {
            let error = find(&system, host).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn names_resolve_by_hosts_file_and_search_domains() {
        let system = system();
        let found = |host| find(&system, host).unwrap().into_iter().collect::<Vec<_>>();
        let [v4, v6] = ["10.9.9.9", "::2"].map(|address| address.parse::<IpAddr>().unwrap());
        assert_eq!(found("LISTED"), [v4, v6]);
        assert_eq!(found("other"), [v4]);
        assert_eq!(found("::2"), [v6]);
        // It has only an IPv6 address, in the search domain.
        assert_eq!(found("found"), [IpAddr::from(Ipv6Addr::LOCALHOST)]);
        assert_eq!(found("down."), [IpAddr::from([10, 0, 0, 1])]);
    }

    #[test]
    fn resolv_conf_is_parsed() {
        let text = "# x\nnameserver 10.0.0.1 \nnameserver bad\n nameserver ::1\nsearch a b.\n\
                    options edns0 ndots:2\nnameserver 10.0.0.2\nnameserver 10.0.0.3\n";
        let system = System::of(String::new(), text, "");
        let resolvers: Vec<_> = system.resolvers.iter().map(ToString::to_string).collect();
        assert_eq!(resolvers, ["10.0.0.1:53", "[::1]:53", "10.0.0.2:53"]);
        assert_eq!(system.candidates("x.y"), ["x.y.a", "x.y.b", "x.y"]);
        assert_eq!(system.candidates("x.y.z"), ["x.y.z", "x.y.z.a", "x.y.z.b"]);
        assert_eq!(system.candidates("x."), ["x"]);
        let empty = System::of(String::new(), "", "");
        assert_eq!(empty.resolvers, ["127.0.0.1:53".parse().unwrap()]);
        assert_eq!(empty.candidates("x"), ["x"]);
    }
    #[test]
    fn a_resolver_may_have_a_scope() {
        let interfaces = "\
            00000000000000000000000000000001 01 80 10 80       lo\n\
            fe80000000000000000000fffe000002 1f 40 20 80     eth0\n";
        let resolvers = |text: &str| {
            let system = System::of(String::new(), text, interfaces);
            system.resolvers.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(resolvers("nameserver fe80::53%eth0\n"), ["[fe80::53%31]:53"]);
        assert_eq!(resolvers("nameserver fe80::53%7\n"), ["[fe80::53%7]:53"]);
        // This host's resolver is not what the file names.
        assert!(resolvers("nameserver fe80::53%eth\n").is_empty());
    }
}
