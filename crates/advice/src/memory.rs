//! More or less memory, by the live miss-ratio curve.

use crate::tier::{Member, Tier, megabytes};
use crate::{Advice, Rank};

/// The gain in hits that justifies twice the memory: the reduction of missed gets.
const GAIN: f64 = 0.02;

/// A negligible loss of hits.
const LOSS: f64 = 0.002;

/// Seconds after which a server has seen its users' typical load.
const SETTLED: f64 = 3600.0;

pub(crate) fn advise(tier: &Tier) -> Vec<Advice> {
    tier.servers().filter_map(|member| more(member).or_else(|| less(member))).collect()
}

fn more(member: &Member) -> Option<Advice> {
    let is_evicting = member.grown("evictions") > 0.0;
    if !is_evicting || member.fullness() < 0.8 {
        return None;
    }
    let now = member.hit_ratio_at("1x")?;
    // Continues while each doubling still gains.
    let mut best = None;
    let mut last = now;
    for (factor, name) in [(2.0, "2x"), (4.0, "4x"), (8.0, "8x")] {
        let Some(then) = member.hit_ratio_at(name).filter(|then| then - last >= GAIN) else {
            break;
        };
        last = then;
        best = Some((factor, then));
    }
    let (factor, then) = best?;
    let limit = member.number("limit_maxbytes");
    let gain = then - now;
    let saved = gain * member.rate("cmd_get");
    let more = megabytes(limit * (factor - 1.0));
    Some(Advice {
        rank: Rank::Now,
        rule: "more-memory",
        members: vec![member.address.clone()],
        finding: format!(
            "{factor} times the memory ({more:.0} MB more) gains {:.1} points of hits: \
             {saved:.0} database reads a second less.",
            gain * 100.0
        ),
        evidence: format!("predicted hit ratio {now:.3} now, {then:.3} then; items are evicted"),
        command: format!("cache_memlimit {:.0} at once; -m for good", megabytes(limit * factor)),
        weight: gain * 100.0,
    })
}

fn less(member: &Member) -> Option<Advice> {
    if member.number("uptime") < SETTLED || member.grown("evictions") > 0.0 {
        return None;
    }
    let (now, then) = (member.hit_ratio_at("1x")?, member.hit_ratio_at("0.5x")?);
    let is_spare = member.fullness() < 0.45 && now - then <= LOSS;
    let limit = member.number("limit_maxbytes");
    is_spare.then(|| Advice {
        rank: Rank::Worth,
        rule: "less-memory",
        members: vec![member.address.clone()],
        finding: "Half of the memory would hit as often.".to_owned(),
        evidence: format!(
            "{:.0} % of -m is used, nothing is evicted; predicted hit ratio {now:.3} now, \
             {then:.3} with half",
            member.fullness() * 100.0
        ),
        command: format!("cache_memlimit {:.0}; -m for good", megabytes(limit / 2.0)),
        weight: megabytes(limit) / 1024.0,
    })
}
