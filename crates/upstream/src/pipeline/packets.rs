//! Questions as packets of the binary protocol. Each has a number, its opaque, which its answer
//! repeats: the count of questions before it.
//!
//! Gets of the same turn are quiet, except for the last (`GETKQ a, GETKQ b, GETK c`). A server
//! answers the hits and the last, so an answer to a later one means that the earlier ones are
//! misses. Everything else is answered in order.
//!
//! Requests without a packet are sent as a NOOP, and its answer states the reason, so they too are
//! answered exactly once.

use proto::binary::answer::{Parsed, Response, parse};
use proto::binary::opcode::GETKQ;

use super::{Broken, Pipeline, Place};
use crate::packet::{self, Scratch};
use crate::reply::{Outcome, Reply};
use crate::request::Request;
use crate::sink::{ReplyObserver, Ticket};
use narrow::to_u32;

/// The additional state of a pipeline of packets.
#[derive(Debug, Default)]
pub(super) struct Packets {
    /// The number of the oldest question.
    first: u32,
    /// The start of the last get in `out`, if more may follow it.
    open_at: usize,
    scratch: Scratch,
}

impl Pipeline {
    /// Sends a question; `joins` the gets before it.
    #[inline(never)]
    pub(super) fn ask_packet(
        &mut self,
        request: &Request<'_>,
        joins: bool,
        ticket: Ticket,
        pool: u16,
        now_us: u64,
    ) {
        let Some(packets) = &mut self.packets else { return };
        if joins && let Some(last) = self.questions.newest_mut() {
            (last.opcode, last.place) = (GETKQ, Place::Within);
            if let Some(opcode) = self.out.get_mut(packets.open_at + 1) {
                *opcode = GETKQ;
            }
        }
        // Each request takes memory, which does not suffice for 2^32.
        let count = to_u32(self.questions.len());
        packets.open_at = self.out.len();
        let opcode = packet::write(&mut self.out, request, packets.first.wrapping_add(count));
        let is_get = super::is_plain_get(request.op);
        self.open_keys = if joins { self.open_keys + 1 } else { u32::from(is_get) };
        self.open_op = is_get.then_some(request.op);
        if let Some(ends) = self.ends.as_mut().filter(|_| request.op.has_value()) {
            ends.push_back(self.out.len());
        }
        self.questions.push(request, ticket, pool, now_us, opcode);
    }

    /// [`Self::receive`] for packets.
    pub(super) fn receive_packets(
        &mut self,
        input: &[u8],
        value_bytes_max: u32,
        sink: &mut impl ReplyObserver,
    ) -> Result<(usize, usize), Broken> {
        let mut used = 0;
        loop {
            let rest = input.get(used..).unwrap_or_default();
            if rest.is_empty() {
                return Ok((used, 0));
            }
            match parse(rest, value_bytes_max) {
                Parsed::Bad => return Err(Broken::Garbage),
                Parsed::Incomplete { total } => return Ok((used, total)),
                Parsed::Response { response, consumed } => {
                    self.take_packet(&response, sink)?;
                    used += consumed;
                }
            }
        }
    }

    fn take_packet(
        &mut self,
        response: &Response<'_>,
        sink: &mut impl ReplyObserver,
    ) -> Result<(), Broken> {
        if self.questions.is_empty() {
            return Err(Broken::Unsolicited);
        }
        let mut scratch = self.packets.as_mut().map(|packets| std::mem::take(&mut packets.scratch));
        let scratch = scratch.get_or_insert_default();
        let (misses, question) = self.asked_by(response).ok_or(Broken::Mismatch)?;
        let reply = packet::read(&question, response, scratch).ok_or(Broken::Mismatch)?;
        for _ in 0..misses {
            self.finish_packet(&Reply::of(Outcome::NotFound), sink);
        }
        self.finish_packet(&reply, sink);
        if let Some(packets) = &mut self.packets {
            packets.scratch = std::mem::take(scratch);
        }
        Ok(())
    }

    /// The number of questions before the one that this answers, and that question. `None` if there
    /// is none, or if an earlier one must be answered first.
    fn asked_by(&self, response: &Response<'_>) -> Option<(usize, packet::Question<'_>)> {
        let first = self.packets.as_ref()?.first;
        let misses = usize::try_from(response.opaque.wrapping_sub(first)).ok()?;
        let mut questions = self.questions.with_keys();
        if !questions.by_ref().take(misses).all(|(before, ..)| before.opcode == GETKQ) {
            return None;
        }
        let (asked, key, words) = questions.next()?;
        debug_assert!(asked.ends_line() || asked.opcode == GETKQ, "only gets share a line");
        let question = packet::Question { op: asked.op, opcode: asked.opcode, key, words };
        (asked.opcode == response.opcode).then_some((misses, question))
    }

    fn finish_packet(&mut self, reply: &Reply<'_>, sink: &mut impl ReplyObserver) {
        if let Some(packets) = &mut self.packets {
            packets.first = packets.first.wrapping_add(1);
        }
        self.finish(reply, sink);
    }
}

#[cfg(test)]
mod tests;
