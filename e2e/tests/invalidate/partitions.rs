//! Partitioned tables of PostgreSQL, published as whole tables or by their partitions; and causes
//! that keep it from removing its log.

use std::time::{Duration, Instant};

use e2e::invalidator::Invalidator;
use testkit::database::Postgres;
use testkit::{FaultProxy, Mode};

use crate::harness::{cache, fill, until_absent};
use crate::postgres::{end, source};

const KEYS: [&str; 6] = ["user:1", "user:11", "user:21", "mail:a", "mail:b", "mail:c"];
const USER_KEYS: &str = "[keys.tables]\n\"public.users\" = [\"user:{id}\", \"mail:{mail}\"]";

/// A publication, and a table of two partitions, one of which is partitioned itself.
fn start(via_root: bool) -> Postgres {
    let database =
        Postgres::start(&["logical_decoding_work_mem=64kB", "max_prepared_transactions=4"]);
    database.sql(
        "CREATE TABLE users (id BIGINT PRIMARY KEY, mail TEXT) PARTITION BY RANGE (id); \
         CREATE TABLE u0 PARTITION OF users FOR VALUES FROM (0) TO (10); \
         CREATE TABLE u1 (mail TEXT, id BIGINT NOT NULL) PARTITION BY RANGE (id); \
         CREATE TABLE u10 PARTITION OF u1 FOR VALUES FROM (10) TO (20); \
         ALTER TABLE users ATTACH PARTITION u1 FOR VALUES FROM (10) TO (20); \
         CREATE TABLE other (id INT PRIMARY KEY)",
    );
    database.sql(&format!(
        "CREATE PUBLICATION cached FOR TABLE users WITH (publish_via_partition_root = {via_root})"
    ));
    database
}

#[test]
fn partition_changes_delete_the_keys_of_their_table() {
    for via_root in [true, false] {
        let database = start(via_root);
        let server = cache();
        let mut invalidator = Invalidator::new(&source(&database), USER_KEYS, &[server.addr()], "");
        // Each partition has its own setting for the old rows in the log.
        database.sql("ALTER TABLE users REPLICA IDENTITY FULL");
        let said = invalidator.refusal("check", &[]);
        assert!(said.contains("table public.u10: old values of column 'mail'"), "{said}");
        database.sql("ALTER TABLE u0 REPLICA IDENTITY FULL; ALTER TABLE u10 REPLICA IDENTITY FULL");
        database.sql("INSERT INTO users VALUES (1, 'a'), (11, 'b')");
        invalidator.run("check", &[]);
        invalidator.start(&[]);
        fill(&server, &KEYS);
        database.sql("UPDATE users SET mail = 'b' WHERE id = 1");
        until_absent(&server, &KEYS, &["user:1", "mail:a", "mail:b"], &invalidator);
        fill(&server, &KEYS);
        database.sql("UPDATE users SET mail = 'c' WHERE id = 11");
        until_absent(&server, &KEYS, &["user:11", "mail:b", "mail:c"], &invalidator);
        fill(&server, &KEYS);
        // Rows move from one partition to another.
        database
            .sql("UPDATE users SET id = 12 WHERE id = 1; UPDATE users SET id = 1 WHERE id = 12");
        until_absent(&server, &KEYS, &["user:1", "mail:b"], &invalidator);
        fill(&server, &KEYS);
        // A partition that is created later.
        database.sql(
            "CREATE TABLE u2 PARTITION OF users FOR VALUES FROM (20) TO (30); \
             ALTER TABLE u2 REPLICA IDENTITY FULL; INSERT INTO users VALUES (21, 'a')",
        );
        until_absent(&server, &KEYS, &["user:21", "mail:a"], &invalidator);
        assert_eq!(invalidator.stat("gaps"), Some(0), "{}", invalidator.log());
    }
}

