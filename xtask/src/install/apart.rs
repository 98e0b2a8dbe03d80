//! A separate `apt` with its own configuration and folder. It fetches packages and sources of any
//! Debian release without changing the system.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::Failure;
use crate::steps::{Steps, program};

/// The signer of Debian's releases.
const SIGNED_BY: &str = "signed-by=/usr/share/keyrings/debian-archive-keyring.gpg";

/// An `apt` with fetched lists.
pub(super) struct Apt {
    configuration: PathBuf,
}

impl Apt {
    /// Uses a folder below `home`, for these kinds and releases: `("deb", "unstable")`.
    pub(super) fn new(
        steps: &mut Steps,
        home: &Path,
        releases: &[(&str, &str)],
    ) -> Result<Self, Failure> {
        let state = home.join("apt");
        for folder in ["lists/partial", "archives/partial"].map(|name| state.join(name)) {
            fs::create_dir_all(&folder).map_err(Failure::path(&folder))?;
        }
        let write = |path: &Path, text: &str| fs::write(path, text).map_err(Failure::path(path));
        let sources: String = releases
            .iter()
            .map(|(kind, release)| {
                format!("{kind} [{SIGNED_BY}] http://deb.debian.org/debian {release} main\n")
            })
            .collect();
        write(&state.join("sources.list"), &sources)?;
        write(&state.join("status"), "")?;
        let state = state.display();
        let settings = format!(
            "Dir::Etc::sourcelist \"{state}/sources.list\";\n\
             Dir::Etc::sourceparts \"/dev/null\";\n\
             Dir::State \"{state}\";\nDir::State::status \"{state}/status\";\n\
             Dir::Cache \"{state}\";\nAPT::Sandbox::User \"\";\n"
        );
        let apt = Self { configuration: home.join("apt.conf") };
        write(&apt.configuration, &settings)?;
        steps.run("apt lists", apt.get(&["update", "-q"]))?;
        Ok(apt)
    }

    /// `apt-get` with these arguments.
    pub(super) fn get(&self, words: &[&str]) -> Command {
        let mut command = program("apt-get", words);
        command.env("APT_CONFIG", &self.configuration);
        command
    }
}

/// Fetches Debian's kustomize, which the installed release lacks, to `kustomize` below `tools`.
pub(super) fn kustomize(steps: &mut Steps, tools: &Path) -> Result<(), Failure> {
    let program_there = tools.join("kustomize");
    if program_there.exists() {
        return Ok(());
    }
    println!("kustomize, which reads the manifests: {}", program_there.display());
    let home = tools.join("kustomize-package");
    let apt = Apt::new(steps, &home, &[("deb", "trixie")])?;
    let mut download = apt.get(&["download", "-q", "kustomize"]);
    download.current_dir(&home);
    steps.run("kustomize, fetch", download)?;
    let unpack = "dpkg-deb -x kustomize_*.deb root && mv root/usr/bin/kustomize ..";
    let mut unpack = program("sh", ["-ec", unpack]);
    unpack.current_dir(&home);
    steps.run("kustomize, unpack", unpack)?;
    steps.run("kustomize, version", program(&program_there, ["version"]))?;
    fs::remove_dir_all(&home).map_err(Failure::path(&home))
}
