//! Deletes from the binary logs of MariaDB and MySQL: every form of change, every pitfall, every
//! refusal.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use e2e::invalidator::{Invalidator, mysqld_source};
use testkit::database::{Brand, Mysqld};

use crate::harness::{cache, fill, until_absent};

const USERS: &str = "CREATE TABLE users (id BIGINT UNSIGNED PRIMARY KEY, mail VARCHAR(100), note TEXT) ENGINE=InnoDB";
const USER_KEYS: &str = "[keys.tables]\n\"shop.users\" = [\"user:{id}\", \"mail:{mail}\"]";

/// The keys of the tests.
const KEYS: [&str; 6] = ["user:1", "user:2", "user:3", "mail:a@x", "mail:b@x", "mail:c@x"];

#[test]
fn committed_rows_delete_only_their_keys() {
    let without_gtids = ["--gtid-mode=OFF", "--enforce-gtid-consistency=OFF"];
    for (brand, flags, position) in [
        (Brand::MariaDb, &[][..], ""),
        (Brand::MariaDb, &["--log-bin-compress=1"], ""),
        (Brand::MariaDb, &["--binlog-checksum=NONE"], ""),
        (Brand::MySql, &[], ""),
        (Brand::MySql, &["--binlog-checksum=NONE"], "position = \"file\""),
        (Brand::MySql, &without_gtids, "position = \"file\""),
    ] {
        let database = Mysqld::start(brand, 1, flags);
        database.sql(USERS);
        let server = cache();
        let mut invalidator = Invalidator::new(
            &mysqld_source(&[&database], position),
            USER_KEYS,
            &[server.addr()],
            "",
        );
        invalidator.start(&[]);
        let fill = || fill(&server, &KEYS);
        let gone = |gone: &[&str]| until_absent(&server, &KEYS, gone, &invalidator);
        // Long values, because MariaDB compresses events of 256 bytes or more.
        fill();
        database.sql("INSERT INTO users VALUES (1, 'a@x', REPEAT('n', 1000)), (18446744073709551615, NULL, '')");
        gone(&["user:1", "mail:a@x"]);
        fill();
        database.sql("UPDATE users SET mail = 'b@x', note = REPEAT('m', 2000) WHERE id = 1");
        gone(&["user:1", "mail:a@x", "mail:b@x"]);
        fill();
        database.sql("BEGIN; UPDATE users SET mail = 'c@x' WHERE id = 1; ROLLBACK");
        database.sql("BEGIN; INSERT INTO users VALUES (3, 'c@x', ''); SAVEPOINT s; INSERT INTO users VALUES (2, 'a@x', ''); \
                      ROLLBACK TO s; COMMIT");
        gone(&["user:3", "mail:c@x"]);
        fill();
        database.sql("DELETE FROM users WHERE id IN (1, 3)");
        gone(&["user:1", "user:3", "mail:b@x", "mail:c@x"]);
        fill();
        database.sql("FLUSH BINARY LOGS; ALTER TABLE users ADD COLUMN front INT FIRST; INSERT INTO users VALUES (9, 2, 'c@x', '')");
        gone(&["user:2", "mail:c@x"]);
        let cannot_tell = invalidator.log().contains("cannot check whether other sessions see");
        assert_eq!(cannot_tell, flags == without_gtids, "{flags:?}: {}", invalidator.log());
    }
}

