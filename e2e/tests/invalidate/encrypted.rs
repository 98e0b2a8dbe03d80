//! TLS to MariaDB: trusted and refused certificates, and no retries after a refusal. TLS and logins
//! to routers.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use e2e::certificates::Certificates;
use e2e::invalidator::{Invalidator, mysqld_source};
use testkit::database::{Brand, Mysqld};
use testkit::process::free_port;
use testkit::{Router, router};

use crate::harness::{absent, cache, fill, until_absent};

const KEYS: &str = "[keys.tables]\n\"shop.users\" = \"user:{id}\"";

/// The certificate is for 127.0.0.1, and not for 127.0.0.2.
const EVERYWHERE: &str = "--bind-address=127.0.0.1,127.0.0.2";

fn started(files: &Certificates) -> Mysqld {
    let file = |option: &str, name: &str| format!("--ssl-{option}={}", files.path(name));
    let (cert, key) = (file("cert", "server.crt"), file("key", "server.key"));
    let ca = file("ca", "ca.crt");
    let required = "--require-secure-transport=ON";
    let database = Mysqld::mariadb(1, &[&cert, &key, &ca, required, EVERYWHERE]);
    database.sql("CREATE TABLE users (id INT PRIMARY KEY)");
    database
}

/// An invalidator that reads from this address of the database, with these settings.
fn reading(database: &Mysqld, host: &str, more: &str, cache: SocketAddr) -> Invalidator {
    let source = mysqld_source(&[database], more).replace("127.0.0.1", host);
    Invalidator::new(&source, KEYS, &[cache], "")
}

#[test]
fn sslmode_sets_the_certificate_verification() {
    let files = Certificates::new();
    let server = cache();
    let database = started(&files);
    let with = |host: &str, mode: &str, issuers: &str| {
        let mut more = String::new();
        if !mode.is_empty() {
            let _ = writeln!(more, "sslmode = \"{mode}\"");
        }
        if !issuers.is_empty() {
            let _ = writeln!(more, "sslrootcert = \"{}\"", files.path(issuers));
        }
        reading(&database, host, &more, server.addr())
    };
    for (host, mode, issuers) in [
        ("127.0.0.1", "prefer", ""),
        ("127.0.0.2", "require", ""),
        ("127.0.0.1", "verify-full", "ca.crt"),
    ] {
        let mut invalidator = with(host, mode, issuers);
        invalidator.start(&[]);
        fill(&server, &["user:1"]);
        database.sql("INSERT INTO users VALUES (1); DELETE FROM users");
        until_absent(&server, &["user:1"], &["user:1"], &invalidator);
    }
    // Each also ends `run`: a retry would change nothing.
    for (host, mode, issuers, fault) in [
        ("127.0.0.1", "verify-ca", "ca.crt", "verify-full"),
        ("127.0.0.1", "verify-full", "other-ca.crt", "UnknownIssuer"),
        ("127.0.0.1", "verify-full", "", "UnknownIssuer"),
        ("127.0.0.2", "verify-full", "ca.crt", "not valid for name"),
        ("127.0.0.1", "verify-full", "absent.crt", "absent.crt"),
        ("127.0.0.1", "disable", "", "Access denied"),
        ("127.0.0.1", "", "", "Access denied"),
    ] {
        let said = with(host, mode, issuers).refusal("run", &[]);
        assert!(said.contains(fault), "{mode} {issuers}: {said}");
    }
}

#[test]
fn a_server_without_tls_is_refused_unless_tls_is_only_preferred() {
    let database = Mysqld::mariadb(1, &["--skip-ssl"]);
    database.sql("CREATE TABLE users (id INT PRIMARY KEY)");
    let server = cache();
    for mode in ["require", "verify-full"] {
        let more = format!("sslmode = \"{mode}\"");
        let said = reading(&database, "127.0.0.1", &more, server.addr()).refusal("run", &[]);
        assert!(said.contains("does not offer TLS"), "{mode}: {said}");
    }
    let more = "sslmode = \"prefer\"";
    reading(&database, "127.0.0.1", more, server.addr()).start(&[]);
}

/// MySQL has a separate error code for it.
#[test]
fn mysql_requiring_tls_is_not_retried() {
    let database = Mysqld::start(Brand::MySql, 1, &[]);
    database.sql("SET GLOBAL require_secure_transport = ON");
    let server = cache();
    let said = reading(&database, "127.0.0.1", "", server.addr()).refusal("run", &[]);
    assert!(said.contains("set sslmode in [source]"), "{said}");
}

