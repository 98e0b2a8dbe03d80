//! `holdall bench memtier` and `mcblaster`: their command lines, our generator.

use std::fs;
use std::process::ExitCode;

use anyhow::{Context, Result};

use super::{EXIT_PARTIAL, run};
use crate::memtier::{FlagError, Invocation, Parsed, json};
use crate::result::RunResult;
use crate::terminal;

/// Does what a parsed command line asks for.
pub(super) fn run(parsed: Result<Parsed, FlagError>) -> Result<ExitCode> {
    match parsed? {
        Parsed::Print(text) => {
            terminal::print(&text);
            Ok(ExitCode::SUCCESS)
        }
        Parsed::Run(invocation) => measured(&invocation),
    }
}

fn measured(invocation: &Invocation) -> Result<ExitCode> {
    for warning in &invocation.warnings {
        terminal::eprint_error(&format!("warning: {warning}"));
    }
    let mut json_file = run::created(invocation.json.as_deref())?;
    if invocation.spec.preload {
        run::preload(&invocation.spec)?;
    }
    let (mut results, mut text) = (Vec::new(), String::new());
    for number in 1..=invocation.runs {
        let result = run::measure(&invocation.spec)?;
        if invocation.runs > 1 {
            text += &format!("\nrun {number} of {}\n", invocation.runs);
        }
        text += &terminal::summary_of(&result, !invocation.hides_histogram);
        text += &percentiles(&result, &invocation.percentiles)?;
        let is_over = result.failure.is_some();
        results.push(result);
        if is_over {
            break;
        }
    }
    match &invocation.out {
        Some(path) => fs::write(path, &text).with_context(|| path.display().to_string())?,
        None => terminal::print(&text),
    }
    let json = json::of(&results, invocation.requests, &invocation.percentiles)?;
    run::keep(json_file.as_mut(), &json)?;
    let is_partial = results.iter().any(|result| result.failure.is_some() || result.wrong > 0);
    Ok(if is_partial { ExitCode::from(EXIT_PARTIAL) } else { ExitCode::SUCCESS })
}

/// The percentiles that were asked for, unless they are those that a summary has anyway.
fn percentiles(result: &RunResult, percentiles: &[f64]) -> Result<String> {
    if percentiles == json::PERCENTILES {
        return Ok(String::new());
    }
    let histogram = result.total.latency.histogram()?;
    let told = percentiles.iter().map(|percentile| {
        format!("{} {:.3} ms", json::label(*percentile), json::millis(&histogram, *percentile))
    });
    Ok(format!("all: {}\n", told.collect::<Vec<_>>().join(", ")))
}
