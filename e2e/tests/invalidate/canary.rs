//! The canary: if a hop between a commit and the caches is cut, stalled or faulty, the canary's age
//! shows it, and nothing else does.
//!
//! `CANARY` is the number of faults of each database (each once without it), `SEED` repeats their
//! order.

use std::env;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use e2e::invalidator::Invalidator;
use testkit::rng::seed_from_env;
use testkit::{FaultProxy, Mode, Rng, Router, Wire};

use crate::database::Database;
use crate::harness::cache;

const CLUSTER: &str = "cluster:c0";

/// The start and the end of a hop's failure.
struct Fault<'h> {
    name: &'static str,
    begin: Box<dyn Fn() + 'h>,
    end: Box<dyn Fn() + 'h>,
    /// The obstacle that the invalidator reports.
    said: &'static str,
}

fn fault<'h>(
    name: &'static str,
    said: &'static str,
    begin: impl Fn() + 'h,
    end: impl Fn() + 'h,
) -> Fault<'h> {
    Fault { name, begin: Box::new(begin), end: Box::new(end), said }
}

/// A fault that sets the fault proxy to this mode, and back to open.
fn relayed<'h>(
    name: &'static str,
    said: &'static str,
    proxy: &'h FaultProxy,
    mode: Mode,
) -> Fault<'h> {
    fault(name, said, move || proxy.set(mode), || proxy.set(Mode::Open))
}

