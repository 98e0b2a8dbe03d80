//! Tables of PostgreSQL that cannot be followed as they are: the check reports them, and `setup`
//! does not change them.

use std::thread;
use std::time::{Duration, Instant};

use e2e::invalidator::Invalidator;
use testkit::Server;
use testkit::database::Postgres;

use crate::harness::{absent, cache, fill, until_absent};
use crate::postgres::source;
use crate::setup::set_up;

fn invalidator(database: &Postgres, server: &Server, keys: &str) -> Invalidator {
    let often = format!("{}\ncheck_every_ms = 100", source(database));
    Invalidator::new(&often, keys, &[server.addr()], "[delivery]\non_gap = \"flush\"")
}

/// Its rows are also rows of the other table, but have another name in the log.
#[test]
fn an_inheriting_table_needs_its_own_keys() {
    let database = Postgres::start(&[]);
    database.sql(
        "CREATE TABLE parent (id BIGINT PRIMARY KEY, v INT DEFAULT 0); \
         CREATE TABLE child (PRIMARY KEY (id)) INHERITS (parent); \
         INSERT INTO parent VALUES (1); INSERT INTO child VALUES (2)",
    );
    let server = cache();
    let parent = "[keys.tables]\n\"public.parent\" = \"row:{id}\"";
    let mut lacking = invalidator(&database, &server, parent);
    set_up(&lacking, &[]);
    let said = lacking.refusal("check", &[]);
    assert!(said.contains("public.child inherits from table public.parent"), "{said}");
    let both = format!("{parent}\n\"public.child\" = \"row:{{id}}\"");
    let mut whole = invalidator(&database, &server, &both);
    set_up(&whole, &[]);
    assert_eq!(whole.run("check", &[]), "ok\n");
    whole.start(&[]);
    fill(&server, &["row:1", "row:2", "row:3"]);
    database.sql("UPDATE parent SET v = v + 1");
    until_absent(&server, &["row:1", "row:2", "row:3"], &["row:1", "row:2"], &whole);
    // A table that is created later.
    database.sql("CREATE TABLE late () INHERITS (child)");
    until_absent(&server, &["row:3"], &["row:3"], &whole);
    assert!(whole.log().contains("public.late inherits"), "{}", whole.log());
}

#[test]
fn the_check_finds_an_unlogged_partition() {
    let database = Postgres::start(&[]);
    database.sql(
        "CREATE TABLE parted (id BIGINT PRIMARY KEY, v INT) PARTITION BY RANGE (id); \
         CREATE TABLE p0 PARTITION OF parted FOR VALUES FROM (0) TO (10); \
         CREATE UNLOGGED TABLE p1 PARTITION OF parted FOR VALUES FROM (10) TO (20)",
    );
    let server = cache();
    let keys = "[keys.tables]\n\"public.parted\" = \"row:{id}\"";
    let mut invalidator = invalidator(&database, &server, keys);
    set_up(&invalidator, &[]);
    let said = invalidator.refusal("check", &[]);
    assert!(said.contains("no rows of table public.p1, which is unlogged"), "{said}");
    database.sql("ALTER TABLE p1 SET LOGGED");
    assert_eq!(invalidator.run("check", &[]), "ok\n");
    invalidator.start(&[]);
    fill(&server, &["row:1"]);
    assert_eq!(absent(&server, &["row:1"]), [""; 0]);
    database.sql("CREATE UNLOGGED TABLE p2 PARTITION OF parted FOR VALUES FROM (20) TO (30)");
    until_absent(&server, &["row:1"], &["row:1"], &invalidator);
}

