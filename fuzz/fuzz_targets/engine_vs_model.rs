//! The engine against a plain map: bytes choose the commands, every answer is compared.
#![no_main]
#![allow(clippy::unwrap_used, reason = "a target stops where it fails")]

#[path = "../../crates/engine/tests/model/mod.rs"]
mod model;

use model::{Random, World};
use store::Config;

/// Commands of one input: appended values stay below the largest item.
const COMMANDS: usize = 100;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let config = Config {
        memory_bytes: 64 << 20,
        item_bytes_max: 8 << 20,
        // Few classes, since a store is made for each input.
        growth_factor: 2.0,
        stripes: 16,
        threads_max: 2,
        ..Config::default()
    };
    let mut world = World::new(Random::Bytes(bytes.to_vec().into_iter()), config);
    for _ in 0..COMMANDS {
        if world.random.is_exhausted() {
            return;
        }
        world.step();
    }
});
