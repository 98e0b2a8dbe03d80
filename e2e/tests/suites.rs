//! Client libraries' own tests, unchanged, against the server and through the proxy.
//!
//! Each runs in separate namespaces: the suites require servers at memcached's port and at
//! `/tmp/memcached.sock`. `SUITES=all` also runs them against Debian's memcached, which shows that
//! excepted tests fail there, too, and through the proxy with the binary protocol.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use e2e::suites::{Behind, Suite, TestOutcome};
use processes::{ChildGuard, wait_until_accepts};
use testkit::server::holdall_path;

/// The server or proxy that a suite runs against.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Target {
    Holdall,
    Memcached,
    ProxyToHoldall,
    ProxyToMemcached,
    ProxyInPackets,
}

impl Target {
    const ALL: [Self; 5] = [
        Self::Holdall,
        Self::ProxyToHoldall,
        Self::ProxyToMemcached,
        Self::ProxyInPackets,
        Self::Memcached,
    ];

    /// The number of targets in every run.
    const ALWAYS: usize = 3;

    const fn behind(self) -> Behind {
        match self {
            Self::Holdall | Self::Memcached => Behind::Nothing,
            _ => Behind::Proxy,
        }
    }

    const fn is_over_memcached(self) -> bool {
        matches!(self, Self::Memcached | Self::ProxyToMemcached)
    }
}

/// The ports at which the suites expect servers.
const PORTS: [u16; 4] = [11211, 11212, 11213, 5000];
const SOCKET: &str = "/tmp/memcached.sock";

/// The ports of the servers behind the proxy.
const BEHIND: [u16; 2] = [12211, 12212];

/// The server processes of a suite.
struct Servers(Vec<ChildGuard>);

impl Servers {
    fn start(target: Target) -> Self {
        let mut servers = Self(Vec::new());
        if target.behind() == Behind::Nothing {
            for port in PORTS {
                let port_text = port.to_string();
                servers.server(target, &["-p", &port_text, "-l", "127.0.0.1,::1"], Some(port));
            }
            servers.server(target, &["-s", SOCKET, "-a", "777"], None);
        } else {
            for port in BEHIND {
                servers.server(target, &["-p", &port.to_string(), "-l", "127.0.0.1"], Some(port));
            }
            for port in PORTS {
                let port_text = port.to_string();
                let socket: &[_] =
                    if port == PORTS[0] { &["--unix-domain-sock", SOCKET] } else { &[] };
                servers.proxy(target, &[&["-p", &port_text], socket].concat(), port);
            }
        }
        servers
    }

    fn server(&mut self, target: Target, words: &[&str], port: Option<u16>) {
        let mut command = if target.is_over_memcached() {
            Command::new(env::var("MEMCACHED_BIN").unwrap_or_else(|_| "memcached".to_owned()))
        } else {
            let mut command = Command::new(holdall_path());
            command.arg("serve");
            command
        };
        command.args(["-u", "root"]).args(words);
        self.add(command, port);
    }

    fn proxy(&mut self, target: Target, words: &[&str], port: u16) {
        let form = if target == Target::ProxyInPackets { ":binary" } else { "" };
        let [one, two] = BEHIND.map(|port| format!("127.0.0.1:{port}{form}"));
        let protocol = if form.is_empty() { "ascii" } else { "binary" };
        let config = format!(
            r#"{{"pools": {{"A": {{"servers": ["{one}", "{two}"], "protocol": "{protocol}"}}}}, "route": "PoolRoute|A"}}"#
        );
        let mut command = Command::new(holdall_path());
        command.args(["route", "--enable-flush-cmd", "--asynclog-disable", "-t", "60000"]);
        command.args(["--config-str", &config]).args(words);
        self.add(command, Some(port));
    }

    fn add(&mut self, mut command: Command, port: Option<u16>) {
        let child: Child = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let mut child = ChildGuard::from(child);
        let limit = Duration::from_secs(20);
        let addrs: Vec<_> = port.iter().map(|port| ([127, 0, 0, 1], *port).into()).collect();
        wait_until_accepts(&addrs, Some(&mut child), limit)
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        while port.is_none() && !Path::new(SOCKET).exists() {
            assert!(child.is_running(), "{command:?} has ended");
            std::thread::sleep(Duration::from_millis(5));
        }
        self.0.push(child);
    }
}

