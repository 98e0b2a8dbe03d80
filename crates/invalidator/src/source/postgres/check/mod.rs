//! Checks that a server's log carries what the rules need.

mod parts;

use super::connection::{Connection, literal};
use super::failure::Failure;
use super::settings::Settings;
use crate::finding::Finding;
use crate::keys::Rules;
use crate::source::recheck::Checked;

/// Everything that is wrong, fatal or not.
pub(super) async fn check(
    connection: &mut Connection,
    settings: &Settings,
    rules: &Rules,
) -> Result<Checked, Failure> {
    let mut checked = Checked::default();
    let findings = &mut checked.findings;
    let level = connection.text("SHOW wal_level").await?;
    if level != "logical" {
        findings.push(Finding::fatal(format!("wal_level is {level}: set it to logical")));
    }
    let publication = literal(&settings.publication);
    let query = format!(
        "SELECT pubinsert::text, pubupdate::text, pubdelete::text, pubtruncate::text \
         FROM pg_publication WHERE pubname = {publication}"
    );
    let publishes = connection.rows(&query).await?;
    let Some(publishes) = publishes.first() else {
        findings.push(Finding::fatal(format!(
            "there is no publication {0}: CREATE PUBLICATION {0} FOR TABLE ..",
            settings.publication
        )));
        return Ok(checked);
    };
    if publishes.iter().any(|one| one != "true") {
        findings.push(Finding::fatal(format!(
            "publication {} leaves out inserts, updates, deletes or truncates",
            settings.publication
        )));
    }
    let mut asking = Asking { connection, publication };
    for (table, columns) in rules.columns() {
        let is_outbox = rules.outbox.as_ref().is_some_and(|outbox| outbox.table == table)
            && !rules.tables.contains_key(table);
        if rules.is_canary(table) {
            // Its old rows do not matter, nor what it is made of.
            let found = asking.table(table, &columns, true).await?;
            findings.extend(found.into_iter().map(|finding| finding.of_canary(table)));
            continue;
        }
        findings.extend(asking.table(table, &columns, is_outbox).await?);
        checked.parts.extend(parts::of(asking.connection, table).await?);
    }
    Ok(checked)
}

/// Types whose text depends on settings, or is another one in most languages.
const OTHER_TEXTS: &str = "'bool', 'float4', 'float8', 'timestamp', 'timestamptz', 'timetz', 'interval', 'bytea', 'money'";

struct Asking<'c> {
    connection: &'c mut Connection,
    /// The publication's name as SQL writes it.
    publication: String,
}

impl Asking<'_> {
    async fn table(
        &mut self,
        table: &str,
        columns: &[&str],
        is_outbox: bool,
    ) -> Result<Vec<Finding>, Failure> {
        let Some((schema, name)) = table.split_once('.') else {
            return Ok(vec![Finding::fatal(format!("table {table}: write it as schema.table"))]);
        };
        let (schema, name) = (literal(schema), literal(name));
        let mut findings = Vec::new();
        let query = format!(
            "SELECT c.oid::text, c.relreplident::text \
             FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
             WHERE n.nspname = {schema} AND c.relname = {name}"
        );
        let class = self.connection.rows(&query).await?;
        let Some(class) = class.first() else {
            return Ok(vec![Finding::fatal(format!("table {table} does not exist"))]);
        };
        let (oid, identity) = (&class[0], class[1].as_str());
        let publication = &self.publication;
        let query = format!(
            "SELECT COALESCE(rowfilter, ''), attnames::text FROM pg_publication_tables \
             WHERE pubname = {publication} AND schemaname = {schema} AND tablename = {name}"
        );
        let published = self.connection.rows(&query).await?;
        match published.first() {
            None => findings
                .push(Finding::fatal(format!("table {table} is not in publication {publication}"))),
            Some(row) if !row[0].is_empty() => {
                findings.push(Finding::fatal(format!(
                    "publication {publication} filters rows of {table}"
                )));
            }
            Some(row) => {
                let listed: Vec<&str> = row[1]
                    .trim_matches(['{', '}'])
                    .split(',')
                    .map(|name| name.trim_matches('"'))
                    .collect();
                let hidden = columns.iter().filter(|column| !listed.contains(column));
                findings.extend(hidden.map(|column| {
                    Finding::fatal(format!(
                        "table {table} has no column '{column}', or the publication leaves it out"
                    ))
                }));
            }
        }
        findings.extend(self.types(table, columns, oid).await?);
        if !is_outbox {
            findings.extend(self.old_values(table, columns, oid, identity).await?);
        }
        Ok(findings)
    }

    /// Columns whose text in the log may be another than what applications make of their values.
    async fn types(
        &mut self,
        table: &str,
        columns: &[&str],
        oid: &str,
    ) -> Result<Vec<Finding>, Failure> {
        let query = format!(
            "SELECT a.attname, t.typname FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid \
             WHERE a.attrelid = {oid} AND t.typname IN ({OTHER_TEXTS})"
        );
        let others = self.connection.rows(&query).await?;
        let others = others.into_iter().filter(|row| columns.contains(&row[0].as_str()));
        let finding = |row: Vec<String>| {
            let (column, kind) = (&row[0], &row[1]);
            Finding::fatal(format!(
                "table {table}: column '{column}' is a {kind}, whose text in the log is not what applications make of it"
            ))
        };
        Ok(others.map(finding).collect())
    }

    /// The columns whose old values are not logged.
    async fn old_values(
        &mut self,
        table: &str,
        columns: &[&str],
        oid: &str,
        identity: &str,
    ) -> Result<Vec<Finding>, Failure> {
        let logged = match identity {
            "f" => return Ok(Vec::new()),
            "d" => "i.indisprimary",
            "i" => "i.indisreplident",
            _ => "false",
        };
        let query = format!(
            "SELECT a.attname FROM pg_index i \
             JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey) \
             WHERE i.indrelid = {oid} AND {logged}"
        );
        let identifying = self.connection.rows(&query).await?;
        let lacks =
            columns.iter().filter(|column| !identifying.iter().any(|row| row[0] == **column));
        let finding = |column: &&str| {
            Finding::fatal(format!(
                "table {table}: old values of column '{column}' are not logged: ALTER TABLE {table} REPLICA IDENTITY FULL"
            ))
        };
        Ok(lacks.map(finding).collect())
    }
}
