//! `holdall bench stages`: where a request's time goes.

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;

use super::output;
use crate::stages::measure;
use crate::terminal;

/// Divides the time of a get into the guide's eight stages.
///
/// As in Intel's Configuration and Deployment Guide For Memcached, section 4.3.3. The client's
/// kernel stamps each request and reply (SO_TIMESTAMPING), and the server tells its own times;
/// docs/bench.md says how the rest is parted, and what one host cannot show.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct StagesArgs {
    /// The server, by text over TCP.
    #[arg(short, long, value_name = "HOST:PORT", default_value = "127.0.0.1:11211")]
    server: String,
    /// Gets, one after the other.
    #[arg(short = 'n', long, default_value_t = 10_000,
        value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    requests: u32,
    /// Bytes of a value.
    #[arg(short = 'd', long, default_value_t = 100,
        value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    data_size: u32,
    /// Keep the result in this file; `-`: print it, and the text to stderr.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  holdall bench stages -s 10.0.0.5:11211 --json stages.json
  holdall bench report stages.json";

pub(super) fn run(args: &StagesArgs) -> Result<ExitCode> {
    let file = output::begun(args.json.as_deref(), &[])?;
    let address = resolved(&args.server)?;
    let bytes = usize::try_from(args.data_size).unwrap_or(usize::MAX);
    let result = measure(address, args.requests, bytes)?;
    terminal::print(&result.shown());
    output::keep(file, &result)?;
    Ok(ExitCode::SUCCESS)
}

fn resolved(server: &str) -> Result<SocketAddr> {
    let mut found = server.to_socket_addrs().with_context(|| format!("--server {server}"))?;
    found.next().with_context(|| format!("--server {server} has no address"))
}
