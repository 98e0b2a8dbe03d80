//! `holdall bench agent`: a generator host that a coordinator uses.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;

use crate::agents;
use crate::terminal;

/// Waits for `holdall bench run --agents`, and sends the load that it requests.
///
/// Anyone who can reach this address can make this host send load to any target. Listen only on a
/// trusted network.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct AgentArgs {
    /// Where to wait for coordinators, one after the other.
    #[arg(short, long, default_value = "127.0.0.1:11999", value_name = "ADDRESS:PORT")]
    listen: String,
    /// A file of certificates, of a key or of a login that loads may use, by the name that the
    /// coordinator gives it; may be given several times. Its contents go to servers that a
    /// coordinator chooses.
    #[arg(long = "allow-file", value_name = "FILE")]
    files: Vec<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  holdall bench agent --listen 10.0.0.7:11999                                on each generator host
  holdall bench run -s 10.0.0.1 --agents 10.0.0.7:11999,10.0.0.8:11999       on one of them, or elsewhere";

pub(super) fn run(args: &AgentArgs) -> Result<ExitCode> {
    let listener = TcpListener::bind(&args.listen).with_context(|| args.listen.clone())?;
    terminal::eprint_error(&format!("listening on {}", listener.local_addr()?));
    agents::serve(&listener, &args.files, terminal::eprint_error)?;
    Ok(ExitCode::SUCCESS)
}
