//! holdall's own metrics: the numbers of `stats` that memcached's exporter does not have.

use metrics::{Kind, Page};

use super::numbers::{Numbers, Row, row};
use Kind::{Counter, Gauge};

/// Writes them; the prefix is `holdall_`.
pub(super) fn write(page: &mut Page, numbers: &Numbers) {
    Numbers::write(page, OWN, &numbers.general);
}

/// Of `stats`.
pub(super) const OWN: &[Row] = &[
    row("workers", Gauge, "threads", "Worker threads, -t."),
    // Connections.
    row("connections_idle_closed_total", Counter, "idle_kicks", "Closed for their silence."),
    row("connections_slow_closed_total", Counter, "slow_kicks", "Closed: took no replies."),
    row(
        "listener_disabled_seconds_total",
        Counter,
        "time_in_listen_disabled_us",
        "Time in which no connection was accepted.",
    ),
    row("connection_buffer_bytes", Gauge, "response_obj_bytes", "Input and output on its way."),
    row("read_syscalls_total", Counter, "read_syscalls", "System calls that read."),
    row("write_syscalls_total", Counter, "write_syscalls", "System calls that wrote."),
    row("poller_turns_total", Counter, "poller_turns", "Turns of all workers."),
    row("udp_requests_total", Counter, "udp_requests", "Datagrams answered."),
    row("udp_dropped_total", Counter, "udp_dropped", "Datagrams that were no request."),
    row("tls_sessions_total", Counter, "ssl_new_sessions", "TLS handshakes completed."),
    row("tls_handshake_errors_total", Counter, "ssl_handshake_errors", "TLS handshakes failed."),
    row("tls_errors_total", Counter, "ssl_proto_errors", "TLS sessions that broke."),
    row(
        "tls_certificate_read_age_seconds",
        Gauge,
        "time_since_server_cert_refresh",
        "Time since the certificate was read.",
    ),
    row(
        "tls_certificate_not_after_timestamp_seconds",
        Gauge,
        "server_cert_not_after",
        "Unix time at which the certificate expires.",
    ),
    // Requests.
    row(
        "meta_commands_total",
        Counter,
        "cmd_meta",
        "Commands me; other meta commands count as their classic ones.",
    ),
    row("prefix_flushes_total", Counter, "cmd_flush_prefix", "flush_prefix commands."),
    row("get_expired_total", Counter, "get_expired", "Expired items that requests found."),
    row("get_flushed_total", Counter, "get_flushed", "Flushed items that requests found."),
    row("logins_total", Counter, "auth_cmds", "Logins tried."),
    row("login_errors_total", Counter, "auth_errors", "Logins refused."),
    row("access_denied_total", Counter, "access_denied", "Requests without the right."),
    row("rate_refused_total", Counter, "rate_refused", "Requests over a limit of number."),
    row("store_over_quota_total", Counter, "store_over_quota", "Values over a byte quota."),
    // Leases and hold-offs.
    row("leases_issued_total", Counter, "lease_issued", "Tokens given to readers that missed."),
    row("lease_sets_total", Counter, "lease_sets", "Values stored with a token."),
    row("lease_sets_rejected_total", Counter, "lease_set_rejected", "Values whose token was void."),
    row("leases_released_total", Counter, "lease_released", "Tokens given back without a value."),
    row(
        "lease_waits_total",
        Counter,
        "lease_waits",
        "Readers that had to wait for another reader's fill.",
    ),
    row(
        "lease_keys_lost_total",
        Counter,
        "lease_keys_lost",
        "Tokens forgotten because the table was full.",
    ),
    row("lease_table_bytes", Gauge, "lease_table_bytes", "Memory of tokens and hold-offs."),
    row("stale_hits_total", Counter, "stale_hits", "Deleted values given out as stale."),
    row("stale_items", Gauge, "stale_items", "Deleted values that are kept."),
    row("stale_bytes", Gauge, "stale_bytes", "Bytes of deleted values that are kept."),
    row("holdoffs_total", Counter, "holdoffs", "Deletes with a hold-off."),
    row(
        "holdoff_no_memory_total",
        Counter,
        "holdoff_no_memory",
        "Hold-offs for which there was no room.",
    ),
    row("holdoff_refused_total", Counter, "holdoff_refused", "Adds refused by a hold-off."),
    // Memory.
    row("bags_bytes", Gauge, "bags_bytes", "Memory of bags."),
    row("buffer_bytes", Gauge, "buffer_bytes", "Memory of connections, within -m."),
    row("sampling_bytes", Gauge, "sampling_bytes", "Memory of samples, within -m."),
    row("index_bytes", Gauge, "hash_bytes", "Memory of the hash table."),
    row("index_growing", Gauge, "hash_is_expanding", "1 while buckets wait for a split."),
    row("reserve_used_bytes", Gauge, "reserve_bytes", "In use of the allocator's reserve."),
    row("reserve_grants_total", Counter, "malloc_fails", "Allocations that the system refused."),
    // Eviction and cleaning.
    row("evicted_unfetched_total", Counter, "evicted_unfetched", "Evicted, never read."),
    row("expired_unfetched_total", Counter, "expired_unfetched", "Expired, never read."),
    row("pages_moved_total", Counter, "slabs_moved", "Pages that went to another class."),
    row("pages_free", Gauge, "slab_global_page_pool", "Pages that belong to no class."),
    row("pages_moving", Gauge, "slab_reassign_running", "1 while a page is emptied."),
    row(
        "evicted_by_moves_total",
        Counter,
        "slab_reassign_evictions_nomem",
        "Items evicted because their page was moved.",
    ),
    row("bags_opened_total", Counter, "bags_opened", "Bags opened."),
    row("bags_merged_total", Counter, "bags_merged", "Bags merged with a neighbour."),
    row("transient_items", Gauge, "transient_listed", "Items freed in the second they expire."),
    row("transient_reclaimed_total", Counter, "transient_reclaimed", "Of these, freed."),
    row("cleaner_rounds_total", Counter, "lru_maintainer_juggles", "The cleaner's rounds."),
    row("crawl_running", Gauge, "lru_crawler_running", "1 while a crawl runs."),
    row("prefixes_invalidated_total", Counter, "prefixes_invalidated", "Prefixes flushed."),
    row("invalidations_outstanding", Gauge, "invalidations_outstanding", "Flushes not yet freed."),
    // Watchers.
    row("watchers", Gauge, "log_watchers", "Connections that watch."),
    row("watcher_lines_total", Counter, "log_watcher_sent", "Lines given to watchers."),
    row(
        "watcher_lines_skipped_total",
        Counter,
        "log_watcher_skipped",
        "Lines they were too slow for.",
    ),
];
