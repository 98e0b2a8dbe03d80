//! Changes that a log does not show as rows, or not at all, are detected and never skipped.

use std::thread;
use std::time::{Duration, Instant};

use e2e::invalidator::{Invalidator, mysqld_source};
use serde_json::Value;
use testkit::database::{Brand, Mysqld, Postgres};

use crate::harness::{absent, cache, fill, until_absent};
use crate::postgres;

const TABLES: &str = "CREATE TABLE users (id BIGINT PRIMARY KEY, mail TEXT); CREATE TABLE users_new (LIKE users INCLUDING ALL); \
    CREATE TABLE parted (id BIGINT PRIMARY KEY) PARTITION BY RANGE (id); CREATE TABLE p0 PARTITION OF parted FOR VALUES FROM (0) TO (10); \
    CREATE TABLE p1 PARTITION OF parted FOR VALUES FROM (10) TO (20); INSERT INTO users VALUES (1, 'a'); INSERT INTO parted VALUES (1)";
const PUBLISH: &str =
    "CREATE PUBLICATION cached FOR TABLE users, parted WITH (publish_via_partition_root = true)";
const KEYS_OF_TABLES: &str =
    "[keys.tables]\n\"public.users\" = \"user:{id}\"\n\"public.parted\" = \"user:{id}\"";

/// Changes of the contents of PostgreSQL's tables, or of its log.
const OF_POSTGRES: [&str; 17] = [
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
    "BEGIN; ALTER PUBLICATION cached SET TABLE users WHERE (id > 9), parted; \
     UPDATE users SET mail = 'b'; ALTER PUBLICATION cached SET TABLE users, parted; COMMIT",
    "BEGIN; ALTER PUBLICATION cached SET (publish = 'insert'); UPDATE users SET mail = 'b'; \
     ALTER PUBLICATION cached SET (publish = 'insert, update, delete, truncate'); COMMIT",
    "DROP PUBLICATION cached",
    "ALTER TABLE users ALTER id TYPE INT",
    "ALTER TABLE users ALTER mail TYPE TEXT USING upper(mail)",
    "ALTER TABLE users DROP mail, ADD mail TEXT",
    "TRUNCATE p0",
    "ALTER TABLE parted DETACH PARTITION p0",
];

