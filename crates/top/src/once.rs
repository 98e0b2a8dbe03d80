//! `--once`: the tier as text or as JSON.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::hot_keys::hot_keys;
use crate::number;
use crate::poller::Member;
use crate::row::{Row, columns, totals};
use tools::Role;

/// Every member with its numbers, the totals of each role, and the hot keys.
#[must_use]
pub fn json(members: &[Member], rows: &[Row]) -> Value {
    let list: Vec<Value> = rows.iter().map(of_row).collect();
    let mut all = serde_json::Map::new();
    for role in roles(rows) {
        let of_role: Vec<&Row> = rows.iter().filter(|row| row.role == role).collect();
        all.insert(role.name().to_owned(), numbers(role, &totals(role, &of_role)));
    }
    let keys: Vec<Value> = hot_keys(members)
        .iter()
        .map(|hot| {
            json!({
                "key": hot.key,
                "address": hot.address,
                "requests_per_second": hot.requests_per_second,
                "share_ratio": hot.share,
            })
        })
        .collect();
    json!({"members": list, "totals": all, "hot_keys": keys})
}

fn of_row(row: &Row) -> Value {
    let mut value = json!({
        "address": row.address,
        "group": row.group,
        "role": row.role.name(),
        "version": row.version,
        "health": row.health.name(),
        "reason": row.health.reason(),
    });
    if let Some(fields) = value.as_object_mut() {
        fields.insert("numbers".to_owned(), numbers(row.role, &row.numbers));
    }
    value
}

fn numbers(role: Role, numbers: &[Option<f64>]) -> Value {
    let named = columns(role).iter().zip(numbers);
    named.map(|(column, number)| (column.name.to_owned(), json!(number))).collect()
}

/// A table for each role, with every column.
#[must_use]
pub(crate) fn text(rows: &[Row]) -> String {
    let mut text = String::new();
    for role in roles(rows) {
        let of_role: Vec<&Row> = rows.iter().filter(|row| row.role == role).collect();
        let width = of_role.iter().map(|row| row.address.len()).max().unwrap_or(0).max(11);
        let _ = write!(text, "{:<width$}", role.name());
        for column in columns(role) {
            let _ = write!(text, " {:>7}", column.title);
        }
        text.push('\n');
        for row in &of_role {
            let _ = write!(text, "{:<width$}", row.address);
            write_numbers(&mut text, role, &row.numbers);
            let reason = row.health.reason();
            let _ = if reason.is_empty() { writeln!(text) } else { writeln!(text, "  {reason}") };
        }
        let all = format!("all {}", of_role.len());
        let _ = write!(text, "{all:<width$}");
        write_numbers(&mut text, role, &totals(role, &of_role));
        text.push_str("\n\n");
    }
    text.truncate(text.trim_end().len());
    text + "\n"
}

fn write_numbers(text: &mut String, role: Role, numbers: &[Option<f64>]) {
    for (column, number) in columns(role).iter().zip(numbers) {
        let shown = number.map_or_else(|| "-".to_owned(), |it| number::shown(column.unit, it));
        let _ = write!(text, " {shown:>7}");
    }
}

/// The roles of rows, in order.
pub(crate) fn roles(rows: &[Row]) -> Vec<Role> {
    let mut roles: Vec<Role> = rows.iter().map(|row| row.role).collect();
    roles.sort_unstable();
    roles.dedup();
    roles
}
