//! Attacks server and proxy with a crowd of hostile clients, with TLS and without, in control
//! groups of 1.03 x `-m` + 64 MB, and prints a table.
//!
//! `cargo xtask bench hostile`. `CLIENTS` is the number of hostile clients. `FRONT` selects a
//! single front by its name in the table.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a measurement stops where it fails")]

use std::time::Duration;

use e2e::crowd::{Front, attack};
use testkit::process::raise_open_files;

/// The time of measurements by bystanders before the crowd connects, and after it has connected.
const WATCH: Duration = Duration::from_secs(10);

fn main() {
    let clients = std::env::var("CLIENTS").map_or(10_000, |count| count.parse().unwrap());
    let files = raise_open_files(clients as u64 + 1000);
    assert!(files > clients as u64 + 100, "{files} open files are too few");
    println!(
        "{clients} hostile clients; times of bystanders' replies in ms.\n\n\
         | front | came | p99 before | p99 while they come | longest | p99 beside | longest \
         | items lost | alive | most memory of the group, MB | most resident, MB |\n\
         | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- | ---: | ---: |"
    );
    let only = std::env::var("FRONT").ok();
    let is_wanted = |front: &Front| only.as_ref().is_none_or(|name| *name == format!("{front:?}"));
    for front in Front::ALL.into_iter().filter(is_wanted) {
        let outcome = attack(front, clients, WATCH, WATCH);
        let ms = |times: &[Duration], percent: usize| {
            let last = times.len() - 1;
            times[(times.len() * percent / 100).min(last)].as_secs_f64() * 1000.0
        };
        let peak =
            outcome.group_peak.map_or_else(|| "-".to_owned(), |peak| (peak >> 20).to_string());
        println!(
            "| {front:?} | {} | {:.2} | {:.2} | {:.1} | {:.2} | {:.1} | {} | {} | {peak} | {} |",
            outcome.came,
            ms(&outcome.before, 99),
            ms(&outcome.coming, 99),
            ms(&outcome.coming, 100),
            ms(&outcome.beside, 99),
            ms(&outcome.beside, 100),
            outcome.lost,
            if outcome.is_alive { "yes" } else { "no" },
            outcome.peak_rss >> 20,
        );
    }
}
