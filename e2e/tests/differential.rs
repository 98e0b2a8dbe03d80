//! The same generated streams to Debian's memcached and to the server under test: every reply must
//! be the same, but for the differences listed in docs/protocol.md.
//!
//! `SEED=n` repeats a run; `CASES=n` sets how many cases of each sort are sent.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test stops where it fails")]

use e2e::compare::{Wording, answers, first_difference};
use e2e::differences;
use e2e::generate::{self, Command, Keys, binary, meta, text};
use std::collections::BTreeSet;
use testkit::{Rng, Server, rng};

/// Sends cases made by `make` until one differs.
fn compare(wording: Wording, commands: usize, make: fn(&mut Rng, &Keys) -> Command) {
    let closing = if wording == Wording::Text { text::closing } else { binary::closing };
    let cases = std::env::var("CASES").map_or(150, |text| text.parse().unwrap());
    let seed = rng::seed_from_env();
    let mut theirs = Server::memcached(&[]);
    let mut ours = Server::under_test(&[]);
    // A cas unique of 1 in a case is meant to be one that no item has: use up the first ones.
    for server in [&theirs, &ours] {
        server.connect().expect(&b"set x 0 0 0\r\n\r\n".repeat(9), &b"STORED\r\n".repeat(9));
    }
    let mut met = BTreeSet::new();
    for case_number in 0..cases {
        let mut rng = Rng::new(seed.wrapping_add(case_number));
        let keys = generate::keys(&mut rng);
        let mut case: Vec<Command> = (0..commands).map(|_| make(&mut rng, &keys)).collect();
        case.push(closing(&mut rng));
        let mut cutting = rng.clone();
        let left = answers(&theirs, wording, &case, &mut rng);
        let right = answers(&ours, wording, &case, &mut cutting);
        if let Some(words) = first_difference(&case, &left, &right, &mut met) {
            panic!("SEED={} CASES=1 repeats this\n{words}", seed.wrapping_add(case_number));
        }
    }
    theirs.assert_alive("the cases");
    ours.assert_alive("the cases");
    eprintln!("{cases} cases of {commands} commands, seed {seed}; differences met: {met:?}");
}

#[test]
fn valid_text_commands() {
    compare(Wording::Text, 60, text::valid);
}

#[test]
fn text_commands_with_mistakes() {
    compare(Wording::Text, 40, |rng, keys| {
        if rng.one_in(2) { text::edge(rng, keys) } else { text::valid(rng, keys) }
    });
}

#[test]
fn valid_meta_commands_among_text_commands() {
    compare(Wording::Text, 60, |rng, keys| {
        if rng.one_in(4) { text::valid(rng, keys) } else { meta::valid(rng, keys) }
    });
}

#[test]
fn meta_commands_with_mistakes() {
    compare(Wording::Text, 40, |rng, keys| {
        if rng.one_in(2) { meta::edge(rng, keys) } else { meta::valid(rng, keys) }
    });
}

#[test]
fn valid_binary_requests() {
    compare(Wording::Binary, 60, binary::valid);
}

/// A difference that people cannot read about is a bug.
#[test]
fn every_intended_difference_is_documented() {
    let documented = differences::documented();
    let missing: Vec<_> = differences::ALL
        .iter()
        .map(|rule| rule.id)
        .filter(|&id| !documented.contains(id))
        .collect();
    assert!(missing.is_empty(), "not in docs/protocol.md: {missing:?}");
}
