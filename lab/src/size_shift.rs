//! Value sizes shift while memory is full: how soon a cache gives the memory of the old size to the
//! new one.
//!
//! *Scaling Memcache at Facebook*, section 6.2: slabs move between classes by the age of their
//! items. One server of each kind is filled with values of 100 bytes, another stays empty. Then
//! both receive the same reads of other keys, whose values have 1 KB. The figure is the hit ratio
//! of the first compared with that of the second, which never held the old size.

use std::fmt::Write as _;

use anyhow::{Result, ensure};

use crate::lookaside::{Client, Hits, Item, ZipfFamily, paced};
use bench::process::{Running, Server};

/// The plan of the measurement.
#[derive(Clone, Debug, clap::Args)]
pub struct ShiftPlan {
    /// Seconds of the load after the shift.
    #[arg(long, default_value_t = 60)]
    pub seconds: u64,
    /// Seconds for each line of the table.
    #[arg(long, default_value_t = 10)]
    pub every: u64,
    /// Memory limit of the servers.
    #[arg(long, default_value_t = 64)]
    pub megabytes: u32,
    /// Reads in a second.
    #[arg(long, default_value_t = 20_000)]
    pub reads: u32,
}

const OLD: Item = Item { family: 'o', number: 0, value_bytes: 100, exptime: 0 };
const NEW: Item = Item { family: 'n', number: 0, value_bytes: 1000, exptime: 0 };
/// Far more than fit, for both sizes.
const KEYS: u32 = 1_000_000;
const EXPONENT: f64 = 0.99;
/// Reads of old keys before the shift, per megabyte.
const READS_BEFORE: u32 = 50_000;
const TURNS: u32 = 50;

struct Candidate {
    server: usize,
    is_fresh: bool,
    _running: Running,
    client: Client,
    keys: ZipfFamily,
    /// One for each line of the table.
    hits: Vec<Hits>,
}

/// Measures all servers at the same time. Returns a table.
///
/// # Errors
///
/// When a server does not start, fails, or is not full when the sizes shift.
pub fn run(plan: &ShiftPlan, servers: &[Server], mut progress: impl FnMut(&str)) -> Result<String> {
    let mut candidates = Vec::new();
    for (number, server) in servers.iter().enumerate() {
        progress(&format!("filling {}", server.name));
        for is_fresh in [false, true] {
            let running = server.start(plan.megabytes, None)?;
            let mut client = Client::connect(running.address)?;
            if !is_fresh {
                fill(plan, &mut client)?;
            }
            candidates.push(Candidate {
                server: number,
                is_fresh,
                _running: running,
                client,
                keys: ZipfFamily::new(NEW, KEYS, EXPONENT, 5)?,
                hits: Vec::new(),
            });
        }
    }
    progress(&format!("{} s of the new size", plan.seconds));
    let turns = plan.seconds * u64::from(TURNS);
    let per_line = plan.every.max(1) * u64::from(TURNS);
    let took = paced(TURNS, turns, |turn| {
        for candidate in &mut candidates {
            if turn.is_multiple_of(per_line) {
                candidate.hits.push(Hits::default());
            }
            let items = candidate.keys.next((plan.reads / TURNS) as usize);
            let hits = candidate.client.ask(&items)?;
            candidate.hits.iter_mut().last().into_iter().for_each(|line| line.add(hits));
        }
        Ok(())
    })?;
    let late = took.as_secs_f64() / plan.seconds as f64;
    ensure!(late < 1.1, "the load took {late:.2} times as long as it should: ask for less");
    Ok(table(plan, servers, &candidates))
}

fn fill(plan: &ShiftPlan, client: &mut Client) -> Result<()> {
    let mut old = ZipfFamily::new(OLD, KEYS, EXPONENT, 4)?;
    for _ in 0..plan.megabytes * READS_BEFORE / 4800 {
        client.ask(&old.next(4800))?;
    }
    let is_full = client.stats("")?.iter().any(|(name, n)| name == "evictions" && n != "0");
    ensure!(is_full, "memory is not full when the sizes shift");
    Ok(())
}

fn table(plan: &ShiftPlan, servers: &[Server], candidates: &[Candidate]) -> String {
    let mut text = format!(
        "`-m {}`, {} reads a second; hit ratios after the shift, and of a server that never saw the old size.\n\n\
         | seconds |",
        plan.megabytes, plan.reads
    );
    for server in servers {
        let _ = write!(text, " {0} | {0}, fresh | points less |", server.name);
    }
    text.push_str("\n| --- |");
    servers.iter().for_each(|_| text.push_str(" ---: | ---: | ---: |"));
    text.push('\n');
    let lines = candidates.first().map_or(0, |candidate| candidate.hits.len());
    for line in 0..lines {
        let from = line as u64 * plan.every;
        let _ = write!(text, "| {from}..{} |", (from + plan.every).min(plan.seconds));
        write_line(&mut text, servers, candidates, |candidate| candidate.hits[line]);
    }
    let _ = write!(text, "| second half |");
    write_line(&mut text, servers, candidates, |candidate| {
        let mut all = Hits::default();
        candidate.hits[lines / 2..].iter().for_each(|hits| all.add(*hits));
        all
    });
    text
}

/// Writes the rest of a line: `of` for both servers of each kind.
fn write_line(
    text: &mut String,
    servers: &[Server],
    candidates: &[Candidate],
    of: impl Fn(&Candidate) -> Hits,
) {
    for number in 0..servers.len() {
        let ratio = |is_fresh| {
            let one = candidates.iter().find(|s| s.server == number && s.is_fresh == is_fresh);
            one.map_or(0.0, |candidate| of(candidate).ratio())
        };
        let (shifted, fresh) = (ratio(false), ratio(true));
        let points = 100.0 * (fresh - shifted);
        let _ = write!(text, " {shifted:.4} | {fresh:.4} | {points:.2} |");
    }
    text.push('\n');
}
