//! Measures the memory that short-lived keys hold, with and without the ring of transient items.
//!
//! *Scaling Memcache at Facebook*, section 6.3: keys with a single burst of activity got a short
//! time to live, and their share of a pool fell from 6 % to 0.3 % at the same hit ratio. Here a
//! full cache serves two families with values of one size, which therefore share a slab class and
//! its LRU. Keys of the first last, and reads follow a Zipf distribution. Each key of the second is
//! stored once, read three times within a second and never again. The second family has two seconds
//! to live or, as the baseline, no expiry. Each server gets the same requests at the same time:
//!
//! | server | the fate of an expired item |
//! | --- | --- |
//! | memcached without its crawler | it lies until the LRU's end reaches it |
//! | memcached | as Debian ships it: a crawler looks for it now and then |
//! | holdall, `transient_ttl=0` | the cleaner's passes meet it some time |
//! | holdall | it is freed in the second in which it expires |
//!
//! The family's items are counted at the end: the server's count of items minus the lasting items
//! that are present.

use std::fmt::Write as _;

use anyhow::{Context, Result, ensure};

use crate::lookaside::{Client, Hits, Item, ZipfFamily, paced};
use crate::servers::MEMCACHED;
use bench::process::{Running, Server};

/// The plan of the measurement.
#[derive(Clone, Debug, clap::Args)]
pub struct TransientPlan {
    /// Seconds of the load, the second half of which is measured.
    #[arg(long, default_value_t = 180)]
    pub seconds: u64,
    /// Memory limit of the servers.
    #[arg(long, default_value_t = 64)]
    pub megabytes: u32,
    /// Reads of lasting keys in a second.
    #[arg(long, default_value_t = 6000)]
    pub reads: u32,
    /// Short-lived keys in a second.
    #[arg(long, default_value_t = 160)]
    pub short: u32,
}

const LASTING: Item = Item { family: 'l', number: 0, value_bytes: 500, exptime: 0 };
const SHORT: Item = Item { family: 's', number: 0, value_bytes: 500, exptime: 2 };
/// Four times the number that fits into 64 MB.
const LASTING_KEYS: u32 = 500_000;
const EXPONENT: f64 = 0.9;
/// Turns of every client per second.
const TURNS: u32 = 20;
/// Turns after which a short-lived key is read again.
const READ_AFTER: [u64; 3] = [4, 8, 14];

/// A server, and whether its short-lived keys have a time to live.
#[derive(Clone, Debug)]
pub struct Variant {
    /// The server, with its name in the table.
    pub server: Server,
    /// False: they are stored without expiry, as before the paper's change. This is the baseline.
    pub expires: bool,
}

impl Variant {
    /// Every variant in the table, of these servers.
    #[must_use]
    pub fn all(servers: &[Server]) -> Vec<Self> {
        let mut variants = Vec::new();
        for server in servers {
            let lazy = match server.name == MEMCACHED {
                true => server.with("memcached without its crawler", &["-o", "no_lru_crawler"]),
                false => server.with(
                    &format!("{}, `transient_ttl=0`", server.name),
                    &["-o", "transient_ttl=0"],
                ),
            };
            let for_ever = server.with(&format!("{}, stored for ever", server.name), &[]);
            variants.push(Self { server: for_ever, expires: false });
            variants.extend([lazy, server.clone()].map(|server| Self { server, expires: true }));
        }
        variants
    }
}

/// One server under the load.
struct Candidate {
    name: String,
    expires: bool,
    _running: Running,
    client: Client,
    lasting: ZipfFamily,
    short: Item,
    lasting_hits: Hits,
    short_hits: Hits,
}

/// Measures every variant at the same time. Returns a table.
///
/// # Errors
///
/// When a server does not start or fails.
pub fn run(
    plan: &TransientPlan,
    variants: &[Variant],
    mut progress: impl FnMut(&str),
) -> Result<String> {
    progress("filling");
    let mut candidates = Vec::new();
    for variant in variants {
        candidates.push(Candidate::start(plan, variant)?);
    }
    progress(&format!("{} s of load", plan.seconds));
    let turns = plan.seconds * u64::from(TURNS);
    let took = paced(TURNS, turns, |turn| {
        let measured = turn >= turns / 2;
        for candidate in &mut candidates {
            candidate.turn(plan, turn, measured)?;
        }
        Ok(())
    })?;
    let late = took.as_secs_f64() / plan.seconds as f64;
    ensure!(late < 1.1, "the load took {late:.2} times as long as it should: ask for less");
    table(plan, &mut candidates)
}

