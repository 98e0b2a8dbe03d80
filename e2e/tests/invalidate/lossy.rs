//! A new primary of MariaDB or MySQL that lacks the last transactions of the previous one, and a
//! previous primary that lacks those of the new one.

use std::thread;
use std::time::{Duration, Instant};

use e2e::invalidator::{Invalidator, mysqld_source};
use rustix::process::Signal;
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
    // The old primary may only restart.
    for invalidator in [&flushing, &stopping] {
        until_logged(invalidator, "another server may have the position");
        assert_eq!(invalidator.stat("gaps"), Some(0), "{}", invalidator.log());
        assert!(invalidator.page("/readyz").starts_with("HTTP/1.1 503"), "{}", invalidator.log());
        let old = format!("\"{}\", ", primary.addr());
        invalidator.set_configuration(&invalidator.configuration().replacen(&old, "", 1));
    }
    flushing.signal(Signal::HUP);
    stopping.kill();
    let said = stopping.refusal("run", &[]);
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

/// It is up and accepts writes while the primary restarts.
#[test]
fn a_former_primary_is_not_read_instead_of_the_primary() {
    Brand::ALL.into_iter().for_each(former_primary);
}

fn former_primary(brand: Brand) {
    let mut former = Mysqld::start(brand, 1, &[]);
    let mut primary = Mysqld::start(brand, 2, &[]);
    former.reset_log();
    primary.reset_log();
    former.sql("CREATE TABLE users (id INT PRIMARY KEY, mail VARCHAR(100))");
    primary.follow(&former);
    primary.catch_up(&former.gtids());
    let server = cache();
    let source = mysqld_source(&[&former, &primary], "");
    let mut invalidator = Invalidator::new(&source, USER_KEYS, &[server.addr()], "");
    invalidator.start(&[]);
    former.kill();
    primary.stop_following();
    fill(&server, &KEYS);
    primary.sql("INSERT INTO users VALUES (1, NULL)");
    until_absent(&server, &KEYS, &KEYS[..1], &invalidator);
    former.restart();
    former.sql("INSERT INTO users VALUES (7, NULL), (8, NULL); DELETE FROM users");
    primary.kill();
    until_logged(&invalidator, "another server may have the position");
    primary.restart();
    primary.sql("INSERT INTO users VALUES (2, NULL)");
    until_absent(&server, &KEYS, &KEYS[..2], &invalidator);
    assert_eq!(invalidator.stat("gaps"), Some(0), "{}", invalidator.log());
}

fn until_logged(invalidator: &Invalidator, text: &str) {
    let end = Instant::now() + Duration::from_secs(30);
    while !invalidator.log().contains(text) {
        assert!(Instant::now() < end, "{text} is not in:\n{}", invalidator.log());
        thread::sleep(Duration::from_millis(20));
    }
}
