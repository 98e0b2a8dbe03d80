//! `stats`: the groups, and the general one.
//!
//! Names are memcached's. A name that has no meaning in holdall's engine is shown with 0, since
//! exporters request it by name. holdall's own names are at the end of the general group.

use std::os::fd::RawFd;

use engine::{CLASS_COUNTERS, COUNTERS, Counter};
use net::{ConnInfo, ConnState, ListenAddress};
use nix::sys::resource::{Usage, UsageWho, getrusage};
use nix::sys::time::TimeVal;
use options::COMPATIBLE_VERSION;
use proto::reply;
use proto::text::Words;

use super::dump::{Dump, Kind};
use super::stat_line::{Sink, number};
use super::{Context, stats_classes, stats_prefixes, stats_samples};

/// The size classes that memcached can have; the first of them is never used.
const CLASSES_OF_MEMCACHED: u8 = 64;

/// Gives the statistics of a group to `sink`; false if there is no such group. Groups are whole
/// words: memcached takes `stats r` for `stats reset`.
pub(crate) fn group(context: &Context<'_>, name: &[u8], sink: Sink<'_>) -> bool {
    match name {
        b"" => general(context, sink),
        b"settings" => settings(context, sink),
        b"items" => stats_classes::items(context, sink),
        b"slabs" => stats_classes::slabs(context, sink),
        b"sizes" => stats_classes::sizes(context, sink),
        b"eviction" => stats_samples::eviction(context, sink),
        b"hotkeys" => stats_samples::hot_keys(context, sink),
        b"latency" => stats_samples::latency(context, sink),
        b"prefixes" => stats_prefixes::prefixes(context, sink),
        b"mrc" => stats_samples::miss_ratio_curve(context, sink),
        b"workingset" => stats_samples::working_set(context, sink),
        b"reset" => reset(context),
        // Groups of parts that are not switched on.
        b"extstore" | b"proxy" | b"proxyfuncs" | b"proxybe" => {}
        _ => return false,
    }
    true
}

pub(crate) fn reset(context: &Context<'_>) {
    context.shared.engine.reset_stats();
    let (now_ms, now_secs) = context.shared.clock_now();
    context.shared.engine.forget_samples(now_ms, now_secs);
    context.shared.prefixes.reset();
    context.shared.reset_counts();
    context.control.reset_stats();
}

pub(crate) fn detail(context: &Context<'_>, mut words: Words<'_>, out: &mut Vec<u8>) {
    match words.next() {
        Some(b"on") => {
            context.shared.prefixes.switch(true);
            out.extend_from_slice(reply::OK);
        }
        Some(b"off") => {
            context.shared.prefixes.switch(false);
            out.extend_from_slice(reply::OK);
        }
        Some(b"dump") => context.shared.prefixes.dump(out),
        _ => out.extend_from_slice(b"CLIENT_ERROR usage: stats detail on|off|dump\r\n"),
    }
}

/// `detail on`, `off` and `dump` as the key of a binary `stat`: the dump is one value. False for
/// another key.
pub(crate) fn binary_detail(context: &Context<'_>, key: &[u8], sink: Sink<'_>) -> bool {
    let prefixes = &context.shared.prefixes;
    match key {
        b"detail on" => prefixes.switch(true),
        b"detail off" => prefixes.switch(false),
        b"detail dump" => {
            let mut dump = Vec::new();
            prefixes.dump(&mut dump);
            sink(b"detailed", &dump);
        }
        _ => return false,
    }
    true
}

pub(crate) fn cachedump(
    context: &Context<'_>,
    is_datagram: bool,
    mut words: Words<'_>,
) -> Result<Dump, &'static [u8]> {
    if !context.shared.dump_enabled || is_datagram {
        return Err(b"CLIENT_ERROR stats cachedump not allowed\r\n");
    }
    let (Some(class), Some(limit)) = (words.next(), words.next()) else {
        return Err(b"CLIENT_ERROR bad command line\r\n");
    };
    let number = |word| proto::number::parse_u32(word).ok_or(super::BAD_FORMAT);
    let (class, limit) = (number(class)?, number(limit)?);
    let class = u8::try_from(class).map_err(|_| &b"CLIENT_ERROR Illegal slab id\r\n"[..])?;
    // Dumpers such as memcdump read classes 0 to 63, all that memcached can have. No item has class
    // 0, so it shows the classes that they do not read.
    let classes = if class == 0 { classes_above_memcacheds(context) } else { vec![class] };
    Ok(Dump::new(Kind::cachedump(limit), classes))
}

