//! Checks that a server's log carries what the rules need, at the start, because what is missing
//! there would not be missed later.

use super::server::{Flavour, Server, cell};
use crate::change::SourceError;
use crate::finding::Finding;
use crate::keys::Rules;

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

/// Everything that is wrong or noteworthy, fatal or not.
pub(super) async fn check(server: &mut Server, rules: &Rules) -> Result<Vec<Finding>, SourceError> {
    let mut findings = settings(server, rules).await?;
    let image = server.text("SELECT @@GLOBAL.binlog_row_image").await?.to_ascii_uppercase();
    for (table, columns) in rules.columns() {
        findings.extend(table_findings(server, table, &columns, &image).await?);
    }
    Ok(findings)
}

async fn settings(server: &mut Server, rules: &Rules) -> Result<Vec<Finding>, SourceError> {
    let mut findings = Vec::new();
    if server.text("SELECT @@GLOBAL.log_bin").await? != "1" {
        findings.push(Finding::fatal("it writes no binary log: set log_bin".to_owned()));
    }
    let replicated = match server.flavour {
        Flavour::MariaDb => server.text("SELECT @@GLOBAL.gtid_slave_pos").await?,
        Flavour::MySql => String::new(),
    };
    if !replicated.is_empty() && server.text("SELECT @@GLOBAL.log_slave_updates").await? == "0" {
        let text = "it is a replica and does not log what it replicates: set log_slave_updates=ON";
        findings.push(Finding::fatal(text.to_owned()));
    }
    let format = server.text("SELECT @@GLOBAL.binlog_format").await?.to_ascii_uppercase();
    if !rules.need_rows() {
        if rules.comments && format == "ROW" && server.flavour == Flavour::MariaDb {
            let text = "binlog_format=ROW drops the comments of statements, where the keys are: use STATEMENT, or an outbox table";
            findings.push(Finding::fatal(text.to_owned()));
        }
        return Ok(findings);
    }
    if format != "ROW" {
        findings.push(Finding::fatal(format!(
            "binlog_format is {format}: tables and the outbox need ROW"
        )));
    }
    let metadata = server.text("SELECT @@GLOBAL.binlog_row_metadata").await?.to_ascii_uppercase();
    if metadata != "FULL" {
        findings.push(Finding::fatal(format!(
            "binlog_row_metadata is {metadata}, so the log has no names of columns: set it to FULL"
        )));
    }
    Ok(findings)
}

async fn table_findings(
    server: &mut Server,
    table: &str,
    columns: &[&str],
    image: &str,
) -> Result<Vec<Finding>, SourceError> {
    let Some((schema, name)) = table.split_once('.') else {
        return Ok(vec![Finding::fatal(format!("table {table}: write it as database.table"))]);
    };
    let (schema, name) = (quote(schema), quote(name));
    let query = format!(
        "SELECT column_name, data_type, column_key, COALESCE(character_set_name, '') FROM information_schema.columns \
         WHERE table_schema = {schema} AND table_name = {name}"
    );
    let there = server.rows(&query).await?;
    if there.is_empty() {
        let text =
            format!("table {table} does not exist, or the user may not see it: GRANT SELECT");
        return Ok(vec![Finding::fatal(text)]);
    }
    let mut findings = Vec::new();
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
        if !["", "utf8mb3", "utf8mb4", "utf8", "ascii", "binary"].contains(&charset.as_str()) {
            findings.push(Finding::fatal(format!(
                "table {table}: column '{column}' is stored in {charset}, so its bytes in the log are not those of the key: use utf8mb4"
            )));
        }
        if image != "FULL" && key != "PRI" {
            findings.push(Finding::fatal(format!(
                "binlog_row_image is {image}: column '{column}' of {table} is not in the primary key, so the log may not carry it; set FULL"
            )));
        }
    }
    findings.extend(cascades(server, table, &schema, &name).await?);
    Ok(findings)
}

/// The storage engine changes rows by itself where a foreign key cascades, and logs nothing of it.
async fn cascades(
    server: &mut Server,
    table: &str,
    schema: &str,
    name: &str,
) -> Result<Vec<Finding>, SourceError> {
    let query = format!(
        "SELECT constraint_name, referenced_table_name FROM information_schema.referential_constraints WHERE constraint_schema = {schema} \
         AND table_name = {name} AND (delete_rule IN ('CASCADE', 'SET NULL', 'SET DEFAULT') OR update_rule IN ('CASCADE', 'SET NULL', \
         'SET DEFAULT'))"
    );
    let one = |row: &mysql_async::Row| {
        Finding::fatal(format!(
            "table {table}: foreign key {} changes rows when {} does, and the binary log does not carry such changes; change them by \
             statements or a trigger",
            cell(row, 0),
            cell(row, 1)
        ))
    };
    Ok(server.rows(&query).await?.iter().map(one).collect())
}

/// A string as SQL writes it.
fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}
