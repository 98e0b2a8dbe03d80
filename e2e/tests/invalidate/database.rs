//! Either database, where a test is the same for both.

use std::thread;
use std::time::Duration;

use testkit::database::{MariaDb, Postgres, Session};

use crate::{mariadb, postgres};

/// One of the two.
pub(crate) enum Database {
    MariaDb(MariaDb),
    Postgres(Postgres),
}

/// Makes one whose acknowledged commits outlive the process, not the machine: its name, and how.
type Maker = (&'static str, fn() -> Database);

impl Database {
    pub(crate) const BOTH: [Maker; 2] =
        [("mariadb", Self::maria_db), ("postgresql", Self::postgres)];

    pub(crate) fn maria_db() -> Self {
        Self::MariaDb(MariaDb::start(1, &["--innodb-flush-log-at-trx-commit=2", "--sync-binlog=0"]))
    }

    pub(crate) fn postgres() -> Self {
        Self::Postgres(Postgres::start(&[]))
    }

    /// The source's lines in a configuration.
    pub(crate) fn source(&self) -> String {
        match self {
            Self::MariaDb(database) => mariadb::source(&[database], ""),
            Self::Postgres(database) => postgres::source(database),
        }
    }

    /// The table's name in a configuration.
    pub(crate) fn table(&self, name: &str) -> String {
        match self {
            Self::MariaDb(_) => format!("shop.{name}"),
            Self::Postgres(_) => format!("public.{name}"),
        }
    }

    /// Makes a table that is followed, with a row for each of so many numbers from 0 on.
    pub(crate) fn make(&self, name: &str, rows: u64) {
        self.sql(&format!("CREATE TABLE {name} (id BIGINT PRIMARY KEY, v BIGINT)"));
        let numbers = match self {
            Self::MariaDb(_) => format!("SELECT seq - 1, seq FROM seq_1_to_{rows}"),
            Self::Postgres(_) => {
                self.sql(&format!("CREATE PUBLICATION cached FOR TABLE {name}"));
                format!("SELECT n - 1, n FROM generate_series(1, {rows}) n")
            }
        };
        if rows > 0 {
            self.sql(&format!("INSERT INTO {name} {numbers}"));
        }
    }

    /// Inserts so many rows, each transaction as many as `together`.
    pub(crate) fn insert(&self, name: &str, rows: u32, together: u32) {
        let statement = match self {
            Self::MariaDb(_) => format!(
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

    pub(crate) fn sql(&self, statements: &str) -> String {
        match self {
            Self::MariaDb(database) => database.sql(statements),
            Self::Postgres(database) => database.sql(statements),
        }
    }

    pub(crate) fn session(&self) -> Session {
        match self {
            Self::MariaDb(database) => database.session(),
            Self::Postgres(database) => database.session(),
        }
    }

    pub(crate) fn kill_and_restart(&mut self, pause: Duration) {
        match self {
            Self::MariaDb(database) => {
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

    /// Ends the connections on which the log is read.
    pub(crate) fn kill_followers(&self) {
        match self {
            Self::MariaDb(database) => {
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
