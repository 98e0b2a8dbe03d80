//! The settings of a running memcached.
//!
//! Source: `process_stat_settings` of memcached 1.6, whose names and words this module reads.

use std::collections::BTreeMap;

use crate::settings::Settings;

/// Converts a server's settings into a file for `holdall serve --config`.
#[must_use]
pub fn from_memcached(present: &BTreeMap<String, String>) -> Settings {
    let mut made = Settings::default();
    network(&mut made, present);
    memory(&mut made, present);
    numbers(&mut made, present);
    switches(&mut made, present);
    logins(&mut made, present);
    leave_out(&mut made, present);
    made.note(NOT_SHOWN);
    made
}

fn network(made: &mut Settings, present: &BTreeMap<String, String>) {
    let of = |name: &str| present.get(name).map(String::as_str);
    if let Some(path) = of("domain_socket").filter(|path| *path != "NULL") {
        made.set_text("unix_socket", path);
        if let Some(mask) = of("umask") {
            made.set_text("unix_mask", &format!("0{mask}"));
        }
    } else {
        // Without -l memcached listens everywhere, but holdall only on this machine.
        let hosts = of("inter").filter(|hosts| *hosts != "NULL").unwrap_or("*");
        made.listen(hosts.split([',', ';']));
    }
    let protocol = of("binding_protocol").filter(|name| *name != "auto-negotiate");
    if let Some(protocol) = protocol {
        made.set_text("protocol", protocol);
    }
}

fn memory(made: &mut Settings, present: &BTreeMap<String, String>) {
    if let Some(bytes) = number(present, "maxbytes") {
        made.memory_limit(bytes);
    }
    if let Some(bytes) = number(present, "item_size_max") {
        made.set("max_item_size", bytes);
    }
    if present.get("evictions").is_some_and(|word| word == "off") {
        made.set("disable_evictions", true);
    }
    if let Some(bytes) = number(present, "watcher_logbuf_size") {
        made.set("watcher_logbuf_size", bytes >> 10);
    }
    // Without temporary_ttl it shows an unused default.
    if is_yes(present, "temp_lru")
        && let Some(secs) = number(present, "temporary_ttl")
    {
        made.set("temporary_ttl", secs);
    }
}

fn numbers(made: &mut Settings, present: &BTreeMap<String, String>) {
    for (statistic, key) in NUMBERS {
        if let Some(number) = number(present, statistic) {
            made.set(key, number);
        }
    }
    // memcached's default is left out, so that holdall's own applies.
    let ratio = present.get("slab_automove_ratio").filter(|text| *text != "0.80");
    if let Some(ratio) = ratio.and_then(|text| text.parse::<f64>().ok()) {
        made.set("slab_automove_ratio", format!("{ratio:?}"));
    }
}

fn switches(made: &mut Settings, present: &BTreeMap<String, String>) {
    for (statistic, key, if_so) in SWITCHES {
        match present.get(*statistic).map(String::as_str) {
            Some("yes") => made.set(key, if_so),
            Some("no") => made.set(key, !if_so),
            _ => {}
        }
    }
    if is_yes(present, "detail_enabled")
        && let Some(delimiter) = present.get("stat_key_prefix")
    {
        made.set_text("prefix_delimiter", delimiter);
    }
}

fn logins(made: &mut Settings, present: &BTreeMap<String, String>) {
    let path = |name: &str| present.get(name).filter(|path| !NONE.contains(&path.as_str()));
    if let Some(path) = path("auth_enabled_ascii") {
        made.set_text("auth_file", path);
    }
    if is_yes(present, "auth_enabled_sasl") {
        made.set("enable_sasl", true);
        made.note(
            "enable_sasl: SASL's database is not read; name a file of users by auth_file, whose lines holdall \
             passwd makes",
        );
    }
    if !is_yes(present, "ssl_enabled") {
        return;
    }
    made.set("enable_ssl", true);
    for key in ["ssl_chain_cert", "ssl_key", "ssl_ca_cert", "ssl_ciphers"] {
        if let Some(path) = path(key) {
            made.set_text(key, path);
        }
    }
    if let Some(mode) = number(present, "ssl_verify_mode") {
        made.set("ssl_verify_mode", mode.min(3));
    }
    if present.get("ssl_min_version").is_some_and(|version| version == "tlsv1.3") {
        made.set("ssl_min_version", 3);
    }
    if is_yes(present, "ssl_session_cache") {
        made.set("ssl_session_cache", true);
    }
}

