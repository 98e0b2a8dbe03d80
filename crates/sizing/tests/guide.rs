//! The examples of Intel's *Configuration and Deployment Guide For Memcached* come out exactly.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::path::Path;

use sizing::{Cheapest, Constraint, Input, Sizing, size, text};

fn sized(text: &str) -> Sizing {
    let path = Path::new("load.toml");
    let input = Input::parse(path, text).unwrap();
    size(&input, path).unwrap()
}

fn refusal(text: &str) -> String {
    let path = Path::new("load.toml");
    match Input::parse(path, text).and_then(|input| size(&input, path)) {
        Ok(_) => panic!("accepted"),
        Err(error) => error.to_string(),
    }
}

/// Section 4.3.2: 10,000 web servers with 64 pages per second of 100 gets are 64 million gets, and
/// 2,500 cache servers have 25,600 each (which the guide rounds to 25,000).
#[test]
fn the_guides_web_tier_needs_2500_servers() {
    let sizing = sized(
        "[load]\nweb_servers = 10_000\npages_per_second = 64\ngets_per_page = 100\n\
         [data]\nitems = 1_000_000\nsizes = [[32, 300, 1]]",
    );
    assert_eq!(sizing.demand.average, 64e6);
    let rule = sizing.rule.unwrap();
    assert_eq!((rule.servers, rule.gets_each), (2500.0, 25_600.0));
}

/// A server does fewer gets of one key than of many: the tier is limited by the servers with a copy
/// of the hottest key, and each copy takes a server.
#[test]
fn a_hot_key_limits_the_tier_by_single_key_capacity() {
    let tier = |share: f64| {
        let sizing = sized(&format!(
            "utilization = 1.0\nspares = 0\nmax_loss = 1.0\n\
             [load]\ngets_per_second = 4e6\nhot_key_share = {share}\n\
             [data]\nitems = 1_000_000\nsizes = [[32, 300, 1]]\n\
             [[platform]]\nname = \"one\"\ngets_per_second = 400_000\n\
             hot_gets_per_second = 300_000\nmemory = \"8GB\"\nnic = \"1000Gbit\""
        ));
        sizing.candidates[0].clone()
    };
    let none = tier(0.0);
    assert_eq!((none.servers, none.binds), (10.0, Constraint::Cpu));
    assert!((none.gets_max - 4e6).abs() < 1.0, "{}", none.gets_max);
    // Four copies of 1.2 million gets, in addition to the others' share of each server.
    let some = tier(0.3);
    assert_eq!((some.servers, some.hot_key_copies), (10.0, 4.0));
    let wanted = 1.0 / (0.3 / 4.0 / 300e3 + 0.7 / 10.0 / 400e3);
    assert!((some.gets_max - wanted).abs() < 1.0, "{}", some.gets_max);
    // All gets are of one key: 4,000,000 / 300,000 servers have it.
    let all = tier(1.0);
    assert_eq!((all.servers, all.binds), (14.0, Constraint::HotKey));
    assert_eq!(all.hot_key_copies, 14.0);
    assert!((all.gets_max - 14.0 * 300e3).abs() < 1.0, "{}", all.gets_max);
}

/// The same number, from the capacity of each server.
#[test]
fn servers_of_the_guides_capacity_give_the_same_number() {
    let sizing = sized(
        "scenario = \"tolerant\"\nutilization = 1.0\n\
         [load]\ngets_per_second = 64e6\n\
         [data]\nitems = 1_000_000\nsizes = [[32, 300, 1]]\n\
         [[platform]]\nname = \"guide's\"\ngets_per_second = 25_600\nmemory = \"8GB\"\n\
         nic = \"10Gbit\"",
    );
    let only = &sizing.candidates[0];
    assert_eq!((only.servers, only.binds), (2500.0, Constraint::Cpu));
    assert_eq!(only.headroom, 0.0);
}

/// Section 4.4.1: a cache of 2 GB on four servers takes 500 MB of each.
#[test]
fn the_guides_2_gb_cache_takes_500_mb_of_four_servers() {
    let sizing = sized(
        "utilization = 1.0\nspares = 0\nmax_loss = 0.25\n\
         [load]\ngets_per_second = 1000\n\
         [data]\nitems = 100_000_000\nsizes = [[32, 300, 1]]\n\
         [hits]\nmemory = \"2GB\"",
    );
    for candidate in &sizing.candidates {
        assert_eq!(candidate.servers, 4.0, "{}", candidate.platform.name);
        assert_eq!(candidate.memory_bytes, 500e6);
        assert_eq!(candidate.binds, Constraint::Loss);
        assert_eq!(candidate.loss.share, 0.25);
    }
}

