//! A server in mcrouter's form: `host:port`, `[v6]:port:protocol:security:compression`,
//! `unix:/path`.

use crate::ast::{Protocol, Security, Server, ServerAddress};
use crate::source::{At, Diagnostic, Fallible, fail};

/// A pool's defaults for all of its servers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ServerDefaults {
    pub(crate) protocol: Protocol,
    pub(crate) security: Security,
    pub(crate) port: Option<u16>,
}

/// Parses a server; its weight is 1.
pub(crate) fn parse_server(text: &str, defaults: ServerDefaults, at: At) -> Fallible<Server> {
    let (address, rest) = address(text, defaults.port, at)?;
    let mut server = Server {
        address,
        protocol: defaults.protocol,
        security: defaults.security,
        name: None,
        weight: 1,
        failure_domain: None,
        at,
    };
    let mut parts = rest.split(':');
    if let Some(protocol) = parts.next().filter(|protocol| !protocol.is_empty()) {
        server.protocol = parse_protocol(protocol, at)?;
    }
    if let Some(security) = parts.next().filter(|security| !security.is_empty()) {
        server.security = parse_security(security, at)?;
    }
    match parts.next() {
        None | Some("" | "notcompressed") => {}
        Some("compressed") => {
            return fail(
                at,
                format!("'{text}' asks for compression, which memcached's protocols do not have"),
            );
        }
        Some(other) => {
            return fail(at, format!("'{other}' of the server '{text}' means nothing here"));
        }
    }
    match parts.next() {
        None => Ok(server),
        Some(more) => fail(at, format!("'{more}' of the server '{text}' means nothing here")),
    }
}

/// The address, and the text after its port.
fn address(text: &str, port_override: Option<u16>, at: At) -> Fallible<(ServerAddress, &str)> {
    if let Some(path) = text.strip_prefix("unix:") {
        let (path, rest) = path.split_once(':').unwrap_or((path, ""));
        if path.is_empty() {
            return fail(at, format!("the server '{text}' has no path"));
        }
        return Ok((ServerAddress::Unix(path.to_owned()), rest));
    }
    let (host, rest) = match text.strip_prefix('[') {
        Some(inner) => match inner.split_once(']') {
            Some((host, rest)) => (host, rest.strip_prefix(':').unwrap_or(rest)),
            None => return fail(at, format!("the bracket of the server '{text}' is not closed")),
        },
        None => text.split_once(':').unwrap_or((text, "")),
    };
    if host.is_empty() || host.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return fail(at, format!("the server '{text}' has no host"));
    }
    let (digits, rest) = rest.split_once(':').unwrap_or((rest, ""));
    let port = match (digits, port_override) {
        ("", Some(port)) => port,
        ("", None) => {
            let error = Diagnostic::error(at, format!("the server '{text}' has no port"));
            return Err(Box::new(error.hint(format!("write '{text}:11211'"))));
        }
        (digits, port_override) => {
            // No server listens at port 0; like mcrouter, this fails at connecting.
            let number = port_of(digits).or_else(|| is_zero(digits).then_some(0));
            let Some(number) = number else {
                return fail(at, format!("'{digits}' of the server '{text}' is not a port"));
            };
            port_override.unwrap_or(number)
        }
    };
    Ok((ServerAddress::Tcp { host: host.to_owned(), port }, rest))
}

fn is_zero(digits: &str) -> bool {
    digits.bytes().all(|digit| digit == b'0')
}

/// A port written only in digits.
pub(crate) fn port_of(digits: &str) -> Option<u16> {
    let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|port| plain && *port > 0)
}

pub(crate) fn parse_protocol(name: &str, at: At) -> Fallible<Protocol> {
    match name.to_ascii_lowercase().as_str() {
        "ascii" => Ok(Protocol::Ascii),
        "binary" => Ok(Protocol::Binary),
        "meta" => Ok(Protocol::Meta),
        "caret" | "thrift" | "umbrella" | "xdp" => {
            let error = format!("the protocol '{name}' is Meta's own; no open server speaks it");
            Err(Box::new(Diagnostic::error(at, error).hint("write 'ascii'")))
        }
        other => {
            let error = Diagnostic::error(at, format!("there is no protocol '{name}'"));
            let error = error.hint("known are ascii, binary, meta");
            Err(Box::new(error.meant(other, ["ascii", "binary", "meta"])))
        }
    }
}

pub(crate) fn parse_security(name: &str, at: At) -> Fallible<Security> {
    match name.to_ascii_lowercase().as_str() {
        "plain" | "none" => Ok(Security::Plain),
        "ssl" | "tls" | "fizz" | "ktls12" => Ok(Security::Tls),
        "tls_to_plain" => Ok(Security::TlsToPlain),
        _ => {
            let error = Diagnostic::error(at, format!("there is no security '{name}'"));
            Err(Box::new(error.hint("plain, tls, ssl, fizz, ktls12 and tls_to_plain are known")))
        }
    }
}
