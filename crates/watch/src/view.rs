//! An interval, for people and for programs.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::Serialize;

use crate::interval::{Interval, Sum, largest};

/// Clears a terminal.
pub(crate) const CLEAR: &str = "\x1b[H\x1b[J";

/// Columns for names.
const NAME: usize = 40;

/// The interval as a table; `top` rows of each kind.
pub(crate) fn table(interval: &Interval, secs: f64, top: usize) -> String {
    let mut text = String::new();
    let total = &interval.total;
    // Writing into a string does not fail.
    let _ = write!(text, "{:.0} requests/s", total.requests / secs);
    if let Some(ratio) = total.hit_ratio() {
        let _ = write!(text, "   hits {:.1} %", ratio * 100.0);
    }
    if let (Some(p50), Some(p99)) = (total.quantile_us(0.5), total.quantile_us(0.99)) {
        let _ = write!(text, "   p50 {p50} us   p99 {p99} us");
    }
    let _ = writeln!(text, "   {} seen, {} lost", interval.seen, interval.skipped);
    let kinds = [
        ("operation", &interval.operations),
        ("pool", &interval.pools),
        ("server", &interval.servers),
        ("key", &interval.keys),
    ];
    for (kind, sums) in kinds.iter().filter(|(_, sums)| !sums.is_empty()) {
        let _ = writeln!(
            text,
            "\n{kind:NAME$} {:>10} {:>7} {:>8} {:>8} {:>8}",
            "/s", "hits %", "errors/s", "p50 us", "p99 us"
        );
        for (name, sum) in largest(sums, top) {
            row(&mut text, name, sum, secs);
        }
    }
    text
}

fn row(text: &mut String, name: &str, sum: &Sum, secs: f64) {
    let ratio = sum.hit_ratio().map_or_else(|| "-".into(), |ratio| format!("{:.1}", ratio * 100.0));
    let quantile =
        |quantile| sum.quantile_us(quantile).map_or_else(|| "-".into(), |us| us.to_string());
    let name: String = name.chars().take(NAME).collect();
    let _ = writeln!(
        text,
        "{name:NAME$} {:>10.0} {ratio:>7} {:>8.0} {:>8} {:>8}",
        sum.requests / secs,
        sum.errors / secs,
        quantile(0.5),
        quantile(0.99)
    );
}

#[derive(Serialize)]
struct Json<'a> {
    at_secs: u64,
    seconds: f64,
    seen: u64,
    skipped: u64,
    total: Row<'a>,
    operations: Vec<Row<'a>>,
    pools: Vec<Row<'a>>,
    servers: Vec<Row<'a>>,
    keys: Vec<Row<'a>>,
}

#[derive(Serialize)]
struct Row<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'a str,
    per_second: f64,
    errors_per_second: f64,
    hit_ratio: Option<f64>,
    p50_us: Option<u64>,
    p99_us: Option<u64>,
    max_us: Option<u64>,
}

/// The interval that ended at `at_secs` (Unix time) as a line of JSON.
pub(crate) fn json(interval: &Interval, at_secs: u64, secs: f64, top: usize) -> String {
    let json = Json {
        at_secs,
        seconds: secs,
        seen: interval.seen,
        skipped: interval.skipped,
        total: Row::of("", &interval.total, secs),
        operations: rows(&interval.operations, top, secs),
        pools: rows(&interval.pools, top, secs),
        servers: rows(&interval.servers, top, secs),
        keys: rows(&interval.keys, top, secs),
    };
    // Nothing in it can fail to be written.
    serde_json::to_string(&json).unwrap_or_default() + "\n"
}

fn rows(sums: &BTreeMap<String, Sum>, top: usize, secs: f64) -> Vec<Row<'_>> {
    largest(sums, top).into_iter().map(|(name, sum)| Row::of(name, sum, secs)).collect()
}

impl<'a> Row<'a> {
    fn of(name: &'a str, sum: &Sum, secs: f64) -> Self {
        Self {
            name,
            per_second: sum.requests / secs,
            errors_per_second: sum.errors / secs,
            hit_ratio: sum.hit_ratio(),
            p50_us: sum.quantile_us(0.5),
            p99_us: sum.quantile_us(0.99),
            max_us: sum.quantile_us(1.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::line::Seen;

    fn interval() -> Interval {
        let mut interval = Interval::of_one(1);
        for number in 0..4 {
            let seen = Seen {
                operation: "get".into(),
                key: format!("key:{}", number / 2),
                hit: Some(number != 0),
                weight: 10,
                ..Seen::default()
            };
            interval.add(seen, "127.0.0.1:1", false);
        }
        interval
    }

    #[test]
    fn a_table_has_a_section_for_each_kind_seen() {
        let text = table(&interval(), 2.0, 1);
        assert!(text.starts_with("20 requests/s   hits 75.0 %   4 seen, 0 lost\n"), "{text}");
        assert!(text.contains("\noperation ") && text.contains("\nserver "), "{text}");
        assert!(!text.contains("\npool "), "{text}");
        assert_eq!(text.matches("key:").count(), 1, "{text}");
    }

    #[test]
    fn json_output_contains_the_same_figures() {
        let json: serde_json::Value = serde_json::from_str(&json(&interval(), 7, 2.0, 5)).unwrap();
        assert_eq!(json["total"]["per_second"], 20.0);
        assert_eq!(json["operations"][0]["name"], "get");
        assert_eq!(json["keys"].as_array().unwrap().len(), 2);
        assert_eq!(json["total"]["p50_us"], serde_json::Value::Null);
    }
}
