//! The popular client libraries, and the commands that check each one.
//!
//! The scripts are in e2e/clients; `cargo xtask install` puts their dependencies below `E2E_TOOLS`
//! (`target/e2e`). The test of a missing library fails.

use std::env;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Debian's path of the library for Java.
const SPYMEMCACHED: &str = "/usr/share/java/spymemcached.jar";

/// A library.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Client {
    /// python-binary-memcached: binary.
    Bmemcached,
    /// dalli, of Ruby: binary.
    Dalli,
    /// gomemcache, of Go: text.
    Gomemcache,
    /// memcached, of Node: text.
    NodeMemcached,
    /// memjs, of Node: binary.
    Memjs,
    /// meta-memcache, of Python: meta.
    MetaMemcache,
    /// pylibmc, and with it libmemcached: text and binary.
    Pylibmc,
    /// pymemcache: text.
    Pymemcache,
    /// spymemcached, of Java: text and binary.
    Spymemcached,
}

impl Client {
    /// The program with its script.
    fn command(self) -> Command {
        let (program, script) = match self {
            Self::Bmemcached => (tool("venv/bin/python"), Some("python/check_bmemcached.py")),
            Self::Dalli => ("ruby".into(), Some("ruby/check_dalli.rb")),
            Self::Gomemcache => (tool("go-client"), None),
            Self::NodeMemcached => ("node".into(), Some("node/check_memcached.js")),
            Self::Memjs => ("node".into(), Some("node/check_memjs.js")),
            Self::MetaMemcache => (tool("venv/bin/python"), Some("python/check_meta_memcache.py")),
            Self::Pylibmc => (tool("venv/bin/python"), Some("python/check_pylibmc.py")),
            Self::Pymemcache => (tool("venv/bin/python"), Some("python/check_pymemcache.py")),
            Self::Spymemcached => ("java".into(), Some("java/CheckSpymemcached.java")),
        };
        let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients");
        let mut command = Command::new(program);
        if self == Self::Spymemcached {
            command.args(["-cp", SPYMEMCACHED]);
        }
        command.args(script.map(|name| scripts.join(name)));
        command
    }

    /// Runs the whole command set against `addr`, which is a proxy if `is_routed`.
    ///
    /// # Panics
    ///
    /// With the output, when a check fails: its last line must report the number of passed checks.
    pub fn check(self, addr: SocketAddr, is_routed: bool) {
        let mut command = self.command();
        command.arg(addr.to_string());
        if is_routed {
            command.env("E2E_ROUTED", "1");
        }
        check_passes(command);
    }
}

/// Runs multigets of bmemcached and dalli at `addr`, a proxy that reaches only some of its servers.
/// Each must return the values of the others.
///
/// # Panics
///
/// With the script's output, when a value is missing or another key's.
pub fn check_with_an_unavailable_server(addr: SocketAddr) {
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients");
    for (program, script) in [
        (tool("venv/bin/python"), "python/check_unavailable.py"),
        ("ruby".into(), "ruby/check_unavailable.rb"),
    ] {
        let mut command = Command::new(program);
        command.arg(scripts.join(script)).arg(addr.to_string());
        check_passes(command);
    }
}

/// A language whose libraries are checked for readers that get another key's value.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum OwnData {
    /// gomemcache.
    Go,
    /// spymemcached, text and binary.
    Java,
    /// memcached (text) and memjs (binary).
    Node,
    /// memcached, which is libmemcached, text and binary.
    Php,
    /// pylibmc (libmemcached, text and binary), pymemcache (text), bmemcached (binary).
    Python,
}

impl OwnData {
    /// Makes each library read small values between requests that `addr` refuses. Each reader must
    /// get the requested value, a miss or an error, and never another key's value.
    ///
    /// # Panics
    ///
    /// With the script's output, when a reader got another key's value, or a store failed.
    pub fn check(self, addr: SocketAddr) {
        let script = |name| Path::new(env!("CARGO_MANIFEST_DIR")).join("clients").join(name);
        let mut command = match self {
            Self::Go => Command::new(tool("go-client")),
            Self::Java => Command::new("java"),
            Self::Node => Command::new("node"),
            Self::Php => Command::new("php"),
            Self::Python => Command::new(tool("venv/bin/python")),
        };
        match self {
            Self::Go => &mut command,
            Self::Java => command.args(["-cp", SPYMEMCACHED]).arg(script("java/OwnData.java")),
            Self::Node => command.arg(script("node/own_data.js")),
            Self::Php => command.arg(script("php/own_data.php")),
            Self::Python => command.arg(script("python/own_data.py")),
        }
        .args([addr.to_string().as_str(), "own-data"]);
        check_passes(command);
    }
}

/// A library whose program keeps using one server through its restarts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Restarted {
    /// gomemcache, of Go.
    Gomemcache,
    /// pylibmc, and with it libmemcached.
    Pylibmc,
    /// pymemcache, with its `RetryingClient`.
    Pymemcache,
}

impl Restarted {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Gomemcache, Self::Pylibmc, Self::Pymemcache];

    /// The program. It gets `k`, whose value must be 20,000 bytes of `v`, and sets its own key,
    /// until its stdin ends. It prints `50` after every fifty requests, and the total at the end.
    /// At the first failed request it ends with a status other than 0.
    #[must_use]
    pub fn command(self, addr: SocketAddr) -> Command {
        let script = || Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/python/load.py");
        let (mut command, name) = match self {
            Self::Gomemcache => (Command::new(tool("go-client")), "load"),
            Self::Pylibmc => (Command::new(tool("venv/bin/python")), "pylibmc"),
            Self::Pymemcache => (Command::new(tool("venv/bin/python")), "pymemcache"),
        };
        if self != Self::Gomemcache {
            command.arg(script());
        }
        command.arg(addr.to_string()).arg(name);
        command
    }
}

fn check_passes(mut command: Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stdout);
    let passed = output.status.success() && said.trim_end().ends_with("checks passed");
    let text = format!("{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(passed, "{command:?}, {}:\n{text}", output.status);
}

/// The tool that `cargo xtask install` has installed under this name.
///
/// # Panics
///
/// When it is missing.
#[must_use]
pub fn tool(name: &str) -> PathBuf {
    let tools = env::var_os("E2E_TOOLS")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/e2e"), PathBuf::from);
    let path = tools.join(name);
    assert!(path.exists(), "{} is missing: run `cargo xtask install`", path.display());
    path
}
