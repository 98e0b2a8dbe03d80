//! A run second by second: requests, latencies, and the machine's CPU time.

use crate::result::RunResult;

/// Maximum number of rows in a table.
const ROWS: usize = 12;

/// The column names of a row.
pub const COLUMNS: [&str; 11] = [
    "second", "requests", "p50 us", "p99", "max", "user %", "system", "irq", "softirq", "steal",
    "switches",
];

/// The rows of a run in time order. A long run shows the seconds with the greatest p99. Columns
/// after the latencies are empty if the kernel reported no CPU times.
#[must_use]
pub fn rows(run: &RunResult) -> Vec<[String; COLUMNS.len()]> {
    let mut worst: Vec<usize> = (0..run.series.len()).collect();
    // A second without answers is worse than any with answers.
    let p99 = |index: &usize| run.series[*index].p99.unwrap_or(f64::INFINITY);
    worst.sort_by(|a, b| p99(b).total_cmp(&p99(a)));
    worst.truncate(ROWS);
    worst.sort_unstable();
    worst.into_iter().map(|index| row(run, index)).collect()
}

/// The title above the rows.
#[must_use]
pub fn title(run: &RunResult) -> &'static str {
    if run.series.len() > ROWS { "The slowest seconds, by p99" } else { "Second by second" }
}

fn row(run: &RunResult, index: usize) -> [String; COLUMNS.len()] {
    let second = &run.series[index];
    let slice = run.cpu_series.as_ref().and_then(|series| series.machine.get(index));
    let share = |name: &str| {
        let shares = slice?.times.shares().into_iter();
        shares.filter(|(of, _)| *of == name).map(|(_, share)| format!("{share:.1}")).next()
    };
    let shown = |latency: Option<f64>| {
        latency.map_or_else(|| "-".to_owned(), |latency| format!("{latency:.1}"))
    };
    let of = |name: &str| share(name).unwrap_or_default();
    [
        (index + 1).to_string(),
        second.requests.to_string(),
        shown(second.p50),
        shown(second.p99),
        shown(second.max),
        of("user"),
        of("system"),
        of("irq"),
        of("softirq"),
        of("steal"),
        slice.map(|slice| slice.times.switches.to_string()).unwrap_or_default(),
    ]
}
