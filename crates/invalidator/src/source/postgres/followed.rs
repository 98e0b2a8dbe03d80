//! The relations that hold rows of wanted tables: the tables themselves, and partitions, whose
//! changes the log may have under their own names.
//!
//! The log has a relation's name of that time, and the catalogue its current one. Renaming it, or
//! moving it to another schema, keeps its number.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::sleep;

use super::connection::{Connection, literal};
use super::failure::Failure;
use super::probe::{SNAPSHOT, Snapshot};
use super::settings::Settings;
use super::setup;

/// The interval of queries whether a transaction is visible.
const ASK_EVERY: Duration = Duration::from_millis(50);

/// The relations of wanted tables.
#[derive(Debug, Default)]
pub(super) struct Followed {
    /// By a relation's number, the wanted tables it belongs to: itself, and those that it is a
    /// partition of.
    pub(super) tables: BTreeMap<u32, Vec<String>>,
    /// True if one of the wanted tables has partitions: then any relation may be a new one.
    pub(super) has_partitions: bool,
    /// True if the log reports when one of these partitions is dropped or detached.
    is_told: bool,
}

/// The query which relations belong to wanted tables.
#[derive(Debug)]
pub(super) struct Catalogue {
    pub(super) settings: Settings,
    pub(super) server: String,
    /// The wanted tables, `schema.name`.
    pub(super) tables: Vec<String>,
}

impl Catalogue {
    /// The answer of this session.
    pub(super) async fn followed(&self, connection: &mut Connection) -> Result<Followed, Failure> {
        let told = connection.text(&setup::told_tables(&self.settings.slot)).await?;
        let mut followed = Followed { is_told: true, ..Followed::default() };
        for table in &self.tables {
            let Some((schema, name)) = table.split_once('.') else { continue };
            // The function returns nothing for a table without partitions.
            let query = format!(
                "SELECT part::oid::text, c.relkind::text FROM pg_class c \
                 JOIN pg_namespace n ON n.oid = c.relnamespace, LATERAL (SELECT c.oid UNION \
                 SELECT relid FROM pg_partition_tree(c.oid)) parts (part) \
                 WHERE n.nspname = {} AND c.relname = {}",
                literal(schema),
                literal(name)
            );
            for [number, kind] in connection.rows_of(&query).await? {
                let number = number.parse();
                let number = number.map_err(|_| Failure::Unexpected("a relation's number"))?;
                followed.tables.entry(number).or_default().push(table.clone());
                if kind == "p" {
                    followed.has_partitions = true;
                    followed.is_told &= told.lines().any(|one| one == table);
                }
            }
        }
        Ok(followed)
    }

    /// The state after this transaction, and whether the relation `number`, of which it has rows,
    /// may be a former partition. It uses a separate session, because the log's connection accepts
    /// no queries.
    ///
    /// The log has a transaction before the catalogue shows it, possibly long before if it waits
    /// for a standby.
    pub(super) async fn after(&self, xid: u32, number: u32) -> Result<(Followed, bool), Failure> {
        let mut connection = Connection::open(&self.settings, &self.server, false).await?;
        loop {
            let text = connection.text(SNAPSHOT).await?;
            let snapshot = Snapshot::parse(&text);
            if snapshot.ok_or(Failure::Unexpected("a snapshot of another form"))?.sees(xid) {
                break;
            }
            sleep(ASK_EVERY).await;
        }
        let followed = self.followed(&mut connection).await?;
        // A relation that belongs to no wanted table is published itself, or was when it was a
        // partition.
        let published = format!(
            "SELECT count(*) FROM pg_publication_tables t \
             JOIN pg_namespace n ON n.nspname = t.schemaname \
             JOIN pg_class c ON (c.relnamespace, c.relname) = (n.oid, t.tablename) \
             WHERE t.pubname = {} AND (c.oid = {number} OR {number} IN (\
             SELECT relid FROM pg_partition_tree(c.oid)))",
            literal(&self.settings.publication)
        );
        let is_published = connection.text(&published).await? != "0";
        let is_followed = followed.tables.contains_key(&number);
        let is_gone = !is_followed && !is_published && !followed.is_told;
        Ok((followed, is_gone))
    }
}
