//! `holdall bench compare`: two results, and whether they differ by more than chance.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde_json::{Value, json};

use super::{EXIT_PARTIAL, output};
use crate::compare_results::{Line, Place, Side, doubts, is_undecidable, lines, unpaired};
use crate::figures::{Drawable, compare_results};
use crate::result::RunResult;
use crate::significance::Verdict;
use crate::terminal;

/// Compares two results: medians, their ratio with a 95 % interval, and the probability of such a
/// difference by chance.
///
/// Each side is one run or several, with commas. Of five runs and more on both sides the runs are
/// compared, otherwise the seconds of the runs are compared. That is less reliable, because two
/// runs of one server may differ by more than the seconds of one run. Of sweeps over one thing,
/// points of one place are compared. Different loads cause a warning, not an error, because the
/// load may be the subject of the comparison.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct CompareArgs {
    /// What is compared with: a file that `run --json` or `sweep --json` wrote, or several with
    /// commas.
    #[arg(value_delimiter = ',', num_args = 1, required = true, value_name = "BASE")]
    base: Vec<PathBuf>,
    /// What is compared.
    #[arg(value_delimiter = ',', num_args = 1, required = true, value_name = "OTHER")]
    other: Vec<PathBuf>,
    /// Write the comparison as an HTML page, too.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write the comparison into this file; `-`: print it, and the text to stderr.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// End with status 1 if the other is worse in anything by more than chance, and with 2 if that
    /// cannot be decided: too little was measured, or requests were refused or lost.
    #[arg(long)]
    fail_if_worse: bool,
}

const EXAMPLES: &str = "\
Examples:
  holdall bench compare before.json after.json
  holdall bench compare a1.json,a2.json,a3.json,a4.json,a5.json b1.json,b2.json,b3.json,b4.json,b5.json --html compare.html
  holdall bench compare main.json change.json --fail-if-worse    for a script";

pub(super) fn run(args: &CompareArgs) -> Result<ExitCode> {
    let (base, other) = (side(&args.base)?, side(&args.other)?);
    let found = lines(&base, &other);
    ensure!(
        !found.is_empty(),
        "the two have nothing in common that can be compared: {} has {}, {} has {}",
        base.name,
        places(&base),
        other.name,
        places(&other)
    );
    let inputs = [args.base.as_slice(), &args.other].concat();
    let file = output::begun(args.json.as_deref(), &inputs)?;
    let page = args.html.as_deref().map(|path| output::file(path, &inputs)).transpose()?;
    terminal::print(&table(&base, &other, &found));
    output::keep(file, &to_json(&base, &other, &found))?;
    if let Some(page) = page {
        page.put(compare_results::page(&base, &other, &found)?.as_bytes())?;
    }
    let is_part =
        found.iter().any(|line| line.verdict.is_none()) || !unpaired(&base, &other).is_empty();
    Ok(match args.fail_if_worse {
        true if is_undecidable(&base, &other) => ExitCode::from(EXIT_PARTIAL),
        true if found.iter().any(Line::is_worse) => ExitCode::FAILURE,
        true if is_part => ExitCode::from(EXIT_PARTIAL),
        _ => ExitCode::SUCCESS,
    })
}

/// The places of a side, in words.
fn places(side: &Side) -> String {
    let places = side
        .points
        .iter()
        .map(|(at, _)| at.map_or_else(|| "single runs".to_owned(), |place| place.to_string()));
    places.collect::<Vec<_>>().join(", ")
}

fn to_json(base: &Side, other: &Side, found: &[Line]) -> Value {
    let line = |line: &Line| {
        let verdict = line.verdict.map(|verdict| {
            json!({
                "base": verdict.base, "other": verdict.other, "ratio": verdict.ratio,
                "ratio_least": verdict.interval.0, "ratio_most": verdict.interval.1, "p": verdict.p,
                "values": verdict.values, "of": line.unit(),
            })
        });
        let at = line.at.map(|place| place.at);
        json!({ "at": at, "what": line.what, "words": line.words(), "verdict": verdict })
    };
    json!({
        "schema": "holdall-bench-compare",
        "version": 1,
        "base": base.name,
        "other": other.name,
        "lines": found.iter().map(line).collect::<Vec<_>>(),
        "doubts": doubts(base, other),
    })
}

fn side(files: &[PathBuf]) -> Result<Side> {
    let names: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
    let mut points: Vec<(Option<Place>, Vec<RunResult>)> = Vec::new();
    for file in files {
        for (at, run) in runs(file)? {
            match points.iter_mut().find(|(place, _)| *place == at) {
                Some((_, runs)) => runs.push(run),
                None => points.push((at, vec![run])),
            }
        }
    }
    Ok(Side { name: names.join(", "), points })
}

fn runs(file: &Path) -> Result<Vec<(Option<Place>, RunResult)>> {
    let named = || file.display().to_string();
    let json = fs::read_to_string(file).with_context(named)?;
    match Drawable::read(&json).with_context(named)? {
        Drawable::Run(run) => Ok(vec![(None, *run)]),
        Drawable::Sweep(sweep) => {
            let over = sweep.over;
            let at = |at| Some(Place { over, at });
            Ok(sweep.points.into_iter().map(|point| (at(point.at), point.result)).collect())
        }
        Drawable::Hitrate(_) | Drawable::Search(_) | Drawable::Score(_) | Drawable::Stages(_) => {
            bail!("{}: runs and sweeps can be compared", named())
        }
    }
}

fn table(base: &Side, other: &Side, found: &[Line]) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "base   {}\nother  {}\n", base.name, other.name);
    let _ = writeln!(
        text,
        "{:>10}  {:20} {:>12} {:>12} {:>7}  {:>15} {:>8}",
        "", "", "base", "other", "ratio", "95 %", "p"
    );
    for line in found {
        let at = line.at.map(|place| place.at.to_string()).unwrap_or_default();
        let _ = match &line.verdict {
            Some(verdict) => writeln!(
                text,
                "{at:>10}  {:20} {:>12.1} {:>12.1} {:>7.3}  {:>7.3}..{:<7.3} {:>7.4}  {}",
                line.what,
                verdict.base,
                verdict.other,
                verdict.ratio,
                verdict.interval.0,
                verdict.interval.1,
                verdict.p,
                line.words()
            ),
            None => writeln!(text, "{at:>10}  {:20} {}", line.what, line.words()),
        };
    }
    let values = found.iter().find_map(|line| line.verdict.map(|verdict: Verdict| verdict.values));
    if let (Some((first, second)), Some(line)) = (values, found.first()) {
        let _ = writeln!(text, "\n{first} and {second} {} were compared", line.unit());
    }
    for doubt in doubts(base, other) {
        let _ = writeln!(text, "doubt: {doubt}");
    }
    text
}
