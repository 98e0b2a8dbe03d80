//! The versions that the measured servers report.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use generator::spec::{Protocol, Spec, Target};

/// The longest wait for a server's answer: a version is not worth more.
const WAIT: Duration = Duration::from_secs(1);

/// Maximum number of bytes read from an answer.
const ANSWER_MAX: usize = 4096;

/// Every server's address and version. A server that does not report it, or only after a handshake
/// or a login, is left out.
#[must_use]
pub fn of_all(spec: &Spec) -> Vec<(String, String)> {
    let needs_more = spec.tls.is_some() || spec.login.is_some() || spec.credentials.is_some();
    if needs_more {
        return Vec::new();
    }
    let told = |target: &Target| Some((target.to_string(), of(target, spec.protocol).ok()??));
    spec.targets.iter().filter_map(told).collect()
}

fn of(target: &Target, protocol: Protocol) -> io::Result<Option<String>> {
    match target {
        Target::Tcp(_, address) => {
            let stream = TcpStream::connect_timeout(address, WAIT)?;
            stream.set_read_timeout(Some(WAIT))?;
            ask(stream, protocol)
        }
        Target::Unix(path) => {
            let stream = UnixStream::connect(path)?;
            stream.set_read_timeout(Some(WAIT))?;
            ask(stream, protocol)
        }
        Target::Udp(..) => Ok(None),
    }
}

fn ask(mut stream: impl Read + Write, protocol: Protocol) -> io::Result<Option<String>> {
    stream.write_all(request(protocol))?;
    let (mut answer, mut part) = (Vec::new(), [0; 512]);
    loop {
        if let Some(version) = parse(&answer, protocol) {
            return Ok(Some(version));
        }
        let read = stream.read(&mut part)?;
        if read == 0 || answer.len() > ANSWER_MAX {
            return Ok(None);
        }
        answer.extend_from_slice(&part[..read]);
    }
}

fn request(protocol: Protocol) -> &'static [u8] {
    match protocol {
        Protocol::Text | Protocol::Meta => b"version\r\n",
        // A request (0x80) for the version (0x0b), with an empty body.
        Protocol::Binary => {
            &[0x80, 0x0b, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
        }
        Protocol::Resp => b"INFO server\r\n",
    }
}

/// The version in an answer; `None` while it is incomplete.
fn parse(answer: &[u8], protocol: Protocol) -> Option<String> {
    let of_bytes = |bytes: &[u8]| {
        let text: String = String::from_utf8_lossy(bytes).chars().take(80).collect();
        text.trim().to_owned()
    };
    if protocol == Protocol::Binary {
        let header = answer.get(..24)?;
        let length = u32::from_be_bytes(header.get(8..12)?.try_into().ok()?);
        return Some(of_bytes(answer.get(24..24 + usize::try_from(length).ok()?)?));
    }
    let first = answer.iter().position(|byte| *byte == b'\n')?;
    let (head, rest) = answer.split_at(first + 1);
    if protocol == Protocol::Resp {
        let length = std::str::from_utf8(head.strip_prefix(b"$")?).ok()?.trim().parse().ok()?;
        let whole: &[u8] = rest.get(..length)?;
        let lines = || whole.split(|byte| *byte == b'\n');
        let told = |key: &str| {
            let value = lines().find_map(|line| line.strip_prefix(key.as_bytes()))?;
            Some(of_bytes(value))
        };
        let valkey = told("valkey_version:").map(|version| format!("Valkey {version}"));
        return valkey.or_else(|| Some(format!("Redis {}", told("redis_version:")?)));
    }
    Some(of_bytes(head.strip_prefix(b"VERSION ")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_found_in_every_protocols_answer() {
        let binary =
            [&[0x81, 0x0b, 0, 0, 0, 0, 0, 0, 0, 0, 0, 6][..], &[0; 12], b"1.6.18"].concat();
        let bulk = |text: &str| format!("${}\r\n{text}\r\n", text.len()).into_bytes();
        let info = bulk("# Server\r\nredis_version:7.0.15\r\nredis_mode:standalone\r\n");
        for (protocol, answer, want) in [
            (Protocol::Text, &b"VERSION 1.6.18\r\n"[..], "1.6.18"),
            (Protocol::Binary, &binary, "1.6.18"),
            (Protocol::Resp, &info, "Redis 7.0.15"),
        ] {
            assert_eq!(parse(answer, protocol).as_deref(), Some(want), "{protocol}");
            for end in 0..answer.len() - 2 {
                assert_eq!(parse(&answer[..end], protocol), None, "{protocol}, {end}");
            }
        }
        let valkey = bulk("redis_version:7.2.4\r\nvalkey_version:8.0.1\r\nx:1\r\n");
        assert_eq!(parse(&valkey, Protocol::Resp).as_deref(), Some("Valkey 8.0.1"));
        assert_eq!(parse(b"ERROR\r\n", Protocol::Text), None);
    }
}
