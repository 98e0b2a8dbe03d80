//! Parts that a configuration takes over from its predecessor.

use std::sync::Arc;

use super::Plan;

impl Plan {
    /// Follows the previous configuration. Servers keep their addresses, unless their names now
    /// have others. Granted leases stay valid for as long as before.
    pub fn succeed(&mut self, before: &Self) {
        self.remember(&before.addresses);
        for (name, pairs) in &mut self.pairs {
            if let Some(known) = before.pairs.get(name) {
                *pairs = Arc::clone(known);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use routeconf::{MemorySources, Params, load};
    use upstream::Settings;

    use super::*;
    use crate::TreeFlags;

    fn plan(text: &str) -> Plan {
        let (params, mut none) = (Params::new("/././"), MemorySources::default());
        let loaded = load("test.json", text, &params, &mut none).unwrap();
        Plan::new(loaded.config, Settings::default(), TreeFlags::default()).unwrap()
    }

    #[test]
    fn an_unresolved_server_keeps_its_previous_address() {
        let unknown = "pod.invalid:11211";
        let text = format!(r#"{{"pools": {{"A": {{"servers": ["{unknown}"]}}}}, "route": "A"}}"#)
            .replace(r#""route": "A""#, r#""route": "PoolRoute|A""#);
        let (mut now, mut before) = (plan(&text), plan(&text));
        now.succeed(&before);
        assert_eq!(now.not_found().len(), 1);
        let found = SocketAddr::from(([127, 0, 0, 2], 11211));
        before.addresses.insert(unknown.to_owned(), found.into());
        now.succeed(&before);
        assert_eq!((now.not_found().len(), now.targets()), (0, before.targets()));
    }

    #[test]
    fn lease_pairs_survive_a_configuration_change() {
        let text = |name: &str, timeout: u64| {
            format!(
                r#"{{"pools": {{"A": {{"servers": ["127.0.0.1:1"], "server_timeout": {timeout}}}}},
                     "route": {{"type": "FailoverRoute", "children": ["PoolRoute|A"],
                                "name": "{name}", "enable_lease_pairing": true}}}}"#
            )
        };
        let before = plan(&text("a", 10));
        let mut now = plan(&text("a", 20));
        now.succeed(&before);
        assert!(Arc::ptr_eq(&now.pairs["a"], &before.pairs["a"]));
        let mut other = plan(&text("b", 10));
        other.succeed(&before);
        assert_eq!(other.pairs.keys().collect::<Vec<_>>(), ["b"]);
        assert!(!Arc::ptr_eq(&other.pairs["b"], &before.pairs["a"]));
    }
}
