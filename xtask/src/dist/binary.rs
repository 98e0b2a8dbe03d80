//! The static binary, and the comparison of two builds.

use super::{Release, export};
use crate::failure::Failure;
use crate::steps::{ParallelCommand, Steps, cargo, program, root, target};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The target of the release.
pub(super) const TARGET: &str = "x86_64-unknown-linux-musl";

/// Maximum size of a released binary, in bytes.
const BYTES_MAX: u64 = 16 << 20;

/// Makes the linker pack the addresses that a position-independent program relocates at its start:
/// one bit each instead of 24 bytes. musl supports that since 1.2.4, and Rust has a newer one.
const SMALL_RELOCATIONS: &str = "-Clink-arg=-Wl,-z,pack-relative-relocs";

/// The build folder of the release: builds for the machine's own libc use another.
pub(super) fn home() -> PathBuf {
    target().join("dist-build")
}

/// The binary in a build folder of cargo.
pub(super) fn path(home: &Path) -> PathBuf {
    home.join(TARGET).join("dist/holdall")
}

/// Builds the binary from the working tree, and runs `others` in parallel: its last part, the
/// optimization of the whole program, uses only one processor.
pub(super) fn build(
    steps: &mut Steps,
    release: &Release,
    others: Vec<ParallelCommand>,
) -> Result<(), Failure> {
    steps.run("target for musl", program("rustup", ["target", "add", TARGET]))?;
    let compile = ParallelCommand::other("static binary", compile(release, &root(), &home()));
    steps.run_together(std::iter::once(compile).chain(others).collect())?;
    let bytes = release.binary.metadata().map_err(Failure::path(&release.binary))?.len();
    println!("{bytes} bytes of at most {BYTES_MAX}");
    if bytes > BYTES_MAX {
        return Err(Failure::Release(format!("the binary has {bytes} bytes of {BYTES_MAX}")));
    }
    Ok(())
}

/// Builds the commit from another folder, and compares. A build of a changed working tree differs.
pub(super) fn twice(steps: &mut Steps, release: &Release) -> Result<(), Failure> {
    build(steps, release, Vec::new())?;
    let source = release.file("elsewhere/source");
    export(steps, &source)?;
    let home = release.file("elsewhere/target");
    steps.run("static binary, from another folder", compile(release, &source, &home))?;
    let mut compare = program("cmp", [&release.binary, &path(&home)]);
    compare.env_clear();
    steps.run("the two builds are the same bytes", compare)
}

/// Keeps paths of this machine out of the binary: in panic messages, and in the metadata of C code.
fn compile(release: &Release, source: &Path, home: &Path) -> Command {
    let registry = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let registry = registry.or_else(|| Some(std::env::home_dir()?.join(".cargo")));
    let places = [(Some(source.to_owned()), "/holdall"), (registry, "/cargo")];
    let map = |flag: &str| {
        let known = places.iter().filter_map(|(path, name)| Some((path.as_ref()?, name)));
        let flags = known.map(|(path, name)| format!("{flag}={}={name}", path.display()));
        flags.collect::<Vec<_>>().join(" ")
    };
    let flags = [&map("--remap-path-prefix"), SMALL_RELOCATIONS].join(" ");
    let mut build = cargo(["build", "--profile", "dist", "--target", TARGET, "--locked"]);
    build
        .args(["-p", "holdall"])
        .current_dir(source)
        .env("CARGO_TARGET_DIR", home)
        .env("HOLDALL_COMMIT", &release.commit)
        // C code includes its compile time: a constant here, so that stored parts of an earlier
        // commit's build fit.
        .env("SOURCE_DATE_EPOCH", "0")
        .env("CARGO_TARGET_X86_64_UNKNOWN_LINUX_MUSL_RUSTFLAGS", flags)
        .env("CFLAGS_x86_64_unknown_linux_musl", map("-ffile-prefix-map"));
    build
}
