//! The metrics of prometheus/memcached_exporter, with its names and types, so that dashboards and
//! alerts made for it work unchanged.
//!
//! Source of the names: <https://github.com/prometheus/memcached_exporter>, `pkg/exporter`. The
//! help texts are holdall's, since they describe its own counts.

use metrics::{Kind, Page};
use options::COMPATIBLE_VERSION;

use super::numbers::{Numbers, Row, of, row};
use Kind::{Counter, FallingCounter, Gauge};

/// Writes all of them; the prefix is `memcached_`.
pub(super) fn write(page: &mut Page, numbers: &Numbers) {
    page.single("up", Gauge, "1: the server answers.", 1);
    page.family("version", Gauge, "1, with the version of memcached that clients are told.");
    page.sample("version", &[("version", COMPATIBLE_VERSION)], 1);
    Numbers::write(page, GENERAL, &numbers.general);
    commands(page, numbers);
    Numbers::write(page, SETTINGS, &numbers.settings);
    if numbers.settings.get("lru_crawler").is_some_and(|value| value == "yes") {
        Numbers::write(page, CRAWLER, &numbers.settings);
    }
    Numbers::write_classes(page, ITEMS, &numbers.items);
    lru_hits(page, numbers);
    Numbers::write_classes(page, SLABS, &numbers.slabs);
    slab_commands(page, numbers);
    for (name, kind) in ABSENT {
        page.family(name, *kind, "Of memcached's extstore or proxy, which are not here.");
    }
}

/// Commands whose statistics are `<command>_hits` and `<command>_misses`.
pub(super) const COMMANDS: [&str; 6] = ["get", "delete", "incr", "decr", "cas", "touch"];

fn commands(page: &mut Page, numbers: &Numbers) {
    let stat = |name: &str| of(&numbers.general, name);
    let name = "commands_total";
    page.family(name, Counter, "Keys by command and what became of them.");
    for command in COMMANDS {
        for (status, suffix) in [("hit", "hits"), ("miss", "misses")] {
            let value = stat(&format!("{command}_{suffix}"));
            page.sample(name, &[("command", command), ("status", status)], value);
        }
    }
    page.sample(name, &[("command", "cas"), ("status", "badval")], stat("cas_badval"));
    page.sample(name, &[("command", "flush"), ("status", "hit")], stat("cmd_flush"));
    // As in the exporter: `cmd_set` also counts the attempts of `cas`.
    let set = stat("cmd_set").saturating_sub(stat("cas_sets"));
    page.sample(name, &[("command", "set"), ("status", "hit")], set);
}

fn slab_commands(page: &mut Page, numbers: &Numbers) {
    let name = "slab_commands_total";
    page.family(name, Counter, "Keys by slab class, command and what became of them.");
    for (class, slab) in &numbers.slabs {
        let class = class.to_string();
        let mut show = |command, status, value| {
            let labels = [("slab", class.as_str()), ("command", command), ("status", status)];
            page.sample(name, &labels, value);
        };
        for command in COMMANDS {
            show(command, "hit", of(slab, &format!("{command}_hits")));
        }
        show("cas", "badval", of(slab, "cas_badval"));
        show("set", "hit", of(slab, "cmd_set").saturating_sub(of(slab, "cas_sets")));
    }
}

fn lru_hits(page: &mut Page, numbers: &Numbers) {
    let name = "slab_lru_hits_total";
    page.family(name, Counter, "Always 0: bags have no hot, warm and cold parts.");
    for (class, items) in &numbers.items {
        for (lru, stat) in [
            ("hot", "hits_to_hot"),
            ("warm", "hits_to_warm"),
            ("cold", "hits_to_cold"),
            ("temporary", "hits_to_temp"),
        ] {
            page.sample(name, &[("slab", &class.to_string()), ("lru", lru)], of(items, stat));
        }
    }
}

