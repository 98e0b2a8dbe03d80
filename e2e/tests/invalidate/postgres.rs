//! Deletes from PostgreSQL's logical replication.

use std::path::Path;

use e2e::certificates::Certificates;
use e2e::invalidator::Invalidator;
use testkit::Server;
use testkit::database::Postgres;

use crate::harness::{cache, fill, until_absent};

/// The source's lines.
pub(crate) fn source(database: &Postgres) -> String {
    format!(
        "kind = \"postgresql\"\nservers = [\"{}\"]\nuser = \"holdall\"\npassword = \"secret\"\ndatabase = \"shop\"\nslot = \"holdall\"\n\
         publication = \"cached\"",
        database.addr()
    )
}

const USERS: &str = "CREATE TABLE users (id BIGINT PRIMARY KEY, mail TEXT, note TEXT)";
const FULL: &str =
    "ALTER TABLE users REPLICA IDENTITY FULL; CREATE PUBLICATION cached FOR TABLE users";
const USER_KEYS: &str =
    "messages = \"mc\"\n[keys.tables]\n\"public.users\" = [\"user:{id}\", \"mail:{mail}\"]";
const KEYS: [&str; 6] = ["user:1", "user:2", "user:3", "mail:a@x", "mail:b@x", "mail:c@x"];

#[test]
fn committed_rows_and_messages_delete_only_their_keys() {
    let database = Postgres::start(&[]);
    database.sql(USERS);
    database.sql(FULL);
    let server = cache();
    let mut invalidator = Invalidator::new(&source(&database), USER_KEYS, &[server.addr()], "");
    invalidator.start(&[]);
    let fill = || fill(&server, &KEYS);
    let gone = |gone: &[&str]| until_absent(&server, &KEYS, gone, &invalidator);
    fill();
    // A value so long that an update of another column leaves it out of the log.
    database.sql("INSERT INTO users SELECT 1, 'a@x', string_agg(md5(n::text), '') FROM generate_series(1, 1000) n");
    gone(&["user:1", "mail:a@x"]);
    fill();
    database.sql("UPDATE users SET mail = 'b@x' WHERE id = 1");
    gone(&["user:1", "mail:a@x", "mail:b@x"]);
    fill();
    database.sql("BEGIN; UPDATE users SET mail = 'c@x' WHERE id = 1; ROLLBACK");
    database.sql(
        "BEGIN; INSERT INTO users VALUES (3, 'c@x', ''); SAVEPOINT s; INSERT INTO users VALUES (2, 'a@x', ''); \
         ROLLBACK TO s; COMMIT",
    );
    gone(&["user:3", "mail:c@x"]);
    fill();
    database.sql("DELETE FROM users WHERE id = 1");
    gone(&["user:1", "mail:b@x"]);
    fill();
    database.sql("BEGIN; SELECT pg_logical_emit_message(true, 'mc', 'user:1 mail:a@x'); ROLLBACK");
    database.sql("SELECT pg_logical_emit_message(true, 'mc', 'user:2 mail:b@x')");
    database.sql("SELECT pg_logical_emit_message(false, 'mc', 'mail:c@x')");
    database.sql("SELECT pg_logical_emit_message(true, 'other', 'user:3')");
    gone(&["user:2", "mail:b@x", "mail:c@x"]);
}

#[test]
fn restarts_of_either_side_repeat_deletes_and_skip_none() {
    let mut database = Postgres::start(&[]);
    database.sql(USERS);
    database.sql(FULL);
    let server = cache();
    let mut invalidator = Invalidator::new(&source(&database), USER_KEYS, &[server.addr()], "");
    invalidator.start(&[]);
    database.sql("INSERT INTO users VALUES (1, NULL, '')");
    invalidator.until("cluster:c0:delivered", |count| count > 0);
    invalidator.until("checkpoints", |count| count > 0);
    invalidator.kill();
    fill(&server, &KEYS);
    database.sql("INSERT INTO users VALUES (2, NULL, '')");
    invalidator.start(&[]);
    until_absent(&server, &KEYS[1..], &["user:2"], &invalidator);
    database.kill();
    invalidator.until("source_connected", |value| value == 0);
    // The maximum age of unread changes.
    invalidator.until("cluster:c0:lag_ms", |ms| ms > 500);
    database.restart();
    database.sql("INSERT INTO users VALUES (3, NULL, '')");
    until_absent(&server, &KEYS[1..], &["user:2", "user:3"], &invalidator);
}

