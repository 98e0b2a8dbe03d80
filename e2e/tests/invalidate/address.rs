//! Another server of MariaDB or MySQL takes over the address of the first one, as behind a virtual
//! address or a proxy.

use std::thread;
use std::time::Duration;

use e2e::invalidator::{Invalidator, mysqld_source};
use testkit::FaultProxy;
use testkit::database::{Brand, Mysqld};

use crate::harness::{cache, fill, until_absent};

const ITEM_KEYS: &str = "[keys.tables]\n\"shop.items\" = \"item:{id}\"";
const KEYS: [&str; 3] = ["item:1", "item:2", "item:3"];

/// Files are identified to the second.
const NEXT_SECOND: Duration = Duration::from_millis(1100);

#[test]
fn a_server_that_takes_over_an_address_is_followed_without_a_gap() {
    Brand::ALL.into_iter().for_each(takes_over);
}

fn takes_over(brand: Brand) {
    let [primary, replica] = [1, 2].map(|id| Mysqld::start(brand, id, &[]));
    primary.reset_log();
    replica.reset_log();
    // Its files have higher numbers.
    primary.sql("FLUSH BINARY LOGS; FLUSH BINARY LOGS; FLUSH BINARY LOGS");
    primary.sql("CREATE TABLE items (id INT PRIMARY KEY, v INT)");
    replica.follow(&primary);
    let server = cache();
    let link = FaultProxy::before(primary.addr());
    let addr = link.addr();
    let source = mysqld_source(&[&primary], "");
    let source = source.replace(&primary.addr().to_string(), &addr.to_string());
    let flush = "[delivery]\non_gap = \"flush\"";
    let mut invalidator = Invalidator::new(&source, ITEM_KEYS, &[server.addr()], flush);
    invalidator.start(&[]);
    fill(&server, &KEYS);
    primary.sql("INSERT INTO items VALUES (1, 0)");
    until_absent(&server, &KEYS, &["item:1"], &invalidator);
    replica.catch_up(&primary.gtids());
    replica.stop_following();
    thread::sleep(NEXT_SECOND);
    replica.sql("FLUSH BINARY LOGS; INSERT INTO items VALUES (2, 0)");
    drop(link);
    let _link = FaultProxy::at(addr, replica.addr());
    fill(&server, &KEYS);
    until_absent(&server, &KEYS, &["item:2"], &invalidator);
    assert_eq!(invalidator.stat("gaps"), Some(0), "{}", invalidator.log());
    // A log that is reset at the same address is a gap, even if it passes the position.
    thread::sleep(NEXT_SECOND);
    let many: String = (0..60).map(|v| format!("REPLACE INTO items VALUES (3, {v});")).collect();
    let mut session = replica.session();
    replica.reset_log();
    assert!(session.run(&many).is_some());
    until_absent(&server, &KEYS, &KEYS, &invalidator);
    invalidator.until("gaps", |count| count == 1);
}
