//! The first lines of a report: the best server, its margin, the bound, the certainty; and the
//! conditions of the measurement.

use std::collections::BTreeMap;

use clap::ValueEnum;

use super::date::day;
use super::maxima::SearchFile;
use super::sweeps::server_of;
use super::{Drawable, Unit};
use crate::differences;
use crate::hitrate::HitrateResult;
use crate::host::Host;
use crate::result::RunResult;
use crate::stages::{Stage, StagesResult};
use crate::sweep::{Over, Point, Repeat, SweepResult};
use generator::spec::{Pace, Spec};

/// The bound of sweeps: the study's, a 99th percentile below a millisecond.
const BOUND_US: f64 = 1000.0;

/// The facts that a reader should know first.
#[derive(Debug, Default)]
pub(super) struct Summary {
    /// One or two sentences for each question that the results answer.
    pub claims: Vec<String>,
    /// Names and values: machine, date, loop, hits, servers.
    pub facts: Vec<(&'static str, String)>,
}

/// A server's figure: greater is better.
struct Entry<'a> {
    name: &'a str,
    value: f64,
    /// The minimum and the maximum of repeats.
    range: Option<(f64, f64)>,
    /// The point at which it was reached.
    at: String,
}

/// The summary of named results.
pub(super) fn of(results: &[(String, Drawable)]) -> Summary {
    let mut claims = of_sweeps(results);
    claims.extend(of_searches(results));
    claims.extend(of_scores(results));
    for (name, result) in results {
        match result {
            Drawable::Run(run) => claims.push(of_run(name, run)),
            Drawable::Hitrate(hitrate) => claims.extend(of_hitrate(hitrate)),
            Drawable::Stages(result) => claims.extend(of_stages(name, result)),
            Drawable::Sweep(_) | Drawable::Search(_) | Drawable::Score(_) => {}
        }
    }
    Summary { claims, facts: facts(results) }
}

/// The stage that takes most of a request's time.
fn of_stages(name: &str, result: &StagesResult) -> Option<String> {
    let most = |one: &&Stage, other: &&Stage| one.times.mean.total_cmp(&other.times.mean);
    let stage = result.stages.iter().max_by(most)?;
    let (whole, part) = (result.whole.mean, stage.times.mean);
    let percent = part / whole.max(f64::MIN_POSITIVE) * 100.0;
    Some(format!(
        "{name}: a get takes {whole:.0} us, most of it ({percent:.0} %) in this stage: {}.",
        stage.name
    ))
}

fn of_sweeps(results: &[(String, Drawable)]) -> Vec<String> {
    let mut claims = Vec::new();
    let is_of = |over: Over, pinned: bool| {
        results.iter().filter_map(move |(name, result)| match result {
            Drawable::Sweep(sweep) if sweep.over == over && sweep.pinned == pinned => {
                Some((server_of(name, sweep), &**sweep))
            }
            _ => None,
        })
    };
    for over in Over::value_variants() {
        for pinned in [false, true] {
            let sweeps: Vec<_> = is_of(*over, pinned).collect();
            if !sweeps.is_empty() {
                claims.push(of_sweep(*over, pinned, &sweeps));
            }
        }
    }
    claims
}

fn of_sweep(over: Over, pinned: bool, sweeps: &[(&str, &SweepResult)]) -> String {
    let keeps = |point: &&Point| point.result.total.latency.percentile(99.0) < BOUND_US;
    let trusted = |sweep: &SweepResult| -> Vec<Point> {
        sweep.drawn().filter(|point| point.result.doubts().is_empty()).cloned().collect()
    };
    let best = |points: &[Point]| {
        let points = points.iter().filter(keeps);
        points.max_by(|a, b| a.result.total.rate.total_cmp(&b.result.total.rate)).cloned()
    };
    let (mut entries, mut without) = (Vec::new(), Vec::new());
    let label = over.label();
    for (name, sweep) in sweeps {
        let points = trusted(sweep);
        match best(&points) {
            Some(point) => entries.push(Entry {
                name,
                value: point.result.total.rate,
                range: point.range(|repeat: &Repeat| repeat.rate),
                at: format!(" at {} {label}", point.at),
            }),
            None if points.is_empty() => {
                without.push(format!("{name} has no point that is free of doubts"));
            }
            None => without.push(format!("{name} kept p99 below 1 ms at no point")),
        }
    }
    let knees: Vec<String> = sweeps
        .iter()
        .filter_map(|(name, sweep)| {
            Some(format!("{name} at {}", sweep.points.get(sweep.knee?)?.at))
        })
        .collect();
    let pins = if pinned { ", threads pinned" } else { "" };
    let mut claim = format!("By {label}{pins}, most requests a second with p99 below 1 ms: ");
    claim += &ranked(entries);
    for words in without {
        claim += &format!(" {words}.");
    }
    if let Some(differing) = differing(sweeps) {
        claim += &format!(" These are not of one load: {differing}.");
    }
    if !knees.is_empty() {
        claim += &format!(" Beyond its knee more brings little: {}.", knees.join(", "));
    }
    claim
}

