//! Values of JSON as cells of a row.

use bytes::Bytes;
use changes::change::Cell;
use serde_json::{Map, Value};

/// A row as an object: its columns in the order of their names, and their cells.
pub(super) fn row(object: Map<String, Value>) -> Vec<(String, Cell)> {
    object.into_iter().map(|(column, value)| (column, cell(value))).collect()
}

/// Strings and integers have one text. Fractions, booleans and composite values do not.
fn cell(value: Value) -> Cell {
    match value {
        Value::Null => Cell::Null,
        Value::String(text) => Cell::Text(Bytes::from(text)),
        Value::Number(number) if number.is_i64() || number.is_u64() => {
            Cell::Text(Bytes::from(number.to_string()))
        }
        Value::Number(_) | Value::Bool(_) | Value::Array(_) | Value::Object(_) => Cell::Unprintable,
    }
}
