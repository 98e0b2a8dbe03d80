//! Twenty tiers with one planted fault each, whose advice comes first, and twenty healthy ones.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tools::{Reading, Role};

use crate::tier::{Member, Tier};
use crate::{Rank, advise};

/// Statistics of a healthy server that is full and in use: the counts of the second answer.
const SERVER: &[(&str, &str)] = &[
    ("holdall_version", "0.1.0"),
    ("uptime", "90000"),
    ("threads", "4"),
    ("curr_connections", "200"),
    ("max_connections", "1024"),
    ("limit_maxbytes", "1073741824"),
    ("arena_bytes", "1000000000"),
    ("bytes", "900000000"),
    ("curr_items", "3000000"),
    ("get_hits", "9000000"),
    ("get_misses", "1000000"),
    ("evictions", "500000"),
    ("evicted_unfetched", "200000"),
    ("reclaimed", "100000"),
    ("cmd_get", "10000000"),
    ("rusage_user", "30000"),
    ("rusage_system", "30000"),
    ("malloc_fails", "0"),
    ("eviction:policy", "auto"),
    ("mrc:sampled_reads", "50000"),
    ("mrc:0.5x:hit_ratio", "0.87"),
    ("mrc:1x:hit_ratio", "0.900"),
    ("mrc:2x:hit_ratio", "0.912"),
    ("mrc:4x:hit_ratio", "0.920"),
    ("mrc:8x:hit_ratio", "0.925"),
    ("hotkeys:1:key", "user%3A1"),
    ("hotkeys:1:share_ratio", "0.02"),
    ("hotkeys:1:share_of_minutes_ratio", "0.02"),
    ("hotkeys:1:requests_per_second", "800"),
    ("workingset:hour:user:mean_bytes", "300000000"),
    ("workingset:day:user:mean_bytes", "400000000"),
];

/// The statistics ten seconds earlier: 40,000 gets and 100 evictions per second.
const BEFORE: &[(&str, &str)] = &[
    ("uptime", "89990"),
    ("cmd_get", "9600000"),
    ("evictions", "499000"),
    ("rusage_user", "29990"),
    ("rusage_system", "29990"),
];

const PROXY: &[(&str, &str)] = &[("num_servers", "4"), ("num_suspect_servers", "0")];

const INVALIDATOR: &[(&str, &str)] = &[
    ("delivered_position", "1"),
    ("working", "1"),
    ("source_connected", "1"),
    ("gaps", "0"),
    ("cluster:east:connected", "1"),
    ("cluster:east:canary_late", "0"),
];

fn reading(role: Role, at: Instant, parts: &[&[(&str, &str)]]) -> Reading {
    let all = parts.iter().flat_map(|part| part.iter());
    let stats: BTreeMap<String, String> =
        all.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Reading { role, at, round_trip: Duration::from_micros(300), stats }
}

fn member(address: &str, role: Role, fixed: &[(&str, &str)]) -> Member {
    let at = Instant::now();
    let before: &[(&str, &str)] = if role == Role::Server { BEFORE } else { &[] };
    Member {
        address: address.to_owned(),
        before: reading(role, at, &[fixed, before]),
        now: reading(role, at + Duration::from_secs(10), &[fixed]),
    }
}

/// Four servers, a proxy and an invalidator.
fn healthy() -> Tier {
    let mut members: Vec<Member> = (1..=4)
        .map(|number| member(&format!("10.0.0.{number}:11211"), Role::Server, SERVER))
        .collect();
    members.push(member("10.0.1.1:5000", Role::Proxy, PROXY));
    members.push(member("10.0.2.1:9200", Role::Invalidator, INVALIDATOR));
    Tier { members, away: Vec::new() }
}

