//! MariaDB, and MySQL, which has the same start and client.

use std::env;
use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use super::{Folder, Session, done, until_up};
use crate::process::free_port;

/// The make of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Brand {
    /// MariaDB, Debian's package, or the one at `MARIADB_HOME`.
    MariaDb,
    /// MySQL 8.0, which `cargo xtask install` puts below `E2E_TOOLS`, or the one at `MYSQL_HOME`,
    /// of 8.4 or later.
    MySql,
}

/// The size of the redo log. A server recreates one of another size.
const REDO_LOG: &str = "--innodb-log-file-size=32M";

/// A server with a binary log, whose user `holdall` has the password `secret` and every right.
#[derive(Debug)]
pub struct Mysqld {
    brand: Brand,
    child: Child,
    folder: Folder,
    port: u16,
    flags: Vec<String>,
}

impl Brand {
    /// Both of them.
    pub const ALL: [Self; 2] = [Self::MariaDb, Self::MySql];

    /// Its name in a configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::MariaDb => "mariadb",
            Self::MySql => "mysql",
        }
    }

    /// False for MySQL 8.0.15, whose build has no cipher in common with rustls.
    #[must_use]
    pub fn has_tls(self) -> bool {
        self == Self::MariaDb || mysql_home().is_some()
    }

    fn program(self) -> PathBuf {
        match self {
            Self::MariaDb => {
                mariadb_home().map_or_else(|| "mariadbd".into(), |home| home.join("bin/mariadbd"))
            }
            Self::MySql => {
                if let Some(home) = mysql_home() {
                    return home.join("bin/mysqld");
                }
                let tools = env::var_os("E2E_TOOLS").map(PathBuf::from).unwrap_or_else(|| {
                    // TARGET/PROFILE/deps/TEST
                    let own = env::current_exe().expect("a test knows its own path");
                    own.ancestors().nth(3).expect("a target folder").join("e2e")
                });
                let program = tools.join("mysql/bin/mysqld");
                assert!(program.is_file(), "{}: run cargo xtask install", program.display());
                program
            }
        }
    }

    /// Flags that only this one has or needs.
    fn flags(self) -> &'static [&'static str] {
        let is_new = mysql_home().is_some();
        match self {
            Self::MariaDb => &["--plugin-load-add=ha_blackhole", REDO_LOG],
            // Its users have passwords of the default kind since 8.0. Debian's uses a folder for
            // files that only its package creates.
            Self::MySql if is_new => &[
                "--gtid-mode=ON",
                "--enforce-gtid-consistency=ON",
                "--mysqlx=OFF",
                "--secure-file-priv=",
                "--innodb-redo-log-capacity=32M",
            ],
            Self::MySql => &[
                "--gtid-mode=ON",
                "--enforce-gtid-consistency=ON",
                "--default-authentication-plugin=mysql_native_password",
                "--mysqlx=OFF",
                REDO_LOG,
            ],
        }
    }
}

impl Mysqld {
    /// Starts a MariaDB server with a binary log of rows; `flags` come last, so they win.
    #[must_use]
    pub fn mariadb(server_id: u32, flags: &[&str]) -> Self {
        Self::start(Brand::MariaDb, server_id, flags)
    }

    /// Starts a server with a binary log of rows, MySQL's with transaction identifiers; `flags`
    /// come last, so they win.
    #[must_use]
    pub fn start(brand: Brand, server_id: u32, flags: &[&str]) -> Self {
        let folder = Folder::new(brand.name());
        let mut copy = Command::new("cp");
        copy.args(["-r", "--sparse=always"]).arg(installed(brand)).arg(folder.0.join("data"));
        done(&mut copy);
        let mut all = vec![
            format!("--server-id={server_id}"),
            format!("--report-port={server_id}"),
            "--log-bin=bl".to_owned(),
            "--binlog-format=ROW".to_owned(),
            "--binlog-row-metadata=FULL".to_owned(),
            "--character-set-server=utf8mb4".to_owned(),
            "--log-slave-updates".to_owned(),
            "--innodb-buffer-pool-size=32M".to_owned(),
            "--performance-schema=OFF".to_owned(),
            "--slave-net-timeout=5".to_owned(),
            // No write waits for the disk: a killed process's writes stay.
            "--innodb-flush-method=nosync".to_owned(),
            "--sync-binlog=0".to_owned(),
        ];
        all.extend(brand.flags().iter().map(ToString::to_string));
        all.extend(flags.iter().map(ToString::to_string));
        let port = free_port();
        let child = spawn(brand, &folder, port, &all);
        let mut database = Self { brand, child, folder, port, flags: all };
        database.wait();
        database.sql("CREATE USER holdall IDENTIFIED BY 'secret'; GRANT ALL ON *.* TO holdall; CREATE DATABASE shop");
        database
    }