/// Column types, and sample values.
const VALUES: [(&str, &[&str]); 16] = [
    ("TINYINT", &["-128", "-1", "127"]),
    ("TINYINT UNSIGNED", &["0", "255"]),
    ("SMALLINT", &["-32768", "-1", "32767"]),
    ("SMALLINT UNSIGNED", &["0", "65535"]),
    ("MEDIUMINT", &["-8388608", "-7", "-1", "0", "8388607"]),
    ("MEDIUMINT UNSIGNED", &["0", "8388608", "16777215"]),
    ("INT", &["-2147483648", "-1", "2147483647"]),
    ("INT UNSIGNED", &["0", "4294967295"]),
    ("BIGINT", &["-9223372036854775808", "-1", "9223372036854775807"]),
    ("BIGINT UNSIGNED", &["0", "18446744073709551615"]),
    ("DECIMAL(20, 3)", &["-99999999999999999.999", "-0.001", "0.000"]),
    ("DATE", &["1000-01-01", "9999-12-31"]),
    ("CHAR(3)", &["a", "abc"]),
    ("VARCHAR(300)", &["a", "é"]),
    ("TINYTEXT", &["a", "é"]),
    ("VARBINARY(9)", &["a", "é"]),
];

#[test]
fn keys_contain_values_as_queries_return_them() {
    Brand::ALL.into_iter().for_each(types);
}

fn types(brand: Brand) {
    let database = Mysqld::start(brand, 1, &[]);
    let (mut tables, mut changes) = (String::new(), String::new());
    let (mut keys, mut names) = ("[keys.tables]\n".to_owned(), Vec::new());
    for (at, (kind, values)) in VALUES.iter().enumerate() {
        tables += &format!("CREATE TABLE t{at} (id INT PRIMARY KEY AUTO_INCREMENT, v {kind});");
        keys += &format!("\"shop.t{at}\" = \"t{at}:{{v}}\"\n");
        for value in *values {
            changes += &format!("INSERT INTO t{at} (v) VALUES ('{value}');");
            names.push(format!("t{at}:{value}"));
        }
    }
    database.sql(&tables);
    let (server, names) = (cache(), names.iter().map(String::as_str).collect::<Vec<_>>());
    let source = mysqld_source(&[&database], "");
    let mut invalidator = Invalidator::new(&source, &keys, &[server.addr()], "");
    invalidator.start(&[]);
    fill(&server, &names);
    database.sql(&format!("SET NAMES utf8mb4; {changes}"));
    until_absent(&server, &names, &names, &invalidator);
}

#[test]
fn a_prepared_transaction_deletes_at_its_commit() {
    Brand::ALL.into_iter().for_each(prepared);
}

fn prepared(brand: Brand) {
    let database = Mysqld::start(brand, 1, &[]);
    database.sql(USERS);
    let server = cache();
    let mut invalidator =
        Invalidator::new(&mysqld_source(&[&database], ""), USER_KEYS, &[server.addr()], "");
    invalidator.start(&[]);
    fill(&server, &KEYS);
    for (xid, id) in [("one", 1), ("two", 2)] {
        database.sql(&format!("XA START '{xid}'; INSERT INTO users VALUES ({id}, NULL, ''); XA END '{xid}'; XA PREPARE '{xid}'"));
    }
    invalidator.until("prepared_transactions", |count| count == 2);
    // A restart must remember the transactions prepared before it.
    database.sql("INSERT INTO users VALUES (3, NULL, '')");
    until_absent(&server, &KEYS, &["user:3"], &invalidator);
    invalidator.kill();
    database.sql("XA ROLLBACK 'two'; XA COMMIT 'one'");
    invalidator.start(&[]);
    until_absent(&server, &KEYS, &["user:1", "user:3"], &invalidator);
}

#[test]
fn outbox_rows_and_comments_delete_keys() {
    Brand::ALL.into_iter().for_each(outbox_and_comments);
}