/// Without a replica identity, the application's statements fail once a table is published.
#[test]
fn tables_without_a_replica_identity_are_not_published() {
    let database = Postgres::start(&[]);
    database.sql(
        "CREATE TABLE plain (id BIGINT NOT NULL); INSERT INTO plain VALUES (1); \
         CREATE TABLE outbox (k TEXT); INSERT INTO outbox VALUES ('a'); \
         CREATE TABLE parted (id BIGINT) PARTITION BY RANGE (id); \
         CREATE TABLE p0 PARTITION OF parted FOR VALUES FROM (0) TO (10); \
         CREATE TABLE late (id BIGINT PRIMARY KEY DEFERRABLE)",
    );
    let server = cache();
    let keys = "outbox = { table = \"public.outbox\", column = \"k\" }\n[keys.tables]\n\
        \"public.plain\" = \"row:{id}\"\n\"public.parted\" = \"row:{id}\"\n\"public.late\" = \"row:{id}\"";
    let mut invalidator = invalidator(&database, &server, keys);
    let names = ["late", "outbox", "p0", "plain"];
    let are_named = |said: &str| {
        for name in names {
            let text = format!("table public.{name} has no replica identity");
            assert!(said.contains(&text), "{text}: {said}");
        }
    };
    let said = invalidator.refusal("check", &[]);
    assert!(said.contains("there is no publication cached"), "{said}");
    are_named(&said);
    let said = invalidator.refusal("setup", &[]);
    assert!(said.contains("REPLICA IDENTITY FULL: late, outbox, p0, plain"), "{said}");
    let made = "SELECT (SELECT count(*) FROM pg_publication) + (SELECT count(*) FROM pg_event_trigger) \
        + (SELECT count(*) FROM pg_replication_slots)";
    assert_eq!(database.sql(made).trim(), "0");
    database
        .sql("UPDATE plain SET id = 2; DELETE FROM outbox; DELETE FROM parted; DELETE FROM late");
    // Another user published them.
    database.sql("CREATE PUBLICATION cached FOR ALL TABLES");
    are_named(&invalidator.refusal("check", &[]));
    database.sql("DROP PUBLICATION cached");
    for name in [&names[..], &["parted"]].concat() {
        database.sql(&format!("ALTER TABLE {name} REPLICA IDENTITY FULL"));
    }
    set_up(&invalidator, &[]);
    assert_eq!(invalidator.run("check", &[]), "ok\n");
    database
        .sql("UPDATE plain SET id = 3; DELETE FROM outbox; DELETE FROM parted; DELETE FROM late");
}

/// The log has messages in the encoding of the database, and rows in that of the session.
#[test]
fn messages_in_another_encoding_are_refused() {
    let database = Postgres::start(&[]);
    let server = cache();
    let keys = "messages = \"mc\"\n[keys.tables]\n\"public.users\" = \"user:{name}\"";
    let without = keys.replacen("messages = \"mc\"\n", "", 1);
    let in_database = |name: &str, keys: &str| {
        let source = source(&database).replace("\"shop\"", &format!("\"{name}\""));
        Invalidator::new(&source, keys, &[server.addr()], "")
    };
    for (name, encoding) in [("in_latin1", "LATIN1"), ("in_ascii", "SQL_ASCII")] {
        database.sql(&format!(
            "CREATE DATABASE {name} ENCODING '{encoding}' TEMPLATE template0 \
             LC_COLLATE 'C' LC_CTYPE 'C'"
        ));
        let tables =
            "CREATE TABLE users (name TEXT PRIMARY KEY); CREATE PUBLICATION cached FOR TABLE users";
        database.sql_in(name, tables);
        assert_eq!(in_database(name, &without).run("check", &[]), "ok\n");
    }
    let said = in_database("in_latin1", keys).refusal("check", &[]);
    assert!(said.contains("messages: the database is encoded in LATIN1"), "{said}");
    assert_eq!(in_database("in_ascii", keys).run("check", &[]), "ok\n");
}

/// The log has names in the encoding of the database.
#[test]
fn names_in_another_encoding_are_refused() {
    let database = Postgres::start(&[]);
    database.sql(
        "CREATE DATABASE in_latin1 ENCODING 'LATIN1' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'",
    );
    let tables = "CREATE TABLE caf\u{e9} (id BIGINT PRIMARY KEY, gr\u{f6}\u{df}e INT); \
        ALTER TABLE caf\u{e9} REPLICA IDENTITY FULL; CREATE PUBLICATION cached FOR TABLE caf\u{e9}";
    database.sql_in("dbname=in_latin1 client_encoding=UTF8", tables);
    let server = cache();
    let source = source(&database).replace("\"shop\"", "\"in_latin1\"");
    let keys = "[keys.tables]\n\"public.caf\u{e9}\" = \"{id}:{gr\u{f6}\u{df}e}\"";
    let said = Invalidator::new(&source, keys, &[server.addr()], "").refusal("check", &[]);
    for name in ["public.caf\u{e9}", "gr\u{f6}\u{df}e"] {
        let text = format!("'{name}' must be a name in ASCII");
        assert!(said.contains(&text), "{text}: {said}");
    }
}

/// Sets a value under a key of any bytes.
fn fill_bytes(server: &Server, key: &[u8]) {
    let mut wire = server.connect();
    wire.expect(&[b"set ", key, b" 0 0 1\r\nx\r\n"].concat(), b"STORED\r\n");
}

