//! The same generated streams to Debian's memcached and to the server under test: every reply must
//! be the same, except for the differences listed in docs/protocol.md.
//!
//! `SEED=n` repeats a run; `CASES=n` sets the number of cases of each sort, or `COMMANDS=n` the
//! number of commands. `MEMCACHED_BIN` names another memcached, such as 1.6.45.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test stops where it fails")]

use e2e::compare::{Wording, answers, first_difference};
use e2e::differences::{self, Release};
use e2e::generate::{self, Command, Keys, binary, meta, refused, text};
use std::collections::{BTreeMap, BTreeSet};
use testkit::{Rng, Server, rng};

/// The kind of streams that a test sends.
#[derive(Clone, Copy)]
struct Sort {
    wording: Wording,
    /// The number of commands in a case.
    commands: usize,
    make: fn(&mut Rng, &Keys) -> Command,
}

/// memcached and the server under test.
struct Pair {
    theirs: Server,
    ours: Server,
    release: Release,
}

impl Pair {
    fn start() -> Self {
        let (theirs, ours) = (Server::memcached(&[]), Server::under_test(&[]));
        // A cas unique of 1 in a case must match no item: use up the first ones.
        for server in [&theirs, &ours] {
            let mut wire = server.connect();
            wire.send(&b"ms x 0 c\r\n\r\n".repeat(9));
            assert!((0..9).all(|_| wire.line().starts_with("HD c")), "uniques are used up");
        }
        let mut wire = theirs.connect();
        wire.send(b"version\r\n");
        let release = Release::of(&wire.line());
        Self { theirs, ours, release }
    }

    /// Sends both servers the case of this `seed`; returns a description of the first difference.
    fn differ(&self, sort: Sort, seed: u64, met: &mut BTreeSet<&'static str>) -> Option<String> {
        let Sort { wording, commands, make } = sort;
        let closing = if wording == Wording::Text { text::closing } else { binary::closing };
        let mut rng = Rng::new(seed);
        let keys = generate::keys(&mut rng);
        let mut case: Vec<Command> = (0..commands).map(|_| make(&mut rng, &keys)).collect();
        case.push(closing(&mut rng));
        let mut cutting = rng.clone();
        let left = answers(&self.theirs, wording, &case, &mut rng);
        let right = answers(&self.ours, wording, &case, &mut cutting);
        first_difference(self.release, &case, &left, &right, met)
    }
}

/// The number of times that a differing case is sent again, to new servers each time. The two
/// servers' seconds do not start together, so one may count a second more; a real difference
/// recurs.
const REPEATS: usize = 4;

/// Maximum number of cases of one test that may differ once and not again.
const PASSING_MAX: usize = 1;

/// Sends the known cases of the test `name`, then as many new ones, until one differs.
fn compare(name: &str, sort: Sort) {
    let number = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let commands = sort.commands as u64;
    let in_all = number("COMMANDS").map(|all| all.div_ceil(commands));
    let cases = number("CASES").or(in_all).unwrap_or(150);
    let seed = rng::seed_from_env();
    let mut pair = Pair::start();
    let (mut met, mut passing) = (BTreeSet::new(), 0);
    let known = rng::known_seeds(include_str!("../seeds.txt"), name).into_iter();
    for seed in known.chain((0..cases).map(|number| seed.wrapping_add(number))) {
        let Some(words) = pair.differ(sort, seed, &mut met) else { continue };
        let comes_again =
            (0..REPEATS).any(|_| Pair::start().differ(sort, seed, &mut met).is_some());
        passing += usize::from(!comes_again);
        eprintln!(
            "seed {seed} differed{}\n{words}",
            if comes_again { "" } else { ", but not again" }
        );
        assert!(
            !comes_again && passing <= PASSING_MAX,
            "SEED={seed} CASES=1 repeats this\n{words}"
        );
    }
    pair.theirs.assert_alive("the cases");
    pair.ours.assert_alive("the cases");
    eprintln!("{cases} cases of {commands} commands, seed {seed}; differences met: {met:?}");
}

#[test]
fn valid_text_commands() {
    let sort = Sort { wording: Wording::Text, commands: 60, make: text::valid };
    compare("valid_text_commands", sort);
}

#[test]
fn invalid_text_commands() {
    let sort = Sort {
        wording: Wording::Text,
        commands: 40,
        make: |rng, keys| {
            if rng.one_in(2) { text::edge(rng, keys) } else { text::valid(rng, keys) }
        },
    };
    compare("invalid_text_commands", sort);
}

#[test]
fn valid_meta_commands_among_text_commands() {
    let sort = Sort {
        wording: Wording::Text,
        commands: 60,
        make: |rng, keys| {
            if rng.one_in(4) { text::valid(rng, keys) } else { meta::valid(rng, keys) }
        },
    };
    compare("valid_meta_commands_among_text_commands", sort);
}

#[test]
fn invalid_meta_commands() {
    let sort = Sort {
        wording: Wording::Text,
        commands: 40,
        make: |rng, keys| {
            if rng.one_in(2) { meta::edge(rng, keys) } else { meta::valid(rng, keys) }
        },
    };
    compare("invalid_meta_commands", sort);
}

#[test]
fn valid_binary_requests() {
    let sort = Sort { wording: Wording::Binary, commands: 60, make: binary::valid };
    compare("valid_binary_requests", sort);
}

#[test]
fn refused_stores_among_text_commands() {
    let sort = Sort {
        wording: Wording::Text,
        commands: 40,
        make: |rng, keys| {
            if rng.one_in(2) { refused::text(rng, keys) } else { text::valid(rng, keys) }
        },
    };
    compare("refused_stores_among_text_commands", sort);
}

#[test]
fn refused_stores_among_meta_commands() {
    let sort = Sort {
        wording: Wording::Text,
        commands: 40,
        make: |rng, keys| {
            if rng.one_in(2) { refused::meta(rng, keys) } else { meta::valid(rng, keys) }
        },
    };
    compare("refused_stores_among_meta_commands", sort);
}

#[test]
fn invalid_binary_requests() {
    let sort = Sort {
        wording: Wording::Binary,
        commands: 40,
        make: |rng, keys| {
            if rng.one_in(2) { binary::edge(rng, keys) } else { binary::valid(rng, keys) }
        },
    };
    compare("invalid_binary_requests", sort);
}

/// An undocumented difference is a bug.
#[test]
fn every_intended_difference_is_documented() {
    let documented = differences::documented();
    let rules: BTreeMap<_, _> =
        differences::ALL.iter().map(|rule| (rule.id.to_owned(), rule.in_current)).collect();
    assert_eq!(documented, rules, "docs/protocol.md on the left");
}
