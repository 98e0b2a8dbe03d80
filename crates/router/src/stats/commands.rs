//! Requests by command: of clients, to servers, and failed ones.

use std::collections::BTreeMap;

use upstream::{Command, Count, Snapshot};

use super::{Kind, Lines, Numbers};

/// The counters of one command.
#[derive(Clone, Copy, Debug, Default)]
struct OfCommand {
    asked: u64,
    /// Requests to first choices.
    out: u64,
    /// All requests, including failovers and shadows.
    out_all: u64,
    local_errors: u64,
    remote_errors: u64,
}

/// By mcrouter's name of the command; meta commands count as the equivalent classic ones.
fn by_name(of: &Snapshot) -> BTreeMap<String, OfCommand> {
    let mut sums: BTreeMap<String, OfCommand> = BTreeMap::new();
    for op in Command::ALL {
        let sum = sums.entry(op.name().replace(['-', '_'], "_")).or_default();
        let out = of.get(Count::Sent(op));
        sum.asked += of.get(Count::Asked(op));
        sum.out += out;
        sum.out_all += out + of.get(Count::SentAside(op));
        sum.local_errors += of.get(Count::FailedHere(op));
        sum.remote_errors += of.get(Count::FailedThere(op));
    }
    sums
}

pub(super) fn lines(lines: &mut Lines, numbers: &Numbers) {
    let fresh = by_name(&numbers.window);
    for (name, all) in by_name(&numbers.now.traffic) {
        let fresh = fresh.get(&name).copied().unwrap_or_default();
        for (suffix, all, fresh) in [
            ("", all.asked, fresh.asked),
            ("_out", all.out, fresh.out),
            ("_out_all", all.out_all, fresh.out_all),
        ] {
            lines.put(Kind::Count, format!("cmd_{name}{suffix}_count"), all);
            lines.put_fraction(Kind::Ods, format!("cmd_{name}{suffix}"), numbers.rate(fresh));
        }
        for (suffix, errors) in
            [("local_error", all.local_errors), ("remote_error", all.remote_errors)]
        {
            lines.put(Kind::Error, format!("cmd_{name}_{suffix}_count"), errors);
        }
    }
}