fn outbox_and_comments(brand: Brand) {
    let database = Mysqld::start(brand, 1, &[]);
    database.sql("CREATE TABLE outbox (k VARCHAR(250)) ENGINE=BLACKHOLE; CREATE TABLE t (a INT)");
    let server = cache();
    let keys = "[keys.outbox]\ntable = \"shop.outbox\"\ncolumn = \"k\"";
    let mut invalidator =
        Invalidator::new(&mysqld_source(&[&database], ""), keys, &[server.addr()], "");
    invalidator.start(&[]);
    fill(&server, &KEYS);
    database.sql("BEGIN; INSERT INTO t VALUES (1); INSERT INTO outbox VALUES ('user:1'), ('mail:a@x'); COMMIT");
    until_absent(&server, &KEYS, &["user:1", "mail:a@x"], &invalidator);
    drop(invalidator);

    let database = Mysqld::start(brand, 1, &["--binlog-format=STATEMENT"]);
    database.sql("CREATE TABLE t (a INT); CREATE TABLE m (a INT) ENGINE=MyISAM");
    let mut invalidator =
        Invalidator::new(&mysqld_source(&[&database], ""), "comments = true", &[server.addr()], "");
    invalidator.start(&[]);
    fill(&server, &KEYS);
    let done = database.session().run(
        "INSERT INTO t VALUES (1) /* mc:del user:2 mail:b@x */; \
         BEGIN; INSERT INTO t VALUES (2) /* mc:del user:3 */; ROLLBACK; \
         INSERT INTO t VALUES ('/* mc:del mail:c@x */' = ''); \
         BEGIN; INSERT INTO m VALUES (1) /* mc:del user:1 */; ROLLBACK",
    );
    assert!(done.is_some());
    // ROLLBACK does not undo changes of MyISAM: they are logged, and their keys are stale.
    until_absent(&server, &KEYS, &["user:1", "user:2", "mail:b@x"], &invalidator);
}

/// Keys are bytes to a cache, and so are the keys of a session with another character set.
#[test]
fn keys_in_comments_use_the_sessions_character_set() {
    let with_text = ["--binlog-rows-query-log-events=ON"];
    let statements = ["--binlog-format=STATEMENT"];
    let long = ["--binlog-format=STATEMENT", "--log-bin-compress=1"];
    in_latin1(Brand::MariaDb, &statements);
    in_latin1(Brand::MariaDb, &long);
    in_latin1(Brand::MySql, &statements);
    in_latin1(Brand::MySql, &with_text);
}

fn in_latin1(brand: Brand, flags: &[&str]) {
    let database = Mysqld::start(brand, 1, flags);
    database.sql("CREATE TABLE t (a INT)");
    let server = cache();
    let source = mysqld_source(&[&database], "");
    let mut invalidator = Invalidator::new(&source, "comments = true", &[server.addr()], "");
    invalidator.start(&[]);
    let keys = [&b"schl\xfcssel"[..], "schlüssel".as_bytes(), b"plain"];
    let mut wire = server.connect();
    for key in keys {
        wire.expect(&[b"set ", key, b" 0 0 1\r\nx\r\n"].concat(), b"STORED\r\n");
    }
    // A prepared text is logged in the character set of its session.
    database.sql(
        "SET NAMES latin1; SET @text = CONCAT('INSERT INTO t VALUES (1) /* ', REPEAT('x', 300), \
         ' */ /* mc:del schl', CHAR(252 USING latin1), 'ssel */ /* mc:del plain */'); \
         PREPARE s FROM @text; EXECUTE s",
    );
    until_absent(&server, &["plain"], &["plain"], &invalidator);
    let mut is_there = |key: &[u8]| {
        wire.send(&[b"mg ", key, b"\r\n"].concat());
        wire.line() != "EN"
    };
    assert_eq!(keys.map(&mut is_there), [false, true, false], "{brand:?} {flags:?}");
}

#[test]
fn the_invalidator_switches_replicas_by_transaction_identifier() {
    Brand::ALL.into_iter().for_each(failover);
}

