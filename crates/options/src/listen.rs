//! The `-l` list: the addresses to listen on.
//!
//! An element is `host`, `host:port`, `v6`, `[v6]` or `[v6]:port`; elements are separated by `,` or
//! `;`. A prefix determines a TCP listener's use of TLS: `notls:` none, `btls:` without requests
//! for clients' certificates, `mtls:` with them, `tls:` as without a prefix. Source: memcached
//! `server_sockets()`, whose other prefixes (`proto[..]:`, `tag[..]:`) are refused by name.

use net::{TlsMode, Verify};

use super::Options;
use super::bad_value::BadValue;

/// A host and port to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// A host name or an address without brackets. `None` is every interface, IPv4 and IPv6.
    pub host: Option<String>,
    /// 0 lets the system choose.
    pub port: u16,
    /// The use of TLS there, over TCP.
    pub tls: TlsMode,
}

impl Options {
    /// A warning about UDP with these options, if necessary.
    ///
    /// # Errors
    ///
    /// Returns the reason why UDP cannot be served with them: it would answer clients that the
    /// other listeners refuse.
    pub fn udp_warning(&self) -> Result<Option<&'static str>, &'static str> {
        if self.udp.is_empty() {
            return Ok(None);
        }
        if self.auth.users.is_some() {
            return Err("there is no login over UDP");
        }
        let Some(tls) = &self.tls else { return Ok(None) };
        let is_mutual = self.tcp.iter().any(|endpoint| endpoint.tls == TlsMode::Mutual);
        if is_mutual || tls.verify == Verify::Require {
            return Err(
                "UDP has no certificates of clients, which ssl_verify_mode or mtls: requires",
            );
        }
        Ok(Some("what goes by UDP is not encrypted, in spite of -Z"))
    }
}

/// One element of the `-l` list, before `-p` and `-U` give it a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Interface {
    /// As in [`Endpoint`].
    pub host: Option<String>,
    /// The element's own port, which overrides `-p` and `-U`.
    pub port: Option<u16>,
    /// The use of TLS that its prefix names.
    pub tls: Option<TlsMode>,
}

impl Interface {
    /// The element as an endpoint, with the defaults for missing parts.
    #[must_use]
    pub(crate) fn endpoint(&self, default_port: u16, default_tls: TlsMode) -> Endpoint {
        Endpoint {
            host: self.host.clone(),
            port: self.port.unwrap_or(default_port),
            tls: self.tls.unwrap_or(default_tls),
        }
    }
}

/// Reads one `-l` argument. Like memcached, it skips empty elements.
///
/// # Errors
///
/// Fails without an element, for a bad port, or for an unsupported prefix.
pub(crate) fn interfaces(list: &str) -> Result<Vec<Interface>, BadValue> {
    let elements = list.split([',', ';']).map(str::trim).filter(|element| !element.is_empty());
    let found = elements.map(interface).collect::<Result<Vec<_>, _>>()?;
    if found.is_empty() { Err(BadValue::NoHost(list.to_owned())) } else { Ok(found) }
}

fn interface(element: &str) -> Result<Interface, BadValue> {
    let (element, tls) = without_prefix(element)?;
    let (host, port) = split_port(element)?;
    if host.is_empty() {
        return Err(BadValue::NoHost(element.to_owned()));
    }
    let host = (host != "*").then(|| host.to_owned());
    Ok(Interface { host, port, tls })
}

/// Removes the prefix, and refuses unknown ones.
fn without_prefix(element: &str) -> Result<(&str, Option<TlsMode>), BadValue> {
    for (prefix, mode) in [
        ("notls:", Some(TlsMode::Plain)),
        ("btls:", Some(TlsMode::ServerOnly)),
        ("mtls:", Some(TlsMode::Mutual)),
        ("tls:", Some(TlsMode::Standard)),
    ] {
        if let Some(rest) = element.strip_prefix(prefix) {
            return Ok((rest, mode));
        }
    }
    for prefix in ["proto[", "proto_", "tag[", "tag_"] {
        if element.starts_with(prefix) {
            return Err(BadValue::Prefix(prefix));
        }
    }
    Ok((element, None))
}

/// Splits the port off. An unbracketed text with two or more colons is an IPv6 address without one.
fn split_port(element: &str) -> Result<(&str, Option<u16>), BadValue> {
    if let Some(rest) = element.strip_prefix('[') {
        let (host, tail) =
            rest.split_once(']').ok_or_else(|| BadValue::Unclosed(element.to_owned()))?;
        return match tail.strip_prefix(':') {
            Some(port) => Ok((host, Some(port_number(port)?))),
            None if tail.is_empty() => Ok((host, None)),
            None => Err(BadValue::NotAPort(element.to_owned())),
        };
    }
    match element.split_once(':') {
        Some((host, port)) if !port.contains(':') => Ok((host, Some(port_number(port)?))),
        _ => Ok((element, None)),
    }
}

fn port_number(text: &str) -> Result<u16, BadValue> {
    super::number::number(text, 0..=u64::from(u16::MAX))
        .map_err(|reason| BadValue::Port(Box::new(reason)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(host: Option<&str>, port: Option<u16>) -> Interface {
        Interface { host: host.map(str::to_owned), port, tls: None }
    }

    #[test]
    fn every_form_of_an_element() {
        let want = vec![
            one(Some("127.0.0.1"), None),
            one(Some("10.0.0.1"), Some(11212)),
            one(Some("::1"), None),
            one(Some("::1"), None),
            one(Some("fe80::1"), Some(5)),
            one(Some("cache.example"), Some(0)),
            one(None, Some(7)),
        ];
        let list = "127.0.0.1,10.0.0.1:11212;::1,[::1],[fe80::1]:5;cache.example:0, *:7";
        assert_eq!(interfaces(list), Ok(want));
    }

    /// Templates that join a list leave some.
    #[test]
    fn empty_elements_are_skipped() {
        let (a, b) = (one(Some("a"), None), one(Some("b"), Some(1)));
        for list in ["a,,b:1", ",a,b:1", "a;b:1,", " , a,; ,b:1; "] {
            assert_eq!(interfaces(list), Ok(vec![a.clone(), b.clone()]), "{list:?}");
        }
    }

    #[test]
    fn a_prefix_sets_the_tls_mode() {
        let list = "notls:h:1,btls:h:1,mtls:[::1]:1,tls:h,h";
        let modes: Vec<_> = interfaces(list).unwrap().iter().map(|found| found.tls).collect();
        let (plain, server) = (Some(TlsMode::Plain), Some(TlsMode::ServerOnly));
        let want = [plain, server, Some(TlsMode::Mutual), Some(TlsMode::Standard), None];
        assert_eq!(modes, want);
        for bad in ["proto[ascii]:h", "tag_x_:h"] {
            let refusal = interfaces(bad).unwrap_err().to_string();
            assert!(refusal.contains("not supported"), "{bad}: {refusal}");
        }
    }

    #[test]
    fn malformed_elements_are_refused() {
        for bad in ["", ",", ":11211", "h:", "h:65536", "h:x", "h:-1", "[::1", "[::1]x", "[]:1"] {
            assert!(interfaces(bad).is_err(), "{bad:?} was accepted");
        }
    }
}