fn leave_out(made: &mut Settings, present: &BTreeMap<String, String>) {
    let shown = |name: &str| present.get(name).map(String::as_str);
    if let Some(path) = shown("memory_file").filter(|path| !NONE.contains(path)) {
        made.note(format!(
            "memory_file {path} is in memcached's format, and left out: name a new file, and the items will \
             outlive restarts from then on"
        ));
    }
    if shown("ext_path").is_some_and(|path| !NONE.contains(&path)) {
        made.note("ext_path: there is no external storage");
    }
    if is_yes(present, "proxy_enabled") {
        made.note("proxy_enabled: this server is a proxy; its routes are those of holdall route");
    }
    // Versions of memcached have either of two defaults.
    let hash = shown("hash_algorithm").filter(|name| !["murmur3", "xxh3"].contains(name));
    if let Some(name) = hash {
        made.note(format!("hash_algorithm {name} is left out: there is one hash"));
    }
    for (statistic, default, why) in LEFT_OUT {
        if let Some(value) = shown(statistic).filter(|value| value != default) {
            made.note(format!("{statistic} {value} is left out: {why}"));
        }
    }
}

fn number(present: &BTreeMap<String, String>, name: &str) -> Option<u64> {
    present.get(name)?.parse().ok()
}

fn is_yes(present: &BTreeMap<String, String>, name: &str) -> bool {
    present.get(name).is_some_and(|word| word == "yes")
}

/// Options that change a server's behaviour and are in no line of `stats settings`.
const NOT_SHOWN: &str = "memcached does not show -W, -k, -L, -r, -u and -P; if it has them, add disable_watch, \
                         lock_memory, enable_largepages, enable_coredumps, user and pidfile";

/// memcached's words for a missing file.
const NONE: [&str; 4] = ["no", "NULL", "(null)", ""];

/// Numbers with the same meaning in both, each with its setting.
const NUMBERS: &[(&str, &str)] = &[
    ("tcpport", "port"),
    ("udpport", "udp_port"),
    ("maxconns", "conn_limit"),
    ("num_threads", "threads"),
    ("tcp_backlog", "listen_backlog"),
    ("reqs_per_event", "max_reqs_per_event"),
    ("idle_timeout", "idle_timeout"),
    ("slab_automove", "slab_automove"),
    ("lru_crawler_sleep", "lru_crawler_sleep"),
    ("lru_crawler_tocrawl", "lru_crawler_tocrawl"),
    ("verbosity", "verbose"),
];

/// Yes or no, each with its setting and the setting's value for yes.
const SWITCHES: &[(&str, &str, bool)] = &[
    ("cas_enabled", "disable_cas", false),
    ("flush_enabled", "disable_flush_all", false),
    ("dump_enabled", "disable_dumping", false),
    ("shutdown_command", "enable_shutdown", true),
    ("maxconns_fast", "maxconns_fast", true),
    ("slab_reassign", "slab_reassign", true),
    ("lru_crawler", "lru_crawler", true),
];

/// Settings without a counterpart, each with memcached's default and the reason.
const LEFT_OUT: &[(&str, &str, &str)] = &[
    ("growth_factor", "1.25", "chunks of holdall are closer together by default"),
    ("chunk_size", "48", "chunks of holdall begin smaller by default"),
    ("hashpower_init", "0", "the hash table grows by itself, without a pause"),
    ("slab_chunk_max", "524288", "large values are kept in pieces of a fixed size"),
    ("tail_repair_time", "0", "no item can be stuck at the tail"),
    ("hot_lru_pct", "20", "recency is kept in bags, not in hot and warm lists"),
    ("warm_lru_pct", "40", "recency is kept in bags, not in hot and warm lists"),
    ("read_buf_mem_limit", "0", "connection buffers count towards memory_limit"),
    ("lru_maintainer_thread", "yes", "the cleaner thread always runs"),
    ("worker_logbuf_size", "65536", "watchers have no buffer for each worker"),
    ("track_sizes", "no", "stats sizes needs no tracking"),
];
