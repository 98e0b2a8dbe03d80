//! The test suites of client libraries' own developers, as their registries ship them: the command
//! of each suite, and the outcomes of its tests.
//!
//! `cargo xtask install` puts them below `E2E_TOOLS` (`target/e2e`), unchanged. They expect servers
//! at memcached's port, so each run needs a separate network.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::clients::tool;

/// A suite.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Suite {
    /// python-binary-memcached: binary, TLS.
    Bmemcached,
    /// gomemcache: text, TLS.
    Gomemcache,
    /// memcached of Node: text.
    NodeMemcached,
    /// php-memcached, and with it libmemcached: text and binary.
    PhpMemcached,
    /// pylibmc, and with it libmemcached: text and binary.
    Pylibmc,
    /// pymemcache: text.
    Pymemcache,
}

/// The place of a suite's servers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Behind {
    /// The suite connects to the server.
    Nothing,
    /// The suite connects to the proxy.
    Proxy,
}

/// The outcome of a test.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum TestOutcome {
    /// It passed.
    Passed,
    /// It failed, or its preparation did.
    Failed,
    /// It reported that it cannot run.
    Skipped,
}

/// A test that does not pass, and the justification.
#[derive(Clone, Copy, Debug)]
pub struct Exception {
    /// A part of the names of the tests.
    pub name: &'static str,
    /// The server or proxy with which it does not pass; `None` is all, including memcached 1.6.18.
    pub behind: Option<Behind>,
    /// The reason.
    pub reason: &'static str,
    /// It sometimes passes, because it races with a clock.
    pub may_pass: bool,
}

const fn anywhere(name: &'static str, reason: &'static str) -> Exception {
    Exception { name, behind: None, reason, may_pass: false }
}

const fn proxied(name: &'static str, reason: &'static str) -> Exception {
    Exception { name, behind: Some(Behind::Proxy), reason, may_pass: false }
}

const fn at_times(name: &'static str, reason: &'static str) -> Exception {
    Exception { name, behind: None, reason, may_pass: true }
}

const fn proxied_at_times(name: &'static str, reason: &'static str) -> Exception {
    Exception { name, behind: Some(Behind::Proxy), reason, may_pass: true }
}

/// No other test may fail or be skipped, and each of these must.
const EXCEPTIONS: &[(Suite, Exception)] = &[
    (Suite::Bmemcached, anywhere("test_ipv6.py", NO_CONFTEST)),
    (Suite::Bmemcached, anywhere("test_sasl_integration.py", NO_CONFTEST)),
    (
        Suite::Bmemcached,
        proxied_at_times("BinaryMemcachedTests::testSetMultiBigData", MAKES_PREFIXES),
    ),
    (Suite::PhpMemcached, anywhere("compression_types", NEWER_LIBRARY)),
    (Suite::PhpMemcached, anywhere("options.phpt", NEWER_LIBRARY)),
    (Suite::PhpMemcached, anywhere("set_large", NEWER_LIBRARY)),
    (Suite::PhpMemcached, anywhere("setoptions", NEWER_LIBRARY)),
    (Suite::PhpMemcached, anywhere("bad_construct.phpt", OTHER_BUILD)),
    (Suite::PhpMemcached, anywhere("memcachedserver", OTHER_BUILD)),
    (Suite::PhpMemcached, anywhere("session_badconf_locktime", OTHER_BUILD)),
    (Suite::PhpMemcached, anywhere("session_badconf_servers.phpt", OTHER_BUILD)),
    (Suite::PhpMemcached, anywhere("session_lazy_warning", OTHER_BUILD)),
    (Suite::PhpMemcached, anywhere("session_lock.phpt", OTHER_BUILD)),
    (Suite::PhpMemcached, anywhere("set_encoding_key2", OTHER_BUILD)),
    (Suite::PhpMemcached, anywhere("vbucket_error_7", OTHER_BUILD)),
    (
        Suite::PhpMemcached,
        anywhere("sasl_basic", "asks for a server that is written into the suite"),
    ),
    (Suite::PhpMemcached, proxied("stats", "total_connections is a server's")),
    (Suite::Pymemcache, anywhere("test_tls", "skipped by its authors: pymemcache#39")),
    (Suite::Pymemcache, at_times("test_integration.py::test_touch[", ENDS_WITH_SECOND)),
    (
        Suite::Pymemcache,
        proxied("test_misc", "`stats cachedump` and `cache_memlimit` are a server's"),
    ),
];

const NO_CONFTEST: &str = "asks for a file that the package does not have (conftest.py)";
const ENDS_WITH_SECOND: &str =
    "stores for one second, which ends, as in memcached, with the second under way";
