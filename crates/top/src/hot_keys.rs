//! The most popular keys of all servers that report theirs.

use crate::poller::Member;

/// A key and its load on one server.
#[derive(Clone, Debug, PartialEq)]
pub struct HotKey {
    /// Percent-encoded, as reported by the server.
    pub key: String,
    /// The server's address.
    pub address: String,
    /// Requests per second for it there.
    pub requests_per_second: f64,
    /// Its share of the server's requests, 0 to 1.
    pub share: f64,
}

/// The hot keys of all members, most requested first.
#[must_use]
pub fn hot_keys(members: &[Member]) -> Vec<HotKey> {
    let mut keys: Vec<HotKey> = members.iter().flat_map(of_member).collect();
    keys.sort_by(|one, other| other.requests_per_second.total_cmp(&one.requests_per_second));
    keys
}

fn of_member(member: &Member) -> Vec<HotKey> {
    let Some(now) = member.now.as_ref().filter(|_| member.error.is_none()) else {
        return Vec::new();
    };
    let numbered = (1_u32..).map_while(|number| {
        Some(HotKey {
            key: now.stats.get(&format!("hotkeys:{number}:key"))?.clone(),
            address: member.target.address.clone(),
            requests_per_second: now.number(&format!("hotkeys:{number}:requests_per_second"))?,
            share: now.number(&format!("hotkeys:{number}:share_ratio"))?,
        })
    });
    numbered.collect()
}
