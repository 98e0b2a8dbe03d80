//! MariaDB.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use super::{Folder, Session, done, until_up};
use crate::server::free_port;

/// A MariaDB server with a binary log, whose user `holdall` has the password `secret` and every right.
#[derive(Debug)]
pub struct MariaDb {
    child: Child,
    folder: Folder,
    port: u16,
    flags: Vec<String>,
}

impl MariaDb {
    /// Starts a server with a binary log of rows; `flags` come last, so they win.
    #[must_use]
    pub fn start(server_id: u32, flags: &[&str]) -> Self {
        let folder = Folder::new("mariadb");
        done(Command::new("cp").arg("-r").arg(installed()).arg(folder.0.join("data")));
        let mut all = vec![
            format!("--server-id={server_id}"),
            format!("--report-port={server_id}"),
            "--log-bin=bl".to_owned(),
            "--binlog-format=ROW".to_owned(),
            "--binlog-row-metadata=FULL".to_owned(),
            "--character-set-server=utf8mb4".to_owned(),
            "--log-slave-updates".to_owned(),
            "--innodb-buffer-pool-size=32M".to_owned(),
            "--innodb-log-file-size=32M".to_owned(),
            "--performance-schema=OFF".to_owned(),
            "--slave-net-timeout=5".to_owned(),
            "--plugin-load-add=ha_blackhole".to_owned(),
        ];
        all.extend(flags.iter().map(ToString::to_string));
        let port = free_port();
        let child = spawn(&folder, port, &all);
        let mut database = Self { child, folder, port, flags: all };
        database.wait();
        database.sql("CREATE USER holdall IDENTIFIED BY 'secret'; GRANT ALL ON *.* TO holdall; CREATE DATABASE shop");
        database
    }

    fn wait(&mut self) {
        let (socket, log) = (self.socket(), self.folder.0.join("log"));
        let is_up = || {
            let mut ping = Command::new("mariadb");
            ping.args(["--no-defaults", "-u", "root", "-e", "SELECT 1", "-S"]).arg(&socket);
            ping.output().is_ok_and(|output| output.status.success())
        };
        until_up(&mut self.child, &log, is_up);
    }

    fn socket(&self) -> PathBuf {
        self.folder.0.join("socket")
    }

    /// Where it listens.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }

    /// Runs statements in the database `shop` (if it exists); answers the last result's rows, tab-separated, without names.
    #[track_caller]
    pub fn sql(&self, statements: &str) -> String {
        let mut client = Command::new("mariadb");
        client
            .args(["--no-defaults", "-u", "root", "-N", "-B", "--init-command=USE shop", "-S"])
            .arg(self.socket());
        if statements.starts_with("CREATE USER") {
            client = Command::new("mariadb");
            client.args(["--no-defaults", "-u", "root", "-N", "-B", "-S"]).arg(self.socket());
        }
        done(client.args(["-e", statements]))
    }

    /// A connection of its own, over TCP.
    #[must_use]
    pub fn session(&self) -> Session {
        let mut client = Command::new("mariadb");
        client.args([
            "--no-defaults",
            "-u",
            "holdall",
            "-psecret",
            "-h",
            "127.0.0.1",
            "-P",
            &self.port.to_string(),
        ]);
        Session::start(client.args(["-N", "-B", "-n", "--comments", "--skip-reconnect", "shop"]))
    }

    /// Makes it a replica of another, by transaction identifiers.
    pub fn follow(&self, primary: &Self) {
        let port = primary.port;
        self.sql(&format!(
            "STOP SLAVE; CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT={port}, MASTER_USER='holdall', MASTER_PASSWORD='secret', \
             MASTER_USE_GTID=slave_pos, MASTER_CONNECT_RETRY=1; START SLAVE"
        ));
    }

    /// Ends the process at once, as a crash does.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Starts it again after [`Self::kill`].
    pub fn restart(&mut self) {
        self.child = spawn(&self.folder, self.port, &self.flags);
        self.wait();
    }
}

impl Drop for MariaDb {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A folder as a new server of this version needs it, made once and kept beside the test programs.
fn installed() -> &'static Path {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    let made = MADE.get_or_init(|| {
        let own = std::env::current_exe().expect("a test knows its own path");
        let beside = own.parent().expect("a program is in a folder");
        let mut version = done(Command::new("mariadbd").args(["--no-defaults", "--version"]));
        version.retain(|letter| letter.is_ascii_alphanumeric());
        let kept = beside.join(format!("mariadb-{version}"));
        if !kept.is_dir() {
            let part = Folder(beside.join(format!("mariadb-{}.part", std::process::id())));
            let mut install = Command::new("mariadb-install-db");
            install.args([
                "--no-defaults",
                "--auth-root-authentication-method=normal",
                "--skip-test-db",
            ]);
            install.arg(format!("--datadir={}", part.0.display()));
            done(as_root(&mut install));
            // Another test program may have been faster: then its folder stays, and the part goes.
            let _ = fs::rename(&part.0, &kept);
        }
        kept
    });
    made.as_path()
}

fn spawn(folder: &Folder, port: u16, flags: &[String]) -> Child {
    let log = File::options().create(true).append(true).open(folder.0.join("log")).expect("a log");
    let mut server = Command::new("mariadbd");
    server.arg("--no-defaults").arg(format!("--datadir={}", folder.0.join("data").display()));
    // Temporary tables of several servers in one folder take each other's names.
    server.arg(format!("--tmpdir={}", folder.0.display()));
    server.arg(format!("--socket={}", folder.0.join("socket").display()));
    server.args(["--bind-address=127.0.0.1", &format!("--port={port}"), "--skip-name-resolve"]);
    server.args(flags);
    as_root(&mut server);
    server
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .expect("mariadbd is installed")
}

/// The server refuses to run as root unless told so; the folder is its own.
fn as_root(command: &mut Command) -> &mut Command {
    if rustix::process::geteuid().is_root() {
        command.arg("--user=root");
    }
    command
}
