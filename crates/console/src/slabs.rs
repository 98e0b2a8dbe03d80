//! The slab classes of one server and their bags, queried on demand.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tools::{Connection, Error, Options, stats_group};

/// The classes, each with its pages, chunks, items and bags.
///
/// # Errors
///
/// Returns errors of the connection.
pub(crate) fn slabs(address: &str, options: &Options) -> Result<Value, Error> {
    let mut connection = Connection::open(address, options)?;
    let mut stats = BTreeMap::new();
    for group in ["stats slabs", "stats items", "stats bags"] {
        stats_group(&mut connection, group, &mut stats)?;
    }
    Ok(of_stats(&stats))
}

fn of_stats(stats: &BTreeMap<String, String>) -> Value {
    let mut classes: BTreeMap<u32, serde_json::Map<String, Value>> = BTreeMap::new();
    let mut bags: BTreeMap<(u32, u32), serde_json::Map<String, Value>> = BTreeMap::new();
    for (name, value) in stats {
        let value = value.parse::<f64>().map_or_else(|_| json!(value), |number| json!(number));
        let parts: Vec<&str> = name.split(':').collect();
        match parts[..] {
            ["bags", class, place, what] => {
                if let (Ok(class), Ok(place)) = (class.parse(), place.parse()) {
                    bags.entry((class, place)).or_default().insert(what.to_owned(), value);
                }
            }
            [class, what] | ["items", class, what] => {
                if let Ok(class) = class.parse() {
                    classes.entry(class).or_default().insert(what.to_owned(), value);
                }
            }
            _ => {}
        }
    }
    let list = classes.into_iter().map(|(class, mut fields)| {
        let own = bags.range((class, 0)..=(class, u32::MAX));
        let own: Vec<&serde_json::Map<String, Value>> = own.map(|(_, bag)| bag).collect();
        fields.insert("bags".to_owned(), json!(own));
        fields.insert("class".to_owned(), json!(class));
        Value::Object(fields)
    });
    json!({ "classes": list.collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_have_their_items_and_bags() {
        let stats = [
            ("1:chunk_size", "32"),
            ("1:used_chunks", "7"),
            ("items:1:number", "7"),
            ("bags:1:0:role", "newest"),
            ("bags:1:0:items", "7"),
            ("bags:2:0:items", "7"),
            ("10:chunk_size", "640"),
            ("active_slabs", "2"),
        ];
        let stats = stats.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let all = of_stats(&BTreeMap::from(stats));
        let classes = all["classes"].as_array().unwrap();
        assert_eq!(classes.len(), 2);
        assert_eq!(classes[0]["number"], 7.0);
        assert_eq!(classes[0]["bags"], json!([{"role": "newest", "items": 7.0}]));
        assert_eq!((&classes[1]["class"], &classes[1]["bags"]), (&json!(10), &json!([])));
    }
}
