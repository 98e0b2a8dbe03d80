//! A small server's curve compared with exact LRU caches of twice and four times its memory, on the
//! ten loads of `e2e/tests/sizing`: only the sample's error, without store and network.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a test stops where it fails, and its numbers are small"
)]

mod server;

use bench::hitrate::presets::{Kind as Load, Preset};
use sampling::{Config, Kind};

use server::{Lru, Server, hash_of};

/// `-m` of the server.
const LIMIT: u64 = 8 << 20;

/// Items' part of the limit.
const DENSITY: f64 = 0.85;

/// Header and key of an item.
const AROUND_A_VALUE: u32 = 32;

/// Servers that see the same requests and sample different keys.
const SERVERS: u64 = 4;

/// Requests of the tenth of a second between two collections.
const REQUESTS_OF_A_TURN: u64 = 5000;

/// Loads, and the requested items: MiB for each ten of twice the limit.
const LOADS: [(&str, Load, u64); 10] = [
    ("zipf", Load::Zipf, 30),
    ("zipf of twice the data", Load::Zipf, 60),
    ("zipf that mostly fits", Load::Zipf, 18),
    ("web", Load::Web, 30),
    ("etc", Load::Etc, 30),
    ("seen once", Load::SeenOnce, 30),
    ("scans", Load::Scans, 30),
    ("drift", Load::Drift, 20),
    ("news", Load::News, 20),
    ("bursts", Load::Bursts, 30),
];

/// Maximum error of the hit ratio at twice and four times the memory.
const HITS_OFF_MAX: [f64; 2] = [0.015, 0.02];

#[test]
fn a_small_server_predicts_the_hit_ratio_of_larger_ones() {
    let mut off = Vec::new();
    for (name, kind, data) in LOADS {
        let keys = data * 2 * (LIMIT >> 20) / 10 * 3000;
        let preset = Preset { kind, keys, requests: 8 * keys, seed: 1 };
        let memory = LIMIT as f64 * DENSITY;
        let config = Config::for_memory(LIMIT, 1, true);
        let mut servers: Vec<Server> =
            (0..SERVERS).map(|_| Server::new(config, 1, memory)).collect();
        let mut caches = [1.0, 2.0, 4.0].map(|times| Lru::new((memory * times) as u64));
        for (at, request) in (0..).zip(preset.requests().unwrap()) {
            let bytes = AROUND_A_VALUE + request.value_bytes;
            let [is_hit, ..] = caches.each_mut().map(|cache| cache.read(request.id, bytes));
            for (salt, server) in (0..).zip(&mut servers) {
                let key = hash_of(request.id ^ salt << 60);
                if is_hit {
                    server.access(0, key, Kind::Hit, bytes);
                } else {
                    server.access(0, key, Kind::Miss, 0);
                    server.access(0, key, Kind::Stored, bytes);
                }
                server.now.now_ms = at * 100 / REQUESTS_OF_A_TURN;
                if at % REQUESTS_OF_A_TURN == 0 {
                    server.collect();
                }
            }
        }
        for server in &mut servers {
            server.collect();
            let curve = &server.collector.miss_ratio;
            print!("{name:<26} {:>5} keys", curve.keys());
            for (cache, most) in caches.iter().zip([0.0, HITS_OFF_MAX[0], HITS_OFF_MAX[1]]) {
                let (hits, promised) =
                    (cache.hit_ratio(), curve.hit_ratio(cache.capacity).unwrap());
                print!("  {hits:.4} {:+.4}", promised - hits);
                if most > 0.0 && (promised - hits).abs() > most {
                    off.push(format!("{name}: {hits:.4}, promised {promised:.4}"));
                }
            }
            println!();
        }
    }
    assert!(off.is_empty(), "{}", off.join("\n"));
}