    /// The make of the server.
    #[must_use]
    pub const fn brand(&self) -> Brand {
        self.brand
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

    /// Its listening address.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }

    /// Runs statements in the database `shop` (if it exists); returns the last result's rows,
    /// tab-separated, without names.
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

    /// A separate connection over TCP.
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
        let by = match self.brand {
            Brand::MariaDb => "MASTER_USE_GTID=slave_pos",
            // Its users' passwords are encrypted with a key of the server.
            Brand::MySql if self.has_new_words() => {
                "MASTER_AUTO_POSITION=1, GET_MASTER_PUBLIC_KEY=1"
            }
            Brand::MySql => "MASTER_AUTO_POSITION=1",
        };
        self.replicate(&format!(
            "STOP SLAVE; CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT={port}, MASTER_USER='holdall', MASTER_PASSWORD='secret', \
             {by}, MASTER_CONNECT_RETRY=1; START SLAVE"
        ));
    }

    /// Stops following another server.
    pub fn stop_following(&self) {
        self.replicate("STOP SLAVE");
    }

    /// Empties its log, and starts again with the first transaction.
    pub fn reset_log(&self) {
        self.replicate("RESET MASTER");
    }

    /// The current file of its log.
    #[must_use]
    pub fn log_file(&self) -> String {
        let status = self.replicate("SHOW MASTER STATUS");
        status.split_whitespace().next().unwrap_or_default().to_owned()
    }

    /// MySQL 8.4 knows only the newer words for replication.
    fn has_new_words(&self) -> bool {
        self.brand == Brand::MySql && mysql_home().is_some()
    }

    /// Runs statements about replication, written in the older words.
    #[track_caller]
    fn replicate(&self, statements: &str) -> String {
        if !self.has_new_words() {
            return self.sql(statements);
        }
        let words = [
            ("RESET MASTER", "RESET BINARY LOGS AND GTIDS"),
            ("SHOW MASTER STATUS", "SHOW BINARY LOG STATUS"),
            ("CHANGE MASTER TO", "CHANGE REPLICATION SOURCE TO"),
            ("MASTER_", "SOURCE_"),
            ("SLAVE", "REPLICA"),
        ];
        let replaced =
            words.iter().fold(statements.to_owned(), |text, (old, new)| text.replace(old, new));
        self.sql(&replaced)
    }

    /// The two first numbers of its version.
    #[must_use]
    pub fn version(&self) -> (u32, u32) {
        let text = self.sql("SELECT VERSION()");
        let mut numbers = text.trim().split(['.', '-']).map(str::parse);
        let mut next = || numbers.next().and_then(Result::ok).expect("a version has numbers");
        (next(), next())
    }

    /// True if its log has the rows that foreign keys change.
    #[must_use]
    pub fn logs_cascades(&self) -> bool {
        self.brand == Brand::MySql && self.version() >= (9, 6)
    }

    /// Delays its replication by a number of seconds.
    pub fn lag(&self, secs: u32) {
        self.replicate(&format!("STOP SLAVE; CHANGE MASTER TO MASTER_DELAY={secs}; START SLAVE"));
    }

    /// The identifiers of the transactions in its log.
    #[must_use]
    pub fn gtids(&self) -> String {
        let name = match self.brand {
            Brand::MariaDb => "gtid_binlog_pos",
            Brand::MySql => "gtid_executed",
        };
        self.sql(&format!("SELECT @@GLOBAL.{name}")).split_whitespace().collect()
    }