fn until_bytes_absent(server: &Server, key: &[u8], invalidator: &Invalidator) {
    let mut wire = server.connect();
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        wire.send(&[b"mg ", key, b"\r\n"].concat());
        if wire.line() == "EN" {
            return;
        }
        assert!(Instant::now() < end, "{key:?} stays:\n{}", invalidator.log());
        thread::sleep(Duration::from_millis(20));
    }
}

/// The server can send such bytes only as they are. They are in columns that keys use, in others,
/// in other tables, and in messages.
#[test]
fn bytes_without_a_form_in_utf_8_stop_no_deletes() {
    let database = Postgres::start(&[]);
    for (encoding, byte, key) in [
        ("SQL_ASCII", "\\xe9", &b"name:caf\xe9"[..]),
        ("SQL_ASCII", "\\xc3\\xa9", b"name:caf\xc3\xa9"),
        ("WIN1252", "\\x81", b"name:caf\x81"),
        ("WIN1252", "\\xe9", b"name:caf\xc3\xa9"),
    ] {
        let server = cache();
        database.sql("DROP DATABASE IF EXISTS other");
        database.sql(&format!(
            "CREATE DATABASE other ENCODING '{encoding}' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'"
        ));
        let other = format!("dbname=other client_encoding={encoding}");
        database.sql_in(
            &other,
            "CREATE TABLE users (name TEXT PRIMARY KEY, note TEXT); CREATE TABLE notes (note TEXT); \
             CREATE PUBLICATION cached FOR ALL TABLES",
        );
        let source = source(&database).replace("\"shop\"", "\"other\"");
        let keys = "[keys.tables]\n\"public.users\" = \"name:{name}\"";
        let mut invalidator = Invalidator::new(&source, keys, &[server.addr()], "");
        invalidator.start(&[]);
        for statement in [
            format!("INSERT INTO notes VALUES (E'{byte}')"),
            format!("SELECT pg_logical_emit_message(false, E'{byte}', '')"),
            format!("INSERT INTO users VALUES ('plain', E'{byte}')"),
        ] {
            fill(&server, &["name:plain"]);
            database.sql_in(&other, &statement);
            database.sql_in(&other, "DELETE FROM users; INSERT INTO users VALUES ('plain', '')");
            until_absent(&server, &["name:plain"], &["name:plain"], &invalidator);
            database.sql_in(&other, "DELETE FROM users");
        }
        fill_bytes(&server, key);
        database.sql_in(&other, &format!("INSERT INTO users VALUES (E'caf{byte}', '')"));
        until_bytes_absent(&server, key, &invalidator);
        fill_bytes(&server, key);
        database.sql_in(&other, "DELETE FROM users");
        until_bytes_absent(&server, key, &invalidator);
        assert_eq!(invalidator.stat("gaps"), Some(0), "{}", invalidator.log());
        let slot = "SELECT active FROM pg_replication_slots";
        invalidator.kill();
        let end = Instant::now() + Duration::from_secs(20);
        while database.sql(slot).trim() == "t" {
            assert!(Instant::now() < end, "the slot stays in use");
        }
        database.sql_in(&other, "SELECT pg_drop_replication_slot('holdall')");
    }
}

