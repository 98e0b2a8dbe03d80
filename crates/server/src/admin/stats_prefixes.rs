//! `stats prefixes`: the namespaces and users of `-o namespaces`, their numbers and limits.

use engine::{Limits, SUBJECT_COUNTERS, Subject, SubjectStats};

use super::Context;
use super::stat_line::{Sink, number};
use crate::key_text;

/// Gives the lines to `sink`, in the order of the file; none without a file.
pub(super) fn prefixes(context: &Context<'_>, sink: Sink<'_>) {
    for stats in context.shared.engine.subject_stats().unwrap_or_default() {
        match &stats.rule.subject {
            Subject::Prefix(prefix) => of_prefix(prefix, &stats, sink),
            Subject::User(user) => of_user(user, &stats, sink),
        }
    }
}

fn of_prefix(prefix: &[u8], stats: &SubjectStats, sink: Sink<'_>) {
    let name = name("prefix", prefix);
    let mut show = |field: &str, value| number(sink, &format!("{name}:{field}"), value);
    show("items", stats.items.items);
    show("bytes", stats.items.bytes);
    for ((_, field), count) in SUBJECT_COUNTERS.iter().zip(stats.counts) {
        show(field, count);
    }
    show("refused_bytes", stats.items.refused);
    show("evicted", stats.items.evicted);
    let Limits { bytes_max, default_ttl_secs, ttl_secs_max, requests_per_second_max } =
        stats.rule.limits;
    show("max_bytes", bytes_max.unwrap_or(0));
    show("default_ttl", u64::from(default_ttl_secs.unwrap_or(0)));
    show("max_ttl", u64::from(ttl_secs_max.unwrap_or(0)));
    show("max_requests_per_second", u64::from(requests_per_second_max.unwrap_or(0)));
}

fn of_user(user: &[u8], stats: &SubjectStats, sink: Sink<'_>) {
    let name = name("user", user);
    let mut show = |field: &str, value| number(sink, &format!("{name}:{field}"), value);
    for ((counter, field), count) in SUBJECT_COUNTERS.iter().zip(stats.counts) {
        if counter.is_of_users() {
            show(field, count);
        }
    }
    let rate = stats.rule.limits.requests_per_second_max;
    show("max_requests_per_second", u64::from(rate.unwrap_or(0)));
}

/// The start of a line's name: the field follows the last colon.
fn name(kind: &str, subject: &[u8]) -> String {
    format!("{kind}:{}", key_text::subject(subject))
}
