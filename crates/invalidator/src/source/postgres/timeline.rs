//! Queries a server's path through timelines. A server that is promoted, or restored to an earlier
//! time, continues with a new one. The replication protocol returns the current timeline and the
//! database system (`IDENTIFY_SYSTEM`), and where each earlier timeline was left
//! (`TIMELINE_HISTORY`).

use changes::pgoutput::History;
use changes::position::{Position, lsn};

use super::connection::Connection;
use super::failure::{Failure, NO_SUCH_FILE};
use crate::finding::Finding;

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

/// A note about a database that was promoted after this position. A slot that standbys copy never
/// sends what they lack, so nothing shows which commits were lost.
pub(super) fn promoted(history: &History, position: &Position) -> Option<Finding> {
    let Position::Lsn { timeline: Some(present), .. } = history.position(u64::MAX) else {
        return None;
    };
    let Position::Lsn { timeline: Some(timeline), .. } = *position else { return None };
    (timeline < present).then(|| {
        Finding::note(format!(
            "the database was promoted after timeline {timeline} and is on timeline {present}: \
             commits that the promoted server had not received are lost, and readers may have \
             cached them. Run holdall invalidate flush, unless this was a planned switchover, \
             which loses nothing"
        ))
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_promotion_after_the_position_is_noted() {
        let history = History::parse(7, 2, 0x900, "1 0/300 a\n").unwrap();
        let noted =
            |lsn, timeline| promoted(&history, &Position::Lsn { lsn, timeline, system: Some(7) });
        let note = noted(0x300, Some(1)).unwrap();
        assert!(!note.is_fatal && note.text.contains("timeline 1 and is on timeline 2"));
        assert_eq!(noted(0x400, Some(2)), None);
        assert_eq!(noted(0x300, None), None, "unknown");
        assert_eq!(promoted(&History::default(), &Position::of_lsn(7)), None);
    }
}
