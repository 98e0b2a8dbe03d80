//! The settings of a running memcached as a file for holdall.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::collections::BTreeMap;

use config::check;
use migrate::from_memcached;

fn present(of: &[(&str, &str)]) -> BTreeMap<String, String> {
    of.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn memcached_settings_become_a_valid_file() {
    let made = from_memcached(&present(&[
        ("maxbytes", "268435456"),
        ("maxconns", "2000"),
        ("tcpport", "11300"),
        ("inter", "NULL"),
        ("domain_socket", "NULL"),
        ("evictions", "off"),
        ("cas_enabled", "no"),
        ("maxconns_fast", "no"),
        ("slab_automove_ratio", "0.75"),
        ("temp_lru", "no"),
        ("temporary_ttl", "61"),
        ("hot_lru_pct", "30"),
        ("worker_logbuf_size", "131072"),
        ("hash_algorithm", "jenkins"),
        ("track_sizes", "no"),
        ("memory_file", "/dev/shm/items"),
        ("auth_enabled_ascii", "/etc/\"users\\"),
        ("auth_enabled_sasl", "no"),
    ]));
    let checked = check("server.toml", made.text.clone());
    assert!(checked.faults.is_empty(), "{}", checked.to_text(false));
    for line in [
        "listen = [\"*\"]",
        "memory_limit = 256",
        "conn_limit = 2000",
        "port = 11300",
        "disable_evictions = true",
        "disable_cas = true",
        "maxconns_fast = false",
        "slab_automove_ratio = 0.75",
    ] {
        assert!(made.text.lines().any(|made| made == line), "{line}:\n{}", made.text);
    }
    assert!(!made.text.contains("temporary_ttl") && !made.text.contains("memory_file"));
    let starts = [
        "memory_file /dev",
        "hash_algorithm jenkins is left",
        "hot_lru_pct 30 is left",
        "worker_logbuf_size 131072 is left",
        "memcached does not show -W,",
    ];
    assert_eq!(made.notes.len(), starts.len(), "{:?}", made.notes);
    let pairs = || made.notes.iter().zip(starts);
    assert!(pairs().all(|(note, start)| note.starts_with(start)), "{:?}", made.notes);
}

#[test]
fn memcacheds_default_automove_ratio_is_omitted() {
    let made = from_memcached(&present(&[("slab_automove_ratio", "0.80")]));
    assert!(!made.text.contains("slab_automove_ratio"), "{}", made.text);
}

#[test]
fn a_hostile_servers_values_are_escaped() {
    let made = from_memcached(&present(&[
        ("inter", "x\"]\nmemory_limit = 1\n#"),
        ("maxconns", "7\ndaemon = true"),
        ("domain_socket", "NULL"),
    ]));
    assert_eq!(made.text, "listen = [\"x\\\"]\\u000Amemory_limit = 1\\u000A#\"]\n");
}
