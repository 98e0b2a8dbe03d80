//! Queries a server's path through timelines. A server that is promoted, or restored to an earlier
//! time, continues with a new one. The replication protocol returns the current timeline and the
//! database system (`IDENTIFY_SYSTEM`), and where each earlier timeline was left
//! (`TIMELINE_HISTORY`).

use changes::pgoutput::History;
use changes::position::lsn;

use super::connection::Connection;
use super::failure::{Failure, NO_SUCH_FILE};

/// Queries the server over a replication connection.
pub(super) async fn history(connection: &mut Connection) -> Result<History, Failure> {
    let rows = connection.rows("IDENTIFY_SYSTEM").await?;
    let [system, present, end, ..] = rows.first().map(Vec::as_slice).unwrap_or_default() else {
        return Err(Failure::Unexpected("no timeline"));
    };
    let system = system.parse().map_err(|_| Failure::Unexpected("no system"))?;
    let present: u32 = present.parse().map_err(|_| Failure::Unexpected("no timeline"))?;
    let end = lsn(end).ok_or(Failure::Unexpected("no end of its log"))?;
    // The first one has no history.
    let file = if present > 1 { file(connection, present).await? } else { String::new() };
    History::parse(system, present, end, &file).ok_or(NO_HISTORY)
}

const NO_HISTORY: Failure = Failure::Unexpected("no history of its timeline");

/// The server's history of a timeline; empty if it lacks the file, because the earlier timelines
/// are then unknown.
async fn file(connection: &mut Connection, timeline: u32) -> Result<String, Failure> {
    match connection.rows(&format!("TIMELINE_HISTORY {timeline}")).await {
        Ok(rows) => {
            let row = rows.into_iter().next();
            row.and_then(|row| row.into_iter().nth(1)).ok_or(NO_HISTORY)
        }
        Err(Failure::Refused { code, .. }) if code == NO_SUCH_FILE => Ok(String::new()),
        Err(failure) => Err(failure),
    }
}