fn failover(brand: Brand) {
    let flags: &[&str] = if brand == Brand::MariaDb { &["--gtid-domain-id=7"] } else { &[] };
    let mut primary = Mysqld::start(brand, 1, flags);
    let replica = Mysqld::start(brand, 2, flags);
    // Both have created their own user and database; replication starts after that.
    primary.reset_log();
    replica.reset_log();
    primary.sql(USERS);
    replica.follow(&primary);
    let server = cache();
    primary.sql("INSERT INTO users VALUES (1, NULL, '')");
    let mut invalidator = Invalidator::new(
        &mysqld_source(&[&primary, &replica], ""),
        USER_KEYS,
        &[server.addr()],
        "",
    );
    invalidator.start(&[]);
    fill(&server, &KEYS);
    primary.sql("UPDATE users SET mail = 'a@x' WHERE id = 1");
    until_absent(&server, &KEYS, &["user:1", "mail:a@x"], &invalidator);
    replica.catch_up(&primary.gtids());
    primary.kill();
    replica.stop_following();
    replica.sql("INSERT INTO users VALUES (2, 'b@x', '')");
    until_absent(&server, &KEYS, &["user:1", "user:2", "mail:a@x", "mail:b@x"], &invalidator);
}

#[test]
fn a_restart_repeats_deletes_and_skips_none() {
    Brand::ALL.into_iter().for_each(restarts);
}

fn restarts(brand: Brand) {
    let database = Mysqld::start(brand, 1, &[]);
    database.sql(USERS);
    let server = cache();
    for more in ["", "position = \"file\""] {
        database.sql("DELETE FROM users");
        let mut invalidator =
            Invalidator::new(&mysqld_source(&[&database], more), USER_KEYS, &[server.addr()], "");
        invalidator.start(&[]);
        let since = database.gtids();
        database.sql("INSERT INTO users VALUES (1, NULL, '')");
        invalidator.until("checkpoints", |count| count > 0);
        invalidator.until("cluster:c0:delivered", |count| count > 0);
        invalidator.kill();
        fill(&server, &KEYS);
        database.sql("INSERT INTO users VALUES (2, NULL, ''); FLUSH BINARY LOGS; INSERT INTO users VALUES (3, NULL, '')");
        invalidator.start(&[]);
        until_absent(&server, &KEYS[1..], &["user:2", "user:3"], &invalidator);
        if more.is_empty() {
            // An explicit position repeats deletes that were delivered long ago.
            invalidator.kill();
            fill(&server, &KEYS);
            invalidator.start(&["--since", &format!("{}-gtid:{since}", brand.name())]);
            until_absent(&server, &KEYS, &["user:1", "user:2", "user:3"], &invalidator);
        }
    }
}

#[test]
fn a_purged_log_stops_or_flushes() {
    Brand::ALL.into_iter().for_each(purged);
}

fn purged(brand: Brand) {
    let database = Mysqld::start(brand, 1, &[]);
    database.sql(USERS);
    let server = cache();
    let start = |more: &str, position: &str| {
        Invalidator::new(&mysqld_source(&[&database], position), USER_KEYS, &[server.addr()], more)
    };
    for position in ["", "position = \"file\""] {
        database.sql("DELETE FROM users");
        let mut stopping = start("", position);
        let mut flushing = start("[delivery]\non_gap = \"flush\"", position);
        for invalidator in [&mut stopping, &mut flushing] {
            invalidator.start(&[]);
            database.sql("REPLACE INTO users VALUES (1, NULL, '')");
            invalidator.until("checkpoints", |count| count > 0);
            invalidator.kill();
        }
        database
            .sql("REPLACE INTO users VALUES (2, NULL, ''); FLUSH BINARY LOGS; FLUSH BINARY LOGS");
        purge(&database);
        let kept = fs::read(stopping.checkpoint()).unwrap();
        stopping.spawn(&[]);
        let said = stopping.ended();
        assert!(said.contains("--on-gap flush"), "{said}");
        assert_eq!(fs::read(stopping.checkpoint()).unwrap(), kept, "nothing is skipped");
        fill(&server, &KEYS);
        flushing.start(&[]);
        until_absent(&server, &KEYS, &KEYS, &flushing);
        // The first commit repeats the flush.
        fill(&server, &KEYS);
        database.sql("REPLACE INTO users VALUES (20, NULL, '')");
        until_absent(&server, &KEYS, &KEYS, &flushing);
        fill(&server, &KEYS);
        database.sql("REPLACE INTO users VALUES (3, NULL, '')");
        until_absent(&server, &KEYS, &["user:3"], &flushing);
    }
}

