//! Statistics: the names that monitors read, and counts that add up.

use std::collections::BTreeSet;
use testkit::Server;

/// The names that prometheus/memcached_exporter and most dashboards read from `stats`.
const READ_BY_MONITORS: &str = "pid uptime time version pointer_size rusage_user rusage_system max_connections \
    curr_connections total_connections rejected_connections connection_structures cmd_get cmd_set cmd_flush \
    cmd_touch cmd_meta get_hits get_misses get_expired get_flushed delete_misses delete_hits incr_misses \
    incr_hits decr_misses decr_hits cas_misses cas_hits cas_badval touch_hits touch_misses \
    store_too_large store_no_memory auth_cmds auth_errors bytes_read bytes_written limit_maxbytes \
    accepting_conns listen_disabled_num threads conn_yields hash_power_level hash_bytes hash_is_expanding \
    bytes curr_items total_items evictions reclaimed expired_unfetched evicted_unfetched \
    crawler_reclaimed crawler_items_checked lru_crawler_starts direct_reclaims moves_to_cold \
    moves_to_warm moves_within_lru lrutail_reflocked slabs_moved malloc_fails";

#[test]
fn names_read_by_monitors_exist() {
    let server = Server::under_test(&[]);
    let got: BTreeSet<String> = server.stats("").into_iter().map(|(name, _)| name).collect();
    let missing: Vec<_> =
        READ_BY_MONITORS.split_whitespace().filter(|&name| !got.contains(name)).collect();
    assert!(missing.is_empty(), "stats has no {missing:?}");
    let settings: BTreeSet<String> =
        server.stats("settings").into_iter().map(|(name, _)| name).collect();
    let wanted = "maxbytes maxconns tcpport udpport inter verbosity evictions domain_socket umask cas_enabled \
        tcp_backlog binding_protocol item_size_max maxconns_fast flush_enabled idle_timeout num_threads \
        lru_crawler lru_maintainer_thread hot_lru_pct warm_lru_pct hot_max_factor warm_max_factor \
        lru_crawler_sleep lru_crawler_tocrawl";
    let missing: Vec<_> =
        wanted.split_whitespace().filter(|&name| !settings.contains(name)).collect();
    assert!(missing.is_empty(), "stats settings has no {missing:?}");
}

#[test]
fn counts_add_up() {
    let server = Server::under_test(&[]);
    let mut wire = server.connect();
    for i in 0..100 {
        wire.expect(format!("set key{i} 0 0 1\r\nx\r\n").as_bytes(), b"STORED\r\n");
    }
    for _ in 0..10 {
        wire.expect(b"get key1 none\r\n", b"VALUE key1 0 1\r\nx\r\nEND\r\n");
    }
    wire.expect(
        b"delete key0\r\ndelete key0\r\nincr none 1\r\n",
        b"DELETED\r\nNOT_FOUND\r\nNOT_FOUND\r\n",
    );
    wire.expect(b"touch none 1\r\ncas key1 0 0 1 1\r\ny\r\n", b"NOT_FOUND\r\n");
    assert_eq!(wire.line(), "EXISTS");
    for (name, want) in [
        ("curr_items", 99),
        ("total_items", 100),
        ("cmd_get", 20),
        ("get_hits", 10),
        ("get_misses", 10),
        ("cmd_set", 101),
        ("delete_hits", 1),
        ("delete_misses", 1),
        ("incr_misses", 1),
        ("touch_misses", 1),
        ("cas_badval", 1),
        ("evictions", 0),
        ("limit_maxbytes", 64 << 20),
    ] {
        assert_eq!(server.stat(name), want, "{name}");
    }
    wire.expect(b"gat 0 none\r\ngat 0 key1\r\n", b"END\r\nVALUE key1 0 1\r\nx\r\nEND\r\n");
    wire.expect(b"mg none T9\r\nmg key1 T9\r\nma new N0\r\n", b"EN\r\nHD\r\nHD\r\n");
    for (name, want) in [
        ("cmd_get", 21),
        ("get_hits", 10),
        ("get_misses", 11),
        ("cmd_touch", 4),
        ("touch_hits", 2),
        ("touch_misses", 2),
        ("incr_misses", 1),
    ] {
        assert_eq!(server.stat(name), want, "{name}");
    }
    wire.expect(b"stats reset\r\n", b"RESET\r\n");
    assert_eq!((server.stat("cmd_get"), server.stat("curr_items")), (0, 100));
}

#[test]
fn statistics_groups_have_the_expected_names() {
    let server = Server::under_test(&[]);
    server.connect().expect(b"set a 0 0 1\r\nx\r\n", b"STORED\r\n");
    let names =
        |group: &str| server.stats(group).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    let items = names("items");
    let shape = |name: &&String| {
        let mut parts = name.split(':');
        parts.next() == Some("items")
            && parts.next().is_some_and(|class| class.parse::<u32>().is_ok())
    };
    assert!(!items.is_empty() && items.iter().all(|name| shape(&name)), "{items:?}");
    for field in ["number", "age", "evicted", "outofmemory"] {
        assert!(
            items.iter().any(|name| name.ends_with(&format!(":{field}"))),
            "no {field} in {items:?}"
        );
    }
    let slabs = names("slabs");
    for field in [
        ":chunk_size",
        ":total_pages",
        ":used_chunks",
        ":cmd_set",
        "active_slabs",
        "total_malloced",
    ] {
        assert!(slabs.iter().any(|name| name.ends_with(field)), "no {field} in {slabs:?}");
    }
    assert!(names("conns").iter().any(|name| name.ends_with(":state")));
    server.connect().expect(b"stats nosuchgroup\r\n", b"");
}

#[test]
fn every_key_is_listed_by_metadump() {
    let server = Server::under_test(&[]);
    let mut wire = server.connect();
    let wanted: BTreeSet<String> = (0..500).map(|i| format!("key-{i}")).collect();
    for key in &wanted {
        wire.expect(format!("set {key} 0 0 1\r\nx\r\n").as_bytes(), b"STORED\r\n");
    }
    wire.send(b"lru_crawler metadump all\r\n");
    let dump = String::from_utf8(wire.read_until(b"END\r\n")).unwrap();
    let got: BTreeSet<String> = dump
        .lines()
        .filter_map(|line| line.strip_prefix("key="))
        .filter_map(|rest| rest.split(' ').next())
        .map(ToOwned::to_owned)
        .collect();
    assert_eq!(got, wanted);
    wire.expect(b"mn\r\n", b"MN\r\n");
}