#[test]
fn a_type_with_different_text_is_found_inside_other_types() {
    let database = Postgres::start(&[]);
    database.sql(
        "CREATE DOMAIN stamp AS timestamptz; CREATE DOMAIN early AS stamp; \
         CREATE DOMAIN flags AS boolean[]; CREATE TYPE pair AS (a INT, b early); \
         CREATE DOMAIN name_of AS TEXT; \
         CREATE TABLE kinds (id BIGINT PRIMARY KEY, a early, b flags, c TIMESTAMPTZ[], d TSTZRANGE, \
         e pair, f TSMULTIRANGE, g name_of, h INT[], i INT8RANGE, j DATE); \
         ALTER TABLE kinds REPLICA IDENTITY FULL; CREATE PUBLICATION cached FOR TABLE kinds",
    );
    let server = cache();
    let with = |columns: &str| {
        let keys = format!("[keys.tables]\n\"public.kinds\" = \"row:{columns}\"");
        invalidator(&database, &server, &keys)
    };
    let said = with("{a}{b}{c}{d}{e}{f}").refusal("check", &[]);
    for part in [
        "'a' is a early (timestamptz)",
        "'b' is a flags (bool)",
        "'c' is a timestamp with time zone[] (timestamptz)",
        "'d' is a tstzrange (timestamptz)",
        "'e' is a pair (timestamptz)",
        "'f' is a tsmultirange (timestamp)",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert_eq!(with("{id}{g}{h}{i}{j}").run("check", &[]), "ok\n");
}

/// Drivers return dates as such, whatever the database's style is.
#[test]
fn dates_in_keys_use_iso_format() {
    let database = Postgres::start(&["DateStyle=SQL"]);
    database.sql(
        "CREATE TABLE days (day DATE PRIMARY KEY); CREATE PUBLICATION cached FOR TABLE days; \
         ALTER DATABASE shop SET DateStyle = 'German'",
    );
    let server = cache();
    let keys = "[keys.tables]\n\"public.days\" = \"day:{day}\"";
    let mut invalidator = invalidator(&database, &server, keys);
    invalidator.start(&[]);
    fill(&server, &["day:2026-05-06", "day:06.05.2026"]);
    database.sql("INSERT INTO days VALUES ('2026-05-06')");
    let all = ["day:2026-05-06", "day:06.05.2026"];
    until_absent(&server, &all, &all[..1], &invalidator);
}

#[test]
fn a_generated_column_missing_from_the_log_is_found() {
    let database = Postgres::start(&[]);
    database.sql(
        "CREATE TABLE gen (a BIGINT PRIMARY KEY, twice BIGINT GENERATED ALWAYS AS (a * 2) STORED); \
         ALTER TABLE gen REPLICA IDENTITY FULL; CREATE PUBLICATION cached FOR TABLE gen",
    );
    let server = cache();
    let with = |column: &str| {
        let keys = format!("[keys.tables]\n\"public.gen\" = \"row:{{{column}}}\"");
        invalidator(&database, &server, &keys)
    };
    let said = with("twice").refusal("check", &[]);
    let version: u32 = database.sql("SHOW server_version_num").trim().parse().unwrap();
    if version < 180_000 {
        assert!(said.contains("column 'twice' is generated"), "{said}");
    } else {
        assert!(said.contains("no column 'twice', or the publication leaves it out"), "{said}");
        database.sql("ALTER PUBLICATION cached SET (publish_generated_columns = stored)");
        assert_eq!(with("twice").run("check", &[]), "ok\n");
    }
    assert_eq!(with("a").run("check", &[]), "ok\n");
}

/// A new value is in no row yet; a renamed one may be in many rows.
#[test]
fn a_renamed_enum_value_is_a_gap() {
    let database = Postgres::start(&[]);
    database.sql(
        "CREATE TYPE mood AS ENUM ('sad', 'ok'); CREATE DOMAIN feeling AS mood; \
         CREATE TABLE people (id BIGINT PRIMARY KEY, mood feeling); \
         ALTER TABLE people REPLICA IDENTITY FULL; CREATE PUBLICATION cached FOR TABLE people",
    );
    let server = cache();
    let keys = "[keys.tables]\n\"public.people\" = \"mood:{mood}\"";
    let mut invalidator = invalidator(&database, &server, keys);
    invalidator.start(&[]);
    fill(&server, &["mood:sad"]);
    database.sql("ALTER TYPE mood ADD VALUE 'glad' BEFORE 'ok'");
    // Wait for several checks.
    thread::sleep(Duration::from_millis(700));
    assert_eq!(absent(&server, &["mood:sad"]), [""; 0], "{}", invalidator.log());
    database.sql("ALTER TYPE mood RENAME VALUE 'sad' TO 'blue'");
    until_absent(&server, &["mood:sad"], &["mood:sad"], &invalidator);
    assert!(invalidator.log().contains("of type mood in table public.people"));
}

/// Another attribute changes the text of every row.
#[test]
fn another_attribute_of_a_composite_type_is_a_gap() {
    let database = Postgres::start(&[]);
    database.sql(
        "CREATE TYPE town AS (name TEXT, zip TEXT); CREATE TYPE home AS (street TEXT, towns town[]); \
         CREATE TABLE people (id BIGINT PRIMARY KEY, home home); \
         ALTER TABLE people REPLICA IDENTITY FULL; CREATE PUBLICATION cached FOR TABLE people",
    );
    let server = cache();
    let keys = "[keys.tables]\n\"public.people\" = \"people:{id}\"";
    let mut invalidator = invalidator(&database, &server, keys);
    invalidator.start(&[]);
    for statement in
        ["ALTER TYPE home ADD ATTRIBUTE flat INT", "ALTER TYPE town DROP ATTRIBUTE zip"]
    {
        fill(&server, &["people:1"]);
        database.sql(statement);
        until_absent(&server, &["people:1"], &["people:1"], &invalidator);
    }
    let log = invalidator.log();
    assert!(log.contains("type home (") && log.contains("type town ("), "{log}");
}
