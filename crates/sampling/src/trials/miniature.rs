//! A miniature cache: see [`super`].
//!
//! Ages are bytes: of all items that were stored since, as in the server's store.

use super::Candidate;
use crate::index::Index;
use crate::log::{Access, Kind};
use crate::trials::weight_of;
use narrow::{to_u8, to_u16};
use std::num::NonZeroU64;

/// One group of sizes for each power of two; the last has all larger ones.
const SIZES: usize = 16;

/// No node.
const NONE: u16 = u16::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Newcomer,
    Proven,
    /// Only the key is known.
    Ghost,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    hash: u64,
    /// The time when a newcomer was stored, or a proven item last used.
    since: u64,
    /// A newcomer's last read, if it was read. Not 0: something was stored before.
    read_at: Option<NonZeroU64>,
    bytes: u32,
    deadline: u32,
    /// The low half of the number of the last flush that covered it before it was stored.
    flush: u16,
    newer: u16,
    older: u16,
    part: Part,
    size: u8,
}

impl Node {
    /// `true` if it was stored before this flush, of the last 32,768.
    fn is_before(&self, flush: u32) -> bool {
        low_u16(flush).wrapping_sub(self.flush).cast_signed() > 0
    }
}

fn low_u16(flush: u32) -> u16 {
    let [low, high, ..] = flush.to_le_bytes();
    u16::from_le_bytes([low, high])
}

/// A queue of nodes.
#[derive(Clone, Copy, Debug)]
struct Queue {
    newest: u16,
    oldest: u16,
}

#[derive(Debug)]
pub(super) struct Miniature {
    candidate: Candidate,
    nodes: Vec<Node>,
    nodes_max: usize,
    free: Vec<u16>,
    index: Index,
    /// By size, newcomers and proven items. Without weights all have one size.
    queues: [[Queue; 2]; SIZES],
    ghosts: Queue,
    /// Items and ghosts.
    count: usize,
    ghost_count: usize,
    bytes: u64,
    bytes_max: u64,
    /// Bytes of all items that were stored.
    clock: u64,
    is_crowded: bool,
}

impl Miniature {
    pub(super) fn new(candidate: Candidate, nodes_max: usize) -> Self {
        let empty = Queue { newest: NONE, oldest: NONE };
        Self {
            candidate,
            nodes: Vec::with_capacity(nodes_max),
            nodes_max,
            free: Vec::with_capacity(nodes_max),
            index: Index::new(nodes_max),
            queues: [[empty; 2]; SIZES],
            ghosts: empty,
            count: 0,
            ghost_count: 0,
            bytes: 0,
            bytes_max: 0,
            clock: 0,
            is_crowded: false,
        }
    }

    pub(super) fn bytes_max(nodes_max: usize) -> usize {
        let of_nodes = nodes_max * (size_of::<Node>() + size_of::<u16>());
        of_nodes + Index::bytes(nodes_max) + size_of::<Self>()
    }

    /// Items in it.
    #[expect(clippy::cast_precision_loss, reason = "a small number")]
    pub(super) fn items(&self) -> f64 {
        (self.count - self.ghost_count) as f64
    }

