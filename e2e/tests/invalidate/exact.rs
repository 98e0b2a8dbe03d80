//! Markers that hold a position in the log: in a region whose database lags by three seconds, a
//! writer of a row then reads its own version or a newer one, even with other writers.

use std::thread;

use client::{Client, Markers, Position, ReadFrom, block_on};
use e2e::invalidator::{Invalidator, mysqld_source};
use testkit::database::{Brand, Mysqld, Postgres};

use super::harness::cache;

/// The replica's lag in seconds.
const LAG: u32 = 3;

/// The number of writes of each writer.
const WRITES: usize = 12;

/// A master, and the region's replica.
enum Databases {
    Mysqld([Mysqld; 2]),
    Postgres([Postgres; 2]),
}

impl Databases {
    fn mysqld(brand: Brand) -> Self {
        let both = [Mysqld::start(brand, 1, &[]), Mysqld::start(brand, 2, &[])];
        // Both have created their own user and database; replication starts after that.
        both.iter().for_each(Mysqld::reset_log);
        both[1].follow(&both[0]);
        both[0].sql("CREATE TABLE t (id INT PRIMARY KEY, v INT); INSERT INTO t VALUES (1, 0)");
        both[1].catch_up(&both[0].gtids());
        both[1].lag(LAG);
        Self::Mysqld(both)
    }

    fn postgres() -> Self {
        let master = Postgres::start(&[]);
        master.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT); INSERT INTO t VALUES (1, 0)");
        let delay = format!("recovery_min_apply_delay={LAG}s");
        let replica = Postgres::standby_of(&master, &[&delay]);
        Self::Postgres([master, replica])
    }

    /// Writes the next version of the row.
    fn write(&self) -> (i64, Position) {
        let (version, place) = match self {
            Self::Mysqld([master, _]) => {
                let place = match master.brand() {
                    Brand::MariaDb => "CONCAT('mariadb-gtid:', @@last_gtid)",
                    Brand::MySql => "CONCAT('mysql-gtid:', @@GLOBAL.gtid_executed)",
                };
                let said = master.sql(&format!(
                    "UPDATE t SET v = LAST_INSERT_ID(v + 1) WHERE id = 1; \
                     SELECT LAST_INSERT_ID(), {place}"
                ));
                let (version, place) = said.trim().split_once('\t').unwrap();
                (version.to_owned(), place.to_owned())
            }
            Self::Postgres([master, _]) => {
                let version = master.sql("UPDATE t SET v = v + 1 WHERE id = 1 RETURNING v");
                (version, master.sql("SELECT 'lsn:' || pg_current_wal_insert_lsn()"))
            }
        };
        (version.trim().parse().unwrap(), place.trim().parse().unwrap())
    }

    fn read(&self, place: usize) -> i64 {
        let query = "SELECT v FROM t WHERE id = 1";
        let said = match self {
            Self::Mysqld(both) => both[place].sql(query),
            Self::Postgres(both) => both[place].sql(query),
        };
        said.trim().parse().unwrap()
    }

    /// True if the replica has reached this position.
    fn has(&self, place: &Position) -> bool {
        let query = place.reached_query();
        let said = match self {
            Self::Mysqld([_, replica]) => replica.sql(&query),
            Self::Postgres([_, replica]) => replica.sql(&query),
        };
        matches!(said.trim(), "1" | "t")
    }

    /// The row, read from the source that the markers choose; true if that is the replica.
    fn load(&self, from: &ReadFrom) -> (i64, bool) {
        let is_local = match from {
            ReadFrom::Local => true,
            ReadFrom::LocalAt(place) => self.has(place),
            ReadFrom::Master => false,
        };
        (self.read(usize::from(is_local)), is_local)
    }
}

fn own_writes_are_read(databases: &Databases) {
    let server = cache();
    // The invalidator of the region's log deletes the key, and no marker.
    let mut invalidator = match databases {
        Databases::Mysqld([_, replica]) => {
            let keys = "tables = { \"shop.t\" = \"row:{id}\" }";
            let source = mysqld_source(&[replica], "");
            Some(Invalidator::new(&source, keys, &[server.addr()], ""))
        }
        Databases::Postgres(_) => None,
    };
    invalidator.iter_mut().for_each(|one| one.start(&[]));
    let client = Client::builder().servers([server.addr().to_string()]).build().unwrap();
    let markers = Markers::new(client.clone(), "remote:", 300);
    let rows = client.look_aside().takes_stale(false);
    let write_and_read = || {
        for _ in 0..WRITES {
            let write = async || Ok::<_, String>(databases.write());
            let written = block_on(markers.write_at("row:1", write)).unwrap();
            assert_eq!((&written.unmarked, &written.undeleted), (&None, &None));
            for _ in 0..3 {
                let load = async |from| Ok::<_, String>(databases.load(&from).0);
                let shown = block_on(rows.get_or_load_at(&markers, "row:1", load)).unwrap();
                assert!(shown >= written.output, "{} was written, {shown} read", written.output);
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(write_and_read);
        }
    });
    let last = 2 * i64::try_from(WRITES).unwrap();
    assert_eq!(databases.read(0), last);
    // The replica is read again once it has the last write, although the marker still exists.
    loop {
        let from = block_on(markers.read_from("row:1"));
        assert!(matches!(from, ReadFrom::LocalAt(_)), "{from:?}");
        let (version, is_local) = databases.load(&from);
        assert_eq!(version, last);
        if is_local {
            break;
        }
    }
}

#[test]
fn writers_read_their_own_writes_from_mariadb_replicas() {
    own_writes_are_read(&Databases::mysqld(Brand::MariaDb));
}

#[test]
fn writers_read_their_own_writes_from_mysql_replicas() {
    own_writes_are_read(&Databases::mysqld(Brand::MySql));
}

#[test]
fn writers_read_their_own_writes_from_postgresql_replicas() {
    own_writes_are_read(&Databases::postgres());
}
