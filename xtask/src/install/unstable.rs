//! Debian unstable's memcached, which is newer than the one that tests install, below `target/e2e`.
//!
//! It comes with the C library that it was built for, so it runs beside an older Debian's. `apt`
//! has a configuration and a folder of its own here: nothing of the system changes.

use std::fs;
use std::path::Path;

use crate::failure::Failure;
use crate::install::tools;
use crate::steps::{Steps, program};

const SOURCE: &str = "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] \
    http://deb.debian.org/debian unstable main\n";

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
    let (state, packages, root) = (home.join("apt"), home.join("packages"), home.join("root"));
    for folder in [&state.join("lists/partial"), &state.join("archives/partial"), &packages] {
        fs::create_dir_all(folder).map_err(Failure::path(folder))?;
    }
    let write = |path: &Path, text: &str| fs::write(path, text).map_err(Failure::path(path));
    write(&state.join("sources.list"), SOURCE)?;
    write(&state.join("status"), "")?;
    let state = state.display();
    let settings = format!(
        "Dir::Etc::sourcelist \"{state}/sources.list\";\nDir::Etc::sourceparts \"/dev/null\";\n\
         Dir::State \"{state}\";\nDir::State::status \"{state}/status\";\n\
         Dir::Cache \"{state}\";\nAPT::Sandbox::User \"\";\n"
    );
    let file = home.join("apt.conf");
    write(&file, &settings)?;
    let mut update = program("apt-get", ["update", "-q"]);
    update.env("APT_CONFIG", &file);
    steps.run("unstable, update", update)?;
    let mut download = program("apt-get", ["download", "-q"]);
    download.args(PACKAGES).env("APT_CONFIG", &file).current_dir(&packages);
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
    write(&script, &text)?;
    steps.run("unstable, executable", program("chmod", ["+x".as_ref(), script.as_os_str()]))?;
    steps.run("unstable, version", program(&script, ["-V"]))
}
