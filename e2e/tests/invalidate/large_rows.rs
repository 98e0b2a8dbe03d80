//! Rows whose events in the log are larger than the server's `max_allowed_packet`: an update logs
//! the old and the new row as one event.

use e2e::invalidator::{Invalidator, mysqld_source};
use testkit::database::{Brand, Mysqld};

use crate::harness::{cache, fill, until_absent};
use crate::mysql::purge;

const TABLES: &str =
    "CREATE TABLE items (id INT PRIMARY KEY); CREATE TABLE other (id INT PRIMARY KEY, v LONGTEXT)";
const ITEM_KEYS: &str = "[keys.tables]\n\"shop.items\" = \"item:{id}\"";
const KEYS: [&str; 3] = ["item:1", "item:2", "item:3"];

fn start(brand: Brand) -> Mysqld {
    let database = Mysqld::start(brand, 1, &["--max-allowed-packet=16M"]);
    database.sql(TABLES);
    database.sql("INSERT INTO other VALUES (1, REPEAT('a', 12000000))");
    database
}

#[test]
fn an_event_larger_than_the_servers_packet_limit_stops_nothing() {
    for brand in Brand::ALL {
        let database = start(brand);
        let server = cache();
        let source = mysqld_source(&[&database], "");
        let mut invalidator = Invalidator::new(&source, ITEM_KEYS, &[server.addr()], "");
        invalidator.start(&[]);
        fill(&server, &KEYS);
        database.sql("UPDATE other SET v = REPEAT('b', 12000000)");
        database.sql("INSERT INTO items VALUES (1)");
        until_absent(&server, &KEYS, &["item:1"], &invalidator);
        assert_eq!(invalidator.stat("gaps"), Some(0), "{}", invalidator.log());
    }
}

/// MariaDB does not find a position after such an event.
#[test]
fn the_end_of_a_log_that_mariadb_cannot_search_is_found() {
    let database = start(Brand::MariaDb);
    database.sql("FLUSH BINARY LOGS; UPDATE other SET v = REPEAT('b', 12000000)");
    purge(&database);
    let status = database.sql("SHOW MASTER STATUS");
    let mut status = status.split_whitespace();
    let (file, offset) = (status.next().unwrap(), status.next().unwrap());
    let found = database.sql(&format!("SELECT BINLOG_GTID_POS('{file}', {offset})"));
    assert_eq!(found.trim(), "NULL", "this tests nothing");
    let server = cache();
    let flush = "[delivery]\non_gap = \"flush\"";
    let source = mysqld_source(&[&database], "");
    // At the first start, and after a gap.
    for (gaps, args) in [(0, &[][..]), (1, &["--since", "mariadb-gtid:0-1-1"])] {
        let mut invalidator = Invalidator::new(&source, ITEM_KEYS, &[server.addr()], flush);
        fill(&server, &KEYS);
        invalidator.start(args);
        if gaps > 0 {
            until_absent(&server, &KEYS, &KEYS, &invalidator);
            // The first commit repeats the flush.
            fill(&server, &KEYS);
            database.sql("INSERT INTO items VALUES (20)");
            until_absent(&server, &KEYS, &KEYS, &invalidator);
        }
        fill(&server, &KEYS);
        let id = gaps + 1;
        database.sql(&format!("INSERT INTO items VALUES ({id})"));
        until_absent(&server, &KEYS, &[&format!("item:{id}")], &invalidator);
        assert_eq!(invalidator.stat("gaps"), Some(gaps), "{}", invalidator.log());
        let flushes = invalidator.stat("cluster:c0:flushes");
        assert!(flushes <= Some(3 * gaps), "{flushes:?}: {}", invalidator.log());
    }
}
