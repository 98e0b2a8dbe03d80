//! Checks of one table: the log has its rows, and its columns as queries give them.

use super::super::server::{Flavour, Server, cell};
use super::super::setup::quoted;
use super::super::{UnloggedCascades, statement};
use super::shifted;
use crate::change_source::SourceError;
use crate::finding::Finding;

/// Types whose row image has one text, the same as an application sees.
const TEXT_TYPES: [&str; 18] = [
    "tinyint",
    "smallint",
    "mediumint",
    "int",
    "bigint",
    "decimal",
    "char",
    "varchar",
    "tinytext",
    "text",
    "mediumtext",
    "longtext",
    "varbinary",
    "tinyblob",
    "blob",
    "mediumblob",
    "longblob",
    "date",
];

/// All faults of a table whose columns the rules use.
pub(super) async fn check(
    server: &mut Server,
    table: &str,
    columns: &[&str],
    image: &str,
    is_outbox: bool,
) -> Result<Vec<Finding>, SourceError> {
    let Some((schema, name)) = table.split_once('.') else {
        return Ok(vec![Finding::fatal(format!("table {table}: write it as database.table"))]);
    };
    let (schema, name) = (quote(schema), quote(name));
    let mut findings = kind(server, table, &schema, &name, is_outbox).await?;
    let query = format!(
        "SELECT column_name, data_type, column_key, COALESCE(character_set_name, ''), column_type, \
         column_default IS NOT NULL FROM information_schema.columns WHERE table_schema = {schema} AND table_name = {name} ORDER BY ordinal_position"
    );
    let there = server.rows(&query).await?;
    if there.is_empty() {
        let text =
            format!("table {table} does not exist, or the user may not see it: GRANT SELECT");
        return Ok(vec![Finding::fatal(text)]);
    }
    findings.extend(there.iter().filter(|row| is_compressed(row)).map(|row| {
        Finding::fatal(format!(
            "table {table}: column '{}' is COMPRESSED, and the rows of such tables cannot be read in the log",
            cell(row, 0)
        ))
    }));
    findings.extend(shifted::columns(table, &there));
    if server.flavour == Flavour::MySql && server.version < shifted::YEAR_COUNTS {
        findings.extend(shifted::signs(table, columns, &there));
    }
    for column in columns {
        let Some(row) = there.iter().find(|row| cell(row, 0) == *column) else {
            findings.push(Finding::fatal(format!("table {table} has no column '{column}'")));
            continue;
        };
        let (kind, key, charset) = (cell(row, 1).to_ascii_lowercase(), cell(row, 2), cell(row, 3));
        if !TEXT_TYPES.contains(&kind.as_str()) {
            findings.push(Finding::fatal(format!(
                "table {table}: column '{column}' is a {kind}, which the log carries in another form than queries give it; usable are {}",
                TEXT_TYPES.join(", ")
            )));
        }
        if cell(row, 4).to_ascii_lowercase().contains("zerofill") {
            findings.push(Finding::fatal(format!(
                "table {table}: column '{column}' is ZEROFILL, and the log has its numbers without the zeros"
            )));
        }
        if !["", "utf8mb3", "utf8mb4", "utf8", "ascii", "binary"].contains(&charset.as_str()) {
            findings.push(Finding::fatal(format!(
                "table {table}: column '{column}' is stored in {charset}, so its bytes in the log are not those of the key: use utf8mb4"
            )));
        }
        if image != "FULL" && key != "PRI" {
            findings.push(Finding::fatal(format!(
                "binlog_row_image is {image}: column '{column}' of {table} is not in the primary key, so the log may not carry it; set FULL"
            )));
        } else if image == "MINIMAL" && cell(row, 5) == "1" {
            findings.push(Finding::fatal(format!(
                "binlog_row_image is {image}: column '{column}' of {table} has a default, and the log does not carry it in a row that \
                 was inserted without it; set FULL"
            )));
        }
    }
    Ok(findings)
}

/// True for a column in MariaDB's compressed form of texts: `varchar(200) /*M!100301 COMPRESSED*/`.
fn is_compressed(row: &mysql_async::Row) -> bool {
    let is_text = ["char", "text", "binary", "blob"].iter().any(|kind| cell(row, 1).contains(kind));
    is_text && cell(row, 4).to_ascii_uppercase().ends_with("COMPRESSED*/")
}

