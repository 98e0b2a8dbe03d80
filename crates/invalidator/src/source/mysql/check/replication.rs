//! A replica whose replication does not run, or leaves out changes. Its log lacks the newer changes
//! of its primary, and looks like the log of an idle server; or it lacks some changes.

use changes::keys::Rules;
use mysql_async::Row;

use super::super::server::{Flavour, Server, cell};
use super::filters;
use crate::change_source::SourceError;
use crate::finding::Finding;

/// MariaDB: a row for a server that has replicated, and whose replication does not run now.
const MARIADB_HAS_STOPPED: &str = "SELECT 1 FROM dual WHERE @@GLOBAL.gtid_slave_pos <> '' \
    AND @@GLOBAL.read_only NOT IN ('0', 'OFF') AND 0 = (SELECT VARIABLE_VALUE \
    FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'Slaves_running')";

/// The first channel whose replication does not run, and what replication leaves out.
pub(super) async fn check(server: &mut Server, rules: &Rules) -> Result<Vec<Finding>, SourceError> {
    let channels = match server.rows(server.replica_status()).await {
        // It needs the right SLAVE MONITOR, which nothing else needs.
        Err(SourceError::Wrong(_)) if server.flavour == Flavour::MariaDb => None,
        rows => Some(rows?),
    };
    let accepts_writes = server.accepts_writes().await?;
    let is_present = |row: &&Row| !Channel::of(row).is_former(accepts_writes);
    let present = channels.as_ref().map(|rows| rows.iter().filter(is_present).collect::<Vec<_>>());
    let mut findings = filters::check(server, present.as_deref(), rules).await?;
    let stopped = match channels {
        Some(rows) => rows.iter().find_map(|row| Channel::of(row).fault(accepts_writes)),
        None => has_stopped(server).await?,
    };
    findings.extend(stopped);
    Ok(findings)
}

/// A finding if no replication runs, for users who may not see its state.
async fn has_stopped(server: &mut Server) -> Result<Option<Finding>, SourceError> {
    let has_stopped = !server.rows(MARIADB_HAS_STOPPED).await?.is_empty();
    Ok(has_stopped.then(|| stalled("its replication does not run")))
}

/// The state of replication from one primary.
#[derive(Debug)]
struct Channel {
    name: String,
    io: String,
    sql: String,
    has_error: bool,
}

impl Channel {
    fn of(row: &Row) -> Self {
        let value = |name: &str| {
            let mut names = row.columns_ref().iter().map(|column| column.name_str().into_owned());
            names.position(|column| column.ends_with(name)).map(|at| cell(row, at))
        };
        // MariaDB, and MySQL.
        let name = value("Connection_name").or_else(|| value("Channel_Name"));
        let has_error = ["Last_IO_Errno", "Last_SQL_Errno"]
            .into_iter()
            .any(|name| value(name).is_some_and(|number| number != "0"));
        Self {
            name: name.unwrap_or_default(),
            io: value("_IO_Running").unwrap_or_default(),
            sql: value("_SQL_Running").unwrap_or_default(),
            has_error,
        }
    }

    /// True if it executes nothing at a server that accepts writes, such as a primary that was a
    /// replica before. MariaDB shows whether this thread runs to every user.
    fn is_former(&self, accepts_writes: bool) -> bool {
        accepts_writes && self.sql == "No"
    }

    fn fault(&self, accepts_writes: bool) -> Option<Finding> {
        // The members of a group replicate by other means than these two threads.
        let is_of_group = self.name.starts_with("group_replication_");
        if is_of_group || self.io == "Yes" && self.sql == "Yes" {
            return None;
        }
        let name = match self.name.as_str() {
            "" => String::new(),
            name => format!(" of '{name}'"),
        };
        let state = format!(
            "its replication{name} does not run (IO thread: {}, SQL thread: {})",
            self.io, self.sql
        );
        if accepts_writes && self.io == "No" && self.sql == "No" && !self.has_error {
            return Some(Finding::note(format!(
                "{state}: if it was promoted, run RESET SLAVE ALL (MySQL: RESET REPLICA ALL), and \
                 otherwise start replication, because its log lacks the newer changes"
            )));
        }
        Some(stalled(&state))
    }
}

fn stalled(state: &str) -> Finding {
    Finding::stalled(format!(
        "{state}, so its log lacks the newer changes of its primary: the server is followed only \
         while no other one can be"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(io: &str, sql: &str, has_error: bool, accepts_writes: bool) -> Option<bool> {
        let (name, io, sql) = (String::new(), io.to_owned(), sql.to_owned());
        let channel = Channel { name, io, sql, has_error };
        channel.fault(accepts_writes).map(|finding| finding.is_stalled)
    }

    #[test]
    fn a_thread_that_does_not_run_stalls_a_replica() {
        assert_eq!(fault("Yes", "Yes", false, false), None);
        assert_eq!(fault("Connecting", "Yes", false, true), Some(true));
        assert_eq!(fault("Yes", "No", true, true), Some(true));
        assert_eq!(fault("No", "No", false, false), Some(true));
        assert_eq!(fault("No", "No", true, true), Some(true));
    }

    /// It may have been promoted without a removal of its configuration.
    #[test]
    fn a_stopped_replica_that_accepts_writes_is_not_stalled() {
        assert_eq!(fault("No", "No", false, true), Some(false));
    }

    #[test]
    fn filters_of_a_former_replica_do_not_count() {
        let channel = |io: &str, sql: &str| {
            let (name, io, sql) = (String::new(), io.to_owned(), sql.to_owned());
            Channel { name, io, sql, has_error: false }
        };
        assert!(channel("No", "No").is_former(true));
        assert!(!channel("No", "No").is_former(false), "it accepts no writes");
        assert!(!channel("Connecting", "Yes").is_former(true));
    }

    #[test]
    fn members_of_a_group_have_channels_that_do_not_run() {
        let name = "group_replication_recovery".to_owned();
        let (io, sql) = ("No".to_owned(), "No".to_owned());
        assert_eq!(Channel { name, io, sql, has_error: false }.fault(false), None);
    }
}
