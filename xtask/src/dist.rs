//! `cargo xtask dist`: everything of a release, in `target/dist`.
//!
//! Standard tools make the packages (`dpkg-deb`, `rpmbuild`, `umoci`, `tar`, `cargo cyclonedx`,
//! `maturin`). This module chooses the files, and keeps times and owners out of them, so that the
//! same commit gives the same bytes.

mod binary;
mod check;
mod container;
mod kept;
mod materials;
mod packages;
mod python;
mod roles;
mod rollout;
mod stage;

use crate::failure::Failure;
use crate::install;
use crate::steps::{ParallelCommand, Steps, program, target};
use std::fs;
use std::path::{Path, PathBuf};

/// Debian packages that make a release, and the purpose of each.
const TOOLS: [(&str, &str); 4] = [
    ("musl-tools", "a C compiler for the static binary"),
    ("rpm", "rpmbuild"),
    ("umoci", "makes the image"),
    ("python3-venv", "the tools of the wheel"),
];

/// The name and date of a release.
#[derive(Debug)]
pub(crate) struct Release {
    version: String,
    /// The commit's time in seconds, the date of every file in a package.
    epoch: String,
    commit: String,
    folder: PathBuf,
    binary: PathBuf,
    /// The end of the settings file, which differs for an upgrade.
    settings_end: &'static str,
    /// The level of xz, 0 to 9.
    compression: u8,
}

impl Release {
    fn of_head() -> Result<Self, Failure> {
        Ok(Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            epoch: git(&["log", "-1", "--format=%ct"])?,
            commit: git(&["rev-parse", "--short=12", "HEAD"])?,
            folder: target().join("dist"),
            binary: binary::path(&binary::home()),
            settings_end: "",
            compression: 6,
        })
    }

    /// The same files with another version and folder, to upgrade from.
    fn before(&self, version: &str) -> Self {
        Self {
            version: version.to_owned(),
            epoch: self.epoch.clone(),
            commit: self.commit.clone(),
            folder: self.folder.join("before"),
            binary: self.binary.clone(),
            settings_end: "# The release before.\n",
            // It is temporary.
            compression: 0,
        }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn deb(&self) -> PathBuf {
        self.file(&format!("holdall_{}_amd64.deb", self.version))
    }

    fn rpm(&self) -> PathBuf {
        self.file(&format!("holdall-{}-1.x86_64.rpm", self.version))
    }

    /// The name of the tarball, and of the folder in it.
    fn stem(&self) -> String {
        format!("holdall-{}-x86_64-linux-musl", self.version)
    }

    fn tarball(&self) -> PathBuf {
        self.file(&format!("{}.tar.gz", self.stem()))
    }

    fn materials(&self) -> PathBuf {
        self.file(&format!("holdall-{}.cdx.json", self.version))
    }

    fn image(&self) -> PathBuf {
        self.file(&format!("holdall-{}-x86_64.oci.tar", self.version))
    }
}

/// The packages to make and check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// All of a release.
    Whole,
    /// Without the bill of materials, whose tool takes minutes to compile, and with the tests'
    /// wheel.
    Brief,
}

/// Builds the static binary of the working tree while `other` runs, and returns its path.
pub(crate) fn binary(steps: &mut Steps, other: ParallelCommand) -> Result<PathBuf, Failure> {
    install::debian(steps, "The static binary is built by this Debian package:", &TOOLS[..1])?;
    let release = Release::of_head()?;
    binary::build(steps, &release, vec![other])?;
    Ok(release.binary)
}

/// `dist brief`, to run together with the tests once the binary is built. It needs root.
pub(crate) fn beside(steps: &mut Steps) -> Result<Option<ParallelCommand>, Failure> {
    if !install::is_root() {
        steps.not_run("packages: clean roots are booted by root alone");
        return Ok(None);
    }
    // Not while the tests run.
    check::install_tools(steps)?;
    let own = std::env::current_exe().map_err(Failure::path("xtask"))?;
    Ok(Some(ParallelCommand::other("packages", program(own, ["dist", "brief"]))))
}

/// Makes a release; `pack` only packs existing builds, `twice` and `check` verify the result.
pub(crate) fn run(steps: &mut Steps, words: &[String]) -> Result<(), Failure> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let release = Release::of_head()?;
    match *words.as_slice() {
        [] => {
            install::debian(steps, "A release is made by these Debian packages:", &TOOLS)?;
            binary::build(steps, &release, Vec::new())?;
            packages::make(steps, &release, Extent::Whole)
        }
        ["pack"] => packages::make(steps, &release, Extent::Whole),
        ["twice"] => binary::twice(steps, &release),
        ["check"] => check::run(steps, &release, Extent::Whole),
        ["brief"] => {
            check::install_tools(steps)?;
            packages::make(steps, &release, Extent::Brief)?;
            check::run(steps, &release, Extent::Brief)
        }
        _ => Err(Failure::Usage("usage: cargo xtask dist [pack|twice|check|brief]".to_owned())),
    }
}

/// Git's output, without the line end.
fn git(words: &[&str]) -> Result<String, Failure> {
    let output = program("git", words)
        .output()
        .map_err(|error| Failure::command("git", &program("git", words), error))?;
    match String::from_utf8(output.stdout) {
        Ok(text) if output.status.success() => Ok(text.trim_end().to_owned()),
        _ => Err(Failure::Git(String::from_utf8_lossy(&output.stderr).into_owned())),
    }
}

/// An empty folder at this place.
fn fresh(folder: &Path) -> Result<(), Failure> {
    if folder.exists() {
        fs::remove_dir_all(folder).map_err(Failure::path(folder))?;
    }
    fs::create_dir_all(folder).map_err(Failure::path(folder))
}

/// The tracked files of HEAD, in a separate folder.
fn export(steps: &mut Steps, folder: &Path) -> Result<(), Failure> {
    fresh(folder)?;
    let mut copy = program("sh", ["-c", "git archive HEAD | tar -x -C \"$0\""]);
    copy.arg(folder);
    steps.run("source, exported", copy)
}