const MAKES_PREFIXES: &str =
    "makes up keys of any bytes; `/a/b/c` asks, as in mcrouter, for a route that is not there";
const OTHER_BUILD: &str = "is for another PHP, libmemcached or build of php-memcached";
const NEWER_LIBRARY: &str = "asks for options that Debian 12's php-memcached does not have";

impl Suite {
    /// Its name, version and source.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Bmemcached => "python-binary-memcached 0.33.0 (source package)",
            Self::Gomemcache => "gomemcache 2026-04-22 (module)",
            Self::NodeMemcached => "memcached of Node 2.2.0 (package)",
            Self::PhpMemcached => "php-memcached 3.3.0 (Debian's source)",
            Self::Pylibmc => "pylibmc 1.6.3 (source package)",
            Self::Pymemcache => "pymemcache 4.0.0 (source package)",
        }
    }

    /// The number of failed runs after which the suite has failed.
    ///
    /// Two suites race with clocks: each second they touch items that live, as in memcached, for
    /// between one second and two. On a slow machine they sometimes lose, with any server.
    #[must_use]
    pub const fn runs(self) -> usize {
        match self {
            Self::Gomemcache | Self::PhpMemcached => 3,
            Self::Bmemcached | Self::NodeMemcached | Self::Pylibmc | Self::Pymemcache => 1,
        }
    }

    /// Runs it in the empty folder `folder`. A test that starts a program `memcached` finds it in
    /// `path` first.
    ///
    /// # Panics
    ///
    /// When it cannot be started, or ran no test.
    #[must_use]
    pub fn run(self, folder: &Path, path: &Path) -> BTreeMap<String, TestOutcome> {
        let mut command = self.command(folder);
        let old = env::var_os("PATH").unwrap_or_default();
        let paths = [path.to_owned()].into_iter().chain(env::split_paths(&old));
        command.env("PATH", env::join_paths(paths).unwrap()).stdin(Stdio::null());
        let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        fs::write(folder.join("output"), &text).unwrap();
        let tests: BTreeMap<_, _> = text.lines().filter_map(|line| self.test(line)).collect();
        let ran = tests.values().any(|came| *came == TestOutcome::Passed);
        assert!(ran, "{} ran no test:\n{text}", self.title());
        tests
    }

    /// Uses a user other than root, since memcached does not start as root without `-u`.
    fn command(self, folder: &Path) -> Command {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-user=1000", "--map-group=1000"]).current_dir(folder);
        match self {
            Self::Pymemcache => {
                let suite = tool("suites/pymemcache-4.0.0");
                pytest(&mut command, &suite.join("pymemcache/test"));
                command.args(["-m", "unit or integration"]);
            }
            Self::Pylibmc => {
                // The folder next to its tests contains a part of the library, which is not built
                // there.
                copy(&tool("suites/pylibmc-1.6.3/tests"), folder);
                pytest(&mut command, &folder.join("tests"));
            }
            Self::Bmemcached => {
                let suite = tool("suites/python_binary_memcached-0.33.0");
                pytest(&mut command, &suite.join("test"));
                command.arg("--continue-on-collection-errors").env("MEMCACHED_HOST", "127.0.0.1");
            }
            Self::Gomemcache => {
                command.arg(tool("suites/gomemcache")).arg("-test.v");
            }
            Self::NodeMemcached => {
                let modules = node_modules();
                let suite = modules.join("memcached-with-tests/test");
                command.arg("node").arg(modules.join("mocha/bin/mocha.js"));
                command.args(["--exit", "--reporter", "tap", "--timeout", "20000"]);
                command.args(["--require", "should"]).args(node_tests(&suite));
                command.current_dir(modules.parent().unwrap()).env("MEMCACHED__HOST", "127.0.0.1");
            }
            Self::PhpMemcached => {
                // The runner writes next to the tests.
                copy(&tool("suites/php/tests"), folder);
                command
                    .arg("php")
                    .arg(tool("suites/php-run-tests.php"))
                    .args(["-q", "-P", "tests"]);
                command.env("NO_INTERACTION", "1");
            }
        }
        command
    }

    /// The test in a line of the output.
    fn test(self, line: &str) -> Option<(String, TestOutcome)> {
        match self {
            Self::Bmemcached | Self::Pylibmc | Self::Pymemcache => of_pytest(line),
            Self::Gomemcache => of_go(line),
            Self::NodeMemcached => of_tap(line),
            Self::PhpMemcached => of_php(line),
        }
    }

    /// The tests that neither passed nor are excepted, and the unneeded exceptions.
    #[must_use]
    pub fn unexpected(self, tests: &BTreeMap<String, TestOutcome>, behind: Behind) -> Vec<String> {
        let exceptions = || {
            let own = EXCEPTIONS.iter().filter(|(suite, _)| *suite == self).map(|(_, one)| one);
            own.filter(|one| one.behind.is_none_or(|place| place == behind))
        };
        let bad: Vec<_> = tests.iter().filter(|(_, came)| **came != TestOutcome::Passed).collect();
        let unknown =
            bad.iter().filter(|(name, _)| !exceptions().any(|one| name.contains(one.name)));
        let unknown = unknown.map(|(name, came)| format!("{came:?}: {name}"));
        let stale = exceptions()
            .filter(|one| !one.may_pass && !bad.iter().any(|(name, _)| name.contains(one.name)));
        let stale = stale.map(|one| format!("passed, though {}: {}", one.reason, one.name));
        unknown.chain(stale).collect()
    }
}

