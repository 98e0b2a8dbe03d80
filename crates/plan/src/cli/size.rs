//! `holdall plan size`.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use files::NewFile;
use sizing::{Candidate, Input, InputError, Sizing};

use super::{EXIT_TOPOLOGY, refused};

/// The flags of the command.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Arguments {
    /// The load, the data and the candidate servers
    #[arg(required_unless_present = "example")]
    file: Option<PathBuf>,
    /// Prints a commented file to begin with
    #[arg(long, exclusive = true)]
    example: bool,
    /// Prints JSON
    #[arg(long)]
    json: bool,
    /// Writes a page with the figures
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Writes a topology of the cheapest candidate, for `holdall plan FILE --emit`
    #[arg(long, value_name = "FILE")]
    topology: Option<PathBuf>,
    /// The candidate whose topology is written, in place of the cheapest
    #[arg(long, value_name = "NAME", requires = "topology")]
    platform: Option<String>,
}

const EXAMPLES: &str = "\
Examples:
  holdall plan size --example >load.toml
      a file of every entry, with what it means
  holdall plan size load.toml --html size.html
      servers, memory and costs of every candidate
  holdall plan size load.toml --topology topology.toml --platform small
      the servers of one candidate, for holdall plan topology.toml --emit kubernetes
  printf 'stats mrc\\r\\nquit\\r\\n' | nc 127.0.0.1 11211 >mrc.txt
      a running server's curve of hits by memory, for hits.curve

docs/sizing.md says what each number means. Exit status: 0; 1 when a file cannot be written; 2
when the load is wrong; 64 for a wrong command line.";

/// The reason why there is no answer.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Input(#[from] InputError),
    #[error("--platform {wanted}: the file has {names}")]
    Platform { wanted: String, names: String },
    #[error("{}: {error}", path.display())]
    Write { path: PathBuf, error: io::Error },
    #[error("JSON: {0}")]
    Json(#[from] serde_json::Error),
}

/// Runs the command.
pub(super) fn main(arguments: &Arguments) -> ExitCode {
    let answer = match &arguments.file {
        None => Ok(sizing::EXAMPLE.to_owned()),
        Some(file) => answered(file, arguments),
    };
    match answer {
        Ok(text) => match io::stdout().lock().write_all(text.as_bytes()) {
            // A reader that closes early is not a failure.
            Ok(()) => ExitCode::SUCCESS,
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
            Err(error) => refused(&error, 1),
        },
        // An output that is the input; the system's own errors are of other kinds.
        Err(Failure::Write { path, error }) if error.kind() == io::ErrorKind::Other => {
            refused(&format!("{}: {error}", path.display()), usage::EXIT_USAGE)
        }
        Err(error @ (Failure::Write { .. } | Failure::Json(_))) => refused(&error, 1),
        Err(error) => refused(&error, EXIT_TOPOLOGY),
    }
}

/// The output; other files are written first.
fn answered(file: &Path, arguments: &Arguments) -> Result<String, Failure> {
    let sizing = sizing::size(&Input::read(file)?, file)?;
    if let Some(path) = &arguments.html {
        write(path, &sizing::html(&sizing), file)?;
    }
    if let Some(path) = &arguments.topology {
        let candidate = chosen(&sizing, arguments.platform.as_deref())?;
        write(path, &sizing::topology(&sizing, candidate), file)?;
    }
    if arguments.json {
        return Ok(serde_json::to_string_pretty(&sizing)? + "\n");
    }
    Ok(sizing::text(&sizing))
}

fn chosen<'s>(sizing: &'s Sizing, name: Option<&str>) -> Result<&'s Candidate, Failure> {
    let found = match name {
        None => sizing.candidates.get(sizing.cheapest),
        Some(name) => sizing.candidates.iter().find(|c| c.platform.name == name),
    };
    found.ok_or_else(|| {
        let names: Vec<&str> = sizing.candidates.iter().map(|c| c.platform.name.as_str()).collect();
        let wanted = name.unwrap_or_default().to_owned();
        Failure::Platform { wanted, names: names.join(", ") }
    })
}

/// Replaces a file, which must not be the input.
fn write(path: &Path, text: &str, input: &Path) -> Result<(), Failure> {
    let put = || {
        let mut file = NewFile::create(path, &[input])?;
        file.write_all(text.as_bytes())?;
        file.finish()
    };
    put().map_err(|error| Failure::Write { path: path.to_owned(), error })
}
