//! Draws the next request of a thread: get or set, its keys, and in an open loop its due time.

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Exp1};

use super::keys::{BadParameter, Keys, Pattern};
use super::spec::{Arrival, Ratio, Spec};
use super::wire::Op;
use crate::number::fits;

/// Draws requests according to a run's spec.
#[derive(Debug)]
pub(super) struct Draw {
    rng: SmallRng,
    keys: Keys,
    /// The keys of sets, if gets and sets have a sequence each.
    set_keys: Option<Keys>,
    key_count: u64,
    servers: u64,
    ratio: Ratio,
    /// The position of the next request in the ratio, if the ratio is sent in turn.
    turn: Option<u32>,
    multiget: usize,
    drawn: Vec<u64>,
}

impl Draw {
    /// The draw of thread `index`.
    ///
    /// # Errors
    ///
    /// When the key pattern's parameter is invalid for its distribution.
    pub(super) fn new(spec: &Spec, index: usize) -> Result<Self, BadParameter> {
        let first = spec.keys / spec.threads.max(1) as u64 * index as u64;
        let keys = Keys::new(spec.pattern, spec.keys, first)?;
        // In one sequence, a ratio in turn would never get a key that it sets.
        let has_two = spec.ratio_in_turn && spec.pattern == Pattern::Sequential;
        Ok(Self {
            rng: SmallRng::seed_from_u64(spec.seed ^ (index as u64 + 1).wrapping_mul(0x9e37_79b9)),
            set_keys: has_two.then(|| keys.clone()),
            keys,
            key_count: spec.keys,
            servers: spec.targets.len() as u64,
            ratio: spec.ratio,
            turn: spec.ratio_in_turn.then_some(0),
            multiget: spec.multiget,
            drawn: Vec::with_capacity(spec.multiget),
        })
    }

    #[inline]
    pub(super) fn op(&mut self) -> Op {
        if self.ratio.sets == 0 {
            return Op::Get;
        }
        let parts = self.ratio.sets + self.ratio.gets;
        let part = match &mut self.turn {
            Some(turn) => std::mem::replace(turn, (*turn + 1) % parts),
            None => self.rng.random_range(0..parts),
        };
        if part < self.ratio.sets { Op::Set } else { Op::Get }
    }

    /// Keys of one server: those with remainder `target` when divided by the number of servers.
    #[inline]
    pub(super) fn keys(&mut self, op: Op, target: usize) -> &[u64] {
        let first = self.key(op);
        let first = self.own(first, target as u64);
        self.keys_after(op, first)
    }

    /// A key of any server.
    #[inline]
    pub(super) fn key(&mut self, op: Op) -> u64 {
        let of_sets = self.set_keys.as_mut().filter(|_| op == Op::Set);
        of_sets.unwrap_or(&mut self.keys).next(&mut self.rng)
    }

    /// The server of a key.
    #[inline]
    pub(super) fn target(&self, key: u64) -> usize {
        fits(key % self.servers)
    }

    /// The keys of a request after its first one: the others belong to the same server.
    #[inline]
    pub(super) fn keys_after(&mut self, op: Op, first: u64) -> &[u64] {
        self.drawn.clear();
        self.drawn.push(first);
        let target = self.target(first) as u64;
        for _ in 1..if op == Op::Get { self.multiget } else { 1 } {
            let key = self.key(op);
            self.drawn.push(self.own(key, target));
        }
        &self.drawn
    }

    #[inline]
    fn own(&self, key: u64, target: u64) -> u64 {
        if self.servers == 1 {
            return key;
        }
        let own = key - key % self.servers + target;
        if own < self.key_count { own } else { target.min(self.key_count - 1) }
    }

    /// Time between two arrivals with a mean of `mean`.
    pub(super) fn pause(&mut self, mean: f64, arrival: Arrival) -> f64 {
        match arrival {
            Arrival::Fixed => mean,
            Arrival::Poisson => {
                let gap: f64 = Exp1.sample(&mut self.rng);
                gap * mean
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alternating_load_gets_the_sequence_that_it_sets() {
        let ratio = Ratio { sets: 1, gets: 1 };
        let pattern = Pattern::Sequential;
        let spec = Spec { ratio, pattern, ratio_in_turn: true, keys: 3, ..Spec::default() };
        let mut draw = Draw::new(&spec, 0).unwrap();
        let keys: Vec<u64> = (0..8)
            .map(|_| {
                let op = draw.op();
                draw.key(op)
            })
            .collect();
        assert_eq!(keys, [0, 0, 1, 1, 2, 2, 0, 0]);
    }

    #[test]
    fn an_alternating_ratio_is_exact() {
        let ratio = Ratio { sets: 1, gets: 10 };
        let spec = Spec { ratio, ratio_in_turn: true, ..Spec::default() };
        let mut draw = Draw::new(&spec, 0).unwrap();
        let sets = (0..55).filter(|_| draw.op() == Op::Set).count();
        assert_eq!(sets, 5);
        let mut draw = Draw::new(&spec, 0).unwrap();
        assert!(draw.op() == Op::Set && (0..10).all(|_| draw.op() == Op::Get));
    }
}
