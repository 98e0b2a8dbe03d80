//! The library for Python compared with others from PyPI.

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::Result;

use crate::rig::{self, Running, build, done, free_port, target};

/// Measures and prints a table.
pub(crate) fn run(args: &[String]) -> ExitCode {
    rig::ended("python", measure(args))
}

fn measure(args: &[String]) -> Result<()> {
    build(&["-p", "holdall"])?;
    let python = environment()?;
    let port = free_port()?;
    let mut running = Running::new();
    running.start(&["serve", "-u", "root", "-t", "1", "-p", &port.to_string()], port)?;
    let mut compare = Command::new(python);
    done(compare.arg("python/bench/compare.py").arg(format!("127.0.0.1:{port}")).args(args))
}

/// Creates a virtual environment with the wheel of the release build and the other clients. Returns
/// its interpreter.
fn environment() -> Result<PathBuf> {
    let home = target().join("bench/python");
    let (venv, wheels) = (home.join("venv"), home.join("wheels"));
    let python = venv.join("bin/python");
    if std::env::var_os("BENCH_BIN").is_some() && python.exists() {
        return Ok(python);
    }
    done(Command::new("python3").args(["-m", "venv"]).arg(&venv))?;
    let pip = |words: &[&str]| {
        let mut command = Command::new(venv.join("bin/pip"));
        command.args(["install", "--quiet", "--disable-pip-version-check"]).args(words);
        command
    };
    done(&mut pip(&["-r", "python/bench/requirements.txt"]))?;
    let mut maturin = Command::new(venv.join("bin/maturin"));
    maturin.args(["build", "--locked", "--release", "-m", "python/Cargo.toml", "-o"]).arg(&wheels);
    done(maturin.env("CARGO_TARGET_DIR", target().join("python")))?;
    let newest = ["--force-reinstall", "--no-deps", "--no-index", "holdall", "--find-links"];
    done(pip(&newest).arg(&wheels))?;
    Ok(python)
}
