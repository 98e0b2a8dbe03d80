//! The test suites of client libraries, as their registries ship them, below `target/e2e/suites`.
//!
//! Python's are in the source packages, php-memcached's in Debian's, gomemcache's in its module,
//! and node's comes with the Node clients. Each has a version and a digest here, in a lock, or in
//! `go.sum`.

use std::fs;
use std::path::Path;

use super::apart::Apt;
use super::{is_newer, mark};
use crate::failure::Failure;
use crate::steps::{Steps, program};

const PYTHON: &str = "e2e/clients/python/sources.txt";

const PHP: &str = "php-memcached=3.3.0-3";
const PHP_FILE: &str = "php-memcached_3.3.0.orig.tar.gz";
const PHP_SHA256: &str = "2b85bf6699497170801fb4d06eb9c9a06bfc551cdead04101dd75c980be9eebf";

/// Installs the missing suites below `tools`, where the Python environment already exists.
pub(super) fn install(steps: &mut Steps, tools: &Path) -> Result<(), Failure> {
    let home = tools.join("suites");
    fs::create_dir_all(&home).map_err(Failure::path(&home))?;
    python(steps, tools, &home)?;
    php(steps, &home)?;
    go(steps, &home)
}

fn python(steps: &mut Steps, tools: &Path, home: &Path) -> Result<(), Failure> {
    let done = home.join("python.done");
    if is_newer(&done, PYTHON) {
        return Ok(());
    }
    println!("Suites of pymemcache, pylibmc and python-binary-memcached: {}", home.display());
    let mut download = program(tools.join("venv/bin/pip"), ["download", "--quiet", "--no-deps"]);
    download.args(["--disable-pip-version-check", "--no-binary", ":all:", "--require-hashes"]);
    download.args(["-r", PYTHON, "-d"]).arg(home);
    steps.run("suites of Python, fetch", download)?;
    let mut unpack = program("sh", ["-ec", "for file in py*.tar.gz; do tar xzf \"$file\"; done"]);
    unpack.current_dir(home);
    steps.run("suites of Python, unpack", unpack)?;
    mark(&done)
}

/// The suite from Debian's source. PHP's own test program runs it.
fn php(steps: &mut Steps, home: &Path) -> Result<(), Failure> {
    let done = home.join(PHP_SHA256);
    if done.exists() {
        return Ok(());
    }
    println!("Suite of php-memcached, and what runs it: {}", home.display());
    let apt = Apt::new(steps, home, &[("deb", "bookworm"), ("deb-src", "trixie")])?;
    let mut source = apt.get(&["source", "-q", "--download-only", "--tar-only", PHP]);
    source.current_dir(home);
    steps.run("suite of php-memcached, fetch", source)?;
    let mut runner = apt.get(&["download", "-q", "php8.2-dev"]);
    runner.current_dir(home);
    steps.run("runner of PHP's tests, fetch", runner)?;
    let unpack = format!(
        "echo '{PHP_SHA256}  {PHP_FILE}' | sha256sum --check --quiet\n\
         rm -rf php && mkdir php && tar xzf {PHP_FILE} -C php --strip-components=1\n\
         dpkg-deb -x php8.2-dev_*.deb runner\n\
         cp runner/usr/lib/php/*/build/run-tests.php php-run-tests.php\n\
         rm -rf runner php8.2-dev_*.deb"
    );
    let mut unpack = program("sh", ["-ec", unpack.as_str()]);
    unpack.current_dir(home);
    steps.run("suite of php-memcached, unpack", unpack)?;
    mark(&done)
}

fn go(steps: &mut Steps, home: &Path) -> Result<(), Failure> {
    let binary = home.join("gomemcache");
    if is_newer(&binary, "e2e/clients/go/go.sum") {
        return Ok(());
    }
    println!("Suite of gomemcache: {}", binary.display());
    let mut build = program("go", ["test", "-c", "-o"]);
    build.arg(&binary).arg("github.com/bradfitz/gomemcache/memcache");
    build.current_dir("e2e/clients/go");
    steps.run("suite of gomemcache", build)
}
