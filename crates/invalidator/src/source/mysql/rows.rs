//! Row images: from the binary log's tables and rows to ours.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use mysql_async::Value;
use mysql_async::binlog::events::{Event, OptionalMetaExtractor, RowsEventData, TableMapEvent};
use mysql_async::binlog::row::BinlogRow;
use mysql_async::binlog::value::BinlogValue;
use mysql_async::consts::ColumnType;

use crate::change::{Cell, Change, Row, Table};
use crate::keys::Rules;

/// The tables of the log that rules look at.
#[derive(Debug)]
pub(super) struct Rows {
    wanted: BTreeSet<String>,
    /// By the log's number of the table: its description as last seen, and ours if it is wanted.
    tables: HashMap<u64, (Vec<u8>, Option<Arc<Table>>)>,
}

/// Descriptions kept at once. The log repeats them before each statement's rows, so forgetting one
/// costs only time.
const TABLES_MAX: usize = 4096;

impl Rows {
    pub(super) fn new(rules: &Rules) -> Self {
        let wanted = rules.columns().keys().map(ToString::to_string).collect();
        Self { wanted, tables: HashMap::new() }
    }

    /// Notes a table's description.
    pub(super) fn describe(&mut self, event: &Event, table: &TableMapEvent<'_>) -> io::Result<()> {
        if self.tables.get(&table.table_id()).is_some_and(|(data, _)| data == event.data()) {
            return Ok(());
        }
        let name = format!("{}.{}", table.database_name(), table.table_name());
        let ours = if self.wanted.contains(&name) {
            let columns = columns(table)?;
            Some(Arc::new(Table { name, columns }))
        } else {
            None
        };
        if self.tables.len() >= TABLES_MAX {
            self.tables.clear();
        }
        self.tables.insert(table.table_id(), (event.data().to_vec(), ours));
        Ok(())
    }

    /// Calls `found` with every change of a wanted table.
    pub(super) fn changes(
        &self,
        rows: &RowsEventData<'_>,
        described: Option<&TableMapEvent<'_>>,
        mut found: impl FnMut(Change),
    ) -> io::Result<()> {
        let known = self.tables.get(&rows.table_id());
        let (Some((_, ours)), Some(described)) = (known, described) else {
            // Without rows it is the mark that ends a statement.
            if rows.rows_data().is_empty() {
                return Ok(());
            }
            return Err(io::Error::other(format!(
                "rows of table number {}, which was not described",
                rows.table_id()
            )));
        };
        let Some(table) = ours else { return Ok(()) };
        for row in rows.rows(described) {
            let (before, after) = row?;
            let image = |row: Option<BinlogRow>| row.map(|row| cells(table, &row));
            found(Change::Row {
                table: Arc::clone(table),
                before: image(before),
                after: image(after),
            });
        }
        Ok(())
    }
}

/// Names of columns, which are there with `binlog_row_metadata=FULL` alone.
fn columns(table: &TableMapEvent<'_>) -> io::Result<Vec<String>> {
    let metadata = OptionalMetaExtractor::new(table.iter_optional_meta())?;
    let names = metadata.iter_column_name().map(|name| name.map(|name| name.name().into_owned()));
    let names: Vec<String> = names.collect::<io::Result<_>>()?;
    if names.len() as u64 != table.columns_count() {
        return Err(io::Error::other(format!(
            "table {}.{} is logged without names of columns: set binlog_row_metadata=FULL",
            table.database_name(),
            table.table_name()
        )));
    }
    Ok(names)
}

/// The cells in the order of the table; an image may leave columns out.
fn cells(table: &Table, row: &BinlogRow) -> Row {
    let columns = row.columns_ref();
    if columns.len() == table.columns.len() {
        return (0..columns.len())
            .map(|at| text(columns[at].column_type(), row.as_ref(at)))
            .collect();
    }
    let mut present = 0;
    let cell = |name: &String| {
        let Some(column) = columns.get(present) else { return Cell::Absent };
        if column.name_ref() != name.as_bytes() {
            return Cell::Absent;
        }
        present += 1;
        text(column.column_type(), row.as_ref(present - 1))
    };
    table.columns.iter().map(cell).collect()
}

/// A value as queries give it, where its form in the log has one text.
fn text(kind: ColumnType, value: Option<&BinlogValue<'_>>) -> Cell {
    let value = match value {
        Some(BinlogValue::Value(value)) => value,
        Some(_) => return Cell::Unprintable,
        None => return Cell::Absent,
    };
    let is_text = matches!(
        kind,
        ColumnType::MYSQL_TYPE_VARCHAR
            | ColumnType::MYSQL_TYPE_VAR_STRING
            | ColumnType::MYSQL_TYPE_STRING
            | ColumnType::MYSQL_TYPE_TINY_BLOB
            | ColumnType::MYSQL_TYPE_BLOB
            | ColumnType::MYSQL_TYPE_MEDIUM_BLOB
            | ColumnType::MYSQL_TYPE_LONG_BLOB
            | ColumnType::MYSQL_TYPE_NEWDECIMAL
    );
    match value {
        Value::NULL => Cell::Null,
        Value::Int(number) if kind.is_numeric_type() => Cell::Text(Bytes::from(number.to_string())),
        Value::UInt(number) if kind.is_numeric_type() => {
            Cell::Text(Bytes::from(number.to_string()))
        }
        Value::Bytes(bytes) if is_text => Cell::Text(Bytes::copy_from_slice(bytes)),
        Value::Date(year, month, day, 0, 0, 0, 0)
            if kind == ColumnType::MYSQL_TYPE_DATE || kind == ColumnType::MYSQL_TYPE_NEWDATE =>
        {
            Cell::Text(Bytes::from(format!("{year:04}-{month:02}-{day:02}")))
        }
        _ => Cell::Unprintable,
    }
}
