//! Every statement is a decision: every change of a table ends in deletes, or in a gap with a
//! reason. A seeded grammar generates the statements: words, comments, case, quoting, spaces,
//! partitions, renames, swaps, CTEs, dynamic SQL, and the formats of sessions.
//!
//! `STATEMENTS` is the number of statements run on each database, `SEED` repeats the choices.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use e2e::invalidator::{Invalidator, mysqld_source};
use testkit::Rng;
use testkit::database::{Brand, Mysqld, Postgres, Session};
use testkit::rng::seed_from_env;

use crate::harness::{absent, cache, fill};
use crate::setup::set_up;

/// Each changes the contents of `users`, at the key 1. `~` is a space of any kind, `{}` the table.
const OF_BOTH: [&str; 30] = [
    "TRUNCATE~TABLE~{}",
    "TRUNCATE~{}",
    "DROP~TABLE~{}",
    "DROP~TABLE~IF~EXISTS~none,{}",
    "DROP~TABLE~plain,{}~RESTRICT",
    "DROP~DATABASE~shop;CREATE~DATABASE~shop",
    "DROP~SCHEMA~IF~EXISTS~`shop`;CREATE~DATABASE~shop",
    "RENAME~TABLE~{}~TO~users_old,users_new~TO~users",
    "RENAME~TABLE~{}~TO~users_old",
    "ALTER~TABLE~{}~TRUNCATE~PARTITION~p0",
    "ALTER~TABLE~{}~TRUNCATE~PARTITION~ALL",
    "ALTER~TABLE~{}~DROP~PARTITION~p0",
    "ALTER~TABLE~{}~EXCHANGE~PARTITION~p0~WITH~TABLE~plain",
    "ALTER~TABLE~{}~RENAME~TO~users_old",
    "ALTER~TABLE~{}~RENAME~AS~users_old",
    "ALTER~TABLE~{}~ADD~KEY~(mail),RENAME~users_old",
    "ALTER~TABLE~{}~MODIFY~mail~VARCHAR(3)",
    "ALTER~TABLE~{}~CHANGE~mail~post~TEXT",
    "ALTER~TABLE~{}~ADD~KEY~(id),DROP~COLUMN~mail",
    "ALTER~TABLE~{}~DROP~mail",
    "UPDATE~{}~SET~mail='b'~WHERE~id=1",
    "UPDATE~{}~AS~u~JOIN~users_new~AS~n~USING~(id)~SET~u.mail='b'",
    "DELETE~FROM~{}~WHERE~id=1",
    "DELETE~u~FROM~{}~AS~u~WHERE~u.id=1",
    "REPLACE~INTO~{}~VALUES~(1,'z')",
    "INSERT~INTO~{}~VALUES~(1,'q')~ON~DUPLICATE~KEY~UPDATE~mail='q'",
    "SET~SESSION~binlog_format=STATEMENT;UPDATE~{}~SET~mail='c'~WHERE~id=1",
    "SET~SESSION~binlog_format=MIXED;DELETE~FROM~{}~WHERE~id<9",
    "SET~SESSION~binlog_format=STATEMENT;REPLACE~INTO~{}~SELECT~*~FROM~users_new",
    "PREPARE~s~FROM~'TRUNCATE~TABLE~{}';EXECUTE~s",
];
const OF_MARIADB: [&str; 13] = [
    "CREATE~OR~REPLACE~SEQUENCE~{}",
    "SET~SESSION~binlog_format=STATEMENT;EXECUTE~IMMEDIATE~'CREATE~FUNCTION~lose()~RETURNS~INT~DETERMINISTIC~BEGIN~UPDATE~users~SET~mail=1;RETURN~1;END';CREATE~TABLE~users_old~SELECT~lose()",
    "SET~SESSION~binlog_format=STATEMENT;EXECUTE~IMMEDIATE~'CREATE~FUNCTION~lose()~RETURNS~INT~DETERMINISTIC~BEGIN~UPDATE~users~SET~mail=1;RETURN~1;END';CREATE~TEMPORARY~TABLE~users_old~(VALUES~(lose()));DROP~TEMPORARY~TABLE~users_old",
    "SET~SESSION~binlog_format=STATEMENT;ANALYZE~UPDATE~{}~SET~mail='b'~WHERE~id=1",
    "SET~SESSION~binlog_format=MIXED;ANALYZE~FORMAT=JSON~DELETE~FROM~{}~WHERE~id=1",
    "SET~SESSION~binlog_format=STATEMENT;SET~STATEMENT~max_statement_time=9~FOR~ANALYZE~REPLACE~INTO~{}~VALUES~(1,'z')",
    "ANALYZE~INSERT~INTO~{}~VALUES~(1,'q')~ON~DUPLICATE~KEY~UPDATE~mail='q'",
    "SET~STATEMENT~lock_wait_timeout=9~FOR~TRUNCATE~TABLE~{}",
    "CREATE~OR~REPLACE~TABLE~{}~(id~INT~PRIMARY~KEY,mail~VARCHAR(9))",
    "ALTER~TABLE~IF~EXISTS~{}~DROP~PARTITION~IF~EXISTS~p0",
    "ALTER~TABLE~{}~CONVERT~PARTITION~p0~TO~TABLE~users_old",
    "DELETE~FROM~{}~WHERE~id=1~RETURNING~id",
    "EXECUTE~IMMEDIATE~'DROP~TABLE~{}'",
];
const OF_MYSQL: [&str; 4] = [
    "SET~SESSION~binlog_format=STATEMENT;WITH~n~AS~(SELECT~1~AS~id)~UPDATE~{}~JOIN~n~USING~(id)~SET~mail='w'",
    "SET~SESSION~binlog_format=STATEMENT;WITH~n~AS~(SELECT~1~AS~id)~DELETE~FROM~{}~WHERE~id~IN~(SELECT~id~FROM~n)",
    "WITH~n~AS~(SELECT~1~AS~id)~UPDATE~{}~JOIN~n~USING~(id)~SET~mail='w'",
    "ALTER~TABLE~{}~RENAME~COLUMN~mail~TO~post",
];

