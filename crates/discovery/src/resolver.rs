//! Queries to DNS resolvers, each of which is answered completely or not at all.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use simple_dns::{
    CLASS, Name, Packet, PacketFlag, QCLASS, QTYPE, Question, RCODE, SimpleDnsError, TYPE,
};

use crate::deadline::{Deadline, Timed};

/// The wait for one datagram before the query is sent again.
const RESEND_AFTER: Duration = Duration::from_millis(500);

/// Queries the resolvers in turn until one answers, as resolv.conf(5) describes: that a name does
/// not exist, or has no address, is an answer. Another resolver may have another view of it, and
/// its servers would take the place of the known ones. Each has an equal part of the remaining
/// time, so that an unavailable one does not use up the others' time.
///
/// # Errors
///
/// If none answers, the first one's failure, which may be the cause of the others.
pub(crate) fn of_any<T>(
    resolvers: &[SocketAddr],
    deadline: Deadline,
    ask: impl Fn(SocketAddr, Deadline) -> io::Result<T>,
) -> io::Result<T> {
    let mut failed: Option<io::Error> = None;
    for (place, resolver) in resolvers.iter().enumerate() {
        let error = match ask(*resolver, deadline.of_first(resolvers.len() - place)) {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        match &failed {
            _ if error.kind() != ErrorKind::NotFound => failed = failed.or(Some(error)),
            None => return Err(error),
            Some(first) => return Err(io::Error::other(format!("{first}; {error}"))),
        }
    }
    Err(failed.unwrap_or_else(|| io::Error::other("/etc/resolv.conf names no usable resolver")))
}

/// Sends one query by UDP, and by TCP if the reply is too long for that.
///
/// # Errors
///
/// [`ErrorKind::NotFound`] if the name does not exist; or if there is no complete reply in time.
pub(crate) fn ask(
    name: &str,
    kind: TYPE,
    resolver: SocketAddr,
    deadline: Deadline,
) -> io::Result<Vec<u8>> {
    let of_name = |error: io::Error| {
        io::Error::new(error.kind(), format!("{name}: the resolver {resolver}: {error}"))
    };
    // The kernel chose it for the socket, like the port: an attacker must guess both.
    let id = request_id();
    let asked = question(name, kind, id).map_err(|error| {
        io::Error::new(ErrorKind::InvalidInput, format!("{name:?} is no name: {error:?}"))
    })?;
    let by_udp = ask_by_udp(&asked, resolver, deadline).map_err(of_name)?;
    match by_udp {
        Reply::Whole(reply) => Ok(reply),
        Reply::Cut => match ask_by_tcp(&asked, resolver, deadline).map_err(of_name)? {
            Reply::Whole(reply) => Ok(reply),
            Reply::Cut => Err(of_name(io::Error::other("its reply is longer than DNS can send"))),
        },
    }
}

fn question(name: &str, kind: TYPE, id: u16) -> Result<Vec<u8>, SimpleDnsError> {
    let mut packet = Packet::new_query(id);
    packet.set_flags(PacketFlag::RECURSION_DESIRED);
    let (kind, class) = (QTYPE::TYPE(kind), QCLASS::CLASS(CLASS::IN));
    packet.questions.push(Question::new(Name::new(name)?, kind, class, false));
    packet.build_bytes_vec()
}

/// A reply to the query.
enum Reply {
    Whole(Vec<u8>),
    /// It is incomplete, because the rest does not fit.
    Cut,
}

/// Parses the bytes; `None` if they are not a reply to this query.
fn reply(bytes: &[u8], asked: &[u8]) -> Option<io::Result<Reply>> {
    let packet = Packet::parse(bytes).ok().filter(|packet| is_reply(packet, asked))?;
    Some(match packet.rcode() {
        _ if packet.has_flags(PacketFlag::TRUNCATION) => Ok(Reply::Cut),
        RCODE::NoError => Ok(Reply::Whole(bytes.to_vec())),
        RCODE::NameError => Err(io::Error::new(ErrorKind::NotFound, "there is no such name")),
        code => Err(io::Error::other(format!("it answers {code:?}"))),
    })
}

/// Returns true if the packet is a reply with the number and the question of this query (RFC 5452,
/// section 9.1). A resolver that cannot read a query may repeat its number alone.
fn is_reply(packet: &Packet<'_>, asked: &[u8]) -> bool {
    let Ok(asked) = Packet::parse(asked) else { return false };
    let is_unread =
        packet.questions.is_empty() && !matches!(packet.rcode(), RCODE::NoError | RCODE::NameError);
    let is_same = packet.questions.len() == asked.questions.len()
        && packet.questions.iter().zip(&asked.questions).all(|(one, other)| {
            let (name, wanted) = (one.qname.to_string(), other.qname.to_string());
            (one.qtype, one.qclass) == (other.qtype, other.qclass)
                && name.eq_ignore_ascii_case(&wanted)
        });
    packet.has_flags(PacketFlag::RESPONSE) && packet.id() == asked.id() && (is_same || is_unread)
}

fn ask_by_udp(asked: &[u8], resolver: SocketAddr, deadline: Deadline) -> io::Result<Reply> {
    let any: SocketAddr =
        if resolver.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0_u16; 8], 0).into() };
    let socket = UdpSocket::bind(any)?;
    socket.connect(resolver)?;
    let mut buffer = vec![0; 4096];
    loop {
        socket.send(asked)?;
        let again = Deadline::after(RESEND_AFTER.min(deadline.left()?));
        while let Ok(left) = again.left() {
            socket.set_read_timeout(Some(left))?;
            let len = match socket.recv(&mut buffer) {
                Ok(len) => len,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                // A signal's handler ran; with a time-out, the call is not resumed automatically.
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            if let Some(reply) = reply(buffer.get(..len).unwrap_or_default(), asked) {
                return reply;
            }
        }
    }
}

