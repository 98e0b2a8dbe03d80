//! The groups of `stats` as maps.

use std::collections::BTreeMap;

use metrics::{Kind, Page};

use crate::admin::Context;
use crate::admin::stats;

/// One metric and the statistic that it shows.
pub(super) struct Row {
    /// Its name after the prefix.
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    /// The statistic's name; one in microseconds ends with `_us`, and is shown in seconds.
    pub(super) stat: &'static str,
    pub(super) help: &'static str,
}

/// A row of a table of metrics.
pub(super) const fn row(
    name: &'static str,
    kind: Kind,
    stat: &'static str,
    help: &'static str,
) -> Row {
    Row { name, kind, stat, help }
}

/// The statistics of a class, by name.
type OfClass = BTreeMap<String, String>;

/// The answers to `stats`, `stats settings`, `stats items` and `stats slabs`.
pub(super) struct Numbers {
    /// `stats`, and the totals of `stats slabs` over all classes.
    pub(super) general: BTreeMap<String, String>,
    pub(super) settings: BTreeMap<String, String>,
    /// By class.
    pub(super) items: BTreeMap<u8, OfClass>,
    /// By class.
    pub(super) slabs: BTreeMap<u8, OfClass>,
}

impl Numbers {
    pub(super) fn collect(context: &Context<'_>) -> Self {
        let group = |name: &[u8]| {
            let mut lines = BTreeMap::new();
            let mut sink = |name: &[u8], value: &[u8]| {
                let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
                lines.insert(text(name), text(value));
            };
            stats::group(context, name, &mut sink);
            lines
        };
        let mut general = group(b"");
        let (slabs, of_all) = by_class(group(b"slabs"), "");
        general.extend(of_all);
        let (items, _) = by_class(group(b"items"), "items:");
        Self { general, settings: group(b"settings"), items, slabs }
    }

    /// Writes the rows whose statistic exists.
    pub(super) fn write(page: &mut Page, rows: &[Row], numbers: &BTreeMap<String, String>) {
        for Row { name, kind, stat, help } in rows {
            if let Some(value) = numbers.get(*stat) {
                page.single(name, *kind, help, shown(stat, value));
            }
        }
    }

    /// Writes rows with a sample for each class.
    pub(super) fn write_classes(page: &mut Page, rows: &[Row], classes: &BTreeMap<u8, OfClass>) {
        for Row { name, kind, stat, help } in rows {
            page.family(name, *kind, help);
            for (class, numbers) in classes {
                if let Some(value) = numbers.get(*stat) {
                    page.sample(name, &[("slab", &class.to_string())], shown(stat, value));
                }
            }
        }
    }
}

/// A number by its name; 0 if it is not a number.
pub(super) fn of(numbers: &BTreeMap<String, String>, stat: &str) -> u64 {
    numbers.get(stat).and_then(|value| value.parse().ok()).unwrap_or(0)
}

/// A value as Prometheus reads it.
fn shown(stat: &str, value: &str) -> String {
    match value {
        "yes" => "1".to_owned(),
        "no" => "0".to_owned(),
        _ if stat.ends_with("_us") => match value.parse::<u64>() {
            Ok(micros) => format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000),
            Err(_) => value.to_owned(),
        },
        _ => value.to_owned(),
    }
}

/// Lines `<prefix><class>:<name>` by class; the other lines.
fn by_class(
    lines: BTreeMap<String, String>,
    prefix: &str,
) -> (BTreeMap<u8, OfClass>, BTreeMap<String, String>) {
    let (mut classes, mut others) = (BTreeMap::<u8, OfClass>::new(), BTreeMap::new());
    for (line, value) in lines {
        let parts = line.strip_prefix(prefix).and_then(|rest| rest.split_once(':'));
        match parts.and_then(|(class, name)| Some((class.parse().ok()?, name))) {
            Some((class, name)) => {
                classes.entry(class).or_default().insert(name.to_owned(), value);
            }
            None => drop(others.insert(line, value)),
        }
    }
    (classes, others)
}
