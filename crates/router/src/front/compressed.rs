//! Requests in blocks of zstd, between regions: `zstd LENGTH`, and a data block with any number of
//! whole text requests. Their answers are as if they were sent without a block.
//!
//! `mn zstd` asks whether blocks are accepted. Servers that support them answer `MN zstd`, all
//! others `MN`.

use net::{Flow, Input};
use proto::number::parse_u32;
use proto::reply::CRLF;
use proto::text::Words;
use zstd::bulk::Decompressor;

use super::store::Block;
use super::{Front, Session, Step};

/// The maximum length of a block in bytes, compressed and uncompressed.
const BLOCK_BYTES_MAX: usize = 1 << 20;

/// The command, and the word after `mn`.
const WORD: &[u8] = b"zstd";

/// The answer to `mn zstd`.
pub(super) const TAKEN: &[u8] = b"MN zstd\r\n";

const TOO_LONG: &[u8] =
    b"CLIENT_ERROR a block of zstd holds 1048576 bytes at the most, compressed and not\r\n";
const DAMAGED: &[u8] = b"CLIENT_ERROR the block is not zstd\r\n";
const CUT: &[u8] = b"CLIENT_ERROR a block of zstd holds whole requests, and no other block\r\n";

/// The requests of a block that are not served yet.
#[derive(Debug)]
pub(super) struct Unpacked {
    bytes: Vec<u8>,
    consumed: usize,
}

/// Returns true if `mn` with these words asks about blocks.
pub(super) fn is_asked(mut words: Words<'_>) -> bool {
    words.next() == Some(WORD)
}

/// The length of the block announced by a line of this command.
pub(super) fn length(line: &[u8]) -> Option<u32> {
    parse_u32(line.strip_prefix(WORD)?.strip_prefix(b" ")?.trim_ascii_end())
}

impl Front {
    /// Takes a block of `len` bytes behind a line of `consumed`.
    pub(super) fn unpack(
        &mut self,
        session: &mut Session,
        input: &mut Input<'_>,
        consumed: usize,
        len: u32,
    ) -> Step {
        if len as usize > BLOCK_BYTES_MAX {
            return self.give_up(session, TOO_LONG);
        }
        let block = match self.block(session, input, consumed, len, CRLF) {
            Block::Whole(block) => block,
            Block::Refused(why) => return self.give_up(session, why.line()),
            Block::Wait => return Step::Stop(Flow::NeedInput),
        };
        match unpacked(block) {
            Ok(bytes) if bytes.is_empty() => Step::Next,
            Ok(bytes) => {
                self.queues.get(session.queue).receiving_bytes = bytes.capacity();
                session.unpacked = Some(Box::new(Unpacked { bytes, consumed: 0 }));
                Step::Next
            }
            Err(why) => self.give_up(session, why),
        }
    }

    /// Takes a step in the client's block.
    #[cold]
    pub(super) fn step_inside(
        &mut self,
        session: &mut Session,
        mut unpacked: Box<Unpacked>,
    ) -> Step {
        let mut inside = Input::new(unpacked.bytes.get(unpacked.consumed..).unwrap_or_default());
        let step = self.step(session, &mut inside);
        let left = inside.bytes().len();
        unpacked.consumed = unpacked.bytes.len() - left;
        let is_cut = match step {
            Step::Stop(Flow::NeedInput) => true,
            _ => left == 0 && (session.is_sending() || session.line.is_some()),
        };
        if session.unpacked.is_some() || is_cut {
            return self.give_up(session, CUT);
        }
        if left > 0 {
            session.unpacked = Some(unpacked);
        } else {
            self.queues.get(session.queue).receiving_bytes = 0;
        }
        step
    }

    /// Gives up, because the start of the next request is unknown.
    fn give_up(&mut self, session: &mut Session, why: &[u8]) -> Step {
        let queue = self.queues.get(session.queue);
        queue.receiving_bytes = 0;
        queue.push_ready(why);
        (session.unpacked, session.receiving, session.line) = (None, None, None);
        session.swallow = 0;
        session.closes = true;
        Step::Next
    }
}

/// The requests of a block. It allocates no more than the maximum of one.
fn unpacked(block: &[u8]) -> Result<Vec<u8>, &'static [u8]> {
    let announced = zstd::zstd_safe::get_frame_content_size(block);
    let len = match announced {
        Ok(Some(len)) => usize::try_from(len).unwrap_or(usize::MAX),
        _ => return Err(DAMAGED),
    };
    if len > BLOCK_BYTES_MAX {
        return Err(TOO_LONG);
    }
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(len).map_err(|_| proto::reply::OUT_OF_MEMORY)?;
    let is_whole = Decompressor::new()
        .and_then(|mut zstd| zstd.decompress_to_buffer(block, &mut bytes))
        .is_ok_and(|written| written == len);
    if is_whole { Ok(bytes) } else { Err(DAMAGED) }
}
