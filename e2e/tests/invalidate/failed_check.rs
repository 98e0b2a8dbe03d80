//! A server whose log lacks changes when the invalidator starts or connects again, and which is
//! repaired later.

use e2e::invalidator::Invalidator;

use crate::database::Database;
use crate::harness::{cache, fill, until_absent};

/// Changes the server while the invalidator runs and then connects again, or before it starts.
fn repaired(make: fn() -> Database, change: &str, repair: &str, is_running: bool) {
    let database = make();
    database.make("items", 2);
    let keys = format!("[keys.tables]\n\"{}\" = \"item:{{id}}\"", database.table("items"));
    let server = cache();
    let mut invalidator = Invalidator::new(&database.source(), &keys, &[server.addr()], "");
    invalidator.start(&[]);
    database.sql("UPDATE items SET v = 7 WHERE id = 0");
    invalidator.until("cluster:c0:delivered", |count| count > 0);
    fill(&server, &["item:0", "item:1"]);
    let said = if is_running {
        database.sql(change);
        database.kill_followers();
        invalidator.ended()
    } else {
        invalidator.kill();
        database.sql(change);
        invalidator.refusal("run", &[])
    };
    assert!(said.contains("changes may be missing from the log"), "{said}");
    database.sql(repair);
    let said = invalidator.refusal("run", &[]);
    assert!(said.contains("changes were missing from the log"), "{said}");
    invalidator.start(&["--on-gap", "flush"]);
    until_absent(&server, &["item:0", "item:1"], &["item:0", "item:1"], &invalidator);
    fill(&server, &["item:0", "item:1"]);
    database.sql("UPDATE items SET v = 9 WHERE id = 1");
    until_absent(&server, &["item:0", "item:1"], &["item:1"], &invalidator);
}

#[test]
fn a_failed_check_of_mariadb_is_recorded() {
    for is_running in [true, false] {
        let change = "SET GLOBAL binlog_row_metadata = 'NO_LOG'";
        let repair = "SET GLOBAL binlog_row_metadata = 'FULL'";
        repaired(Database::maria_db, change, repair, is_running);
    }
}

/// A running invalidator soon repeats the check, because of the update.
#[test]
fn a_failed_check_of_postgresql_is_recorded() {
    let change = "ALTER PUBLICATION cached DROP TABLE items";
    let repair = "ALTER PUBLICATION cached ADD TABLE items";
    repaired(Database::postgres, change, repair, false);
}
