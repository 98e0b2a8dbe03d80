//! A watcher's line, parsed.

/// One request, as reported by a server or a proxy.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Seen {
    /// memcached's name for the command.
    pub(crate) operation: String,
    /// The key; nonprintable bytes stay percent-encoded, or are escaped.
    pub(crate) key: String,
    /// The proxy's pool; empty without one.
    pub(crate) pool: String,
    /// The server that was asked; empty in a server's own lines.
    pub(crate) server: String,
    /// True for a read that hit, false for one that missed; `None` for everything else.
    pub(crate) hit: Option<bool>,
    /// It failed.
    pub(crate) is_error: bool,
    /// From the request to the server to its answer, if the line has it.
    pub(crate) took_us: Option<u64>,
    /// Requests for which this one stands.
    pub(crate) weight: u64,
    /// The number of the client's connection; empty if the line has none.
    pub(crate) connection: String,
    /// A lookup by memcached: of a get, or the first step of another command.
    pub(crate) is_lookup: bool,
}

impl Seen {
    /// True if `lookup`, the line before this one, can only be the first step of this request.
    pub(crate) fn starts_with(&self, lookup: &Self) -> bool {
        let is_same_client = self.connection.is_empty() || self.connection == lookup.connection;
        lookup.is_lookup && !self.is_lookup && self.key == lookup.key && is_same_client
    }
}

/// The contents of a line.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Line {
    /// A request.
    Request(Box<Seen>),
    /// The number of lines lost because this program reads too slowly.
    Skipped(u64),
    /// Any other line.
    Other,
}

/// Operations that can hit and miss.
const READS: [&str; 6] = ["gat", "gats", "get", "gets", "lease-get", "metaget"];

/// Reads a line, without its end. A memcached reports each lookup of a key as `item_get`.
pub(crate) fn read(line: &str, is_memcached: bool) -> Line {
    let (mut kind, mut status) = ("", "");
    let mut seen = Seen { weight: 1, ..Seen::default() };
    for (name, value) in line.split_ascii_whitespace().filter_map(|word| word.split_once('=')) {
        match name {
            "skipped" => return value.parse().map_or(Line::Other, Line::Skipped),
            "type" => kind = value,
            "status" => status = value,
            "key" => seen.key = printable(&decoded(value)),
            "cmd" => seen.operation = printable(value),
            "pool" => seen.pool = printable(&decoded(value)),
            "cfd" => value.clone_into(&mut seen.connection),
            "be" => seen.server = printable(value),
            "elapsed" => seen.took_us = value.parse().ok(),
            "one_in" => seen.weight = value.parse().unwrap_or(1),
            _ => {}
        }
    }
    match kind {
        "item_get" => {
            "get".clone_into(&mut seen.operation);
            seen.is_lookup = is_memcached;
        }
        "item_store" | "deleted" | "proxy_req" => {}
        _ => return Line::Other,
    }
    seen.is_error = status == "error";
    if READS.contains(&&*seen.operation) && !seen.is_error {
        seen.hit = Some(status == "found");
    }
    Line::Request(Box::new(seen))
}

/// Removes control characters: a terminal obeys them, and the peer at an address may send any.
fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() { out.extend(c.escape_debug()) } else { out.push(c) }
    }
    out
}

/// Percent-decoded, as far as it is printable.
fn decoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let code = rest.get(1..3).and_then(|code| u8::from_str_radix(code, 16).ok());
        match code {
            Some(byte @ 0x21..=0x7e) => out.push(char::from(byte)),
            _ => out.push_str(rest.get(..3).unwrap_or(rest)),
        }
        rest = rest.get(3..).unwrap_or_default();
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_and_proxy_lines_are_parsed() {
        let Line::Request(seen) =
            read("ts=1.5 gid=3 type=item_get key=a%3Ab status=found clsid=2 cfd=9 size=5", false)
        else {
            panic!("no request")
        };
        assert_eq!((&*seen.key, &*seen.operation, seen.hit), ("a:b", "get", Some(true)));
        let line = "ts=1.5 gid=4 type=proxy_req elapsed=172 be=[::1]:9 pool=A cmd=set key=k \
            status=error reason=timeout one_in=8";
        let want = Seen {
            operation: "set".into(),
            key: "k".into(),
            pool: "A".into(),
            server: "[::1]:9".into(),
            hit: None,
            is_error: true,
            took_us: Some(172),
            weight: 8,
            connection: String::new(),
            is_lookup: false,
        };
        assert_eq!(read(line, false), Line::Request(Box::new(want)));
        assert_eq!(read("skipped=17", false), Line::Skipped(17));
        assert_eq!(read("ts=1 gid=5 type=conn_new rip=::1", false), Line::Other);
        assert_eq!(read("OK", false), Line::Other);
    }

    #[test]
    fn control_characters_in_unencoded_lines_are_escaped() {
        let line = "type=proxy_req key=\x1b]0;x\x07\x1b[2J\u{9b}31m pool=\x1b[A cmd=ge\x1bt \
            be=\x7f1:2 status=found";
        let Line::Request(seen) = read(line, false) else { panic!("no request") };
        for name in [&seen.key, &seen.pool, &seen.operation, &seen.server] {
            assert!(!name.contains(char::is_control) && name.contains("\\u{"), "{name:?}");
        }
    }

    #[test]
    fn control_characters_stay_encoded() {
        assert_eq!(decoded("a%1B%5Bb%20%FFc%"), "a%1B[b%20%FFc%");
        assert_eq!(decoded("%zz%"), "%zz%");
    }
}