    /// `true` if there is no room for the ghosts: the sample is too large.
    pub(super) fn is_crowded(&self) -> bool {
        self.is_crowded
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a positive number, cut at the greatest"
    )]
    pub(super) fn set_bytes(&mut self, bytes: f64) {
        self.bytes_max = bytes as u64;
        self.evict();
    }

    /// Forgets keys with other hashes.
    pub(super) fn keep_below(&mut self, threshold: u64) {
        for at in 0..self.nodes.len() {
            let hash = self.nodes[at].hash;
            if hash >= threshold && self.find(hash) == Some(to_u16(at)) {
                self.forget(to_u16(at));
            }
        }
        self.is_crowded = false;
    }

    /// A flush of everything.
    pub(super) fn flushed(&mut self, flush: u32) {
        for at in 0..self.nodes.len() {
            let node = self.nodes[at];
            if node.is_before(flush) && self.find(node.hash) == Some(to_u16(at)) {
                self.remove(node.hash);
            }
        }
    }

    /// A read; `true` if it hits. A miss is filled, if its size is known.
    pub(super) fn read(&mut self, access: &Access, now_secs: u32) -> bool {
        if let Some(at) = self.find(access.hash) {
            let node = self.nodes[usize::from(at)];
            let is_dead =
                (node.deadline != 0 && node.deadline <= now_secs) || node.is_before(access.flush);
            if node.part != Part::Ghost && !is_dead {
                self.use_node(at);
                return true;
            }
            if is_dead && node.part != Part::Ghost {
                self.remove(access.hash);
            }
        }
        if access.kind == Kind::Hit {
            self.store(access);
        }
        false
    }

    fn find(&self, hash: u64) -> Option<u16> {
        self.index.find(hash, |at| self.nodes[at].hash == hash).map(to_u16)
    }

    fn use_node(&mut self, at: u16) {
        let node = &mut self.nodes[usize::from(at)];
        match node.part {
            Part::Newcomer => node.read_at = NonZeroU64::new(self.clock),
            Part::Proven => {
                node.since = self.clock;
                self.unlink(at);
                self.link(at);
            }
            Part::Ghost => {}
        }
    }

    /// A store of an item.
    pub(super) fn store(&mut self, access: &Access) {
        if access.bytes == 0 || u64::from(access.bytes) > self.bytes_max {
            return;
        }
        let known = self.find(access.hash);
        // A key that exists, or left a ghost, is no newcomer.
        let part = if known.is_some() { Part::Proven } else { Part::Newcomer };
        if let Some(at) = known {
            self.forget(at);
        }
        self.clock += u64::from(access.bytes);
        // As many ghosts as items must fit.
        self.is_crowded |= (self.count - self.ghost_count) * 2 > self.nodes_max;
        let Some(at) = self.free_node() else { return };
        self.nodes[usize::from(at)] = Node {
            hash: access.hash,
            since: self.clock,
            read_at: None,
            bytes: access.bytes,
            deadline: access.deadline,
            flush: low_u16(access.flush),
            newer: NONE,
            older: NONE,
            part,
            size: self.size_of(access.bytes),
        };
        self.index.insert(access.hash, usize::from(at));
        self.count += 1;
        self.bytes += u64::from(access.bytes);
        self.link(at);
        self.evict();
    }

    /// A delete, or the end of an item's life. An item that was read is no newcomer when it is
    /// stored again.
    pub(super) fn remove(&mut self, hash: u64) {
        let Some(at) = self.find(hash) else { return };
        let node = self.nodes[usize::from(at)];
        match node.part {
            Part::Ghost => {}
            Part::Newcomer if node.read_at.is_none() => self.forget(at),
            Part::Newcomer | Part::Proven => self.make_ghost(at),
        }
    }

    fn free_node(&mut self) -> Option<u16> {
        if let Some(at) = self.free.pop() {
            return Some(at);
        }
        if self.nodes.len() < self.nodes_max {
            let at = to_u16(self.nodes.len());
            let unused = Node {
                hash: 0,
                since: 0,
                read_at: None,
                bytes: 0,
                deadline: 0,
                flush: 0,
                newer: NONE,
                older: NONE,
                part: Part::Ghost,
                size: 0,
            };
            self.nodes.push(unused);
            return Some(at);
        }
        if self.ghosts.oldest == NONE {
            return None;
        }
        self.forget(self.ghosts.oldest);
        self.free.pop()
    }

    fn size_of(&self, bytes: u32) -> u8 {
        if self.candidate.weighs_size { to_u8((bytes.ilog2() as usize).min(SIZES - 1)) } else { 0 }
    }

    fn queue(&mut self, part: Part, size: u8) -> &mut Queue {
        match part {
            Part::Newcomer => &mut self.queues[usize::from(size)][0],
            Part::Proven => &mut self.queues[usize::from(size)][1],
            Part::Ghost => &mut self.ghosts,
        }
    }

    /// Puts a node at the newest end of its queue.
    fn link(&mut self, at: u16) {
        let Node { part, size, .. } = self.nodes[usize::from(at)];
        let queue = self.queue(part, size);
        let older = std::mem::replace(&mut queue.newest, at);
        if older == NONE {
            queue.oldest = at;
        } else {
            self.nodes[usize::from(older)].newer = at;
        }
        let node = &mut self.nodes[usize::from(at)];
        (node.older, node.newer) = (older, NONE);
        self.ghost_count += usize::from(part == Part::Ghost);
    }

    fn unlink(&mut self, at: u16) {
        let Node { part, size, older, newer, .. } = self.nodes[usize::from(at)];
        if newer == NONE {
            self.queue(part, size).newest = older;
        } else {
            self.nodes[usize::from(newer)].older = older;
        }
        if older == NONE {
            self.queue(part, size).oldest = newer;
        } else {
            self.nodes[usize::from(older)].newer = newer;
        }
        self.ghost_count -= usize::from(part == Part::Ghost);
    }

    fn forget(&mut self, at: u16) {
        let node = self.nodes[usize::from(at)];
        if node.part != Part::Ghost {
            self.bytes -= u64::from(node.bytes);
        }
        self.unlink(at);
        self.index.remove(node.hash, usize::from(at));
        self.count -= 1;
        self.free.push(at);
    }

    fn make_ghost(&mut self, at: u16) {
        self.unlink(at);
        let node = &mut self.nodes[usize::from(at)];
        node.part = Part::Ghost;
        self.bytes -= u64::from(node.bytes);
        self.link(at);
        if self.ghost_count * 2 > self.count {
            self.forget(self.ghosts.oldest);
        }
    }

    fn evict(&mut self) {
        while self.bytes > self.bytes_max {
            let Some(at) = self.victim() else { return };
            let node = self.nodes[usize::from(at)];
            match (node.part, node.read_at) {
                (Part::Newcomer, Some(read_at)) => {
                    self.unlink(at);
                    let node = &mut self.nodes[usize::from(at)];
                    (node.part, node.since, node.read_at) = (Part::Proven, read_at.get(), None);
                    self.link(at);
                }
                (Part::Newcomer, None) => self.make_ghost(at),
                _ => self.forget(at),
            }
        }
    }

    /// The oldest of each queue's oldest items, as the candidate counts.
    fn victim(&self) -> Option<u16> {
        let sizes = if self.candidate.weighs_size { SIZES } else { 1 };
        let mut oldest = None::<(f64, u16)>;
        for (size, queues) in self.queues[..sizes].iter().enumerate() {
            let weight = weight_of(f64::from(1_u32 << size));
            let factors = [f64::from(self.candidate.newcomer_factor), 1.0];
            for (queue, factor) in queues.iter().zip(factors) {
                if queue.oldest == NONE {
                    continue;
                }
                #[expect(clippy::cast_precision_loss, reason = "53 bits are enough")]
                let age = (self.clock - self.nodes[usize::from(queue.oldest)].since) as f64;
                let counted = age * factor * weight;
                if oldest.is_none_or(|(most, _)| counted >= most) {
                    oldest = Some((counted, queue.oldest));
                }
            }
        }
        oldest.map(|(_, at)| at)
    }
}
