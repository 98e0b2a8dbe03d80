//! Splits the output of servers into replies, and compares the meaning of two replies.
//!
//! Each server chooses its own cas uniques, and only their equality matters, so each is replaced by
//! its order of first appearance. Times may differ by a second or two.

use std::collections::BTreeMap;
use testkit::wire::find;

/// The order in which cas uniques first appeared, for one connection.
#[derive(Debug, Default, Clone)]
pub struct Ranks {
    seen: BTreeMap<u64, usize>,
    last: u64,
    told: usize,
}

impl Ranks {
    /// The last cas unique from the server; 1, which is none, before the first.
    #[must_use]
    pub fn last(&self) -> u64 {
        self.last.max(1)
    }

    /// The number of cas uniques from the server, including repeated ones.
    #[must_use]
    pub fn told(&self) -> usize {
        self.told
    }

    fn rank(&mut self, unique: u64) -> String {
        if unique == 0 {
            return "cas-none".into();
        }
        self.last = unique;
        self.told += 1;
        let next = self.seen.len();
        format!("cas-{}", self.seen.entry(unique).or_insert(next))
    }
}

/// A text reply as comparable parts: lines with cas uniques ranked, and data blocks.
#[must_use]
pub fn text_parts(mut reply: &[u8], ranks: &mut Ranks) -> Vec<String> {
    let mut parts = Vec::new();
    while !reply.is_empty() {
        let Some(end) = find(reply, b"\r\n") else {
            parts.push(format!("{} (no line end)", reply.escape_ascii()));
            break;
        };
        let line = &reply[..end];
        reply = &reply[end + 2..];
        let words: Vec<String> =
            line.split(|&byte| byte == b' ').map(|word| word.escape_ascii().to_string()).collect();
        let block = match words[0].as_str() {
            "VALUE" => words.get(3).and_then(|len| len.parse::<usize>().ok()),
            "VA" => words.get(1).and_then(|len| len.parse::<usize>().ok()),
            _ => None,
        };
        parts.push(text_line(words, ranks));
        if let Some(len) = block {
            let until = (len + 2).min(reply.len());
            parts.push(format!("data {}", testkit::wire::show(&reply[..until])));
            reply = &reply[until..];
        }
    }
    parts
}

fn text_line(mut words: Vec<String>, ranks: &mut Ranks) -> String {
    match words[0].as_str() {
        "VERSION" => return "VERSION".into(),
        "VALUE" => {
            if let Some(Ok(unique)) = words.get(4).map(|word| word.parse()) {
                words[4] = ranks.rank(unique);
            }
        }
        "VA" | "HD" | "NF" | "NS" | "EX" | "EN" => {
            let first = if words[0] == "VA" { 2 } else { 1 };
            for word in words.iter_mut().skip(first) {
                if let Some(unique) = word.strip_prefix('c').and_then(|number| number.parse().ok())
                {
                    *word = ranks.rank(unique);
                }
            }
        }
        // Each server places items differently, with headers of another size.
        "ME" => {
            words.retain(|word| !["cas=", "cls=", "size="].iter().any(|own| word.starts_with(own)))
        }
        _ => {}
    }
    words.join(" ")
}

/// True when two parts are equal except for times up to two seconds apart.
#[must_use]
pub fn alike(one: &str, other: &str) -> bool {
    if one == other {
        return true;
    }
    let (ours, theirs): (Vec<_>, Vec<_>) = (one.split(' ').collect(), other.split(' ').collect());
    let meta = ["VA", "HD", "ME"].contains(&ours[0]);
    meta && ours.len() == theirs.len()
        && ours.iter().zip(&theirs).all(|(a, b)| a == b || times_near(a, b))
}

fn times_near(one: &str, other: &str) -> bool {
    ["t", "l", "exp=", "la="].iter().any(|prefix| {
        let number = |word: &str| word.strip_prefix(prefix)?.parse::<i64>().ok();
        match (number(one), number(other)) {
            (Some(a), Some(b)) => a >= 0 && b >= 0 && a.abs_diff(b) <= 2,
            _ => false,
        }
    })
}

/// Binary replies as comparable parts, one per packet.
#[must_use]
pub fn binary_parts(mut reply: &[u8], ranks: &mut Ranks) -> Vec<String> {
    let mut parts = Vec::new();
    while let Some((packet, rest)) = split_packet(reply) {
        let unique = u64::from_be_bytes(packet[16..24].try_into().expect("eight bytes"));
        let body =
            if packet[1] == 0x0b { "version".into() } else { testkit::wire::show(&packet[24..]) };
        let (head, opaque) = (packet[..8].escape_ascii(), packet[12..16].escape_ascii());
        parts.push(format!("{head} opaque {opaque} {} {body}", ranks.rank(unique)));
        reply = rest;
    }
    if !reply.is_empty() {
        parts.push(format!("{} (no whole packet)", reply.escape_ascii()));
    }
    parts
}

/// The first whole packet, and the bytes after it.
#[must_use]
pub fn split_packet(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let header = bytes.get(..24)?;
    let body = u32::from_be_bytes(header[8..12].try_into().ok()?);
    bytes.split_at_checked(24 + usize::try_from(body).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cas_uniques_are_compared_by_first_appearance() {
        let (mut one, mut other) = (Ranks::default(), Ranks::default());
        let first = text_parts(b"VALUE a 0 1 70\r\nx\r\nHD c71 kb\r\nHD c70\r\n", &mut one);
        let same = text_parts(b"VALUE a 0 1 5\r\nx\r\nHD c9 kb\r\nHD c5\r\n", &mut other);
        assert_eq!(first, same);
        let differs =
            text_parts(b"VALUE a 0 1 5\r\nx\r\nHD c9 kb\r\nHD c9\r\n", &mut Ranks::default());
        assert_ne!(first, differs);
        assert_eq!(other.last(), 5);
    }

    #[test]
    fn data_may_contain_line_ends() {
        let parts = text_parts(b"VALUE a 0 4\r\n\r\nEN\r\nEND\r\n", &mut Ranks::default());
        assert_eq!(parts, ["VALUE a 0 4", "data \\r\\nEN\\r\\n", "END"]);
    }

    #[test]
    fn only_times_may_differ_slightly() {
        assert!(alike("HD t50 k", "HD t49 k"));
        assert!(!alike("HD t50 f1", "HD t50 f2"));
        assert!(!alike("HD t-1", "HD t0"));
        assert!(!alike("VALUE t50 0 1", "VALUE t49 0 1"));
    }
}
