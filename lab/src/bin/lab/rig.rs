//! The parts that measurements share: child processes, builds, and runs of `holdall bench`.

use std::env;
use std::ffi::OsStr;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use processes::{ChildGuard, wait_until_accepts};

/// The time within which a program must accept connections.
const START_MAX: Duration = Duration::from_secs(20);

/// Programs that end when this value is dropped.
pub(crate) struct Running(Vec<ChildGuard>);

impl Running {
    /// Contains no program yet.
    pub(crate) const fn new() -> Self {
        Self(Vec::new())
    }

    /// Starts holdall with these arguments and waits until it accepts connections on the port.
    /// Returns its process id.
    pub(crate) fn start(&mut self, words: &[&str], port: u16) -> Result<u32> {
        self.start_program(&program("holdall"), words, port)
    }

    /// Starts another program and waits until it accepts on the port. Returns its process id.
    pub(crate) fn start_program(
        &mut self,
        program: &PathBuf,
        words: &[&str],
        port: u16,
    ) -> Result<u32> {
        let mut command = Command::new(program);
        command.args(words).stdin(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().with_context(|| program.display().to_string())?;
        let mut child = ChildGuard::from(child);
        let pid = child.id();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        wait_until_accepts(&[address], Some(&mut child), START_MAX)
            .with_context(|| format!("{} {words:?}", program.display()))?;
        self.0.push(child);
        Ok(pid)
    }
}

/// A program of the release build, or of the folder in `BENCH_BIN` if that is set.
pub(crate) fn program(name: &str) -> PathBuf {
    folder().join(name)
}

/// The folder of the measured programs.
pub(crate) fn folder() -> PathBuf {
    env::var_os("BENCH_BIN").map_or_else(|| target().join("release"), PathBuf::from)
}

/// Builds the measured programs, unless `BENCH_BIN` names a folder that contains them.
pub(crate) fn build(words: &[&str]) -> Result<()> {
    if env::var_os("BENCH_BIN").is_some() {
        return Ok(());
    }
    let mut build = cargo(["build", "--release", "--locked"]);
    match build.args(words).status() {
        Ok(status) if status.success() => Ok(()),
        _ => bail!("the build failed"),
    }
}

/// A port for a server; see [`processes::free_port`].
pub(crate) fn free_port() -> Result<u16> {
    Ok(processes::free_port()?)
}

/// The folder of the workspace.
pub(crate) fn root() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent().unwrap_or(own).to_owned()
}

/// The folder that cargo builds into.
pub(crate) fn target() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// A command for the cargo that runs this program.
pub(crate) fn cargo<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args);
    command
}

/// The figures of a run of `holdall bench run`: its row `all`, or its only row.
#[derive(Clone, Copy)]
pub(crate) struct Row {
    pub(crate) requests: f64,
    pub(crate) per_second: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
}

/// Starts `holdall bench run` with these arguments.
pub(crate) fn begin(words: &[&str]) -> Result<Child> {
    let mut command = Command::new(program("holdall"));
    command.args(["bench", "run"]).args(words).stdout(Stdio::piped()).stderr(Stdio::null());
    command.spawn().context("holdall bench")
}

/// Waits until the run ends, and reads its output.
pub(crate) fn end(run: Child) -> Result<Row> {
    let output = run.wait_with_output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find(|line| line.starts_with("all ") || line.starts_with("gets "));
    let line = line.ok_or_else(|| anyhow!("holdall bench has no figures:\n{text}"))?;
    // Name, requests, requests per second, hits with a percent sign, mean, p50, p99.
    let numbers: Vec<f64> =
        line.split_whitespace().skip(1).filter_map(|word| word.parse().ok()).collect();
    match numbers[..] {
        [requests, per_second, _hits, _mean, p50_us, p99_us, ..] => {
            Ok(Row { requests, per_second, p50_us, p99_us })
        }
        _ => bail!("not the figures of holdall bench: {line}"),
    }
}

/// Runs `holdall bench run` to its end.
pub(crate) fn run(words: &[&str]) -> Result<Row> {
    end(begin(words)?)
}

/// Returns the result of `holdall bench search` with these arguments.
pub(crate) fn search(words: &[&str]) -> Result<f64> {
    let mut command = Command::new(program("holdall"));
    command.args(["bench", "search"]).args(words).stderr(Stdio::null());
    let output = command.output().context("holdall bench")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let holds = text.lines().find_map(|line| line.split_once(" holds at ")?.1.split(' ').next());
    holds.and_then(|word| word.parse().ok()).ok_or_else(|| anyhow!("nothing holds:\n{text}"))
}

/// The exit code of a measurement. Prints the error.
pub(crate) fn ended(name: &str, result: Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{name}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a command to its end.
pub(crate) fn done(command: &mut Command) -> Result<()> {
    let program = command.get_program().display().to_string();
    let status = command.status().with_context(|| program.clone())?;
    if status.success() { Ok(()) } else { bail!("{program}: {status}") }
}

/// The middle value.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
