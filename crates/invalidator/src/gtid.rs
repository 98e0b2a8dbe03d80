//! MySQL's sets of transaction identifiers: for each server, the transaction numbers seen.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// Sixteen bytes that name a server.
pub type Uuid = [u8; 16];

/// Transactions by server, as inclusive intervals that neither touch nor overlap, in order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GtidSet {
    servers: BTreeMap<Uuid, Vec<(u64, u64)>>,
}

/// Digits and nothing else: no sign, no blank.
pub(crate) fn number<T: FromStr>(text: &str) -> Option<T> {
    let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if is_plain { text.parse().ok() } else { None }
}

impl GtidSet {
    /// Adds one transaction.
    pub fn insert(&mut self, server: Uuid, number: u64) {
        self.insert_interval(server, number, number);
    }

    fn insert_interval(&mut self, server: Uuid, first: u64, last: u64) {
        let intervals = self.servers.entry(server).or_default();
        // Numbers come in order, so the usual case extends the last interval.
        if let Some(end) = intervals.last_mut()
            && end.1.checked_add(1) == Some(first)
        {
            end.1 = last;
            return;
        }
        intervals.push((first, last));
        intervals.sort_unstable();
        let mut merged: Vec<(u64, u64)> = Vec::with_capacity(intervals.len());
        for &(first, last) in intervals.iter() {
            match merged.last_mut() {
                Some(before) if first <= before.1.saturating_add(1) => {
                    before.1 = before.1.max(last)
                }
                _ => merged.push((first, last)),
            }
        }
        *intervals = merged;
    }

    /// True when the transaction is in the set.
    #[must_use]
    pub fn contains(&self, server: Uuid, number: u64) -> bool {
        self.servers
            .get(&server)
            .is_some_and(|all| all.iter().any(|&(first, last)| (first..=last).contains(&number)))
    }

    /// Every server with its inclusive intervals.
    pub fn iter(&self) -> impl Iterator<Item = (Uuid, &[(u64, u64)])> {
        self.servers.iter().map(|(server, intervals)| (*server, intervals.as_slice()))
    }
}

impl fmt::Display for GtidSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (server, intervals)) in self.servers.iter().enumerate() {
            if at > 0 {
                f.write_str(",")?;
            }
            for (index, byte) in server.iter().enumerate() {
                if [4, 6, 8, 10].contains(&index) {
                    f.write_str("-")?;
                }
                write!(f, "{byte:02x}")?;
            }
            for (first, last) in intervals {
                if first == last {
                    write!(f, ":{first}")?;
                } else {
                    write!(f, ":{first}-{last}")?;
                }
            }
        }
        Ok(())
    }
}

/// Text that is no set. Tagged identifiers (MySQL 8.4) are not understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no set of MySQL transaction identifiers")]
pub struct NotASet;

impl FromStr for GtidSet {
    type Err = NotASet;

    fn from_str(text: &str) -> Result<Self, NotASet> {
        let mut set = Self::default();
        for server in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let mut parts = server.split(':');
            let uuid = parts.next().and_then(uuid).ok_or(NotASet)?;
            let mut is_empty = true;
            for interval in parts {
                let (first, last) = interval.split_once('-').unwrap_or((interval, interval));
                let (first, last) = (number(first).ok_or(NotASet)?, number(last).ok_or(NotASet)?);
                if first == 0 || first > last {
                    return Err(NotASet);
                }
                set.insert_interval(uuid, first, last);
                is_empty = false;
            }
            if is_empty {
                return Err(NotASet);
            }
        }
        Ok(set)
    }
}

fn uuid(text: &str) -> Option<Uuid> {
    let digits: Vec<u8> = text.bytes().filter(|byte| *byte != b'-').collect();
    if digits.len() != 32 || text.len() != 36 {
        return None;
    }
    let mut uuid = [0; 16];
    for (byte, pair) in uuid.iter_mut().zip(digits.chunks_exact(2)) {
        let high = char::from(pair[0]).to_digit(16)?;
        let low = char::from(pair[1]).to_digit(16)?;
        *byte = u8::try_from(high * 16 + low).ok()?;
    }
    Some(uuid)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER: Uuid = [7; 16];

    #[test]
    fn numbers_in_any_order_become_intervals() {
        let mut set = GtidSet::default();
        for number in [1, 2, 3, 9, 5, 4, 11, 10] {
            set.insert(SERVER, number);
        }
        assert_eq!(set.iter().collect::<Vec<_>>(), [(SERVER, [(1, 5), (9, 11)].as_slice())]);
        assert!(set.contains(SERVER, 4) && !set.contains(SERVER, 8) && !set.contains([8; 16], 4));
        assert_eq!(set.to_string().parse(), Ok(set));
    }

    #[test]
    fn what_is_no_set_is_refused() {
        for text in [
            "x",
            "07070707-0707-0707-0707-070707070707",
            "07070707-0707-0707-0707-070707070707:5-4",
            "07070707-0707-0707-0707-070707070707:0",
            "07070707-0707-0707-0707-070707070707:tag:1",
        ] {
            assert!(text.parse::<GtidSet>().is_err(), "{text}");
        }
    }
}
