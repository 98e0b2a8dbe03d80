//! The page: the run, the results, and the verdict.

use std::fmt::Write as _;
use std::fs;
use std::process::Command;
use std::time::Duration;

use super::Soak;
use super::record::Record;
use super::tier::{LIMIT_MB, Tier};
use super::watch::{MEMORY_MAX, Watch};

const MIB: u64 = 1 << 20;

/// Lines of each log in the page of a violation.
const LOG_LINES: usize = 15;

/// The page, in Markdown.
pub(super) fn page(soak: &Soak, tier: &Tier, record: &Record, watch: &Watch) -> String {
    let mut text = head(soak, record);
    verdict(&mut text, tier, record);
    troubles(&mut text, record);
    seen(&mut text, tier, record, watch);
    processes(&mut text, watch);
    requests(&mut text, tier, record);
    text
}

fn head(soak: &Soak, record: &Record) -> String {
    let minutes = |time: Duration| time.as_secs_f64() / 60.0;
    format!(
        "# Soak\n\n\
         Seed {}, commit {}, {}: {:.1} minutes of {:.1}{}.\n\n",
        soak.seed,
        said("git", &["rev-parse", "--short=12", "HEAD"]),
        machine(),
        minutes(record.elapsed()),
        minutes(soak.length),
        if record.is_interrupted() { ", **partial**: interrupted" } else { "" },
    )
}

fn verdict(text: &mut String, tier: &Tier, record: &Record) {
    let violations = record.violations();
    if violations.is_empty() {
        text.push_str("**No violation.**\n\n");
        return;
    }
    let _ = writeln!(text, "**{} violations:**\n", violations.len());
    for violation in violations {
        let _ = writeln!(text, "```text\n{violation}\n```\n");
    }
    for (name, _, log) in tier.processes() {
        let log = fs::read_to_string(log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        let last = lines[lines.len().saturating_sub(LOG_LINES)..].join("\n");
        let _ = writeln!(text, "The log of the {name} ends:\n\n```text\n{last}\n```\n");
    }
}

fn troubles(text: &mut String, record: &Record) {
    text.push_str("| trouble | times | longest until whole |\n| --- | ---: | ---: |\n");
    for (kind, trouble) in record.troubles() {
        match trouble.not_run {
            Some(reason) => {
                let _ = writeln!(text, "| {kind} | NOT RUN: {reason} | |");
            }
            None => {
                let longest = trouble.longest.as_secs_f64();
                let _ = writeln!(text, "| {kind} | {} | {longest:.1} s |", trouble.times);
            }
        }
    }
    text.push('\n');
}

fn seen(text: &mut String, tier: &Tier, record: &Record, watch: &Watch) {
    let mut probes = watch.probes();
    probes.beside.sort_unstable();
    let at = |share: f64| {
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_precision_loss,
            clippy::cast_sign_loss,
            reason = "an index below the length"
        )]
        let index = (probes.beside.len() as f64 * share) as usize;
        let micros = probes.beside.get(index).or_else(|| probes.beside.last());
        f64::from(micros.copied().unwrap_or(0)) / 1000.0
    };
    let number =
        |kicks: Option<u64>| kicks.map_or_else(|| "?".to_owned(), |kicks| kicks.to_string());
    let kicks: Vec<String> = tier.slow_kicks().into_iter().map(number).collect();
    let _ = writeln!(
        text,
        "| seen | |\n| --- | ---: |\n\
         | errors on a path that a trouble held | {} |\n\
         | errors on any other path | {} |\n\
         | probes beside troubles | {} |\n\
         | their p50, p99.9 and longest | {:.1} ms, {:.1} ms, {:.1} ms |\n\
         | longest probe in a trouble | {:.1} s |\n\
         | clients closed for holding large values, by each server since its start | {} |\n",
        record.excused(),
        record.strays(),
        probes.beside.len(),
        at(0.5),
        at(0.999),
        at(1.0),
        probes.longest_in_trouble.as_secs_f64(),
        kicks.join(", "),
    );
}

fn processes(text: &mut String, watch: &Watch) {
    let _ = writeln!(
        text,
        "Servers have `-m {LIMIT_MB}` and promise at most {} MiB resident.\n\n\
         | process | most resident, MiB | files | threads | log, bytes |\n\
         | --- | ---: | ---: | ---: | ---: |",
        MEMORY_MAX / MIB
    );
    for (name, peak) in watch.peaks() {
        let super::watch::Peak { memory, files, threads, log } = peak;
        let _ = writeln!(text, "| {name} | {} | {files} | {threads} | {log} |", memory / MIB);
    }
    text.push('\n');
}

fn requests(text: &mut String, tier: &Tier, record: &Record) {
    text.push_str("| requests | answered |\n| --- | ---: |\n");
    for (kind, count) in record.requests() {
        let _ = writeln!(text, "| {kind} | {count} |");
    }
    if let Some(rows) = tier.rows() {
        let _ = writeln!(text, "| writes of the database | {} |", rows.written());
    }
}

/// The kernel and the relevant hardware.
fn machine() -> String {
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = memory.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok());
    let processors = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    format!("{processors} processors, {} GiB, {}", kib.unwrap_or(0) >> 20, said("uname", &["-sr"]))
}

fn said(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output();
    output.map_or_else(
        |_| "?".to_owned(),
        |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
    )
}
