//! `holdall bench score`: the deployment guide's score of a server.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde::Serialize;

use super::help_groups::grouped;
use super::run::{self, LoadArgs};
use super::search::{By, Steps};
use super::{WrongUse, output};
use crate::host::Host;
use crate::power::{Access, Source};
use crate::score::{Maxima, Score, Weights};
use crate::search::Found;
use crate::sla::Sla;
use crate::terminal;
use generator::keys::Pattern;
use generator::spec::{Ratio, Spec};

/// Scores a server: 0.8 of its random-key maximum and 0.2 of its hot-key maximum under an SLA, and
/// per watt.
///
/// As in Intel's Configuration and Deployment Guide For Memcached, section 5 and appendix B. Gets
/// only, whatever --ratio.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, mut_args(grouped))]
pub(super) struct ScoreArgs {
    #[command(flatten)]
    load: LoadArgs,
    /// Bounds that a maximum must keep.
    #[arg(long, default_value = "p99.5<=1ms")]
    sla: Sla,
    /// Where the watts come from: a number, csv:FILE (lines of SECONDS,WATTS), rapl, rapl:FOLDER,
    /// redfish:URL (of a Chassis, EnvironmentMetrics, Power or Sensor), ipmi, ipmi:HOST.
    #[arg(long, value_name = "SOURCE")]
    power: Option<Source>,
    /// Log in at the management controller by this file's first line, USER:PASSWORD.
    #[arg(long, value_name = "FILE", requires = "power")]
    power_login: Option<PathBuf>,
    /// Trust the issuers in this file for the controller's certificate.
    #[arg(long, value_name = "FILE", requires = "power")]
    power_ca: Option<PathBuf>,
    /// Accept any certificate of the controller.
    #[arg(long, requires = "power", conflicts_with = "power_ca")]
    power_insecure: bool,
    /// The random-key maximum, measured elsewhere.
    #[arg(long, value_name = "PER_SECOND", requires = "hot")]
    random: Option<f64>,
    /// The hot-key maximum, measured elsewhere.
    #[arg(long, value_name = "PER_SECOND", requires = "random")]
    hot: Option<f64>,
    /// Weight of random keys; the hot key has the rest to 1.
    #[arg(long, default_value_t = 0.8)]
    random_weight: f64,
    #[command(flatten)]
    steps: Steps,
    /// Keep the result in this file; `-`: print it, and the text to stderr.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl ScoreArgs {
    fn access(&self) -> Access {
        Access {
            login: self.power_login.clone(),
            ca: self.power_ca.clone(),
            is_insecure: self.power_insecure,
        }
    }
}

const EXAMPLES: &str = "\
Examples:
  holdall bench score --preload --pipeline 16 --power 60
  holdall bench score --preload --power redfish:https://bmc/redfish/v1/Chassis/1 --power-login bmc.txt
  holdall bench score --random 4160000 --hot 2640000 --power 300    the guide's two-socket platform: 3856 k, 12853 per watt";

#[derive(Debug, Serialize)]
struct ScoreResult {
    schema: &'static str,
    version: u32,
    command: Vec<String>,
    started: u64,
    host: Host,
    sla: String,
    weights: Weights,
    maxima: Maxima,
    score: Score,
    searches: Vec<Found>,
}

pub(super) fn run(args: &ScoreArgs) -> Result<ExitCode> {
    if !(0.0..=1.0).contains(&args.random_weight) {
        bail!(WrongUse("--random-weight is a number from 0 to 1".to_owned()));
    }
    let given = args.random.iter().chain(&args.hot);
    ensure!(
        given.clone().all(|maximum| maximum.is_finite() && *maximum > 0.0),
        WrongUse("--random and --hot are numbers above 0".to_owned())
    );
    args.steps.bracket(By::Rate)?;
    let weights = Weights { random: args.random_weight, hot: 1.0 - args.random_weight };
    let file = output::begun(args.json.as_deref(), &[])?;
    let started = run::now();
    let mut searches = Vec::new();
    let maxima = match (args.random, args.hot) {
        (Some(random), Some(hot)) => {
            let watts = args
                .power
                .as_ref()
                .map(|source| source.begin(&args.access())?.end())
                .transpose()?;
            Maxima { random, hot, random_watts: watts, hot_watts: watts }
        }
        _ => measured(args, &mut searches)?,
    };
    let score = maxima.score(weights);
    let result = ScoreResult {
        schema: "holdall-bench-score",
        version: 1,
        command: std::env::args().collect(),
        started,
        host: Host::here(),
        sla: args.sla.to_string(),
        weights,
        maxima,
        score,
        searches,
    };
    let doubts: Vec<_> = result.searches.iter().flat_map(Found::doubts).collect();
    terminal::print(&shown(&result));
    for doubt in &doubts {
        terminal::print(&format!("doubt: {doubt}\n"));
    }
    output::keep_with(file, &result, doubts)?;
    Ok(ExitCode::SUCCESS)
}

fn measured(args: &ScoreArgs, searches: &mut Vec<Found>) -> Result<Maxima> {
    let spec = Spec { ratio: Ratio { sets: 0, gets: 1 }, ..args.load.spec()? };
    if spec.preload {
        run::preload(&spec)?;
    }
    let access = args.access();
    let mut maximum = |name: &str, pattern: Pattern| -> Result<(f64, Option<f64>)> {
        terminal::print(&format!("{name}\n"));
        let spec = Spec { pattern, ..spec.clone() };
        let meter = args.power.as_ref().map(|source| source.begin(&access)).transpose()?;
        let found = args.steps.search(&spec, &args.sla, By::Rate, args.load.arrival())?;
        let watts = meter.map(|meter| meter.end()).transpose()?;
        ensure!(found.failure.is_none(), "interrupted: there is no score of half a search");
        let maximum = found.throughput.map(|(median, ..)| median);
        searches.push(found);
        Ok((maximum.with_context(|| format!("{name}: {} holds at no rate", args.sla))?, watts))
    };
    let (random, random_watts) = maximum("random keys", Pattern::Uniform)?;
    let (hot, hot_watts) = maximum("one hot key", Pattern::Hot { share: 1.0 })?;
    Ok(Maxima { random, hot, random_watts, hot_watts })
}

fn shown(result: &ScoreResult) -> String {
    let (maxima, weights, score) = (&result.maxima, &result.weights, &result.score);
    let mut text = String::new();
    let _ = writeln!(
        text,
        "\nrandom keys   {:>12.0} gets a second under {}",
        maxima.random, result.sla
    );
    let _ = writeln!(
        text,
        "one hot key   {:>12.0} gets a second, {:.2} of random keys",
        maxima.hot, score.hot_to_random
    );
    let _ = writeln!(
        text,
        "overall       {:>12.0} = {} x random + {:.2} x hot",
        score.overall, weights.random, weights.hot
    );
    let _ = match score.per_watt {
        Some(per_watt) => writeln!(text, "per watt      {per_watt:>12.0}"),
        None => writeln!(text, "per watt                 - (--power tells the watts)"),
    };
    text
}
