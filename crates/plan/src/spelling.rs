//! The spelling of names, addresses and paths, which become parts of units, paths and DNS names.

use std::collections::BTreeSet;
use std::net::Ipv6Addr;
use std::path::{Component, Path};

/// Names become parts of routing prefixes, of unit files and of DNS names, which are the most
/// restrictive.
pub(crate) fn bad_label(what: &str, name: &str) -> Option<String> {
    let is_good = !name.is_empty()
        && name.len() <= 30
        && name.starts_with(|letter: char| letter.is_ascii_lowercase())
        && !name.ends_with('-')
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
    (!is_good).then(|| {
        format!(
            "{what}: '{name}' is not 1 to 30 letters a to z, digits and '-', beginning with a letter"
        )
    })
}

/// Addresses become names of folders and arguments in units.
pub(crate) fn bad_address(address: &str) -> Option<String> {
    let (host, _) = hostport::split(address);
    let is_name = host.starts_with(|first: char| first.is_ascii_alphanumeric())
        && host.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_'));
    let is_good = is_name || host.parse::<Ipv6Addr>().is_ok();
    (!is_good).then(|| format!("'{address}' is not an address: give an IP address or a name"))
}

/// The path becomes an argument and settings of units, where other characters would need quotes.
pub(crate) fn bad_memory_file(path: &Path) -> Option<&'static str> {
    let has_folder = path.parent().is_some_and(|folder| folder != Path::new("/"));
    if !path.is_absolute() || !has_folder {
        return Some("give a path in a folder of its own, such as /run/holdall-cache/items");
    }
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '-' | '_');
    let is_good = path.to_str().is_some_and(|text| text.chars().all(is_plain));
    if !is_good {
        return Some("give a path of letters, digits, '/', '.', '-' and '_'");
    }
    // A unit makes the folder by its name, and the path names a file.
    let is_direct =
        path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    let is_file = !path.as_os_str().as_encoded_bytes().ends_with(b"/");
    (!(is_direct && is_file)).then_some("give the path of a file, without '..'")
}

/// The first name that is there twice.
pub(crate) fn repeated<N: AsRef<str> + Ord + Clone>(
    names: impl IntoIterator<Item = N>,
) -> Option<N> {
    let mut seen = BTreeSet::new();
    names.into_iter().find(|name| !seen.insert(name.clone()))
}
