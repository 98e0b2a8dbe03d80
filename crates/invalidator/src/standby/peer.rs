//! Another invalidator of the group, by its status port.

use std::time::Duration;

use changes::position::Position;
use tokio::time::timeout;

use crate::status;

/// Another invalidator's report about itself.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Peer {
    pub(super) is_working: bool,
    /// The position up to which every cluster executed its deletes.
    pub(super) position: Option<Position>,
    /// True if it ends because the log lacked changes.
    pub(super) is_lacking: bool,
}

/// The time limit for an answer. While waiting for a stuck invalidator, the lock is not requested.
const ANSWER_MAX: Duration = Duration::from_millis(500);

/// Queries a peer; none if it does not answer soon.
pub(super) async fn ask(address: &str) -> Option<Peer> {
    let answered = timeout(ANSWER_MAX, status::ask(address)).await;
    answered.ok()?.ok().map(|text| parse(&text))
}

fn parse(text: &str) -> Peer {
    let mut peer = Peer::default();
    for line in text.lines() {
        let Some((name, value)) = line.strip_prefix("STAT ").and_then(|line| line.split_once(' '))
        else {
            continue;
        };
        match name {
            "working" => peer.is_working = value == "1",
            "lacking" => peer.is_lacking = value == "1",
            "delivered_position" => peer.position = value.parse().ok(),
            _ => {}
        }
    }
    peer
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Stats;

    #[test]
    fn the_status_of_a_peer_is_parsed() {
        let stats = Stats::new([]);
        assert_eq!(parse(&stats.text(0)), Peer { is_working: true, ..Peer::default() });
        *stats.delivered_position.lock() = "lsn:0/5".to_owned();
        stats.is_lacking.store(true, std::sync::atomic::Ordering::Relaxed);
        let position = Some(Position::of_lsn(5));
        assert_eq!(parse(&stats.text(0)), Peer { is_working: true, position, is_lacking: true });
        assert_eq!(parse("ERROR\r\n"), Peer::default());
    }
}
