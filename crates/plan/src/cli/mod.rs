//! `holdall plan`.

mod advise;
mod size;

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand, ValueEnum};
use serde_json::json;

use crate::{Files, KUSTOMIZATION, PlanError, Topology, TopologyError, kubernetes, systemd};

/// Makes the files that every host needs from one topology file; sizes a tier, and
/// says what to change in one.
#[derive(Debug, Parser)]
#[command(name = "holdall plan", version, about, after_help = EXAMPLES)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
struct Arguments {
    #[command(subcommand)]
    task: Option<Task>,
    #[command(flatten)]
    emit: Option<EmitArguments>,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Says how many servers a load needs, how large, and what binds them
    Size(size::Arguments),
    /// Says what to change in a running tier, with the evidence and the command
    Advise(advise::Arguments),
}

#[derive(Debug, clap::Args)]
struct EmitArguments {
    /// The topology
    file: PathBuf,
    /// For what
    #[arg(long, value_enum)]
    emit: Emit,
    /// The folder to write to; without it the files are printed
    #[arg(short, long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Prints the names of the written files as JSON
    #[arg(long, requires = "out")]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Emit {
    /// A folder for each host: units, the routers' and the invalidators' configuration
    Systemd,
    /// A file of manifests for each region, and a kustomization of them in the folder
    Kubernetes,
}

const EXAMPLES: &str = "\
Examples:
  holdall plan topology.toml --emit systemd -o plan
      then copy plan/ADDRESS/ to / of each host, and enable its units
  holdall plan topology.toml --emit kubernetes | kubectl apply -f -
  holdall plan topology.toml --emit kubernetes -o base && kubectl apply -k base
  holdall plan size load.toml --topology topology.toml
      how many servers for that load, and a topology of them
  holdall plan advise 10.0.0.1 10.0.0.2 10.0.0.5:5000
      what to change in the tier that runs

docs/deployment.md has the topology file, docs/sizing.md the file of the load.";

/// The exit status for an invalid file.
const EXIT_TOPOLOGY: u8 = 2;

/// The command line, for manual pages and completions.
#[must_use]
pub fn interface() -> clap::Command {
    Arguments::command()
}

/// Runs the command; the arguments come after `plan`.
#[must_use]
pub fn main(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let arguments: Arguments = match usage::parse("holdall plan", arguments) {
        Ok(arguments) => arguments,
        Err(status) => return status,
    };
    match (arguments.task, arguments.emit) {
        (Some(Task::Size(arguments)), _) => size::main(&arguments),
        (Some(Task::Advise(arguments)), _) => advise::main(&arguments),
        (None, Some(arguments)) => emitted(&arguments),
        // Clap refuses a line without either.
        (None, None) => ExitCode::from(usage::EXIT_USAGE),
    }
}

fn emitted(arguments: &EmitArguments) -> ExitCode {
    match made(arguments) {
        Err(why) => refused(&why, EXIT_TOPOLOGY),
        Ok(files) => match put(&files, arguments.out.as_deref(), arguments.json) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => refused(&error, 1),
        },
    }
}

/// Prints the reason on stderr.
fn refused(why: &dyn std::fmt::Display, status: u8) -> ExitCode {
    // If the stream is closed, the message cannot be delivered.
    let _ = writeln!(io::stderr(), "holdall plan: {why}");
    ExitCode::from(status)
}

/// The reason why the files could not be made.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Topology(#[from] TopologyError),
    #[error("{}: {error}", file.display())]
    Plan { file: PathBuf, error: PlanError },
}

fn made(arguments: &EmitArguments) -> Result<Files, Failure> {
    let topology = Topology::read(&arguments.file)?;
    let files = match arguments.emit {
        Emit::Systemd => systemd(&topology),
        Emit::Kubernetes => kubernetes(&topology),
    };
    files.map_err(|error| Failure::Plan { file: arguments.file.clone(), error })
}

fn put(files: &Files, folder: Option<&Path>, as_json: bool) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let Some(folder) = folder else {
        // A single YAML stream may be the whole output; otherwise a name marks the start of each
        // file.
        let is_stream = files.keys().all(|name| name.ends_with(".yaml"));
        // kubectl accepts only resources.
        for (name, text) in files.iter().filter(|(name, _)| *name != KUSTOMIZATION) {
            if !is_stream {
                writeln!(out, "# {name}")?;
            }
            out.write_all(text.as_bytes())?;
        }
        return Ok(());
    };
    for (name, text) in files {
        let path = folder.join(name);
        let in_folder =
            |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(in_folder)?;
        }
        fs::write(&path, text).map_err(in_folder)?;
    }
    if as_json {
        let names: Vec<_> = files.keys().collect();
        return writeln!(out, "{:#}", json!({"folder": folder, "files": names}));
    }
    writeln!(out, "{} files in {}", files.len(), folder.display())
}
