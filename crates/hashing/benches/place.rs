//! Nanoseconds to place a key: `cargo bench -p holdall-hashing`. Each figure is the best of 20
//! rounds.
#![allow(clippy::print_stdout, reason = "the result is for a reader")]
#![allow(clippy::unwrap_used, reason = "a benchmark stops where it fails")]

use std::hint::black_box;
use std::time::Instant;

use hashing::{KeyHash, Placement};

const ROUNDS: u32 = 20;
const CALLS: u32 = 100_000;
const SERVERS: usize = 100;

fn measure(name: &str, placement: &Placement, keys: &[Vec<u8>], salt: &[u8]) {
    let mut best = f64::INFINITY;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for key in keys.iter().cycle().take(CALLS as usize) {
            black_box(placement.pick_salted(black_box(key), salt));
        }
        best = best.min(start.elapsed().as_secs_f64() / f64::from(CALLS));
    }
    println!("{name:<28} {:6.1} ns", best * 1e9);
}

fn main() {
    println!("{SERVERS} servers, keys of 24 bytes");
    let keys: Vec<_> =
        (0..1024).map(|key| format!("user:{key:011}:profile").into_bytes()).collect();
    let names: Vec<_> = (0..SERVERS).map(|server| format!("10.0.0.{server}")).collect();
    let named: Vec<_> = names.iter().map(|name| (name.clone(), 1)).collect();
    let hosts: Vec<_> = names.iter().map(|name| (name.as_str(), 11211)).collect();
    let weighted: Vec<_> = names.iter().map(|name| (name.as_str(), 0.5)).collect();
    let ch3 = Placement::ch3(SERVERS).unwrap();
    measure("Ch3", &ch3, &keys, b"");
    measure("Ch3, salted", &ch3, &keys, b"salt");
    let half = Placement::weighted_ch3(&[0.5; SERVERS]).unwrap();
    measure("WeightedCh3, weights 0.5", &half, &keys, b"");
    measure("Crc32", &Placement::crc32(SERVERS).unwrap(), &keys, b"");
    measure("Rendezvous", &Placement::rendezvous(&names).unwrap(), &keys, b"");
    let rendezvous = Placement::weighted_rendezvous(&weighted).unwrap();
    measure("WeightedRendezvous", &rendezvous, &keys, b"");
    measure("jump", &Placement::jump(SERVERS, 0).unwrap(), &keys, b"");
    let ketama = Placement::ketama(&hosts, KeyHash::OneAtATime).unwrap();
    measure("ketama, one_at_a_time", &ketama, &keys, b"");
    for (name, hash) in KeyHash::ALL {
        let ketama = Placement::twemproxy_ketama(&named, hash).unwrap();
        measure(&format!("ketama weighted, {name}"), &ketama, &keys, b"");
    }
}