/// Names and kinds of tables whose rows the log has under another name, or not at all.
async fn kind(
    server: &mut Server,
    table: &str,
    schema: &str,
    name: &str,
    is_outbox: bool,
) -> Result<Vec<Finding>, SourceError> {
    let query = format!(
        "SELECT CONCAT(table_schema, '.', table_name), table_type, COALESCE(engine, '') FROM information_schema.tables \
         WHERE table_schema = {schema} AND table_name = {name}"
    );
    let Some(row) = server.rows(&query).await?.into_iter().next() else { return Ok(Vec::new()) };
    let (logged, kind, engine) = (cell(&row, 0), cell(&row, 1), cell(&row, 2));
    let mut findings = Vec::new();
    if logged != table {
        findings.push(Finding::fatal(format!(
            "table {table}: the log has it as {logged}; write it so"
        )));
    }
    if !["BASE TABLE", "SYSTEM VERSIONED"].contains(&kind.as_str()) {
        findings.push(Finding::fatal(format!(
            "table {table} is a {kind}, and the log has the rows of base tables alone"
        )));
    }
    let is_elsewhere = ["MRG_MYISAM", "FEDERATED", "CONNECT", "SPIDER", "NDBCLUSTER"]
        .contains(&engine.to_ascii_uppercase().as_str());
    if is_elsewhere || engine.eq_ignore_ascii_case("BLACKHOLE") && !is_outbox {
        findings.push(Finding::fatal(format!(
            "table {table} is of engine {engine}, which keeps its rows elsewhere or nowhere"
        )));
    }
    Ok(findings)
}

/// The changes of rows by foreign keys.
#[derive(Debug, Clone, Copy)]
pub(super) enum Cascades {
    /// They are not in the log.
    Unlogged(UnloggedCascades),
    /// A replica logs them if its primary does.
    AsOfPrimary,
}

/// The foreign keys that change rows of the table without a trace in the log.
pub(super) async fn cascades(
    server: &mut Server,
    table: &str,
    cascades: Cascades,
) -> Result<Vec<Finding>, SourceError> {
    let Some((schema, name)) = table.split_once('.') else { return Ok(Vec::new()) };
    let found = match server.flavour {
        Flavour::MariaDb => described_cascades(server, table, schema, name).await?,
        Flavour::MySql => listed_cascades(server, schema, name).await?,
    };
    let one = |(key, parent): (String, String)| {
        let what = format!("table {table}: foreign key {key} changes rows when {parent} does");
        let what = match cascades {
            Cascades::Unlogged(_) => {
                format!("{what}, and the binary log does not carry such changes")
            }
            Cascades::AsOfPrimary => format!(
                "{what}, and the binary log of this replica carries such changes only if its primary is a MySQL from 9.6 on with \
                 innodb_native_foreign_keys=OFF"
            ),
        };
        match cascades {
            Cascades::Unlogged(UnloggedCascades::Refuse) => Finding::fatal(format!(
                "{what}; change them by statements or a trigger, or set unlogged_cascades = \"accept\" in [source] if their keys may \
                 be old"
            )),
            Cascades::Unlogged(UnloggedCascades::Accept) => {
                Finding::note(format!("{what}: their keys may be old"))
            }
            Cascades::AsOfPrimary => Finding::note(what),
        }
    };
    Ok(found.into_iter().map(one).collect())
}

/// MySQL's foreign keys that change rows: the name of each, and its parent's.
async fn listed_cascades(
    server: &mut Server,
    schema: &str,
    name: &str,
) -> Result<Vec<(String, String)>, SourceError> {
    let (schema, name) = (quote(schema), quote(name));
    let query = format!(
        "SELECT constraint_name, referenced_table_name FROM information_schema.referential_constraints WHERE constraint_schema = {schema} \
         AND table_name = {name} AND (delete_rule IN ('CASCADE', 'SET NULL', 'SET DEFAULT') OR update_rule IN ('CASCADE', 'SET NULL', \
         'SET DEFAULT'))"
    );
    let rows = server.rows(&query).await?;
    Ok(rows.iter().map(|row| (cell(row, 0), cell(row, 1))).collect())
}

/// MariaDB's foreign keys that change rows. It lists them only for users with more rights than
/// reading the table, but describes the table to everyone who may read it.
async fn described_cascades(
    server: &mut Server,
    table: &str,
    schema: &str,
    name: &str,
) -> Result<Vec<(String, String)>, SourceError> {
    let query = format!(
        "SELECT 1 FROM information_schema.tables WHERE table_schema = {} AND table_name = {} \
         AND table_type IN ('BASE TABLE', 'SYSTEM VERSIONED')",
        quote(schema),
        quote(name)
    );
    if server.rows(&query).await?.is_empty() {
        return Ok(Vec::new());
    }
    // Otherwise names have no quotes, or those of strings.
    server.set("SET SESSION sql_mode = '', sql_quote_show_create = 1").await?;
    let rows = server.rows(&format!("SHOW CREATE TABLE {}", quoted(table))).await?;
    let text = rows.first().map(|row| cell(row, 1)).unwrap_or_default();
    Ok(statement::cascades(schema, &text))
}

/// A string as SQL writes it.
fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}
