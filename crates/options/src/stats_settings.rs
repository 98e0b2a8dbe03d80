//! `stats settings`: the options under memcached's names, in its order.
//!
//! Tuning options of memcached's own engine are shown with memcached's defaults, since dashboards
//! read them.

use std::borrow::Cow;

use hostport::without_login;
use net::Verify;

use super::{Options, Protocol};

/// Every setting except those that change while the server runs: `maxbytes`, `verbosity`,
/// `detail_enabled`, `lru_crawler`.
#[must_use]
pub fn of(options: &Options) -> Vec<(&'static str, String)> {
    let mut settings = network(options);
    settings.extend(engine(options));
    settings.extend(tls(options));
    settings.extend(fixed());
    settings.push(("eviction_policy", format!("{:?}", options.eviction).to_lowercase()));
    settings.push(("sampling", yes_no(options.sampling)));
    settings.push(("stripes", options.stripes.to_string()));
    settings.push(("lease_interval", options.lease_interval_secs.to_string()));
    settings.push(("stale_seconds", options.stale_secs.to_string()));
    settings.push(("udp_amplification", options.udp_amplification.to_string()));
    settings.push(("namespaces", path(options.namespaces.as_ref())));
    settings.push(("rights", path(options.auth.rights.as_ref())));
    settings.push(("strict", yes_no(options.strict)));
    settings.push(("delete_hold_off", yes_no(options.delete_hold_off)));
    settings.push((
        "stall_timeout",
        options.stall_timeout.map_or(0, |time| time.as_secs()).to_string(),
    ));
    settings
        .push(("metrics", options.metrics.map_or_else(|| "no".to_owned(), |at| at.to_string())));
    let otlp = options.otlp.as_deref().map_or(Cow::Borrowed("no"), without_login);
    settings.push(("otlp", otlp.into_owned()));
    settings.push(("console", options.console.clone().unwrap_or_else(|| "no".to_owned())));
    settings.push(("drain", options.drain.as_secs().to_string()));
    settings.push(("log_format", format!("{:?}", options.log_format).to_lowercase()));
    settings.push(("log_filter", options.log_filter.to_string()));
    settings
}

/// The settings of TLS under memcached's names.
fn tls(options: &Options) -> Vec<(&'static str, String)> {
    let tls = options.tls.as_ref();
    let or = |text: Option<String>, none: &str| text.unwrap_or_else(|| none.to_owned());
    let shown = |path: &std::path::Path| path.display().to_string();
    let verify = match tls.map_or(Verify::None, |tls| tls.verify) {
        Verify::None => 0,
        Verify::Request => 1,
        Verify::Require => 2,
    };
    let version = if tls.is_some_and(|tls| tls.only_tls13) { "tlsv1.3" } else { "tlsv1.2" };
    let ciphers = tls.and_then(|tls| tls.ciphers.as_ref()).map(|list| list.join(":"));
    let ca_cert = tls.and_then(|tls| tls.ca_cert.as_deref()).map(shown);
    vec![
        ("ssl_enabled", yes_no(tls.is_some())),
        ("ssl_chain_cert", or(tls.map(|tls| shown(&tls.chain_cert)), "(null)")),
        ("ssl_key", or(tls.map(|tls| shown(&tls.key)), "(null)")),
        ("ssl_verify_mode", verify.to_string()),
        ("ssl_keyformat", "1".to_owned()),
        ("ssl_ciphers", or(ciphers, "NULL")),
        ("ssl_ca_cert", or(ca_cert, "NULL")),
        ("ssl_wbuf_size", "16384".to_owned()),
        ("ssl_session_cache", yes_no(tls.is_some_and(|tls| tls.resumption))),
        ("ssl_kernel_tls", yes_no(false)),
        ("ssl_min_version", version.to_owned()),
    ]
}

/// A path, or memcached's word for none.
fn path(path: Option<&std::path::PathBuf>) -> String {
    path.map_or_else(|| "no".to_owned(), |path| path.display().to_string())
}

