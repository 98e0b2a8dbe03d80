//! The differences of two loads, without which their figures could not be compared.

use std::collections::BTreeMap;

use generator::spec::Spec;
use serde_json::Value;

use crate::load_words;

/// Entries of a specification that do not affect the load's intensity: the length of the
/// measurement, its seed, files, the preloaded keys (whose misses are a separate doubt), and the
/// protocol, which is the server's.
const IGNORED: [&str; 7] =
    ["seconds", "seed", "identity", "tls_name", "login", "preload", "protocol"];

/// The entries in which loads differ from the first, in words; empty if they are equal. The
/// servers' addresses do not count, but their number does.
pub(crate) fn between<'s>(loads: impl IntoIterator<Item = &'s Spec>) -> Vec<String> {
    let mut loads = loads.into_iter().map(entries);
    let Some(first) = loads.next() else { return Vec::new() };
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for load in loads {
        for (name, value) in load {
            let known = first.get(&name).cloned().unwrap_or_default();
            if known == value {
                continue;
            }
            let values = found.entry(name).or_insert_with(|| vec![known]);
            if !values.contains(&value) {
                values.push(value);
            }
        }
    }
    found.into_iter().map(|(name, values)| format!("{name} {}", values.join(" and "))).collect()
}

/// The entries of a specification by their names in the JSON, as texts.
fn entries(spec: &Spec) -> BTreeMap<String, String> {
    let Ok(Value::Object(entries)) = serde_json::to_value(spec) else { return BTreeMap::new() };
    let told = entries.into_iter().filter(|(name, _)| !IGNORED.contains(&name.as_str()));
    let text = |(name, value): (String, Value)| match name.as_str() {
        "targets" => ("servers".to_owned(), spec.targets.len().to_string()),
        "pace" => (name, load_words::pace(spec)),
        "tls" => (name, if value.is_null() { "off" } else { "on" }.to_owned()),
        _ => match value {
            Value::String(text) => (name.replace('_', " "), text),
            other => (name.replace('_', " "), other.to_string()),
        },
    };
    told.map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use generator::sizes::ValueSize;
    use generator::spec::{Arrival, Pace};

    #[test]
    fn every_setting_that_changes_the_load_is_named() {
        let one = Spec::default();
        let mut other = Spec { seed: 7, seconds: 9.0, ..one.clone() };
        assert_eq!(between([&one, &other]), [""; 0]);
        other.pace = Pace::Open { rate: 3000.0, arrival: Arrival::Poisson };
        other.value_size = ValueSize::Fixed(100_000);
        other.connections = one.connections + 1;
        let found = between([&one, &other, &one]);
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].starts_with("connections "), "{found:?}");
        assert_eq!(
            found[1],
            "pace closed loop and open loop, 3000 requests a second (poisson arrivals)"
        );
        assert!(found[2].starts_with("value size ") && found[2].ends_with(" and 100000"));
    }
}
