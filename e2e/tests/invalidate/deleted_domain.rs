//! A domain of transaction identifiers that MariaDB forgets.

use std::fs;

use e2e::invalidator::{Invalidator, mysqld_source};
use testkit::database::Mysqld;
use testkit::eventually;

use crate::harness::{cache, fill, until_absent};
use crate::mysql::purge;

const ITEM_KEYS: &str = "[keys.tables]\n\"shop.items\" = \"item:{id}\"";
const KEYS: [&str; 4] = ["item:1", "item:2", "item:3", "item:4"];

#[test]
fn a_deleted_domain_is_no_gap() {
    let database = Mysqld::mariadb(1, &[]);
    database.sql("CREATE TABLE items (id INT PRIMARY KEY)");
    let server = cache();
    let flush = "[delivery]\non_gap = \"flush\"";
    let source = mysqld_source(&[&database], "");
    let mut invalidator = Invalidator::new(&source, ITEM_KEYS, &[server.addr()], flush);
    invalidator.start(&[]);
    fill(&server, &KEYS);
    database.sql("SET gtid_domain_id = 5; INSERT INTO items VALUES (1)");
    database.sql("INSERT INTO items VALUES (2)");
    until_absent(&server, &KEYS, &["item:1", "item:2"], &invalidator);
    database.sql("FLUSH BINARY LOGS");
    let position = format!("mariadb-gtid:{}\n", database.gtids());
    let is_stored = || {
        let stored = fs::read_to_string(invalidator.checkpoint()).unwrap_or_default();
        stored.contains(&position)
    };
    eventually("the position is stored", is_stored);
    invalidator.kill();
    purge(&database);
    database.sql("FLUSH BINARY LOGS DELETE_DOMAIN_ID = (5)");
    invalidator.start(&[]);
    fill(&server, &KEYS);
    database.sql("INSERT INTO items VALUES (3)");
    until_absent(&server, &KEYS, &["item:3"], &invalidator);
    assert_eq!(invalidator.stat("gaps"), Some(0), "{}", invalidator.log());
    // Its numbers begin again.
    database.sql("SET gtid_domain_id = 5; INSERT INTO items VALUES (4)");
    until_absent(&server, &KEYS, &["item:3", "item:4"], &invalidator);
    assert_eq!(invalidator.stat("gaps"), Some(0), "{}", invalidator.log());
}