/// The key is sent as base64, which is longer.
#[test]
fn a_too_long_key_delays_no_other() {
    let database = Mysqld::mariadb(1, &[]);
    database.sql("CREATE TABLE names (id INT PRIMARY KEY, v VARCHAR(300))");
    let (server, source) = (cache(), mysqld_source(&[&database], ""));
    let keys = "[keys.tables]\n\"shop.names\" = \"n:{v}\"";
    let mut invalidator = Invalidator::new(&source, keys, &[server.addr()], "");
    invalidator.start(&[]);
    fill(&server, &["n:x"]);
    for value in ["CONCAT(REPEAT('a', 100), ' ', REPEAT('b', 120))", "'x'"] {
        database.sql(&format!("REPLACE INTO names VALUES (1, {value})"));
    }
    until_absent(&server, &["n:x"], &["n:x"], &invalidator);
    // The row was inserted, and then replaced.
    invalidator.until("keys_too_long", |count| count == 2);
    let end = Instant::now() + Duration::from_secs(30);
    let kept = || fs::read_to_string(invalidator.checkpoint()).unwrap_or_default();
    while !kept().contains(&format!("mariadb-gtid:{}\n", database.gtids())) {
        assert!(Instant::now() < end, "the position waits: {}", kept());
        thread::sleep(Duration::from_millis(20));
    }
    // The longest key that fits into a command.
    let longest = "CONCAT(REPEAT('a', 100), ' ', REPEAT('b', 83))";
    database.sql(&format!("REPLACE INTO names VALUES (2, {longest})"));
    invalidator.until("cluster:c0:delivered", |count| count == 2);
    assert_eq!(invalidator.stat("cluster:c0:parked"), Some(0), "{}", invalidator.log());
}

/// This applies even if the new log has passed the position.
#[test]
fn a_log_that_was_reset_is_a_gap() {
    Brand::ALL.into_iter().for_each(reset);
}

fn reset(brand: Brand) {
    let database = Mysqld::start(brand, 1, &[]);
    database.sql(USERS);
    let server = cache();
    let start = |more: &str| {
        Invalidator::new(&mysqld_source(&[&database], ""), USER_KEYS, &[server.addr()], more)
    };
    let mut stopping = start("");
    let mut flushing = start("[delivery]\non_gap = \"flush\"");
    for invalidator in [&mut stopping, &mut flushing] {
        invalidator.start(&[]);
        for turn in 0..20 {
            database.sql(&format!("REPLACE INTO users VALUES (1, NULL, '{turn}')"));
        }
        invalidator.until("checkpoints", |count| count > 0);
        invalidator.kill();
    }
    fill(&server, &KEYS);
    database.reset_log();
    database.sql("REPLACE INTO users VALUES (2, NULL, '')");
    let kept = fs::read(stopping.checkpoint()).unwrap();
    stopping.spawn(&[]);
    let said = stopping.ended();
    assert!(said.contains("--on-gap flush"), "{said}");
    assert_eq!(fs::read(stopping.checkpoint()).unwrap(), kept, "nothing is skipped");
    flushing.start(&[]);
    until_absent(&server, &KEYS, &KEYS, &flushing);
    // The first commit repeats the flush.
    fill(&server, &KEYS);
    database.sql("REPLACE INTO users VALUES (20, NULL, '')");
    until_absent(&server, &KEYS, &KEYS, &flushing);
    fill(&server, &KEYS);
    database.sql("REPLACE INTO users VALUES (3, NULL, '')");
    until_absent(&server, &KEYS, &["user:3"], &flushing);
    // Reset while the log is read: a log file is identified to the second.
    thread::sleep(Duration::from_millis(1100));
    fill(&server, &KEYS);
    let mut session = database.session();
    let many: String =
        (0..60).map(|turn| format!("REPLACE INTO users VALUES (3, NULL, '{turn}');")).collect();
    database.reset_log();
    assert!(session.run(&many).is_some());
    until_absent(&server, &KEYS, &KEYS, &flushing);
    let delivered = flushing.stat("cluster:c0:delivered").unwrap_or_default();
    database.sql("REPLACE INTO users VALUES (20, NULL, 'n')");
    flushing.until("cluster:c0:delivered", |count| count > delivered);
    fill(&server, &KEYS);
    database.sql("REPLACE INTO users VALUES (2, NULL, 'n')");
    until_absent(&server, &KEYS, &["user:2"], &flushing);
    assert_eq!(flushing.stat("gaps"), Some(2), "{}", flushing.log());
}

