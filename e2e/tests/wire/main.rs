//! Exact replies, byte for byte, for each way of cutting the request in two.
//!
//! The tables follow memcached 1.6.45, the program to be replaced. Where Debian's 1.6.18 words a
//! reply differently, the row also has that reply, so that the tables themselves can be checked:
//! `E2E_SERVER=memcached cargo test -p e2e --test wire`.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod binary;
mod lease;
mod meta;
mod stats;
mod text;
mod tuning;

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use testkit::wire::{End, show};
use testkit::{Kind, Server};

/// A request and its reply. In both, `<k>` is a key that is new in each run; in the reply, `<n>` is
/// any decimal number.
struct Row {
    sent: &'static str,
    want: &'static str,
    /// The reply of 1.6.18, if it differs.
    old: Option<&'static str>,
}

const fn row(sent: &'static str, want: &'static str) -> Row {
    Row { sent, want, old: None }
}

const fn changed(sent: &'static str, want: &'static str, old: &'static str) -> Row {
    Row { sent, want, old: Some(old) }
}

/// Checks every row, cut at every place. A fence follows each request, so a surplus byte is seen at
/// once.
fn check(server: &Server, rows: &[Row]) {
    let mut failures = Vec::new();
    for row in rows {
        let want = match (server.kind(), row.old) {
            (Kind::Memcached, Some(old)) => old,
            _ => row.want,
        };
        let cuts = 0..row.sent.len().min(160);
        let failed = cuts.into_iter().find_map(|cut| run(server, row.sent, want, cut));
        failures.extend(failed);
    }
    assert!(failures.is_empty(), "{} rows:\n{}", failures.len(), failures.join("\n"));
}

fn run(server: &Server, sent: &str, want: &str, cut: usize) -> Option<String> {
    static TURN: AtomicU32 = AtomicU32::new(0);
    let key = format!("key{}", TURN.fetch_add(1, Ordering::Relaxed));
    let request = format!("{}mn\r\n", sent.replace("<k>", &key));
    let pattern = format!("{}MN\r\n", want.replace("<k>", &key));
    let mut wire = server.connect();
    // The cut is counted in the row's own bytes; a longer key moves it by a few.
    wire.send_cut(request.as_bytes(), &[cut], Duration::from_micros(100)).unwrap();
    let (got, end) = wire.read_until_or_end(b"MN\r\n", Duration::from_secs(3));
    let got_text = String::from_utf8_lossy(&got);
    if matches(&got_text, &pattern) && end == End::Found {
        return None;
    }
    Some(format!(
        "{}\n  cut at {cut}\n  want {}\n  got  {} ({end:?})",
        show(sent.as_bytes()),
        show(want.as_bytes()),
        show(&got)
    ))
}

/// True when `text` matches `pattern`, whose `<n>` stand for numbers.
fn matches(text: &str, pattern: &str) -> bool {
    let mut rest = text;
    let mut parts = pattern.split("<n>");
    let Some(left) = rest.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    rest = left;
    for part in parts {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        match rest[digits..].strip_prefix(part) {
            Some(left) if digits > 0 => rest = left,
            _ => return false,
        }
    }
    rest.is_empty()
}

#[test]
fn patterns_match_only_numbers() {
    assert!(matches("c12 x\r\n", "c<n> x\r\n"));
    assert!(!matches("c x\r\n", "c<n> x\r\n"));
    assert!(!matches("c12 x\r\nmore", "c<n> x\r\n"));
}

/// Sends `sent` and asserts that the server closes after exactly `want`.
#[track_caller]
fn closes(server: &Server, sent: &[u8], want: &[u8]) {
    let mut wire = server.connect();
    wire.send_for(sent, Duration::from_secs(5));
    let (got, end) = wire.read_to_end(Duration::from_secs(5));
    assert!(
        matches!(end, End::Closed | End::Reset),
        "still open after {}: {}",
        show(sent),
        show(&got)
    );
    if end == End::Closed {
        assert_eq!(show(&got), show(want), "for {}", show(sent));
    }
}
