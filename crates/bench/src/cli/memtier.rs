//! `holdall bench memtier` and `mcblaster`: their command lines and output, holdall's generator.

use std::process::ExitCode;

use anyhow::Result;

use super::{EXIT_PARTIAL, output, run};
use crate::memtier::{
    FlagError, Invocation, Parsed, Program, hdr_files, json, mcblaster_text, table,
};
use crate::result::RunResult;
use crate::terminal;

/// Executes a parsed command line.
pub(super) fn run(parsed: Result<Parsed, FlagError>) -> Result<ExitCode> {
    match parsed {
        Ok(Parsed::Print(text)) => {
            terminal::print(&text);
            Ok(ExitCode::SUCCESS)
        }
        Ok(Parsed::Run(invocation)) => measured(&invocation),
        Err(error) if error.is_usage() => {
            terminal::eprint_error(&error.to_string());
            Ok(ExitCode::from(usage::EXIT_USAGE))
        }
        Err(error) => Err(error.into()),
    }
}

/// The warning for a run with more missed keys than the limit, in percent.
fn too_many_misses(result: &RunResult, most: f64) -> Option<String> {
    let missed = 100.0 - result.hit_percent()?;
    (missed > most).then(|| format!("{missed:.2} % of the keys were not found, more than {most} %"))
}

fn measured(invocation: &Invocation) -> Result<ExitCode> {
    for warning in &invocation.warnings {
        terminal::eprint_error(&format!("warning: {warning}"));
    }
    let json_file = output::begun(invocation.json.as_deref(), &[])?;
    let table = invocation.out.as_deref().map(|path| output::file(path, &[])).transpose()?;
    if invocation.spec.preload {
        run::preload(&invocation.spec)?;
    }
    let mut results = Vec::new();
    for _ in 0..invocation.runs {
        let result = run::measure(&invocation.spec)?;
        for doubt in result.doubts() {
            terminal::eprint_error(&format!("doubt: {doubt}"));
        }
        let misses = invocation.misses_max.and_then(|most| too_many_misses(&result, most));
        if let Some(misses) = misses {
            terminal::eprint_error(&format!("warning: {misses}"));
        }
        let is_over = result.failure.is_some();
        results.push(result);
        if is_over {
            break;
        }
    }
    let text = match invocation.program {
        Program::Memtier => table::of(
            &results,
            invocation.requests,
            &invocation.percentiles,
            !invocation.hides_histogram,
            invocation.all_runs,
        )?,
        Program::Mcblaster => results.iter().map(mcblaster_text::of).collect::<Result<String>>()?,
    };
    match table {
        Some(table) => table.put(text.as_bytes())?,
        None => terminal::print(&text),
    }
    if let Some(prefix) = &invocation.hdr_files {
        for (number, run) in (1..).zip(&results) {
            hdr_files::write(prefix, number, run)?;
        }
    }
    let (runs, requests) = (invocation.runs, invocation.requests);
    let json = json::of(&results, runs, requests, &invocation.percentiles)?;
    output::keep(json_file, &json)?;
    let is_partial = results.iter().any(|result| result.failure.is_some() || result.wrong > 0);
    Ok(if is_partial { ExitCode::from(EXIT_PARTIAL) } else { ExitCode::SUCCESS })
}
