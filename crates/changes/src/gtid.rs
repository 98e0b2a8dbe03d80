//! MySQL's sets of transaction identifiers: for each server, the transaction numbers seen.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// Sixteen bytes that identify a server.
pub type Uuid = [u8; 16];

/// A sequence of transaction numbers: a server's, or, from MySQL 8.3 on, a server's with a tag.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Origin {
    /// The server that committed first.
    pub server: Uuid,
    /// The tag, in lower case as the server stores it; empty for transactions without one.
    pub tag: String,
}

impl Origin {
    /// The transactions of a server that have no tag.
    #[must_use]
    pub const fn untagged(server: Uuid) -> Self {
        Self { server, tag: String::new() }
    }
}

/// Transactions by origin, as inclusive intervals that neither touch nor overlap, in order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GtidSet {
    origins: BTreeMap<Origin, Vec<(u64, u64)>>,
}

/// The longest tag, in bytes.
const TAG_MAX: usize = 32;

/// Only digits: no sign, no blank.
pub(crate) fn number<T: FromStr>(text: &str) -> Option<T> {
    let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if is_plain { text.parse().ok() } else { None }
}

impl GtidSet {
    /// Adds one transaction.
    pub fn insert(&mut self, origin: Origin, number: u64) {
        self.insert_interval(origin, number, number);
    }

    fn insert_interval(&mut self, origin: Origin, first: u64, last: u64) {
        let intervals = self.origins.entry(origin).or_default();
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
    pub fn contains(&self, origin: &Origin, number: u64) -> bool {
        self.origins
            .get(origin)
            .is_some_and(|all| all.iter().any(|&(first, last)| (first..=last).contains(&number)))
    }

    /// Every origin with its inclusive intervals, those of one server next to each other.
    pub fn iter(&self) -> impl Iterator<Item = (&Origin, &[(u64, u64)])> {
        self.origins.iter().map(|(origin, intervals)| (origin, intervals.as_slice()))
    }
}

impl fmt::Display for GtidSet {
    /// As the server writes it: `UUID:1-5:8:tag:1-3,UUID:..`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut before: Option<Uuid> = None;
        for (origin, intervals) in &self.origins {
            if before != Some(origin.server) {
                if before.is_some() {
                    f.write_str(",")?;
                }
                write_uuid(f, &origin.server)?;
                before = Some(origin.server);
            }
            if !origin.tag.is_empty() {
                write!(f, ":{}", origin.tag)?;
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

fn write_uuid(f: &mut fmt::Formatter<'_>, uuid: &Uuid) -> fmt::Result {
    for (index, byte) in uuid.iter().enumerate() {
        if [4, 6, 8, 10].contains(&index) {
            f.write_str("-")?;
        }
        write!(f, "{byte:02x}")?;
    }
    Ok(())
}

/// Text that is not a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no set of MySQL transaction identifiers")]
pub struct InvalidGtidSet;

impl FromStr for GtidSet {
    type Err = InvalidGtidSet;

    fn from_str(text: &str) -> Result<Self, InvalidGtidSet> {
        let mut set = Self::default();
        for server in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let mut parts = server.split(':').map(str::trim);
            let mut origin = Origin::untagged(parts.next().and_then(uuid).ok_or(InvalidGtidSet)?);
            let mut is_empty = true;
            for part in parts {
                if let Some(tag) = tag(part) {
                    // A tag without numbers after it names nothing.
                    if is_empty && !origin.tag.is_empty() {
                        return Err(InvalidGtidSet);
                    }
                    (origin.tag, is_empty) = (tag, true);
                    continue;
                }
                let (first, last) = part.split_once('-').unwrap_or((part, part));
                let (first, last) =
                    (number(first).ok_or(InvalidGtidSet)?, number(last).ok_or(InvalidGtidSet)?);
                if first == 0 || first > last {
                    return Err(InvalidGtidSet);
                }
                set.insert_interval(origin.clone(), first, last);
                is_empty = false;
            }
            if is_empty {
                return Err(InvalidGtidSet);
            }
        }
        Ok(set)
    }
}

/// A tag as the server stores it; none for invalid text. It starts with a letter or `_`.
fn tag(text: &str) -> Option<String> {
    let is_first = |byte: &u8| byte.is_ascii_alphabetic() || *byte == b'_';
    let is_other = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let is_tag = text.as_bytes().first().is_some_and(is_first)
        && text.bytes().all(is_other)
        && text.len() <= TAG_MAX;
    is_tag.then(|| text.to_ascii_lowercase())
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

    fn tagged(tag: &str) -> Origin {
        Origin { server: SERVER, tag: tag.to_owned() }
    }

    #[test]
    fn numbers_in_any_order_become_intervals() {
        let (mut set, origin) = (GtidSet::default(), Origin::untagged(SERVER));
        for number in [1, 2, 3, 9, 5, 4, 11, 10] {
            set.insert(origin.clone(), number);
        }
        assert_eq!(set.iter().collect::<Vec<_>>(), [(&origin, [(1, 5), (9, 11)].as_slice())]);
        assert!(set.contains(&origin, 4) && !set.contains(&origin, 8));
        assert!(!set.contains(&Origin::untagged([8; 16]), 4));
        assert_eq!(set.to_string().parse(), Ok(set));
    }

    #[test]
    fn tagged_transactions_are_counted_separately() {
        let mut set = GtidSet::default();
        for (origin, number) in
            [(tagged("batch"), 1), (Origin::untagged(SERVER), 1), (tagged("batch"), 2)]
        {
            set.insert(origin, number);
        }
        set.insert(Origin::untagged([8; 16]), 5);
        assert!(set.contains(&tagged("batch"), 2) && !set.contains(&tagged("other"), 2));
        assert!(!set.contains(&Origin::untagged(SERVER), 2));
        let text = "07070707-0707-0707-0707-070707070707:1:batch:1-2,\
                    08080808-0808-0808-0808-080808080808:5";
        assert_eq!(set.to_string(), text);
        assert_eq!(text.parse(), Ok(set));
    }

    /// The server accepts each of these for `gtid_purged`, and prints the last one.
    #[test]
    fn equivalent_texts_of_a_tagged_set_are_parsed() {
        const UUID: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562";
        let upper = UUID.to_ascii_uppercase();
        let whole = format!("{UUID}:4-9:domain_1:1-3:15-21:domain_2:8-52");
        for text in [
            format!("{upper}:Domain_1:1-3:15-21, {UUID}:Domain_2:8-52,\n{UUID}:4-9"),
            format!("{UUID}:domain_2:8-52:domain_1:1-3,{UUID}:domain_1:15-21,{UUID}:4-9"),
            whole.clone(),
        ] {
            assert_eq!(text.parse::<GtidSet>().unwrap().to_string(), whole, "{text}");
        }
    }

    #[test]
    fn invalid_gtid_sets_are_refused() {
        for rest in [
            "",
            ":5-4",
            ":0",
            ":tag",
            ":1:tag",
            ":tag:other:1",
            ":1tag:1",
            ":a-b:1",
            ":tag:",
            ":abcdefghijklmnopqrstuvwxyz1234567:1",
        ] {
            let text = format!("07070707-0707-0707-0707-070707070707{rest}");
            assert!(text.parse::<GtidSet>().is_err(), "{text}");
        }
        for uuid in
            ["x", "070707070-0707-0707-0707070707070707", "07070707070707070707070707070707"]
        {
            assert!(format!("{uuid}:1").parse::<GtidSet>().is_err(), "{uuid}");
        }
    }
}
