//! The client libraries that people use: how each one's check is run.
//!
//! The scripts are in e2e/clients; `cargo xtask install` puts what they need below `E2E_TOOLS` (`target/e2e`). A library that
//! is missing fails its test.

use std::env;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A library.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Client {
    /// python-binary-memcached: binary.
    Bmemcached,
    /// gomemcache, of Go: text.
    Gomemcache,
    /// memcached, of Node: text.
    NodeMemcached,
    /// memjs, of Node: binary.
    Memjs,
    /// pylibmc, and with it libmemcached: text and binary.
    Pylibmc,
    /// pymemcache: text.
    Pymemcache,
}

impl Client {
    /// The program, and the script that it runs.
    fn command(self) -> Command {
        let (program, script) = match self {
            Self::Bmemcached => (tool("venv/bin/python"), Some("python/check_bmemcached.py")),
            Self::Gomemcache => (tool("go-client"), None),
            Self::NodeMemcached => ("node".into(), Some("node/check_memcached.js")),
            Self::Memjs => ("node".into(), Some("node/check_memjs.js")),
            Self::Pylibmc => (tool("venv/bin/python"), Some("python/check_pylibmc.py")),
            Self::Pymemcache => (tool("venv/bin/python"), Some("python/check_pymemcache.py")),
        };
        let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients");
        let mut command = Command::new(program);
        command.args(script.map(|name| scripts.join(name)));
        command
    }

    /// Runs its whole command set against `addr`, which is a proxy's if `is_routed`.
    ///
    /// # Panics
    ///
    /// With what it printed, when a check fails: its last line must say how many passed.
    pub fn check(self, addr: SocketAddr, is_routed: bool) {
        let mut command = self.command();
        command.arg(addr.to_string());
        if is_routed {
            command.env("E2E_ROUTED", "1");
        }
        let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        let passed = output.status.success() && text.trim_end().ends_with("checks passed");
        assert!(passed, "{self:?}, {}:\n{text}", output.status);
    }
}

/// What `cargo xtask install` has put there under this name.
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
