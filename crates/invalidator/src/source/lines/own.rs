//! holdall's own form of a line.
//!
//! ```text
//!     {"keys": ["user:7"], "position": "41"}
//!     {"table": "shop.users", "before": {"id": 7}, "after": null, "position": "42"}
//!     {"emptied": "shop.users"}          all of its rows changed
//!     {"gap": "the reader lost its place"}
//!     {"position": "43"}                 nothing of interest
//! ```

use bytes::Bytes;
use changes::change::{Cell, Change, Effect, Event, Row, Table};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{Places, Read, Tables, value};

use std::sync::Arc;

/// A line as written. Null differs from an absent value.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    position: Option<String>,
    committed_ms: Option<u64>,
    keys: Option<Vec<String>>,
    table: Option<String>,
    #[serde(default, deserialize_with = "there")]
    before: Option<Option<Map<String, Value>>>,
    #[serde(default, deserialize_with = "there")]
    after: Option<Option<Map<String, Value>>>,
    emptied: Option<String>,
    gap: Option<String>,
}

fn there<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Option<Map<String, Value>>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

/// Reads a line.
pub(super) fn read(value: Value, tables: &mut Tables) -> Result<Read, String> {
    let line: Line = serde_json::from_value(value).map_err(|error| error.to_string())?;
    let mut events = Vec::new();
    if let Some(keys) = line.keys {
        let keys = keys.into_iter().map(Bytes::from).collect();
        events.push(Event::Change(Change::Keys(keys)));
    }
    match (line.table, line.before, line.after) {
        (Some(table), Some(before), Some(after)) => {
            if before.is_none() && after.is_none() {
                return Err("a row without before and after".to_owned());
            }
            let change = change(&table, before.map(value::row), after.map(value::row), tables);
            events.push(Event::Change(change));
        }
        (Some(_), ..) => {
            return Err(
                "before and after must both be there, and null where there is none".to_owned()
            );
        }
        (None, None, None) => {}
        (None, ..) => return Err("a row without its table".to_owned()),
    }
    if let Some(table) = line.emptied {
        events.push(Event::Change(emptied(vec![table], "emptied")));
    }
    if let Some(why) = line.gap {
        events.push(Event::Gap { why: format!("the sender said: {why}") });
    }
    let places = line.position.map(|place| (String::new(), place)).into_iter().collect::<Places>();
    let committed_us = line.committed_ms.unwrap_or_default().saturating_mul(1000);
    Ok(Read { events, places, committed_us })
}

/// A change of a row, whose images may have different columns.
pub(super) fn change(
    name: &str,
    before: Option<Vec<(String, Cell)>>,
    after: Option<Vec<(String, Cell)>>,
    tables: &mut Tables,
) -> Change {
    let mut columns: Vec<String> =
        before.iter().chain(&after).flatten().map(|(column, _)| column.clone()).collect();
    columns.sort_unstable();
    columns.dedup();
    let table = tables.of(name, columns);
    let row = |image: Vec<(String, Cell)>| in_order(image, &table);
    let (before, after) = (before.map(row), after.map(row));
    Change::Row { table: Arc::clone(&table), before, after }
}

fn in_order(image: Vec<(String, Cell)>, table: &Table) -> Row {
    let mut row = vec![Cell::Absent; table.columns.len()];
    for (column, cell) in image {
        if let Ok(at) = table.columns.binary_search(&column) {
            row[at] = cell;
        }
    }
    row
}

/// All rows of tables changed.
pub(super) fn emptied(tables: Vec<String>, text: &str) -> Change {
    let (keys, effect) = (Vec::new(), Effect::Tables(tables));
    Change::Statement { keys, effect, text: text.to_owned() }
}