fn network(options: &Options) -> Vec<(&'static str, String)> {
    let port = |endpoints: &[super::Endpoint]| {
        endpoints.first().map_or(0, |endpoint| endpoint.port).to_string()
    };
    let hosts: Vec<_> = options.tcp.iter().filter_map(|endpoint| endpoint.host.clone()).collect();
    let inter = if hosts.is_empty() { "NULL".to_owned() } else { hosts.join(",") };
    let socket = options.unix.path.as_ref();
    vec![
        ("maxconns", options.connections_max.to_string()),
        ("tcpport", port(&options.tcp)),
        ("udpport", port(&options.udp)),
        ("inter", inter),
        (
            "domain_socket",
            socket.map_or_else(|| "NULL".to_owned(), |path| path.display().to_string()),
        ),
        ("umask", format!("{:o}", options.unix.mode)),
        ("tcp_backlog", options.backlog.to_string()),
        ("binding_protocol", protocol_name(options.protocol).to_owned()),
        ("maxconns_fast", yes_no(options.maxconns_fast)),
        ("idle_timeout", options.idle_timeout.map_or(0, |timeout| timeout.as_secs()).to_string()),
        ("reqs_per_event", options.requests_per_turn.to_string()),
        ("num_threads", options.threads.to_string()),
        ("num_threads_per_udp", options.threads.to_string()),
    ]
}

fn engine(options: &Options) -> Vec<(&'static str, String)> {
    vec![
        ("oldest", "0".to_owned()),
        ("slab_reassign", yes_no(options.slab_reassign)),
        ("evictions", if options.evict { "on" } else { "off" }.to_owned()),
        ("growth_factor", format!("{:.2}", options.growth_factor)),
        ("chunk_size", options.chunk_bytes_min.to_string()),
        ("item_size_max", options.item_bytes_max.to_string()),
        ("stat_key_prefix", char::from(options.prefix_delimiter).to_string()),
        ("cas_enabled", yes_no(options.cas)),
        ("flush_enabled", yes_no(options.flush_command)),
        ("dump_enabled", yes_no(options.dump_commands)),
        ("shutdown_command", yes_no(options.shutdown_command)),
        ("auth_enabled_sasl", yes_no(options.sasl)),
        ("auth_enabled_ascii", path(options.auth.users.as_ref().filter(|_| options.token_login))),
        ("watcher_logbuf_size", options.watcher_buffer_bytes.to_string()),
        (
            "memory_file",
            options
                .memory_file
                .as_ref()
                .map_or_else(|| "(null)".to_owned(), |path| path.display().to_string()),
        ),
    ]
}

/// Settings that nothing sets here.
fn fixed() -> impl Iterator<Item = (&'static str, String)> {
    const FIXED: &[(&str, &str)] = &[
        ("hashpower_init", "0"),
        ("slab_automove_window", "10"),
        ("slab_automove_freeratio", "0.010"),
        ("slab_chunk_max", "524288"),
        ("tail_repair_time", "0"),
        ("hash_algorithm", "rapidhash"),
        ("lru_maintainer_thread", "yes"),
        ("lru_segmented", "no"),
        ("hot_lru_pct", "20"),
        ("warm_lru_pct", "40"),
        ("hot_max_factor", "0.20"),
        ("warm_max_factor", "2.00"),
        ("worker_logbuf_size", "65536"),
        ("read_buf_mem_limit", "0"),
        ("track_sizes", "yes"),
        ("inline_ascii_response", "no"),
        ("ext_item_size", "512"),
        ("ext_item_age", "4294967295"),
        ("ext_low_ttl", "0"),
        ("ext_recache_rate", "2000"),
        ("ext_wbuf_size", "4194304"),
        ("ext_compact_under", "0"),
        ("ext_drop_under", "0"),
        ("ext_max_sleep", "1000000"),
        ("ext_max_frag", "0.80"),
        ("ext_drop_unread", "no"),
        ("proxy_enabled", "no"),
        ("proxy_uring_enabled", "no"),
        ("client_flags_size", "4"),
        ("num_napi_ids", "0"),
    ];
    FIXED.iter().map(|(name, value)| (*name, (*value).to_owned()))
}

fn yes_no(is_yes: bool) -> String {
    if is_yes { "yes" } else { "no" }.to_owned()
}

const fn protocol_name(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Auto => "auto-negotiate",
        Protocol::Ascii => "ascii",
        Protocol::Binary => "binary",
    }
}
