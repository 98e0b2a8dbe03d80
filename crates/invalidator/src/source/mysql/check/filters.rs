//! Changes that a replica leaves out of its tables, and so of its log.

use changes::keys::Rules;
use mysql_async::Row;

use super::super::server::{Server, cell};
use crate::change_source::SourceError;
use crate::finding::Finding;

/// A setting's name and value.
type Setting = (String, String);

/// The settings of a server that are no filters by name, and leave out changes as filters do.
const SKIPPED: &str = "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('slave_skip_errors', \
    'replica_skip_errors', 'slave_exec_mode', 'replica_exec_mode', \
    'replicate_events_marked_for_skip')";

/// MariaDB's filters, which it shows to every user, except those by domain and by server.
const MARIADB_FILTERS: &str = "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('replicate_do_db', \
    'replicate_ignore_db', 'replicate_do_table', 'replicate_ignore_table', \
    'replicate_wild_do_table', 'replicate_wild_ignore_table', 'replicate_rewrite_db')";

/// MariaDB: a row for a server that replicates, or has replicated and accepts no writes.
const MARIADB_IS_REPLICA: &str = "SELECT 1 FROM dual WHERE @@GLOBAL.gtid_slave_pos <> '' \
    AND @@GLOBAL.read_only NOT IN ('0', 'OFF') OR 0 < (SELECT VARIABLE_VALUE \
    FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'Slaves_running')";

/// Values of the settings that leave out nothing.
const HARMLESS: [&str; 4] = ["", "OFF", "STRICT", "REPLICATE"];

/// Databases of the servers themselves.
const OF_SERVERS: [&str; 5] =
    ["information_schema", "innodb_memcache", "mysql", "performance_schema", "sys"];

/// The changes that replication leaves out. `channels` is the state of replication at present, if
/// the user may see it.
pub(super) async fn check(
    server: &mut Server,
    channels: Option<&[&Row]>,
    rules: &Rules,
) -> Result<Vec<Finding>, SourceError> {
    let mut settings = match channels {
        Some([]) => return Ok(Vec::new()),
        Some(channels) => channels.iter().flat_map(|row| of_channel(row)).collect(),
        None if server.rows(MARIADB_IS_REPLICA).await?.is_empty() => return Ok(Vec::new()),
        None => variables(server, MARIADB_FILTERS).await?,
    };
    settings.extend(variables(server, SKIPPED).await?);
    Ok(findings(&settings, rules))
}

async fn variables(server: &mut Server, query: &str) -> Result<Vec<Setting>, SourceError> {
    let rows = server.rows(query).await?;
    Ok(rows.iter().map(|row| (cell(row, 0), cell(row, 1))).collect())
}

/// The filters of a channel: all columns with this start are filters.
fn of_channel(row: &Row) -> Vec<Setting> {
    let names = row.columns_ref().iter().map(|column| column.name_str().into_owned());
    let filters = names.enumerate().filter(|(_, name)| name.starts_with("Replicate_"));
    filters.map(|(at, name)| (name, cell(row, at))).collect()
}

fn findings(settings: &[Setting], rules: &Rules) -> Vec<Finding> {
    let leaves_out = |(name, value): &&Setting| {
        !HARMLESS.contains(&value.to_ascii_uppercase().as_str()) && !is_harmless(name, value, rules)
    };
    // With several channels, these make each change arrive once.
    let is_by_source = |(name, _): &&Setting| name.to_ascii_lowercase().ends_with("_ids");
    let found = settings.iter().filter(leaves_out);
    let (by_source, others): (Vec<_>, Vec<_>) = found.partition(is_by_source);
    let others = listed(others).map(|others| {
        Finding::fatal(format!(
            "its replication leaves out changes, so its log lacks them: unset {others}, or remove \
             the server from servers"
        ))
    });
    let by_source = listed(by_source).map(|by_source| {
        Finding::note(format!(
            "its replication leaves out changes by {by_source}: its log lacks them unless they \
             arrive by another channel"
        ))
    });
    others.into_iter().chain(by_source).collect()
}

/// The settings as text; none if there are none.
fn listed(mut settings: Vec<&Setting>) -> Option<String> {
    settings.dedup();
    let texts: Vec<_> = settings.iter().map(|(name, value)| format!("{name} = {value}")).collect();
    (!texts.is_empty()).then(|| texts.join(", "))
}