/// The source of a primary and its standby.
fn source_of_both(primary: &Postgres, standby: &Postgres) -> String {
    let both = format!("\"{}\", \"{}\"", primary.addr(), standby.addr());
    source(primary).replace(&format!("\"{}\"", primary.addr()), &both)
}

/// Starts the invalidator after changes were lost: it exits with this reason, or deletes all keys
/// and follows later changes.
fn is_a_gap(
    invalidator: &mut Invalidator,
    server: &Server,
    database: &Postgres,
    flushes: bool,
    why: &str,
) {
    if flushes {
        invalidator.start(&[]);
        until_absent(server, &KEYS, &KEYS, invalidator);
        // The first commit repeats the flush.
        fill(server, &KEYS);
        database.sql("INSERT INTO users VALUES (20, NULL, '')");
        until_absent(server, &KEYS, &KEYS, invalidator);
        fill(server, &KEYS);
        database.sql("INSERT INTO users VALUES (2, NULL, '')");
        until_absent(server, &KEYS, &["user:2"], invalidator);
    } else {
        invalidator.spawn(&[]);
        let said = invalidator.ended();
        assert!(said.contains(why), "{said}");
    }
}

#[test]
fn a_missing_slot_stops_or_flushes() {
    let database = Postgres::start(&[]);
    database.sql(USERS);
    database.sql(FULL);
    let server = cache();
    for flushes in [false, true] {
        let more = if flushes { "[delivery]\non_gap = \"flush\"" } else { "" };
        let mut invalidator =
            Invalidator::new(&source(&database), USER_KEYS, &[server.addr()], more);
        invalidator.start(&[]);
        database.sql(
            "INSERT INTO users VALUES (1, NULL, '') ON CONFLICT (id) DO UPDATE SET note = 'x'",
        );
        invalidator.until("cluster:c0:delivered", |count| count > 0);
        invalidator.until("checkpoints", |count| count > 0);
        invalidator.kill();
        let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while database.sql("SELECT active FROM pg_replication_slots").trim() == "t" {
            assert!(std::time::Instant::now() < end, "the slot stays in use");
        }
        database.sql("SELECT pg_drop_replication_slot('holdall'); UPDATE users SET note = 'y'");
        fill(&server, &KEYS);
        is_a_gap(&mut invalidator, &server, &database, flushes, "slot holdall is gone");
    }
}

/// The server decodes a change with its catalogue of that time. It fails there. From version 18 on,
/// it warns that it skips the change.
#[test]
fn changes_while_the_publication_was_dropped_are_a_gap() {
    let flush = "[delivery]\non_gap = \"flush\"";
    let in_group = format!("[standby]\ngroup = \"shop\"\n{flush}");
    for (more, flushes) in [("", false), (flush, true), (&in_group, true)] {
        let database = Postgres::start(&[]);
        database.sql(USERS);
        database.sql(FULL);
        let server = cache();
        let mut invalidator =
            Invalidator::new(&source(&database), USER_KEYS, &[server.addr()], more);
        invalidator.start(&[]);
        end(&mut invalidator);
        database.sql("DROP PUBLICATION cached");
        database.sql("INSERT INTO users VALUES (1, NULL, '')");
        database.sql("CREATE PUBLICATION cached FOR TABLE users");
        fill(&server, &KEYS);
        is_a_gap(&mut invalidator, &server, &database, flushes, "at this place of the log");
        if flushes {
            assert_eq!(invalidator.stat("gaps"), Some(1), "{}", invalidator.log());
        }
    }
}

