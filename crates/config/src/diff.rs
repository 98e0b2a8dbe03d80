//! `holdall config diff`: compares settings with those of a running server, by `stats settings`.

use std::collections::BTreeMap;

use options::settings::{Given, settings};
use options::{Options, stats_settings};
use serde_json::{Value, json};

/// A setting with a different value on the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The setting's name.
    pub key: &'static str,
    /// The statistic that shows it.
    pub statistic: &'static str,
    /// The value by the given settings, in the form of the statistic.
    pub wanted: String,
    /// The server's.
    pub present: String,
    /// True if the server applies the wanted value when it reads its settings again.
    pub is_live: bool,
}

/// The settings that differ, in the order of `SHOWN_BY`. A statistic that the server lacks is
/// ignored; settings that were not given and depend on the server's machine are left out.
#[must_use]
pub fn differences(
    options: &Options,
    given: &[Given],
    present: &BTreeMap<String, String>,
) -> Vec<Difference> {
    let wanted = wanted(options);
    let known = settings();
    let is_given = |key: &str| given.iter().any(|given| given.key == key);
    let mut found = Vec::new();
    for &(statistic, key) in SHOWN_BY {
        if MACHINE_DEPENDENT.contains(&key) && !is_given(key) {
            continue;
        }
        let Some(wanted) = wanted.get(statistic) else { continue };
        let Some(present) = present.get(statistic).filter(|present| *present != wanted) else {
            continue;
        };
        let is_live = known.iter().any(|setting| setting.key == key && setting.live.is_some());
        let (wanted, present) = (wanted.clone(), present.clone());
        found.push(Difference { key, statistic, wanted, present, is_live });
    }
    found
}

/// The `stats settings` of a server with these options.
fn wanted(options: &Options) -> BTreeMap<&'static str, String> {
    let yes_no = |is_on: bool| if is_on { "yes" } else { "no" }.to_owned();
    let mut wanted: BTreeMap<_, _> = stats_settings::of(options).into_iter().collect();
    wanted.insert("maxbytes", options.memory_bytes.to_string());
    wanted.insert("slab_automove", (options.automove as u8).to_string());
    wanted.insert("slab_automove_ratio", format!("{:.2}", options.automove_ratio));
    wanted.insert("temporary_ttl", options.transient_secs.to_string());
    wanted.insert("lru_crawler", yes_no(options.crawler));
    wanted.insert("lru_crawler_sleep", options.crawler_sleep_micros.to_string());
    wanted.insert("lru_crawler_tocrawl", options.crawler_to_crawl.to_string());
    wanted.insert("verbosity", options.verbosity.min(2).to_string());
    wanted
}

/// The differences for people, one per line.
pub(crate) fn lines(found: &[Difference]) -> String {
    let line = |difference: &Difference| {
        let Difference { key, wanted, present, is_live, .. } = difference;
        let change = match is_live {
            true => "changes on reload",
            false => "needs --takeover or a restart",
        };
        format!("{key}: the server has {present}, wanted is {wanted}; {change}\n")
    };
    found.iter().map(line).collect()
}

/// The differences for programs.
pub(crate) fn to_json(found: &[Difference]) -> Value {
    let one = |difference: &Difference| {
        json!({
            "name": difference.key,
            "statistic": difference.statistic,
            "wanted": difference.wanted,
            "present": difference.present,
            "changes_on": if difference.is_live { "reload" } else { "--takeover" },
        })
    };
    found.iter().map(one).collect()
}

/// Settings whose defaults depend on the number of processors.
const MACHINE_DEPENDENT: [&str; 2] = ["threads", "stripes"];

/// The statistics, each with its setting.
pub(crate) const SHOWN_BY: &[(&str, &str)] = &[
    ("maxbytes", "memory_limit"),
    ("maxconns", "conn_limit"),
    ("tcpport", "port"),
    ("udpport", "udp_port"),
    ("inter", "listen"),
    ("domain_socket", "unix_socket"),
    ("umask", "unix_mask"),
    ("tcp_backlog", "listen_backlog"),
    ("binding_protocol", "protocol"),
    ("maxconns_fast", "maxconns_fast"),
    ("idle_timeout", "idle_timeout"),
    ("stall_timeout", "stall_timeout"),
    ("reqs_per_event", "max_reqs_per_event"),
    ("num_threads", "threads"),
    ("stripes", "stripes"),
    ("evictions", "disable_evictions"),
    ("eviction_policy", "eviction"),
    ("item_size_max", "max_item_size"),
    ("growth_factor", "slab_growth_factor"),
    ("chunk_size", "slab_min_size"),
    ("memory_file", "memory_file"),
    ("slab_reassign", "slab_reassign"),
    ("slab_automove", "slab_automove"),
    ("slab_automove_ratio", "slab_automove_ratio"),
    ("temporary_ttl", "transient_ttl"),
    ("lru_crawler", "lru_crawler"),
    ("lru_crawler_sleep", "lru_crawler_sleep"),
    ("lru_crawler_tocrawl", "lru_crawler_tocrawl"),
    ("stat_key_prefix", "prefix_delimiter"),
    ("cas_enabled", "disable_cas"),
    ("flush_enabled", "disable_flush_all"),
    ("dump_enabled", "disable_dumping"),
    ("shutdown_command", "enable_shutdown"),
    ("watcher_logbuf_size", "watcher_logbuf_size"),
    ("sampling", "sampling"),
    ("lease_interval", "lease_interval"),
    ("stale_seconds", "stale_seconds"),
    ("udp_amplification", "udp_amplification"),
    ("strict", "strict"),
    ("delete_hold_off", "delete_hold_off"),
    ("auth_enabled_sasl", "enable_sasl"),
    ("auth_enabled_ascii", "auth_file"),
    ("rights", "rights"),
    ("namespaces", "namespaces"),
    ("ssl_enabled", "enable_ssl"),
    ("ssl_chain_cert", "ssl_chain_cert"),
    ("ssl_key", "ssl_key"),
    ("ssl_ca_cert", "ssl_ca_cert"),
    ("ssl_verify_mode", "ssl_verify_mode"),
    ("ssl_min_version", "ssl_min_version"),
    ("ssl_ciphers", "ssl_ciphers"),
    ("ssl_session_cache", "ssl_session_cache"),
    ("metrics", "metrics"),
    ("console", "console"),
    ("drain", "drain"),
    ("verbosity", "verbose"),
    ("log_format", "log_format"),
    ("log_filter", "log_filter"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_statistic_shows_a_setting_that_exists() {
        let known = settings();
        for (statistic, key) in SHOWN_BY {
            assert!(known.iter().any(|setting| setting.key == *key), "{statistic}: {key}");
        }
    }

    #[test]
    fn every_reloadable_setting_is_compared() {
        let is_shown = |key: &str| SHOWN_BY.iter().any(|(_, shown)| *shown == key);
        // It is another name of transient_ttl.
        let left_out = ["temporary_ttl"];
        for setting in settings().iter().filter(|setting| setting.live.is_some()) {
            let key = setting.key.as_str();
            assert!(is_shown(key) || left_out.contains(&key), "{key}");
        }
    }
}
