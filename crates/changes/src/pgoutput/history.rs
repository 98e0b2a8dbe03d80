//! Timelines of PostgreSQL's log. A server that is promoted, or restored to an earlier time,
//! continues with a new one, and its positions may be those that another server has used for other
//! changes. The replication protocol returns the current timeline (`IDENTIFY_SYSTEM`) and where
//! each earlier one was left (`TIMELINE_HISTORY`). Another database system, restored from a dump or
//! newly created, has a different identifier, and all of its positions differ.

use crate::position::{Position, lsn};

/// The path of a server's log through timelines. The default knows none.
#[derive(Debug, Default)]
pub struct History {
    system: Option<u64>,
    present: Option<u32>,
    /// Timelines before the current one, oldest first, with the position at which each ended.
    earlier: Vec<(u32, u64)>,
    /// The end of the log at the time of the query.
    end: u64,
}

impl History {
    /// The history of the log of database system `system` that is on timeline `present` and ends at
    /// `end`, in bytes. None if `file`, the server's history of that timeline, is malformed. It is
    /// empty for the first timeline, and if the earlier ones are unknown.
    #[must_use]
    pub fn parse(system: u64, present: u32, end: u64, file: &str) -> Option<Self> {
        let earlier = ends(file)?;
        Some(Self { system: Some(system), present: Some(present), earlier, end })
    }

    /// The position after everything up to this place in the log, in bytes.
    #[must_use]
    pub fn position(&self, lsn: u64) -> Position {
        let earlier = self.earlier.iter().find(|(_, end)| lsn <= *end);
        let timeline = earlier.map(|(timeline, _)| *timeline).or(self.present);
        Position::Lsn { lsn, timeline, system: self.system }
    }

    /// The reason why the log does not lead through a position, if it does not.
    #[must_use]
    pub fn strays_from(&self, position: &Position) -> Option<Stray> {
        let Position::Lsn { lsn, timeline, system } = *position else { return None };
        if let Some((_, own)) = system.zip(self.system).filter(|(theirs, own)| theirs != own) {
            return Some(Stray::Foreign { system: own });
        }
        let end = self.end;
        let is_short = || (lsn > end).then_some(Stray::Short { end });
        let Some((timeline, present)) = timeline.zip(self.present) else { return is_short() };
        if timeline == present {
            return is_short();
        }
        if timeline > present {
            return Some(Stray::Old { present });
        }
        match self.earlier.iter().find(|(earlier, _)| *earlier == timeline) {
            Some((_, end)) if lsn <= *end => None,
            Some((_, end)) => Some(Stray::Left { present, end: *end }),
            None => Some(Stray::Other { present }),
        }
    }
}

/// The relation of a server's log to a position outside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stray {
    /// The log ends before the position.
    #[error("its log ends at {}", Position::of_lsn(*end))]
    Short {
        /// The end, in bytes.
        end: u64,
    },
    /// The server is on a timeline that another one has left: a former primary, or a standby that
    /// does not follow yet.
    #[error("it is still on timeline {present}")]
    Old {
        /// Its timeline.
        present: u32,
    },
    /// The server left the position's timeline before the position.
    #[error("it left that timeline at {}, for timeline {present}", Position::of_lsn(*end))]
    Left {
        /// Its timeline.
        present: u32,
        /// The place where it left the other, in bytes.
        end: u64,
    },
    /// The server is of another database system.
    #[error("it is the log of another database system, {system}")]
    Foreign {
        /// Its identifier.
        system: u64,
    },
    /// The server's timeline does not descend from the position's, as far as is known.
    #[error("its timeline {present} does not come of that one")]
    Other {
        /// Its timeline.
        present: u32,
    },
}

/// The ends of timelines in a history file. Each line is a timeline, the position at which it
/// ended, and a reason.
fn ends(file: &str) -> Option<Vec<(u32, u64)>> {
    let lines = file.lines().map(str::trim).filter(|line| !line.is_empty());
    let lines = lines.filter(|line| !line.starts_with('#'));
    let end = |line: &str| {
        let mut words = line.split_whitespace();
        Some((words.next()?.parse().ok()?, lsn(words.next()?)?))
    };
    lines.map(end).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(present: u32, file: &str) -> History {
        History::parse(7, present, 0x900, file).unwrap()
    }

    fn at(lsn: u64, timeline: u32) -> Position {
        Position::Lsn { lsn, timeline: Some(timeline), system: Some(7) }
    }

    #[test]
    fn a_position_gets_the_timeline_that_wrote_it() {
        let history =
            history(3, "1\t0/300\tno recovery target specified\n\n# note\n2\t0/500\tbefore 2026\n");
        for (lsn, timeline) in [(0x300, 1), (0x301, 2), (0x500, 2), (0x501, 3)] {
            assert_eq!(history.position(lsn), at(lsn, timeline));
        }
        assert_eq!(History::default().position(7), Position::of_lsn(7));
        for malformed in ["1 0/300\nx", "1 300"] {
            assert!(History::parse(7, 3, 0x900, malformed).is_none(), "{malformed}");
        }
    }

    #[test]
    fn a_server_that_left_the_positions_timeline_has_strayed() {
        let history = history(4, "1 0/300 a\n2 0/500 b\n");
        for (lsn, timeline, stray) in [
            (0x300, 1, None),
            (0x301, 1, Some(Stray::Left { present: 4, end: 0x300 })),
            (0x200, 2, None),
            (0x600, 4, None),
            (0x200, 3, Some(Stray::Other { present: 4 })),
            (0x600, 5, Some(Stray::Old { present: 4 })),
            (0x901, 4, Some(Stray::Short { end: 0x900 })),
        ] {
            assert_eq!(history.strays_from(&at(lsn, timeline)), stray, "{lsn:x} of {timeline}");
        }
        let unknown = Position::of_lsn;
        assert_eq!(history.strays_from(&unknown(0x301)), None);
        assert_eq!(history.strays_from(&unknown(0x901)), Some(Stray::Short { end: 0x900 }));
    }

    #[test]
    fn a_position_of_another_system_is_foreign() {
        let history = history(1, "");
        let of = |system| Position::Lsn { lsn: 0x300, timeline: Some(1), system };
        assert_eq!(history.strays_from(&of(Some(8))), Some(Stray::Foreign { system: 7 }));
        assert_eq!(history.strays_from(&of(Some(7))), None);
        // The format of earlier versions.
        assert_eq!(history.strays_from(&of(None)), None);
    }
}
