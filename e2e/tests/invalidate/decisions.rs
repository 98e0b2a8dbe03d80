//! Every statement is a decision: whatever changes a table ends in deletes, a flush, or a gap with
//! a reason. Statements come from a grammar: words, comments, case, quoting, spaces, formats.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use e2e::invalidator::{Invalidator, mysqld_source};
use testkit::database::{Brand, Mysqld, Postgres};

use crate::harness::{absent, cache, fill, until_absent};
use crate::postgres;

/// Each changes what `users` holds. `~` is a space of any kind, `{}` the table.
const STATEMENTS: [&str; 19] = [
    "TRUNCATE~TABLE~{}",
    "TRUNCATE~{}",
    "DROP~TABLE~{}",
    "DROP~TABLE~IF~EXISTS~none,{}",
    "RENAME~TABLE~{}~TO~users_old,users_new~TO~users",
    "RENAME~TABLE~{}~TO~users_old",
    "ALTER~TABLE~{}~TRUNCATE~PARTITION~p0",
    "ALTER~TABLE~{}~DROP~PARTITION~p0",
    "ALTER~TABLE~{}~EXCHANGE~PARTITION~p0~WITH~TABLE~plain",
    "ALTER~TABLE~{}~RENAME~TO~users_old",
    "ALTER~TABLE~{}~ADD~KEY~(mail),RENAME~users_old",
    "ALTER~TABLE~{}~MODIFY~mail~VARCHAR(3)",
    "ALTER~TABLE~{}~CHANGE~mail~post~TEXT",
    "ALTER~TABLE~{}~ADD~KEY~(id),DROP~COLUMN~mail",
    "UPDATE~{}~SET~mail='b'~WHERE~id=1",
    "DELETE~FROM~{}~WHERE~id=1",
    "REPLACE~INTO~{}~VALUES~(1,'z')",
    "INSERT~INTO~{}~VALUES~(1,'q')~ON~DUPLICATE~KEY~UPDATE~mail='q'",
    "SET~SESSION~binlog_format=STATEMENT;UPDATE~{}~SET~mail='c'~WHERE~id=1",
];
const OF_MARIADB: &str = "SET~STATEMENT~lock_wait_timeout=9~FOR~TRUNCATE~TABLE~{}";
const OF_MYSQL: &str = "SET~SESSION~binlog_format=STATEMENT;WITH~n~AS~(SELECT~1~AS~id)~UPDATE~{}~JOIN~n~USING~(id)~SET~mail='w'";

const SPACES: [&str; 4] = [" ", "\n", "\t", " /* and */ "];
const NAMES: [&str; 5] = ["users", "shop.users", "`users`", "`shop`.`users`", "shop . `users`"];
const BEFORE: [&str; 5] =
    ["", "/* ApplicationName=tool 1 */ ", "-- tool\n", "# tool\n", "/*!50000 */ "];
const AFTER: [&str; 4] = ["", " /* mc:del other */", " -- end\n", " # end\n"];

/// The statement in its form number `turn`.
fn form(statement: &str, turn: usize) -> String {
    let space = SPACES[turn % SPACES.len()];
    let (name, before) = (NAMES[turn % NAMES.len()], BEFORE[(turn / 2) % BEFORE.len()]);
    let after = AFTER[(turn / 3) % AFTER.len()];
    let words = if turn % 3 == 1 { statement.to_lowercase() } else { statement.to_owned() };
    let words = words.replace('~', space).replace("{}", name);
    // A comment before the first of two statements is not the second one's.
    let words = words.replacen(';', &format!(";{before}"), 1);
    format!("{before}{words}{after}")
}

const MAKE: &str = "SET SESSION binlog_format=ROW; DROP TABLE IF EXISTS users, users_new, users_old, plain; \
    CREATE TABLE users (id INT PRIMARY KEY, mail VARCHAR(9)) PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN (20)); \
    CREATE TABLE users_new (id INT PRIMARY KEY, mail VARCHAR(9)); CREATE TABLE plain (id INT PRIMARY KEY, mail VARCHAR(9)); \
    INSERT INTO users VALUES (1, 'a'), (11, 'a'); INSERT INTO users_new VALUES (1, 'n')";

/// Waits until everything that is in the log was delivered.
#[track_caller]
fn until_delivered(database: &Mysqld, invalidator: &Invalidator, statement: &str) {
    let end = format!("position {}-gtid:{}\n", database.brand().name(), database.gtids());
    let until = Instant::now() + Duration::from_secs(60);
    while !fs::read_to_string(invalidator.checkpoint()).unwrap_or_default().contains(&end) {
        assert!(Instant::now() < until, "{statement}: not read:\n{}", invalidator.log());
        thread::sleep(Duration::from_millis(2));
    }
}