/// A router's configuration: it sends deletes to the server, or drops and acknowledges them.
fn route(server: &FaultProxy, is_lying: bool) -> String {
    let policies = if is_lying { r#", "operation_policies": {"delete": "NullRoute"}"# } else { "" };
    format!(
        r#"{{"pools": {{"A": {{"servers": ["{}"]}}}}, "route": {{"type": "OperationSelectorRoute", "default_policy": "PoolRoute|A"{policies}}}}}"#,
        server.addr()
    )
}

/// Makes the log omit the canary's table silently.
fn leave_out(database: &Database) {
    match database {
        // Writes to the view are logged under the name of the table behind it.
        Database::Mysqld(database) => database
            .sql("RENAME TABLE canary TO behind; CREATE VIEW canary AS SELECT * FROM behind"),
        Database::Postgres(database) => database.sql("ALTER PUBLICATION cached DROP TABLE canary"),
    };
}

fn take_in(database: &Database) {
    match database {
        Database::Mysqld(database) => {
            database.sql("DROP VIEW canary; RENAME TABLE behind TO canary")
        }
        Database::Postgres(database) => database.sql("ALTER PUBLICATION cached ADD TABLE canary"),
    };
}

/// A database's table and its source, read through `log`; the canary is written through `writes`.
fn configured(database: &Database, log: &FaultProxy, writes: &FaultProxy) -> [String; 3] {
    database.make("items", 2);
    database.sql("CREATE TABLE canary (name VARCHAR(190) PRIMARY KEY, beat BIGINT NOT NULL)");
    if let Database::Postgres(database) = database {
        database.sql("ALTER PUBLICATION cached ADD TABLE canary");
    }
    let source = database.source().replace(&database.addr().to_string(), &log.addr().to_string());
    let keys = format!("[keys.tables]\n\"{}\" = \"item:{{id}}\"", database.table("items"));
    let canary = format!(
        "[canary]\ntable = \"{}\"\nservers = [\"{}\"]\nevery_ms = 600\nkeys = 4",
        database.table("canary"),
        writes.addr()
    );
    [source, keys, canary]
}

#[test]
fn every_failed_hop_makes_the_canary_of_mariadb_late() {
    every_hop_fails(&Database::maria_db());
}

#[test]
fn every_failed_hop_makes_the_canary_of_postgresql_late() {
    every_hop_fails(&Database::postgres());
}

fn every_hop_fails(database: &Database) {
    let server = cache();
    let (log, writes) = (FaultProxy::before(database.addr()), FaultProxy::before(database.addr()));
    let last = FaultProxy::before(server.addr());
    let args =
        ["--probe-timeout-initial", "100", "--probe-timeout-max", "200", "--asynclog-disable"];
    let router = Router::start(&route(&last, false), &args);
    let first = FaultProxy::before(router.addr());
    let [source, keys, canary] = configured(database, &log, &writes);
    let mut invalidator = Invalidator::new(&source, &keys, &[first.addr()], &canary);
    invalidator.start(&[]);
    let lie = |is_lying| fs::write(router.config_path(), route(&last, is_lying)).unwrap();
    let faults = [
        relayed("the log is cut", "is still there", &log, Mode::Refuse),
        relayed("the log is held", "is still there", &log, Mode::Held),
        fault("the log lies", "is still there", || leave_out(database), || take_in(database)),
        relayed("the database is cut", "canary's row", &writes, Mode::Reset),
        relayed(
            "the database is held",
            "writing the canary's row took longer than",
            &writes,
            Mode::Held,
        ),
        fault(
            "commits are not visible",
            "writing the canary's row took longer than",
            || database.hold_commits(),
            || database.release_commits(),
        ),
        relayed("the router is cut", "refused", &first, Mode::Refuse),
        relayed("the router is held", "timed out", &first, Mode::Held),
        fault("the router lies", "is still there", || lie(true), || lie(false)),
        relayed("the server is cut", "SERVER_ERROR", &last, Mode::Refuse),
        relayed("the server is held", "timed out", &last, Mode::Held),
    ];
    let seed = seed_from_env();
    let (mut rng, mut longest) = (Rng::new(seed), (Duration::ZERO, ""));
    let count = env::var("CANARY").map_or(faults.len(), |text| text.parse().expect("a number"));
    for turn in 0..count {
        // The first rounds cover each fault once.
        let at = if turn < faults.len() { turn } else { rng.below(faults.len()) };
        let Fault { name, begin, end, said } = &faults[at];
        invalidator.until(&late(), |late| late == 0);
        begin();
        let began = Instant::now();
        let patience = began + Duration::from_secs(30);
        while !obstacle(&invalidator).contains(said) {
            let found = obstacle(&invalidator);
            assert!(Instant::now() < patience, "{name}: '{found}'\n{}", invalidator.log());
            thread::sleep(Duration::from_millis(20));
        }
        longest = longest.max((began.elapsed(), *name));
        end();
    }
    println!("SEED={seed}: {count} faults, 0 missed; the last alarm after {longest:?}");
    invalidator.until(&late(), |late| late == 0);
    let log = invalidator.log();
    assert!(log.contains("no change is known to have arrived"), "{log}");
    assert!(log.contains("changes arrive again"), "{log}");
}

fn late() -> String {
    format!("{CLUSTER}:canary_late")
}

/// The obstacle of the late canary; empty while it is not late.
fn obstacle(invalidator: &Invalidator) -> String {
    let mut wire = Wire::connect(invalidator.status);
    wire.send(b"stats\r\nquit\r\n");
    let text = String::from_utf8(wire.read_to_end(Duration::from_secs(5)).0).unwrap();
    let name = format!("STAT {CLUSTER}:canary_obstacle ");
    text.lines().find_map(|line| line.strip_prefix(&name)).unwrap_or_default().to_owned()
}

/// A page of the status port.
fn page(invalidator: &Invalidator, path: &str) -> String {
    let mut wire = Wire::connect(invalidator.status);
    wire.send(format!("GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").as_bytes());
    String::from_utf8(wire.read_to_end(Duration::from_secs(5)).0).unwrap()
}

#[test]
fn a_postgresql_canary_needs_no_table_and_skips_a_dead_router() {
    let database = Database::postgres();
    database.make("items", 1);
    let server = cache();
    let dead = FaultProxy::before(server.addr());
    let keys = "[keys.tables]\n\"public.items\" = \"item:{id}\"";
    let cluster = format!(
        "[canary]\nevery_ms = 500\n[[cluster]]\nname = \"both\"\nrouters = [\"{}\", \"{}\"]",
        dead.addr(),
        server.addr()
    );
    let mut invalidator = Invalidator::new(&database.source(), keys, &[], &cluster);
    invalidator.start(&[]);
    invalidator.until("cluster:both:canary_proven", |count| count > 1);
    dead.set(Mode::BlackHole);
    let before = invalidator.stat("cluster:both:canary_proven").unwrap();
    invalidator.until("cluster:both:canary_proven", |count| count > before + 3);
    let metrics = page(&invalidator, "/metrics");
    assert!(metrics.contains("\ninvalidation_canary_seconds{cluster=\"both\"} "), "{metrics}");
    assert_eq!(invalidator.run("check", &[]), "ok\n");
}

#[test]
fn the_check_reports_a_missing_canary_table() {
    let database = Database::maria_db();
    database.make("items", 1);
    let server = cache();
    let keys = "[keys.tables]\n\"shop.items\" = \"item:{id}\"";
    let canary = "[canary]\ntable = \"shop.canary\"\nevery_ms = 500";
    let mut invalidator = Invalidator::new(&database.source(), keys, &[server.addr()], canary);
    let said = invalidator.refusal("check", &[]);
    let make = "CREATE TABLE shop.canary (name VARCHAR(190) PRIMARY KEY, beat BIGINT NOT NULL)";
    assert!(said.contains(make), "{said}");
    // Changes are still followed, but the canary's age shows that nothing proves it.
    invalidator.start(&[]);
    invalidator.until("cluster:c0:canary_late", |late| late == 1);
    assert!(page(&invalidator, "/readyz").contains("canary"), "{}", page(&invalidator, "/readyz"));
    database.sql(make);
    assert_eq!(invalidator.run("check", &[]), "ok\n");
    invalidator.until("cluster:c0:canary_late", |late| late == 0);
    let end = Instant::now() + Duration::from_secs(30);
    while !invalidator.log().contains("changes arrive again") {
        assert!(Instant::now() < end, "{}", invalidator.log());
        thread::sleep(Duration::from_millis(20));
    }
}
