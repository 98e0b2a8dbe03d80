//! One server named by a source.

use std::net::SocketAddr;

/// A server: its address, and the name in its certificate, if any. No part contains a character
/// that JSON would escape, or a space.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Member {
    pub(crate) host: String,
    pub(crate) port: u16,
    /// Its name, if `host` is its address.
    pub name: Option<String>,
}

impl From<SocketAddr> for Member {
    fn from(address: SocketAddr) -> Self {
        Self { host: address.ip().to_string(), port: address.port(), name: None }
    }
}

impl Member {
    /// A member at a host (a name or an address, IPv6 without brackets); `None` if the host is
    /// invalid.
    pub(crate) fn at(host: &str, port: u16) -> Option<Self> {
        Self::is_plain(host).then(|| Self { host: host.to_owned(), port, name: None })
    }

    /// `host:port` or `[v6]:port`.
    #[must_use]
    pub fn parse(server: &str) -> Option<Self> {
        let (host, port) = server.rsplit_once(':')?;
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        Self::at(host, port.parse().ok()?)
    }

    /// This member with the name that its certificate is for.
    #[must_use]
    pub fn named(self, name: Option<&str>) -> Self {
        let name = name.filter(|name| Self::is_plain(name)).map(str::to_owned);
        Self { name, ..self }
    }

    /// Returns true if it can be a part of a member.
    pub(crate) fn is_plain(host: &str) -> bool {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || ".-_:".contains(c);
        !host.is_empty() && host.chars().all(is_plain)
    }

    /// Its address or name, IPv6 without brackets.
    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    /// The form in configurations.
    #[must_use]
    pub fn server(&self) -> String {
        let Self { host, port, .. } = self;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }

    /// The name and port, by which weights and hashes know it, if it has a name.
    pub(crate) fn tag(&self) -> String {
        self.name.as_ref().map_or_else(|| self.server(), |name| format!("{name}:{}", self.port))
    }

    /// A line of a file.
    pub(crate) fn line(&self) -> String {
        let name = self.name.as_ref().map_or_else(String::new, |name| format!(" {name}"));
        format!("{}{name}", self.server())
    }

    pub(crate) fn of_line(line: &str) -> Option<Self> {
        match line.split_once(' ') {
            Some((server, name)) => Some(Self::parse(server)?.named(Some(name))),
            None => Self::parse(line),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_is_written_and_read() {
        for line in ["10.0.0.1:1", "host.example:65535 name.example", "[2001:db8::1]:7"] {
            assert_eq!(Member::of_line(line).unwrap().line(), line);
        }
        for wrong in ["", "host", "host:", ":1", "host:70000", "a b:1", "a\"b:1"] {
            assert_eq!(Member::parse(wrong), None, "{wrong}");
        }
    }
}
