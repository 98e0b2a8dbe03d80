//! The engine against a plain map: both get the same random commands, and every answer is compared.
//!
//! The seed is printed when a run fails; `SEED=n cargo test -p holdall-engine --test
//! engine_vs_model` replays it.
//!
//! Seen to fail: `mg T R` judging `R` by the deadline that `T` had just given.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod model;

use model::{Random, World};
use store::Config;

#[test]
fn random_commands_match_the_model() {
    let (first, count) = match std::env::var("SEED") {
        Ok(seed) => (seed.parse().unwrap(), 1),
        Err(_) => (1, 40),
    };
    for seed in first..first + count {
        let config = Config { memory_bytes: 64 << 20, ..Config::default() };
        let mut world = World::new(Random::Seed(seed), config);
        for step in 0..10_000 {
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| world.step()));
            if let Err(panic) = outcome {
                println!("SEED={seed}, step {step}, second {}", world.now_secs);
                std::panic::resume_unwind(panic);
            }
        }
        assert!(world.last_cas > 0);
    }
}
