//! Checks that a server's log carries the changes that the rules need.

mod parts;

use std::collections::BTreeMap;
use std::iter;

use changes::keys::Rules;

use super::connection::{Connection, literal};
use super::encoding::is_as_written;
use super::failure::Failure;
use super::settings::Settings;
use super::setup;
use crate::finding::Finding;
use crate::log_room::LogRoom;
use crate::source::recheck::Checked;

/// All faults, fatal or not.
pub(super) async fn check(
    connection: &mut Connection,
    settings: &Settings,
    rules: &Rules,
) -> Result<Checked, Failure> {
    let mut checked =
        Checked { room: room(connection, &settings.slot).await?, ..Checked::default() };
    let findings = &mut checked.findings;
    let level = connection.text("SHOW wal_level").await?;
    if level != "logical" {
        findings.push(Finding::fatal(format!("wal_level is {level}: set it to logical")));
    }
    findings.extend(slot(connection, &settings.slot).await?);
    findings.extend(failover(connection, settings).await?);
    findings.extend(awaited(connection, &settings.slot).await?);
    findings.extend(off(connection).await?);
    findings.extend(standby(connection).await?);
    findings.extend(encodings(connection, settings, rules).await?);
    let publication = literal(&settings.publication);
    let query = format!(
        "SELECT pubinsert::text, pubupdate::text, pubdelete::text, pubtruncate::text, \
         pubviaroot::text FROM pg_publication WHERE pubname = {publication}"
    );
    let publishes = connection.rows_of::<5>(&query).await?;
    let publishes = publishes.first();
    if publishes.is_none() {
        findings.push(Finding::fatal(format!(
            "there is no publication {0}: CREATE PUBLICATION {0} FOR TABLE ..",
            settings.publication
        )));
    }
    let is_via_root = publishes.map(|[.., is_via_root]| is_via_root == "true");
    if publishes.is_some_and(|[kinds @ .., _]| kinds.iter().any(|one| one != "true")) {
        findings.push(Finding::fatal(format!(
            "publication {} leaves out inserts, updates, deletes or truncates",
            settings.publication
        )));
    }
    let told = connection.text(&setup::told_tables(&settings.slot)).await?;
    let told: Vec<&str> = told.lines().collect();
    if !told.is_empty() && !told.contains(&setup::VERSION) {
        findings.push(Finding::note(
            "the event trigger is of an older version, which reports fewer changes: run holdall invalidate setup"
                .to_owned(),
        ));
    }
    let wanted = rules.columns();
    let mut asking = Asking { connection, publication, is_via_root, wanted: &wanted };
    for (&table, columns) in &wanted {
        let is_outbox = rules.outbox.as_ref().is_some_and(|outbox| outbox.table == table)
            && !rules.tables.contains_key(table);
        if rules.is_canary(table) {
            // Its old rows and its parts do not matter.
            let found = asking.table(table, columns, true).await?;
            findings.extend(found.into_iter().map(|finding| finding.of_canary(table)));
            continue;
        }
        findings.extend(asking.table(table, columns, is_outbox).await?);
        let is_told = told.contains(&table);
        // Only inserts into the outbox count, so another file of it is no loss.
        let parts = parts::of(asking.connection, table, is_told || is_outbox).await?;
        checked.parts.extend(parts);
        let published = parts::published(asking.connection, &asking.publication, table, is_told);
        checked.parts.extend(published.await?);
        if !is_told && !told.is_empty() && !is_outbox {
            findings.push(Finding::note(format!(
                "the event trigger does not know of table {table}: run holdall invalidate setup"
            )));
        }
    }
    Ok(checked)
}

/// Refuses messages and names whose encoding in the log differs from the applications' and the
/// configuration's. Only values of rows are converted.
async fn encodings(
    connection: &mut Connection,
    settings: &Settings,
    rules: &Rules,
) -> Result<Vec<Finding>, Failure> {
    let encoding = connection.text("SHOW server_encoding").await?;
    if is_as_written(&encoding) {
        return Ok(Vec::new());
    }
    let mut findings = Vec::new();
    if rules.messages.is_some() {
        findings.push(Finding::fatal(format!(
            "messages: the database is encoded in {encoding}, and so are the keys in the log's messages: use an outbox, whose values come in UTF-8"
        )));
    }
    let columns = rules.columns();
    let names = columns.iter().flat_map(|(table, columns)| iter::once(table).chain(columns));
    let names = names.copied().chain([settings.publication.as_str()]);
    findings.extend(names.filter(|name| !name.is_ascii()).map(|name| {
        Finding::fatal(format!(
            "the database is encoded in {encoding}, and so are the names in its log: '{name}' must be a name in ASCII"
        ))
    }));
    Ok(findings)
}

