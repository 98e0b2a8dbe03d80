//! The files of servers' logs that were read last. They distinguish a log that began anew from the
//! one before: its identifiers may have passed the position by the time that it is read.

use std::collections::HashMap;

/// The file of each server that was read last.
#[derive(Debug, Default)]
pub(super) struct LogFiles {
    last: HashMap<String, LogFile>,
}

/// A file of a log: the number in its name, and the second in which it was begun.
#[derive(Debug, Clone, PartialEq, Eq)]
struct LogFile {
    base: String,
    number: u64,
    begun: u32,
}

impl LogFiles {
    /// Notes that a file of this server is read. False if the log is another one than before: of
    /// one log, a file that is not newer was not begun later. What was read before stays noted.
    pub(super) fn note(&mut self, server: &str, name: &str, begun: u32) -> bool {
        let Some((base, number)) = name.rsplit_once('.') else { return true };
        let Ok(number) = number.parse() else { return true };
        let file = LogFile { base: base.to_owned(), number, begun };
        if let Some(last) = self.last.get(server)
            && last.base == file.base
        {
            if last.number == file.number && last.begun != file.begun
                || last.number > file.number && last.begun < file.begun
            {
                return false;
            }
            if last.number > file.number {
                return true;
            }
        }
        self.last.insert(server.to_owned(), file);
        true
    }

    /// Forgets all: reading begins at a present end.
    pub(super) fn clear(&mut self) {
        self.last.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_that_began_anew_is_told_until_it_is_forgotten() {
        let mut files = LogFiles::default();
        for (name, begun) in
            [("bl.000006", 60), ("bl.000007", 70), ("bl.000007", 70), ("bl.000006", 60)]
        {
            assert!(files.note("a", name, begun), "{name}");
        }
        for _ in 0..2 {
            assert!(!files.note("a", "bl.000007", 80));
            assert!(!files.note("a", "bl.000001", 80));
        }
        // Another server's log, one of another name, and a later file tell nothing.
        assert!(files.note("b", "bl.000001", 80));
        assert!(files.note("a", "bl.000008", 80));
        assert!(files.note("a", "other.000001", 90));
        assert!(files.note("a", "other", 90));
        assert!(!files.note("a", "other.000001", 91));
        files.clear();
        assert!(files.note("a", "other.000001", 91));
    }
}