#[test]
fn no_postgresql_statement_is_skipped() {
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
fn changes_missing_from_the_log_are_remembered_across_restarts() {
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
    assert!(
        said.contains("the last run stopped because changes were missing from the log"),
        "{said}"
    );
    invalidator.start(&["--on-gap", "flush"]);
    until_absent(&server, &["user:1"], &["user:1"], &invalidator);
}

#[test]
fn a_session_without_statement_texts_is_a_gap_for_comment_keys() {
    let flags = ["--binlog-rows-query-log-events=ON"];
    let database = Mysqld::start(Brand::MySql, 1, &flags);
    database.sql("CREATE TABLE t (a VARCHAR(20)); CREATE TABLE followed (id INT PRIMARY KEY)");
    let server = cache();
    let delivery = "[delivery]\non_gap = \"flush\"";
    let source = mysqld_source(&[&database], "");
    let keys = "comments = true\n[keys.tables]\n\"shop.followed\" = \"followed:{id}\"";
    let mut invalidator = Invalidator::new(&source, keys, &[server.addr()], delivery);
    invalidator.start(&[]);
    let all = ["user:1", "user:2", "user:3", "followed:1", "followed:2"];
    fill(&server, &all);
    let mut session = database.session();
    session.run("INSERT INTO t VALUES ('*/*') /* mc:del user:1 */").unwrap();
    until_absent(&server, &all, &["user:1"], &invalidator);
    session.run("INSERT INTO followed VALUES (1) /* mc:del user:2 */").unwrap();
    let more = ["user:1", "user:2", "followed:1"];
    until_absent(&server, &all, &more, &invalidator);
    let without = "SET binlog_rows_query_log_events = OFF";
    for (gaps, table) in [(1, "t"), (2, "followed")] {
        fill(&server, &all);
        // These rows take several events, of 8 KB each.
        let rows = "WITH RECURSIVE n (id) AS (SELECT 10 UNION ALL SELECT id + 1 FROM n WHERE id < 99) \
             SELECT a.id * 1000 + b.id FROM n a, n b";
        let insert = format!("{without}; INSERT INTO {table} {rows} /* mc:del user:3 */");
        session.run(&insert).unwrap();
        until_absent(&server, &all, &all, &invalidator);
        invalidator.until("gaps", |count| count == gaps);
    }
}

#[test]
fn a_function_logged_without_its_comments_is_a_gap_for_comment_keys() {
    for brand in Brand::ALL {
        let flags = ["--binlog-format=STATEMENT", "--log-bin-trust-function-creators=1"];
        let database = Mysqld::start(brand, 1, &flags);
        database.sql("CREATE TABLE t (a INT)");
        let mut session = database.session();
        let function =
            "CREATE FUNCTION f() RETURNS INT BEGIN INSERT INTO t VALUES (1); RETURN 1; END";
        session.run(&format!("DELIMITER //\n{function}//\nDELIMITER ;\nSELECT 1")).unwrap();
        let server = cache();
        let source = mysqld_source(&[&database], "");
        let delivery = "[delivery]\non_gap = \"flush\"";
        let keys = "comments = true";
        let mut invalidator = Invalidator::new(&source, keys, &[server.addr()], delivery);
        invalidator.start(&[]);
        fill(&server, &["user:1"]);
        session.run("DO f() /* mc:del user:1 */").unwrap();
        until_absent(&server, &["user:1"], &["user:1"], &invalidator);
        invalidator.until("gaps", |count| count == 1);
    }
}

#[test]
fn unsupported_tables_and_log_settings_are_refused() {
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
    refused(Brand::MariaDb, &["--binlog-do-db=shop"], table, keys, "", "binlog_do_db");
    refused(Brand::MySql, &["--binlog-ignore-db=other"], table, keys, "", "leaves out");
    let view = "[keys.tables]\n\"shop.v\" = \"user:{id}\"";
    refused(Brand::MariaDb, &[], table, view, "", "is a VIEW");
    let upper = "[keys.tables]\n\"shop.Users\" = \"user:{id}\"";
    refused(Brand::MariaDb, &["--lower-case-table-names=1"], table, upper, "", "write it so");
    refused(Brand::MySql, &[], table, "comments = true", "", "binlog_rows_query_log_events");
    let without = ["--gtid-mode=OFF", "--enforce-gtid-consistency=OFF"];
    refused(Brand::MySql, &without, table, keys, "", "gtid_mode is OFF");
}

#[test]
fn a_replica_that_does_not_log_replicated_changes_is_refused() {
    let server = cache();
    for brand in Brand::ALL {
        let primary = Mysqld::start(brand, 1, &[]);
        let replica = Mysqld::start(brand, 2, &["--skip-log-slave-updates"]);
        primary.reset_log();
        replica.reset_log();
        primary.sql("CREATE TABLE users (id INT PRIMARY KEY)");
        replica.follow(&primary);
        replica.catch_up(&primary.gtids());
        let keys = "[keys.tables]\n\"shop.users\" = \"user:{id}\"";
        let follow = |database: &Mysqld| {
            Invalidator::new(&mysqld_source(&[database], ""), keys, &[server.addr()], "")
        };
        assert_eq!(follow(&primary).run("check", &[]), "ok\n");
        let said = follow(&replica).refusal("check", &[]);
        assert!(said.contains("does not log what it replicates: set log_"), "{brand:?}: {said}");
    }
}

#[test]
fn a_log_purged_on_one_server_is_read_from_the_next() {
    let (primary, replica) = (Mysqld::mariadb(1, &[]), Mysqld::mariadb(2, &[]));
    primary.reset_log();
    replica.reset_log();
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

/// Only MySQL from 9.6 on logs the rows that a foreign key changes; `MYSQL_HOME` may be one.
#[test]
fn foreign_key_cascades_are_deleted_or_refused() {
    Brand::ALL.into_iter().for_each(cascades);
}

fn cascades(brand: Brand) {
    let database = Mysqld::start(brand, 1, &[]);
    database.sql(
        "CREATE TABLE users (id INT PRIMARY KEY); CREATE TABLE pets (id INT PRIMARY KEY, owner INT, \
         FOREIGN KEY (owner) REFERENCES users (id) ON DELETE CASCADE); \
         INSERT INTO users VALUES (1), (2); INSERT INTO pets VALUES (7, 1)",
    );
    let keys = "[keys.tables]\n\"shop.users\" = \"user:{id}\"\n\"shop.pets\" = \"pet:{id}\"";
    let names = ["user:1", "user:2", "pet:7"];
    let server = cache();
    let follow = |more: &str| {
        Invalidator::new(&mysqld_source(&[&database], more), keys, &[server.addr()], "")
    };
    if database.logs_cascades() {
        let mut invalidator = follow("");
        assert_eq!(invalidator.run("check", &[]), "ok\n");
        invalidator.start(&[]);
        fill(&server, &names);
        database.sql("DELETE FROM users WHERE id = 1");
        until_absent(&server, &names, &["user:1", "pet:7"], &invalidator);
        return;
    }
    let said = follow("").refusal("check", &[]);
    assert!(said.contains("table shop.pets: foreign key"), "{said}");
    assert!(follow("").refusal("run", &[]).contains("unlogged_cascades"));
    let mut invalidator = follow("unlogged_cascades = \"accept\"");
    let said = invalidator.run("check", &[]);
    assert!(said.contains("note: ") && said.contains("their keys may be old\nok\n"), "{said}");
    invalidator.start(&[]);
    fill(&server, &names);
    database.sql("DELETE FROM users WHERE id = 1; DELETE FROM pets WHERE id = 7");
    until_absent(&server, &names, &["user:1"], &invalidator);
    assert!(invalidator.log().contains("their keys may be old"), "{}", invalidator.log());
    // The log has the changes that a statement makes directly.
    database.sql("INSERT INTO pets VALUES (7, 2)");
    until_absent(&server, &names, &["user:1", "pet:7"], &invalidator);
    assert!(invalidator.is_running());
}

#[test]
fn check_and_status_print_one_json_document() {
    let database = Mysqld::mariadb(1, &[]);
    database.sql("CREATE TABLE users (id INT PRIMARY KEY)");
    let (server, source) = (cache(), mysqld_source(&[&database], ""));
    let keys = "[keys.tables]\n\"shop.users\" = \"user:{id}\"";
    let mut invalidator = Invalidator::new(&source, keys, &[server.addr()], "");
    let json = |invalidator: &Invalidator, word: &str| -> (Value, bool) {
        let (document, ended_well) = invalidator.json(word);
        (serde_json::from_str(&document).expect("one document"), ended_well)
    };
    let good = serde_json::json!({"ok": true, "findings": []});
    assert_eq!(json(&invalidator, "check"), (good, true));
    invalidator.start(&[]);
    database.sql("INSERT INTO users VALUES (1)");
    invalidator.until("cluster:c0:delivered", |count| count == 1);
    invalidator.until("checkpoints", |count| count > 0);
    let (status, ended_well) = json(&invalidator, "status");
    assert!(ended_well, "{status}");
    assert_eq!(status["keys"], 1, "{status}");
    assert_eq!(status["clusters"]["c0"]["delivered"], 1, "{status}");
    let position = status["position"].as_str().unwrap();
    assert!(position.starts_with("mariadb-gtid:0-1-"), "{status}");

    let keys = "[keys.tables]\n\"shop.none\" = \"{id}\"";
    let wrong = Invalidator::new(&source, keys, &[server.addr()], "");
    let (found, ended_well) = json(&wrong, "check");
    assert!(!ended_well && found["ok"] == false, "{found}");
    let finding = &found["findings"][0];
    assert_eq!((&finding["fault"], &finding["canary"]), (&true.into(), &false.into()), "{found}");
    assert!(finding["text"].as_str().unwrap().contains("shop.none does not exist"), "{found}");
}
