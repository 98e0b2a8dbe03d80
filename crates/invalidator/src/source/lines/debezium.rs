//! The events of Debezium, as JSON.
//!
//! ```text
//!     {"before": .., "after": .., "op": "u", "source": {..}}     the event
//!     {"schema": .., "payload": EVENT}                           with the types of its columns
//!     {"topic": .., "partition": 0, "offset": 41, "key": .., "payload": ..}
//!                                            as `kcat -J` writes it, with key and event as text
//! ```
//!
//! An event is incomplete, and the rest is not guessed. An old row may have only its primary key,
//! with other columns empty; a date or a decimal looks like a number or a text without the schema.
//! The operator describes both with [`OldRows`] and [`Schemas`].

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use changes::change::{Cell, Change, Event};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{Debezium, Places, Read, Tables, own, value};
use crate::source::mysql;

/// The columns of old rows that have the database's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OldRows {
    /// The columns of the message's key.
    #[default]
    Key,
    /// All: `REPLICA IDENTITY FULL`, `binlog_row_image=FULL`.
    Full,
}

/// The types of columns in events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Schemas {
    /// They are in each event. An event without them is a gap.
    #[default]
    Required,
    /// They are absent, and no column of a template needs them: all are integers and texts.
    None,
}

/// A message, unwrapped.
#[derive(Debug, Default)]
struct Message {
    /// The columns of the key.
    key: Map<String, Value>,
    /// None for a tombstone, which follows a delete.
    event: Option<Map<String, Value>>,
    /// The schema of the event.
    schema: Option<Value>,
    places: Places,
    /// Why messages before this one are missing.
    missing: Option<String>,
}

/// Reads a line; `before` is the last place read.
pub(super) fn read(
    line: Value,
    settings: Debezium,
    before: &Places,
    tables: &mut Tables,
) -> Result<Read, String> {
    let mut message = unwrap(line, settings, before)?;
    let missing = message.missing.take().map(|why| Event::Gap { why });
    let mut read = Read { places: std::mem::take(&mut message.places), ..Read::default() };
    read.events.extend(missing);
    let Some(event) = message.event.take() else { return Ok(read) };
    if read.places.is_empty()
        && let Some(place) = place(&event)
    {
        read.places.insert(String::new(), place);
    }
    let source = event.get("source").and_then(Value::as_object);
    let ms = |of: &Map<String, Value>| of.get("ts_ms").and_then(Value::as_u64);
    let committed = source.and_then(ms).or_else(|| ms(&event)).unwrap_or_default();
    read.committed_us = committed.saturating_mul(1000);
    read.events.extend(changes(event, &message, settings, tables)?);
    Ok(read)
}

/// The event and key of a line, in any wrapping.
fn unwrap(line: Value, settings: Debezium, before: &Places) -> Result<Message, String> {
    let Value::Object(mut line) = line else { return Err("no object".to_owned()) };
    let mut message = Message::default();
    let text = |line: &Map<String, Value>, name| {
        line.get(name).and_then(Value::as_str).map(ToOwned::to_owned)
    };
    if let Some(topic) = text(&line, "topic") {
        let number = |name| line.get(name).and_then(Value::as_u64);
        let (Some(partition), Some(offset)) = (number("partition"), number("offset")) else {
            return Err("a message of a topic without partition and offset".to_owned());
        };
        let part = format!("{topic}/{partition}");
        let last = before.get(&part).and_then(|last| last.parse::<u64>().ok());
        if let Some(last) = last.filter(|last| !settings.has_holes && offset > last + 1) {
            let first = last + 1;
            message.missing =
                Some(format!("messages {first} to {} of {part} are missing", offset - 1));
        }
        message.places.insert(part, offset.to_string());
        if let Some(key) = line.remove("key") {
            message.key = inside(key)?.and_then(|(key, _)| key).unwrap_or_default();
        }
        if !line.contains_key("payload") {
            return Err("a message of a topic without payload".to_owned());
        }
        let payload = line.remove("payload").unwrap_or_default();
        if let Some((event, schema)) = inside(payload)? {
            (message.event, message.schema) = (event, schema);
        }
        return Ok(message);
    }
    if let Some((event, schema)) = inside(Value::Object(line))? {
        (message.event, message.schema) = (event, schema);
    }
    Ok(message)
}

/// An object, and its schema.
type Inside = (Option<Map<String, Value>>, Option<Value>);

