//! The parts of a table that statements can change without a log entry: its identity, its columns
//! with the labels of their enums and the attributes of their composite types, the files of its
//! partitions, and its place in the publication.

use std::collections::BTreeMap;

use super::super::connection::{Connection, literal};
use super::super::failure::Failure;
use crate::source::recheck::TOLD;

/// A recursive query `made`: for each column of a table (`name`) its type (`kind`), and each type
/// (`part`) that its values consist of: itself, the base type of a domain, the elements of an
/// array, the bounds of a range, the columns of a composite.
pub(super) fn types_of(oid: &str) -> String {
    format!(
        "made (name, kind, part) AS (SELECT attname, atttypid, atttypid FROM pg_attribute \
         WHERE attrelid = {oid} AND attnum > 0 AND NOT attisdropped UNION \
         SELECT name, kind, inner_type FROM made JOIN pg_type t ON t.oid = part, LATERAL (\
         VALUES (t.typbasetype), (t.typelem) UNION ALL \
         SELECT rngsubtype FROM pg_range WHERE t.oid IN (rngtypid, rngmultitypid) UNION ALL \
         SELECT atttypid FROM pg_attribute WHERE attrelid = t.typrelid AND attnum > 0 \
         AND NOT attisdropped) inner_types (inner_type) WHERE inner_type <> 0)"
    )
}

/// The parts of a table. A swapped table has another number, as does a column that was dropped and
/// added again. A renamed partition keeps its number. An emptied or rewritten table or partition
/// has another file, which does not matter if the log reports that (`is_told`).
pub(super) async fn of(
    connection: &mut Connection,
    table: &str,
    is_told: bool,
) -> Result<BTreeMap<String, String>, Failure> {
    let Some(class) = class_of(table) else { return Ok(BTreeMap::new()) };
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
    for [number, column] in connection.rows_of(&columns).await? {
        parts.insert(format!("column {number} of table {table}"), column);
    }
    // Renaming a label changes the text of every row that has it.
    let labels = format!(
        "WITH RECURSIVE {} SELECT DISTINCT e.oid::text, enumtypid::regtype::text, enumlabel \
         FROM made JOIN pg_enum e ON enumtypid = part",
        types_of(&class)
    );
    for [number, kind, label] in connection.rows_of(&labels).await? {
        parts.insert(format!("value {number} of type {kind} in table {table}"), label);
    }
    // One part for all attributes of a type, because a new one changes the text of every row, too.
    let types = format!(
        "WITH RECURSIVE {} SELECT t.oid::text, t.oid::regtype::text, coalesce((\
         SELECT string_agg(concat_ws(' ', attnum, attname, format_type(atttypid, atttypmod)), ', ' \
         ORDER BY attnum) FROM pg_attribute \
         WHERE attrelid = typrelid AND attnum > 0 AND NOT attisdropped), '') \
         FROM pg_type t WHERE typrelid <> 0 AND t.oid IN (SELECT part FROM made)",
        types_of(&class)
    );
    for [number, kind, attributes] in connection.rows_of(&types).await? {
        parts.insert(format!("type {kind} ({number}) in table {table}"), attributes);
    }
    // The tree of a table that is no partition and has none is empty.
    let files = format!(
        "SELECT c.oid::text, p.level::text, c.relfilenode::text FROM pg_partition_tree({class}) p \
         JOIN pg_class c ON c.oid = p.relid WHERE p.isleaf UNION \
         SELECT c.oid::text, '0', c.relfilenode::text FROM pg_class c \
         WHERE c.oid = {class} AND c.relkind = 'r'"
    );
    for [number, level, file] in connection.rows_of(&files).await? {
        let name = match level.as_str() {
            "0" => format!("the file of table {table}"),
            _ => format!("partition {number} of table {table}"),
        };
        parts.insert(name, if is_told { TOLD.to_owned() } else { file });
    }
    Ok(parts)
}

/// The rows of the catalogue that publish a table. Their versions differ after a change, even if it
/// was undone before the check; that does not matter if the log reports it (`is_told`).
pub(super) async fn published(
    connection: &mut Connection,
    publication: &str,
    table: &str,
    is_told: bool,
) -> Result<BTreeMap<String, String>, Failure> {
    let Some(class) = class_of(table) else { return Ok(BTreeMap::new()) };
    // PostgreSQL publishes the tables of a schema from 15 on.
    let has_schemas = connection
        .text("SELECT (to_regclass('pg_catalog.pg_publication_namespace') IS NOT NULL)::text");
    let schemas = match has_schemas.await? == "true" {
        true => format!(
            "UNION ALL SELECT 'schema ' || e.oid, e.xmin::text FROM pg_publication_namespace e, p \
             WHERE pnpubid = p.oid AND pnnspid = \
             (SELECT relnamespace FROM pg_class c WHERE c.oid = {class})"
        ),
        false => String::new(),
    };
    let query = format!(
        "WITH p AS (SELECT oid, xmin AS version FROM pg_publication WHERE pubname = {publication}) \
         SELECT 'settings', p.oid || ' ' || p.version FROM p \
         UNION ALL SELECT 'entry ' || e.oid, e.xmin::text FROM pg_publication_rel e, p \
         WHERE prpubid = p.oid AND prrelid IN (SELECT {class} UNION ALL \
         SELECT relid FROM pg_partition_tree({class}) UNION ALL \
         SELECT relid FROM pg_partition_ancestors({class})) {schemas}"
    );
    let rows = connection.rows_of(&query).await?.into_iter();
    let part = |[row, version]: [String; 2]| {
        let version = if is_told { TOLD.to_owned() } else { version };
        (format!("publication of table {table} ({row})"), version)
    };
    Ok(rows.map(part).collect())
}

/// A query for the number of a table.
fn class_of(table: &str) -> Option<String> {
    let (schema, name) = table.split_once('.')?;
    Some(format!(
        "(SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
         WHERE n.nspname = {} AND c.relname = {})",
        literal(schema),
        literal(name)
    ))
}