/// Deletes, the canary and the monitor use a router that requires TLS and a login.
#[test]
fn routers_with_tls_and_logins_are_used_and_verified() {
    let files = Certificates::new();
    let database = Mysqld::mariadb(1, &[]);
    let canary = "CREATE TABLE canary (name VARCHAR(190) PRIMARY KEY, beat BIGINT NOT NULL)";
    database.sql(&format!("CREATE TABLE users (id INT PRIMARY KEY); {canary}"));
    let server = cache();
    let users = files.folder.write("users", "app:secret\n");
    let port = free_port();
    let (chain, key) = (files.path("server.crt"), files.path("server.key"));
    let _router = Router::start(
        &router::config(&[server.addr()], r#""PoolRoute|A""#),
        &[
            "--asynclog-disable",
            "--enable-flush-cmd",
            "--ssl-port",
            &port.to_string(),
            "--pem-cert-path",
            &chain,
            "--pem-key-path",
            &key,
            "-Y",
            &users,
        ],
    );
    let secured = SocketAddr::from(([127, 0, 0, 1], port));
    // The reply to a refused login is delayed.
    let more = "[canary]\ntable = \"shop.canary\"\nevery_ms = 200\n[monitor]\none_in = 1\n\
        [delivery]\nanswer_within_ms = 10000";
    let with = |issuers: &str, password: &str| {
        let password = files.folder.write(&format!("password-{password}"), password);
        let table = format!(
            "[routers]\nsslrootcert = \"{}\"\nuser = \"app\"\npassword_file = \"{password}\"\n{more}",
            files.path(issuers)
        );
        Invalidator::new(&mysqld_source(&[&database], ""), KEYS, &[secured], &table)
    };
    let mut invalidator = with("ca.crt", "secret");
    invalidator.start(&[]);
    fill(&server, &["user:1"]);
    database.sql("INSERT INTO users VALUES (1)");
    until_absent(&server, &["user:1"], &["user:1"], &invalidator);
    invalidator.until("cluster:c0:canary_proven", |count| count > 0);
    invalidator.until("cluster:c0:monitor_cached", |count| count > 0);
    fill(&server, &["user:1"]);
    invalidator.run("flush", &["--prefix", "user:"]);
    assert_eq!(absent(&server, &["user:1"]), ["user:1"]);
    invalidator.kill();
    for (issuers, password, fault) in
        [("other-ca.crt", "secret", "UnknownIssuer"), ("ca.crt", "wrong", "the login was refused")]
    {
        let mut invalidator = with(issuers, password);
        invalidator.start(&[]);
        fill(&server, &["user:2"]);
        database.sql("REPLACE INTO users VALUES (2)");
        let end = Instant::now() + Duration::from_secs(30);
        while !invalidator.run("status", &[]).contains(fault) {
            assert!(Instant::now() < end, "{}", invalidator.run("status", &[]));
            thread::sleep(Duration::from_millis(50));
        }
        assert!(absent(&server, &["user:2"]).is_empty());
    }
}

/// A router that requires client certificates accepts deletes from an invalidator with a valid one;
/// without one, the invalidator reports the router as unavailable.
#[test]
fn the_invalidator_presents_its_client_certificate() {
    let files = Certificates::new();
    let database = Mysqld::mariadb(1, &[]);
    database.sql("CREATE TABLE users (id INT PRIMARY KEY)");
    let server = cache();
    let port = free_port().to_string();
    let (chain, key, ca) =
        (files.path("server.crt"), files.path("server.key"), files.path("ca.crt"));
    let certificates = ["--pem-cert-path", &chain, "--pem-key-path", &key, "--pem-ca-path", &ca];
    let port_flags = ["--asynclog-disable", "--ssl-require-peer-certs", "--ssl-port", &port];
    let _router = Router::start(
        &router::config(&[server.addr()], r#""PoolRoute|A""#),
        &[&port_flags[..], &certificates].concat(),
    );
    let secured = SocketAddr::from(([127, 0, 0, 1], port.parse().unwrap()));
    let showing = |own: Option<&str>| {
        let mut table = format!("[routers]\nsslrootcert = \"{ca}\"\n");
        if let Some(name) = own {
            let path = |kind: &str| files.path(&format!("{name}.{kind}"));
            let _ = write!(table, "sslcert = \"{}\"\nsslkey = \"{}\"", path("crt"), path("key"));
        }
        Invalidator::new(&mysqld_source(&[&database], ""), KEYS, &[secured], &table)
    };
    for own in [Some("client"), None, Some("foreign"), Some("expired")] {
        let mut invalidator = showing(own);
        invalidator.start(&[]);
        fill(&server, &["user:1"]);
        database.sql("INSERT INTO users VALUES (1); DELETE FROM users");
        if own == Some("client") {
            until_absent(&server, &["user:1"], &["user:1"], &invalidator);
            continue;
        }
        invalidator.until("keys", |count| count > 0);
        let end = Instant::now() + Duration::from_secs(30);
        while !invalidator.run("status", &[]).contains("last_error") {
            assert!(Instant::now() < end, "{own:?}: {}", invalidator.run("status", &[]));
            thread::sleep(Duration::from_millis(50));
        }
        assert!(absent(&server, &["user:1"]).is_empty(), "{own:?}");
    }
}
