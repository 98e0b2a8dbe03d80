//! Columns of MariaDB and MySQL after a column that is misread in the log: the check refuses them,
//! and accepts the table after a change.

use e2e::invalidator::{Invalidator, mysqld_source};
use testkit::database::{Brand, Mysqld};

use crate::harness::{cache, fill, until_absent};

const KEYS: [&str; 2] = ["n:-5:65000", "n:-6:7"];
const TEMPLATE: &str = "[keys.tables]\n\"shop.t\" = \"n:{n}:{k}\"";

#[test]
fn numbers_after_a_year_column_keep_their_sign() {
    Brand::ALL.into_iter().for_each(behind_a_year);
}

fn behind_a_year(brand: Brand) {
    let database = Mysqld::start(brand, 1, &[]);
    database.sql("CREATE TABLE t (y YEAR, id INT PRIMARY KEY, n INT, k SMALLINT UNSIGNED)");
    let server = cache();
    let source = mysqld_source(&[&database], "");
    let mut invalidator = Invalidator::new(&source, TEMPLATE, &[server.addr()], "");
    if database.sql("SELECT VERSION()").starts_with("8.0.15") {
        let said = invalidator.refusal("check", &[]);
        for column in ["n", "k"] {
            assert!(said.contains(&format!("the sign of column '{column}'")), "{said}");
        }
        database.sql("ALTER TABLE t MODIFY y YEAR AFTER k");
    }
    invalidator.start(&[]);
    fill(&server, &KEYS);
    database.sql("INSERT INTO t (y, id, n, k) VALUES (2026, 1, -5, 65000)");
    until_absent(&server, &KEYS, &KEYS[..1], &invalidator);
    database.sql("DROP TABLE t; CREATE TABLE t (y YEAR, id INT PRIMARY KEY, n INT, k SMALLINT)");
    invalidator.run("check", &[]);
}

#[test]
fn a_table_with_old_temporal_columns_is_refused_until_rebuilt() {
    let database = Mysqld::mariadb(1, &[]);
    database.sql(
        "SET GLOBAL mysql56_temporal_format = OFF; \
         CREATE TABLE t (d DATETIME, dt DATETIME(3), n INT PRIMARY KEY, ts TIMESTAMP(2) NULL, \
         k INT); SET GLOBAL mysql56_temporal_format = ON",
    );
    let server = cache();
    let source = mysqld_source(&[&database], "");
    let mut invalidator = Invalidator::new(&source, TEMPLATE, &[server.addr()], "");
    let said = invalidator.refusal("check", &[]);
    assert!(said.contains("table shop.t: column 'dt' is a datetime(3)"), "{said}");
    assert!(said.contains("column 'ts'") && !said.contains("column 'd'"), "{said}");
    database.sql("ALTER TABLE t FORCE");
    invalidator.start(&[]);
    fill(&server, &KEYS);
    database.sql("INSERT INTO t VALUES (NOW(), NOW(3), -6, NULL, 7)");
    until_absent(&server, &KEYS, &KEYS[1..], &invalidator);
}
