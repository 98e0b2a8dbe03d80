//! A small seeded generator of random numbers, so that a failed test can be repeated with its
//! printed seed.
//!
//! Source: `splitmix64` (Sebastiano Vigna, public domain); good enough only to choose test inputs.
//! It is not a library's, because recorded seeds must name the same sequence in every version.

use std::time::{SystemTime, UNIX_EPOCH};

/// A seeded sequence of numbers; the same seed always gives the same sequence.
#[derive(Debug, Clone)]
pub struct Rng {
    state: u64,
}

impl Rng {
    /// The sequence of `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next 64 bits.
    pub const fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in `0..bound`; 0 when `bound` is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        let bound = (bound as u64).max(1);
        usize::try_from(self.next_u64() % bound).expect("less than a bound that was a usize")
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// One of `choices`, which must not be empty.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        assert!(!choices.is_empty(), "nothing to pick from");
        &choices[self.below(choices.len())]
    }

    /// `len` random bytes.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next_u64().to_le_bytes()[0]).collect()
    }
}

/// The seed from `SEED` of the environment, else a new one. The caller prints it.
#[must_use]
pub fn seed_from_env() -> u64 {
    match std::env::var("SEED") {
        Ok(text) => text.parse().expect("SEED is a decimal number"),
        Err(_) => SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(1, |elapsed| u64::from(elapsed.subsec_nanos()) ^ elapsed.as_secs()),
    }
}

/// Calls `run` with one seed after the other: `by_default` seeds, or those in the environment
/// (`SEED`, `SEEDS`). `name` is the test's, for the line that repeats a failed run.
pub fn seeds(by_default: u64, name: &str, mut run: impl FnMut(u64)) {
    let number = |name, default| {
        std::env::var(name).map_or(default, |text| text.parse::<u64>().expect("a number"))
    };
    let (first, count) = (number("SEED", 1), number("SEEDS", by_default));
    for seed in first..first + count {
        let _repeat = Repeat { name, seed };
        run(seed);
    }
}

/// Prints how to repeat a failed run.
struct Repeat<'a> {
    name: &'a str,
    seed: u64,
}

impl Drop for Repeat<'_> {
    #[expect(clippy::print_stdout, reason = "a failed test's own output")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Self { name, seed } = self;
            let package = std::env::var("CARGO_PKG_NAME").unwrap_or_default();
            println!("again: SEED={seed} SEEDS=1 cargo test -p {package} --lib {name}");
        }
    }
}

/// The seeds of `list` for `test`: one per line, after the test's name. Lines that start with `#`
/// say why a seed is there. Known seeds are run every time, before the new one; but not with
/// `SEED`, which requests only one.
#[must_use]
pub fn known_seeds(list: &str, test: &str) -> Vec<u64> {
    if std::env::var_os("SEED").is_some() {
        return Vec::new();
    }
    let lines = list.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    let pairs = lines.map(|line| line.split_once(' ').expect("a test's name and a seed"));
    pairs
        .filter(|(name, _)| *name == test)
        .map(|(_, seed)| seed.trim().parse().expect("a seed is a decimal number"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_sequence() {
        let (mut a, mut b) = (Rng::new(7), Rng::new(7));
        let (first, second) = (a.bytes(100), b.bytes(100));
        assert_eq!(first, second);
        assert_ne!(a.next_u64(), Rng::new(8).next_u64());
    }

    #[test]
    fn below_is_less_than_its_bound() {
        let mut rng = Rng::new(1);
        assert!((0..1000).all(|_| rng.below(3) < 3));
        assert_eq!(rng.below(0), 0);
    }

    #[test]
    fn known_seeds_are_selected_by_test_name() {
        let list = "# why\na 7\nb 8\na 9\n";
        if std::env::var_os("SEED").is_none() {
            assert_eq!(known_seeds(list, "a"), [7, 9]);
            assert_eq!(known_seeds(list, "b"), [8]);
        }
    }
}
