//! A database of any kind, for tests that are the same for all.

use std::net::SocketAddr;
use std::sync::{Arc, RwLock};
use std::thread;
use std::time::Duration;

use testkit::database::{Brand, Mysqld, Postgres, Session};

use e2e::invalidator::mysqld_source;

use crate::postgres;
use testkit::eventually;

/// One of the databases.
pub(crate) enum Database {
    Mysqld(Mysqld),
    Postgres(Postgres),
}

/// A database's name, and its constructor: commits survive the process, but not the machine.
type Maker = (&'static str, fn() -> Database);

/// Returns a function that connects to a database, which may be down.
pub(crate) fn sessions(database: &Arc<RwLock<Database>>) -> Arc<dyn Fn() -> Session + Send + Sync> {
    let database = Arc::clone(database);
    Arc::new(move || database.read().unwrap().session())
}

impl Database {
    pub(crate) const BOTH: [Maker; 2] =
        [("mariadb", Self::maria_db), ("postgresql", Self::postgres)];

    pub(crate) fn maria_db() -> Self {
        Self::started(Brand::MariaDb)
    }

    pub(crate) fn mysql() -> Self {
        Self::started(Brand::MySql)
    }

    fn started(brand: Brand) -> Self {
        let flags = ["--innodb-flush-log-at-trx-commit=2", "--sync-binlog=0"];
        Self::Mysqld(Mysqld::start(brand, 1, &flags))
    }

    pub(crate) fn postgres() -> Self {
        Self::Postgres(Postgres::start(&[]))
    }

    /// The brand of a server with a binary log.
    pub(crate) const fn brand(&self) -> Option<Brand> {
        match self {
            Self::Mysqld(database) => Some(database.brand()),
            Self::Postgres(_) => None,
        }
    }

    /// The address that the database listens on.
    pub(crate) fn addr(&self) -> SocketAddr {
        match self {
            Self::Mysqld(database) => database.addr(),
            Self::Postgres(database) => database.addr(),
        }
    }

    /// The source's lines in a configuration.
    pub(crate) fn source(&self) -> String {
        match self {
            Self::Mysqld(database) => mysqld_source(&[database], ""),
            Self::Postgres(database) => postgres::source(database),
        }
    }

    /// The table's name in a configuration.
    pub(crate) fn table(&self, name: &str) -> String {
        match self {
            Self::Mysqld(_) => format!("shop.{name}"),
            Self::Postgres(_) => format!("public.{name}"),
        }
    }

    /// Creates a followed table, with `rows` rows numbered from 0.
    pub(crate) fn make(&self, name: &str, rows: u64) {
        self.sql(&format!("CREATE TABLE {name} (id BIGINT PRIMARY KEY, v BIGINT)"));
        let numbers = match self {
            Self::Mysqld(database) if database.brand() == Brand::MySql => format!(
                "WITH RECURSIVE numbers AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM numbers WHERE n < {rows}) SELECT n - 1, n FROM numbers"
            ),
            Self::Mysqld(_) => format!("SELECT seq - 1, seq FROM seq_1_to_{rows}"),
            Self::Postgres(_) => {
                self.sql(&format!("CREATE PUBLICATION cached FOR TABLE {name}"));
                format!("SELECT n - 1, n FROM generate_series(1, {rows}) n")
            }
        };
        if rows > 0 {
            self.sql(&format!("INSERT INTO {name} {numbers}"));
        }
    }

    /// Inserts `rows` rows, `together` per transaction.
    pub(crate) fn insert(&self, name: &str, rows: u32, together: u32) {
        let statement = match self {
            Self::Mysqld(_) => format!(
                "DELIMITER ;;\nBEGIN NOT ATOMIC DECLARE i INT DEFAULT 0; WHILE i < {rows} DO \
                 INSERT INTO {name} SELECT i + seq, 0 FROM seq_1_to_{together}; SET i = i + {together}; END WHILE; END;;"
            ),
            Self::Postgres(_) => format!(
                "DO $$ DECLARE i INT := 0; BEGIN WHILE i < {rows} LOOP \
                 INSERT INTO {name} SELECT i + n, 0 FROM generate_series(1, {together}) n; i := i + {together}; COMMIT; END LOOP; END $$"
            ),
        };
        self.sql(&statement);
    }

    /// From now on the log shows commits that no other session sees: they wait for an absent
    /// replica.
    pub(crate) fn hold_commits(&self) {
        match self {
            Self::Mysqld(database) => database.sql(
                "SET GLOBAL rpl_semi_sync_master_timeout = 600000; SET GLOBAL rpl_semi_sync_master_wait_point = 'AFTER_SYNC'; \
                 SET GLOBAL rpl_semi_sync_master_enabled = 1",
            ),
            Self::Postgres(database) => {
                database.sql("ALTER SYSTEM SET synchronous_standby_names = 'absent'");
                let reloaded = database.sql("SELECT pg_reload_conf()");
                // A new session has the new setting once the server has read it.
                let is_set = || database.sql("SHOW synchronous_standby_names").trim() == "absent";
                eventually("the setting", is_set);
                reloaded
            }
        };
    }

    /// Ends the wait.
    pub(crate) fn release_commits(&self) {
        match self {
            Self::Mysqld(database) => database.sql("SET GLOBAL rpl_semi_sync_master_enabled = 0"),
            Self::Postgres(database) => {
                database.sql("ALTER SYSTEM RESET synchronous_standby_names");
                database.sql("SELECT pg_reload_conf()")
            }
        };
    }

    pub(crate) fn sql(&self, statements: &str) -> String {
        match self {
            Self::Mysqld(database) => database.sql(statements),
            Self::Postgres(database) => database.sql(statements),
        }
    }

    pub(crate) fn session(&self) -> Session {
        match self {
            Self::Mysqld(database) => database.session(),
            Self::Postgres(database) => database.session(),
        }
    }

    pub(crate) fn kill_and_restart(&mut self, pause: Duration) {
        match self {
            Self::Mysqld(database) => {
                database.kill();
                thread::sleep(pause);
                database.restart();
            }
            Self::Postgres(database) => {
                database.kill();
                thread::sleep(pause);
                database.restart();
            }
        }
    }

    /// Closes the connections that read the log.
    pub(crate) fn kill_followers(&self) {
        match self {
            Self::Mysqld(database) => {
                let ids = database.sql(
                    "SELECT id FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'",
                );
                for id in ids.split_whitespace() {
                    database.sql(&format!("KILL {id}"));
                }
            }
            Self::Postgres(database) => {
                database.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_replication");
            }
        }
    }
}
