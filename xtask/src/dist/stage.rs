//! The tree of files that a package installs.

use super::{Release, fresh};
use crate::failure::Failure;
use crate::steps::{Steps, program};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Stdio;

/// The families of distributions, which differ in zsh's folder of completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    Debian,
    Rpm,
}

/// Files of the repository and their places.
const FILES: [(&str, &str); 9] = [
    ("packaging/systemd/holdall.service", "usr/lib/systemd/system/holdall.service"),
    ("packaging/systemd/holdall-route.service", "usr/lib/systemd/system/holdall-route.service"),
    (
        "packaging/systemd/holdall-invalidate.service",
        "usr/lib/systemd/system/holdall-invalidate.service",
    ),
    (SETTINGS.0, SETTINGS.1),
    ("packaging/etc/server.schema.json", SCHEMA),
    ("packaging/etc/routes.json", "etc/holdall/routes.json"),
    ("LICENSE", "usr/share/doc/holdall/copyright"),
    ("NOTICE", "usr/share/doc/holdall/NOTICE"),
    ("CHANGELOG.md", "usr/share/doc/holdall/CHANGELOG.md"),
];

/// The settings of the server.
const SETTINGS: (&str, &str) = ("packaging/etc/server.toml", "etc/holdall/server.toml");

/// The schema of the settings, whose first line names it for editors.
const SCHEMA: &str = "usr/share/doc/holdall/server.schema.json";

/// Fills `root` with the files of a package.
pub(super) fn fill(
    steps: &mut Steps,
    release: &Release,
    root: &Path,
    family: Family,
) -> Result<(), Failure> {
    fresh(root)?;
    put(&release.binary, &root.join("usr/bin/holdall"), 0o755)?;
    for (from, to) in FILES {
        put(Path::new(from), &root.join(to), 0o644)?;
    }
    let settings = root.join(SETTINGS.1);
    let text = fs::read_to_string(&settings).map_err(Failure::path(&settings))?;
    let text = text.replace("./server.schema.json", &format!("/{SCHEMA}")) + release.settings_end;
    fs::write(&settings, text).map_err(Failure::path(&settings))?;
    manual(steps, release, &root.join("usr/share/man/man1"))?;
    let zsh = match family {
        Family::Debian => "usr/share/zsh/vendor-completions/_holdall",
        Family::Rpm => "usr/share/zsh/site-functions/_holdall",
    };
    for (shell, to) in [
        ("bash", "usr/share/bash-completion/completions/holdall"),
        ("zsh", zsh),
        ("fish", "usr/share/fish/vendor_completions.d/holdall.fish"),
    ] {
        completions(release, shell, &root.join(to))?;
    }
    let readable = program("chmod", ["-R".as_ref(), "u=rwX,go=rX".as_ref(), root.as_os_str()]);
    steps.run("modes", readable)
}

/// Copies a file to its place.
pub(super) fn put(from: &Path, to: &Path, mode: u32) -> Result<(), Failure> {
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder).map_err(Failure::path(folder))?;
    }
    fs::copy(from, to).map_err(Failure::path(from))?;
    fs::set_permissions(to, fs::Permissions::from_mode(mode)).map_err(Failure::path(to))
}

fn manual(steps: &mut Steps, release: &Release, folder: &Path) -> Result<(), Failure> {
    let mut pages = program(&release.binary, ["man"]);
    pages.arg(folder);
    steps.run("manual", pages)?;
    let mut pack = program("sh", ["-c", "gzip -n -9 \"$0\"/*"]);
    pack.arg(folder);
    steps.run("manual, packed", pack)
}

fn completions(release: &Release, shell: &str, to: &Path) -> Result<(), Failure> {
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder).map_err(Failure::path(folder))?;
    }
    let mut print = program(&release.binary, ["completions", shell]);
    let output = print
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| Failure::command("completions", &print, error))?;
    if !output.status.success() {
        return Err(Failure::Status { step: "completions".to_owned(), status: output.status });
    }
    fs::write(to, output.stdout).map_err(Failure::path(to))
}