/// Appendix B, for a thousand times the two-socket platform's capacity: that takes 55 times as many
/// of the Atom S1260, and the Atom C2750 draws the fewest watts (section 5).
#[test]
fn the_platform_comparison_matches_the_guide() {
    let sizing = sized(
        "utilization = 1.0\nspares = 0\n\
         [load]\ngets_per_second = 3_856_000_000\ngets_per_request = 1\n\
         [data]\nitems = 1000\nsizes = [[10, 1, 1]]",
    );
    let cpu: Vec<f64> = sizing
        .candidates
        .iter()
        .map(|candidate| candidate.needs.iter().find(|need| need.0 == Constraint::Cpu).unwrap().1)
        .collect();
    assert_eq!(cpu, [54_773.0, 6558.0, 4243.0, 1000.0]);
    assert_eq!(sizing.candidates[1].platform.name, "Atom C2750");
    assert_eq!((sizing.cheapest, sizing.cheapest_by), (1, Cheapest::Watts));
}

/// Sections 4.4.3 and 4.4.4: 10 Gbit/s match the two-socket platform, 1 Gbit/s throttle it; the
/// small Atom gains nothing by more than 1 Gbit/s.
#[test]
fn network_limits_match_the_guide() {
    let binds = |gets: u32, nic: &str| {
        let sizing = sized(&format!(
            "scenario = \"tolerant\"\n[load]\ngets_per_second = 1e9\n\
             [data]\nitems = 1000\nsizes = [[20, 100, 1]]\n\
             [[platform]]\nname = \"p\"\ngets_per_second = {gets}\nmemory = \"32GB\"\n\
             nic = \"{nic}\""
        ));
        sizing.candidates[0].binds
    };
    assert_eq!(binds(3_856_000, "10Gbit"), Constraint::Cpu);
    assert_eq!(binds(3_856_000, "1Gbit"), Constraint::Nic);
    assert_eq!(binds(70_400, "1Gbit"), Constraint::Cpu);
}

#[test]
fn a_database_that_cannot_serve_the_misses_is_reported() {
    let report = |reads_per_second: u32| {
        let sizing = sized(&format!(
            "[load]\ngets_per_second = 1000\npeak_factor = 1.0\n\
             [data]\nitems = 1_000_000\nsizes = [[32, 300, 1]]\n\
             [hits]\nwanted = 0.8\nknown = {{ memory = \"10MB\", hit_ratio = 0.5 }}\n\
             [database]\nreads_per_second = {reads_per_second}"
        ));
        text(&sizing)
    };
    let poor = report(10);
    assert!(poor.contains("cannot serve these, 2000 % of what it can at the peak"), "{poor}");
    assert!(poor.contains("it needs a hit ratio of 0.99 "), "{poor}");
    assert!(poor.contains("it fails with and without a gutter"), "{poor}");
    // It can serve the misses, but not those of a lost server in addition.
    let fair = report(250);
    assert!(!fair.contains("cannot serve"), "{fair}");
    assert!(fair.contains("it fails without a gutter"), "{fair}");
    let good = report(2000);
    assert!(!good.contains("it fails"), "{good}");
}

