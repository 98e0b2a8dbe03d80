//! Checks that a server's log carries the changes that the rules need; their absence would go
//! unnoticed.

mod filters;
mod replication;
mod shifted;
mod table;

use changes::gtid::GtidSet;
use changes::keys::Rules;

use super::server::{Flavour, Server, cell};
use super::{By, Settings, UnloggedCascades};
use crate::change_source::SourceError;
use crate::finding::Finding;
use table::Cascades;

/// All faults and remarks, fatal or not.
pub(super) async fn check(
    server: &mut Server,
    settings: &Settings,
    rules: &Rules,
) -> Result<Vec<Finding>, SourceError> {
    let mut findings = variables(server, rules).await?;
    findings.extend(positions(server, settings.by).await?);
    findings.extend(replication::check(server, rules).await?);
    findings.extend(left_out(server).await?);
    findings.extend(texts(server, rules).await?);
    let image = server.text("SELECT @@GLOBAL.binlog_row_image").await?.to_ascii_uppercase();
    let cascades = cascades(server, settings.unlogged_cascades).await?;
    for (name, columns) in rules.columns() {
        let is_outbox = rules.outbox.as_ref().is_some_and(|outbox| outbox.table == name);
        if !rules.is_canary(name) {
            findings.extend(table::check(server, name, &columns, &image, is_outbox).await?);
            if let Some(cascades) = cascades {
                findings.extend(table::cascades(server, name, cascades).await?);
            }
            continue;
        }
        // Its old rows do not matter, and a new row has all of its changed columns.
        let found = table::check(server, name, &columns, "FULL", true).await?;
        findings.extend(found.into_iter().map(|finding| finding.of_canary(name)));
    }
    Ok(findings)
}

/// The treatment of foreign keys that change rows; none if the log has all such changes.
async fn cascades(
    server: &mut Server,
    unlogged: UnloggedCascades,
) -> Result<Option<Cascades>, SourceError> {
    if !server.logs_cascades().await? {
        return Ok(Some(Cascades::Unlogged(unlogged)));
    }
    // A replica leaves them to its storage engine if its primary does.
    let is_replica = !server.rows(server.replica_status()).await?.is_empty();
    Ok(is_replica.then_some(Cascades::AsOfPrimary))
}

/// Transaction identifiers that cannot be positions, because there are none, or they have a form of
/// a later version.
async fn positions(server: &mut Server, by: By) -> Result<Option<Finding>, SourceError> {
    if by == By::File || server.flavour == Flavour::MariaDb {
        return Ok(None);
    }
    let mode = server.text("SELECT @@GLOBAL.gtid_mode").await?.to_ascii_uppercase();
    if mode != "ON" {
        return Ok(Some(Finding::fatal(format!(
            "gtid_mode is {mode}: set it to ON, or set position = \"file\" in [source]"
        ))));
    }
    let executed = server.text("SELECT @@GLOBAL.gtid_executed").await?.replace('\n', "");
    Ok(executed.parse::<GtidSet>().err().map(|_| {
        Finding::fatal(format!(
            "its gtid_executed '{executed}' is not understood: set position = \"file\" in [source]"
        ))
    }))
}

/// Filters by database. Rows go by the database of their table, but a statement logged as text
/// (`TRUNCATE`, any statement in a session with another `binlog_format`) goes by the session's
/// database, which may be any other.
async fn left_out(server: &mut Server) -> Result<Option<Finding>, SourceError> {
    let Some(row) = server.log_status().await? else { return Ok(None) };
    let is_whole = cell(&row, 2).is_empty() && cell(&row, 3).is_empty();
    Ok((!is_whole).then(|| {
        Finding::fatal(
            "the log leaves out statements by the database of their session, whatever table they \
             change: do not set binlog_do_db and binlog_ignore_db"
                .to_owned(),
        )
    }))
}

/// The texts of statements, if comments name keys.
async fn texts(server: &mut Server, rules: &Rules) -> Result<Option<Finding>, SourceError> {
    let format = server.text("SELECT @@GLOBAL.binlog_format").await?.to_ascii_uppercase();
    if !rules.comments || format == "STATEMENT" {
        return Ok(None);
    }
    if server.flavour == Flavour::MariaDb {
        // If there are rules for tables, comments in statements logged as text count.
        let text = "binlog_format=ROW drops the comments of statements, where the keys are: use STATEMENT, or an outbox table";
        let finding = if rules.need_rows() { Finding::note } else { Finding::fatal };
        return Ok(Some(finding(text.to_owned())));
    }
    let has_texts = server.text("SELECT @@GLOBAL.binlog_rows_query_log_events").await? == "1";
    let text = "binlog_rows_query_log_events is OFF, so rows come without their statement's comments: set it to ON";
    Ok((!has_texts).then(|| Finding::fatal(text.to_owned())))
}

async fn variables(server: &mut Server, rules: &Rules) -> Result<Vec<Finding>, SourceError> {
    let mut findings = Vec::new();
    if server.text("SELECT @@GLOBAL.log_bin").await? != "1" {
        findings.push(Finding::fatal("it writes no binary log: set log_bin".to_owned()));
    }
    if let Some(setting) = server.unlogged_replication().await? {
        findings.push(Finding::fatal(format!(
            "it is a replica and does not log what it replicates: set {setting}=ON"
        )));
    }
    let format = server.text("SELECT @@GLOBAL.binlog_format").await?.to_ascii_uppercase();
    if !rules.need_rows() {
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