/// An object that may be written as text, and may have a schema; none for null.
fn inside(value: Value) -> Result<Option<Inside>, String> {
    let value = match value {
        Value::String(text) => serde_json::from_str(&text).map_err(|error| error.to_string())?,
        other => other,
    };
    match value {
        Value::Null => Ok(None),
        Value::Object(mut object) if object.contains_key("schema") && object.len() == 2 => {
            let schema = object.remove("schema").filter(|schema| !schema.is_null());
            match object.remove("payload") {
                Some(Value::Object(payload)) => Ok(Some((Some(payload), schema))),
                Some(Value::Null) => Ok(None),
                _ => Err("a schema without payload".to_owned()),
            }
        }
        Value::Object(object) => Ok(Some((Some(object), None))),
        _ => Err("no object".to_owned()),
    }
}

/// The place of an event in its database's log.
fn place(event: &Map<String, Value>) -> Option<String> {
    let source = event.get("source")?.as_object()?;
    let text = |name: &str| match source.get(name)? {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    };
    if let (Some(file), Some(at)) = (text("file"), text("pos")) {
        return Some(text("gtid").unwrap_or_else(|| format!("{file}:{at}")));
    }
    ["lsn", "scn", "change_lsn", "ts_us", "ts_ms"].into_iter().find_map(text)
}

/// The rows, statements and messages of an event.
fn changes(
    mut event: Map<String, Value>,
    message: &Message,
    settings: Debezium,
    tables: &mut Tables,
) -> Result<Vec<Event>, String> {
    let source = event.remove("source");
    let source = source.as_ref().and_then(Value::as_object);
    let text = |of: Option<&Map<String, Value>>, name: &str| {
        of.and_then(|of| of.get(name)).and_then(Value::as_str).map(ToOwned::to_owned)
    };
    if event.contains_key("ddl") || event.contains_key("tableChanges") {
        return Ok(vec![Event::Change(schema_change(&event, source)?)]);
    }
    let Some(op) = text(Some(&event), "op") else { return silent(&event) };
    if op == "m" {
        return logical(&event);
    }
    let schema = text(source, "schema").or_else(|| text(source, "db"));
    let (Some(schema), Some(table)) = (schema, text(source, "table")) else {
        return Err("an event whose source names no table".to_owned());
    };
    let name = format!("{schema}.{table}");
    let mut image = |name: &str| match event.remove(name) {
        Some(Value::Object(row)) => {
            typed(value::row(row), name, message.schema.as_ref(), settings).map(Some)
        }
        None | Some(Value::Null) => Ok(None),
        Some(_) => Err(format!("'{name}' is no row")),
    };
    let (before, after) = (image("before")?, image("after")?);
    let before = match settings.old_rows {
        OldRows::Full => before,
        OldRows::Key => {
            let known = |(column, cell): &(String, Cell)| match message.key.contains_key(column) {
                true => (column.clone(), cell.clone()),
                false => (column.clone(), Cell::Absent),
            };
            // An update never changes the key: Debezium sends a delete and an insert.
            let old = before.as_ref().or_else(|| after.as_ref().filter(|_| op == "u"));
            old.map(|row| row.iter().map(known).collect())
        }
    };
    match (op.as_str(), before, after) {
        ("c" | "r", _, Some(after)) => Ok(vec![row(&name, None, Some(after), tables)]),
        ("u", Some(before), Some(after)) => Ok(vec![row(&name, Some(before), Some(after), tables)]),
        ("d", Some(before), _) => Ok(vec![row(&name, Some(before), None, tables)]),
        ("u" | "d", None, _) => Err(format!(
            "{name}: the event has no old row: set REPLICA IDENTITY FULL or binlog_row_image=FULL"
        )),
        ("t", ..) => Ok(vec![Event::Change(own::emptied(vec![name], "TRUNCATE"))]),
        (op, ..) => Err(format!("an event of kind '{op}' without its row")),
    }
}

fn row(
    name: &str,
    before: Option<Vec<(String, Cell)>>,
    after: Option<Vec<(String, Cell)>>,
    tables: &mut Tables,
) -> Event {
    Event::Change(own::change(name, before, after, tables))
}