fn no_statement_is_silent(brand: Brand) {
    let database = Mysqld::start(brand, 1, &[]);
    database.sql(MAKE);
    let server = cache();
    let keys = "[keys.tables]\n\"shop.users\" = \"user:{id}\"";
    let delivery = "[delivery]\non_gap = \"flush\"\ncheckpoint_every_ms = 2\nbatch_wait_us = 0";
    let mut invalidator =
        Invalidator::new(&mysqld_source(&[&database], ""), keys, &[server.addr()], delivery);
    invalidator.start(&[]);
    let of_brand = if brand == Brand::MariaDb { OF_MARIADB } else { OF_MYSQL };
    let mut silent = Vec::new();
    for turn in 0..20 {
        for statement in STATEMENTS.iter().chain([&of_brand]) {
            let statement = form(statement, turn);
            let mut session = database.session();
            session.run(MAKE).expect("it is made anew");
            until_delivered(&database, &invalidator, &statement);
            fill(&server, &["user:1"]);
            assert!(session.run(&format!("{statement}\n")).is_some(), "refused: {statement}");
            until_delivered(&database, &invalidator, &statement);
            if absent(&server, &["user:1"]).is_empty() {
                silent.push(statement);
            }
        }
    }
    assert!(silent.is_empty(), "{} of 400 were passed over: {silent:#?}", silent.len());
}

#[test]
fn no_statement_of_mariadb_is_passed_over() {
    no_statement_is_silent(Brand::MariaDb);
}

#[test]
fn no_statement_of_mysql_is_passed_over() {
    no_statement_is_silent(Brand::MySql);
}

const TABLES: &str = "CREATE TABLE users (id BIGINT PRIMARY KEY, mail TEXT); CREATE TABLE users_new (LIKE users INCLUDING ALL); \
    CREATE TABLE parted (id BIGINT PRIMARY KEY) PARTITION BY RANGE (id); CREATE TABLE p0 PARTITION OF parted FOR VALUES FROM (0) TO (10); \
    CREATE TABLE p1 PARTITION OF parted FOR VALUES FROM (10) TO (20); INSERT INTO users VALUES (1, 'a'); INSERT INTO parted VALUES (1)";
const PUBLISH: &str =
    "CREATE PUBLICATION cached FOR TABLE users, parted WITH (publish_via_partition_root = true)";
const KEYS_OF_TABLES: &str =
    "[keys.tables]\n\"public.users\" = \"user:{id}\"\n\"public.parted\" = \"user:{id}\"";

/// Changes of what PostgreSQL's tables hold, or of what its log carries.
const OF_POSTGRES: [&str; 14] = [
    "TRUNCATE users",
    "/* tool */ truncate\ntable only public.\"users\"",
    "UPDATE users SET mail = 'b'",
    "WITH n AS (SELECT 1 AS id) DELETE FROM users USING n WHERE users.id = n.id",
    "BEGIN; ALTER TABLE users RENAME TO users_old; ALTER TABLE users_new RENAME TO users; COMMIT",
    "BEGIN; ALTER TABLE users RENAME TO users_old; ALTER TABLE users_new RENAME TO users; \
     ALTER PUBLICATION cached ADD TABLE users; COMMIT",
    "DROP TABLE users; CREATE TABLE users (id BIGINT PRIMARY KEY, mail TEXT)",
    "ALTER PUBLICATION cached DROP TABLE users",
    "ALTER PUBLICATION cached SET (publish = 'insert')",
    "DROP PUBLICATION cached",
    "ALTER TABLE users ALTER id TYPE INT",
    "ALTER TABLE users DROP mail, ADD mail TEXT",
    "TRUNCATE p0",
    "ALTER TABLE parted DETACH PARTITION p0",
];

#[test]
fn no_statement_of_postgresql_is_passed_over() {
    let database = Postgres::start(&[]);
    let server = cache();
    for statement in OF_POSTGRES {
        database.sql("DROP PUBLICATION IF EXISTS cached; DROP TABLE IF EXISTS users, users_old, users_new, parted, p0");
        database.sql(TABLES);
        database.sql(PUBLISH);
        let source = format!("{}\ncheck_every_ms = 200", postgres::source(&database));
        let delivery = "[delivery]\non_gap = \"flush\"";
        let mut invalidator = Invalidator::new(&source, KEYS_OF_TABLES, &[server.addr()], delivery);
        invalidator.start(&[]);
        fill(&server, &["user:1"]);
        database.sql(statement);
        let until = Instant::now() + Duration::from_secs(60);
        while absent(&server, &["user:1"]).is_empty() {
            assert!(Instant::now() < until, "passed over: {statement}\n{}", invalidator.log());
            thread::sleep(Duration::from_millis(20));
        }
        invalidator.kill();
    }
}