/// The classes with items that memcached cannot have, the last first.
fn classes_above_memcacheds(context: &Context<'_>) -> Vec<u8> {
    let used = context.shared.engine.store().class_stats(context.now_secs);
    let above = used.iter().filter(|class| class.id >= CLASSES_OF_MEMCACHED && class.items > 0);
    above.map(|class| class.id).rev().collect()
}

fn settings(context: &Context<'_>, sink: Sink<'_>) {
    number(sink, "maxbytes", context.shared.engine.store().memory().limit);
    let store = context.shared.engine.store();
    number(sink, "slab_automove", store.automove() as u64);
    let ratio = f64::from(store.automove_ratio_per_mille()) / 1000.0;
    sink(b"slab_automove_ratio", format!("{ratio:.2}").as_bytes());
    let transient_secs = context.shared.engine.store().transient_secs();
    sink(b"temp_lru", if transient_secs > 0 { b"yes" } else { b"no" });
    number(sink, "temporary_ttl", u64::from(transient_secs));
    for (name, value) in context.shared.crawler.settings() {
        sink(name.as_bytes(), value.as_bytes());
    }
    number(sink, "maxconns", context.shared.connections_max() as u64);
    context.shared.each_setting(|name, value| {
        if name != "maxconns" {
            sink(name.as_bytes(), value.as_bytes());
        }
    });
    number(sink, "verbosity", u64::from(context.shared.verbosity()));
    let is_on = context.shared.prefixes.is_on();
    sink(b"detail_enabled", if is_on { b"yes" } else { b"no" });
}

fn general(context: &Context<'_>, sink: Sink<'_>) {
    process(context, sink);
    connections(context, sink);
    commands(context, sink);
    memory(context, sink);
    for name in ALWAYS_ZERO {
        number(sink, name, 0);
    }
    // A page moves although its items are in use, so none is ever the reason to wait.
    sink(b"slab_reassign_last_busy_status", b"none");
}

fn process(context: &Context<'_>, sink: Sink<'_>) {
    let now_secs = context.now_secs;
    number(sink, "pid", u64::from(std::process::id()));
    number(sink, "uptime", context.shared.clock.started_at().elapsed().as_secs());
    number(sink, "time", context.shared.engine.started_at_unix() + u64::from(now_secs));
    sink(b"version", COMPATIBLE_VERSION.as_bytes());
    sink(b"holdall_version", env!("CARGO_PKG_VERSION").as_bytes());
    sink(b"libevent", b"none");
    number(sink, "pointer_size", u64::from(usize::BITS));
    let usage = getrusage(UsageWho::RUSAGE_SELF);
    let cpu = |time: fn(&Usage) -> TimeVal| usage.as_ref().map_or(TimeVal::new(0, 0), time);
    for (name, time) in
        [("rusage_user", cpu(Usage::user_time)), ("rusage_system", cpu(Usage::system_time))]
    {
        let text = format!("{}.{:06}", time.tv_sec(), time.tv_usec());
        sink(name.as_bytes(), text.as_bytes());
    }
    number(sink, "threads", context.shared.threads as u64);
}

fn connections(context: &Context<'_>, sink: Sink<'_>) {
    let net = context.control.stats();
    for (name, value) in [
        ("max_connections", context.shared.connections_max() as u64),
        ("curr_connections", net.curr_connections),
        ("total_connections", net.total_connections),
        ("rejected_connections", net.rejected_connections),
        ("connection_structures", net.curr_connections),
        ("accepting_conns", u64::from(net.accepting_conns)),
        ("listen_disabled_num", net.listen_disabled_num),
        ("time_in_listen_disabled_us", net.time_in_listen_disabled_us),
        ("conn_yields", net.conn_yields),
        ("idle_kicks", net.idle_kicks),
        ("slow_kicks", net.slow_kicks),
        ("bytes_read", net.bytes_read),
        ("bytes_written", net.bytes_written),
        ("read_syscalls", net.reads),
        ("write_syscalls", net.writes),
        ("poller_turns", net.turns),
        ("udp_requests", net.udp_requests),
        ("udp_dropped", net.udp_dropped),
        ("response_obj_bytes", net.buffered_bytes),
    ] {
        number(sink, name, value);
    }
    number(sink, "malloc_fails", context.shared.malloc_fails());
    number(sink, "reserve_bytes", reserve::used() as u64);
    if let Some(tls) = &context.shared.tls {
        number(sink, "ssl_new_sessions", net.tls_sessions);
        number(sink, "ssl_handshake_errors", net.tls_handshake_errors);
        number(sink, "ssl_proto_errors", net.tls_errors);
        number(sink, "ssl_sessions_kicked", net.tls_kicks);
        number(sink, "time_since_server_cert_refresh", tls.age().as_secs());
        number(sink, "server_cert_not_after", tls.not_after());
    }
}