#[test]
fn missing_log_contents_are_refused_at_the_start() {
    let database = Postgres::start(&[]);
    database.sql(USERS);
    let server = cache();
    let check = |keys: &str| {
        Invalidator::new(&source(&database), keys, &[server.addr()], "").refusal("check", &[])
    };
    assert!(check(USER_KEYS).contains("there is no publication cached"));
    database.sql("CREATE TABLE others (id INT); CREATE PUBLICATION cached FOR TABLE users");
    let said = check(
        "[keys.tables]\n\"public.users\" = [\"{id}\", \"{mail}\", \"{male}\"]\n\"public.others\" = \"{id}\"\n\"public.no\" = \"{id}\"",
    );
    for part in [
        "old values of column 'mail'",
        "no column 'male'",
        "others is not in publication",
        "public.no does not exist",
    ] {
        assert!(said.contains(part), "{part} is not in:\n{said}");
    }
    assert!(!said.contains("users: old values of column 'id'"), "{said}");
    // The key of an old row does not have the columns after INCLUDE.
    database.sql("CREATE TABLE covering (id INT, mail TEXT, PRIMARY KEY (id) INCLUDE (mail))");
    database.sql("ALTER PUBLICATION cached ADD TABLE covering");
    let said = check("[keys.tables]\n\"public.covering\" = \"{id}:{mail}\"");
    assert!(said.contains("covering: old values of column 'mail'"), "{said}");
    assert!(!said.contains("'id'"), "{said}");
    // Its text is `t` in the log, and `true` or `True` in applications.
    database.sql("ALTER TABLE others ADD is_open BOOL");
    let said = check("[keys.tables]\n\"public.others\" = \"{is_open}\"");
    assert!(said.contains("column 'is_open' is a bool"), "{said}");
    // Its text is the name of another object, which may be renamed.
    for kind in ["regclass", "regrole", "regtype[]"] {
        database.sql(&format!("ALTER TABLE others DROP IF EXISTS named, ADD named {kind}"));
        let said = check("[keys.tables]\n\"public.others\" = \"{named}\"");
        assert!(said.contains(&format!("column 'named' is a {kind}")), "{said}");
    }
    let wrong = source(&database).replace("secret", "wrong");
    let mut invalidator = Invalidator::new(&wrong, USER_KEYS, &[server.addr()], "");
    assert!(invalidator.refusal("run", &[]).contains("password"));
}

#[test]
fn a_truncated_table_stops_the_invalidator() {
    let database = Postgres::start(&[]);
    database.sql(USERS);
    database.sql(FULL);
    let server = cache();
    let mut invalidator = Invalidator::new(&source(&database), USER_KEYS, &[server.addr()], "");
    invalidator.start(&[]);
    database.sql("TRUNCATE users");
    let said = invalidator.ended();
    assert!(said.contains("was emptied"), "{said}");
}

#[test]
fn sslmode_sets_the_encryption() {
    let files = Certificates::new();
    let path = |name: &str| files.path(name);
    let (certificate, key) = (path("server.crt"), path("server.key"));
    // The certificate is for 127.0.0.1, and not for 127.0.0.2.
    let everywhere = ["listen_addresses=127.0.0.1,127.0.0.2"];
    let database = Postgres::start_with_tls(Path::new(&certificate), Path::new(&key), &everywhere);
    database.sql(USERS);
    database.sql(FULL);
    let server = cache();
    let with = |host: &str, mode: &str, issuers: &str| {
        let source = source(&database).replace("127.0.0.1", host);
        let roots = match issuers {
            "" => String::new(),
            name => format!("\nsslrootcert = \"{}\"", path(name)),
        };
        let source = format!("{source}\nsslmode = \"{mode}\"{roots}");
        Invalidator::new(&source, USER_KEYS, &[server.addr()], "")
    };
    for (host, mode, issuers, is_encrypted) in [
        ("127.0.0.1", "disable", "", "f"),
        ("127.0.0.1", "prefer", "", "t"),
        ("127.0.0.2", "require", "", "t"),
        ("127.0.0.2", "verify-ca", "ca.crt", "t"),
        ("127.0.0.1", "verify-full", "ca.crt", "t"),
    ] {
        let mut invalidator = with(host, mode, issuers);
        invalidator.start(&[]);
        let found = database
            .sql("SELECT DISTINCT ssl FROM pg_stat_ssl JOIN pg_stat_replication USING (pid)");
        assert_eq!(found.trim(), is_encrypted, "{mode}");
        fill(&server, &["user:9"]);
        database.sql("INSERT INTO users VALUES (9, NULL, ''); DELETE FROM users");
        until_absent(&server, &["user:9"], &["user:9"], &invalidator);
        invalidator.kill();
        let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while database.sql("SELECT active FROM pg_replication_slots").trim() == "t" {
            assert!(std::time::Instant::now() < end, "the slot stays in use");
        }
    }
    for (host, mode, issuers, fault) in [
        ("127.0.0.1", "verify-ca", "other-ca.crt", "UnknownIssuer"),
        ("127.0.0.1", "verify-full", "", "UnknownIssuer"),
        ("127.0.0.2", "verify-full", "ca.crt", "not valid for name"),
        ("127.0.0.1", "verify-full", "absent.crt", "absent.crt"),
    ] {
        let said = with(host, mode, issuers).refusal("check", &[]);
        assert!(said.contains(fault), "{mode} {issuers}: {said}");
    }
}

