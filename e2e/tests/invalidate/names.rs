//! A router finds its servers by names that come and go: the test runs in a separate namespace,
//! whose hosts file it writes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use e2e::folder::Folder;
use e2e::invalidator::{Invalidator, mysqld_source};
use testkit::database::Mysqld;
use testkit::{Router, Server, namespace};

use crate::harness::{absent, fill};

const OWN_NAME: &str = "names::an_unresolved_name_delays_no_other_servers_deletes";
const SERVERS: usize = 3;
const ROWS: usize = 60;

/// The name of a server.
fn name(server: usize) -> String {
    format!("pod{server}.cache.test")
}

/// Bind-mounts a file of the test over a system file.
fn cover(own: &Path, system: &str) {
    // If the path is a symbolic link, its target is covered.
    let system = fs::canonicalize(system).unwrap_or_else(|_| PathBuf::from(system));
    let status = Command::new("mount").arg("--bind").arg(own).arg(&system).status();
    assert!(status.unwrap().success(), "{} is not covered", system.display());
}

struct Rig {
    database: Mysqld,
    servers: [Server; SERVERS],
    invalidator: Invalidator,
    hosts: PathBuf,
    keys: Vec<String>,
    turn: u32,
}

impl Rig {
    /// Replaces the names and addresses. It writes the same file, which is the mounted one.
    fn know(hosts: &Path, lines: &[(&str, usize)]) {
        let line = |(address, server): &(&str, usize)| format!("{address} {}\n", name(*server));
        fs::write(hosts, lines.iter().map(line).collect::<String>()).unwrap();
    }

    /// Stores all keys on every server, and changes all rows.
    fn change(&mut self) {
        self.turn += 1;
        let keys: Vec<&str> = self.keys.iter().map(String::as_str).collect();
        self.servers.iter().for_each(|server| fill(server, &keys));
        self.database.sql(&format!("UPDATE items SET v = {}", self.turn));
    }

    fn gone(&self, server: usize) -> usize {
        let keys: Vec<&str> = self.keys.iter().map(String::as_str).collect();
        absent(&self.servers[server], &keys).len()
    }

    /// Waits until each of these servers has lost keys; returns the number that all of them lost.
    #[track_caller]
    fn lose(&self, servers: &[usize]) -> usize {
        self.until("keys are lost", || servers.iter().all(|server| self.gone(*server) > 0));
        // All keys are in one transaction, and so in one batch.
        self.invalidator.until("cluster:c0:waiting", |count| count == 0);
        servers.iter().map(|server| self.gone(*server)).sum()
    }

    #[track_caller]
    fn until(&self, what: &str, is_so: impl Fn() -> bool) {
        let end = Instant::now() + Duration::from_secs(60);
        while !is_so() {
            assert!(Instant::now() < end, "never: {what}\n{}", self.invalidator.log());
            thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn an_unresolved_name_delays_no_other_servers_deletes() {
    if namespace::is_entered(OWN_NAME, &["--mount"]) {
        within();
    }
}

fn within() {
    let folder = Folder::new("names");
    let (hosts, resolvers) = (folder.path().join("hosts"), folder.path().join("resolv.conf"));
    // The first server has no name yet, and at the second one's address no server listens.
    Rig::know(&hosts, &[("127.0.0.9", 1), ("127.0.0.1", 2)]);
    fs::write(&resolvers, "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n").unwrap();
    cover(&hosts, "/etc/hosts");
    cover(&resolvers, "/etc/resolv.conf");

    // The namespace has no other user.
    let servers = [0; SERVERS].map(|_| Server::holdall(&["-u", "root"]));
    let members = servers.iter().enumerate();
    let members = members.map(|(at, server)| format!("\"{}:{}\"", name(at), server.addr().port()));
    let members = members.collect::<Vec<_>>().join(", ");
    let config =
        format!(r#"{{"pools": {{"A": {{"servers": [{members}]}}}}, "route": "PoolRoute|A"}}"#);
    let spool = folder.path().join("spool");
    fs::create_dir(&spool).unwrap();
    let kept = ["-a", spool.to_str().unwrap(), "--discovery-period-ms", "100"];
    let quick = ["-t", "500", "-r", "50", "--probe-timeout-max", "100", "--num-proxies", "1"];
    let router = Router::start(&config, &[&kept[..], &quick].concat());

    let database = Mysqld::mariadb(1, &[]);
    database.sql("CREATE TABLE items (id INT PRIMARY KEY, v INT)");
    database.sql(&format!("INSERT INTO items SELECT seq, 0 FROM seq_1_to_{ROWS}"));
    let keys = "[keys.tables]\n\"shop.items\" = \"item:{id}\"";
    let source = mysqld_source(&[&database], "");
    let mut invalidator = Invalidator::new(&source, keys, &[router.addr()], "");
    invalidator.start(&[]);
    let keys = (1..=ROWS).map(|row| format!("item:{row}")).collect();
    let mut rig = Rig { database, servers, invalidator, hosts, keys, turn: 0 };

    rig.change();
    let third = rig.lose(&[2]);
    assert_eq!((rig.gone(0), rig.gone(1)), (0, 0), "they cannot be reached");

    // The second server is found at its new address, although the third one's name is gone.
    Rig::know(&rig.hosts, &[("127.0.0.1", 1)]);
    rig.until("what was kept for it is executed", || rig.gone(1) > 0);
    rig.change();
    let both = rig.lose(&[1, 2]);
    assert_eq!(rig.gone(2), third, "a server keeps its address");

    Rig::know(&rig.hosts, &[("127.0.0.1", 0), ("127.0.0.1", 1)]);
    rig.until("everything is executed", || rig.gone(0) + both == ROWS);
    assert_eq!(rig.invalidator.stat("gaps"), Some(0));
}
