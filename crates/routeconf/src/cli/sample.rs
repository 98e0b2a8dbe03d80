//! Keys similar to one key, and their servers in two configurations.

use std::collections::BTreeMap;

use crate::ast::{Config, Listener};
use crate::walk::{Question, Walker};

/// The number of keys tried.
pub(super) const SAMPLE: u32 = 100_000;
/// Old and new servers by name, with the numbers of keys.
pub(super) type Moves = BTreeMap<(String, String), u32>;

/// The server of a key, if only the key decides it.
pub(super) fn server_of(
    walker: &Walker<'_>,
    listener: &Listener,
    question: &Question<'_>,
) -> Option<String> {
    walker.server(listener, question).map(|server| walker.member_name(server))
}

/// Tries keys similar to the given one.
pub(super) fn sample(
    old: (&Config, &Listener),
    new: (&Config, &Listener),
    question: &Question<'_>,
) -> Moves {
    let (old_walker, new_walker) = (Walker::new(old.0), Walker::new(new.0));
    let head = hashing::key::before_hash_stop(question.key);
    let tail = question.key.get(head.len()..).unwrap_or_default();
    let mut moves = Moves::new();
    for number in 0..SAMPLE {
        let key = [head, number.to_string().as_bytes(), tail].concat();
        let question = Question { key: &key, ..*question };
        let name = |walker: &Walker<'_>, listener| {
            server_of(walker, listener, &question).unwrap_or_else(|| "(no server)".to_owned())
        };
        *moves.entry((name(&old_walker, old.1), name(&new_walker, new.1))).or_default() += 1;
    }
    moves
}