impl Candidate {
    fn start(plan: &TransientPlan, variant: &Variant) -> Result<Self> {
        let (server, name) = (&variant.server, &variant.server.name);
        let running = server.start(plan.megabytes, None)?;
        let mut client = Client::connect(running.address)?;
        let short = Item { exptime: if variant.expires { SHORT.exptime } else { 0 }, ..SHORT };
        let mut lasting = ZipfFamily::new(LASTING, LASTING_KEYS, EXPONENT, 3)?;
        // Until the memory is full.
        while client.stats("")?.iter().any(|(name, value)| name == "evictions" && value == "0") {
            client.ask(&lasting.next(4800))?;
        }
        Ok(Self {
            name: name.clone(),
            expires: variant.expires,
            _running: running,
            client,
            lasting,
            short,
            lasting_hits: Hits::default(),
            short_hits: Hits::default(),
        })
    }

    fn turn(&mut self, plan: &TransientPlan, turn: u64, measured: bool) -> Result<()> {
        let lasting = self.lasting.next((plan.reads / TURNS) as usize);
        let mut of_lasting = self.client.ask(&lasting)?;
        let per_turn = u64::from(plan.short / TURNS);
        let made_at = |turn: u64| {
            let short = self.short;
            (turn * per_turn..(turn + 1) * per_turn).map(move |number| Item { number, ..short })
        };
        let new: Vec<_> = made_at(turn + 1).collect();
        let again = READ_AFTER.into_iter().filter_map(|after| turn.checked_sub(after));
        let again: Vec<_> = again.flat_map(|turn| made_at(turn + 1)).collect();
        // A new key is a miss, and is stored.
        self.client.ask(&new)?;
        let mut of_short = self.client.ask(&again)?;
        if !measured {
            (of_lasting, of_short) = Default::default();
        }
        self.lasting_hits.add(of_lasting);
        self.short_hits.add(of_short);
        Ok(())
    }

    /// All items, including dead ones.
    fn items(&mut self) -> Result<u64> {
        let all = self.client.stats("")?;
        let items = all.iter().find(|(name, _)| name == "curr_items").context("no curr_items")?;
        Ok(items.1.parse()?)
    }

    /// The number of lasting items.
    fn lasting(&mut self) -> Result<u64> {
        let every: Vec<_> =
            (1..=u64::from(LASTING_KEYS)).map(|number| Item { number, ..LASTING }).collect();
        Ok((every.len() - self.client.missing_of(&every)?) as u64)
    }
}

fn table(plan: &TransientPlan, candidates: &mut [Candidate]) -> Result<String> {
    let mut text = format!(
        "`-m {}`, {} reads of lasting keys a second, {} short-lived keys a second, {} s.\n\n\
         | server | items | short-lived | their share, % | times less than stored for ever | hits, lasting | hits, short-lived |\n\
         | --- | ---: | ---: | ---: | ---: | ---: | ---: |\n",
        plan.megabytes, plan.reads, plan.short, plan.seconds
    );
    let mut for_ever = 0.0;
    // All at the same time, before more items expire.
    let items: Vec<_> = candidates.iter_mut().map(Candidate::items).collect::<Result<_>>()?;
    for (candidate, items) in candidates.iter_mut().zip(items) {
        let short = items.saturating_sub(candidate.lasting()?);
        let share = Hits { hits: short, reads: items };
        if !candidate.expires {
            for_ever = share.ratio();
        }
        writeln!(
            text,
            "| {} | {} | {} | {:.3} | {:.1} | {:.4} | {:.4} |",
            candidate.name,
            share.reads,
            share.hits,
            100.0 * share.ratio(),
            for_ever / share.ratio(),
            candidate.lasting_hits.ratio(),
            candidate.short_hits.ratio(),
        )?;
    }
    Ok(text)
}
