//! The engine compared with a plain map: bytes choose the commands, and every reply is compared.
#![no_main]
#![allow(clippy::unwrap_used, reason = "a target stops where it fails")]

#[path = "../../crates/engine/tests/model/mod.rs"]
mod model;

use model::{Random, World};
use store::Config;

/// Commands per input, few enough that appended values stay below the largest item.
const COMMANDS: usize = 100;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let config = Config {
        memory_bytes: 64 << 20,
        item_bytes_max: 8 << 20,
        // Few classes, because each input creates a store.
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