const SPACES: [&str; 6] = [" ", "\n", "\t", "  ", "\r\n", " /* and */ "];
const NAMES: [&str; 5] = ["users", "shop.users", "`users`", "`shop`.`users`", "shop . `users`"];
const BEFORE: [&str; 6] = [
    "",
    "/* ApplicationName=tool 1 */ ",
    "-- tool\n",
    "# tool\n",
    "/*!50000 */ ",
    "/* a */ /* TRUNCATE */\n",
];
const AFTER: [&str; 4] = ["", " /* mc:del other */", " -- end\n", " # end\n"];

const OF_POSTGRES: [&str; 24] = [
    "TRUNCATE~{}",
    "TRUNCATE~TABLE~ONLY~{}~RESTART~IDENTITY~CASCADE",
    "TRUNCATE~users_new,~{}",
    "TRUNCATE~p0",
    "TRUNCATE~parted",
    "DROP~TABLE~{}",
    "DROP~TABLE~IF~EXISTS~none,{}~CASCADE",
    "DROP~TABLE~p0",
    "DROP~OWNED~BY~owner",
    "ALTER~TABLE~{}~RENAME~TO~users_old",
    "BEGIN;ALTER~TABLE~{}~RENAME~TO~users_old;ALTER~TABLE~users_new~RENAME~TO~users;COMMIT",
    "ALTER~TABLE~{}~SET~SCHEMA~other",
    "ALTER~TABLE~{}~DROP~mail",
    "ALTER~TABLE~{}~ALTER~mail~TYPE~TEXT~USING~upper(mail)",
    "ALTER~TABLE~{}~ALTER~id~TYPE~INT",
    "ALTER~TABLE~{}~RENAME~mail~TO~post",
    "ALTER~TABLE~parted~DETACH~PARTITION~p0",
    "ALTER~PUBLICATION~cached~DROP~TABLE~{}",
    "UPDATE~{}~SET~mail='b'",
    "DELETE~FROM~ONLY~{}~WHERE~id=1~RETURNING~id",
    "WITH~n~AS~(SELECT~1~AS~id)~DELETE~FROM~{}~USING~n~WHERE~users.id=n.id",
    "MERGE~INTO~{}~USING~(VALUES~(1))~n~(id)~ON~users.id=n.id~WHEN~MATCHED~THEN~DELETE",
    "INSERT~INTO~{}~VALUES~(1,'q')~ON~CONFLICT~(id)~DO~UPDATE~SET~mail='q'",
    "DO~$$BEGIN~EXECUTE~'TRUNCATE~{}';END$$",
];
const NAMES_OF_POSTGRES: [&str; 4] = ["users", "public.users", "\"users\"", "public . \"users\""];
const BEFORE_OF_POSTGRES: [&str; 4] =
    ["", "/* ApplicationName=tool */ ", "-- tool\n", "/* a /* nested */ */\n"];

/// The alternatives for the variable parts of a statement.
struct Grammar {
    spaces: &'static [&'static str],
    names: &'static [&'static str],
    before: &'static [&'static str],
    after: &'static [&'static str],
}