/// The log has the old name, and the catalogue the current one.
#[test]
fn renamed_partitions_are_followed() {
    for via_root in [true, false] {
        let database = start(via_root);
        database.sql("ALTER TABLE u0 REPLICA IDENTITY FULL; ALTER TABLE u10 REPLICA IDENTITY FULL");
        database.sql("ALTER TABLE users REPLICA IDENTITY FULL; CREATE SCHEMA archive");
        database.sql("INSERT INTO users VALUES (1, 'a'), (11, 'b')");
        let server = cache();
        let mut invalidator = Invalidator::new(&source(&database), USER_KEYS, &[server.addr()], "");
        invalidator.start(&[]);
        fill(&server, &KEYS);
        database.sql(
            "BEGIN; CREATE TABLE u_new PARTITION OF users FOR VALUES FROM (20) TO (30); \
             ALTER TABLE u_new REPLICA IDENTITY FULL; INSERT INTO users VALUES (21, 'a'); \
             ALTER TABLE u_new RENAME TO u2; COMMIT",
        );
        until_absent(&server, &KEYS, &["user:21", "mail:a"], &invalidator);
        database.sql("ALTER TABLE u2 RENAME TO u3");
        fill(&server, &KEYS);
        database.sql("UPDATE users SET mail = 'c' WHERE id = 21");
        until_absent(&server, &KEYS, &["user:21", "mail:a", "mail:c"], &invalidator);
        // In order: after a crash, it would deliver the last deletes again.
        end(&mut invalidator);
        fill(&server, &KEYS);
        database.sql("UPDATE users SET mail = 'c' WHERE id = 1; ALTER TABLE u0 RENAME TO u0_old");
        database.sql("UPDATE users SET mail = 'c' WHERE id = 11");
        database.sql("ALTER TABLE u10 SET SCHEMA archive");
        invalidator.start(&[]);
        let gone = ["user:1", "user:11", "mail:a", "mail:b", "mail:c"];
        until_absent(&server, &KEYS, &gone, &invalidator);
        assert_eq!(invalidator.stat("gaps"), Some(0), "{}", invalidator.log());
    }
}

#[test]
fn a_temporarily_renamed_table_is_followed() {
    let database = start(true);
    database
        .sql("CREATE TABLE plain (id INT PRIMARY KEY); ALTER PUBLICATION cached ADD TABLE plain");
    let server = cache();
    let keys = "[keys.tables]\n\"public.plain\" = \"user:{id}\"";
    let mut invalidator = Invalidator::new(&source(&database), keys, &[server.addr()], "");
    invalidator.start(&[]);
    fill(&server, &KEYS);
    database.sql(
        "BEGIN; ALTER TABLE plain RENAME TO busy; INSERT INTO busy VALUES (1); \
         ALTER TABLE busy RENAME TO plain; COMMIT",
    );
    until_absent(&server, &KEYS, &["user:1"], &invalidator);
    assert_eq!(invalidator.stat("gaps"), Some(0), "{}", invalidator.log());
}

/// Its earlier rows were those of a table that is not followed.
#[test]
fn a_table_that_becomes_a_partition_is_followed() {
    let database = start(false);
    database.sql("ALTER TABLE u0 REPLICA IDENTITY FULL; ALTER TABLE u10 REPLICA IDENTITY FULL");
    database.sql(
        "ALTER TABLE users REPLICA IDENTITY FULL; \
         CREATE TABLE u2 (id BIGINT PRIMARY KEY, mail TEXT); \
         ALTER TABLE u2 REPLICA IDENTITY FULL; ALTER PUBLICATION cached ADD TABLE u2",
    );
    let server = cache();
    let mut invalidator = Invalidator::new(&source(&database), USER_KEYS, &[server.addr()], "");
    invalidator.start(&[]);
    fill(&server, &KEYS);
    database.sql("INSERT INTO u2 VALUES (21, 'a'); INSERT INTO users VALUES (1, 'b')");
    until_absent(&server, &KEYS, &["user:1", "mail:b"], &invalidator);
    database.sql("DELETE FROM u2");
    database.sql(
        "ALTER TABLE users ATTACH PARTITION u2 FOR VALUES FROM (20) TO (30); \
         INSERT INTO u2 VALUES (21, 'c')",
    );
    let gone = ["user:1", "user:21", "mail:b", "mail:c"];
    until_absent(&server, &KEYS, &gone, &invalidator);
}