/// Refuses a slot of another database, since the names of slots are global to the server, and one
/// that decodes prepared transactions. Notes one that the server has invalidated, which `run`
/// treats as a gap.
async fn slot(connection: &mut Connection, slot: &str) -> Result<Option<Finding>, Failure> {
    let query = format!(
        "SELECT database, (database <> current_database())::text, \
         COALESCE(to_jsonb(s) ->> 'two_phase', ''), COALESCE(wal_status, ''), \
         COALESCE(to_jsonb(s) ->> 'invalidation_reason', '') \
         FROM pg_replication_slots s WHERE slot_name = {} AND database <> ''",
        literal(slot)
    );
    let rows = connection.rows_of(&query).await?;
    let Some([database, is_foreign, is_two_phase, status, reason]) = rows.first() else {
        return Ok(None);
    };
    Ok(if is_foreign == "true" {
        Some(Finding::fatal(format!(
            "slot {slot} belongs to database {database}: set source.slot to another name"
        )))
    } else if is_two_phase == "true" {
        Some(Finding::fatal(format!(
            "slot {slot} was created with two_phase, so its log has prepared transactions: drop \
             it, and run holdall invalidate setup"
        )))
    } else if status == "lost" {
        let why = lost_slot(reason);
        Some(Finding::note(format!("slot {slot} is lost, which is a gap at the next run: {why}")))
    } else {
        None
    })
}

/// The reason for which the server has invalidated a slot; PostgreSQL before 17 shows none.
pub(super) fn lost_slot(reason: &str) -> String {
    match reason {
        "" | "wal_removed" => {
            "it fell behind max_slot_wal_keep_size, and the log is removed".to_owned()
        }
        "idle_timeout" => "nobody read it for longer than idle_replication_slot_timeout".to_owned(),
        other => format!("the server invalidated it: {other}"),
    }
}

/// Reports a slot that no standby copies although the primary waits for standbys: it was created
/// before that setting.
async fn failover(
    connection: &mut Connection,
    settings: &Settings,
) -> Result<Option<Finding>, Failure> {
    let (slot, database) = (&settings.slot, &settings.database);
    // PostgreSQL has the setting, the property and the command from 17 on.
    let query = format!(
        "SELECT to_jsonb(s) ->> 'failover' FROM pg_replication_slots s WHERE slot_name = {} \
         AND NOT pg_is_in_recovery() AND current_setting('synchronized_standby_slots', true) <> ''",
        literal(slot)
    );
    let lacks_it = connection.text(&query).await? == "false";
    Ok(lacks_it.then(|| {
        Finding::note(format!(
            "synchronized_standby_slots is set, but standbys do not copy slot {slot}: one that is \
             promoted lacks it, which is a gap. Stop the invalidator and run psql \
             'dbname={database} replication=database' -c 'ALTER_REPLICATION_SLOT {slot} (FAILOVER true)'"
        ))
    }))
}

/// Reports a standby that is away, if the primary sends the slot only what its standbys have.
async fn awaited(connection: &mut Connection, slot: &str) -> Result<Option<Finding>, Failure> {
    let query = format!(
        "SELECT string_agg(name, ', ') FROM pg_replication_slots s, unnest(string_to_array(\
         current_setting('synchronized_standby_slots', true), ',')) one, btrim(one, ' \"') name \
         WHERE s.slot_name = {} AND to_jsonb(s) ->> 'failover' = 'true' AND name <> '' \
         AND NOT pg_is_in_recovery() \
         AND NOT EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = name AND active)",
        literal(slot)
    );
    let names = connection.text(&query).await?;
    Ok((!names.is_empty()).then(|| {
        Finding::note(format!(
            "no standby uses {names} of synchronized_standby_slots, and the primary sends no \
             changes until one does"
        ))
    }))
}

