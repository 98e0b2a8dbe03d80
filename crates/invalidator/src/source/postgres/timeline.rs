//! Asks a server for the way of its log through timelines. A server that is promoted, or restored
//! to an earlier time, goes on with a new one. The replication protocol tells the present timeline
//! and the database system (`IDENTIFY_SYSTEM`), and where each timeline before it was left
//! (`TIMELINE_HISTORY`).

use changes::pgoutput::History;
use changes::position::lsn;

use super::connection::Connection;
use super::failure::{Failure, NO_SUCH_FILE};

/// Asks the server at the other end, whose connection is one for replication.
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

/// The server's history of a timeline; empty where it lacks the file, since nothing is known then
/// of what came before.
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
