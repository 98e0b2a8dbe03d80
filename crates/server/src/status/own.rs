//! holdall's own metrics: the numbers of `stats` that memcached's exporter does not have.

use metrics::{Kind, Page};

use super::numbers::{Numbers, Row};
use Kind::{Counter, Gauge};

/// Writes them; the prefix is `holdall_`.
pub(super) fn write(page: &mut Page, numbers: &Numbers) {
    Numbers::write(page, OWN, &numbers.general);
}

const fn row(stat: &'static str, name: &'static str, kind: Kind, help: &'static str) -> Row {
    Row { name, kind, stat, help }
}

/// Of `stats`.
pub(super) const OWN: &[Row] = &[
    row("threads", "workers", Gauge, "Worker threads, -t."),
    // Connections.
    row("idle_kicks", "connections_idle_closed_total", Counter, "Closed for their silence."),
    row("slow_kicks", "connections_slow_closed_total", Counter, "Closed: took no replies."),
    row(
        "time_in_listen_disabled_us",
        "listener_disabled_seconds_total",
        Counter,
        "Time in which no connection was accepted.",
    ),
    row("response_obj_bytes", "connection_buffer_bytes", Gauge, "Input and output on its way."),
    row("read_syscalls", "read_syscalls_total", Counter, "System calls that read."),
    row("write_syscalls", "write_syscalls_total", Counter, "System calls that wrote."),
    row("poller_turns", "poller_turns_total", Counter, "Turns of all workers."),
    row("udp_requests", "udp_requests_total", Counter, "Datagrams answered."),
    row("udp_dropped", "udp_dropped_total", Counter, "Datagrams that were no request."),
    row("ssl_new_sessions", "tls_sessions_total", Counter, "TLS handshakes completed."),
    row("ssl_handshake_errors", "tls_handshake_errors_total", Counter, "TLS handshakes failed."),
    row("ssl_proto_errors", "tls_errors_total", Counter, "TLS sessions that broke."),
    row(
        "time_since_server_cert_refresh",
        "tls_certificate_read_age_seconds",
        Gauge,
        "Time since the certificate was read.",
    ),
    row(
        "server_cert_not_after",
        "tls_certificate_not_after_timestamp_seconds",
        Gauge,
        "Unix time at which the certificate expires.",
    ),
    // Requests.
    row(
        "cmd_meta",
        "meta_commands_total",
        Counter,
        "Commands me; other meta commands count as their classic ones.",
    ),
    row("cmd_flush_prefix", "prefix_flushes_total", Counter, "flush_prefix commands."),
    row("get_expired", "get_expired_total", Counter, "Expired items that requests found."),
    row("get_flushed", "get_flushed_total", Counter, "Flushed items that requests found."),
    row("auth_cmds", "logins_total", Counter, "Logins tried."),
    row("auth_errors", "login_errors_total", Counter, "Logins refused."),
    row("access_denied", "access_denied_total", Counter, "Requests without the right."),
    row("rate_refused", "rate_refused_total", Counter, "Requests over a limit of number."),
    row("store_over_quota", "store_over_quota_total", Counter, "Values over a byte quota."),
    // Leases and hold-offs.
    row("lease_issued", "leases_issued_total", Counter, "Tokens given to readers that missed."),
    row("lease_sets", "lease_sets_total", Counter, "Values stored with a token."),
    row("lease_set_rejected", "lease_sets_rejected_total", Counter, "Values whose token was void."),
    row("lease_released", "leases_released_total", Counter, "Tokens given back without a value."),
    row(
        "lease_waits",
        "lease_waits_total",
        Counter,
        "Readers that had to wait for another reader's fill.",
    ),
    row(
        "lease_keys_lost",
        "lease_keys_lost_total",
        Counter,
        "Tokens forgotten because the table was full.",
    ),
    row("lease_table_bytes", "lease_table_bytes", Gauge, "Memory of tokens and hold-offs."),
    row("stale_hits", "stale_hits_total", Counter, "Deleted values given out as stale."),
    row("stale_items", "stale_items", Gauge, "Deleted values that are kept."),
    row("stale_bytes", "stale_bytes", Gauge, "Bytes of deleted values that are kept."),
    row("holdoffs", "holdoffs_total", Counter, "Deletes with a hold-off."),
    row(
        "holdoff_no_memory",
        "holdoff_no_memory_total",
        Counter,
        "Hold-offs for which there was no room.",
    ),
    row("holdoff_refused", "holdoff_refused_total", Counter, "Adds refused by a hold-off."),
    // Memory.
    row("bags_bytes", "bags_bytes", Gauge, "Memory of bags."),
    row("buffer_bytes", "buffer_bytes", Gauge, "Memory of connections, within -m."),
    row("sampling_bytes", "sampling_bytes", Gauge, "Memory of samples, within -m."),
    row("hash_bytes", "index_bytes", Gauge, "Memory of the hash table."),
    row("hash_is_expanding", "index_growing", Gauge, "1 while buckets wait for a split."),
    row("reserve_bytes", "reserve_used_bytes", Gauge, "In use of the allocator's reserve."),
    row("malloc_fails", "reserve_grants_total", Counter, "Allocations that the system refused."),
    // Eviction and cleaning.
    row("evicted_unfetched", "evicted_unfetched_total", Counter, "Evicted, never read."),
    row("expired_unfetched", "expired_unfetched_total", Counter, "Expired, never read."),
    row("slabs_moved", "pages_moved_total", Counter, "Pages that went to another class."),
    row("slab_global_page_pool", "pages_free", Gauge, "Pages that belong to no class."),
    row("slab_reassign_running", "pages_moving", Gauge, "1 while a page is emptied."),
    row(
        "slab_reassign_evictions_nomem",
        "evicted_by_moves_total",
        Counter,
        "Items evicted because their page was moved.",
    ),
    row("bags_opened", "bags_opened_total", Counter, "Bags opened."),
    row("bags_merged", "bags_merged_total", Counter, "Bags merged with a neighbour."),
    row("transient_listed", "transient_items", Gauge, "Items freed in the second they expire."),
    row("transient_reclaimed", "transient_reclaimed_total", Counter, "Of these, freed."),
    row("lru_maintainer_juggles", "cleaner_rounds_total", Counter, "The cleaner's rounds."),
    row("lru_crawler_running", "crawl_running", Gauge, "1 while a crawl runs."),
    row("prefixes_invalidated", "prefixes_invalidated_total", Counter, "Prefixes flushed."),
    row("invalidations_outstanding", "invalidations_outstanding", Gauge, "Flushes not yet freed."),
    // Watchers.
    row("log_watchers", "watchers", Gauge, "Connections that watch."),
    row("log_watcher_sent", "watcher_lines_total", Counter, "Lines given to watchers."),
    row(
        "log_watcher_skipped",
        "watcher_lines_skipped_total",
        Counter,
        "Lines they were too slow for.",
    ),
];