/// Of `stats`.
pub(super) const GENERAL: &[Row] = &[
    row("uptime_seconds", Counter, "uptime", "Time since the start."),
    row("time_seconds", Gauge, "time", "The server's Unix time."),
    row("process_user_cpu_seconds_total", Counter, "rusage_user", "Processor time as user."),
    row("process_system_cpu_seconds_total", Counter, "rusage_system", "Processor time as system."),
    row("current_bytes", Gauge, "bytes", "Bytes of items, their headers included."),
    row("limit_bytes", Gauge, "limit_maxbytes", "The limit on all memory, -m."),
    row("current_items", Gauge, "curr_items", "Items stored now."),
    row("items_total", Counter, "total_items", "Items stored since the start."),
    row("read_bytes_total", Counter, "bytes_read", "Bytes read from clients."),
    row("written_bytes_total", Counter, "bytes_written", "Bytes written to clients."),
    row("current_connections", Gauge, "curr_connections", "Open connections."),
    row("connections_total", Counter, "total_connections", "Connections accepted."),
    row("connections_rejected_total", Counter, "rejected_connections", "Connections refused."),
    row(
        "connections_yielded_total",
        Counter,
        "conn_yields",
        "Times a connection had its share of a turn, -R, and waited for the next.",
    ),
    row(
        "connections_listener_disabled_total",
        Counter,
        "listen_disabled_num",
        "Times no connection was accepted for a while.",
    ),
    row("items_evicted_total", Counter, "evictions", "Live items removed to make room."),
    row("items_reclaimed_total", Counter, "reclaimed", "Dead items whose memory was used again."),
    row("item_too_large_total", Counter, "store_too_large", "Values refused for their size."),
    row(
        "item_no_memory_total",
        Counter,
        "store_no_memory",
        "Values refused because nothing could be evicted.",
    ),
    row("lru_crawler_starts_total", Counter, "lru_crawler_starts", "Dumps and crawls begun."),
    row(
        "direct_reclaims_total",
        Counter,
        "direct_reclaims",
        "Times a worker had to evict by itself.",
    ),
    row(
        "lru_crawler_items_checked_total",
        Counter,
        "crawler_items_checked",
        "Items that the cleaner looked at.",
    ),
    row(
        "lru_crawler_reclaimed_total",
        Counter,
        "crawler_reclaimed",
        "Dead items that the cleaner freed.",
    ),
    row("lru_crawler_moves_to_cold_total", Counter, "moves_to_cold", "Always 0."),
    row("lru_crawler_moves_to_warm_total", Counter, "moves_to_warm", "Always 0."),
    row(
        "lru_crawler_moves_within_lru_total",
        Counter,
        "moves_within_lru",
        "Items put in order within their bags.",
    ),
    row("malloced_bytes", Gauge, "total_malloced", "Memory of all pages of items."),
    row("accepting_connections", Gauge, "accepting_conns", "1 while connections are accepted."),
];

/// Of `stats settings`.
pub(super) const SETTINGS: &[Row] =
    &[row("max_connections", Gauge, "maxconns", "The limit on connections, -c.")];

/// Of `stats settings`, where crawls are allowed.
pub(super) const CRAWLER: &[Row] = &[
    row("lru_crawler_enabled", Gauge, "lru_crawler", "1 while crawls are allowed."),
    row("lru_crawler_sleep", Gauge, "lru_crawler_sleep", "Pause of a crawl, in microseconds."),
    row("lru_crawler_to_crawl", Gauge, "lru_crawler_tocrawl", "Most items of a crawl; 0: all."),
    row(
        "lru_crawler_maintainer_thread",
        Gauge,
        "lru_maintainer_thread",
        "Background work has a thread of its own.",
    ),
    row("lru_crawler_hot_percent", Gauge, "hot_lru_pct", "memcached's default, not used."),
    row("lru_crawler_warm_percent", Gauge, "warm_lru_pct", "memcached's default, not used."),
    row("lru_crawler_hot_max_factor", Gauge, "hot_max_factor", "memcached's default, not used."),
    row("lru_crawler_warm_max_factor", Gauge, "warm_max_factor", "memcached's default, not used."),
];