/// Runs a suite against all targets at once, each in separate namespaces.
fn check(test: &str, suite: Suite) {
    if let Some(number) = env::var_os("IN_NAMESPACE") {
        let number: usize = number.into_string().unwrap().parse().unwrap();
        return within(suite, Target::ALL[number]);
    }
    let is_all = env::var("SUITES").is_ok_and(|what| what == "all");
    let count = if is_all { Target::ALL.len() } else { Target::ALWAYS };
    // A suite spends most of its time waiting.
    let mut running: Vec<(Target, Child)> = Vec::new();
    for number in 0..count {
        let mut inner = Command::new("unshare");
        inner.args(["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]);
        if !rustix::process::geteuid().is_root() {
            inner.args(["--map-root-user"]);
        }
        inner.arg(env::current_exe().unwrap()).args(["--exact", test, "--nocapture"]);
        inner.env("IN_NAMESPACE", number.to_string()).stdout(Stdio::null());
        running.push((Target::ALL[number], inner.spawn().unwrap()));
    }
    let ends = running.into_iter().map(|(target, mut child)| (target, child.wait().unwrap()));
    let failed: Vec<_> = ends.filter(|(_, status)| !status.success()).collect();
    assert!(failed.is_empty(), "{}: {failed:?}", suite.title());
}

fn within(suite: Suite, target: Target) {
    system("ip link set lo up");
    // New files here disappear with the namespace; existing files can be read.
    system("mount -t tmpfs none /dev/shm");
    for folder in ["upper", "work", "path"] {
        fs::create_dir(Path::new("/dev/shm").join(folder)).unwrap();
    }
    system(
        "mount -t overlay overlay -o lowerdir=/tmp,upperdir=/dev/shm/upper,workdir=/dev/shm/work /tmp",
    );
    let path = Path::new("/dev/shm/path");
    if !target.is_over_memcached() {
        symlink(holdall_path(), path.join("memcached")).unwrap();
    }
    let servers = Servers::start(target);
    let folder = Path::new("/dev/shm/folder");
    for run in 1..=suite.runs() {
        fs::create_dir(folder).unwrap();
        let tests = suite.run(folder, path);
        report(suite, target, &tests);
        let unexpected = suite.unexpected(&tests, target.behind());
        if unexpected.is_empty() {
            break;
        }
        let output = fs::read_to_string(folder.join("output")).unwrap();
        let _ = writeln!(std::io::stderr(), "{target:?}:\n{output}{}", unexpected.join("\n"));
        assert!(run < suite.runs(), "{}, {target:?}: {}", suite.title(), unexpected.join("\n"));
        fs::remove_dir_all(folder).unwrap();
    }
    for mut server in servers.0 {
        assert!(server.is_running(), "a server has ended");
    }
}

/// Prints the results directly, so that they also appear when the test passes.
fn report(suite: Suite, target: Target, tests: &BTreeMap<String, TestOutcome>) {
    let count = |wanted| tests.values().filter(|came| **came == wanted).count();
    let _ = writeln!(
        std::io::stderr(),
        "{}, {target:?}: {} passed, {} failed, {} skipped",
        suite.title(),
        count(TestOutcome::Passed),
        count(TestOutcome::Failed),
        count(TestOutcome::Skipped)
    );
}

fn system(line: &str) {
    let words: Vec<&str> = line.split(' ').collect();
    let status = Command::new(words[0]).args(&words[1..]).status();
    assert!(status.as_ref().is_ok_and(std::process::ExitStatus::success), "{line}: {status:?}");
}

#[test]
fn pymemcache() {
    check("pymemcache", Suite::Pymemcache);
}

#[test]
fn pylibmc() {
    check("pylibmc", Suite::Pylibmc);
}

#[test]
fn python_binary_memcached() {
    check("python_binary_memcached", Suite::Bmemcached);
}

#[test]
fn gomemcache() {
    check("gomemcache", Suite::Gomemcache);
}

#[test]
fn node_memcached() {
    check("node_memcached", Suite::NodeMemcached);
}

#[test]
fn php_memcached() {
    check("php_memcached", Suite::PhpMemcached);
}