/// The differences of the sweeps' loads, at their common points.
fn differing(sweeps: &[(&str, &SweepResult)]) -> Option<String> {
    let ((_, first), others) = sweeps.split_first()?;
    let mut found: Vec<String> = Vec::new();
    for point in &first.points {
        let same = others
            .iter()
            .filter_map(|(_, sweep)| sweep.points.iter().find(|other| other.at == point.at));
        let loads = std::iter::once(point).chain(same).map(|point| &point.result.spec);
        for words in differences::between(loads) {
            if !found.contains(&words) {
                found.push(words);
            }
        }
    }
    (!found.is_empty()).then(|| found.join("; "))
}

fn ranked(mut entries: Vec<Entry<'_>>) -> String {
    entries.sort_by(|one, other| other.value.total_cmp(&one.value));
    let Some((first, others)) = entries.split_first() else { return "nobody.".to_owned() };
    let shown = |entry: &Entry<'_>| Unit::Number.shown(entry.value);
    let mut words = format!("{} with {}{}", first.name, shown(first), first.at);
    for other in others {
        let times = first.value / other.value.max(1e-9);
        words += &format!(", {times:.2} times {} ({}{})", other.name, shown(other), other.at);
    }
    words + "." + &certainty(first, others.first())
}

fn certainty(first: &Entry<'_>, second: Option<&Entry<'_>>) -> String {
    let Some(second) = second else { return String::new() };
    match (first.range, second.range) {
        (Some((least, _)), Some((_, most))) if least > most => {
            " The ranges of their repeats lie apart, so the first place is sure.".to_owned()
        }
        (Some(_), Some(_)) => {
            " The ranges of their repeats overlap, so the first place may be chance.".to_owned()
        }
        _ => " Each was measured once, so a small difference may be chance.".to_owned(),
    }
}

fn of_searches(results: &[(String, Drawable)]) -> Vec<String> {
    let mut by_bound: BTreeMap<&str, Vec<(&str, &SearchFile)>> = BTreeMap::new();
    for (name, result) in results {
        if let Drawable::Search(search) = result {
            by_bound.entry(&search.sla).or_default().push((name, search));
        }
    }
    let claim = |(bound, searches): (&str, Vec<(&str, &SearchFile)>)| {
        let entry = |(name, search): &(&'_ str, &SearchFile)| {
            let (value, least, most) = search.found.throughput?;
            Some((name.to_string(), value, least, most, search.found.holds?))
        };
        let found: Vec<_> = searches.iter().filter_map(entry).collect();
        let entries = found.iter().map(|(name, value, least, most, holds)| Entry {
            name,
            value: *value,
            range: (least < most).then_some((*least, *most)),
            at: format!(" at {holds:.0}"),
        });
        let ranked = ranked(entries.collect());
        format!("Most requests a second under {}: {ranked}", readable(bound))
    };
    by_bound.into_iter().map(claim).collect()
}

fn of_scores(results: &[(String, Drawable)]) -> Option<String> {
    let scores = || {
        results.iter().filter_map(|(name, result)| match result {
            Drawable::Score(score) => Some((name.as_str(), &**score)),
            _ => None,
        })
    };
    let bound = scores().next()?.1;
    let entries = scores().map(|(name, file)| Entry {
        name,
        value: file.score.overall,
        range: None,
        at: String::new(),
    });
    let ranked = ranked(entries.collect());
    Some(format!("The deployment guide's score under {}: {ranked}", readable(&bound.sla)))
}

fn of_run(name: &str, run: &RunResult) -> String {
    let latency = |percentile| Unit::Micros.shown(run.total.latency.percentile(percentile));
    let doubts = run.doubts();
    let doubt = doubts.first().map(|doubt| format!(" Doubtful: {doubt}.")).unwrap_or_default();
    let broken = run.violations.as_ref().map(|broken| format!(" {broken}.")).unwrap_or_default();
    format!(
        "{name}: {} requests a second, {}; p50 {}, p99 {}, p99.9 {}.{broken}{doubt}",
        Unit::Number.shown(run.total.rate),
        pace(&run.spec),
        latency(50.0),
        latency(99.0),
        latency(99.9)
    )
}

/// The lowest miss ratio at the middle size.
fn of_hitrate(hitrate: &HitrateResult) -> Option<String> {
    let (bound, servers) = hitrate.curves.split_first()?;
    let middle = bound.points.len() / 2;
    let missed = |curve: &crate::hitrate::Curve| {
        curve.points.get(middle).and_then(|point| hitrate.missed_percent(point))
    };
    let mut all: Vec<(f64, &str)> =
        servers.iter().filter_map(|curve| Some((missed(curve)?, curve.name.as_str()))).collect();
    all.sort_by(|one, other| one.0.total_cmp(&other.0));
    let listed: Vec<String> =
        all.iter().map(|(missed, name)| format!("{name} {missed:.2} %")).collect();
    let listed = if listed.is_empty() { "no server".to_owned() } else { listed.join(", ") };
    Some(format!(
        "Gets missed at {} MB, the least first: {listed}; {} is {:.2} %.",
        bound.points.get(middle)?.memory_mb,
        bound.name,
        missed(bound)?
    ))
}