/// The tier with changed numbers of these members, in both answers or the second.
fn with(places: &[usize], both: &[(&str, &str)], second: &[(&str, &str)]) -> Tier {
    let mut tier = healthy();
    for place in places {
        let member = &mut tier.members[*place];
        let set = |stats: &mut BTreeMap<String, String>, parts: &[(&str, &str)]| {
            for (name, value) in parts {
                stats.insert((*name).to_owned(), (*value).to_owned());
            }
        };
        set(&mut member.before.stats, both);
        set(&mut member.now.stats, both);
        set(&mut member.now.stats, second);
    }
    tier
}

/// Statistics by name.
type Stats = &'static [(&'static str, &'static str)];

const SERVERS: &[usize] = &[0, 1, 2, 3];
const CALM: Stats = &[("evictions", "500000")];

/// The rule that must come first, the members, their numbers, and those of the second answer.
const PLANTED: &[(&str, &[usize], Stats, Stats)] = &[
    ("servers-knocked-out", &[4], &[("num_suspect_servers", "1")], &[]),
    ("deletes-not-delivered", &[5], &[("source_connected", "0")], &[]),
    ("deletes-not-delivered", &[5], &[("cluster:east:connected", "0")], &[]),
    ("deletes-not-delivered", &[5], &[("cluster:east:canary_late", "1")], &[]),
    ("deletes-not-delivered", &[5], &[("check_late", "1")], &[]),
    ("deletes-not-delivered", &[5], &[], &[("gaps", "1")]),
    ("allocations-refused", &[1], &[], &[("malloc_fails", "3")]),
    ("connections-run-out", &[0], &[("curr_connections", "1000")], &[]),
    ("connections-run-out", &[0], &[], &[("listen_disabled_num", "2")]),
    (
        "hot-key",
        &[2],
        &[
            ("hotkeys:1:share_ratio", "0.3"),
            ("hotkeys:1:share_of_minutes_ratio", "0.2"),
            ("hotkeys:1:requests_per_second", "12000"),
        ],
        &[],
    ),
    ("more-memory", &[0], &[("mrc:2x:hit_ratio", "0.95")], &[]),
    ("more-memory", SERVERS, &[("mrc:2x:hit_ratio", "0.93"), ("mrc:4x:hit_ratio", "0.96")], &[]),
    (
        "less-memory",
        &[3],
        &[
            ("evictions", "500000"),
            ("arena_bytes", "300000000"),
            ("bytes", "250000000"),
            ("mrc:0.5x:hit_ratio", "0.899"),
        ],
        &[],
    ),
    (
        "pool-of-its-own",
        &[0],
        &[
            ("workingset:hour:feed:mean_bytes", "100000000"),
            ("workingset:day:feed:mean_bytes", "900000000"),
        ],
        &[],
    ),
    ("uneven-load", &[1], &[], &[("cmd_get", "10700000")]),
    (
        "fewer-servers",
        SERVERS,
        &[
            ("evictions", "500000"),
            ("arena_bytes", "460000000"),
            ("bytes", "440000000"),
            ("mrc:0.5x:hit_ratio", "0.85"),
            ("rusage_user", "30000"),
            ("rusage_system", "30000"),
        ],
        &[("rusage_user", "30002"), ("rusage_system", "30002")],
    ),
    ("several-versions", &[1], &[("holdall_version", "0.2.0")], &[]),
    (
        "cold-server",
        &[2],
        &[("uptime", "300"), ("get_hits", "60000"), ("get_misses", "40000")],
        &[],
    ),
    ("expiry-times-never-matter", &[0], &[("reclaimed", "10")], &[]),
    (
        "items-nobody-reads",
        &[0],
        &[("eviction:policy", "bag"), ("evicted_unfetched", "480000")],
        &[],
    ),
    ("large-values", &[1], &[("curr_items", "90000")], &[]),
];

#[test]
fn planted_faults_are_reported_first() {
    for (at, (rule, places, both, second)) in PLANTED.iter().enumerate() {
        let tier = with(places, both, second);
        let advice = advise(&tier);
        let first = advice.first().unwrap_or_else(|| panic!("{at}: {rule} was not found"));
        assert_eq!(first.rule, *rule, "{at}: {advice:#?}");
        assert!(first.members.contains(&tier.members[places[0]].address), "{at}: {first:?}");
        assert!(!first.evidence.is_empty() && !first.command.is_empty());
    }
}

