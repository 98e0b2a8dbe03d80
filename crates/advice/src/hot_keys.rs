//! Keys that take a large part of a server: they should have several copies (section 3.2.3 of
//! *Scaling Memcache at Facebook*).

use crate::tier::{Member, Tier};
use crate::{Advice, Rank};

/// The share of a server's requests from which a key is hot.
const SHARE: f64 = 0.1;

/// The share over the last minutes, so that a short burst does not count.
const SHARE_OF_MINUTES: f64 = 0.05;

/// A key of an otherwise idle server costs nothing.
const REQUESTS_PER_SECOND: f64 = 500.0;

pub(crate) fn advise(tier: &Tier) -> Vec<Advice> {
    tier.servers().filter_map(hottest).collect()
}

fn hottest(member: &Member) -> Option<Advice> {
    let number = |what: &str| member.now.number(&format!("hotkeys:1:{what}"));
    let key = member.now.stats.get("hotkeys:1:key")?;
    let share = number("share_ratio")? - number("share_error_ratio").unwrap_or(0.0);
    let (rate, minutes) = (number("requests_per_second")?, number("share_of_minutes_ratio")?);
    (share >= SHARE && minutes >= SHARE_OF_MINUTES && rate >= REQUESTS_PER_SECOND).then(|| Advice {
        rank: Rank::Now,
        rule: "hot-key",
        members: vec![member.address.clone()],
        finding: format!(
            "One key takes {:.0} % of the server: keep copies of it on several servers.",
            share * 100.0
        ),
        evidence: format!(
            "{key}: {rate:.0} requests a second, {:.0} % in the last minutes",
            minutes * 100.0
        ),
        command: "KeySplitRoute in the proxy's configuration (docs/router.md), or the client's \
                  local cache"
            .to_owned(),
        weight: 10.0 + share * 50.0,
    })
}
