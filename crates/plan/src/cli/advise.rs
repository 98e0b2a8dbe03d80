//! `holdall plan advise`.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use advice::{Advice, Member, Tier};
use serde_json::json;
use tools::cli::Reach;
use tools::{Connection, Error, Reading, Wanted};

use super::refused;
use crate::target::{Target, targets};

/// The flags of the command.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Arguments {
    /// Members: HOST, HOST:PORT, unix:PATH, or a source of discovery
    #[arg(value_name = "ADDRESS", required_unless_present = "topology")]
    addresses: Vec<String>,
    /// A topology file: its servers and proxies
    #[arg(long, value_name = "FILE")]
    topology: Option<PathBuf>,
    /// Seconds between the two answers of each member
    #[arg(short, long, value_name = "SECS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3600))]
    interval: u64,
    /// Prints JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    reach: Reach,
}

const EXAMPLES: &str = "\
Every member is asked for its statistics twice; nothing is changed. Ask under the usual load: a
server that is idle, has just started or takes no samples has little to tell.

Examples:
  holdall plan advise 10.0.0.1 10.0.0.2 10.0.0.5:5000
  holdall plan advise --topology shop.toml --interval 60 --json

docs/advice.md has the rules. Exit status: 0; 1 if no member answers or a source of addresses
fails; 2 for a wrong topology; 64 for a wrong command line.";

/// Runs the command.
pub(super) fn main(arguments: &Arguments) -> ExitCode {
    let targets = match targets(&arguments.addresses, arguments.topology.as_deref()) {
        Ok(targets) => targets,
        Err(error) => return refused(&error, error.status()),
    };
    let tier = asked(&targets, arguments);
    if tier.members.is_empty() {
        let reasons: Vec<&str> = tier.away.iter().map(|(_, why)| why.as_str()).collect();
        return refused(&format!("no member answers: {}", reasons.join("; ")), 1);
    }
    let advice = advice::advise(&tier);
    let text =
        if arguments.json { format!("{:#}\n", json!(advice)) } else { in_words(&advice, &tier) };
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => refused(&error, 1),
        _ => ExitCode::SUCCESS,
    }
}

/// Queries all members at once, so that their answers are from the same time.
fn asked(targets: &[Target], arguments: &Arguments) -> Tier {
    let mut tier = Tier::default();
    thread::scope(|scope| {
        let ask = |target| scope.spawn(move || ask(target, arguments));
        let threads: Vec<_> = targets.iter().map(ask).collect();
        for (target, thread) in targets.iter().zip(threads) {
            match thread.join() {
                Ok(Ok(member)) => tier.members.push(member),
                Ok(Err(error)) => tier.away.push((target.address.clone(), why(target, &error))),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
    });
    tier
}

fn ask(target: &Target, arguments: &Arguments) -> Result<Member, Error> {
    let wanted = Wanted { hot_keys: true, details: true };
    let mut connection = Connection::open(&target.address, &arguments.reach.options())?;
    let before = Reading::take(&mut connection, wanted)?;
    thread::sleep(Duration::from_secs(arguments.interval));
    let now = Reading::take(&mut connection, wanted)?;
    Ok(Member { address: target.address.clone(), before, now })
}

/// The error without the address, which is printed next to it.
fn why(target: &Target, error: &Error) -> String {
    let text = error.to_string();
    let own = format!("{}: ", target.address);
    text.strip_prefix(&own).unwrap_or(&text).to_owned()
}

fn in_words(advice: &[Advice], tier: &Tier) -> String {
    let all = tier.members.len() + tier.away.len();
    if advice.is_empty() {
        return format!("{all} asked: nothing to change\n");
    }
    let blocks = advice.iter().enumerate().map(|(at, advice)| {
        let members = match advice.members.as_slice() {
            [one] => one.clone(),
            several => format!("{} members", several.len()),
        };
        format!(
            "{}. [{}] {members}: {}\n   {}\n   do: {}\n",
            at + 1,
            advice.rank.name(),
            advice.finding,
            advice.evidence,
            advice.command
        )
    });
    blocks.collect::<Vec<_>>().join("\n")
}
