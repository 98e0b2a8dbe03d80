//! The visibility probe for MariaDB and MySQL: which commits other sessions see.
//!
//! MariaDB reports how far its binary log is committed in the engine (`Binlog_snapshot_file` and
//! `Binlog_snapshot_position`, which are current outside of a transaction). MySQL reports the
//! committed transaction identifiers (`gtid_executed`). Both change after the engine's commit,
//! which may come seconds after the log's followers got the transaction: with `AFTER_SYNC` and a
//! replica that does not answer, or with `binlog_group_commit_sync_delay`. MySQL without
//! transaction identifiers reports nothing.

use changes::change::Mark;
use changes::gtid::GtidSet;

use super::server::{Flavour, Server};
use super::{Settings, log_files};
use crate::change_source::{SourceError, VisibilityProbe};

/// A session at one server, connected at the first probe.
#[derive(Debug)]
pub struct MysqlProbe {
    settings: Settings,
    name: String,
    server: Option<Server>,
    seen: Seen,
}

#[derive(Debug, Default)]
enum Seen {
    #[default]
    Nothing,
    /// All transactions up to this one are visible.
    End {
        file: String,
        offset: u64,
    },
    Gtids(GtidSet),
}

impl MysqlProbe {
    pub(super) const fn new(settings: Settings, name: String) -> Self {
        Self { settings, name, server: None, seen: Seen::Nothing }
    }

    async fn ask(&mut self) -> Result<(), SourceError> {
        // A session with an unfinished answer is dropped: the next reply would be the wrong one.
        let mut server = match self.server.take() {
            Some(server) => server,
            None => Server::connect(&self.settings, &self.name).await?,
        };
        self.seen = match server.flavour {
            Flavour::MariaDb => {
                let (file, offset) = server.seen().await?;
                Seen::End { file, offset }
            }
            Flavour::MySql => Seen::Gtids(server.executed().await?),
        };
        self.server = Some(server);
        Ok(())
    }
}

impl VisibilityProbe for MysqlProbe {
    async fn refresh(&mut self) -> Result<(), SourceError> {
        self.ask().await
    }

    fn is_visible(&self, mark: &Mark) -> Option<bool> {
        match (mark, &self.seen) {
            (Mark::Unknown | Mark::Xid(_), _) => None,
            (Mark::Prepared(mark), _) => self.is_visible(mark),
            (Mark::End { file, offset }, Seen::End { file: seen, offset: until }) => {
                Some((log_files::number(file), *offset) <= (log_files::number(seen), *until))
            }
            (Mark::Gtid { origin, number }, Seen::Gtids(set)) => {
                Some(set.contains(origin, *number))
            }
            _ => Some(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use changes::gtid::Origin;

    fn saw(seen: Seen, mark: &Mark) -> Option<bool> {
        let settings = Settings::for_tests();
        let mut probe = MysqlProbe::new(settings, String::new());
        probe.seen = seen;
        probe.is_visible(mark)
    }

    #[test]
    fn transactions_before_the_snapshots_position_are_visible() {
        let seen = || Seen::End { file: "a-bin.1000000".to_owned(), offset: 500 };
        let end = |file: &str, offset| Mark::End { file: file.to_owned(), offset };
        assert_eq!(saw(seen(), &end("a-bin.1000000", 500)), Some(true));
        assert_eq!(saw(seen(), &end("a-bin.1000000", 501)), Some(false));
        assert_eq!(saw(seen(), &end("a-bin.999999", 9_000)), Some(true));
        assert_eq!(saw(seen(), &end("a-bin.1000001", 4)), Some(false));
        assert_eq!(saw(Seen::Nothing, &end("a-bin.000001", 4)), Some(false));
        assert_eq!(saw(seen(), &Mark::Unknown), None);
    }

    #[test]
    fn only_executed_gtids_are_visible() {
        let mut set = GtidSet::default();
        let tagged = Origin { server: [7; 16], tag: "batch".to_owned() };
        let untagged = Origin::untagged([7; 16]);
        set.insert(untagged.clone(), 3);
        let mark = |origin: &Origin, number| Mark::Gtid { origin: origin.clone(), number };
        assert_eq!(saw(Seen::Gtids(set.clone()), &mark(&untagged, 3)), Some(true));
        assert_eq!(saw(Seen::Gtids(set.clone()), &mark(&untagged, 2)), Some(false));
        assert_eq!(saw(Seen::Gtids(set), &mark(&tagged, 3)), Some(false));
    }
}