fn pytest(command: &mut Command, tests: &Path) {
    command.arg(tool("venv/bin/python")).args(["-m", "pytest", "-o", "addopts=", "-v", "-rN"]);
    command.args(["--tb=short", "--color=no", "-p", "no:cacheprovider"]).arg(tests);
    command.env("PYTHONDONTWRITEBYTECODE", "1").env("COLUMNS", "200");
}

/// The folder of `npm`'s Node clients.
fn node_modules() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/node/node_modules")
}

/// The test files of Node's memcached except the one about unavailable servers: its tests run ping,
/// connect to an address that never replies, and end each other when a timer is late.
fn node_tests(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let is_run = |path: &PathBuf| {
        let path = path.to_string_lossy();
        path.ends_with(".test.js") && !path.ends_with("memcached-connections.test.js")
    };
    let mut found: Vec<_> = entries.filter(is_run).collect();
    found.sort();
    found
}

fn copy(from: &Path, into: &Path) {
    let status = Command::new("cp").arg("-r").args([from, into]).status();
    assert!(status.is_ok_and(|status| status.success()), "cp -r {}", from.display());
}

/// Parses `test/test_a.py::test_b PASSED [ 5%]`.
fn of_pytest(line: &str) -> Option<(String, TestOutcome)> {
    let words = [
        (" PASSED", TestOutcome::Passed),
        (" FAILED", TestOutcome::Failed),
        (" ERROR", TestOutcome::Failed),
        (" SKIPPED", TestOutcome::Skipped),
    ];
    // An error in a file's first lines names no test: `___ ERROR collecting test/test_a.py ___`.
    if let Some((_, file)) = line.split_once("_ ERROR collecting ") {
        return Some((file.trim_end_matches(['_', ' ']).to_owned(), TestOutcome::Failed));
    }
    let (name, came) = words
        .iter()
        .find_map(|(word, came)| line.rfind(word).map(|at| (line[..at].to_owned(), *came)))?;
    let name = name.contains("::").then_some(name.trim_end())?;
    Some((name.rsplit_once("test/").map_or(name, |(_, rest)| rest).to_owned(), came))
}

/// Parses `--- PASS: TestA (0.00s)`, indented for a subtest.
fn of_go(line: &str) -> Option<(String, TestOutcome)> {
    let (word, rest) = line.trim_start().strip_prefix("--- ")?.split_once(": ")?;
    let came = match word {
        "PASS" => TestOutcome::Passed,
        "SKIP" => TestOutcome::Skipped,
        _ => TestOutcome::Failed,
    };
    Some((rest.split(' ').next()?.to_owned(), came))
}

/// Parses `ok 5 name` and `not ok 6 name`. A repeated name counts as failed if one did.
fn of_tap(line: &str) -> Option<(String, TestOutcome)> {
    let (came, rest) = match line.strip_prefix("not ok ") {
        Some(rest) => (TestOutcome::Failed, rest),
        None => (TestOutcome::Passed, line.strip_prefix("ok ")?),
    };
    let (_, name) = rest.split_once(' ')?;
    let came = if name.contains("# SKIP") { TestOutcome::Skipped } else { came };
    Some((rest.to_owned(), came))
}

/// Parses `PASS What it shows [tests/a.phpt]`, after a progress line; its first word is coloured.
fn of_php(line: &str) -> Option<(String, TestOutcome)> {
    let line = line.rsplit('\r').next()?;
    let (word, rest) = line.split_once(' ')?;
    let word = word.trim_end_matches("\x1b[0m").rsplit('m').next()?;
    let came = match word {
        // A warning means that the test passed when it was repeated.
        "PASS" | "WARN" => TestOutcome::Passed,
        "SKIP" => TestOutcome::Skipped,
        "FAIL" | "BORK" | "LEAK" => TestOutcome::Failed,
        _ => return None,
    };
    let (_, file) = rest.rsplit_once("[tests/")?;
    Some((file.split(']').next()?.to_owned(), came))
}
