//! The proxy as a child process, with its own port and configuration.

use std::env;
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use processes::{ChildGuard, wait_until_accepts};
use rustix::process::Signal;

use crate::process::free_port;
use crate::server::holdall_path;
use crate::wire::Wire;

/// A running `holdall route`.
#[derive(Debug)]
pub struct Router {
    child: ChildGuard,
    addr: SocketAddr,
    config: PathBuf,
    log: PathBuf,
    command: Vec<String>,
}

impl Router {
    /// Starts it with this configuration and these arguments, and waits until it accepts. Without
    /// `-t`, servers have a minute for an answer: on a busy machine an honest one is not late.
    #[must_use]
    pub fn start(config: &str, args: &[&str]) -> Self {
        Self::under(&[], config, args)
    }

    /// Starts it under another program, which must replace itself by it or detach (`strace -D`).
    #[must_use]
    pub fn under(program: &[&str], config: &str, args: &[&str]) -> Self {
        let port = free_port();
        let path = env::temp_dir().join(format!("router-{}-{port}.json", std::process::id()));
        fs::write(&path, config).unwrap();
        let mut command: Vec<String> = program.iter().map(ToString::to_string).collect();
        command.push(holdall_path().display().to_string());
        let fixed = ["route", "-p", &port.to_string(), "-f", &path.display().to_string()];
        command.extend(fixed.iter().chain(args).map(ToString::to_string));
        if !args.contains(&"-t") {
            command.extend(["-t", "60000"].map(str::to_owned));
        }
        let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let log = path.with_extension("log");
        let child = spawn(&command, &log);
        let mut router = Self { child, addr, config: path, log, command };
        router.wait_until_it_accepts();
        router
    }

    /// Pools of these servers: `all` of all, and `A`, `B`, ... of one each. Failed deletes are not
    /// kept.
    #[must_use]
    pub fn over(servers: &[SocketAddr], route: &str, args: &[&str]) -> Self {
        let args: Vec<&str> = args.iter().copied().chain(["--asynclog-disable"]).collect();
        Self::start(&config(servers, route), &args)
    }

    fn wait_until_it_accepts(&mut self) {
        wait_until_accepts(&[self.addr], Some(&mut self.child), Duration::from_secs(20))
            .unwrap_or_else(|error| panic!("the proxy: {error}: {:?}", self.command));
    }

    /// The address for clients.
    #[must_use]
    pub const fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// A connection.
    #[must_use]
    pub fn connect(&self) -> Wire {
        Wire::connect(self.addr)
    }

    /// Kills it with SIGKILL and starts it again, on the same port.
    pub fn kill_and_restart(&mut self) {
        self.kill();
        self.restart();
    }

    /// Kills it with SIGKILL.
    pub fn kill(&mut self) {
        self.child.kill();
    }

    /// Starts it again after [`Self::kill`], on the same port.
    pub fn restart(&mut self) {
        self.child = spawn(&self.command, &self.log);
        self.wait_until_it_accepts();
    }

    /// Sends the process a signal.
    pub fn signal(&self, signal: Signal) {
        self.child.signal(signal).expect("one's own child");
    }

    /// Sends it a signal, and waits for its end.
    #[must_use]
    pub fn end_by(mut self, signal: Signal) -> ExitStatus {
        self.signal(signal);
        self.child.wait().unwrap()
    }

    /// The file of its output, also from before it was killed.
    #[must_use]
    pub fn log_path(&self) -> &Path {
        &self.log
    }

    /// The file of its configuration.
    #[must_use]
    pub fn config_path(&self) -> &Path {
        &self.config
    }

    /// Replaces its configuration atomically.
    pub fn replace_config(&self, text: &str) {
        replace_file(&self.config, text);
    }

    /// True while it runs.
    pub fn is_running(&mut self) -> bool {
        self.child.is_running()
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// A number of its `stats`.
    #[must_use]
    pub fn stat(&self, name: &str) -> u64 {
        let mut wire = self.connect();
        wire.send(b"stats\r\n");
        let lines = String::from_utf8(wire.read_until(b"END\r\n")).unwrap();
        let line = lines.lines().find_map(|line| line.strip_prefix(&format!("STAT {name} ")));
        line.unwrap_or_else(|| panic!("no {name} in {lines}")).parse().unwrap()
    }

    /// Waits until a number of its `stats` is `value`.
    #[track_caller]
    pub fn wait_for(&self, name: &str, value: u64) {
        let end = Instant::now() + Duration::from_secs(120);
        loop {
            let now = self.stat(name);
            if now == value {
                return;
            }
            assert!(Instant::now() < end, "{name} stays {now}, and does not become {value}");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        self.child.kill();
        let _ = fs::remove_file(&self.config);
        let _ = fs::remove_file(&self.log);
    }
}

fn spawn(command: &[String], log: &Path) -> ChildGuard {
    let stderr = if env::var_os("ROUTER_LOG").is_some() {
        Stdio::inherit()
    } else {
        File::options().create(true).append(true).open(log).unwrap().into()
    };
    Command::new(&command[0])
        .args(&command[1..])
        .stdin(Stdio::null())
        .stderr(stderr)
        .spawn()
        .unwrap()
        .into()
}

/// A configuration with a pool `all` of these servers and pools `A`, `B`, ... of one each.
#[must_use]
pub fn config(servers: &[SocketAddr], route: &str) -> String {
    let pools = servers.iter().zip('A'..);
    let pools: String =
        pools.map(|(server, name)| format!(r#", "{name}": {{"servers": ["{server}"]}}"#)).collect();
    let all: Vec<String> = servers.iter().map(|server| format!(r#""{server}""#)).collect();
    let all = all.join(", ");
    format!(r#"{{"pools": {{"all": {{"servers": [{all}]}}{pools}}}, "route": {route}}}"#)
}

/// Replaces a file atomically: a partly written one would be seen empty for a moment.
pub fn replace_file(path: &Path, text: &str) {
    let part = path.with_extension("part");
    fs::write(&part, text).unwrap();
    fs::rename(&part, path).unwrap();
}