/// Reports settings that are off and with which changes are lost.
async fn off(connection: &mut Connection) -> Result<Vec<Finding>, Failure> {
    let query = format!(
        "SELECT {}::text, {}::text",
        setup::is_off("event_triggers"),
        setup::is_off("synchronous_commit")
    );
    let rows = connection.rows_of(&query).await?;
    let Some([event_triggers, synchronous_commit]) = rows.first() else { return Ok(Vec::new()) };
    let mut findings = Vec::new();
    if event_triggers == "true" {
        findings.push(Finding::note(
            "event_triggers is off for the server, the database or a role, or the invalidator's \
             role has its own value, which hides the server's: the event trigger of setup may \
             report nothing there, and only repeated checks find such changes"
                .to_owned(),
        ));
    }
    if synchronous_commit == "true" {
        findings.push(Finding::note(
            "synchronous_commit is off for the server, the database or a role, or the \
             invalidator's role has its own value, which hides the server's: a crash of the server \
             can lose commits that readers have cached. Run holdall invalidate flush after a crash"
                .to_owned(),
        ));
    }
    Ok(findings)
}

/// Reports a standby that gets nothing from its primary, or does not apply it: its log looks like
/// the log of an idle server.
async fn standby(connection: &mut Connection) -> Result<Option<Finding>, Failure> {
    let query = "SELECT CASE WHEN NOT pg_is_in_recovery() THEN '' \
                 WHEN pg_is_wal_replay_paused() THEN 'paused' \
                 WHEN NOT EXISTS (SELECT FROM pg_stat_wal_receiver) THEN 'cut off' ELSE '' END";
    let text = match connection.text(query).await?.as_str() {
        "paused" => {
            "it is a standby whose replay is paused, so its log lacks the newer changes of its \
             primary: SELECT pg_wal_replay_resume()"
        }
        "cut off" => {
            "it is a standby that does not receive the log of its primary, so its own log lacks \
             the newer changes, unless they come from an archive"
        }
        _ => return Ok(None),
    };
    Ok(Some(Finding::note(text.to_owned())))
}

/// The space that `max_slot_wal_keep_size` leaves to the slot.
async fn room(connection: &mut Connection, slot: &str) -> Result<Option<LogRoom>, Failure> {
    let query = format!(
        "SELECT wal_status, COALESCE(safe_wal_size, 0)::text, setting::bigint * 1048576 \
         FROM pg_replication_slots, pg_settings \
         WHERE slot_name = {} AND name = 'max_slot_wal_keep_size' AND setting::bigint >= 0",
        literal(slot)
    );
    let rows = connection.rows_of(&query).await?;
    let Some([status, left, most]) = rows.first() else { return Ok(None) };
    let bytes = left.parse::<i64>().unwrap_or(0);
    let bytes = u64::try_from(bytes).unwrap_or(0);
    let is_short = !["reserved", "extended"].contains(&status.as_str())
        || most.parse::<u64>().is_ok_and(|most| bytes < most / 4);
    Ok(Some(LogRoom { bytes, is_short }))
}

/// Types whose text depends on settings, or differs between languages.
///
/// Those from `regclass` on are numbers whose text is the name of another object: it depends on the
/// search path, and changes without a change of the row.
const OTHER_TEXTS: &str = "'bool', 'float4', 'float8', 'timestamp', 'timestamptz', 'timetz', \
                           'interval', 'bytea', 'money', 'regclass', 'regcollation', 'regconfig', \
                           'regdatabase', 'regdictionary', 'regnamespace', 'regoper', \
                           'regoperator', 'regproc', 'regprocedure', 'regrole', 'regtype', \
                           'aclitem'";

/// A table or partition that has rows.
struct Holder {
    oid: String,
    schema: String,
    name: String,
    identity: String,
}

