//! The unanswered questions of a connection, oldest first, and their keys.

use std::collections::VecDeque;

use narrow::{to_u8, to_u16};
use proto::Command;

use crate::request::Request;
use crate::sink::Ticket;

/// Maximum bytes of answered questions' keys before they are dropped.
const KEYS_SLACK: usize = 4096;

/// Maximum number of questions that [`Questions::may_change`] searches for a key.
const SEARCHED_MAX: usize = 64;

/// A question; its key is in [`Questions`].
#[derive(Debug)]
pub(super) struct Question {
    pub ticket: Ticket,
    pub at_us: u64,
    pub op: Command,
    /// The number of the question's pool.
    pub pool: u16,
    pub place: Place,
    /// The command's number in packets.
    pub opcode: u8,
    key_len: u8,
    /// Bytes of meta words after the key.
    words_len: u16,
}

/// The place of a question on its line.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Place {
    /// A get that others follow on the line.
    Within,
    /// Its line ends with it.
    Last,
    /// It is traced, and the only one on its line. Its span is the oldest outstanding one.
    Traced,
}

impl Question {
    pub(super) fn ends_line(&self) -> bool {
        self.place != Place::Within
    }
}

/// Questions without an answer.
#[derive(Debug, Default)]
pub(crate) struct Questions {
    queue: VecDeque<Question>,
    /// The number of questions that are not plain gets.
    others: u32,
    /// Their keys with their meta words, consecutive from `keys_start`.
    keys: Vec<u8>,
    keys_start: usize,
}

impl Questions {
    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(super) fn oldest(&self) -> Option<&Question> {
        self.queue.front()
    }

    pub(super) fn newest(&self) -> Option<&Question> {
        self.queue.back()
    }

    pub(super) fn newest_mut(&mut self) -> Option<&mut Question> {
        self.queue.back_mut()
    }

    /// Adds a question; its line ends with it.
    #[inline(always)]
    pub(super) fn push(
        &mut self,
        request: &Request<'_>,
        ticket: Ticket,
        pool: u16,
        at_us: u64,
        opcode: u8,
    ) {
        short::append(&mut self.keys, request.key);
        // Keys are at most 250 bytes (`dialect`), words a line.
        let key_len = to_u8(request.key.len());
        let mut words_len = 0;
        if request.op.is_meta() {
            self.keys.extend_from_slice(request.words);
            words_len = to_u16(request.words.len());
        }
        let (op, place) = (request.op, Place::Last);
        let question = Question { ticket, at_us, op, pool, place, opcode, key_len, words_len };
        self.queue.push_back(question);
        self.others += u32::from(!is_plain_get(op));
    }

    /// Removes the oldest.
    #[inline]
    pub(super) fn pop(&mut self) {
        let Some(oldest) = self.queue.pop_front() else { return };
        self.others -= u32::from(!is_plain_get(oldest.op));
        self.keys_start += usize::from(oldest.key_len) + usize::from(oldest.words_len);
        if self.keys_start == self.keys.len() {
            self.keys.clear();
            self.keys_start = 0;
        } else if self.keys_start > KEYS_SLACK && self.keys_start > self.keys.len() / 2 {
            self.keys.drain(..self.keys_start);
            self.keys_start = 0;
        }
    }

    /// Moves the oldest, which has no meta words, to `others`.
    pub(super) fn move_oldest(&mut self, others: &mut Self) {
        if let Some(&Question { ticket, at_us, op, pool, opcode, .. }) = self.oldest() {
            let request = Request::new(op, self.oldest_key());
            others.push(&request, ticket, pool, at_us, opcode);
            self.pop();
        }
    }

    /// The questions with their keys and meta words, oldest first.
    #[inline]
    pub(super) fn with_keys(&self) -> impl Iterator<Item = (&Question, &[u8], &[u8])> {
        let mut start = self.keys_start;
        self.queue.iter().map(move |question| {
            let key_end = start + usize::from(question.key_len);
            let end = key_end + usize::from(question.words_len);
            let key = self.keys.get(start..key_end).unwrap_or_default();
            start = end;
            (question, key, self.keys.get(key_end..end).unwrap_or_default())
        })
    }

    pub(super) fn oldest_key(&self) -> &[u8] {
        self.with_keys().next().map_or(&[], |(_, key, _)| key)
    }

    /// The number of questions of the oldest line before the first with this key; `None` if it has
    /// none.
    #[inline]
    pub(super) fn before(&self, key: &[u8]) -> Option<usize> {
        for (index, (question, its_key, _)) in self.with_keys().enumerate() {
            if short::equal(its_key, key) {
                return Some(index);
            }
            if question.ends_line() {
                return None;
            }
        }
        None
    }

    /// True if one of them may change the item of this key, or if there are many.
    pub(crate) fn may_change(&self, key: &[u8]) -> bool {
        if self.others == 0 || self.len() > SEARCHED_MAX {
            return self.others > 0;
        }
        self.with_keys().any(|(question, its_key, _)| {
            let is_its = question.op == Command::FlushAll || short::equal(its_key, key);
            is_its && !is_plain_get(question.op)
        })
    }
}

/// Returns true for a get that shares lines and changes nothing.
#[inline]
pub(crate) const fn is_plain_get(op: Command) -> bool {
    matches!(op, Command::Get | Command::Gets)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Thousands of questions, answered in pieces: the keys' buffer stays as long as the
    /// outstanding ones.
    #[test]
    fn keys_of_answered_requests_are_dropped() {
        let mut questions = Questions::default();
        for ticket in 0..10_000 {
            questions.push(&Request::new(Command::Delete, &[b'k'; 250]), ticket, 0, 1, 0);
            if ticket >= 10 {
                questions.pop();
            }
        }
        let kept = questions.keys.len();
        assert!(kept < 2 * (KEYS_SLACK + 11 * 250) + 250, "{kept}");
        assert_eq!((questions.len(), questions.oldest_key()), (10, &[b'k'; 250][..]));
    }
}
