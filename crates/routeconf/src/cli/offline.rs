//! Configurations as read by `holdall check` and `holdall explain`: no source is queried, and
//! settings that `holdall route` has in flags come from the configuration if possible.

use std::io;
use std::path::Path;

use crate::json::{self, Node};
use crate::load::load_path;
use crate::source::{FileSources, Sources};
use crate::{Files, Loaded, Params, Rejected};

/// Sources of servers that a running proxy queries, each with the form of its text. The crate
/// `discovery` queries them; a test there compares the two lists.
pub const DISCOVERED: [(&str, &str); 6] = [
    ("dns:", "NAME:PORT"),
    ("elasticache:", "HOST:PORT"),
    ("elasticache+tls:", "HOST:PORT"),
    ("etcd:", "HOST:PORT/PREFIX"),
    ("etcd+tls:", "HOST:PORT/PREFIX"),
    ("srv:", "NAME"),
];

/// The assumptions for reading a configuration.
#[derive(Debug, Default)]
pub(super) struct Assumptions {
    /// Sources that were not queried; one server represents each.
    sources: Vec<String>,
    /// The prefix taken from the configuration.
    prefix: Option<String>,
}

/// Reads the file as a proxy of this host id does, with the prefix of `--route-prefix` if given.
pub(super) fn read(
    path: &Path,
    prefix: Option<&str>,
    host_id: u32,
) -> (Result<Loaded, Rejected>, Assumptions) {
    let mut sources = OfflineSources { files: FileSources::beside(path), names: Vec::new() };
    let mut taken = None;
    let params = |text: &str| {
        taken = if prefix.is_none() { first_prefix(text) } else { None };
        let mut params = prefix.or(taken.as_deref()).map_or_else(Params::default, Params::new);
        params.set_number("hostid", i64::from(host_id));
        params
    };
    let loaded = load_path(path, params, &mut sources);
    (loaded, Assumptions { sources: sources.names, prefix: taken })
}

impl Assumptions {
    /// Returns true if servers come from a source that was not queried.
    pub(super) fn has_sources(&self) -> bool {
        !self.sources.is_empty()
    }

    /// Notes for the user, one per line.
    pub(super) fn notes(&self, command: &str, path: &str) -> String {
        let prefix = self.prefix.iter().map(|prefix| {
            format!("no route has the prefix /././: read as by --route-prefix {prefix}")
        });
        let sources = self.sources.iter();
        let sources = sources.map(|name| format!("{name} is not asked: its servers count as one"));
        let notes = prefix.chain(sources);
        notes.map(|note| format!("holdall {command}: {path}: {note}\n")).collect()
    }

    /// The text with each source instead of the server that represents it.
    pub(super) fn named(&self, text: String) -> String {
        self.sources.iter().fold(text, |text, name| text.replace(&stand_in(name), name))
    }
}

/// The unique address of the server that represents a source. No host has such a name (RFC 6761).
fn stand_in(source: &str) -> String {
    let code: String = source.bytes().map(|byte| format!("{byte:02x}")).collect();
    format!("{code}.invalid:1")
}

/// Reads files; each source becomes one server.
struct OfflineSources {
    files: FileSources,
    names: Vec<String>,
}

impl Sources for OfflineSources {
    fn read(&mut self, name: &str) -> io::Result<(String, String)> {
        let known = DISCOVERED
            .iter()
            .find_map(|(scheme, form)| name.strip_prefix(scheme).map(|rest| (rest, scheme, form)));
        let Some((rest, scheme, form)) = known else { return self.files.read(name) };
        if !has_form(rest, form) {
            return Err(io::Error::other(format!("{scheme}{form} is expected")));
        }
        if !self.names.iter().any(|known| known == name) {
            self.names.push(name.to_owned());
        }
        let server = stand_in(name);
        let pool = serde_json::json!({ "servers": [server], "tags": [server] });
        Ok((pool.to_string(), name.to_owned()))
    }
}

/// Returns true if a source's text has the parts of its form; the source itself checks the rest.
fn has_form(text: &str, form: &str) -> bool {
    let has_port = |text: &str| {
        let (host, port) = text.rsplit_once(':').unwrap_or_default();
        !host.is_empty() && port.parse::<u16>().is_ok()
    };
    match (form.contains('/'), form.contains(':')) {
        // Of several addresses, the last precedes the prefix.
        (true, _) => text.split_once('/').is_some_and(|(address, _)| has_port(address)),
        (false, true) => has_port(text),
        (false, false) => !text.is_empty(),
    }
}

/// The prefix of the first route, if routes have prefixes and none has the default one.
fn first_prefix(text: &str) -> Option<String> {
    let mut files = Files::default();
    let root = json::parse(text, files.add(""), &mut Vec::new()).ok()?;
    let routes = root.as_object()?.get("routes")?;
    let prefixes: Vec<&str> = match (routes.as_object(), routes.as_array()) {
        (Some(map), _) => map.members().keys().map(|prefix| &**prefix).collect(),
        (None, Some(list)) => {
            let aliases = list.iter().filter_map(aliases).flatten();
            aliases.filter_map(Node::as_str).collect()
        }
        (None, None) => return None,
    };
    let usual = Params::default();
    let is_usual = |prefix: &&str| Params::new(prefix).default_route() == usual.default_route();
    let first = prefixes.first().filter(|prefix| prefix.starts_with('/'))?;
    (!prefixes.iter().any(is_usual)).then(|| (*first).to_owned())
}

fn aliases(route: &Node) -> Option<&[Node]> {
    route.as_object()?.get("aliases")?.as_array()
}
