//! A second server that cannot be followed or that does not replicate, when the connection to the
//! first one breaks.

use e2e::invalidator::{Invalidator, mysqld_source};
use testkit::database::{Brand, Mysqld};
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
        // The second server is tried after two breaks without progress.
        let noted = || {
            database.kill_followers();
            invalidator.log().matches("this server is no substitute").count() > at
        };
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

const ITEM_KEYS: &str = "[keys.tables]\n\"shop.items\" = \"item:{id}\"";
/// A user with the rights that `setup` grants.
const READER: &str = "CREATE USER reader IDENTIFIED BY 'secret'; GRANT SELECT ON shop.* TO reader; \
    GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO reader";

const ALL: [&str; 3] = ["item:1", "item:2", "item:3"];

/// A primary, and its replica, which has everything.
fn primary_and_replica(brand: Brand) -> (Database, Mysqld) {
    primary_and_replica_with(brand, &[])
}

/// The same; the replica has these flags.
fn primary_and_replica_with(brand: Brand, flags: &[&str]) -> (Database, Mysqld) {
    let (primary, replica) = (Mysqld::start(brand, 1, &[]), Mysqld::start(brand, 2, flags));
    primary.reset_log();
    replica.reset_log();
    primary.sql("CREATE TABLE items (id BIGINT PRIMARY KEY)");
    replica.follow(&primary);
    replica.catch_up(&primary.gtids());
    (Database::Mysqld(primary), replica)
}

/// The server that is read.
fn server_read(invalidator: &Invalidator) -> String {
    let log = invalidator.log();
    let last = log.lines().rfind(|line| line.contains("reading from"));
    last.and_then(|line| Some(line.rsplit_once(" at ")?.1)).unwrap_or_default().to_owned()
}

#[test]
fn a_broken_connection_does_not_lead_to_a_replica() {
    for brand in Brand::ALL {
        let (database, replica) = primary_and_replica(brand);
        let Database::Mysqld(primary) = &database else { unreachable!() };
        // Nothing in its state shows that it still is a replica.
        replica.stop_following();
        let server = cache();
        let source = mysqld_source(&[primary, &replica], "");
        let mut invalidator = Invalidator::new(&source, ITEM_KEYS, &[server.addr()], "");
        invalidator.start(&[]);
        fill(&server, &ALL);
        for at in 0..3 {
            database.kill_followers();
            primary.sql(&format!("INSERT INTO items VALUES ({})", at + 1));
            until_absent(&server, &ALL, &ALL[..=at], &invalidator);
            assert_eq!(server_read(&invalidator), primary.addr().to_string());
        }
    }
}

#[test]
fn a_replica_that_does_not_replicate_is_left() {
    for brand in Brand::ALL {
        let (database, replica) = primary_and_replica(brand);
        let Database::Mysqld(primary) = &database else { unreachable!() };
        let server = cache();
        let source = mysqld_source(&[&replica, primary], "check_every_ms = 200");
        let mut invalidator = Invalidator::new(&source, ITEM_KEYS, &[server.addr()], "");
        invalidator.start(&[]);
        assert_eq!(server_read(&invalidator), replica.addr().to_string());
        fill(&server, &ALL);
        primary.sql("INSERT INTO items VALUES (1)");
        until_absent(&server, &ALL, &ALL[..1], &invalidator);
        replica.sql("SET GLOBAL read_only = 1");
        replica.stop_following();
        primary.sql("INSERT INTO items VALUES (2)");
        until_absent(&server, &ALL, &ALL[..2], &invalidator);
        assert_eq!(server_read(&invalidator), primary.addr().to_string());
        assert!(invalidator.log().contains("its replication does not run"));
        // It is not followed from the start, either.
        invalidator.kill();
        invalidator.start(&[]);
        assert_eq!(server_read(&invalidator), primary.addr().to_string());
        primary.sql("INSERT INTO items VALUES (3)");
        until_absent(&server, &ALL, &ALL, &invalidator);
        assert_eq!(invalidator.stat("gaps"), Some(0), "{}", invalidator.log());
    }
}

#[test]
fn a_replica_that_does_not_replicate_is_followed_if_it_is_the_only_one() {
    for brand in Brand::ALL {
        let (_primary, replica) = primary_and_replica(brand);
        replica.sql(READER);
        replica.sql("SET GLOBAL read_only = 1");
        replica.stop_following();
        let server = cache();
        for user in ["holdall", "reader"] {
            let source =
                mysqld_source(&[&replica], "").replace("\"holdall\"", &format!("\"{user}\""));
            let mut invalidator = Invalidator::new(&source, ITEM_KEYS, &[server.addr()], "");
            assert!(invalidator.run("check", &[]).contains("its replication does not run"));
            invalidator.start(&[]);
            fill(&server, &ALL);
            replica.sql(&format!("INSERT INTO items VALUES ({})", user.len()));
            invalidator.until("cluster:c0:delivered", |count| count > 0);
            let noted = || invalidator.log().contains("its replication does not run");
            eventually("a note about replication", noted);
        }
    }
}

#[test]
fn a_replica_that_leaves_out_changes_is_refused() {
    for brand in Brand::ALL {
        let flags = [
            "--replicate-wild-ignore-table=mysql.%",
            "--replicate-wild-ignore-table=performance_schema.%",
            "--replicate-ignore-table=shop.items",
        ];
        for (flags, is_refused) in [(&flags[..2], false), (&flags[..], true)] {
            let (_primary, replica) = primary_and_replica_with(brand, flags);
            replica.sql(READER);
            let invalidator_of = |user| {
                let source =
                    mysqld_source(&[&replica], "").replace("\"holdall\"", &format!("\"{user}\""));
                Invalidator::new(&source, ITEM_KEYS, &[cache().addr()], "")
            };
            for user in ["holdall", "reader"] {
                let mut invalidator = invalidator_of(user);
                if !is_refused {
                    assert_eq!(invalidator.run("check", &[]), "ok\n", "{brand:?} {user}");
                    continue;
                }
                let said = invalidator.refusal("check", &[]).to_ascii_lowercase();
                assert!(said.contains("replicate_ignore_table = shop.items"), "{said}");
                assert!(!said.contains("mysql.%") && !said.contains("_schema"), "{said}");
            }
            // It accepts writes, so it may have been promoted.
            replica.stop_following();
            replica.sql("CREATE TABLE IF NOT EXISTS items (id BIGINT PRIMARY KEY)");
            for user in ["holdall", "reader"] {
                let said = invalidator_of(user).run("check", &[]);
                assert!(said.ends_with("ok\n"), "{brand:?} {user}: {said}");
            }
        }
    }
}