fn commands(context: &Context<'_>, sink: Sink<'_>) {
    let totals = context.shared.engine.totals();
    number(sink, "cmd_get", totals.cmd_get());
    for (counter, name) in COUNTERS {
        // A name that memcached does not have.
        if *counter != Counter::CmdGat {
            number(sink, name, totals.get(*counter));
        }
    }
    for (counter, name) in CLASS_COUNTERS {
        number(sink, name, totals.of_all_classes(*counter));
    }
    let (watchers, lines, skipped) = context.shared.watchers.counts();
    number(sink, "log_watchers", watchers);
    number(sink, "log_watcher_sent", lines);
    number(sink, "log_watcher_skipped", skipped);
}

fn memory(context: &Context<'_>, sink: Sink<'_>) {
    let store = context.shared.engine.store();
    let sampling = context.shared.engine.sampling_bytes() as u64;
    let (memory, index, items) = (store.memory(), store.index(), store.stats());
    let leases = context.shared.engine.lease_stats();
    for (name, value) in [
        ("limit_maxbytes", memory.limit),
        ("bytes", memory.items),
        ("arena_bytes", memory.arena),
        ("bags_bytes", memory.bags),
        ("buffer_bytes", memory.buffers.saturating_sub(sampling)),
        ("sampling_bytes", sampling),
        ("hash_power_level", u64::from(index.power_level)),
        ("hash_bytes", index.bytes),
        ("hash_is_expanding", u64::from(index.growing)),
        ("lease_table_bytes", leases.table_bytes),
        ("lease_keys_lost", leases.lost),
        ("stale_items", items.deleted_items),
        ("stale_bytes", memory.deleted),
        ("prefixes_invalidated", items.prefixes_invalidated),
        ("invalidations_outstanding", items.invalidations_outstanding),
        ("curr_items", items.items),
        ("total_items", items.items_total),
        ("evictions", items.evictions),
        ("evicted_unfetched", items.evicted_unfetched),
        ("expired_unfetched", items.expired_unfetched),
        ("reclaimed", items.reclaimed),
        ("direct_reclaims", items.direct_reclaims),
        ("slabs_moved", items.slabs_moved),
        ("slab_global_page_pool", items.slabs_free),
        ("slab_reassign_running", u64::from(items.is_reassigning)),
        ("slab_reassign_evictions_nomem", items.evicted_by_moves),
        ("crawler_reclaimed", items.cleaner_reclaimed),
        ("crawler_items_checked", items.cleaner_checked),
        ("lru_crawler_running", u64::from(items.is_crawling)),
        ("lru_crawler_starts", context.shared.walks()),
        ("lru_maintainer_juggles", items.cleaner_rounds),
        ("moves_within_lru", items.items_reordered),
        ("transient_listed", items.transient_listed),
        ("transient_reclaimed", items.transient_reclaimed),
        ("bags_opened", items.bags_opened),
        ("bags_merged", items.bags_merged),
    ] {
        number(sink, name, value);
    }
}

/// Each connection and listener, by descriptor. Only in text, because the names are many.
pub(crate) fn conns(context: &Context<'_>, own_fd: RawFd, sink: Sink<'_>) {
    let mut connections = context.control.connections();
    connections.sort_unstable_by_key(|connection| connection.fd);
    let mut connections = connections.into_iter().peekable();
    for (&fd, address) in context.control.sockets() {
        while let Some(connection) = connections.next_if(|connection| connection.fd < fd) {
            connected(&connection, own_fd, sink);
        }
        let mut stat = |what, value: &str| {
            sink(format!("{fd}:{what}").as_bytes(), value.as_bytes());
        };
        let is_datagram = matches!(**address, ListenAddress::Udp(..));
        if is_datagram {
            stat("UDP", "UDP");
        }
        stat("addr", &address.to_string());
        stat("state", if is_datagram { "conn_read" } else { "conn_listening" });
        stat("secs_since_last_cmd", "0");
    }
    connections.for_each(|connection| connected(&connection, own_fd, sink));
}

