//! Debian unstable's memcached, which is newer than the one that tests install, below `target/e2e`.
//!
//! It comes with the C library that it was built for, so it runs beside an older Debian's.

use std::fs;

use super::apart::Apt;
use crate::failure::Failure;
use crate::install::tools;
use crate::steps::{Steps, program};

/// memcached, and the libraries that it is linked with.
const PACKAGES: [&str; 10] = [
    "memcached",
    "libc6",
    "libevent-2.1-7t64",
    "libgcc-s1",
    "liblua5.4-0",
    "libsasl2-2",
    "libssl3t64",
    "libzstd1",
    "zlib1g",
    "libdb5.3t64",
];

/// Fetches the present one; `unstable/memcached` below the tools starts it.
pub(crate) fn memcached(steps: &mut Steps) -> Result<(), Failure> {
    let home = tools().join("unstable");
    let (packages, root) = (home.join("packages"), home.join("root"));
    fs::create_dir_all(&packages).map_err(Failure::path(&packages))?;
    let apt = Apt::new(steps, &home, &[("deb", "unstable")])?;
    let mut download = apt.get(&["download", "-q"]);
    download.args(PACKAGES).current_dir(&packages);
    steps.run("unstable, download", download)?;
    let each = "for file in *.deb; do dpkg-deb -x \"$file\" ../root; done; rm ./*.deb";
    let mut unpack = program("sh", ["-ec", each]);
    unpack.current_dir(&packages);
    steps.run("unstable, unpack", unpack)?;
    let root = root.display();
    let script = home.join("memcached");
    let libraries = format!("{root}/usr/lib/$(uname -m)-linux-gnu");
    let text = format!(
        "#!/bin/sh\nexec \"$(ls {root}/usr/lib64/ld-linux-*.so.* {root}/usr/lib/ld-linux-*.so.* \
         2>/dev/null | head -n 1)\" --library-path \"{libraries}\" {root}/usr/bin/memcached \"$@\"\n"
    );
    fs::write(&script, &text).map_err(Failure::path(&script))?;
    steps.run("unstable, executable", program("chmod", ["+x".as_ref(), script.as_os_str()]))?;
    steps.run("unstable, version", program(&script, ["-V"]))
}
