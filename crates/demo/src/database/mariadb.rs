//! MariaDB: its start, and its SQL.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use processes::free_port;
use rustix::process::Signal;

use super::{NAME, TABLES, USER};
use crate::folder::Folder;
use crate::process::{Process, command, done, local};

/// The server and the program that creates its folder.
pub(super) fn programs() -> Option<[PathBuf; 2]> {
    Some([found("mariadbd")?, found("mariadb-install-db")?])
}

/// A program in the search path, or in the folder of servers, which users do not search.
fn found(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let servers = ["/usr/sbin", "/usr/libexec"].map(PathBuf::from);
    let mut all = std::env::split_paths(&path).chain(servers).map(|folder| folder.join(name));
    all.find(|file| file.is_file())
}

pub(super) async fn start(
    folder: &Folder,
    name: &str,
    number: u32,
    password: &str,
) -> Result<Process> {
    let [server, install] = programs().context("MariaDB is not installed")?;
    let data = folder.path().join("data");
    let at = |option: &str, path: &Path| format!("--{option}={}", path.display());
    let mut make = command(folder, &install.display().to_string());
    make.args(["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"]);
    make.args([at("datadir", &data), at("tmpdir", folder.path())]);
    done(&mut make, "mariadb-install-db")?;
    // The initial statements belong to each server, and are not in the log.
    let init = folder.write(
        "init.sql",
        &format!(
            "SET sql_log_bin = 0;\nCREATE USER IF NOT EXISTS {USER} IDENTIFIED BY '{password}';\n\
             GRANT ALL ON *.* TO {USER};\nCREATE DATABASE IF NOT EXISTS {NAME};\n"
        ),
    )?;
    let port = free_port()?;
    let mut words = vec![
        server.display().to_string(),
        "--no-defaults".to_owned(),
        at("datadir", &data),
        at("tmpdir", folder.path()),
        at("socket", &folder.path().join("socket")),
        at("pid-file", &folder.path().join("pid")),
        at("init-file", &init),
        format!("--port={port}"),
        format!("--server-id={number}"),
    ];
    words.extend(SETTINGS.map(str::to_owned));
    // Nothing in the folder must survive the run.
    Process::start(folder, name, words, local(port), Signal::KILL).await
}

const SETTINGS: [&str; 14] = [
    "--bind-address=127.0.0.1",
    "--skip-name-resolve",
    "--log-bin=log",
    "--binlog-format=ROW",
    "--binlog-row-metadata=FULL",
    "--log-slave-updates",
    "--character-set-server=utf8mb4",
    "--innodb-buffer-pool-size=64M",
    "--innodb-flush-log-at-trx-commit=0",
    "--sync-binlog=0",
    "--performance-schema=OFF",
    "--max-connections=500",
    "--slave-net-timeout=10",
    "--transaction-isolation=READ-COMMITTED",
];

pub(super) fn filling(rows: [u64; 2]) -> Vec<String> {
    let mut all = vec!["CREATE TABLE pulse (id INT PRIMARY KEY, at BIGINT NOT NULL)".to_owned()];
    all.push("INSERT INTO pulse VALUES (0, 0)".to_owned());
    for (table, rows) in TABLES.iter().zip(rows) {
        all.push(format!(
            "CREATE TABLE {table} (id BIGINT PRIMARY KEY, version BIGINT NOT NULL, body VARCHAR(200) NOT NULL)"
        ));
        let last = rows.saturating_sub(1);
        all.push(format!(
            "INSERT INTO {table} SELECT seq, 1, REPEAT(MD5(seq), 3) FROM seq_0_to_{last}"
        ));
    }
    all
}

pub(super) fn following(primary: SocketAddr, password: &str) -> Vec<String> {
    let (host, port) = (primary.ip(), primary.port());
    vec![
        format!(
            "CHANGE MASTER TO MASTER_HOST='{host}', MASTER_PORT={port}, MASTER_USER='{USER}', MASTER_PASSWORD='{password}', \
             MASTER_USE_GTID=slave_pos, MASTER_CONNECT_RETRY=1, MASTER_HEARTBEAT_PERIOD=1"
        ),
        "START SLAVE".to_owned(),
    ]
}

pub(super) fn lagging(delay: Duration) -> Vec<String> {
    let secs = delay.as_secs();
    vec![
        "STOP SLAVE".to_owned(),
        format!("CHANGE MASTER TO MASTER_DELAY={secs}"),
        "START SLAVE".to_owned(),
    ]
}