fn ask_by_tcp(asked: &[u8], resolver: SocketAddr, deadline: Deadline) -> io::Result<Reply> {
    let mut stream = Timed::connect(&resolver, deadline)?;
    let len = u16::try_from(asked.len()).map_err(io::Error::other)?;
    stream.write_all(&[&len.to_be_bytes()[..], asked].concat())?;
    let mut len = [0; 2];
    stream.read_exact(&mut len)?;
    let mut bytes = vec![0; usize::from(u16::from_be_bytes(len))];
    stream.read_exact(&mut bytes)?;
    reply(&bytes, asked).unwrap_or_else(|| Err(io::Error::other("it answers another question")))
}

/// An unpredictable number.
fn request_id() -> u16 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    (RandomState::new().build_hasher().finish() & 0xffff) as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PATIENCE;

    /// A forged reply must guess more than the number, and an echo of the query answers nothing.
    #[test]
    fn only_a_reply_to_the_same_question_counts() {
        let asked = question("a.test", TYPE::A, 7).unwrap();
        let counts = |change: &dyn Fn(&mut Packet<'_>)| {
            let mut packet = Packet::parse(&asked).unwrap();
            packet.set_flags(PacketFlag::RESPONSE);
            change(&mut packet);
            reply(&packet.build_bytes_vec().unwrap(), &asked).is_some()
        };
        assert!(counts(&|_| ()));
        assert!(counts(&|packet| packet.questions[0].qname = Name::new("A.Test").unwrap()));
        assert!(!counts(&|packet| packet.remove_flags(PacketFlag::RESPONSE)));
        assert!(!counts(&|packet| packet.questions[0].qname = Name::new("z.test").unwrap()));
        assert!(!counts(&|packet| packet.questions[0].qtype = QTYPE::TYPE(TYPE::AAAA)));
        assert!(!counts(&|packet| packet.questions[0].qclass = QCLASS::CLASS(CLASS::CH)));
        assert!(!counts(&|packet| packet.questions.push(packet.questions[0].clone())));
        for (code, wanted) in
            [(RCODE::NoError, false), (RCODE::NameError, false), (RCODE::FormatError, true)]
        {
            assert_eq!(
                counts(&|packet| {
                    packet.questions.clear();
                    *packet.rcode_mut() = code;
                }),
                wanted,
                "{code:?}"
            );
        }
        let other = question("a.test", TYPE::A, 8).unwrap();
        let mut packet = Packet::parse(&other).unwrap();
        packet.set_flags(PacketFlag::RESPONSE);
        assert!(reply(&packet.build_bytes_vec().unwrap(), &asked).is_none());
    }

    /// The outcome with resolvers on ports 1, 2, .., each with its port or the kind of its failure.
    fn found(resolvers: &[Result<u16, ErrorKind>]) -> Result<u16, String> {
        let ports = 1..=u16::try_from(resolvers.len()).unwrap();
        let addresses: Vec<_> = ports.map(|port| ([127, 0, 0, 1], port).into()).collect();
        let ask = |address: SocketAddr, _| {
            let port = address.port();
            resolvers[usize::from(port) - 1]
                .map_err(|kind| io::Error::new(kind, format!("{port} fails")))
        };
        of_any(&addresses, Deadline::after(PATIENCE), ask).map_err(|error| error.to_string())
    }

    #[test]
    fn the_next_resolver_is_asked_only_after_a_failure() {
        let (none, fails) = (Err(ErrorKind::NotFound), Err(ErrorKind::Other));
        assert_eq!(found(&[none, Ok(2)]), Err("1 fails".to_owned()));
        assert_eq!(found(&[fails, Ok(2), Ok(3)]), Ok(2));
        assert_eq!(found(&[fails, none, Ok(3)]), Err("1 fails; 2 fails".to_owned()));
        assert_eq!(found(&[fails, fails]), Err("1 fails".to_owned()));
        assert_eq!(found(&[]), Err("/etc/resolv.conf names no usable resolver".to_owned()));
    }
}
