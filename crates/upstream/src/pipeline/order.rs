//! The order between a connection's questions and what goes another way: a get by UDP must not
//! overtake a store of its key.

use proto::Command;

use super::Pipeline;

/// Questions without an answer that are searched for a key at the most.
const SEARCHED_MAX: usize = 64;

/// A question that may change the item of this key has no answer yet. Of many questions, that is
/// taken to be so.
pub(crate) fn may_change(pipeline: &Pipeline, key: &[u8]) -> bool {
    if pipeline.others == 0 || pipeline.asked.len() > SEARCHED_MAX {
        return pipeline.others > 0;
    }
    let mut start = pipeline.keys_start;
    pipeline.asked.iter().any(|asked| {
        let asked_key = pipeline.keys.get(start..asked.key_end(start)).unwrap_or_default();
        start = asked.end(start);
        let is_its = asked.op == Command::FlushAll || short::equal(asked_key, key);
        is_its && !is_plain_get(asked.op)
    })
}

/// A get that shares lines, and changes nothing.
#[inline]
pub(crate) const fn is_plain_get(op: Command) -> bool {
    matches!(op, Command::Get | Command::Gets)
}
