//! Numbers by namespace and user, for those that `-o namespaces` names: the file bounds their
//! number.

use engine::{SUBJECT_COUNTERS, Subject, SubjectStats};
use metrics::{Kind, Page};

use crate::key_text;
use crate::shared::Shared;
use Kind::{Counter, Gauge};

/// Writes them; the prefix is `holdall_`.
pub(super) fn write(page: &mut Page, shared: &Shared) {
    let Some(all) = shared.engine.subject_stats() else { return };
    let (mut prefixes, mut users) = (Vec::new(), Vec::new());
    for stats in all {
        match &stats.rule.subject {
            Subject::Prefix(prefix) => prefixes.push((key_text::subject(prefix), stats)),
            Subject::User(user) => users.push((key_text::subject(user), stats)),
        }
    }
    for (index, (counter, field)) in SUBJECT_COUNTERS.iter().enumerate() {
        let count = |stats: &SubjectStats| stats.counts[index];
        each(page, "prefix", &format!("{field}_total"), Counter, &prefixes, count);
        if counter.is_of_users() {
            each(page, "user", &format!("{field}_total"), Counter, &users, count);
        }
    }
    each(page, "prefix", "items", Gauge, &prefixes, |stats| stats.items.items);
    each(page, "prefix", "bytes", Gauge, &prefixes, |stats| stats.items.bytes);
    each(page, "prefix", "bytes_limit", Gauge, &prefixes, |stats| {
        stats.rule.limits.bytes_max.unwrap_or(0)
    });
    each(page, "prefix", "refused_bytes_total", Counter, &prefixes, |stats| stats.items.refused);
    each(page, "prefix", "evicted_total", Counter, &prefixes, |stats| stats.items.evicted);
}

/// One metric with a sample for each subject.
fn each(
    page: &mut Page,
    kind_of_subject: &str,
    field: &str,
    kind: Kind,
    subjects: &[(String, SubjectStats)],
    value: impl Fn(&SubjectStats) -> u64,
) {
    let name = format!("{kind_of_subject}_{field}");
    page.family(&name, kind, &format!("`{field}` of stats prefixes, by {kind_of_subject}."));
    for (subject, stats) in subjects {
        page.sample(&name, &[(kind_of_subject, subject)], value(stats));
    }
}
