//! The page around the figures: one file, no script, light and dark, from a phone's width up. The
//! most wanted parts come first: the summary, the contents, the figures of all results together,
//! then each result.

mod sections;
mod style;

use std::fmt::Write as _;

use anyhow::Result;

use super::escape::escaped;
use super::papers::Original;
use super::summary::{self, Summary};
use super::{Drawable, Figure, Table, maxima};
use crate::sweep::Over;

use style::STYLE;

/// A page: its title, its introduction, the failures, the paper whose experiment it is, and the
/// results, each with its name.
///
/// # Errors
///
/// When a figure cannot be drawn.
pub fn page_of(
    title: &str,
    words: &str,
    failures: &[String],
    originals: &[Original],
    results: &[(String, Drawable)],
) -> Result<String> {
    let mut html = begin(title, words);
    let shown: Vec<Over> = originals.iter().filter_map(|original| original.over).collect();
    let together = maxima::summary(results, &shown)?;
    summarized(&mut html, &summary::of(results), failures);
    contents(&mut html, originals, !together.is_empty(), results);
    for original in originals {
        of_original(&mut html, original);
    }
    if !together.is_empty() {
        let _ = writeln!(html, "<section id=\"together\"><h2>All results together</h2>");
        figures(&mut html, &together);
        let _ = writeln!(html, "</section>");
    }
    for (index, (name, result)) in results.iter().enumerate() {
        let _ = writeln!(html, "<section id=\"result-{index}\"><h2>{}</h2>", escaped(name));
        sections::of(&mut html, result);
        figures(&mut html, &result.figures()?);
        let _ = writeln!(html, "</section>");
    }
    end(&mut html);
    Ok(html)
}

/// The claims, and the facts that a reader needs to judge them.
fn summarized(html: &mut String, summary: &Summary, failures: &[String]) {
    let _ = writeln!(html, "<section id=\"summary\"><h2>Summary</h2>");
    list(html, failures);
    if !summary.claims.is_empty() {
        let _ = writeln!(html, "<ul class=\"claims\">");
        for claim in &summary.claims {
            let _ = writeln!(html, "<li>{}</li>", escaped(claim));
        }
        let _ = writeln!(html, "</ul>");
    }
    let _ = writeln!(html, "<dl>");
    for (name, value) in &summary.facts {
        let _ = writeln!(html, "<dt>{}</dt><dd>{}</dd>", escaped(name), escaped(value));
    }
    let _ = writeln!(html, "</dl></section>");
}

fn contents(
    html: &mut String,
    originals: &[Original],
    has_together: bool,
    results: &[(String, Drawable)],
) {
    let _ = writeln!(html, "<nav aria-label=\"Contents\"><ul>");
    let mut entry = |id: &str, name: &str| {
        let _ = writeln!(html, "<li><a href=\"#{id}\">{}</a></li>", escaped(name));
    };
    originals.iter().for_each(|original| entry(original.id, &original.title));
    if has_together {
        entry("together", "All results together");
    }
    for (index, (name, _)) in results.iter().enumerate() {
        entry(&format!("result-{index}"), name);
    }
    let _ = writeln!(html, "</ul></nav>");
}

/// A figure of a paper: its charts side by side, and its numbers next to ours.
fn of_original(html: &mut String, original: &Original) {
    let _ = writeln!(html, "<section id=\"{}\"><h2>{}</h2>", original.id, escaped(&original.title));
    table(html, &original.table);
    figures(html, &original.figures);
    let _ = writeln!(html, "</section>");
}

/// A page of tables and figures that are not results of the bench.
#[must_use]
pub fn page_of_figures(
    title: &str,
    words: &str,
    doubts: &[String],
    tables: &[Table],
    drawn: &[Figure],
) -> String {
    let mut html = begin(title, words);
    list(&mut html, doubts);
    tables.iter().for_each(|one| table(&mut html, one));
    figures(&mut html, drawn);
    end(&mut html);
    html
}

fn table(html: &mut String, table: &Table) {
    let row = |html: &mut String, cells: &[String], tag: &str| {
        let cells = cells.iter().map(|cell| format!("<{tag}>{}</{tag}>", escaped(cell)));
        let _ = writeln!(html, "<tr>{}</tr>", cells.collect::<String>());
    };
    let _ = writeln!(html, "<div class=\"wide\" tabindex=\"0\"><table>");
    row(html, &table.head, "th");
    table.rows.iter().for_each(|cells| row(html, cells, "td"));
    let _ = writeln!(html, "</table></div>");
}

/// The page's head, its title and its introduction.
pub(super) fn begin(title: &str, words: &str) -> String {
    let mut html = String::new();
    let _ = write!(
        html,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <title>{0}</title><style>{STYLE}</style></head><body><main>\n<h1>{0}</h1>\n",
        escaped(title)
    );
    if !words.is_empty() {
        let _ = writeln!(html, "<p>{}</p>", escaped(words));
    }
    html
}

pub(super) fn end(html: &mut String) {
    let _ = writeln!(html, "</main></body></html>");
}

/// Figures with their captions, side by side as far as there is room.
pub(super) fn figures(html: &mut String, figures: &[Figure]) {
    if figures.is_empty() {
        return;
    }
    let _ = writeln!(html, "<div class=\"charts\">");
    for figure in figures {
        let _ = writeln!(
            html,
            "<figure role=\"img\" aria-label=\"{0}\"><figcaption><b>{0}.</b> {1}</figcaption>{2}</figure>",
            escaped(&figure.title),
            escaped(&figure.caption),
            figure.svg,
        );
    }
    let _ = writeln!(html, "</div>");
}

pub(super) fn list(html: &mut String, doubts: &[String]) {
    for doubt in doubts {
        let _ = writeln!(html, "<p class=\"doubt\">{}</p>", escaped(doubt));
    }
}
