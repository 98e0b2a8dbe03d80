//! Unavailable clusters and missing logs: no other cluster waits, nothing is lost, and nothing is
//! deleted without need.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use testkit::database::Mysqld;
use testkit::{FaultProxy, Mode, Router};

use e2e::folder::Folder;
use e2e::invalidator::{Invalidator, mysqld_source};

use crate::harness::{Process, absent, cache, fill, until_absent};
use crate::mysql::purge;

const ITEMS: &str = "CREATE TABLE items (id INT PRIMARY KEY, v INT)";
const ITEM_KEYS: &str = "[keys.tables]\n\"shop.items\" = \"item:{id}\"";

/// Commits one transaction for each of these rows.
fn replace(database: &Mysqld, ids: std::ops::Range<u32>) {
    let statements: Vec<String> =
        ids.map(|id| format!("REPLACE INTO items VALUES ({id}, 0)")).collect();
    database.sql(&statements.join(";"));
}

#[test]
fn an_unavailable_cluster_delays_no_other_and_gets_all_deletes() {
    let database = Mysqld::mariadb(1, &[]);
    database.sql(ITEMS);
    let (near, behind) = (cache(), cache());
    let config = std::env::temp_dir().join(format!("invalidate-away-{}.json", std::process::id()));
    let pool = behind.addr();
    let route =
        format!(r#"{{"pools": {{"A": {{"servers": ["{pool}"]}}}}, "route": "PoolRoute|A"}}"#);
    fs::write(&config, route).unwrap();
    let path = config.display().to_string();
    let mut proxy = Process::start(&["route", "--num-proxies", "1", "-f", &path]);
    let delivery = "[delivery]\nwindow_keys = 50\naway_after_ms = 100";
    let clusters = [near.addr(), proxy.address];
    let mut invalidator =
        Invalidator::new(&mysqld_source(&[&database], ""), ITEM_KEYS, &clusters, delivery);
    invalidator.start(&[]);
    let names: Vec<String> = (0..400).map(|id| format!("item:{id}")).collect();
    let keys: Vec<&str> = names.iter().map(String::as_str).collect();
    fill(&near, &keys);
    fill(&behind, &keys);
    proxy.kill();
    replace(&database, 0..300);
    until_absent(&near, &keys, &keys[..300], &invalidator);
    invalidator.until("cluster:c1:spool_records", |count| count > 0);
    // Deletes on the disk do not hold the position back.
    let end = format!("position mariadb-gtid:{}", database.sql("SELECT @@gtid_binlog_pos").trim());
    let until = Instant::now() + Duration::from_secs(30);
    while !fs::read_to_string(invalidator.checkpoint()).unwrap().contains(&end) {
        assert!(Instant::now() < until, "the position waits:\n{}", invalidator.log());
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(absent(&behind, &keys), [""; 0]);
    invalidator.kill();
    database.sql("FLUSH BINARY LOGS");
    purge(&database);
    invalidator.start(&[]);
    replace(&database, 300..310);
    until_absent(&near, &keys, &keys[..310], &invalidator);
    proxy.restart();
    until_absent(&behind, &keys, &keys[..310], &invalidator);
    invalidator.until("cluster:c1:spool_records", |count| count == 0);
    // Later changes arrive as usual.
    replace(&database, 310..320);
    until_absent(&behind, &keys, &keys[..320], &invalidator);
    fs::remove_file(config).unwrap();
}

#[test]
fn a_purged_log_flushes_only_the_prefixes_of_the_keys() {
    let database = Mysqld::mariadb(1, &[]);
    database.sql(ITEMS);
    let (first, second) = (cache(), cache());
    let args = ["--num-proxies", "1", "--enable-flush-cmd"];
    let router = Router::over(&[first.addr(), second.addr()], "\"PoolRoute|all\"", &args);
    let mut invalidator =
        Invalidator::new(&mysqld_source(&[&database], ""), ITEM_KEYS, &[router.addr()], "");
    invalidator.start(&[]);
    replace(&database, 0..1);
    invalidator.until("checkpoints", |count| count > 0);
    invalidator.kill();
    replace(&database, 1..2);
    database.sql("FLUSH BINARY LOGS");
    purge(&database);
    let keys = ["item:1", "item:2", "other:1"];
    for server in [&first, &second] {
        fill(server, &keys);
    }
    invalidator.spawn(&[]);
    let said = invalidator.ended();
    assert!(said.contains("--on-gap prefixes"), "{said}");
    invalidator.start(&["--on-gap", "prefixes"]);
    for server in [&first, &second] {
        until_absent(server, &keys, &keys[..2], &invalidator);
    }
    let said = invalidator.run("flush", &["--prefix", "oth", "--prefix", "none:"]);
    assert_eq!(said, "c0: flushed\n");
    for server in [&first, &second] {
        assert_eq!(absent(server, &keys), keys);
    }
}

#[test]
fn a_configuration_change_keeps_queued_deletes() {
    let database = Mysqld::mariadb(1, &[]);
    database.sql(ITEMS);
    let server = cache();
    let way = FaultProxy::before(server.addr());
    let delivery = "[delivery]\nwindow_keys = 50\naway_after_ms = 100";
    let source = mysqld_source(&[&database], "");
    let mut invalidator = Invalidator::new(&source, ITEM_KEYS, &[way.addr()], delivery);
    invalidator.start(&[]);
    let names: Vec<String> = (0..200).map(|id| format!("item:{id}")).collect();
    let keys: Vec<&str> = names.iter().map(String::as_str).collect();
    fill(&server, &keys);
    way.set(Mode::Refuse);
    replace(&database, 0..200);
    invalidator.until("cluster:c0:spool_records", |count| count > 0);
    invalidator.kill();
    way.set(Mode::Open);
    let path = invalidator.checkpoint().with_file_name("invalidate.toml");
    let before = fs::read_to_string(&path).unwrap();
    for (from, to, why) in [
        ("window_keys", "spool_bytes_max = 0\nwindow_keys", "spool_bytes_max is 0"),
        ("\"c0\"", "\"c1\"", "no cluster has the name 'c0'"),
    ] {
        fs::write(&path, before.replace(from, to)).unwrap();
        let said = invalidator.refusal("run", &[]);
        assert!(said.contains("transactions wait there, and") && said.contains(why), "{said}");
    }
    assert_eq!(absent(&server, &keys), [""; 0]);
    fs::write(&path, before).unwrap();
    invalidator.start(&[]);
    until_absent(&server, &keys, &keys, &invalidator);
    assert_eq!(invalidator.stat("gaps"), Some(0), "{}", invalidator.log());
}

/// If one router cannot reach the server and keeps the delete, another router executes it.
#[test]
fn another_router_executes_kept_deletes() {
    let database = Mysqld::mariadb(1, &[]);
    database.sql(ITEMS);
    let server = cache();
    let ways = [FaultProxy::before(server.addr()), FaultProxy::before(server.addr())];
    let folders = [Folder::new("kept-a"), Folder::new("kept-b")];
    let router = |at: usize| {
        let args = ["-r", "50", "--probe-timeout-max", "100", "-a", folders[at].name()];
        Router::start(&testkit::router::config(&[ways[at].addr()], "\"PoolRoute|A\""), &args)
    };
    let routers = [router(0), router(1)];
    let cluster = format!(
        "[[cluster]]\nname = \"c\"\nrouters = [\"{}\", \"{}\"]",
        routers[0].addr(),
        routers[1].addr()
    );
    let source = mysqld_source(&[&database], "");
    let mut invalidator = Invalidator::new(&source, ITEM_KEYS, &[], &cluster);
    invalidator.start(&[]);
    let keys = ["item:1", "item:2", "item:3"];
    fill(&server, &keys);
    ways[0].set(Mode::Refuse);
    replace(&database, 1..2);
    until_absent(&server, &keys, &keys[..1], &invalidator);
    invalidator.until("cluster:c:kept_by_routers", |count| count == 0);
    // No router reaches the server: nothing waits, and the lag shows that a delete is pending.
    ways[1].set(Mode::Refuse);
    replace(&database, 2..3);
    invalidator.until("cluster:c:kept_by_routers", |count| count == 1);
    invalidator.until("cluster:c:lag_ms", |lag| lag > 1000);
    invalidator.until("cluster:c:waiting", |count| count == 0);
    assert_eq!(absent(&server, &keys), keys[..1]);
    ways.iter().for_each(|way| way.set(Mode::Open));
    until_absent(&server, &keys, &keys[..2], &invalidator);
    invalidator.until("cluster:c:kept_by_routers", |count| count == 0);
    invalidator.until("cluster:c:lag_ms", |lag| lag == 0);
}
