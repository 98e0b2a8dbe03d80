//! Known faults of a running server, by its reported version.
//!
//! The table is from public advisories and release notes of memcached: number, the first version
//! without the fault, and the fault.

use std::io::{self, Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::Duration;

use crate::finding::{Finding, Level};

/// The time limit for a server's answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// The longest accepted reply.
const REPLY_BYTES_MAX: u64 = 4096;

/// Faults of memcached: the first version without it, its name, its effect.
const MEMCACHED: [([u32; 3], &str, &str); 12] = [
    ([1, 4, 17], "CVE-2013-7239", "a login that failed is taken for one"),
    ([1, 4, 33], "CVE-2016-8704 to 8706", "a client writes beyond a buffer"),
    ([1, 4, 39], "CVE-2017-9951", "a client ends the server"),
    ([1, 5, 6], "CVE-2018-1000115", "UDP is on by default and multiplies forged requests"),
    ([1, 5, 14], "CVE-2019-11596", "a client ends the server"),
    ([1, 6, 2], "CVE-2020-10931", "a client writes beyond a buffer"),
    ([1, 6, 8], "CVE-2022-48571", "a UDP datagram ends the server"),
    ([1, 6, 22], "CVE-2023-46852 and 46853", "a client of the proxy writes beyond a buffer"),
    ([1, 6, 42], "CVE-2026-47783", "the time of a refused login tells about the password"),
    ([1, 6, 42], "login by text", "an announced length ends the server before the login"),
    ([1, 6, 43], "reference count", "gets that are never read overflow an item's count"),
    ([1, 6, 45], "meta opaque", "a long opaque loses stored items or ends the server"),
];

/// Queries a server's version.
///
/// # Errors
///
/// Returns errors of the connection, or of an invalid reply.
pub fn ask(address: &str) -> io::Result<String> {
    let reply = reply(address).map_err(|error| match error.kind() {
        // A read that ends at its time limit fails with EAGAIN, which reads like a local shortage.
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => io::Error::new(
            io::ErrorKind::TimedOut,
            format!("no answer within {} s", PATIENCE.as_secs()),
        ),
        _ => error,
    })?;
    match reply.strip_prefix("VERSION ") {
        // It is shown on terminals.
        Some(version) => Ok(version.escape_debug().to_string()),
        None => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("its reply to `version` is {reply:?}; it may want a login or TLS"),
        )),
    }
}

/// The line that a server replies to `version`.
fn reply(address: &str) -> io::Result<String> {
    let target = address
        .to_socket_addrs()?
        .next()
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the name has no address"))?;
    let mut stream = TcpStream::connect_timeout(&target, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(b"version\r\n")?;
    let mut reply = Vec::new();
    let mut byte = [0];
    let mut limited = stream.take(REPLY_BYTES_MAX);
    while limited.read(&mut byte)? == 1 && byte[0] != b'\n' {
        reply.push(byte[0]);
    }
    Ok(String::from_utf8_lossy(&reply).trim().to_owned())
}

/// The known faults of a server with this version.
#[must_use]
pub fn known(address: &str, version: &str) -> Vec<Finding> {
    // holdall reports its name; mcrouter answers with a name, too.
    let Some(numbers) = numbers(version) else { return Vec::new() };
    let faults: Vec<String> = MEMCACHED
        .iter()
        .filter(|(fixed, ..)| numbers < *fixed)
        .map(|(_, name, what)| format!("{name} ({what})"))
        .collect();
    if faults.is_empty() {
        return Vec::new();
    }
    vec![Finding::by_hand(
        "version",
        Level::Warning,
        format!("{address} is memcached {version}, with {}", faults.join("; ")),
        "these faults are public; distributions mend some of them under the same number",
        "install memcached 1.6.45 or later, or holdall",
    )]
}

/// The numbers of a version such as `1.6.18` or `1.6.18_2`.
fn numbers(version: &str) -> Option<[u32; 3]> {
    let mut parts = version.splitn(3, '.');
    let mut next = || {
        let part = parts.next()?;
        let digits = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
        part[..digits].parse::<u32>().ok()
    };
    Some([next()?, next()?, next()?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_server_has_no_answer() {
        // The backlog accepts the connection, and nothing reads from it.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let error = ask(&listener.local_addr().unwrap().to_string()).unwrap_err();
        assert_eq!(error.to_string(), "no answer within 2 s");
    }

    #[test]
    fn only_old_versions_have_known_vulnerabilities() {
        let faults = |version: &str| known("h:1", version).first().map(|f| f.found.clone());
        let old = faults("1.4.15").unwrap_or_default();
        assert!(old.contains("CVE-2013-7239") && old.contains("CVE-2016-8704"), "{old}");
        let debian = faults("1.6.18").unwrap_or_default();
        assert!(debian.contains("CVE-2023-46852") && !debian.contains("CVE-2022"), "{debian}");
        for sound in ["1.6.45", "1.6.46", "1.7.0", "2.0.0", "37.0.0 mcrouter", "", "x", "1", "1.6"]
        {
            assert_eq!(faults(sound), None, "{sound}");
        }
    }
}
