//! Builds wheels of the library for Python: for CPython 3.10 and later, on every Linux with
//! glibc 2.17 or later.
//!
//! zig compiles the C parts and links against the old glibc. maturin refuses to name the wheel
//! manylinux if it needs a newer symbol.

use crate::failure::Failure;
use crate::steps::{Steps, program, target};
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The tools from PyPI.
const TOOLS: [&str; 2] = ["maturin==1.16.0", "ziglang==0.17.1"];

/// The tag of glibc 2.17.
const PLATFORM: &str = "manylinux2014";

/// Builds the wheel that the tests use, into this folder.
pub(crate) fn wheel_for_tests(steps: &mut Steps, folder: &Path) -> Result<(), Failure> {
    let mut build = wheel(steps, "dev", folder)?;
    build.env("CARGO_TARGET_DIR", target().join("python"));
    steps.run("python library, wheel", build)
}

/// The command that builds a wheel with this profile, into this folder.
pub(crate) fn wheel(steps: &mut Steps, profile: &str, folder: &Path) -> Result<Command, Failure> {
    let bin = tools(steps)?;
    let words =
        ["build", "--locked", "--profile", profile, "--zig", "--compatibility", PLATFORM, "-o"];
    let mut build = program(bin.join("maturin"), words);
    build.arg(folder).args(["-m", "python/Cargo.toml"]);
    // maturin finds zig as a module of the first python3.
    let path = env::var_os("PATH").unwrap_or_default();
    let path = std::iter::once(bin).chain(env::split_paths(&path));
    let path = env::join_paths(path).map_err(|error| Failure::Release(error.to_string()))?;
    build.env("PATH", path);
    Ok(build)
}

/// The folder of the tools' programs, which are installed if missing.
fn tools(steps: &mut Steps) -> Result<PathBuf, Failure> {
    let venv = target().join("tools/wheel");
    let (bin, done) = (venv.join("bin"), venv.join("installed"));
    let wanted = TOOLS.join("\n");
    if !fs::read_to_string(&done).is_ok_and(|installed| installed == wanted) {
        let fresh = ["-m".as_ref(), "venv".as_ref(), "--clear".as_ref(), venv.as_os_str()];
        steps.run("wheel, venv", program("python3", fresh))?;
        let mut install = program(bin.join("pip"), ["install", "--quiet"]);
        install.arg("--disable-pip-version-check").args(TOOLS);
        steps.run("wheel, tools", install)?;
        fs::write(&done, wanted).map_err(Failure::path(&done))?;
    }
    Ok(bin)
}