/// Variations without a fault.
const HEALTHY: &[(&[usize], Stats, Stats)] = &[
    (&[], &[], &[]),
    (SERVERS, CALM, &[]),
    (SERVERS, &[("curr_connections", "900")], &[]),
    (SERVERS, &[("max_connections", "100000"), ("curr_connections", "50000")], &[]),
    (SERVERS, &[("mrc:sampled_reads", "10"), ("mrc:2x:hit_ratio", "0.99")], &[]),
    (SERVERS, &[("evictions", "500000"), ("mrc:2x:hit_ratio", "0.99")], &[]),
    (SERVERS, &[("mrc:2x:hit_ratio", "0.919"), ("mrc:8x:hit_ratio", "0.99")], &[]),
    (SERVERS, &[("uptime", "60")], &[]),
    (&[0], &[("hotkeys:1:share_ratio", "0.09")], &[]),
    (&[0], &[("hotkeys:1:share_ratio", "0.5"), ("hotkeys:1:requests_per_second", "3")], &[]),
    (
        &[0],
        &[
            ("hotkeys:1:share_ratio", "0.4"),
            ("hotkeys:1:share_of_minutes_ratio", "0.01"),
            ("hotkeys:1:requests_per_second", "9000"),
        ],
        &[],
    ),
    (&[0], &[("hotkeys:1:share_ratio", "0.15"), ("hotkeys:1:share_error_ratio", "0.1")], &[]),
    (&[0], &[], &[("cmd_get", "10200000")]),
    (SERVERS, &[("malloc_fails", "7")], &[]),
    (SERVERS, &[("listen_disabled_num", "9"), ("rejected_connections", "4")], &[]),
    (&[4], &[("num_servers", "0")], &[]),
    (&[5], &[("working", "0"), ("source_connected", "0")], &[]),
    (&[5], &[("gaps", "3")], &[]),
    (SERVERS, &[("get_hits", "1000"), ("get_misses", "9000000")], &[]),
    (SERVERS, &[("cmd_get", "0"), ("get_hits", "0"), ("get_misses", "0")], &[]),
];

#[test]
fn healthy_tiers_get_no_urgent_advice() {
    assert_eq!(HEALTHY.len(), 20);
    for (at, (places, both, second)) in HEALTHY.iter().enumerate() {
        let advice = advise(&with(places, both, second));
        assert!(advice.iter().all(|one| one.rank != Rank::Now), "{at}: {advice:#?}");
    }
}

#[test]
fn an_unavailable_member_is_reported_first() {
    let mut tier = with(&[4], &[("num_suspect_servers", "1")], &[]);
    tier.away.push(("10.0.0.9:11211".to_owned(), "Connection refused".to_owned()));
    assert_eq!(advise(&tier)[0].rule, "member-away");
}

#[test]
fn missing_statistics_of_memcached_cause_no_advice() {
    let mut tier = healthy();
    for member in &mut tier.members {
        for stats in [&mut member.now.stats, &mut member.before.stats] {
            stats.retain(|name, _| !name.contains(':'));
            stats.remove("holdall_version");
            stats.remove("arena_bytes");
        }
    }
    assert_eq!(advise(&tier), []);
}

/// memcached's `reclaimed` lacks the items that its crawler frees.
#[test]
fn expired_items_of_memcached_include_those_of_its_crawler() {
    let rule = "expiry-times-never-matter";
    let advised = |crawled: &str, is_memcached: bool| {
        let mut tier = with(&[0], &[("reclaimed", "0"), ("crawler_reclaimed", crawled)], &[]);
        if is_memcached {
            tier.members[0].now.stats.remove("holdall_version");
        }
        advise(&tier).iter().any(|one| one.rule == rule)
    };
    assert!(!advised("300000", true));
    assert!(advised("0", true));
    assert!(advised("300000", false), "holdall's reclaimed includes them");
}
