//! Splits `HOST:PORT` as operators write it, adds a default port, and hides the login of a URL.
//!
//! A host may be an IPv6 address with or without brackets, whose colons do not start a port.
#![forbid(unsafe_code)]

mod login;

use std::net::Ipv6Addr;

pub use login::without_login;

/// The host without brackets, and the port if the text has one.
///
/// Without brackets, a text that is an IPv6 address as a whole has no port.
#[must_use]
pub fn split(text: &str) -> (&str, Option<&str>) {
    if let Some((host, rest)) = text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        if rest.is_empty() {
            return (host, None);
        }
        if let Some(port) = rest.strip_prefix(':') {
            return (host, Some(port));
        }
    }
    match text.rsplit_once(':') {
        Some((host, port)) if !is_ipv6(text) => (host, Some(port)),
        _ => (text, None),
    }
}

/// True for an IPv6 address, also for one with a zone (`fe80::1%eth0`).
fn is_ipv6(text: &str) -> bool {
    let (address, zone) = text.split_once('%').unwrap_or((text, ""));
    address.parse::<Ipv6Addr>().is_ok() && !zone.contains(':')
}

/// The text, with this port if it has none; an IPv6 address gets brackets.
#[must_use]
pub fn with_port(text: &str, port: u16) -> String {
    match split(text) {
        // Brackets make an IPv6 address with a port unambiguous.
        (host, Some(port)) if is_ipv6(host) => format!("[{host}]:{port}"),
        (_, Some(_)) => text.to_owned(),
        (host, None) if host.contains(':') => format!("[{host}]:{port}"),
        (host, None) => format!("{host}:{port}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_added_only_to_a_host_without_one() {
        for (text, host, port, with_default) in [
            ("a", "a", None, "a:11211"),
            ("a:5000", "a", Some("5000"), "a:5000"),
            ("10.0.0.1:7", "10.0.0.1", Some("7"), "10.0.0.1:7"),
            ("::1", "::1", None, "[::1]:11211"),
            ("[::1]", "::1", None, "[::1]:11211"),
            ("[::1]:7", "::1", Some("7"), "[::1]:7"),
            ("2001:db8::1", "2001:db8::1", None, "[2001:db8::1]:11211"),
            ("fe80::1%eth0", "fe80::1%eth0", None, "[fe80::1%eth0]:11211"),
            ("[fe80::1%2]:7", "fe80::1%2", Some("7"), "[fe80::1%2]:7"),
            // Not an address as a whole: a group has at most four digits.
            ("::1:11211", "::1", Some("11211"), "[::1]:11211"),
        ] {
            assert_eq!(split(text), (host, port), "{text}");
            assert_eq!(with_port(text, 11211), with_default, "{text}");
        }
    }

    /// The caller that connects reports it with the reason.
    #[test]
    fn a_wrong_port_is_not_taken_for_a_part_of_the_host() {
        for (text, host, port) in
            [("a:x", "a", "x"), ("a:", "a", ""), ("a:70000", "a", "70000"), (":1", "", "1")]
        {
            assert_eq!(split(text), (host, Some(port)));
            assert_eq!(with_port(text, 11211), text);
        }
        assert_eq!(split("[::1]x"), ("[:", Some("1]x")));
    }
}
