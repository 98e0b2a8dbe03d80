//! Commands for operators, sent by other clients.

use super::{Input, any};

/// All inputs.
#[must_use]
pub fn inputs() -> Vec<Input> {
    let mut inputs = lines();
    inputs.push(prefixes());
    inputs.extend(watchers());
    inputs
}

fn lines() -> Vec<Input> {
    const LINES: [&str; 45] = [
        "lru_crawler crawl 64",
        "lru_crawler crawl 0",
        "lru_crawler crawl 1,2,3,999999999999",
        "lru_crawler crawl -1",
        "lru_crawler",
        "lru_crawler metadump",
        "lru_crawler metadump 64",
        "lru_crawler metadump 999999999999",
        "lru_crawler mgdump 64",
        "lru_crawler sleep 99999999999",
        "lru_crawler tocrawl -1",
        "lru_crawler nosuch",
        "lru",
        "lru mode",
        "lru temp_ttl",
        "lru tune",
        "lru tune 90 90 9 9",
        "lru tune 10 25 -0.1 nan",
        "slabs",
        "slabs reassign",
        "slabs reassign 1 64",
        "slabs reassign 64 1",
        "slabs reassign -1 -1",
        "slabs reassign 1 255",
        "slabs automove",
        "slabs automove window 0",
        "slabs automove window 67108864",
        "slabs automove ratio nan",
        "slabs automove 99",
        "stats cachedump",
        "stats cachedump 64 0",
        "stats cachedump 1 -1",
        "stats cachedump 4294967296 4294967296",
        "stats detail",
        "stats detail dump",
        "stats maps",
        "stats malloc",
        "stats sizes",
        "stats \x01\x02",
        "extstore free_memchunks 99 99",
        "extstore",
        "refresh_certs",
        "shutdown graceful",
        "verbosity 99999999999999999999",
        "flush_all -99999999999999999999",
    ];
    LINES.iter().map(|line| any(format!("admin-{line}"), format!("{line}\r\n"))).collect()
}

/// 76dc58c6b: one prefix per key, kept forever.
fn prefixes() -> Input {
    let gets: String = (0..20_000).map(|i| format!("get prefix{i}:key\r\n")).collect();
    any("admin-stats-detail-unbounded", format!("stats detail on\r\n{gets}stats detail off\r\n"))
}

/// 32ea7d8b5, 4ff4e8169, 7eeac6e9a: clients that request a flow of lines and do not read it.
fn watchers() -> Vec<Input> {
    vec![
        any(
            "admin-watch-not-reading",
            "watch mutations fetchers evictions deletions connevents\r\n",
        ),
        any("admin-watch-nosuch", "watch nosuch\r\n"),
        any("admin-watch-then-more", "watch\r\nget k\r\nwatch\r\nset k 0 0 1\r\nx\r\n"),
        any("admin-metadump-not-reading", "lru_crawler metadump all\r\n"),
        any("admin-mgdump-not-reading", "lru_crawler mgdump all\r\n"),
        any("admin-metadump-hash", "lru_crawler metadump hash\r\n"),
        any(
            "admin-metadump-pipelined",
            "get k\r\nlru_crawler metadump all\r\nlru_crawler metadump all\r\n",
        ),
        any(
            "admin-stats-flood",
            "stats\r\nstats settings\r\nstats items\r\nstats slabs\r\nstats conns\r\n".repeat(500),
        ),
    ]
}
