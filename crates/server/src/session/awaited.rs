//! The bytes of a value that arrives in parts.
//!
//! An item takes memory in chunks, up to 16 KiB at once. The first 16 KiB are collected separately,
//! so that a client which announces much and sends little holds only the bytes that it has sent,
//! and no chunks of the store. A value that arrives with its request needs none of this.

use store::{Draft, DraftError};

use super::collected::Collected;
use super::large_values::SMALL_BYTES;

/// The received part of a value.
#[derive(Debug)]
pub(super) enum Body {
    /// To append to another value: judged when it is whole.
    Appended(Collected),
    /// A value that needs one chunk, which it gets when it is whole.
    Small(Collected),
    /// A longer one.
    Large(LargeBody),
}

/// A value that is longer than a chunk.
#[derive(Debug)]
pub(super) struct LargeBody {
    draft: Draft,
    /// The first bytes, until they suffice for a chunk.
    first: Option<Collected>,
}

impl LargeBody {
    pub(super) fn new(draft: Draft, first: Collected) -> Self {
        Self { draft, first: Some(first) }
    }

    /// The draft, when the value is whole.
    pub(super) fn into_draft(self) -> Draft {
        self.draft
    }

    fn push(&mut self, part: &[u8]) -> Result<(), DraftError> {
        if let Some(first) = &mut self.first {
            let come = first.bytes().len() + part.len();
            if come < SMALL_BYTES {
                // It is longer than that, so this is not the end.
                return first.push(part);
            }
            self.draft.push(first.bytes())?;
            self.first = None;
        }
        self.draft.push(part)
    }
}

impl Body {
    /// Bytes of memory that hold its `received` bytes. Chunks of a long value are taken whole.
    pub(super) fn held_bytes(&self, received: usize) -> usize {
        match self {
            Self::Appended(_) | Self::Small(_) => received,
            Self::Large(_) => received.next_multiple_of(SMALL_BYTES),
        }
    }

    pub(super) fn push(&mut self, part: &[u8]) -> Result<(), DraftError> {
        match self {
            Self::Appended(collected) | Self::Small(collected) => collected.push(part),
            Self::Large(body) => body.push(part),
        }
    }
}
