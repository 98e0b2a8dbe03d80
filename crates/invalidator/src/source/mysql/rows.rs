//! Row images: from the binary log's tables and rows to holdall's.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use changes::change::{Cell, Change, Row, Table};
use changes::keys::Rules;
use mysql_async::binlog::events::{Event, OptionalMetaExtractor, RowsEventData, TableMapEvent};
use mysql_async::binlog::row::BinlogRow;
use mysql_async::binlog::value::BinlogValue;
use mysql_async::consts::{ColumnFlags, ColumnType};
use mysql_async::{Column, Value};

/// The tables of the log that the rules use.
#[derive(Debug)]
pub(super) struct Rows {
    wanted: BTreeSet<String>,
    /// Tables whose rows are keys themselves: those of the outbox and the canary.
    of_keys: Vec<String>,
    /// By the log's number of the table: its last description, and ours if the table is wanted.
    tables: HashMap<u64, (Vec<u8>, Option<Arc<Table>>)>,
    has_new_table: bool,
}

/// Descriptions kept from one transaction to the next. The log repeats them before each statement's
/// rows, so forgetting them between transactions costs only time.
const TABLES_MAX: usize = 4096;

impl Rows {
    pub(super) fn new(rules: &Rules) -> Self {
        let wanted = rules.columns().keys().map(ToString::to_string).collect();
        let outbox = rules.outbox.as_ref().map(|outbox| outbox.table.clone());
        let canary = rules.canary.as_ref().and_then(|canary| canary.table.clone());
        let of_keys = outbox.into_iter().chain(canary).collect();
        Self { wanted, of_keys, tables: HashMap::new(), has_new_table: false }
    }

    /// True once after the description of a wanted table changed.
    pub(super) const fn has_new_table(&mut self) -> bool {
        std::mem::replace(&mut self.has_new_table, false)
    }

    /// True for the number of a table whose rows count without the comments of their statement.
    pub(super) fn need_no_text(&self, number: u64) -> bool {
        let described = self.tables.get(&number).and_then(|(_, ours)| ours.as_ref());
        described.is_some_and(|table| self.of_keys.contains(&table.name))
    }

    /// A transaction starts.
    pub(super) fn begin(&mut self) {
        if self.tables.len() >= TABLES_MAX {
            self.tables.clear();
        }
    }

    /// Records a table's description.
    pub(super) fn describe(&mut self, event: &Event, table: &TableMapEvent<'_>) -> io::Result<()> {
        if self.tables.get(&table.table_id()).is_some_and(|(data, _)| data == event.data()) {
            return Ok(());
        }
        let name = format!("{}.{}", table.database_name(), table.table_name());
        let ours = if self.wanted.contains(&name) {
            self.has_new_table = true;
            let columns = columns(table)?;
            Some(Arc::new(Table { name, columns }))
        } else {
            None
        };
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
            // An event without rows is the mark that ends a statement.
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

/// Names of columns, which are present only with `binlog_row_metadata=FULL`.
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

/// The cells in the order of the table; an image may omit columns.
fn cells(table: &Table, row: &BinlogRow) -> Row {
    let columns = row.columns_ref();
    if columns.len() == table.columns.len() {
        return (0..columns.len()).map(|at| text(&columns[at], row.as_ref(at))).collect();
    }
    let mut present = 0;
    let cell = |name: &String| {
        let Some(column) = columns.get(present) else { return Cell::Absent };
        if column.name_ref() != name.as_bytes() {
            return Cell::Absent;
        }
        present += 1;
        text(column, row.as_ref(present - 1))
    };
    table.columns.iter().map(cell).collect()
}

/// A value as queries return it, if its form in the log has one text.
fn text(column: &Column, value: Option<&BinlogValue<'_>>) -> Cell {
    let kind = column.column_type();
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
        Value::Int(number) if kind.is_numeric_type() => {
            Cell::Text(Bytes::from(signed(column, *number).to_string()))
        }
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

/// The number of a column. The library reads the three bytes of a MEDIUMINT without their sign.
fn signed(column: &Column, number: i64) -> i64 {
    let is_negative = column.column_type() == ColumnType::MYSQL_TYPE_INT24
        && !column.flags().contains(ColumnFlags::UNSIGNED_FLAG)
        && number >= 1 << 23;
    if is_negative { number - (1 << 24) } else { number }
}

#[cfg(test)]
mod tests {
    use mysql_async::binlog::events::EventData;

    use super::*;
    use crate::source::mysql::event_type;

    /// The description of a table `s.t` of one number column.
    fn described(rows: &mut Rows, number: u32) {
        let mut body = number.to_le_bytes().to_vec();
        body.extend_from_slice(&[0; 4]);
        body.extend_from_slice(b"\x01s\0\x01t\0");
        body.extend_from_slice(&[1, 3, 0, 0]);
        let event = event_type::event(event_type::TABLE_MAP, 100, &body);
        let Ok(Some(EventData::TableMapEvent(table))) = event.read_data() else { panic!() };
        rows.describe(&event, &table).unwrap();
    }

    #[test]
    fn a_mediumint_is_signed_like_its_column() {
        let signed = Column::new(ColumnType::MYSQL_TYPE_INT24);
        let unsigned = signed.clone().with_flags(ColumnFlags::UNSIGNED_FLAG);
        for (column, read, expected) in [
            (&signed, 0xff_ffff, "-1"),
            (&signed, 0x80_0000, "-8388608"),
            (&signed, 0x7f_ffff, "8388607"),
            (&signed, -1, "-1"),
            (&unsigned, 0xff_ffff, "16777215"),
            (&unsigned, 0x80_0000, "8388608"),
        ] {
            let cell = text(column, Some(&BinlogValue::Value(Value::Int(read))));
            assert_eq!(cell, Cell::Text(Bytes::from(expected)), "{read}");
        }
    }

    #[test]
    fn table_maps_are_dropped_only_between_transactions() {
        let mut rows = Rows::new(&Rules::default());
        let count = u32::try_from(TABLES_MAX).unwrap() + 100;
        (0..count).for_each(|number| described(&mut rows, number));
        assert!((0..count).all(|number| rows.tables.contains_key(&u64::from(number))));
        rows.begin();
        assert_eq!(rows.tables.len(), 0);
    }
}
