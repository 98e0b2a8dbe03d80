//! A sizing as one page that needs no network: the tier, the platforms, and a table of the results.

use std::fmt::Write as _;

use super::text::facts;
use super::{flags, percent, remarks};
use crate::candidate::Candidate;
use crate::sizing::Sizing;
use crate::units::{duration, grouped, significant};

const STYLE: &str = "\
:root{color-scheme:light dark;--fg:#1b1f24;--bg:#fff;--soft:#57606a;--line:#d0d7de;--bar:#0969da;\
--best:#1a7f37}\
@media(prefers-color-scheme:dark){:root{--fg:#e6edf3;--bg:#0d1117;--soft:#9198a1;--line:#3d444d;\
--bar:#4493f8;--best:#3fb950}}\
body{font:16px/1.5 system-ui,sans-serif;color:var(--fg);background:var(--bg);max-width:60rem;\
margin:auto;padding:1rem}\
table{border-collapse:collapse;font-size:.9rem}td,th{padding:.25rem .6rem;text-align:right;\
border-bottom:1px solid var(--line)}td:first-child,th:first-child{text-align:left}\
.wide{overflow-x:auto}dt{color:var(--soft)}dd{margin:0 0 .4rem}figure{margin:1.5rem 0}\
figcaption{color:var(--soft)}svg{width:100%;height:auto;max-width:44rem}text{fill:var(--fg);\
font:14px system-ui,sans-serif}.bar{fill:var(--bar)}.best{fill:var(--best)}.box{fill:none;\
stroke:var(--fg)}.way{stroke:var(--soft);fill:none}";

/// The page.
#[must_use]
pub fn html(sizing: &Sizing) -> String {
    let mut page = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>Size of a cache tier</title>\
         <style>{STYLE}</style><h1>Size of a cache tier</h1>"
    );
    if let Some(best) = sizing.candidates.get(sizing.cheapest) {
        let _ = write!(
            page,
            "<p><strong>{} servers of kind {}, each <code>holdall serve {}</code></strong></p><ul>",
            grouped(best.servers),
            escaped(&best.platform.name),
            flags(best)
        );
        for remark in remarks(sizing, best) {
            let _ = write!(page, "<li>{}</li>", escaped(&remark));
        }
        page.push_str("</ul>");
        page.push_str(&tier(sizing, best));
    }
    page.push_str("<h2>What was assumed</h2><dl>");
    for (name, line) in facts(sizing) {
        let _ = write!(page, "<dt>{name}</dt><dd>{}</dd>", escaped(&line));
    }
    page.push_str("</dl><h2>Candidates</h2>");
    page.push_str(&table(sizing));
    page.push_str(&bars(sizing, "Gets a second under the SLA, a server", |candidate| {
        Some(candidate.platform.capacity())
    }));
    page.push_str(&bars(sizing, "Gets a second for each watt", |candidate| {
        candidate.platform.per_watt()
    }));
    page.push_str(&bars(sizing, "Costs of a year", |candidate| Some(candidate.money?.total)));
    page.push_str(&bars(
        sizing,
        "Share of the items that one server's loss takes, %",
        |candidate| Some(candidate.loss.share * 100.0),
    ));
    page.push_str("</html>\n");
    page
}

/// The guide's figure 3: the web tier reads the cache, and the database for missing keys.
fn tier(sizing: &Sizing, best: &Candidate) -> String {
    let boxed = |y: u32, title: &str, line: &str| {
        format!(
            "<rect class=\"box\" x=\"150\" y=\"{y}\" width=\"340\" height=\"62\" rx=\"6\"/>\
             <text x=\"320\" y=\"{}\" text-anchor=\"middle\">{}</text>\
             <text x=\"320\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            y + 26,
            escaped(title),
            y + 46,
            escaped(line)
        )
    };
    let way = |from: u32, label: &str| {
        format!(
            "<path class=\"way\" d=\"M320 {from}v38m-5-9l5 9l5-9\"/>\
             <text x=\"334\" y=\"{}\">{}</text>",
            from + 24,
            escaped(label)
        )
    };
    let peak = sizing.demand.peak;
    format!(
        "<figure><svg viewBox=\"0 0 640 276\" role=\"img\" aria-label=\"web tier, cache tier, \
         database\">{}{}{}{}{}</svg><figcaption>At the peak</figcaption></figure>",
        boxed(2, "web tier", "asks the cache first, and fills it"),
        way(64, &format!("{} gets a second", grouped(peak))),
        boxed(
            104,
            &format!("{} cache servers", grouped(best.servers)),
            &format!(
                "{} of gets hit; each server has {}",
                percent(sizing.hits.ratio),
                percent(best.loss.share)
            ),
        ),
        way(166, &format!("{} reads a second", grouped(sizing.hits.database_reads.1))),
        boxed(206, "database", &format!("{} of the gets", percent(1.0 - sizing.hits.ratio))),
    )
}

fn table(sizing: &Sizing) -> String {
    let mut out = "<div class=\"wide\"><table><tr><th>platform<th>servers<th>binds<th>CPU<th>NIC\
                   <th>memory<th>flags<th>loss of one<th>refilled after<th>watts<th>a year</tr>"
        .to_owned();
    for candidate in &sizing.candidates {
        let or_none = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), grouped);
        let cells = [
            escaped(&candidate.platform.name),
            grouped(candidate.servers),
            candidate.binds.name().to_owned(),
            percent(candidate.used.cpu),
            percent(candidate.used.nic),
            percent(candidate.used.memory),
            flags(candidate),
            percent(candidate.loss.share),
            duration(candidate.loss.refill_secs),
            or_none(candidate.watts),
            or_none(candidate.money.map(|money| money.total)),
        ];
        let _ = write!(out, "<tr><td>{}</tr>", cells.join("<td>"));
    }
    out + "</table></div>"
}

/// A bar for each candidate; nothing unless a value is known for all.
fn bars(sizing: &Sizing, title: &str, value: impl Fn(&Candidate) -> Option<f64>) -> String {
    let values: Option<Vec<f64>> = sizing.candidates.iter().map(value).collect();
    let Some(values) = values else { return String::new() };
    let most = values.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    let height = 28 * values.len() + 4;
    let mut out =
        format!("<figure><svg viewBox=\"0 0 640 {height}\" role=\"img\" aria-label=\"{title}\">");
    for (index, (candidate, value)) in sizing.candidates.iter().zip(&values).enumerate() {
        let y = 28 * index + 4;
        let class = if index == sizing.cheapest { "bar best" } else { "bar" };
        let shown = if *value >= 1000.0 { grouped(*value) } else { significant(*value) };
        let width = value / most * 340.0;
        let _ = write!(
            out,
            "<text x=\"0\" y=\"{}\">{}</text><rect class=\"{class}\" x=\"180\" y=\"{y}\" \
             width=\"{width:.1}\" height=\"20\"/><text x=\"{:.1}\" y=\"{}\">{shown}</text>",
            y + 15,
            escaped(&candidate.platform.name),
            width + 188.0,
            y + 15,
        );
    }
    let _ = write!(out, "</svg><figcaption>{title}</figcaption></figure>");
    out
}

/// Text as HTML: names come from the file.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
