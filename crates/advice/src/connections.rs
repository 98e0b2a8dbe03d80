//! Exhausted connections, and clients that do not read.

use crate::tier::{Member, Tier};
use crate::{Advice, Rank};

/// The part of `-c` in use from which a burst may exceed it.
const NEARLY_ALL: f64 = 0.9;

pub(crate) fn advise(tier: &Tier) -> Vec<Advice> {
    tier.servers().flat_map(|member| full(member).into_iter().chain(slow(member))).collect()
}

fn full(member: &Member) -> Option<Advice> {
    let (open, most) = (member.number("curr_connections"), member.number("max_connections"));
    let paused = member.grown("listen_disabled_num") + member.grown("rejected_connections");
    let is_full = most > 0.0 && open >= most * NEARLY_ALL;
    (is_full || paused > 0.0).then(|| Advice {
        rank: Rank::Now,
        rule: "connections-run-out",
        members: vec![member.address.clone()],
        finding: "Clients are refused, or soon will be: more connections are needed.".to_owned(),
        evidence: format!("{open} of {most} connections are open; {paused} were refused of late"),
        command: format!("-c {}, with --takeover; or a proxy between", (most * 2.0).max(1024.0)),
        weight: 70.0,
    })
}

fn slow(member: &Member) -> Option<Advice> {
    let closed = member.grown("slow_kicks");
    (closed > 0.0).then(|| Advice {
        rank: Rank::Worth,
        rule: "clients-do-not-read",
        members: vec![member.address.clone()],
        finding: "Clients request more than they read; the server closes them to protect others."
            .to_owned(),
        evidence: format!("slow_kicks grew by {closed}"),
        command: "'stats conns' names them; smaller multigets, or a larger -m".to_owned(),
        weight: 20.0,
    })
}
