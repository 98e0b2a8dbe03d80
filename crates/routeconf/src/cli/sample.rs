//! Keys like one key, and their servers by two configurations.

use std::collections::BTreeMap;

use crate::ast::{Config, Listener};
use crate::walk::{Question, Walker};

/// Keys that are tried for a difference.
pub(super) const SAMPLE: u32 = 100_000;
/// Keys and where they were and will be, by the names of servers.
pub(super) type Moves = BTreeMap<(String, String), u32>;

/// The server of a key, if the key alone decides it.
pub(super) fn server_of(
    walker: &Walker<'_>,
    listener: &Listener,
    question: &Question<'_>,
) -> Option<String> {
    walker.server(listener, question).map(|server| walker.member_name(server))
}

/// Tries keys like the one that was asked for.
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