#[test]
fn missing_and_invalid_fields_are_named() {
    let load = "[load]\ngets_per_second = 1000\n";
    let data = "[data]\nitems = 1000\nsizes = [[32, 300, 1]]\n";
    let cases = [
        (format!("[load]\n{data}"), "load.web_servers is missing"),
        (format!("[load]\nweb_servers = 4\n{data}"), "load.pages_per_second is missing"),
        (
            format!("[load]\nweb_servers = 4\npages_per_second = 2\n{data}"),
            "load.gets_per_page is missing",
        ),
        (format!("{load}[data]\nsizes = [[32, 300, 1]]"), "data.items is missing"),
        (format!("{load}[data]\nitems = 5"), "data.sizes is missing"),
        (format!("{load}[data]\nitems = 0.5\nsizes = [[32, 300, 1]]"), "not one item"),
        (format!("{load}[data]\nitems = 5\nsizes = [[0, 300, 1]]"), "keys of 1 to 250"),
        (format!("{load}[data]\nitems = 5\nsizes = []"), "data.sizes"),
        (format!("{load}{data}[hits]\nwanted = 1.0"), "hits.wanted"),
        (format!("{load}{data}[hits]\ncurve = \"there-is-none\""), "there-is-none"),
        (
            format!("{load}{data}[[platform]]\nname = \"p\"\nnic = 1\nmemory = \"8GB\""),
            "platform 'p': gets_per_second is missing",
        ),
        (
            format!(
                "{load}{data}[[platform]]\nname = \"p\"\nnic = 1\nmemory = \"1GB\"\n\
                  gets_per_second = 5"
            ),
            "platform 'p': memory: more than base_memory",
        ),
        (format!("{load}{data}[[platform]]\nname = \"p\"\nnic = 1\nmemory = \"2 gig\""), "2 gig"),
        (format!("{load}{data}[database]\nreads = 5"), "unknown field `reads`"),
        (format!("utilization = 1.5\n{load}{data}"), "utilization"),
        (data.to_owned(), "missing field `load`"),
    ];
    for (text, wanted) in cases {
        let why = refusal(&text);
        assert!(
            why.contains(wanted) && why.starts_with("load.toml: ") || why.contains("there-is"),
            "{text}\n{why}"
        );
    }
}

#[test]
fn the_example_is_sized_and_rendered() {
    let sizing = sized(sizing::EXAMPLE);
    let best = &sizing.candidates[sizing.cheapest];
    assert_eq!(sizing.cheapest_by, Cheapest::Money);
    assert!((sizing.hits.ratio - 0.95).abs() < 1e-6);
    assert!((sizing.hits.memory_bytes / (16e9 * 1.3) - 1.0).abs() < 1e-6, "the guide's law");
    let text = text(&sizing);
    for wanted in ["small", "large", "a year", "Loss of one server", "Gutter"] {
        assert!(text.contains(wanted), "{wanted}:\n{text}");
    }
    let page = sizing::html(&sizing);
    assert!(page.contains("<svg") && !page.contains("http"), "no figure, or not offline");
    assert!(sizing::topology(&sizing, best).contains("[[region.cluster]]"));
    serde_json::to_value(&sizing).unwrap();
}

#[test]
fn names_are_escaped_in_html() {
    let sizing = sized(
        "[load]\ngets_per_second = 1000\n[data]\nitems = 5\nsizes = [[32, 300, 1]]\n\
         [[platform]]\nname = \"<script>\"\ngets_per_second = 5\nmemory = \"8GB\"\nnic = \"1Gbit\"",
    );
    assert!(!sizing::html(&sizing).contains("<script>"));
}

/// Every constraint can bind, and the resulting number breaks none.
#[test]
fn every_constraint_can_bind_and_holds_in_the_result() {
    let mut bound = Vec::new();
    for (gets, items, value, scenario) in [
        (1e6, 1e5, 20, "tolerant"),
        (1e6, 1e6, 8000, "tolerant"),
        (1e3, 1e9, 300, "low-latency"),
        (1e3, 1e4, 300, "blast-radius"),
    ] {
        let sizing = sized(&format!(
            "scenario = \"{scenario}\"\n[load]\ngets_per_second = {gets}\n\
             [data]\nitems = {items}\nsizes = [[30, {value}, 1]]"
        ));
        for candidate in &sizing.candidates {
            let used = candidate.used;
            assert!(used.cpu <= sizing.limits.utilization + 1e-9, "{candidate:?}");
            assert!(used.nic <= sizing.limits.utilization + 1e-9, "{candidate:?}");
            assert!(used.memory <= 1.0 + 1e-9, "{candidate:?}");
            assert!(candidate.loss.share <= sizing.limits.max_loss, "{candidate:?}");
            bound.push(candidate.binds);
        }
    }
    for constraint in [Constraint::Cpu, Constraint::Nic, Constraint::Memory, Constraint::Loss] {
        assert!(bound.contains(&constraint), "{constraint:?} never binds");
    }
}
