//! A new primary of MariaDB or MySQL that lacks the last transactions of the previous one.

use std::thread;
use std::time::{Duration, Instant};

use e2e::invalidator::{Invalidator, mysqld_source};
use testkit::database::{Brand, Mysqld};

use crate::harness::{cache, fill, until_absent};

const USER_KEYS: &str = "[keys.tables]\n\"shop.users\" = [\"user:{id}\", \"mail:{mail}\"]";
const KEYS: [&str; 4] = ["user:1", "user:2", "user:3", "mail:a@x"];

/// The last transactions of the old primary were read, but never replicated.
#[test]
fn a_new_primary_that_lacks_transactions_is_a_gap() {
    Brand::ALL.into_iter().for_each(lossy_failover);
}

fn lossy_failover(brand: Brand) {
    let mut primary = Mysqld::start(brand, 1, &[]);
    let replica = Mysqld::start(brand, 2, &[]);
    primary.reset_log();
    replica.reset_log();
    primary.sql("CREATE TABLE users (id INT PRIMARY KEY, mail VARCHAR(100), note TEXT)");
    replica.follow(&primary);
    primary.sql("INSERT INTO users VALUES (1, NULL, '')");
    replica.catch_up(&primary.gtids());
    replica.stop_following();
    replica.sql("SET GLOBAL read_only = 1");
    let server = cache();
    let source = mysqld_source(&[&primary, &replica], "");
    let flush = "[delivery]\non_gap = \"flush\"";
    let mut flushing = Invalidator::new(&source, USER_KEYS, &[server.addr()], flush);
    let source = source.replace("4001", "4002");
    let mut stopping = Invalidator::new(&source, USER_KEYS, &[server.addr()], "");
    flushing.start(&[]);
    stopping.start(&[]);
    fill(&server, &KEYS);
    // More transactions are lost than the new primary writes.
    for note in 1..=5 {
        primary.sql(&format!("UPDATE users SET note = '{note}' WHERE id = 1"));
    }
    primary.sql("UPDATE users SET mail = 'a@x' WHERE id = 1");
    until_absent(&server, &KEYS, &["user:1", "mail:a@x"], &flushing);
    stopping.until("cluster:c0:delivered", |count| count > 0);
    // While it accepts no writes, it may still receive them.
    primary.kill();
    fill(&server, &KEYS);
    until_logged(&flushing, "it is a replica and may get them");
    assert_eq!(flushing.stat("gaps"), Some(0), "{}", flushing.log());
    replica.sql("SET GLOBAL read_only = 0; INSERT INTO users VALUES (2, 'b@x', '')");
    let said = stopping.ended();
    assert!(said.contains("--on-gap flush"), "{said}");
    until_absent(&server, &KEYS, &KEYS, &flushing);
    // The first commit repeats the flush.
    fill(&server, &KEYS);
    replica.sql("INSERT INTO users VALUES (20, NULL, '')");
    until_absent(&server, &KEYS, &KEYS, &flushing);
    fill(&server, &KEYS);
    replica.sql("INSERT INTO users VALUES (3, NULL, '')");
    until_absent(&server, &KEYS, &["user:3"], &flushing);
}

fn until_logged(invalidator: &Invalidator, text: &str) {
    let end = Instant::now() + Duration::from_secs(30);
    while !invalidator.log().contains(text) {
        assert!(Instant::now() < end, "{text} is not in:\n{}", invalidator.log());
        thread::sleep(Duration::from_millis(20));
    }
}
