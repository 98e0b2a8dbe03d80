//! `holdall bench report`: results as one page.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;

use crate::figures::{Drawable, page};
use crate::terminal;

/// Draws kept results as one HTML page, which needs no network and no script.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  holdall bench report c.json t.json --out report.html")]
pub(super) struct ReportArgs {
    /// Files that `run --json` and `sweep --json` wrote.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The page.
    #[arg(short, long, default_value = "report.html", value_name = "FILE")]
    out: PathBuf,
    /// Write each figure as an SVG file into this folder, too.
    #[arg(long, value_name = "FOLDER")]
    svg: Option<PathBuf>,
}

pub(super) fn run(args: &ReportArgs) -> Result<ExitCode> {
    let mut results = Vec::new();
    for file in &args.files {
        let name = file.display().to_string();
        let json = fs::read_to_string(file).with_context(|| name.clone())?;
        results.push((name.clone(), Drawable::read(&json).with_context(|| name)?));
    }
    if let Some(folder) = &args.svg {
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        for (index, (_, result)) in results.iter().enumerate() {
            for figure in result.figures()? {
                let title: String =
                    figure.title.to_lowercase().split(' ').collect::<Vec<_>>().join("-");
                let file = folder.join(format!("{}-{title}.svg", index + 1));
                fs::write(&file, figure.svg).with_context(|| file.display().to_string())?;
            }
        }
    }
    let html = page(&results)?;
    fs::write(&args.out, html).with_context(|| args.out.display().to_string())?;
    terminal::print(&format!("{}\n", args.out.display()));
    Ok(ExitCode::SUCCESS)
}