#[test]
fn required_tls_refuses_a_server_without_it() {
    let database = Postgres::start(&[]);
    database.sql(USERS);
    database.sql(FULL);
    let server = cache();
    let check = |mode: &str| {
        let source = format!("{}\nsslmode = \"{mode}\"", source(&database));
        Invalidator::new(&source, USER_KEYS, &[server.addr()], "").refusal("check", &[])
    };
    assert!(check("require").contains("does not offer TLS"));
    assert!(check("none").contains("unknown variant `none`"));
}

/// Two servers are alive, and one has the slot: the other one is not asked for it, and gets none.
#[test]
fn a_standby_gets_no_slot_during_a_restart_of_the_primary() {
    let mut primary = Postgres::start(&[]);
    primary.sql(USERS);
    primary.sql(FULL);
    let standby = Postgres::standby_of(&primary, &[]);
    let server = cache();
    let lines = source_of_both(&primary, &standby);
    let mut invalidator = Invalidator::new(&lines, USER_KEYS, &[server.addr()], "");
    assert_eq!(invalidator.run("check", &[]), "ok\n");
    invalidator.start(&[]);
    fill(&server, &KEYS[..2]);
    primary.kill();
    invalidator.until("source_connected", |value| value == 0);
    // In the meantime, the invalidator tries the standby.
    let end = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while !invalidator.log().contains(&standby.addr().to_string()) {
        assert!(std::time::Instant::now() < end, "{}", invalidator.log());
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    primary.restart();
    primary.sql("INSERT INTO users VALUES (1, NULL, '')");
    until_absent(&server, &KEYS[..2], &KEYS[..1], &invalidator);
    assert_eq!(standby.sql("SELECT count(*) FROM pg_replication_slots").trim(), "0");
    assert_eq!(invalidator.stat("gaps"), Some(0));
    assert!(invalidator.is_running());
}

/// Ends it normally, with its position saved.
pub(crate) fn end(invalidator: &mut Invalidator) {
    invalidator.signal(rustix::process::Signal::TERM);
    let end = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while invalidator.is_running() {
        assert!(std::time::Instant::now() < end, "{}", invalidator.log());
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

/// Ends it normally, with a position on this timeline.
fn ends_on_timeline(invalidator: &mut Invalidator, timeline: u32) {
    end(invalidator);
    let kept = std::fs::read_to_string(invalidator.checkpoint()).unwrap();
    assert!(kept.contains(&format!("@{timeline}\n")), "{kept}");
}

/// The standby writes at positions that the primary used for other changes.
#[test]
fn a_promoted_standby_without_the_end_of_the_log_is_a_gap() {
    for flushes in [false, true] {
        let mut primary = Postgres::start(&[]);
        primary.sql(USERS);
        primary.sql(FULL);
        let standby = Postgres::standby_of(&primary, &[]);
        let server = cache();
        let lines = source_of_both(&primary, &standby);
        let more = if flushes { "[delivery]\non_gap = \"flush\"" } else { "" };
        let mut invalidator = Invalidator::new(&lines, USER_KEYS, &[server.addr()], more);
        invalidator.start(&[]);
        standby.cut_off();
        primary.sql(
            "INSERT INTO users SELECT n, NULL, repeat('x', 1000) FROM generate_series(100, 2000) n",
        );
        fill(&server, &KEYS);
        primary.sql("INSERT INTO users VALUES (3, NULL, '')");
        until_absent(&server, &KEYS, &["user:3"], &invalidator);
        end(&mut invalidator);
        primary.kill();
        standby.promote();
        standby.sql("SELECT pg_create_logical_replication_slot('holdall', 'pgoutput')");
        fill(&server, &KEYS);
        standby.sql("INSERT INTO users VALUES (1, 'a@x', '')");
        // Its log grows past the invalidator's position, as if it had all earlier changes.
        standby.sql(
            "INSERT INTO users SELECT n, NULL, repeat('x', 1000) FROM generate_series(5000, 9000) n",
        );
        is_a_gap(&mut invalidator, &server, &standby, flushes, "it left that timeline at");
        if flushes {
            assert_eq!(invalidator.stat("gaps"), Some(1));
            ends_on_timeline(&mut invalidator, 2);
        }
    }
}

#[test]
fn a_promoted_server_with_the_whole_log_is_followed_to_its_new_timeline() {
    let mut database = Postgres::start(&[]);
    database.sql(USERS);
    database.sql(FULL);
    let server = cache();
    let mut invalidator = Invalidator::new(&source(&database), USER_KEYS, &[server.addr()], "");
    invalidator.start(&[]);
    fill(&server, &KEYS);
    database.sql("INSERT INTO users VALUES (1, NULL, '')");
    until_absent(&server, &KEYS, &["user:1"], &invalidator);
    database.kill();
    database.restart_on_new_timeline();
    database.sql("INSERT INTO users VALUES (2, NULL, '')");
    until_absent(&server, &KEYS, &["user:1", "user:2"], &invalidator);
    let note = "the database was promoted after timeline 1 and is on timeline 2";
    assert!(invalidator.log().contains(note), "{}", invalidator.log());
    ends_on_timeline(&mut invalidator, 2);
    invalidator.start(&[]);
    fill(&server, &KEYS);
    database.sql("INSERT INTO users VALUES (3, NULL, '')");
    until_absent(&server, &KEYS, &["user:3"], &invalidator);
    assert_eq!(invalidator.stat("gaps"), Some(0));
}

/// The data came from a dump. The other server's log has unrelated positions.
#[test]
fn another_database_system_is_a_gap() {
    for flushes in [false, true] {
        let database = Postgres::start(&[]);
        database.sql(USERS);
        database.sql(FULL);
        let server = cache();
        let more = if flushes { "[delivery]\non_gap = \"flush\"" } else { "" };
        let lines = source(&database);
        let mut invalidator = Invalidator::new(&lines, USER_KEYS, &[server.addr()], more);
        invalidator.start(&[]);
        fill(&server, &KEYS);
        database.sql("INSERT INTO users VALUES (3, NULL, '')");
        until_absent(&server, &KEYS, &["user:3"], &invalidator);
        end(&mut invalidator);
        let other = Postgres::start(&[]);
        other.sql(USERS);
        other.sql(FULL);
        other.sql("SELECT pg_create_logical_replication_slot('holdall', 'pgoutput')");
        fill(&server, &KEYS);
        other.sql("INSERT INTO users VALUES (1, 'a@x', '')");
        let filler = "INSERT INTO users SELECT n, NULL, repeat('x', 1000) FROM generate_series(5000, 9000) n";
        other.sql(filler);
        // The same checkpoint, but the other server.
        let (old, new) = (database.addr().to_string(), other.addr().to_string());
        let file = invalidator.checkpoint().with_file_name("invalidate.toml");
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, text.replace(&old, &new)).unwrap();
        is_a_gap(&mut invalidator, &server, &other, flushes, "of another database system");
    }
}