const MYSQLD: Grammar = Grammar { spaces: &SPACES, names: &NAMES, before: &BEFORE, after: &AFTER };
const POSTGRES: Grammar = Grammar {
    spaces: &SPACES,
    names: &NAMES_OF_POSTGRES,
    before: &BEFORE_OF_POSTGRES,
    after: &["", " -- end\n"],
};

impl Grammar {
    /// Returns the statement in a random form.
    fn form(&self, rng: &mut Rng, statement: &str) -> String {
        let cased: String = match rng.below(3) {
            0 => statement.to_owned(),
            1 => statement.to_lowercase(),
            _ => {
                let mixed = statement.char_indices().map(|(at, letter)| match at % 2 {
                    0 => letter.to_ascii_lowercase(),
                    _ => letter,
                });
                mixed.collect()
            }
        };
        let mut words = String::new();
        for letter in cased.chars() {
            match letter {
                '~' => words += *rng.pick(self.spaces),
                // A comment before the first of two statements does not belong to the second.
                ';' => words += &format!(";{}", rng.pick(self.before)),
                letter => words.push(letter),
            }
        }
        let words = words.replace("{}", rng.pick::<&str>(self.names));
        format!("{}{words}{}", rng.pick(self.before), rng.pick(self.after))
    }
}

fn count(default: usize) -> usize {
    env::var("STATEMENTS").map_or(default, |text| text.parse().expect("STATEMENTS is a number"))
}

