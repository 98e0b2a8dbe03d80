//! The parts of a table that statements change for which the log has nothing: its identity, its
//! columns, and the files of its partitions.

use std::collections::BTreeMap;

use super::super::connection::{Connection, literal};
use super::super::failure::Failure;

/// The parts of a table. A table that was swapped for another has another number, a column that was
/// dropped and added again, too; a partition that was emptied has another file.
pub(super) async fn of(
    connection: &mut Connection,
    table: &str,
) -> Result<BTreeMap<String, String>, Failure> {
    let Some((schema, name)) = table.split_once('.') else { return Ok(BTreeMap::new()) };
    let class = format!(
        "(SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
         WHERE n.nspname = {} AND c.relname = {})",
        literal(schema),
        literal(name)
    );
    let mut parts = BTreeMap::new();
    let number = connection.text(&format!("SELECT {class}::text")).await?;
    if number.is_empty() {
        return Ok(parts);
    }
    parts.insert(format!("table {table}"), number);
    let columns = format!(
        "SELECT attnum::text, attname || ' ' || format_type(atttypid, atttypmod) FROM pg_attribute \
         WHERE attrelid = {class} AND attnum > 0 AND NOT attisdropped"
    );
    for row in connection.rows(&columns).await? {
        parts.insert(format!("column {} of table {table}", row[0]), row[1].clone());
    }
    let partitions = format!(
        "SELECT p.relid::regclass::text, c.relfilenode::text FROM pg_partition_tree({class}) p \
         JOIN pg_class c ON c.oid = p.relid WHERE p.isleaf AND p.level > 0"
    );
    for row in connection.rows(&partitions).await? {
        parts.insert(format!("partition {} of table {table}", row[0]), row[1].clone());
    }
    Ok(parts)
}
