//! Expiry times without effect, items that are never read, and large values.

use crate::tier::{Member, Tier};
use crate::{Advice, Rank};

/// Minimum number of evictions and expiries for a conclusion.
const ENDED_MIN: f64 = 10_000.0;

pub(crate) fn advise(tier: &Tier) -> Vec<Advice> {
    let rules = [times_without_effect, unread, large];
    tier.servers().flat_map(|member| rules.iter().filter_map(move |rule| rule(member))).collect()
}

fn times_without_effect(member: &Member) -> Option<Advice> {
    let evicted = member.number("evictions");
    // memcached counts what its crawler frees separately; holdall's `reclaimed` includes it.
    let is_memcached = !member.now.stats.contains_key("holdall_version");
    let by_crawler = if is_memcached { member.number("crawler_reclaimed") } else { 0.0 };
    let expired = member.number("reclaimed") + by_crawler;
    let is_without = evicted + expired >= ENDED_MIN && expired < (evicted + expired) * 0.01;
    is_without.then(|| Advice {
        rank: Rank::Note,
        rule: "expiry-times-never-matter",
        members: vec![member.address.clone()],
        finding: "Items are evicted long before they expire.".to_owned(),
        evidence: format!("{evicted} evicted, {expired} expired since the start"),
        command: "use shorter expiry times if old values are harmful; otherwise expiry times are unnecessary".to_owned(),
        weight: 3.0,
    })
}

fn unread(member: &Member) -> Option<Advice> {
    let (evicted, unread) = (member.number("evictions"), member.number("evicted_unfetched"));
    let is_lru = member.now.stats.get("eviction:policy").is_some_and(|policy| policy != "auto");
    let is_polluted = evicted >= ENDED_MIN && unread >= evicted * 0.8;
    (is_lru && is_polluted).then(|| Advice {
        rank: Rank::Worth,
        rule: "items-nobody-reads",
        members: vec![member.address.clone()],
        finding: "Most evicted items were never read: they push out those that are.".to_owned(),
        evidence: format!("{unread} of {evicted} evicted items were unread"),
        command: "-o eviction=auto".to_owned(),
        weight: 26.0,
    })
}

fn large(member: &Member) -> Option<Advice> {
    let items = member.number("curr_items");
    let mean = if items > 0.0 { member.number("bytes") / items } else { 0.0 };
    (items >= 1000.0 && mean >= 4096.0 && member.fullness() >= 0.8).then(|| Advice {
        rank: Rank::Note,
        rule: "large-values",
        members: vec![member.address.clone()],
        finding: "Values are large: compressed by the client, more of them fit.".to_owned(),
        evidence: format!("{mean:.0} bytes an item, {:.0} % full", member.fullness() * 100.0),
        command: format!("holdall bigkeys {}; the client's compression", member.address),
        weight: 2.0,
    })
}