/// Heartbeats and the ends of transactions, which change nothing.
fn silent(event: &Map<String, Value>) -> Result<Vec<Event>, String> {
    let is_transaction = event.contains_key("status") && event.contains_key("id");
    let is_heartbeat = event.len() == 1 && event.contains_key("ts_ms");
    if is_transaction || is_heartbeat {
        return Ok(Vec::new());
    }
    Err("no event of Debezium".to_owned())
}

/// A message that the application wrote into PostgreSQL's log.
fn logical(event: &Map<String, Value>) -> Result<Vec<Event>, String> {
    let message = event.get("message").and_then(Value::as_object);
    let text = |name| message.and_then(|it| it.get(name)).and_then(Value::as_str);
    let (Some(prefix), Some(content)) = (text("prefix"), text("content")) else {
        return Err("a message without prefix and content".to_owned());
    };
    let content = STANDARD.decode(content).map_err(|error| error.to_string())?;
    let (prefix, content) = (prefix.to_owned(), Bytes::from(content));
    Ok(vec![Event::Change(Change::Message { prefix, content })])
}

/// A statement that changed tables. Those of MariaDB and MySQL are judged as in their own logs.
fn schema_change(
    event: &Map<String, Value>,
    source: Option<&Map<String, Value>>,
) -> Result<Change, String> {
    let text = |of: Option<&Map<String, Value>>, name: &str| {
        of.and_then(|of| of.get(name)).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let (ddl, connector) = (text(Some(event), "ddl"), text(source, "connector"));
    if connector == "mysql" || connector == "mariadb" {
        let schema = text(Some(event), "databaseName");
        let effect = mysql::effect_of(connector == "mariadb", &schema, &ddl);
        return Ok(Change::Statement { keys: Vec::new(), effect, text: ddl });
    }
    let changed = event.get("tableChanges").and_then(Value::as_array);
    let mut names = Vec::new();
    for change in changed.ok_or("a change of a schema without its tables")? {
        let of = |name| change.get(name).and_then(Value::as_str);
        let (Some(kind), Some(id)) = (of("type"), of("id")) else {
            return Err("a change of a schema without type and table".to_owned());
        };
        // A new table has no keys yet; for the others, the effect on their rows is unknown.
        if kind != "CREATE" {
            let id = id.replace('"', "");
            let mut parts = id.rsplit('.');
            let (table, schema) =
                (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
            names.push(format!("{schema}.{table}"));
        }
    }
    Ok(own::emptied(names, if ddl.is_empty() { "a change of its schema" } else { &ddl }))
}

/// A row whose cells are text if the schema says that they have one.
fn typed(
    row: Vec<(String, Cell)>,
    image: &str,
    schema: Option<&Value>,
    settings: Debezium,
) -> Result<Vec<(String, Cell)>, String> {
    if settings.schemas == Schemas::None {
        return Ok(row);
    }
    let schema = schema.ok_or(
        "the event has no schema, so a date or a decimal cannot be told from a number or a text: \
         set value.converter.schemas.enable=true; or schemas = \"none\" in [source], where every \
         column of the templates is an integer or a text",
    )?;
    let fields = |of: &Value| of.get("fields").and_then(Value::as_array).cloned();
    let named = |field: &Value| field.get("field").and_then(Value::as_str) == Some(image);
    let columns = fields(schema).and_then(|all| all.iter().find(|it| named(it)).and_then(fields));
    let columns =
        columns.ok_or_else(|| format!("the event's schema does not describe '{image}'"))?;
    let types: BTreeMap<&str, bool> = columns
        .iter()
        .filter_map(|column| Some((column.get("field")?.as_str()?, has_one_text(column))))
        .collect();
    let checked = |(column, cell): (String, Cell)| {
        let is_text = types.get(column.as_str()).copied().unwrap_or(false);
        let cell = if is_text || cell == Cell::Null { cell } else { Cell::Unprintable };
        (column, cell)
    };
    Ok(row.into_iter().map(checked).collect())
}

/// The meanings of texts that are also texts in the database.
const TEXTS: [&str; 2] = ["io.debezium.data.Enum", "io.debezium.data.Uuid"];

/// True for a column's type whose values applications write as the event does.
fn has_one_text(column: &Value) -> bool {
    let of = |name| column.get(name).and_then(Value::as_str);
    match (of("type"), of("name")) {
        (Some("int8" | "int16" | "int32" | "int64" | "string"), None) => true,
        (Some("string"), Some(name)) => TEXTS.contains(&name),
        _ => false,
    }
}
