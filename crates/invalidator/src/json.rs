//! The JSON documents of `status` and `check`, for programs.

use serde_json::{Map, Value, json};

use crate::finding::Finding;

/// Names whose values are strings, even if they look like numbers.
const TEXTS: [&str; 4] = ["position", "delivered_position", "last_error", "canary_obstacle"];

/// The `STAT` lines of a running invalidator: its numbers by name, and in `clusters` the numbers of
/// each cluster by its name.
pub(crate) fn status(lines: &str) -> Value {
    let (mut all, mut clusters) = (Map::new(), Map::new());
    for line in lines.lines() {
        let Some((name, value)) = line.strip_prefix("STAT ").and_then(|line| line.split_once(' '))
        else {
            continue;
        };
        let Some(of_cluster) = name.strip_prefix("cluster:") else {
            all.insert(name.to_owned(), one(name, value));
            continue;
        };
        // A cluster's name may contain a colon; a number's name does not.
        let Some((cluster, name)) = of_cluster.rsplit_once(':') else { continue };
        let cluster = clusters.entry(cluster).or_insert_with(|| json!({}));
        cluster[name] = one(name, value);
    }
    all.insert("clusters".to_owned(), Value::Object(clusters));
    Value::Object(all)
}

fn one(name: &str, value: &str) -> Value {
    let number = value.parse::<u64>().ok().filter(|_| !TEXTS.contains(&name));
    number.map_or_else(|| Value::from(value), Value::from)
}

/// The findings of a check; `ok` is false if the invalidator would not start, or its canary would
/// never arrive.
pub(crate) fn check(findings: &[Finding]) -> Value {
    let one = |finding: &Finding| {
        json!({
            "fault": finding.is_fault(),
            "canary": finding.is_of_canary,
            "text": finding.text,
        })
    };
    let all: Vec<Value> = findings.iter().map(one).collect();
    json!({"ok": !findings.iter().any(Finding::is_fault), "findings": all})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_values_keep_their_json_types() {
        let lines = "STAT position lsn:0/5\r\nSTAT keys 18446744073709551615\r\n\
                     STAT cluster:a:b:lag_ms 7\r\nSTAT cluster:a:b:last_error 5\r\n\
                     STAT cluster:c:lag_ms 0\r\nEND\r\n";
        assert_eq!(
            status(lines),
            json!({
                "position": "lsn:0/5",
                "keys": u64::MAX,
                "clusters": {"a:b": {"lag_ms": 7, "last_error": "5"}, "c": {"lag_ms": 0}},
            })
        );
    }

    #[test]
    fn a_note_is_no_fault() {
        let note = Finding::note("n".to_owned());
        assert_eq!(
            check(std::slice::from_ref(&note)),
            json!({"ok": true, "findings": [{"fault": false, "canary": false, "text": "n"}]})
        );
        let of_canary = Finding::fatal("f".to_owned()).of_canary("s.t");
        let found = check(&[note, of_canary]);
        assert_eq!(found["ok"], json!(false));
        assert_eq!(found["findings"][1]["canary"], json!(true));
    }
}