/// The log has rows with a name and a number that no longer exist.
#[test]
fn rows_of_a_removed_partition_are_a_gap() {
    for gone in ["DROP TABLE u0", "ALTER TABLE users DETACH PARTITION u0"] {
        for via_root in [true, false] {
            let database = start(via_root);
            database.sql("ALTER TABLE u0 REPLICA IDENTITY FULL");
            database.sql("ALTER TABLE u10 REPLICA IDENTITY FULL");
            database.sql("ALTER TABLE users REPLICA IDENTITY FULL");
            let server = cache();
            let flush = "[delivery]\non_gap = \"flush\"";
            let source = source(&database);
            let mut invalidator = Invalidator::new(&source, USER_KEYS, &[server.addr()], flush);
            invalidator.start(&[]);
            invalidator.until("checkpoints", |count| count > 0);
            invalidator.kill();
            fill(&server, &KEYS);
            database.sql("INSERT INTO users VALUES (1, 'a'), (2, 'a')");
            database.sql(gone);
            invalidator.start(&[]);
            let absent = if via_root { &["user:1", "mail:a"][..] } else { &KEYS };
            until_absent(&server, &KEYS, absent, &invalidator);
            let gaps = invalidator.stat("gaps");
            assert_eq!(gaps, Some(u64::from(!via_root)), "{gone}: {}", invalidator.log());
            if !via_root {
                assert!(invalidator.log().contains("rows of public.u0, which may have been"));
            }
        }
    }
}

#[test]
fn prepared_and_large_transactions_delete_at_their_commit() {
    let database = start(true);
    database.sql("ALTER TABLE u0 REPLICA IDENTITY FULL; ALTER TABLE u10 REPLICA IDENTITY FULL");
    database.sql("ALTER TABLE users REPLICA IDENTITY FULL");
    let server = cache();
    let mut invalidator = Invalidator::new(&source(&database), USER_KEYS, &[server.addr()], "");
    invalidator.start(&[]);
    fill(&server, &KEYS);
    for (name, id) in [("one", 1), ("two", 11)] {
        database.sql(&format!(
            "BEGIN; INSERT INTO users VALUES ({id}, NULL); PREPARE TRANSACTION '{name}'"
        ));
    }
    database.sql("INSERT INTO users VALUES (2, 'c')");
    until_absent(&server, &KEYS, &["mail:c"], &invalidator);
    invalidator.kill();
    database.sql("COMMIT PREPARED 'one'");
    database.sql("ROLLBACK PREPARED 'two'");
    invalidator.start(&[]);
    until_absent(&server, &KEYS, &["user:1", "mail:c"], &invalidator);
    // The transaction is larger than the server decodes in memory; half of it is rolled back.
    database.sql(
        "BEGIN; INSERT INTO users VALUES (11, 'a'); \
         DO $$ BEGIN FOR turn IN 1..3000 LOOP UPDATE users SET mail = repeat('m', 200) WHERE id = 2; END LOOP; END $$; \
         SAVEPOINT s; UPDATE users SET mail = 'b' WHERE id = 2; ROLLBACK TO s; COMMIT",
    );
    until_absent(&server, &KEYS, &["user:1", "user:11", "mail:a", "mail:c"], &invalidator);
}