/// True for a filter that only leaves out tables of the servers' own databases.
///
/// No other filter is harmless. Those by database go by the session's database for a statement,
/// and a statement that names a left out table is left out as a whole: `RENAME TABLE users TO
/// left_out, new TO users`.
fn is_harmless(name: &str, value: &str, rules: &Rules) -> bool {
    let followed = rules.columns();
    let is_of_server = |pattern: &str| {
        let Some((schema, _)) = pattern.trim().split_once('.') else { return false };
        // A pattern may have a `_` that stands for itself as `\_`.
        let schema = schema.replace('\\', "").to_ascii_lowercase();
        OF_SERVERS.contains(&schema.as_str())
            && !followed.keys().any(|table| has_schema(table, &schema))
    };
    let is_ignored = ["replicate_ignore_table", "replicate_wild_ignore_table"];
    is_ignored.contains(&name.to_ascii_lowercase().as_str()) && value.split(',').all(is_of_server)
}

/// True if the pattern fits the schema of the table; `_` is any character.
fn has_schema(table: &str, pattern: &str) -> bool {
    let schema = table.split_once('.').map_or(table, |(schema, _)| schema).to_ascii_lowercase();
    schema.chars().count() == pattern.chars().count()
        && schema.chars().zip(pattern.chars()).all(|(one, wanted)| wanted == '_' || one == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(settings: &[(&str, &str)], rules: &Rules) -> Vec<Finding> {
        let settings = settings.iter().map(|(name, value)| (name.to_string(), value.to_string()));
        findings(&settings.collect::<Vec<_>>(), rules)
    }

    #[test]
    fn a_filter_of_a_replica_is_a_fault() {
        for (name, value) in [
            ("Replicate_Do_DB", "shop"),
            ("Replicate_Ignore_DB", "mysql"),
            ("Replicate_Do_Table", "mysql.user"),
            ("Replicate_Ignore_Table", "shop.tr"),
            ("Replicate_Ignore_Table", "mysql.rds_history,shop.tr"),
            ("Replicate_Wild_Do_Table", "shop.%"),
            ("Replicate_Wild_Ignore_Table", "mysql%.%"),
            ("Replicate_Wild_Ignore_Table", "mysql.%,innodb%.%"),
            ("replicate_wild_ignore_table", "%.t"),
            ("Replicate_Rewrite_DB", "(a,b)"),
            ("slave_skip_errors", "1062"),
            ("replica_skip_errors", "all"),
            ("replica_exec_mode", "IDEMPOTENT"),
            ("replicate_events_marked_for_skip", "FILTER_ON_SLAVE"),
        ] {
            let settings = [("Replicate_Do_DB", ""), (name, value), (name, value)];
            let found = found(&settings, &Rules::default());
            let [fault] = &found[..] else { panic!("{name}: {found:?}") };
            let text = format!("unset {name} = {value}, or");
            assert!(fault.is_fatal && fault.text.contains(&text), "{name}: {fault:?}");
        }
    }

    #[test]
    fn a_filter_by_the_source_of_changes_is_a_note() {
        for name in [
            "Replicate_Do_Domain_Ids",
            "Replicate_Ignore_Domain_Ids",
            "Replicate_Ignore_Server_Ids",
        ] {
            let found = found(&[(name, "1, 2"), ("slave_skip_errors", "1062")], &Rules::default());
            let [fault, note] = &found[..] else { panic!("{name}: {found:?}") };
            assert!(fault.is_fatal && !fault.text.contains(name), "{fault:?}");
            assert!(!note.is_fatal && note.text.contains(&format!("{name} = 1, 2")), "{note:?}");
        }
    }

    #[test]
    fn settings_that_leave_out_no_followed_table_are_no_fault() {
        let settings = [
            ("Replicate_Do_DB", ""),
            ("Replicate_Ignore_Table", "mysql.plugin,innodb_memcache.cache_policies"),
            (
                "Replicate_Wild_Ignore_Table",
                "mysql.%,sys.%,information_schema.%, performance\\_schema.%,innodb_memcache.%",
            ),
            ("replica_skip_errors", "OFF"),
            ("slave_exec_mode", "STRICT"),
            ("replicate_events_marked_for_skip", "REPLICATE"),
        ];
        for (table, is_left_out) in
            [("shop.users", false), ("mysql.users", true), ("innodb-memcache.users", true)]
        {
            let mut rules = Rules::default();
            rules.tables.insert(table.to_owned(), Vec::new());
            assert_eq!(!found(&settings, &rules).is_empty(), is_left_out, "{table}");
        }
    }
}