struct Asking<'c> {
    connection: &'c mut Connection,
    /// The publication's name as SQL writes it.
    publication: String,
    /// True if changes of partitions are published as those of the whole table; none without a
    /// publication.
    is_via_root: Option<bool>,
    /// The tables of the rules, with the columns that they use.
    wanted: &'c BTreeMap<&'c str, Vec<&'c str>>,
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
        let mut findings = Vec::new();
        let query = format!(
            "SELECT c.oid::text, c.relreplident::text, c.relkind::text \
             FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
             WHERE n.nspname = {} AND c.relname = {}",
            literal(schema),
            literal(name)
        );
        let class = self.connection.rows_of(&query).await?;
        let Some([oid, identity, kind]) = class.first() else {
            return Ok(vec![Finding::fatal(format!("table {table} does not exist"))]);
        };
        let is_partitioned = kind == "p";
        let holders = match is_partitioned {
            true => self.leaves(oid).await?,
            false => vec![Holder {
                oid: oid.clone(),
                schema: schema.to_owned(),
                name: name.to_owned(),
                identity: identity.clone(),
            }],
        };
        if self.is_via_root == Some(false) {
            for holder in &holders {
                findings.extend(self.published(&holder.schema, &holder.name, columns).await?);
            }
        } else if self.is_via_root.is_some() {
            findings.extend(self.published(schema, name, columns).await?);
        }
        findings.extend(self.unlogged(table, oid).await?);
        findings.extend(self.types(table, columns, oid).await?);
        findings.extend(self.generated(table, columns, oid).await?);
        let columns = if is_outbox { &[] } else { columns };
        if is_partitioned {
            let logged = self.logged(oid, identity).await?;
            findings.extend(old_values(table, columns, logged.as_deref()));
        }
        // For a partition, the log follows the partition's own setting.
        for holder in &holders {
            let name = format!("{}.{}", holder.schema, holder.name);
            let logged = self.logged(&holder.oid, &holder.identity).await?;
            if logged.as_ref().is_some_and(Vec::is_empty) {
                findings.push(Finding::fatal(format!(
                    "table {name} has no replica identity, without which UPDATE and DELETE of a published table fail: ALTER TABLE {name} REPLICA IDENTITY FULL"
                )));
            } else {
                findings.extend(old_values(&name, columns, logged.as_deref()));
            }
        }
        Ok(findings)
    }

    /// The partitions of a table that have rows.
    async fn leaves(&mut self, oid: &str) -> Result<Vec<Holder>, Failure> {
        let query = format!(
            "SELECT c.oid::text, n.nspname, c.relname, c.relreplident::text \
             FROM pg_partition_tree({oid}) p JOIN pg_class c ON c.oid = p.relid \
             JOIN pg_namespace n ON n.oid = c.relnamespace WHERE p.isleaf AND p.level > 0"
        );
        let leaf =
            |[oid, schema, name, identity]: [String; 4]| Holder { oid, schema, name, identity };
        Ok(self.connection.rows_of(&query).await?.into_iter().map(leaf).collect())
    }

    /// The parts of a table whose rows the log does not have as rows of that table.
    async fn unlogged(&mut self, table: &str, oid: &str) -> Result<Vec<Finding>, Failure> {
        // Only one session sees the rows of a temporary table.
        let query = format!(
            "WITH RECURSIVE part AS (SELECT {oid}::oid AS oid UNION \
             SELECT inhrelid FROM pg_inherits JOIN part ON oid = inhparent) \
             SELECT n.nspname || '.' || c.relname, (c.relispartition OR c.oid = {oid})::text, \
             c.relpersistence::text, c.relkind::text FROM part JOIN pg_class c USING (oid) \
             JOIN pg_namespace n ON n.oid = c.relnamespace \
             WHERE c.relpersistence <> 't' OR c.oid = {oid}"
        );
        let parts = self.connection.rows_of(&query).await?;
        let finding = |[name, is_own, persistence, kind]: [String; 4]| {
            let text = match (is_own.as_str(), persistence.as_str(), kind.as_str()) {
                // A table of the rules is checked separately.
                ("false", ..) if self.wanted.contains_key(name.as_str()) => return None,
                ("false", ..) => format!(
                    "table {name} inherits from table {table}, and the log has its rows under its own name: write keys for it, too"
                ),
                (_, "p", "f") => format!("the rows of foreign table {name} are elsewhere"),
                (_, "p", _) => return None,
                _ => format!(
                    "the log has no rows of table {name}, which is unlogged: ALTER TABLE {name} SET LOGGED"
                ),
            };
            Some(Finding::fatal(text))
        };
        Ok(parts.into_iter().filter_map(finding).collect())
    }

    /// The parts of a table or a partition that the publication omits.
    async fn published(
        &mut self,
        schema: &str,
        name: &str,
        columns: &[&str],
    ) -> Result<Vec<Finding>, Failure> {
        let publication = &self.publication;
        let table = format!("{schema}.{name}");
        let query = format!(
            "SELECT COALESCE(rowfilter, ''), attnames::text FROM pg_publication_tables \
             WHERE pubname = {publication} AND schemaname = {} AND tablename = {}",
            literal(schema),
            literal(name)
        );
        let published = self.connection.rows_of(&query).await?;
        Ok(match published.first() {
            None => {
                vec![Finding::fatal(format!("table {table} is not in publication {publication}"))]
            }
            Some([filter, _]) if !filter.is_empty() => {
                vec![Finding::fatal(format!("publication {publication} filters rows of {table}"))]
            }
            Some([_, listed]) => {
                let listed: Vec<&str> = listed
                    .trim_matches(['{', '}'])
                    .split(',')
                    .map(|name| name.trim_matches('"'))
                    .collect();
                let hidden = columns.iter().filter(|column| !listed.contains(column));
                hidden
                    .map(|column| {
                        Finding::fatal(format!(
                            "table {table} has no column '{column}', or the publication leaves it out"
                        ))
                    })
                    .collect()
            }
        })
    }

    /// Columns whose text in the log may differ from the applications' text of their values.
    async fn types(
        &mut self,
        table: &str,
        columns: &[&str],
        oid: &str,
    ) -> Result<Vec<Finding>, Failure> {
        let query = format!(
            "WITH RECURSIVE {made} SELECT DISTINCT ON (name) name, kind::regtype::text, typname \
             FROM made JOIN pg_type ON pg_type.oid = part WHERE typname IN ({OTHER_TEXTS})",
            made = parts::types_of(oid)
        );
        let others = self.connection.rows_of::<3>(&query).await?;
        let others = others.into_iter().filter(|[column, ..]| columns.contains(&column.as_str()));
        let finding = |[column, kind, other]: [String; 3]| {
            let why = match other.starts_with("reg") || other == "aclitem" {
                true => {
                    "whose text has the name of another object, which may be renamed: use a column of type oid, or one with the name as \
                     text"
                }
                false => "whose text in the log is not what applications make of it",
            };
            Finding::fatal(format!("table {table}: column '{column}' is a {kind} ({other}), {why}"))
        };
        Ok(others.map(finding).collect())
    }

    /// Generated columns, which the log has from version 18 on. There, the publication shows
    /// whether it has them, and does not list the omitted ones.
    async fn generated(
        &mut self,
        table: &str,
        columns: &[&str],
        oid: &str,
    ) -> Result<Vec<Finding>, Failure> {
        let query = format!(
            "SELECT attname FROM pg_attribute WHERE attrelid = {oid} AND attgenerated <> '' \
             AND NOT attisdropped AND current_setting('server_version_num')::int < 180000"
        );
        let generated = self.connection.rows(&query).await?.into_iter().flatten();
        let finding = |column: String| {
            Finding::fatal(format!(
                "table {table}: column '{column}' is generated, and no log before PostgreSQL 18 has it"
            ))
        };
        Ok(generated.filter(|column| columns.contains(&column.as_str())).map(finding).collect())
    }

    /// The columns whose old values are logged; none if all are.
    async fn logged(&mut self, oid: &str, identity: &str) -> Result<Option<Vec<String>>, Failure> {
        let index = match identity {
            "f" => return Ok(None),
            "d" => "i.indisprimary",
            "i" => "i.indisreplident",
            _ => "false",
        };
        // Not the columns after INCLUDE.
        let query = format!(
            "SELECT a.attname FROM pg_index i \
             JOIN pg_attribute a ON a.attrelid = i.indrelid \
             AND a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1]) \
             WHERE i.indrelid = {oid} AND {index} AND i.indisvalid AND i.indimmediate"
        );
        let columns = self.connection.rows(&query).await?;
        Ok(Some(columns.into_iter().flatten().collect()))
    }
}

/// The columns whose old values are not logged.
fn old_values(table: &str, columns: &[&str], logged: Option<&[String]>) -> Vec<Finding> {
    let Some(logged) = logged else { return Vec::new() };
    let lacks = columns.iter().filter(|column| !logged.iter().any(|one| one == *column));
    let finding = |column: &&str| {
        Finding::fatal(format!(
            "table {table}: old values of column '{column}' are not logged: ALTER TABLE {table} REPLICA IDENTITY FULL"
        ))
    };
    lacks.map(finding).collect()
}