#[test]
fn unfollowed_tables_do_not_retain_log() {
    let database = start(true);
    database.sql("ALTER TABLE u0 REPLICA IDENTITY FULL; ALTER TABLE u10 REPLICA IDENTITY FULL");
    database.sql("ALTER TABLE users REPLICA IDENTITY FULL");
    let server = cache();
    let mut invalidator = Invalidator::new(&source(&database), USER_KEYS, &[server.addr()], "");
    invalidator.start(&[]);
    database.sql("INSERT INTO other SELECT * FROM generate_series(1, 20000)");
    let written = database.sql("SELECT pg_current_wal_lsn()");
    let behind =
        format!("SELECT confirmed_flush_lsn < '{}' FROM pg_replication_slots", written.trim());
    let end = Instant::now() + Duration::from_secs(30);
    while database.sql(&behind).trim() == "t" {
        assert!(Instant::now() < end, "the slot stays behind: {}", invalidator.log());
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A publication of a table, and a server that keeps 64 MB of its log for a slot.
fn start_with_little_log() -> Postgres {
    let database = Postgres::start(&["max_slot_wal_keep_size=64MB", "wal_keep_size=0"]);
    database.sql("CREATE TABLE users (id BIGINT PRIMARY KEY, mail TEXT)");
    database
        .sql("ALTER TABLE users REPLICA IDENTITY FULL; CREATE PUBLICATION cached FOR TABLE users");
    database
}

#[test]
fn a_slot_about_to_lose_log_is_reported() {
    let database = start_with_little_log();
    let server = cache();
    let often = format!("{}\ncheck_every_ms = 100", source(&database));
    let mut invalidator = Invalidator::new(&often, USER_KEYS, &[server.addr()], "");
    invalidator.start(&[]);
    invalidator.until("log_room_bytes", |bytes| bytes > 32 << 20);
    assert_eq!(invalidator.stat("log_room_short"), Some(0));
    // A transaction that does not end holds the slot back.
    let mut open = database.session();
    open.run("BEGIN; SELECT pg_advisory_xact_lock(1); INSERT INTO users VALUES (1, 'a')");
    for _ in 0..60 {
        database.sql("SELECT pg_switch_wal() FROM pg_logical_emit_message(true, 'x', 'x')");
        std::thread::sleep(Duration::from_millis(200));
        if invalidator.stat("log_room_short") == Some(1) {
            break;
        }
    }
    invalidator.until("log_room_short", |is_short| is_short == 1);
    assert!(invalidator.log().contains("removes log that was not delivered"));
    assert!(invalidator.page("/readyz").starts_with("HTTP/1.1 503"));
    open.run("COMMIT");
    let end = Instant::now() + Duration::from_secs(30);
    while invalidator.stat("log_room_short") == Some(1) {
        assert!(Instant::now() < end, "it stays short");
        // The slot advances with the lists of transactions that checkpoints write.
        database.sql("SELECT pg_logical_emit_message(true, 'x', 'x')");
        database.sql("CHECKPOINT");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// The database's log is the buffer while reading waits for a slow cluster.
#[test]
fn checks_are_reported_while_reading_waits() {
    let database = start_with_little_log();
    let server = cache();
    let slow = FaultProxy::before(server.addr());
    let often = format!("{}\ncheck_every_ms = 100", source(&database));
    let delivery = "[delivery]\nwindow_keys = 10\nspool_bytes_max = 0\nanswer_within_ms = 60000";
    let mut invalidator = Invalidator::new(&often, USER_KEYS, &[slow.addr()], delivery);
    invalidator.start(&[]);
    database.sql("INSERT INTO users VALUES (0, 'a')");
    invalidator.until("cluster:c0:delivered", |keys| keys > 0);
    slow.set(Mode::Held);
    for id in 1..100 {
        database.sql(&format!("INSERT INTO users VALUES ({id}, 'a')"));
    }
    let read = || invalidator.stat("transactions");
    let mut before = read();
    loop {
        std::thread::sleep(Duration::from_secs(1));
        let now = read();
        if now == before {
            break;
        }
        before = now;
    }
    for _ in 0..20 {
        database.sql("SELECT pg_switch_wal() FROM pg_logical_emit_message(true, 'x', 'x')");
    }
    invalidator.until("log_room_short", |is_short| is_short == 1);
    assert!(invalidator.log().contains("removes log that was not delivered"));
    invalidator.until("check_late", |is_late| is_late == 0);
    slow.set(Mode::Open);
    invalidator.until("cluster:c0:delivered", |keys| keys >= 200);
}