/// Of `stats items`, by class.
pub(super) const ITEMS: &[Row] = &[
    row("slab_current_items", Gauge, "number", "Items of the class."),
    row("slab_items_age_seconds", Gauge, "age", "Age of the class's oldest item."),
    row(
        "slab_items_crawler_reclaimed_total",
        Counter,
        "crawler_reclaimed",
        "Dead items that the cleaner freed.",
    ),
    row("slab_items_evicted_total", Counter, "evicted", "Live items removed to make room."),
    row(
        "slab_items_evicted_nonzero_total",
        Counter,
        "evicted_nonzero",
        "Those of them that had a deadline.",
    ),
    row(
        "slab_items_evicted_time_seconds",
        FallingCounter,
        "evicted_time",
        "Time since the item that was evicted last had been used.",
    ),
    row(
        "slab_items_evicted_unfetched_total",
        Counter,
        "evicted_unfetched",
        "Evicted items that nobody had read.",
    ),
    row(
        "slab_items_expired_unfetched_total",
        Counter,
        "expired_unfetched",
        "Expired items that nobody had read.",
    ),
    row(
        "slab_items_outofmemory_total",
        Counter,
        "outofmemory",
        "Values of the class refused because nothing could be evicted.",
    ),
    row(
        "slab_items_reclaimed_total",
        Counter,
        "reclaimed",
        "Dead items whose memory was used again.",
    ),
    row("slab_items_tailrepairs_total", Counter, "tailrepairs", "Always 0."),
    row("slab_mem_requested_bytes", FallingCounter, "mem_requested", "Bytes of the class's items."),
    row("slab_items_moves_to_cold", Counter, "moves_to_cold", "Always 0."),
    row("slab_items_moves_to_warm", Counter, "moves_to_warm", "Always 0."),
    row(
        "slab_items_moves_within_lru",
        Counter,
        "moves_within_lru",
        "Items put in order within their bags.",
    ),
    row("slab_hot_items", Gauge, "number_hot", "Always 0: bags have no hot part."),
    row("slab_warm_items", Gauge, "number_warm", "Always 0: bags have no warm part."),
    row("slab_cold_items", Gauge, "number_cold", "Items of the class."),
    row("slab_hot_age_seconds", Gauge, "age_hot", "Always 0."),
    row("slab_warm_age_seconds", Gauge, "age_warm", "Always 0."),
];

/// Of `stats slabs`, by class.
pub(super) const SLABS: &[Row] = &[
    row("slab_chunk_size_bytes", Gauge, "chunk_size", "Bytes of a chunk."),
    row("slab_chunks_per_page", Gauge, "chunks_per_page", "Chunks of a page."),
    row("slab_current_pages", Gauge, "total_pages", "Pages of the class."),
    row("slab_current_chunks", Gauge, "total_chunks", "Chunks of the class."),
    row("slab_chunks_used", Gauge, "used_chunks", "Chunks that hold an item."),
    row("slab_chunks_free", Gauge, "free_chunks", "Chunks that hold none."),
    row("slab_chunks_free_end", Gauge, "free_chunks_end", "Always 0."),
];

/// Names that the exporter shows for a memcached with extstore, with its proxy, or with a list for
/// short-lived items. They are declared, and have no values.
pub(super) const ABSENT: &[(&str, Kind)] = &[
    ("slab_temporary_items", Gauge),
    ("extstore_compact_lost_total", Counter),
    ("extstore_compact_rescued_total", Counter),
    ("extstore_compact_skipped_total", Counter),
    ("extstore_pages_allocated_total", Counter),
    ("extstore_pages_evicted_total", Counter),
    ("extstore_pages_reclaimed_total", Counter),
    ("extstore_pages_free", Gauge),
    ("extstore_pages_used", Gauge),
    ("extstore_objects_evicted_total", Counter),
    ("extstore_objects_read_total", Counter),
    ("extstore_objects_written_total", Counter),
    ("extstore_objects_used", Gauge),
    ("extstore_bytes_evicted_total", Counter),
    ("extstore_bytes_written_total", Counter),
    ("extstore_bytes_read_total", Counter),
    ("extstore_bytes_used", Counter),
    ("extstore_bytes_fragmented", Gauge),
    ("extstore_bytes_limit", Gauge),
    ("extstore_io_queue_depth", Gauge),
    ("proxy_conn_requests_total", Counter),
    ("proxy_conn_errors_total", Counter),
    ("proxy_conn_oom_total", Counter),
    ("proxy_req_active", Gauge),
    ("proxy_config_reloads_total", Counter),
    ("proxy_config_reload_fails_total", Counter),
    ("proxy_config_cron_runs_total", Counter),
    ("proxy_config_cron_fails_total", Counter),
    ("proxy_backend_total", Gauge),
    ("proxy_backend_marked_bad_total", Counter),
    ("proxy_backend_failed", Gauge),
    ("proxy_request_failed_depth_total", Counter),
    ("round_robin_fallback_total", Counter),
    ("unexpected_napi_ids_total", Counter),
];
