//! PostgreSQL.

use std::env;
use std::fs::{self, File};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Pid;

use super::{Folder, Session, done, until_up};
use crate::process::free_port;

/// A PostgreSQL server with a logical log, whose user `holdall` has the password `secret` and every
/// right, and a database `shop`.
#[derive(Debug)]
pub struct Postgres {
    child: Child,
    folder: Folder,
    port: u16,
    flags: Vec<String>,
}

impl Postgres {
    /// Starts a server; `flags` are settings (`name=value`) that come last, so they win.
    #[must_use]
    pub fn start(flags: &[&str]) -> Self {
        Self::start_in(Folder::new("postgres"), flags)
    }

    /// Starts a server that has TLS, with this certificate and key in PEM.
    #[must_use]
    pub fn start_with_tls(certificate: &Path, key: &Path, flags: &[&str]) -> Self {
        let folder = Folder::new("postgres");
        // The server refuses a key that others can read.
        let keep = |from: &Path, name: &str| {
            let to = folder.0.join(name);
            fs::write(&to, fs::read(from).expect("a certificate")).expect("a copy");
            fs::set_permissions(&to, fs::Permissions::from_mode(0o600)).expect("one's own file");
            own(&to);
            to.display().to_string()
        };
        let certificate = format!("ssl_cert_file={}", keep(certificate, "server.crt"));
        let key = format!("ssl_key_file={}", keep(key, "server.key"));
        let flags = [&["ssl=on", certificate.as_str(), key.as_str()], flags].concat();
        Self::start_in(folder, &flags)
    }

    fn start_in(folder: Folder, flags: &[&str]) -> Self {
        own(&folder.0);
        let data = folder.0.join("data");
        let password = folder.0.join("password");
        fs::write(&password, "secret\n").expect("a file for the password");
        own(&password);
        let mut init = Command::new(binary("initdb"));
        init.args([
            "-U",
            "holdall",
            "-A",
            "scram-sha-256",
            "-E",
            "UTF8",
            "--locale=C",
            "--no-sync",
        ]);
        init.arg("--pwfile").arg(&password).arg("-D").arg(&data);
        done(unprivileged(&mut init));
        let mut all: Vec<String> =
            ["wal_level=logical", "fsync=off", "shared_buffers=16MB", "max_wal_senders=8"]
                .map(ToOwned::to_owned)
                .into();
        all.extend(flags.iter().map(ToString::to_string));
        let port = free_port();
        let child = spawn(&folder.0, port, &all);
        let mut database = Self { child, folder, port, flags: all };
        database.wait();
        database.sql_in("postgres", "CREATE DATABASE shop");
        database
    }

    /// Starts a physical standby of another server; `flags` as for [`Self::start`].
    #[must_use]
    pub fn standby_of(primary: &Self, flags: &[&str]) -> Self {
        let folder = Folder::new("standby");
        own(&folder.0);
        let mut copy = Command::new(binary("pg_basebackup"));
        copy.args(["-h", "127.0.0.1", "-U", "holdall", "-R", "-c", "fast", "--no-sync", "-p"]);
        copy.arg(primary.port.to_string()).env("PGPASSWORD", "secret");
        copy.arg("-D").arg(folder.0.join("data"));
        done(unprivileged(&mut copy));
        let all: Vec<String> =
            primary.flags.iter().cloned().chain(flags.iter().map(ToString::to_string)).collect();
        let port = free_port();
        let child = spawn(&folder.0, port, &all);
        let mut database = Self { child, folder, port, flags: all };
        database.wait();
        // It accepts connections before it receives.
        database.until_receivers("1");
        database
    }

    /// Stops the reception of a standby.
    pub fn cut_off(&self) {
        // Each in a separate transaction, as the server requires.
        self.sql("ALTER SYSTEM SET primary_conninfo = ''");
        self.sql("SELECT pg_reload_conf()");
        self.until_receivers("0");
    }

