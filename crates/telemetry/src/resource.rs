//! The attributes that name a process to a collector.

use metrics::VERSION;

use crate::message::{KeyValue, Resource};

/// The resource of a process of this role, with attributes of the environment, which override the
/// others; `OTEL_SERVICE_NAME` overrides all.
pub(crate) fn attributes(
    role: &str,
    service: Option<String>,
    given: Vec<(String, String)>,
) -> Vec<(String, String)> {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let mut attributes = vec![
        ("service.name".to_owned(), format!("holdall-{role}")),
        ("service.version".to_owned(), VERSION.to_owned()),
        ("service.instance.id".to_owned(), instance()),
        ("host.name".to_owned(), host),
    ];
    let service = service.map(|name| ("service.name".to_owned(), name));
    for (name, value) in given.into_iter().chain(service) {
        match attributes.iter_mut().find(|(own, _)| *own == name) {
            Some((_, own)) => *own = value,
            None => attributes.push((name, value)),
        }
    }
    attributes
}

/// The message.
pub(crate) fn message(attributes: &[(String, String)]) -> Resource {
    let attributes = attributes.iter().map(|(name, value)| KeyValue::text(name, value));
    Resource { attributes: attributes.collect() }
}

/// A random UUID (version 4), only of this process.
fn instance() -> String {
    let number = fastrand::u128(..) & !(0xf << 76) & !(0b11 << 62) | 4 << 76 | 0b10 << 62;
    let digits = format!("{number:032x}");
    let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(|range| &digits[range]);
    parts.join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instance_ids_are_version_4_uuids() {
        let id = instance();
        let letters: Vec<char> = id.chars().collect();
        assert_eq!((id.len(), letters[14]), (36, '4'), "{id}");
        assert!(matches!(letters[19], '8' | '9' | 'a' | 'b'), "{id}");
        assert_ne!(id, instance());
    }

    #[test]
    fn attributes_of_the_environment_take_precedence() {
        let given = [("host.name", "h"), ("service.name", "a"), ("team", "t")];
        let given = given.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        let attributes = attributes("serve", Some("b".to_owned()), given);
        let value = |name: &str| {
            let found: Vec<_> = attributes.iter().filter(|(own, _)| own == name).collect();
            assert_eq!(found.len(), 1, "{name}: {attributes:?}");
            found[0].1.clone()
        };
        assert_eq!(value("service.name"), "b");
        assert_eq!((value("host.name"), value("team")), ("h".to_owned(), "t".to_owned()));
        assert_eq!(value("service.version"), VERSION);
    }
}
