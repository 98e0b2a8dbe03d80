//! Faults of connections: at most one line per second and peer.

use std::collections::HashMap;
use std::fmt::Arguments;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// The peers of the last second; `None` stands for all clients of a unix socket.
type Peers = HashMap<Option<IpAddr>, Peer>;

#[derive(Clone, Copy, Debug)]
struct Peer {
    told: Instant,
    /// Unreported faults since then.
    untold: u64,
}

static PEERS: Mutex<Option<Peers>> = Mutex::new(None);

/// Logs the fault of a peer's connection as a warning of the part `connections`, unless there was a
/// line about this peer in the last second. The next line counts the omitted ones.
pub fn fault(peer: Option<IpAddr>, what: Arguments<'_>) {
    let untold = judge(PEERS.lock().get_or_insert_default(), peer, Instant::now());
    match untold {
        None => {}
        Some(0) => tracing::warn!(target: "connections", "{what}"),
        Some(more) => {
            tracing::warn!(target: "connections", "{what} ({more} faults of this peer since the last line)");
        }
    }
}

/// The number of faults omitted before, if this one must be logged.
fn judge(peers: &mut Peers, peer: Option<IpAddr>, now: Instant) -> Option<u64> {
    let is_old = |known: &Peer| now.saturating_duration_since(known.told) >= PAUSE;
    if let Some(known) = peers.get_mut(&peer) {
        if !is_old(known) {
            known.untold += 1;
            return None;
        }
        let untold = known.untold;
        *known = Peer { told: now, untold: 0 };
        return Some(untold);
    }
    if peers.len() >= PEERS_MAX {
        peers.retain(|_, known| !is_old(known));
    }
    // A line for each of that many peers would hide everything else.
    if peers.len() >= PEERS_MAX {
        return None;
    }
    peers.insert(peer, Peer { told: now, untold: 0 });
    Some(0)
}

/// The minimum time between two lines about a peer.
const PAUSE: Duration = Duration::from_secs(1);

/// The maximum number of reported peers per second.
const PEERS_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn a_peer_has_one_line_a_second() {
        let (mut peers, begin) = (Peers::new(), Instant::now());
        let peer = |last| Some(IpAddr::V4(Ipv4Addr::new(10, 0, 0, last)));
        assert_eq!(judge(&mut peers, peer(1), begin), Some(0));
        for _ in 0..5 {
            assert_eq!(judge(&mut peers, peer(1), begin + PAUSE / 2), None);
        }
        assert_eq!(judge(&mut peers, peer(2), begin + PAUSE / 2), Some(0));
        assert_eq!(judge(&mut peers, peer(1), begin + PAUSE), Some(5));
        assert_eq!(judge(&mut peers, None, begin), Some(0));
    }

    #[test]
    fn a_crowd_of_peers_takes_bounded_memory() {
        let (mut peers, begin) = (Peers::new(), Instant::now());
        let all = (0..5000).map(|number| Some(IpAddr::V4(Ipv4Addr::from_bits(number))));
        let told = all.filter(|peer| judge(&mut peers, *peer, begin).is_some()).count();
        assert_eq!((told, peers.len()), (PEERS_MAX, PEERS_MAX));
        assert_eq!(judge(&mut peers, None, begin + PAUSE), Some(0));
        assert_eq!(peers.len(), 1);
    }
}
