//! `holdall plan size` against real tiers: `plan size` plans a tier from the statistics of a server
//! that is too small, and real servers of that number and memory, behind a real proxy, get the same
//! load. They must hold the promised bytes of items and reach the promised hits; and the number of
//! items, where it is promised. `throughput` tests the gets per second.
//!
//! `SIZING_MIB` is the memory of each tier; `SIZING_LOADS` names loads with commas, or `all`.
//! Servers of a few MiB have hardly a page for each size of the loads `web` and `etc`, and keep
//! fewer of their items than promised. `SIZING_EVICTION` is the order of eviction. `cargo xtask
//! bench sizing` runs all loads with the release build.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod load;
mod throughput;
mod tier;

use std::env;
use std::fs;

use bench::hitrate::presets::Kind;
use e2e::folder::Folder;

use load::Load;
use tier::Tier;

/// Memory of each tier in MiB, unless `SIZING_MIB` sets another.
const MEMORY_MIB: u64 = 16;

/// Maximum difference of hit ratios.
const HITS_OFF_MAX: f64 = 0.015;

/// Maximum difference of the items that fit, and of their bytes, as a share. The plan takes them
/// from one look at a server of 8 MiB, whose bytes differ by 1 % from one second to the next, and
/// by more while its cleaner waits for a processor.
const ITEMS_OFF_MAX: f64 = 0.05;

/// The load of `cargo xtask test`, which must be short.
const BRIEF: &str = "zipf";

fn memory_mib() -> u64 {
    env::var("SIZING_MIB").map_or(MEMORY_MIB, |text| text.parse().unwrap())
}

/// The selected loads and their numbers of servers.
fn loads(memory_mib: u64) -> Vec<Load> {
    let of =
        |name, kind, data: u64, servers| Load::new(name, kind, data * memory_mib / 10, servers);
    vec![
        of("zipf", Kind::Zipf, 30, 3),
        of("zipf of twice the data", Kind::Zipf, 60, 2),
        of("zipf that mostly fits", Kind::Zipf, 18, 4),
        of("web", Kind::Web, 30, 3),
        of("etc", Kind::Etc, 30, 2),
        of("seen once", Kind::SeenOnce, 30, 3),
        of("scans", Kind::Scans, 30, 2),
        of("drift", Kind::Drift, 20, 3),
        of("news", Kind::News, 20, 2),
        of("bursts", Kind::Bursts, 30, 3),
    ]
}

/// Promised and measured values of one load.
struct Outcome {
    name: &'static str,
    servers: usize,
    hits: [f64; 2],
    bytes: [f64; 2],
    items: [Option<f64>; 2],
}

fn measure(load: &Load, memory_mib: u64) -> Outcome {
    let folder = Folder::new("sizing");
    let present = Tier::start(&[memory_mib / 2]);
    present.replay(load);
    fs::write(folder.path().join("mrc.txt"), present.stats("mrc")).unwrap();
    fs::write(folder.path().join("slabs.txt"), present.stats("slabs")).unwrap();
    drop(present);
    let plan = load.plan(folder.path(), memory_mib);
    let tier = Tier::start(&vec![plan.memory_mib; plan.servers]);
    let hits = [plan.hit_ratio, tier.replay(load)];
    tier.assert_within_promised_memory();
    let bytes = [plan.item_bytes, tier.sum("bytes")];
    let items = [plan.items, Some(tier.sum("curr_items"))];
    Outcome { name: load.name, servers: plan.servers, hits, bytes, items }
}

/// The relative difference between measurement and promise, if there is a promise.
fn off([promised, found]: [Option<f64>; 2]) -> Option<f64> {
    Some(found? / promised? - 1.0)
}

#[test]
fn planned_tiers_keep_their_promises() {
    let memory_mib = memory_mib();
    let chosen = env::var("SIZING_LOADS").ok();
    let all = loads(memory_mib);
    let names = chosen.as_deref().unwrap_or(BRIEF);
    let is_chosen = |load: &&Load| names == "all" || names.split(',').any(|name| name == load.name);
    let mut unkept = Vec::new();
    println!(
        "{:<24} servers  hits promised   found      off    bytes promised      found      off     items",
        "load"
    );
    for load in all.iter().filter(is_chosen) {
        let Outcome { name, servers, hits: [promised, found], bytes, items } =
            measure(load, memory_mib);
        let bytes_off = off(bytes.map(Some)).unwrap();
        let items_off = off(items);
        let line = format!(
            "{name:<24} {servers:>7} {promised:>14.4} {found:>7.4} {:>8.4} {:>17.0} {:>10.0} {:>6.2} % {}",
            found - promised,
            bytes[0],
            bytes[1],
            bytes_off * 100.0,
            items_off
                .map_or_else(|| "        -".to_owned(), |off| format!("{:>7.2} %", off * 100.0)),
        );
        println!("{line}");
        let items_off = items_off.unwrap_or(0.0).abs();
        if (found - promised).abs() > HITS_OFF_MAX || bytes_off.abs().max(items_off) > ITEMS_OFF_MAX
        {
            unkept.push(line);
        }
    }
    assert!(unkept.is_empty(), "not as promised:\n{}", unkept.join("\n"));
}