/// Removes all files of the log except the newest, once the server has noticed that no client reads
/// them.
pub(crate) fn purge(database: &Mysqld) {
    let newest = database.log_file();
    let end = Instant::now() + Duration::from_secs(30);
    while database.sql("SHOW BINARY LOGS").lines().count() > 1 {
        assert!(Instant::now() < end, "the log stays");
        database.sql(&format!("PURGE BINARY LOGS TO '{newest}'"));
        thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn missing_log_contents_are_refused_at_the_start() {
    let server = cache();
    let refusal = |database: &Mysqld, keys: &str| {
        Invalidator::new(&mysqld_source(&[database], ""), keys, &[server.addr()], "")
            .refusal("check", &[])
    };
    let database = Mysqld::mariadb(
        1,
        &["--binlog-row-image=MINIMAL", "--binlog-row-metadata=NO_LOG", "--binlog-format=MIXED"],
    );
    database.sql(USERS);
    database.sql(
        "CREATE TABLE pets (id INT PRIMARY KEY, kind ENUM('cat'), name VARCHAR(9) CHARACTER SET latin1, owner BIGINT UNSIGNED, \
         photo BLOB COMPRESSED, FOREIGN KEY (owner) REFERENCES users (id) ON DELETE CASCADE)",
    );
    let said = refusal(
        &database,
        "[keys.tables]\n\"shop.pets\" = [\"{id}\", \"{kind}\", \"{name}\", \"{nome}\"]\n\"shop.no\" = \"{id}\"",
    );
    for part in [
        "binlog_format is MIXED",
        "binlog_row_metadata",
        "binlog_row_image",
        "is a enum",
        "column 'photo' is COMPRESSED",
        "latin1",
        "no column 'nome'",
        "foreign key",
        "shop.no does not exist",
    ] {
        assert!(said.contains(part), "{part} is not in:\n{said}");
    }
    let said = refusal(&database, "comments = true\n[keys.tables]\n\"shop.users\" = \"{id}\"");
    assert!(!said.contains("binlog_row_image"), "an insert names the primary key: {said}");
    database
        .sql("CREATE TABLE parts (region CHAR(2) DEFAULT 'eu', id INT, PRIMARY KEY (id, region))");
    let said = refusal(&database, "[keys.tables]\n\"shop.parts\" = \"{region}:{id}\"");
    assert!(said.contains("column 'region' of shop.parts has a default"), "{said}");
    assert!(!said.contains("column 'id'"), "{said}");

    let wrong = mysqld_source(&[&database], "").replace("secret", "wrong");
    let mut invalidator = Invalidator::new(&wrong, "comments = true", &[server.addr()], "");
    assert!(invalidator.refusal("run", &[]).contains("Access denied"));
}

#[test]
fn a_damaged_checkpoint_is_refused() {
    let database = Mysqld::mariadb(1, &[]);
    database.sql(USERS);
    let server = cache();
    let mut invalidator =
        Invalidator::new(&mysqld_source(&[&database], ""), USER_KEYS, &[server.addr()], "");
    invalidator.start(&[]);
    database.sql("INSERT INTO users VALUES (1, NULL, '')");
    invalidator.until("checkpoints", |count| count > 0);
    invalidator.kill();
    let whole = fs::read(invalidator.checkpoint()).unwrap();
    for damaged in [&whole[..whole.len() / 2], &[][..], &whole.to_ascii_uppercase()] {
        fs::write(invalidator.checkpoint(), damaged).unwrap();
        let said = invalidator.refusal("run", &[]);
        assert!(said.contains("holdall invalidate flush"), "{said}");
    }
}

#[test]
fn a_change_without_rows_stops_or_flushes() {
    Brand::ALL.into_iter().for_each(without_rows);
}

fn without_rows(brand: Brand) {
    let database = Mysqld::start(brand, 1, &[]);
    database.sql(USERS);
    let server = cache();
    for change in [
        "SET binlog_format = STATEMENT; INSERT INTO users VALUES (1, NULL, '')",
        "TRUNCATE TABLE users",
    ] {
        let mut stopping =
            Invalidator::new(&mysqld_source(&[&database], ""), USER_KEYS, &[server.addr()], "");
        let flush = "[delivery]\non_gap = \"flush\"";
        let other = mysqld_source(&[&database], "").replace("4001", "4002");
        let mut flushing = Invalidator::new(&other, USER_KEYS, &[server.addr()], flush);
        fill(&server, &KEYS);
        stopping.start(&[]);
        flushing.start(&[]);
        database.sql(change);
        let said = stopping.ended();
        assert!(said.contains("nothing after it was delivered"), "{said}");
        until_absent(&server, &KEYS, &KEYS, &flushing);
    }
}

/// On its restart, the server logs that such a table is empty.
#[test]
fn a_followed_memory_table_is_a_gap_after_a_restart() {
    Brand::ALL.into_iter().for_each(emptied_by_a_restart);
}

fn emptied_by_a_restart(brand: Brand) {
    let mut database = Mysqld::start(brand, 1, &[]);
    database.sql(USERS);
    database.sql("CREATE TABLE mem (id INT PRIMARY KEY) ENGINE=MEMORY; INSERT INTO mem VALUES (1)");
    let server = cache();
    let source = mysqld_source(&[&database], "");
    let mut other = Invalidator::new(&source, USER_KEYS, &[server.addr()], "");
    let both = format!("{USER_KEYS}\n\"shop.mem\" = \"mem:{{id}}\"");
    let source = source.replace("4001", "4002");
    let flush = "[delivery]\non_gap = \"flush\"";
    let emptied = cache();
    let mut following = Invalidator::new(&source, &both, &[emptied.addr()], flush);
    other.start(&[]);
    following.start(&[]);
    fill(&emptied, &["mem:1", "mem:2"]);
    fill(&server, &KEYS);
    database.kill();
    database.restart();
    database.sql("SELECT * FROM mem; INSERT INTO users VALUES (1, NULL, '')");
    until_absent(&emptied, &["mem:1", "mem:2"], &["mem:1", "mem:2"], &following);
    let log = following.log();
    assert!(log.contains("table shop.mem was emptied"), "{brand:?}: {log}");
    until_absent(&server, &KEYS, &["user:1"], &other);
    assert_eq!(other.stat("gaps"), Some(0), "{brand:?}: {}", other.log());
}

#[test]
fn two_followers_with_the_same_server_id_are_reported() {
    Brand::ALL.into_iter().for_each(two_followers);
}

fn two_followers(brand: Brand) {
    let database = Mysqld::start(brand, 1, &[]);
    database.sql(USERS);
    let server = cache();
    let make =
        || Invalidator::new(&mysqld_source(&[&database], ""), USER_KEYS, &[server.addr()], "");
    let (mut first, mut second) = (make(), make());
    first.start(&[]);
    second.start(&[]);
    let said = first.ended();
    assert!(said.contains("server_id"), "{said}");
}

/// MySQL has tags from 8.3 on; `MYSQL_HOME` may be one.
#[test]
fn positions_include_tagged_transactions() {
    let database = Mysqld::start(Brand::MySql, 1, &[]);
    let tagged = |statement: &str| {
        let mut session = database.session();
        session.run(&format!("SET gtid_next = 'AUTOMATIC:batch'; {statement}"))
    };
    database.sql(USERS);
    if database.version() < (8, 3) {
        assert!(tagged("INSERT INTO users VALUES (1, NULL, '')").is_none(), "it has tags");
        return;
    }
    let server = cache();
    let source = mysqld_source(&[&database], "");
    let mut invalidator = Invalidator::new(&source, USER_KEYS, &[server.addr()], "");
    assert!(tagged("INSERT INTO users VALUES (7, NULL, '')").is_some());
    assert_eq!(invalidator.run("check", &[]), "ok\n");
    invalidator.start(&[]);
    let since = database.gtids();
    fill(&server, &KEYS);
    assert!(tagged("INSERT INTO users VALUES (1, NULL, '')").is_some());
    database.sql("INSERT INTO users VALUES (2, NULL, '')");
    until_absent(&server, &KEYS, &["user:1", "user:2"], &invalidator);
    invalidator.until("checkpoints", |count| count > 0);
    let kept = || fs::read_to_string(invalidator.checkpoint()).unwrap();
    let end = Instant::now() + Duration::from_secs(30);
    while !kept().contains(&format!("mysql-gtid:{}\n", database.gtids())) {
        assert!(Instant::now() < end, "{} is not {}", kept(), database.gtids());
        thread::sleep(Duration::from_millis(20));
    }
    // A restart skips only the transactions that were read, whatever their tags.
    invalidator.kill();
    fill(&server, &KEYS);
    assert!(tagged("INSERT INTO users VALUES (3, NULL, '')").is_some());
    invalidator.start(&[]);
    until_absent(&server, &KEYS, &["user:3"], &invalidator);
    invalidator.kill();
    fill(&server, &KEYS);
    invalidator.start(&["--since", &format!("mysql-gtid:{since}")]);
    until_absent(&server, &KEYS, &KEYS[..3], &invalidator);
    assert_eq!(invalidator.stat("gaps"), Some(0));
}

/// MySQL compresses transactions from 8.0.20 on.
#[test]
fn compressed_mysql_transactions_delete_their_keys() {
    let database = Mysqld::start(Brand::MySql, 1, &[]);
    if database.sql("SHOW VARIABLES LIKE 'binlog_transaction_compression'").trim().is_empty() {
        assert!(database.version() < (8, 1), "its transactions can be compressed");
        return;
    }
    database.sql("SET GLOBAL binlog_transaction_compression = ON");
    database.sql(USERS);
    let server = cache();
    let source = mysqld_source(&[&database], "");
    let mut invalidator = Invalidator::new(&source, USER_KEYS, &[server.addr()], "");
    invalidator.start(&[]);
    fill(&server, &KEYS);
    database.sql("BEGIN; INSERT INTO users VALUES (1, 'a@x', REPEAT('n', 9000)); INSERT INTO users VALUES (2, NULL, ''); COMMIT");
    until_absent(&server, &KEYS, &["user:1", "user:2", "mail:a@x"], &invalidator);
    fill(&server, &KEYS);
    database.sql("UPDATE users SET mail = 'b@x' WHERE id = 1");
    until_absent(&server, &KEYS, &["user:1", "mail:a@x", "mail:b@x"], &invalidator);
    assert_eq!(invalidator.stat("gaps"), Some(0));
}
