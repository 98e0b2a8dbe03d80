//! A second server that cannot be followed, when the connection to the first one breaks.

use e2e::invalidator::Invalidator;
use testkit::eventually;

use crate::database::Database;
use crate::harness::{cache, fill, until_absent};

fn connection_breaks(make: fn() -> Database) {
    let (database, unfit) = (make(), make());
    database.make("items", 2);
    let (one, both) = (
        format!("\"{}\"", database.addr()),
        [database.addr(), unfit.addr()].map(|at| at.to_string()),
    );
    let source = database.source().replacen(&one, &format!("\"{}\"", both.join("\", \"")), 1);
    let keys = format!("[keys.tables]\n\"{}\" = \"item:{{id}}\"", database.table("items"));
    let server = cache();
    let mut invalidator = Invalidator::new(&source, &keys, &[server.addr()], "");
    invalidator.start(&[]);
    let all = ["item:0", "item:1"];
    fill(&server, &all);
    for at in 0..2 {
        database.kill_followers();
        let noted = || invalidator.log().matches("this server is no substitute").count() > at;
        eventually("a note about the second server", noted);
        database.sql(&format!("UPDATE items SET v = v + 1 WHERE id = {at}"));
        until_absent(&server, &all, &all[..=at], &invalidator);
    }
    assert!(invalidator.is_running(), "{}", invalidator.log());
}

#[test]
fn an_unfit_second_server_of_mariadb_ends_nothing() {
    connection_breaks(Database::maria_db);
}

#[test]
fn an_unfit_second_server_of_mysql_ends_nothing() {
    connection_breaks(Database::mysql);
}

#[test]
fn an_unfit_second_server_of_postgresql_ends_nothing() {
    connection_breaks(Database::postgres);
}
