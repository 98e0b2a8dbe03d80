//! Changes that a replica leaves out of its tables, and so of its log.

use changes::keys::Rules;
use mysql_async::Row;

use super::super::server::{Flavour, Server, cell};
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
    AND (@@GLOBAL.read_only NOT IN ('0', 'OFF') OR 0 < (SELECT VARIABLE_VALUE \
    FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'Slaves_running'))";

/// Values of the settings that leave out nothing.
const HARMLESS: [&str; 4] = ["", "OFF", "STRICT", "REPLICATE"];

/// Databases of the servers themselves; managed servers do not replicate some of their tables.
const OF_SERVERS: [&str; 3] = ["innodb_memcache", "mysql", "sys"];

/// A finding if replication leaves out changes. `channels` is the state of replication, if the user
/// may see it.
pub(super) async fn check(
    server: &mut Server,
    channels: Option<&[Row]>,
    rules: &Rules,
) -> Result<Option<Finding>, SourceError> {
    let mut settings = match channels {
        Some([]) => return Ok(None),
        Some(channels) => channels.iter().flat_map(of_channel).collect(),
        None if server.flavour == Flavour::MySql => return Ok(None),
        None if server.rows(MARIADB_IS_REPLICA).await?.is_empty() => return Ok(None),
        None => variables(server, MARIADB_FILTERS).await?,
    };
    settings.extend(variables(server, SKIPPED).await?);
    Ok(fault(&settings, rules))
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

fn fault(settings: &[Setting], rules: &Rules) -> Option<Finding> {
    let leaves_out = |(name, value): &&Setting| {
        !HARMLESS.contains(&value.to_ascii_uppercase().as_str()) && !is_harmless(name, value, rules)
    };
    let mut found: Vec<_> = settings.iter().filter(leaves_out).collect();
    found.dedup();
    let found: Vec<_> = found.iter().map(|(name, value)| format!("{name} = {value}")).collect();
    (!found.is_empty()).then(|| {
        Finding::fatal(format!(
            "its replication leaves out changes, so its log lacks them: unset {}, or remove the \
             server from servers",
            found.join(", ")
        ))
    })
}

/// True for a filter that only leaves out tables of the servers' own databases.
///
/// No other filter is harmless. Those by database go by the session's database for a statement,
/// and a statement that names a left out table is left out as a whole: `RENAME TABLE users TO
/// left_out, new TO users`.
fn is_harmless(name: &str, value: &str, rules: &Rules) -> bool {
    let name = name.to_ascii_lowercase();
    // In a pattern, this sign is any character.
    let is_literal = |schema: &str| name != "replicate_wild_ignore_table" || !schema.contains('_');
    let is_of_server = |table: &str| {
        let schema = table.trim().split_once('.').map(|(schema, _)| schema);
        schema.is_some_and(|schema| OF_SERVERS.contains(&schema) && is_literal(schema))
    };
    let is_ignored = ["replicate_ignore_table", "replicate_wild_ignore_table"];
    is_ignored.contains(&name.as_str())
        && value.split(',').all(is_of_server)
        && !rules.columns().keys().any(|table| is_of_server(table))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault_of(settings: &[(&str, &str)], rules: &Rules) -> Option<String> {
        let settings = settings.iter().map(|(name, value)| (name.to_string(), value.to_string()));
        let found = fault(&settings.collect::<Vec<_>>(), rules)?;
        assert!(found.is_fatal);
        Some(found.text)
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
            ("Replicate_Wild_Ignore_Table", "innodb_memcache.%"),
            ("replicate_wild_ignore_table", "%.t"),
            ("Replicate_Rewrite_DB", "(a,b)"),
            ("Replicate_Do_Domain_Ids", "1"),
            ("Replicate_Ignore_Domain_Ids", "2"),
            ("Replicate_Ignore_Server_Ids", "7"),
            ("slave_skip_errors", "1062"),
            ("replica_skip_errors", "all"),
            ("replica_exec_mode", "IDEMPOTENT"),
            ("replicate_events_marked_for_skip", "FILTER_ON_SLAVE"),
        ] {
            let settings = [("Replicate_Do_DB", ""), (name, value), (name, value)];
            let text = fault_of(&settings, &Rules::default()).unwrap_or_default();
            assert!(text.contains(&format!("unset {name} = {value}, or")), "{name}: {text}");
        }
    }

    #[test]
    fn settings_that_leave_out_no_followed_table_are_no_fault() {
        let settings = [
            ("Replicate_Do_DB", ""),
            ("Replicate_Ignore_Table", "mysql.plugin,innodb_memcache.cache_policies"),
            ("Replicate_Wild_Ignore_Table", "mysql.%,sys.%"),
            ("replica_skip_errors", "OFF"),
            ("slave_exec_mode", "STRICT"),
            ("replicate_events_marked_for_skip", "REPLICATE"),
        ];
        let mut rules = Rules::default();
        assert_eq!(fault_of(&settings, &rules), None);
        rules.tables.insert("mysql.users".to_owned(), Vec::new());
        assert!(fault_of(&settings, &rules).is_some(), "its table is left out");
    }
}
