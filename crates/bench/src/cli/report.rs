//! `holdall bench report`: results as one page.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;

use super::output;
use crate::figures::{Drawable, Figure, maxima, page_of, papers};
use crate::study::Study;
use crate::terminal;

/// Draws kept results as one HTML page, which needs no network and no script.
///
/// Sweeps over the same thing come into one chart as well, a line for each file, and searches and
/// scores side by side: name the files by their servers.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct ReportArgs {
    /// Files that `run`, `sweep`, `search`, `score`, `hitrate` and `stages` wrote by --json.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The page.
    #[arg(short, long, default_value = "report.html", value_name = "FILE")]
    out: PathBuf,
    /// Draw the figures of this paper, with its numbers beside the results', which `study` of its
    /// name brought.
    #[arg(long, value_enum, value_name = "STUDY")]
    paper: Option<Study>,
    /// Write each figure as an SVG file into this folder, too.
    #[arg(long, value_name = "FOLDER")]
    svg: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  holdall bench report c.json t.json --out report.html
  holdall bench report holdall.json memcached.json redis.json      three sweeps over the same thing: a chart of all three";

pub(super) fn run(args: &ReportArgs) -> Result<ExitCode> {
    let page = output::file(&args.out, &args.files)?;
    let mut results = Vec::new();
    for (file, name) in args.files.iter().zip(names(&args.files)) {
        let path = || file.display().to_string();
        let json = fs::read_to_string(file).with_context(path)?;
        results.push((name, Drawable::read(&json).with_context(path)?));
    }
    let originals = match args.paper {
        Some(study) => papers::originals(study, &results)?,
        None => Vec::new(),
    };
    if let Some(folder) = &args.svg {
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        keep_svg(folder, "all", maxima::summary(&results, &[])?)?;
        for (index, (_, result)) in results.iter().enumerate() {
            keep_svg(folder, &(index + 1).to_string(), result.figures()?)?;
        }
    }
    let html = page_of("holdall bench", "", &[], &originals, &results)?;
    page.put(html.as_bytes())?;
    terminal::print(&format!("{}\n", args.out.display()));
    Ok(ExitCode::SUCCESS)
}

/// Files' names without extension, and with as many of their folders as distinguish them.
fn names(files: &[PathBuf]) -> Vec<String> {
    let depth = files.iter().map(|file| file.components().count()).max().unwrap_or(1);
    let named = |parts: usize| -> Vec<String> {
        let name = |file: &PathBuf| {
            let words: Vec<_> = file.components().map(|part| part.as_os_str()).collect();
            let end: PathBuf = words[words.len().saturating_sub(parts)..].iter().collect();
            end.with_extension("").display().to_string()
        };
        files.iter().map(name).collect()
    };
    let is_clear = |names: &Vec<String>| names.iter().collect::<BTreeSet<_>>().len() == names.len();
    (1..depth).map(named).find(is_clear).unwrap_or_else(|| named(depth))
}

/// Writes figures as separate files.
fn keep_svg(folder: &Path, begin: &str, figures: Vec<Figure>) -> Result<()> {
    for figure in figures {
        let title = figure.title.to_lowercase().replace(", ", "-").replace(' ', "-");
        let file = folder.join(format!("{begin}-{title}.svg"));
        fs::write(&file, figure.svg).with_context(|| file.display().to_string())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_get_the_shortest_distinct_names() {
        for (files, want) in [
            (vec!["/x/holdall.json", "memcached.json"], vec!["holdall", "memcached"]),
            (vec!["/x/holdall/c.json", "/x/redis/c.json"], vec!["holdall/c", "redis/c"]),
            (vec!["a.1.json", "a.2.json"], vec!["a.1", "a.2"]),
            (vec!["c.json", "c.json"], vec!["c", "c"]),
        ] {
            let files: Vec<PathBuf> = files.into_iter().map(PathBuf::from).collect();
            assert_eq!(names(&files), want);
        }
    }
}
