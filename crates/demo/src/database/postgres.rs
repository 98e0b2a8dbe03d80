//! PostgreSQL: its start, and its SQL.
//!
//! The replica subscribes to the primary's changes (logical replication). Before PostgreSQL 16,
//! which added logical decoding on standbys, the invalidator could not follow a physical standby;
//! Debian 12 has 15.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use processes::free_port;
use rustix::process::Signal;

use super::{NAME, TABLES, USER};
use crate::folder::Folder;
use crate::process::{Process, command, done, local};

/// The server and the program that creates its folder, of the newest version; Debian has a separate
/// folder for each.
pub(super) fn programs() -> Option<[PathBuf; 2]> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?;
    let mut folders: Vec<PathBuf> =
        versions.flatten().map(|version| version.path().join("bin")).collect();
    folders.retain(|folder| folder.join("postgres").is_file() && folder.join("initdb").is_file());
    folders.sort();
    let newest = folders.pop()?;
    Some([newest.join("postgres"), newest.join("initdb")])
}

pub(super) async fn start(folder: &Folder, name: &str, password: &str) -> Result<Process> {
    let [server, initdb] = programs().context("PostgreSQL is not installed")?;
    let secret = folder.write("password", password)?;
    let data = folder.path().join("data");
    let mut make = command(folder, &initdb.display().to_string());
    make.args(["-U", USER, "-A", "scram-sha-256", "-E", "UTF8", "--locale=C", "--no-sync"]);
    make.arg("--pwfile").arg(&secret).arg("-D").arg(&data);
    done(&mut make, "initdb")?;
    let port = free_port()?;
    let mut words = vec![server.display().to_string(), "-D".to_owned(), data.display().to_string()];
    words.extend(["-k".to_owned(), folder.path().display().to_string()]);
    words.extend(["-h", "127.0.0.1", "-p", &port.to_string()].map(str::to_owned));
    for setting in SETTINGS {
        words.extend(["-c".to_owned(), setting.to_owned()]);
    }
    // "Immediate shutdown": its children end first.
    let process = Process::start(folder, name, words, local(port), Signal::QUIT).await?;
    Ok(process)
}

const SETTINGS: [&str; 8] = [
    "wal_level=logical",
    "fsync=off",
    "synchronous_commit=off",
    "shared_buffers=64MB",
    "max_wal_senders=10",
    "max_replication_slots=10",
    "max_connections=500",
    "wal_receiver_timeout=600s",
];

/// Creates the tables in either database, because a subscription creates none; with rows only if
/// `rows` requires it.
fn tables(rows: Option<[u64; 2]>) -> Vec<String> {
    let mut all = vec!["CREATE TABLE pulse (id INT PRIMARY KEY, at BIGINT NOT NULL)".to_owned()];
    for (at, table) in TABLES.iter().enumerate() {
        all.push(format!(
            "CREATE TABLE {table} (id BIGINT PRIMARY KEY, version BIGINT NOT NULL, body VARCHAR(200) NOT NULL)"
        ));
        if let Some(rows) = rows {
            let last = rows[at].saturating_sub(1);
            all.push(format!(
                "INSERT INTO {table} SELECT n, 1, repeat(md5(n::text), 3) FROM generate_series(0, {last}) AS n"
            ));
        }
    }
    if rows.is_some() {
        all.push("INSERT INTO pulse VALUES (0, 0)".to_owned());
    }
    all.push(format!("CREATE PUBLICATION holdall FOR TABLE {}", TABLES.join(", ")));
    all
}

pub(super) fn filling(rows: [u64; 2]) -> Vec<String> {
    let mut all = tables(Some(rows));
    all.push("CREATE PUBLICATION region FOR ALL TABLES".to_owned());
    all
}

pub(super) fn following(primary: SocketAddr, password: &str) -> Vec<String> {
    let (host, port) = (primary.ip(), primary.port());
    let mut all = tables(None);
    all.push(format!(
        "CREATE SUBSCRIPTION region CONNECTION 'host={host} port={port} user={USER} password={password} dbname={NAME}' \
         PUBLICATION region"
    ));
    all
}