#[test]
fn changes_that_the_log_lacked_are_remembered_after_the_end() {
    let database = Postgres::start(&[]);
    database.sql(TABLES);
    database.sql(PUBLISH);
    let server = cache();
    let source = format!("{}\ncheck_every_ms = 200", postgres::source(&database));
    let mut invalidator = Invalidator::new(&source, KEYS_OF_TABLES, &[server.addr()], "");
    invalidator.start(&[]);
    database.sql("ALTER PUBLICATION cached DROP TABLE users");
    let said = invalidator.ended();
    assert!(said.contains("users is not in publication"), "{said}");
    database.sql("UPDATE users SET mail = 'lost'; ALTER PUBLICATION cached ADD TABLE users");
    fill(&server, &["user:1"]);
    invalidator.spawn(&[]);
    let said = invalidator.ended();
    assert!(said.contains("the last run ended because the log lacked changes"), "{said}");
    invalidator.start(&["--on-gap", "flush"]);
    until_absent(&server, &["user:1"], &["user:1"], &invalidator);
}

#[test]
fn a_session_without_texts_is_a_gap_where_comments_name_keys() {
    let flags = ["--binlog-rows-query-log-events=ON"];
    let database = Mysqld::start(Brand::MySql, 1, &flags);
    database.sql("CREATE TABLE t (a VARCHAR(20))");
    let server = cache();
    let delivery = "[delivery]\non_gap = \"flush\"";
    let source = mysqld_source(&[&database], "");
    let mut invalidator = Invalidator::new(&source, "comments = true", &[server.addr()], delivery);
    invalidator.start(&[]);
    fill(&server, &["user:1", "user:2"]);
    let mut session = database.session();
    session.run("INSERT INTO t VALUES ('*/*') /* mc:del user:1 */").unwrap();
    until_absent(&server, &["user:1", "user:2"], &["user:1"], &invalidator);
    session
        .run("SET binlog_rows_query_log_events = OFF; INSERT INTO t VALUES ('a') /* mc:del user:2 */")
        .unwrap();
    until_absent(&server, &["user:2"], &["user:2"], &invalidator);
}

#[test]
fn what_the_log_would_not_carry_is_refused() {
    let server = cache();
    let refused =
        |brand: Brand, flags: &[&str], table: &str, keys: &str, more: &str, part: &str| {
            let database = Mysqld::start(brand, 1, flags);
            database.sql(table);
            let source = mysqld_source(&[&database], more);
            let said = Invalidator::new(&source, keys, &[server.addr()], "").refusal("check", &[]);
            assert!(said.contains(part), "{part} is not in: {said}");
        };
    let table =
        "CREATE TABLE users (id INT(6) ZEROFILL PRIMARY KEY); CREATE VIEW v AS SELECT * FROM users";
    let keys = "[keys.tables]\n\"shop.users\" = \"user:{id}\"";
    refused(Brand::MariaDb, &[], table, keys, "", "ZEROFILL");
    refused(Brand::MariaDb, &["--binlog-do-db=other"], table, keys, "", "binlog_do_db");
    refused(Brand::MariaDb, &["--binlog-ignore-db=shop"], table, keys, "", "leaves out");
    let view = "[keys.tables]\n\"shop.v\" = \"user:{id}\"";
    refused(Brand::MariaDb, &[], table, view, "", "is a VIEW");
    let upper = "[keys.tables]\n\"shop.Users\" = \"user:{id}\"";
    refused(Brand::MariaDb, &["--lower-case-table-names=1"], table, upper, "", "write it so");
    refused(Brand::MySql, &[], table, "comments = true", "", "binlog_rows_query_log_events");
    let without = ["--gtid-mode=OFF", "--enforce-gtid-consistency=OFF"];
    refused(Brand::MySql, &without, table, keys, "", "gtid_mode is OFF");
}

#[test]
fn a_log_that_one_server_purged_is_read_from_the_next() {
    let (primary, replica) = (Mysqld::mariadb(1, &[]), Mysqld::mariadb(2, &[]));
    primary.sql("RESET MASTER");
    replica.sql("RESET MASTER");
    primary.sql("CREATE TABLE users (id INT PRIMARY KEY)");
    replica.follow(&primary);
    let server = cache();
    let source = mysqld_source(&[&primary, &replica], "");
    let keys = "[keys.tables]\n\"shop.users\" = \"user:{id}\"";
    let mut invalidator = Invalidator::new(&source, keys, &[server.addr()], "");
    invalidator.start(&[]);
    primary.sql("INSERT INTO users VALUES (1)");
    invalidator.until("cluster:c0:delivered", |count| count > 0);
    invalidator.until("checkpoints", |count| count > 0);
    invalidator.kill();
    fill(&server, &["user:2"]);
    primary.sql("INSERT INTO users VALUES (2); FLUSH BINARY LOGS; FLUSH BINARY LOGS");
    replica.catch_up(&primary.gtids());
    crate::mysql::purge(&primary);
    invalidator.start(&[]);
    until_absent(&server, &["user:2"], &["user:2"], &invalidator);
    assert_eq!(invalidator.stat("gaps"), Some(0));
}
