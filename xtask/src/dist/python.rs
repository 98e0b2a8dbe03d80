//! The wheel of a release, and the test wheel that replaces it in `ci`.

use super::{Extent, Release};
use crate::failure::Failure;
use crate::python;
use crate::steps::{Steps, target};
use std::fs;
use std::path::PathBuf;

impl Release {
    /// The path of the wheel, with its standard name.
    pub(super) fn wheel(&self, extent: Extent) -> PathBuf {
        let platform = "manylinux2014_x86_64.manylinux_2_17_x86_64";
        let name = format!("holdall-{}-cp310-abi3-{platform}.whl", self.version);
        match extent {
            Extent::Whole => self.file(&name),
            Extent::Brief => self.file(OF_TESTS).join(name),
        }
    }
}

/// The folder of the test wheel, separate from released files.
const OF_TESTS: &str = "roots/wheel";

/// Builds the wheel: for a release, or for the tests, which takes half the time.
pub(super) fn make(steps: &mut Steps, release: &Release, extent: Extent) -> Result<(), Failure> {
    match extent {
        Extent::Brief => python::wheel_for_tests(steps, &release.file(OF_TESTS))?,
        Extent::Whole => {
            let mut build = python::wheel(steps, "release", &release.folder)?;
            build.arg("--strip").env("CARGO_TARGET_DIR", target().join("wheel"));
            build.env("SOURCE_DATE_EPOCH", &release.epoch);
            steps.run("wheel", build)?;
        }
    }
    let file = release.wheel(extent);
    fs::metadata(&file).map(|_| ()).map_err(Failure::path(&file))
}