/// A bound in readable units: older results always have microseconds.
fn readable(sla: &str) -> String {
    sla.parse::<crate::sla::Sla>().map_or_else(|_| sla.to_owned(), |sla| sla.to_string())
}

fn pace(spec: &Spec) -> String {
    match spec.pace {
        Pace::Closed => "closed loop".to_owned(),
        Pace::Open { rate, arrival } => {
            format!("open loop at {} a second ({arrival:?})", Unit::Number.shown(rate))
                .to_lowercase()
        }
    }
}

/// Every distinct value once, in the order of the results.
#[derive(Default)]
struct Distinct(Vec<String>);

impl Distinct {
    fn add(&mut self, value: String) {
        if !value.is_empty() && !self.0.contains(&value) {
            self.0.push(value);
        }
    }
}

fn facts(results: &[(String, Drawable)]) -> Vec<(&'static str, String)> {
    let [mut machine, mut program, mut date, mut loops, mut servers] =
        std::array::from_fn(|_| Distinct::default());
    let mut hits: Option<(f64, f64)> = None;
    let mut host = |host: &Host, started: u64| {
        machine.add(host.describe());
        program.add(host.program());
        date.add(day(started));
    };
    for (_, result) in results {
        match result {
            Drawable::Run(run) => host(&run.host, run.started),
            Drawable::Sweep(sweep) => {
                host(&sweep.host, sweep.points.first().map_or(0, |point| point.result.started));
            }
            Drawable::Hitrate(hitrate) => host(&hitrate.host, hitrate.started),
            Drawable::Search(search) => host(&search.host, search.started),
            Drawable::Score(score) => host(&score.host, score.started),
            Drawable::Stages(result) => host(&result.host, result.started),
        }
        for run in runs(result) {
            loops.add(match run.spec.pace {
                Pace::Closed => "closed".to_owned(),
                Pace::Open { .. } => "open".to_owned(),
            });
            // Servers of a sweep have another port at each point.
            run.server_versions.iter().for_each(|(_, version)| servers.add(version.clone()));
            if let Some(percent) = run.hit_percent() {
                let (least, most) = hits.unwrap_or((percent, percent));
                hits = Some((least.min(percent), most.max(percent)));
            }
        }
        if matches!(result, Drawable::Search(_) | Drawable::Score(_)) {
            loops.add("open".to_owned());
        }
    }
    let hits = hits.map(|(least, most)| {
        let [least, most] = [least, most].map(|percent| format!("{percent:.1}"));
        if least == most {
            format!("{least} % of gets")
        } else {
            format!("{least} to {most} % of gets")
        }
    });
    let all = [
        ("Machine", machine.0.join("; ")),
        ("Date", date.0.join(", ")),
        ("Loop", loops.0.join(", ")),
        ("Hits", hits.unwrap_or_default()),
        ("Server versions", servers.0.join(", ")),
        ("Measured by", program.0.join(", ")),
    ];
    all.into_iter().filter(|(_, value)| !value.is_empty()).collect()
}

fn runs(result: &Drawable) -> Vec<&RunResult> {
    match result {
        Drawable::Run(run) => vec![run],
        Drawable::Sweep(sweep) => sweep.points.iter().map(|point| &point.result).collect(),
        Drawable::Hitrate(_) | Drawable::Search(_) | Drawable::Score(_) | Drawable::Stages(_) => {
            Vec::new()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hitrate::tests::result;

    fn entry(name: &'static str, value: f64, range: Option<(f64, f64)>) -> Entry<'static> {
        Entry { name, value, range, at: String::new() }
    }

    #[test]
    fn a_server_that_was_cut_short_is_not_ranked() {
        let said = |failure, point| of_hitrate(&result(failure, &[point])).unwrap();
        let bound = "; Belady's bound is 2.00 %.";
        let start = "Gets missed at 8 MB, the least first: ";
        assert_eq!(said(None, (0, 0, Some("closed"))), format!("{start}no server{bound}"));
        let cut = Some("the trace was cut short");
        assert_eq!(said(cut, (10, 9, cut)), format!("{start}server 10.00 %{bound}"));
    }

    #[test]
    fn the_first_place_is_sure_if_the_repeats_do_not_overlap() {
        let of = |first, second| {
            ranked(vec![entry("b", 50_000.0, second), entry("a", 100_000.0, first)])
        };
        let apart = of(Some((90e3, 110e3)), Some((40e3, 60e3)));
        assert!(apart.starts_with("a with 100k, 2.00 times b (50k)."), "{apart}");
        assert!(apart.ends_with("is sure."), "{apart}");
        assert!(of(Some((50e3, 110e3)), Some((40e3, 60e3))).ends_with("may be chance."));
        assert!(of(None, None).contains("measured once"));
        assert_eq!(ranked(Vec::new()), "nobody.");
    }
}
