//! Debian unstable's memcached and MySQL, below `target/e2e`. They are newer than the installed
//! ones.
//!
//! Each comes with the libraries that it was built for, so it runs on an older Debian.

use std::fs;
use std::path::Path;

use super::apart::Apt;
use crate::failure::Failure;
use crate::install::tools;
use crate::steps::{Steps, program};

/// Fetches the current memcached; `unstable/memcached` below the tools starts it.
pub(crate) fn memcached(steps: &mut Steps) -> Result<(), Failure> {
    let home = tools().join("unstable");
    fetch(steps, &home, "memcached")?;
    let script = home.join("memcached");
    starter(steps, &script, "root", "usr/bin/memcached", "")?;
    steps.run("unstable, version", program(&script, ["-V"]))
}

/// Fetches MySQL if it is missing; `mysql-9/bin/mysqld` below the tools starts it.
pub(super) fn mysql(steps: &mut Steps) -> Result<(), Failure> {
    let home = tools().join("mysql-9");
    let script = home.join("bin/mysqld");
    if script.exists() {
        return Ok(());
    }
    println!("MySQL 9, another database: {}", home.display());
    fetch(steps, &home, "mysql-server-core")?;
    let bin = home.join("bin");
    fs::create_dir_all(&bin).map_err(Failure::path(&bin))?;
    starter(steps, &script, "../root", "usr/sbin/mysqld", " \"--basedir=$root/usr\"")?;
    steps.run("MySQL 9, version", program(&script, ["--no-defaults", "--version"]))
}

/// Unpacks a package with all its dependencies below `home/root`.
fn fetch(steps: &mut Steps, home: &Path, package: &str) -> Result<(), Failure> {
    fs::create_dir_all(home).map_err(Failure::path(home))?;
    let apt = Apt::new(steps, home, &[("deb", "unstable")])?;
    // This apt considers nothing installed, so it fetches everything.
    let words = ["install", "-q", "-y", "--download-only", "--no-install-recommends", package];
    steps.run("unstable, download", apt.get(&words))?;
    let each = "for file in apt/archives/*.deb; do dpkg-deb -x \"$file\" root; done\n\
                rm apt/archives/*.deb";
    let mut unpack = program("sh", ["-ec", each]);
    unpack.current_dir(home);
    steps.run("unstable, unpack", unpack)
}

/// Writes a script that starts a program with the libraries of `root`, a path relative to the
/// script's folder; `more` follows the script's own arguments.
fn starter(
    steps: &mut Steps,
    script: &Path,
    root: &str,
    path: &str,
    more: &str,
) -> Result<(), Failure> {
    let text = format!(
        "#!/bin/sh\nroot=\"$(cd \"$(dirname \"$0\")/{root}\" && pwd)\"\n\
         loader=\"$(ls \"$root\"/usr/lib64/ld-linux-*.so.* \"$root\"/usr/lib/ld-linux-*.so.* \
         2>/dev/null | head -n 1)\"\n\
         exec \"$loader\" --library-path \"$root/usr/lib/$(uname -m)-linux-gnu\" \
         \"$root/{path}\" \"$@\"{more}\n"
    );
    fs::write(script, &text).map_err(Failure::path(script))?;
    steps.run("unstable, executable", program("chmod", ["+x".as_ref(), script.as_os_str()]))
}