/// Statements of this list, each about equally often, in random order.
fn statements(rng: &mut Rng, list: &[&'static str], count: usize) -> Vec<&'static str> {
    let mut all: Vec<&str> = list.iter().copied().cycle().take(count).collect();
    for at in (1..all.len()).rev() {
        all.swap(at, rng.below(at + 1));
    }
    all
}

/// The outcomes of statements, according to the invalidator's log and counters.
struct Outcomes {
    log: usize,
    keys: u64,
    counts: BTreeMap<&'static str, usize>,
    silent: Vec<String>,
}

/// The reasons of gaps caused by statements.
const REASONS: [&str; 5] = [
    "the log does not tell which rows it had",
    "a change is logged as a statement",
    "what a statement does to rows is not known",
    "was removed with its database",
    "the log lacked changes",
];

impl Outcomes {
    fn before(invalidator: &Invalidator) -> Self {
        let mut outcomes = Self { log: 0, keys: 0, counts: BTreeMap::new(), silent: Vec::new() };
        outcomes.begin(invalidator);
        outcomes
    }

    fn begin(&mut self, invalidator: &Invalidator) {
        self.log = invalidator.log().len();
        self.keys = invalidator.stat("keys").unwrap_or(0);
    }

    fn note(&mut self, invalidator: &Invalidator, statement: &str, is_gone: bool) {
        let log = invalidator.log();
        let said = &log[self.log..];
        let has_reason = REASONS[..4].iter().any(|reason| said.contains(reason));
        let outcome = if !is_gone {
            self.silent.push(statement.to_owned());
            "silent"
        } else if has_reason {
            "gap"
        } else if invalidator.stat("keys").unwrap_or(0) > self.keys {
            "deletes"
        } else {
            // A gap for another reason at the right moment proves nothing.
            self.silent.push(format!("{statement}\nsaid: {said}"));
            "unexplained"
        };
        *self.counts.entry(outcome).or_default() += 1;
    }

    fn assert_none_is_silent(&self, name: &str, seed: u64) {
        println!("{name}, SEED={seed}: {:?}", self.counts);
        let silent = &self.silent;
        assert!(silent.is_empty(), "SEED={seed}: {} were passed over: {silent:#?}", silent.len());
    }
}

const MAKE: &str = "SET SESSION binlog_format=ROW; CREATE DATABASE IF NOT EXISTS shop; USE shop; \
    DROP TABLE IF EXISTS users, users_new, users_old, plain; \
    CREATE TABLE users (id INT PRIMARY KEY, mail VARCHAR(9)) PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN (20)); \
    DROP FUNCTION IF EXISTS lose; \
    CREATE TABLE users_new (id INT PRIMARY KEY, mail VARCHAR(9)); CREATE TABLE plain (id INT PRIMARY KEY, mail VARCHAR(9)); \
    INSERT INTO users VALUES (1, 'a'), (11, 'a'); INSERT INTO users_new VALUES (1, 'n')";

/// Waits until all of the log was delivered.
#[track_caller]
fn until_delivered(database: &Mysqld, invalidator: &Invalidator, statement: &str) {
    let end = format!("position {}-gtid:{}\n", database.brand().name(), database.gtids());
    let until = Instant::now() + Duration::from_secs(60);
    while !fs::read_to_string(invalidator.checkpoint()).unwrap_or_default().contains(&end) {
        assert!(Instant::now() < until, "{statement}: not read:\n{}", invalidator.log());
        thread::sleep(Duration::from_millis(2));
    }
}

#[track_caller]
fn run(session: &mut Session, statements: &str) {
    assert!(session.run(&format!("{statements}\n")).is_some(), "refused: {statements}");
}

fn no_statement_is_silent(brand: Brand) {
    let seed = seed_from_env();
    let mut rng = Rng::new(seed);
    let database = Mysqld::start(brand, 1, &[]);
    database.sql(MAKE);
    let server = cache();
    let keys = "[keys.tables]\n\"shop.users\" = \"user:{id}\"";
    let delivery = "[delivery]\non_gap = \"flush\"\ncheckpoint_every_ms = 2\nbatch_wait_us = 0";
    // The check must not find changes that the log does not show.
    let source = mysqld_source(&[&database], "check_every_ms = 3600000");
    let mut invalidator = Invalidator::new(&source, keys, &[server.addr()], delivery);
    invalidator.start(&[]);
    let of_brand: &[&str] = if brand == Brand::MariaDb { &OF_MARIADB } else { &OF_MYSQL };
    let list = [&OF_BOTH[..], of_brand].concat();
    let mut outcomes = Outcomes::before(&invalidator);
    for statement in statements(&mut rng, &list, count(3 * list.len())) {
        let statement = MYSQLD.form(&mut rng, statement);
        let mut session = database.session();
        run(&mut session, MAKE);
        until_delivered(&database, &invalidator, &statement);
        fill(&server, &["user:1"]);
        outcomes.begin(&invalidator);
        run(&mut session, &statement);
        until_delivered(&database, &invalidator, &statement);
        outcomes.note(&invalidator, &statement, !absent(&server, &["user:1"]).is_empty());
    }
    outcomes.assert_none_is_silent(brand.name(), seed);
}

#[test]
fn no_mariadb_statement_is_skipped() {
    no_statement_is_silent(Brand::MariaDb);
}

#[test]
fn no_mysql_statement_is_skipped() {
    no_statement_is_silent(Brand::MySql);
}

const TABLES: &str = "DROP OWNED BY owner; DROP SCHEMA IF EXISTS other CASCADE; \
    DROP TABLE IF EXISTS users, users_old, users_new, parted, p0, p1; CREATE SCHEMA other; \
    CREATE TABLE users (id BIGINT PRIMARY KEY, mail TEXT); CREATE TABLE users_new (LIKE users INCLUDING ALL); \
    CREATE TABLE parted (id BIGINT PRIMARY KEY) PARTITION BY RANGE (id); CREATE TABLE p0 PARTITION OF parted FOR VALUES FROM (0) TO (10); \
    ALTER TABLE users OWNER TO owner; INSERT INTO users VALUES (1, 'a'); INSERT INTO parted VALUES (1)";

/// With the event trigger that `setup` creates, the log shows them, and no check has to find them.
#[test]
fn no_postgresql_statement_is_skipped_after_setup() {
    let seed = seed_from_env();
    let mut rng = Rng::new(seed);
    let database = Postgres::start(&[]);
    database.sql("CREATE ROLE owner");
    let server = cache();
    let source = format!("{}\ncheck_every_ms = 3600000", crate::postgres::source(&database));
    let keys = "[keys.tables]\n\"public.users\" = \"user:{id}\"\n\"public.parted\" = \"user:{id}\"\n\
        [delivery]\non_gap = \"flush\"";
    let mut invalidator = Invalidator::new(&source, keys, &[server.addr()], "");
    let mut outcomes = Outcomes::before(&invalidator);
    for statement in statements(&mut rng, &OF_POSTGRES, count(OF_POSTGRES.len())) {
        let statement = POSTGRES.form(&mut rng, statement);
        database.sql(TABLES);
        set_up(&invalidator, &[]);
        invalidator.start(&[]);
        crate::setup::until_read(&database, &invalidator, "holdall");
        fill(&server, &["user:1"]);
        outcomes.begin(&invalidator);
        database.sql(&statement);
        let until = Instant::now() + Duration::from_secs(20);
        while absent(&server, &["user:1"]).is_empty() && Instant::now() < until {
            thread::sleep(Duration::from_millis(5));
        }
        outcomes.note(&invalidator, &statement, !absent(&server, &["user:1"]).is_empty());
        invalidator.kill();
        // Wait until the database notices that its reader is gone.
        let is_free = "SELECT bool_and(NOT active) FROM pg_replication_slots";
        while database.sql(is_free).trim() != "t" {
            thread::sleep(Duration::from_millis(5));
        }
    }
    outcomes.assert_none_is_silent("postgresql", seed);
}
