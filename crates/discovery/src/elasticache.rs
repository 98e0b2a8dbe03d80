//! `config get cluster`, as answered by Amazon ElastiCache and Google's Memorystore.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::SocketAddr;

use crate::deadline::{Deadline, Timed};
use crate::{ANSWER_BYTES_MAX, Access, Answer, Member, names};

/// Queries the endpoint, which returns a version, then `host|ip|port` for each server.
pub(crate) fn servers(endpoint: &str, deadline: Deadline) -> io::Result<Answer> {
    of_any(&names::of_endpoint(endpoint, deadline)?, deadline, ask)
}

/// The same by TLS, which ElastiCache calls encryption in transit.
pub(crate) fn servers_by_tls(
    endpoint: &str,
    access: &Access,
    deadline: Deadline,
) -> io::Result<Answer> {
    let (host, _) = hostport::split(endpoint);
    let addresses = names::of_endpoint(endpoint, deadline)?;
    of_any(&addresses, deadline, |stream| ask(access.encrypted(stream, host)?))
}

/// The first answer of the endpoint's addresses. Each has an equal part of the remaining time for
/// all of it: the kernel of a node that hangs still accepts connections.
fn of_any(
    addresses: &[SocketAddr],
    deadline: Deadline,
    ask: impl Fn(Timed) -> io::Result<Answer>,
) -> io::Result<Answer> {
    let mut failed = io::Error::other("the name has no address");
    for (place, address) in addresses.iter().enumerate() {
        let own = deadline.of_first(addresses.len() - place);
        match Timed::connect(address, own).and_then(&ask) {
            Ok(answer) => return Ok(answer),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

fn ask(mut stream: impl Read + Write) -> io::Result<Answer> {
    stream.write_all(b"config get cluster\r\n")?;
    stream.flush()?;
    read(stream)
}

/// Reads the answer.
pub(crate) fn read(answer: impl Read) -> io::Result<Answer> {
    let mut reader = BufReader::new(answer.take(ANSWER_BYTES_MAX));
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let bytes = line.trim_end().strip_prefix("CONFIG cluster ").and_then(|rest| {
        let (_flags, bytes) = rest.split_once(' ')?;
        bytes.parse::<u64>().ok().filter(|bytes| *bytes <= ANSWER_BYTES_MAX)
    });
    let Some(bytes) = bytes else {
        return Err(io::Error::other(format!("it answers {:?}", line.trim_end())));
    };
    let mut text = String::new();
    reader.take(bytes).read_to_string(&mut text)?;
    if text.len() as u64 != bytes {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    parse(&text).ok_or_else(|| io::Error::other(format!("it names {text:?}")))
}

fn parse(text: &str) -> Option<Answer> {
    let (version, servers) = text.split_once('\n')?;
    let version = version.trim().parse().ok()?;
    let member = |word: &str| {
        let mut parts = word.split('|');
        let (host, ip, port) = (parts.next()?, parts.next()?, parts.next()?);
        let port: u16 = port.parse().ok()?;
        let address = if ip.is_empty() { host } else { ip };
        if parts.next().is_some() || !Member::is_plain(host) && !host.is_empty() {
            return None;
        }
        Some(Member {
            name: (!host.is_empty()).then(|| host.to_owned()),
            ..Member::at(address, port)?
        })
    };
    let members = servers.split_whitespace().map(member).collect::<Option<_>>()?;
    Some(Answer { version, members })
}

/// The answer to `config get cluster`.
#[must_use]
pub fn answer(version: u64, members: &[Member]) -> Vec<u8> {
    let one = |member: &Member| {
        let ip = member.host();
        format!("{}|{ip}|{}", member.name.as_deref().unwrap_or(ip), member.port)
    };
    let list: Vec<String> = members.iter().map(one).collect();
    let text = format!("{version}\n{}\n", list.join(" "));
    format!("CONFIG cluster 0 {}\r\n{text}\r\nEND\r\n", text.len()).into_bytes()
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::net::TcpListener;
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::PATIENCE;

    /// Each single read of it succeeds.
    #[test]
    fn a_slowly_dripping_answer_times_out() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = listener.local_addr().unwrap().to_string();
        thread::spawn(move || {
            let mut client = listener.accept().unwrap().0;
            while client.write_all(b"C").is_ok() {
                thread::sleep(Duration::from_millis(10));
            }
        });
        let error = servers(&endpoint, Deadline::after(Duration::from_millis(200))).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    }

    /// The first node accepts the connection and is silent, the second one does not know the
    /// command.
    #[test]
    fn the_next_address_is_asked_after_one_without_an_answer() {
        let nodes = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let addresses = nodes.each_ref().map(|node| node.local_addr().unwrap());
        let [_silent, wrong, right] = nodes;
        let members = vec![Member::parse("10.0.0.1:7").unwrap().named(Some("a"))];
        let text = answer(4, &members);
        for (node, answer) in [(wrong, b"ERROR\r\n".to_vec()), (right, text)] {
            thread::spawn(move || {
                let mut client = node.accept().unwrap().0;
                client.write_all(&answer).unwrap();
                // It closes after the client, since a reset could overtake the answer.
                drop(client.read_to_end(&mut Vec::new()));
            });
        }
        let found = of_any(&addresses, Deadline::after(PATIENCE), ask);
        assert_eq!(found.unwrap(), Answer { version: 4, members });
    }

    #[test]
    fn members_are_parsed_in_amazons_format() {
        let text = "12\na.example.com|10.0.0.1|11211 b.example.com||11212 c|2001:db8::1|11213\n";
        let Answer { version, members: found } = parse(text).unwrap();
        let places: Vec<String> = found.iter().map(Member::server).collect();
        assert_eq!(places, ["10.0.0.1:11211", "b.example.com:11212", "[2001:db8::1]:11213"]);
        assert_eq!(found[0].name.as_deref(), Some("a.example.com"));
        assert_eq!(version, 12);
        assert_eq!(parse("1\n\n"), Some(Answer { version: 1, members: Vec::new() }));
        for wrong in ["", "x\na|b|1", "1\na|b", "1\na|b|x", "1\na\"|\"|1", "1\na|b|1|2", "1\n||1"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
        let told = String::from_utf8(answer(12, &found)).unwrap();
        let inner = told.split_once("\r\n").unwrap().1.strip_suffix("\r\nEND\r\n").unwrap();
        assert_eq!(parse(inner), Some(Answer { version: 12, members: found }));
    }
}