    /// Waits until it has these transactions of the server that it follows.
    #[track_caller]
    pub fn catch_up(&self, gtids: &str) {
        let function = match self.brand {
            Brand::MariaDb => "MASTER_GTID_WAIT",
            Brand::MySql => "WAIT_FOR_EXECUTED_GTID_SET",
        };
        let waited = self.sql(&format!("SELECT {function}('{gtids}', 60)"));
        assert_eq!(waited.trim(), "0", "it does not follow");
    }

    /// Ends the process at once, as a crash does.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Starts it again after [`Self::kill`].
    pub fn restart(&mut self) {
        self.child = spawn(self.brand, &self.folder, self.port, &self.flags);
        self.wait();
    }
}

impl Drop for Mysqld {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The folder of a MariaDB other than Debian's.
fn mariadb_home() -> Option<PathBuf> {
    env::var_os("MARIADB_HOME").map(PathBuf::from)
}

/// The folder of a MySQL other than that of `cargo xtask install`.
fn mysql_home() -> Option<PathBuf> {
    env::var_os("MYSQL_HOME").map(PathBuf::from)
}

/// A data folder for a new server of this version, made once and kept next to the test programs.
fn installed(brand: Brand) -> &'static Path {
    static MADE: [OnceLock<PathBuf>; 2] = [OnceLock::new(), OnceLock::new()];
    let made = MADE[brand as usize].get_or_init(|| {
        let own = env::current_exe().expect("a test knows its own path");
        let beside = own.parent().expect("a program is in a folder");
        let mut version = done(Command::new(brand.program()).args(["--no-defaults", "--version"]));
        version.retain(|letter| letter.is_ascii_alphanumeric());
        let kept = beside.join(format!("database-{version}"));
        if !kept.is_dir() {
            let part = Folder(beside.join(format!("database-{version}-{}", std::process::id())));
            let mut install = install(brand);
            install.arg(format!("--datadir={}", part.0.display()));
            done(as_root(&mut install));
            // It names the server; each copy needs a different name.
            let _ = fs::remove_file(part.0.join("auto.cnf"));
            // Another test program may have been faster: then its folder stays, and this one is
            // removed.
            let _ = fs::rename(&part.0, &kept);
        }
        kept
    });
    made.as_path()
}

fn install(brand: Brand) -> Command {
    match brand {
        Brand::MariaDb => {
            let home = mariadb_home();
            let name = "mariadb-install-db";
            let program =
                home.as_ref().map_or_else(|| name.into(), |home| home.join("scripts").join(name));
            let mut install = Command::new(program);
            let no_password = "--auth-root-authentication-method=normal";
            install.args(["--no-defaults", no_password, "--skip-test-db", REDO_LOG]);
            install.args(home.map(|home| format!("--basedir={}", home.display())));
            install
        }
        Brand::MySql => {
            let mut install = Command::new(brand.program());
            install.args(["--no-defaults", "--initialize-insecure"]).args(brand.flags());
            install
        }
    }
}

fn spawn(brand: Brand, folder: &Folder, port: u16, flags: &[String]) -> Child {
    let log = File::options().create(true).append(true).open(folder.0.join("log")).expect("a log");
    let mut server = Command::new(brand.program());
    server.arg("--no-defaults");
    if let (Brand::MariaDb, Some(home)) = (brand, mariadb_home()) {
        server.arg(format!("--basedir={}", home.display()));
        // From 11.4 on, each start makes a certificate, for half a minute.
        server.arg("--skip-ssl");
    }
    server.arg(format!("--datadir={}", folder.0.join("data").display()));
    // Temporary tables of several servers in one folder would have the same names.
    server.arg(format!("--tmpdir={}", folder.0.display()));
    server.arg(format!("--socket={}", folder.0.join("socket").display()));
    server.arg(format!("--pid-file={}", folder.0.join("pid").display()));
    server.args(["--bind-address=127.0.0.1", &format!("--port={port}"), "--skip-name-resolve"]);
    server.args(flags);
    as_root(&mut server);
    server.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().expect("it is installed")
}

/// The server refuses to run as root without this flag; the folder is its own.
fn as_root(command: &mut Command) -> &mut Command {
    if rustix::process::geteuid().is_root() {
        command.arg("--user=root");
    }
    command
}