/// A connection; `own_fd` is the requesting one, whose state was noted before its request.
fn connected(connection: &ConnInfo, own_fd: RawFd, sink: Sink<'_>) {
    let name = |field: &str| format!("{}:{field}", connection.fd);
    sink(name("addr").as_bytes(), connection.peer.to_string().as_bytes());
    sink(name("listen_addr").as_bytes(), connection.peer.listener.to_string().as_bytes());
    let state = match connection.state {
        _ if connection.fd == own_fd => ConnState::Ready.to_string(),
        ConnState::Reading if connection.is_mid_request => "conn_nread".to_owned(),
        state => state.to_string(),
    };
    sink(name("state").as_bytes(), state.as_bytes());
    number(sink, &name("secs_since_last_cmd"), connection.idle.as_secs());
}

/// Names of memcached's engine that have no counterpart here.
pub(crate) const ALWAYS_ZERO: &[&str] = &[
    "reserved_fds",
    "response_obj_oom",
    "response_obj_count",
    "read_buf_count",
    "read_buf_bytes",
    "read_buf_bytes_free",
    "read_buf_oom",
    "slab_reassign_rescues",
    "slab_reassign_chunk_rescues",
    "slab_reassign_inline_reclaim",
    "slab_reassign_busy_items",
    "slab_reassign_busy_deletes",
    "slab_reassign_busy_nomem",
    "lru_bumps_dropped",
    "lrutail_reflocked",
    "evicted_active",
    "moves_to_cold",
    "moves_to_warm",
    "log_worker_dropped",
    "log_worker_written",
    "unexpected_napi_ids",
    "round_robin_fallback",
];

#[cfg(test)]
mod tests {
    /// memcached 1.6.18's answer to `stats` (its own names, without TLS, extstore and proxy).
    const MEMCACHED: &str = "pid uptime time version libevent pointer_size rusage_user rusage_system \
        max_connections curr_connections total_connections rejected_connections connection_structures \
        response_obj_oom response_obj_count response_obj_bytes read_buf_count read_buf_bytes \
        read_buf_bytes_free read_buf_oom reserved_fds cmd_get cmd_set cmd_flush cmd_touch cmd_meta \
        get_hits get_misses get_expired get_flushed delete_misses delete_hits incr_misses incr_hits \
        decr_misses decr_hits cas_misses cas_hits cas_badval touch_hits touch_misses store_too_large \
        store_no_memory auth_cmds auth_errors bytes_read bytes_written limit_maxbytes accepting_conns \
        listen_disabled_num time_in_listen_disabled_us threads conn_yields hash_power_level hash_bytes \
        hash_is_expanding slab_reassign_rescues slab_reassign_chunk_rescues \
        slab_reassign_evictions_nomem slab_reassign_inline_reclaim slab_reassign_busy_items \
        slab_reassign_busy_deletes slab_reassign_running slabs_moved lru_crawler_running \
        lru_crawler_starts lru_maintainer_juggles malloc_fails log_worker_dropped log_worker_written \
        log_watcher_skipped log_watcher_sent log_watchers unexpected_napi_ids round_robin_fallback bytes \
        curr_items total_items slab_global_page_pool expired_unfetched evicted_unfetched evicted_active \
        evictions reclaimed crawler_reclaimed crawler_items_checked lrutail_reflocked moves_to_cold \
        moves_to_warm moves_within_lru direct_reclaims lru_bumps_dropped";

    #[test]
    fn every_memcached_statistic_appears_once() {
        let worker = crate::session::tests::worker(&[]);
        let mut names = Vec::new();
        super::general(&worker.context.admin(), &mut |name, _| {
            names.push(String::from_utf8(name.to_vec()).unwrap())
        });
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count, "a name stands twice");
        let missing: Vec<_> = MEMCACHED
            .split_whitespace()
            .filter(|name| !names.iter().any(|own| own == name))
            .collect();
        assert_eq!(missing, [""; 0]);
    }
}