    fn until_receivers(&self, count: &str) {
        let end = Instant::now() + Duration::from_secs(20);
        while self.sql("SELECT count(*) FROM pg_stat_wal_receiver").trim() != count {
            assert!(Instant::now() < end, "receivers: not {count}");
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Makes a standby accept writes, on a new timeline.
    #[track_caller]
    pub fn promote(&self) {
        assert_eq!(self.sql("SELECT pg_promote()").trim(), "t");
    }

    /// Starts it again after [`Self::kill`], with all of its log, on a new timeline.
    pub fn restart_on_new_timeline(&mut self) {
        let signal = self.folder.0.join("data/standby.signal");
        fs::write(&signal, "").expect("one's own folder");
        own(&signal);
        self.restart();
        self.promote();
    }

    fn wait(&mut self) {
        let (port, log) = (self.port.to_string(), self.folder.0.join("log"));
        let is_up = || {
            let ready = Command::new(binary("pg_isready"))
                .args(["-q", "-h", "127.0.0.1", "-p", &port])
                .status();
            ready.is_ok_and(|status| status.success())
        };
        until_up(&mut self.child, &log, is_up);
    }

    /// Its listening address.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }

    fn client(&self, database: &str) -> Command {
        let mut client = Command::new(binary("psql"));
        client.args([
            "-X",
            "-q",
            "-A",
            "-t",
            "-h",
            "127.0.0.1",
            "-U",
            "holdall",
            "-v",
            "ON_ERROR_STOP=1",
        ]);
        client.args(["-p", &self.port.to_string(), "-d", database]).env("PGPASSWORD", "secret");
        client
    }

    /// Runs statements in the database `shop`; returns rows without names.
    #[track_caller]
    pub fn sql(&self, statements: &str) -> String {
        self.sql_in("shop", statements)
    }

    /// Runs statements in a database; returns rows like [`Self::sql`].
    #[track_caller]
    pub fn sql_in(&self, database: &str, statements: &str) -> String {
        done(self.client(database).args(["-c", statements]))
    }

    /// Runs a command of the replication protocol.
    #[track_caller]
    pub fn replication(&self, command: &str) -> String {
        self.sql_in("dbname=shop replication=database", command)
    }

    /// A separate connection.
    #[must_use]
    pub fn session(&self) -> Session {
        Session::start(&mut self.client("shop"))
    }

    /// Ends the process and its children at once, as a crash does.
    pub fn kill(&mut self) {
        let children = children(self.child.id());
        let _ = self.child.kill();
        let _ = self.child.wait();
        for child in &children {
            // It may already have ended.
            let _ = rustix::process::kill_process(*child, rustix::process::Signal::KILL);
        }
        let end = Instant::now() + Duration::from_secs(20);
        while children.iter().any(|child| is_alive(*child)) {
            assert!(Instant::now() < end, "processes of PostgreSQL stay");
            thread::sleep(Duration::from_millis(2));
        }
        let pid_file = self.folder.0.join("data/postmaster.pid");
        let _ = fs::remove_file(pid_file);
    }

    /// Starts it again after [`Self::kill`].
    pub fn restart(&mut self) {
        self.child = spawn(&self.folder.0, self.port, &self.flags);
        self.wait();
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // In order, so that its children are gone before the folder is.
        let mut stop = Command::new(binary("pg_ctl"));
        stop.args(["stop", "-m", "immediate", "-s", "-D"]).arg(self.folder.0.join("data"));
        let _ = unprivileged(&mut stop).output();
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Parent and state in `/proc/PID/stat`; none for a process that is gone.
fn parent_and_state(pid: &str) -> Option<(u32, String)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut words = stat.rsplit_once(')')?.1.split_whitespace();
    let state = words.next()?.to_owned();
    Some((words.next()?.parse().ok()?, state))
}

fn children(parent: u32) -> Vec<Pid> {
    let processes = fs::read_dir("/proc").expect("a list of processes");
    let pids = processes.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let own = pids.filter(|pid| parent_and_state(pid).is_some_and(|(other, _)| other == parent));
    own.filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect()
}

/// False for a process that only waits to be reaped.
fn is_alive(pid: Pid) -> bool {
    parent_and_state(&pid.as_raw_nonzero().to_string()).is_some_and(|(_, state)| state != "Z")
}

fn spawn(folder: &Path, port: u16, flags: &[String]) -> Child {
    let log = File::options().create(true).append(true).open(folder.join("log")).expect("a log");
    let mut server = Command::new(binary("postgres"));
    server.arg("-D").arg(folder.join("data")).arg("-k").arg(folder);
    server.args(["-h", "127.0.0.1", "-p", &port.to_string()]);
    for flag in flags {
        server.args(["-c", flag]);
    }
    unprivileged(&mut server);
    server
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .expect("postgres is installed")
}

/// A program of the server at `POSTGRES_HOME`, or else of Debian's newest version; Debian keeps
/// each version in a separate folder. A home without the clients uses Debian's.
fn binary(name: &str) -> PathBuf {
    if let Some(home) = env::var_os("POSTGRES_HOME") {
        let program = PathBuf::from(home).join("bin").join(name);
        if program.is_file() {
            return program;
        }
        assert!(name != "postgres", "{}: run cargo xtask databases", program.display());
    }
    let versions = fs::read_dir("/usr/lib/postgresql").expect("postgresql is installed");
    let mut found: Vec<PathBuf> =
        versions.filter_map(Result::ok).map(|entry| entry.path().join("bin").join(name)).collect();
    found.retain(|path| path.is_file());
    found.sort();
    found.pop().unwrap_or_else(|| panic!("no {name} below /usr/lib/postgresql"))
}

/// The user and group of the package, if this process may become them: the server refuses to run as
/// root.
fn owner() -> Option<(u32, u32)> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let users = fs::read_to_string("/etc/passwd").expect("a list of users");
    let line =
        users.lines().find(|line| line.starts_with("postgres:")).expect("the package makes a user");
    let mut numbers = line.split(':').skip(2).map(|number| number.parse().expect("a number"));
    Some((numbers.next()?, numbers.next()?))
}

fn own(path: &Path) {
    if let Some((user, group)) = owner() {
        std::os::unix::fs::chown(path, Some(user), Some(group)).expect("one's own folder");
    }
}

fn unprivileged(command: &mut Command) -> &mut Command {
    if let Some((user, group)) = owner() {
        command.uid(user).gid(group).current_dir("/");
    }
    command
}
