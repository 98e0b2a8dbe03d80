//! A client of the endpoint of `--metrics`.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use super::SOON;

/// The status of a GET, and the body.
pub fn get(address: SocketAddr, path: &str) -> (u16, String) {
    try_get(address, path).unwrap_or_else(|| panic!("no answer at {address}{path}"))
}

/// The same; `None` if nothing answers.
pub fn try_get(address: SocketAddr, path: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(SOON)).unwrap();
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some((status, body.to_owned()))
}

/// One metric: its type, and the values of its samples by their labels.
#[derive(Debug, Default)]
pub struct Family {
    pub kind: String,
    pub samples: BTreeMap<String, f64>,
}

/// The page of metrics, read as strictly as Prometheus's own checker does: every metric has its
/// help and type once, before its samples, which stand together and differ in their labels.
pub fn metrics(address: SocketAddr) -> BTreeMap<String, Family> {
    let (status, text) = get(address, "/metrics");
    assert_eq!(status, 200, "{text}");
    let mut families = BTreeMap::<String, Family>::new();
    let mut present = String::new();
    let mut helped = String::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap_or_else(|| panic!("no help: {line}"));
            assert!(!help.is_empty() && !families.contains_key(name), "{line}");
            name.clone_into(&mut helped);
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert_eq!(name, helped, "type without help: {line}");
            let new = Family { kind: kind.to_owned(), samples: BTreeMap::new() };
            assert!(families.insert(name.to_owned(), new).is_none(), "twice: {name}");
            name.clone_into(&mut present);
        } else {
            let (sample, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line:?}"));
            let family = families.get_mut(&present).unwrap();
            let rest = sample.strip_prefix(&present).unwrap_or_else(|| panic!("astray: {line}"));
            let name = rest.split('{').next().unwrap();
            let may_follow: &[&str] =
                if family.kind == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
            assert!(may_follow.contains(&name), "astray: {line}");
            let value = value.parse().unwrap_or_else(|_| panic!("no number: {line}"));
            assert!(family.samples.insert(rest.to_owned(), value).is_none(), "twice: {sample}");
        }
    }
    families
}

/// The value of a metric without labels.
#[track_caller]
pub fn value(families: &BTreeMap<String, Family>, name: &str) -> f64 {
    sample(families, name, "")
}

/// The value of a sample; `labels` in braces.
#[track_caller]
pub fn sample(families: &BTreeMap<String, Family>, name: &str, labels: &str) -> f64 {
    let family = families.get(name).unwrap_or_else(|| panic!("no {name}"));
    *family.samples.get(labels).unwrap_or_else(|| panic!("no {name}{labels}: {family:?}"))
}
