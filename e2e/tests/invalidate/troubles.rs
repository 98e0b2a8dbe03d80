//! Troubles of a deployment: processes that die or stall, and faults of databases and networks that
//! damage a log.

use testkit::database::Brand;

use crate::cut::{Fault, GTID, ROWS};
use crate::database::Database;

/// One kind of trouble.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Trouble {
    /// `kill -9` of the invalidator.
    Invalidator,
    /// `kill -9` of a cache server.
    Server(usize),
    /// `kill -9` of the proxy.
    Proxy,
    /// The log's connection is closed.
    Connection,
    /// `kill -9` of the database.
    Database,
    /// A cache server does not answer for a while.
    Slow(usize),
    /// Statements, which may fail.
    Statements(&'static str),
    /// A gap in the transaction identifiers.
    Hole,
    /// The log is gone when the invalidator is back.
    Purged,
    /// Another follower with the same number.
    Twin,
    /// An event is changed or cut on its way.
    Damage(u8, Fault),
}

/// One transaction with 40,000 rows, twice as many changes.
const HUGE: &str = "BEGIN; INSERT INTO items SELECT a.id * 201 + b.id + 1000, 0 FROM items a, items b; \
                    DELETE FROM items WHERE id > 999; COMMIT";

const ALL: [Trouble; 9] = [
    Trouble::Invalidator,
    Trouble::Server(0),
    Trouble::Server(1),
    Trouble::Proxy,
    Trouble::Connection,
    Trouble::Database,
    Trouble::Slow(0),
    Trouble::Slow(2),
    Trouble::Statements(HUGE),
];

const BINARY_LOGS: [Trouble; 6] = [
    Trouble::Statements("FLUSH BINARY LOGS"),
    // Tables get new numbers, and other columns.
    Trouble::Statements("FLUSH TABLES"),
    Trouble::Statements(
        "ALTER TABLE items ADD COLUMN w INT FIRST; ALTER TABLE items DROP COLUMN w",
    ),
    Trouble::Hole,
    Trouble::Purged,
    Trouble::Twin,
];

const MARIADB: [Trouble; 4] = [
    Trouble::Statements(
        "SET GLOBAL log_bin_compress_min_len = 10; SET GLOBAL log_bin_compress = NOT @@GLOBAL.log_bin_compress",
    ),
    Trouble::Damage(ROWS, Fault::Flip(22)),
    Trouble::Damage(GTID, Fault::Flip(20)),
    Trouble::Damage(ROWS, Fault::Half),
];

/// All troubles that this database supports.
pub(crate) fn of(database: &Database) -> Vec<Trouble> {
    let mut all = ALL.to_vec();
    if let Some(brand) = database.brand() {
        all.extend(BINARY_LOGS);
        if brand == Brand::MariaDb {
            all.extend(MARIADB);
        }
    }
    all
}

/// Commits a transaction whose identifier is far ahead of the last one.
pub(crate) fn leave_out(database: &Database) {
    let Database::Mysqld(server) = database else { return };
    let last = server.gtids();
    let hole = 100_000;
    match server.brand() {
        Brand::MariaDb => {
            let number = last.rsplit('-').next().and_then(|number| number.parse::<u64>().ok());
            let number = number.expect("a number") + hole;
            server.sql(&format!(
                "SET SESSION gtid_seq_no = {number}; CREATE OR REPLACE TABLE holes (id INT)"
            ));
        }
        Brand::MySql => {
            let (uuid, numbers) = last.split_once(':').expect("one server");
            let number = numbers.rsplit(['-', ':']).next().and_then(|one| one.parse::<u64>().ok());
            let number = number.expect("a number") + hole;
            server.sql(&format!("SET gtid_next = '{uuid}:{number}'; BEGIN; COMMIT"));
        }
    }
}

/// Removes the log except for its newest file. No client reads it.
pub(crate) fn purge(database: &Database) {
    let Database::Mysqld(server) = database else { return };
    server.sql("FLUSH BINARY LOGS; FLUSH BINARY LOGS");
    crate::mysql::purge(server);
}
