//! Checks that a server's log carries what the rules need.

use pg_walstream::PgReplicationConnection;

use super::{Settings, refused};
use crate::change::SourceError;
use crate::finding::Finding;
use crate::keys::Rules;

/// Everything that is wrong, fatal or not.
pub(super) fn check(
    connection: &mut PgReplicationConnection,
    settings: &Settings,
    rules: &Rules,
) -> Result<Vec<Finding>, SourceError> {
    let mut asking = Asking { connection, settings };
    let mut findings = Vec::new();
    let level = asking.one("SHOW wal_level")?;
    if level != "logical" {
        findings.push(Finding::fatal(format!("wal_level is {level}: set it to logical")));
    }
    let publication = quote(&settings.publication);
    let publishes = asking.rows(
        &format!(
            "SELECT pubinsert::text, pubupdate::text, pubdelete::text, pubtruncate::text FROM pg_publication WHERE pubname = {publication}"
        ),
        4,
    )?;
    let Some(publishes) = publishes.first() else {
        findings.push(Finding::fatal(format!(
            "there is no publication {0}: CREATE PUBLICATION {0} FOR TABLE ..",
            settings.publication
        )));
        return Ok(findings);
    };
    if publishes.iter().any(|one| one != "true") {
        findings.push(Finding::fatal(format!(
            "publication {} leaves out inserts, updates, deletes or truncates",
            settings.publication
        )));
    }
    for (table, columns) in rules.columns() {
        let is_outbox = rules.outbox.as_ref().is_some_and(|outbox| outbox.table == table)
            && !rules.tables.contains_key(table);
        findings.extend(asking.table(table, &columns, is_outbox)?);
    }
    Ok(findings)
}

struct Asking<'c> {
    connection: &'c mut PgReplicationConnection,
    settings: &'c Settings,
}

impl Asking<'_> {
    fn rows(&mut self, query: &str, columns: i32) -> Result<Vec<Vec<String>>, SourceError> {
        let found = self.connection.exec(query).map_err(|error| refused("query", &error))?;
        let row = |at| {
            (0..columns).map(|column| found.get_value(at, column).unwrap_or_default()).collect()
        };
        Ok((0..found.ntuples()).map(row).collect())
    }

    fn one(&mut self, query: &str) -> Result<String, SourceError> {
        let rows = self.rows(query, 1)?;
        Ok(rows.into_iter().flatten().next().unwrap_or_default())
    }

    fn table(
        &mut self,
        table: &str,
        columns: &[&str],
        is_outbox: bool,
    ) -> Result<Vec<Finding>, SourceError> {
        let Some((schema, name)) = table.split_once('.') else {
            return Ok(vec![Finding::fatal(format!("table {table}: write it as schema.table"))]);
        };
        let (schema, name) = (quote(schema), quote(name));
        let mut findings = Vec::new();
        let class = self.rows(
            &format!(
                "SELECT c.oid::text, c.relreplident::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
                 WHERE n.nspname = {schema} AND c.relname = {name}"
            ),
            2,
        )?;
        let Some(class) = class.first() else {
            return Ok(vec![Finding::fatal(format!("table {table} does not exist"))]);
        };
        let (oid, identity) = (&class[0], class[1].as_str());
        let published = self.rows(
            &format!(
                "SELECT COALESCE(rowfilter, ''), attnames::text FROM pg_publication_tables WHERE pubname = {} AND schemaname = {schema} \
                 AND tablename = {name}",
                quote(&self.settings.publication)
            ),
            2,
        )?;
        match published.first() {
            None => findings.push(Finding::fatal(format!(
                "table {table} is not in publication {}",
                self.settings.publication
            ))),
            Some(row) if !row[0].is_empty() => {
                findings.push(Finding::fatal(format!(
                    "publication {} filters rows of {table}",
                    self.settings.publication
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
        if !is_outbox {
            findings.extend(self.old_values(table, columns, oid, identity)?);
        }
        Ok(findings)
    }

    /// The columns whose old values are not logged.
    fn old_values(
        &mut self,
        table: &str,
        columns: &[&str],
        oid: &str,
        identity: &str,
    ) -> Result<Vec<Finding>, SourceError> {
        let logged = match identity {
            "f" => return Ok(Vec::new()),
            "d" => "i.indisprimary",
            "i" => "i.indisreplident",
            _ => "false",
        };
        let identifying = self.rows(
            &format!(
                "SELECT a.attname FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey) \
                 WHERE i.indrelid = {oid} AND {logged}"
            ),
            1,
        )?;
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

/// A string as SQL writes it.
fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}
