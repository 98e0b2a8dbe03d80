//! The last-read log file of each server. They distinguish a restarted log from the previous one,
//! whose identifiers the new log may have passed by the time it is read.

use std::collections::HashMap;

/// The last-read file of each server, by the server's identity.
#[derive(Debug, Default)]
pub(super) struct LogFiles {
    last: HashMap<String, LogFile>,
}

/// A file of a log: the number in its name, and the second of its creation.
#[derive(Debug, Clone, PartialEq, Eq)]
struct LogFile {
    base: String,
    number: u64,
    begun: u32,
}

impl LogFiles {
    /// Records that a file of this server is read. False if the log is not the same as before: in
    /// one log, a file that is not newer was not created later. Earlier records stay.
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

    /// Clears all records: reading starts at a current end.
    pub(super) fn clear(&mut self) {
        self.last.clear();
    }
}

/// The number of a log file, which has six digits or more; 0 for a name without one.
pub(super) fn number(file: &str) -> u64 {
    file.rsplit('.').next().and_then(|digits| digits.parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reset_log_is_reported_until_cleared() {
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
        // Another server's log, one of another name, and a later file show nothing.
        assert!(files.note("b", "bl.000001", 80));
        assert!(files.note("a", "bl.000008", 80));
        assert!(files.note("a", "other.000001", 90));
        assert!(files.note("a", "other", 90));
        assert!(!files.note("a", "other.000001", 91));
        files.clear();
        assert!(files.note("a", "other.000001", 91));
    }
}
