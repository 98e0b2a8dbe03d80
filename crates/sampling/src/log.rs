//! The samples of one worker since its log was last taken.
//!
//! # When there is no room for accesses
//!
//! A log of many different keys shows that the sample is larger than necessary: [`Log::thin`]
//! halves it, and the server's threshold with it, so that a whole sample of fewer keys remains. A
//! log of few keys shows that these are requested very often: then the rest is dropped until the
//! log is taken. That loses only repetitions.
//!
//! A key that is read again while its last access is among the newest few is counted there:
//! otherwise a hot key in the sample would fill the log.
//!
//! # When there is no room for samples by time
//!
//! A sampled batch may have more requests than there is room for, and its last requests differ from
//! its first: they have other commands and waited longer. So the list is halved when it is full.
//! One of each two neighbours, chosen at random, stays with twice its weight. From then on the log
//! accepts each sample with half the probability and twice the weight, until it is taken.
//!
//! After `n` halvings every sample of this log is in the list with the probability `1/2^n` and with
//! `2^n` times its weight, wherever it was in its batch. Therefore every sum of weights, by command
//! or by key, has the expected value that it has in an unlimited log (Horvitz and Thompson's
//! estimator). The choice is random because load has patterns: every other request of a pipeline
//! may be a store. One of each two neighbours stays because this varies less than a choice for each
//! sample.

use crate::latency::Command;
use crate::prefixes::PREFIX_BYTES_MAX;
use narrow::{saturating_u32, to_u16, to_u32};

/// An operation on a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Read and found.
    Hit,
    /// Read and not found.
    Miss,
    /// Deleted.
    Removed,
    /// A value was stored.
    Stored,
    /// It got a deadline.
    Touched,
}

/// One operation on a key of the sample.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// Of the key.
    pub hash: u64,
    /// Milliseconds since the server's start, by which the logs of workers are put in order.
    pub tick_ms: u32,
    /// Header, key and value of the item; 0 if there is none.
    pub bytes: u32,
    /// The item's deadline, in the server's seconds; 0 is never.
    pub deadline: u32,
    /// The number of the last flush that covers the key; 0 if there was none.
    pub flush: u32,
    /// The operation.
    pub kind: Kind,
    /// Further reads with the same result soon after.
    pub repeats: u16,
    name_at: u32,
    name_len: u8,
}

/// The reason why a log takes no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// Few keys, very often: only repetitions are left out.
    Repetitions,
    /// The sample was halved: this is the new threshold.
    Thinned(u64),
}

/// A key of an operation that was sampled by time.
#[derive(Clone, Copy, Debug)]
struct Request {
    hash: u64,
    weight: u32,
    name_at: u32,
    name_len: u8,
}

/// A request's time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing {
    pub(crate) command: Command,
    pub(crate) nanos: u32,
    pub(crate) weight: u32,
}

/// A worker's samples.
#[derive(Debug)]
pub struct Log {
    capacity: usize,
    accesses: Vec<Access>,
    /// Prefixes of the accesses.
    prefixes: Vec<u8>,
    requests: Vec<Request>,
    /// Keys of the requests, in the same order.
    keys: Vec<u8>,
    request_halvings: u32,
    timings: Vec<Timing>,
    timing_halvings: u32,
    random: fastrand::Rng,
    /// The places in `accesses` of keys that may have been read recently.
    recent: [u16; RECENT],
    dropped: u64,
    /// Accesses were left out.
    is_partial: bool,
}

/// Bytes of prefixes for each access that a log has room for, and of keys for each request.
const NAME_BYTES: usize = 16;

/// Samples by time of each kind that a log has room for, if it has room for more accesses: two
/// tenths of a second of them.
const BY_TIME_MAX: usize = 512;

/// Places for recently read keys.
const RECENT: usize = 64;

/// Accesses that may lie between two reads that count as one.
const NEAR: usize = 16;

impl Log {
    /// A log of at most `capacity` (up to 65,535) accesses, and as many samples by time of each
    /// kind, but 512 at most.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self {
            capacity: capacity.min(usize::from(u16::MAX)),
            accesses: Vec::new(),
            prefixes: Vec::new(),
            requests: Vec::new(),
            keys: Vec::new(),
            request_halvings: 0,
            timings: Vec::new(),
            timing_halvings: 0,
            random: fastrand::Rng::new(),
            recent: [0; RECENT],
            dropped: 0,
            is_partial: false,
        }
    }

    /// Memory of a full one, in bytes.
    #[must_use]
    pub const fn bytes_max(capacity: usize) -> usize {
        let by_time = size_of::<Request>() + size_of::<Timing>() + NAME_BYTES;
        capacity * (size_of::<Access>() + NAME_BYTES) + by_time_max(capacity) * by_time
    }

    /// Notes an operation on a key of the sample; `flush` is the number of the last flush that
    /// covers the key, and `prefix` is the part of the key that it counts under.
    ///
    /// # Errors
    ///
    /// The log was full; the operation is noted if that made room.
    pub fn access(
        &mut self,
        hash: u64,
        (tick_ms, kind): (u32, Kind),
        (bytes, deadline): (u32, u32),
        flush: u32,
        prefix: &[u8],
    ) -> Result<(), Full> {
        let slot = usize::from((hash >> 3).to_le_bytes()[0]) % RECENT;
        let place = usize::from(self.recent[slot]);
        if kind == Kind::Hit
            && place + NEAR >= self.accesses.len()
            && let Some(last) = self.accesses.get_mut(place)
            && (last.hash, last.kind, last.bytes) == (hash, kind, bytes)
            && last.repeats < u16::MAX
        {
            last.repeats += 1;
            return Ok(());
        }
        let mut result = Ok(());
        if self.accesses.len() >= self.capacity {
            let full = self.thin();
            result = Err(full);
            if !matches!(full, Full::Thinned(threshold) if hash < threshold) {
                self.dropped += u64::from(full == Full::Repetitions);
                self.is_partial |= full == Full::Repetitions;
                return result;
            }
        }
        let prefix = &prefix[..prefix.len().min(PREFIX_BYTES_MAX + 1)];
        // Without room for its prefix, the access has none.
        let name_bytes_max = self.capacity * NAME_BYTES;
        let (name_at, name_len) =
            keep(&mut self.prefixes, prefix, name_bytes_max).unwrap_or((0, 0));
        // Below the capacity, which is 16 bits.
        self.recent[slot] = to_u16(self.accesses.len());
        let repeats = 0;
        self.accesses.push(Access {
            hash,
            tick_ms,
            bytes,
            deadline,
            flush,
            kind,
            repeats,
            name_at,
            name_len,
        });
        result
    }

    /// Notes the key of an operation that was sampled by time and stands for `weight` operations.
    pub fn request(&mut self, hash: u64, key: &[u8], weight: u32) {
        if !is_chosen(&mut self.random, self.request_halvings) {
            return;
        }
        let requests_max = by_time_max(self.capacity);
        let key_bytes_max = requests_max * NAME_BYTES;
        while !self.requests.is_empty()
            && (self.requests.len() >= requests_max || self.keys.len() + key.len() > key_bytes_max)
        {
            self.halve_requests();
            if self.random.bool() {
                return;
            }
        }
        let weight = weighted(weight, self.request_halvings);
        match keep(&mut self.keys, key, key_bytes_max) {
            Some((name_at, name_len)) => {
                self.requests.push(Request { hash, weight, name_at, name_len });
            }
            None => self.dropped += 1,
        }
    }

    /// Notes a request's time; it stands for `weight` requests.
    pub fn timing(&mut self, command: Command, nanos: u64, weight: u32) {
        if !is_chosen(&mut self.random, self.timing_halvings) {
            return;
        }
        if self.timings.len() >= by_time_max(self.capacity) {
            halve(&mut self.random, &mut self.timings, |timing| &mut timing.weight);
            self.timing_halvings += 1;
            if self.random.bool() {
                return;
            }
        }
        let weight = weighted(weight, self.timing_halvings);
        // Four seconds and more count as four seconds.
        self.timings.push(Timing { command, nanos: saturating_u32(nanos), weight });
    }

    /// Samples for which there was no room.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// `true` if repetitions were left out, and may be for a while.
    pub(crate) fn is_partial(&self) -> bool {
        self.is_partial
    }

    /// Forgets everything and keeps the memory.
    pub fn clear(&mut self) {
        self.accesses.clear();
        self.prefixes.clear();
        self.requests.clear();
        self.keys.clear();
        self.request_halvings = 0;
        self.timings.clear();
        self.timing_halvings = 0;
        self.recent = [0; RECENT];
        self.dropped = 0;
        self.is_partial = false;
    }

    pub(crate) fn accesses(&self) -> impl Iterator<Item = (Access, &[u8])> {
        let name = |access: &Access| name_of(&self.prefixes, access.name_at, access.name_len);
        self.accesses.iter().map(move |access| (*access, name(access)))
    }

    /// Hash, key and weight of each.
    pub(crate) fn requests(&self) -> impl Iterator<Item = (u64, &[u8], u32)> {
        let key = |request: &Request| name_of(&self.keys, request.name_at, request.name_len);
        self.requests.iter().map(move |request| (request.hash, key(request), request.weight))
    }

    pub(crate) fn timings(&self) -> &[Timing] {
        &self.timings
    }

    #[cold]
    fn thin(&mut self) -> Full {
        let mut hashes: Vec<u64> = self.accesses.iter().map(|access| access.hash).collect();
        hashes.sort_unstable();
        hashes.dedup();
        // A read that misses and the store that follows are two accesses; a key with twice as many
        // is requested often.
        if hashes.len() < self.capacity / 4 {
            return Full::Repetitions;
        }
        let threshold = hashes[hashes.len() / 2];
        self.accesses.retain(|access| access.hash < threshold);
        self.recent = [u16::MAX; RECENT];
        Full::Thinned(threshold)
    }

    #[cold]
    fn halve_requests(&mut self) {
        halve(&mut self.random, &mut self.requests, |request| &mut request.weight);
        self.request_halvings += 1;
        let mut end = 0;
        for request in &mut self.requests {
            let start = request.name_at as usize;
            self.keys.copy_within(start..start + usize::from(request.name_len), end);
            request.name_at = to_u32(end);
            end += usize::from(request.name_len);
        }
        self.keys.truncate(end);
    }
}

/// Samples by time of each kind in a log of this capacity.
const fn by_time_max(capacity: usize) -> usize {
    if capacity < BY_TIME_MAX { capacity } else { BY_TIME_MAX }
}

/// `true` for a sample that a list accepts after this many halvings.
fn is_chosen(random: &mut fastrand::Rng, halvings: u32) -> bool {
    halvings == 0 || random.u32(..).leading_zeros() >= halvings
}

/// The weight of a sample that a list accepts after this many halvings.
fn weighted(weight: u32, halvings: u32) -> u32 {
    weight.saturating_mul(1 << halvings.min(u32::BITS - 1))
}

/// Keeps one at random of each two neighbours, with twice its weight.
#[cold]
fn halve<T>(random: &mut fastrand::Rng, samples: &mut Vec<T>, weight: fn(&mut T) -> &mut u32) {
    let mut kept = 0;
    for first in (0..samples.len()).step_by(2) {
        // The last of an odd number has no neighbour: it stays in half of all cases, too.
        let chosen = first + usize::from(random.bool());
        if chosen < samples.len() {
            samples.swap(kept, chosen);
            let weight = weight(&mut samples[kept]);
            *weight = weight.saturating_mul(2);
            kept += 1;
        }
    }
    samples.truncate(kept);
}

/// Keeps a name; `None` if there is no room.
fn keep(names: &mut Vec<u8>, name: &[u8], bytes_max: usize) -> Option<(u32, u8)> {
    let start = u32::try_from(names.len()).ok()?;
    let len = u8::try_from(name.len()).ok()?;
    if names.len() + name.len() > bytes_max {
        return None;
    }
    names.extend_from_slice(name);
    Some((start, len))
}

fn name_of(names: &[u8], at: u32, len: u8) -> &[u8] {
    names.get(at as usize..).and_then(|rest| rest.get(..len.into())).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hit(log: &mut Log, hash: u64) -> Result<(), Full> {
        log.access(hash, (0, Kind::Hit), (100, 0), 0, b"p")
    }

    #[test]
    fn a_full_log_of_many_keys_keeps_half_of_them_completely() {
        let mut log = Log::new(1000);
        let hash = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut threshold = u64::MAX;
        for number in 0..10_000 {
            if hash(number) < threshold
                && let Err(Full::Thinned(thinned)) = hit(&mut log, hash(number))
            {
                threshold = thinned;
            }
        }
        let want = (0..10_000).filter(|number| hash(*number) < threshold).count();
        assert_eq!(log.accesses().count(), want);
        assert!(want > 400 && log.dropped() == 0);
    }

    #[test]
    fn a_full_log_of_few_keys_drops_repetitions() {
        let mut log = Log::new(1000);
        let results: Vec<_> = (0..2000).map(|number| hit(&mut log, 8 * (number % 100))).collect();
        assert!(
            results.iter().all(|result| *result == Ok(()) || *result == Err(Full::Repetitions))
        );
        assert_eq!(log.accesses().count(), 1000);
        assert!(log.dropped() > 800, "{}", log.dropped());
    }

    #[test]
    fn a_hot_key_uses_little_space() {
        let mut log = Log::new(1000);
        for number in 0..2000 {
            assert_eq!(hit(&mut log, 8), Ok(()));
            if number % 10 == 0 {
                assert_eq!(hit(&mut log, 16 + 8 * number), Ok(()));
            }
        }
        let reads: u32 = log.accesses().map(|(access, _)| 1 + u32::from(access.repeats)).sum();
        assert_eq!(reads, 2200);
        assert!(log.accesses().count() < 450, "{}", log.accesses().count());
    }

    fn seeded(capacity: usize, seed: u64) -> Log {
        Log { random: fastrand::Rng::with_seed(seed), ..Log::new(capacity) }
    }

    /// The mean of a log's estimate over many logs, and its standard error.
    fn mean(estimates: &[f64]) -> (f64, f64) {
        #[expect(clippy::cast_precision_loss, reason = "a few hundred")]
        let count = estimates.len() as f64;
        let mean = estimates.iter().sum::<f64>() / count;
        let variance = estimates.iter().map(|one| (one - mean).powi(2)).sum::<f64>() / count;
        (mean, (variance / count).sqrt())
    }

    #[test]
    fn a_long_batch_is_counted_by_command_and_place() {
        const LOGS: u64 = 400;
        // A pipeline of gets that ends with deletes, in a batch that stands for three; every other
        // one of its gets is of a second command.
        let command = |place: u64| match place {
            1100.. => Command::Delete,
            _ if place.is_multiple_of(2) => Command::Get,
            _ => Command::Store,
        };
        let mut estimates: [Vec<f64>; 5] = Default::default();
        for seed in 0..LOGS {
            let mut log = seeded(256, seed);
            (0..1800).for_each(|place| log.timing(command(place), place, 3));
            assert!(log.timings().len() <= 256 && log.dropped() == 0);
            let sum = |is_in: &dyn Fn(&Timing) -> bool| -> f64 {
                log.timings().iter().filter(|one| is_in(one)).map(|one| f64::from(one.weight)).sum()
            };
            estimates[0].push(sum(&|one| one.command == Command::Get));
            estimates[1].push(sum(&|one| one.command == Command::Store));
            estimates[2].push(sum(&|one| one.command == Command::Delete));
            estimates[3].push(sum(&|one| one.nanos < 100));
            estimates[4].push(sum(&|one| one.nanos >= 1700));
        }
        for (estimates, want) in estimates.iter().zip([1650.0, 1650.0, 2100.0, 300.0, 300.0]) {
            let (mean, error) = mean(estimates);
            assert!((mean - want).abs() < 3.5 * error + 1.0, "{mean} +- {error}, not {want}");
        }
    }

    #[test]
    fn keys_of_a_long_batch_are_counted_by_place() {
        let mut estimates: [Vec<f64>; 2] = Default::default();
        for seed in 0..400 {
            let mut log = seeded(256, seed);
            for place in 0..1800_u64 {
                log.request(
                    place,
                    format!("{place:040}").as_bytes(),
                    if place < 900 { 1 } else { 5 },
                );
            }
            assert!(log.requests().count() <= 256 && log.dropped() == 0);
            assert!(log.requests().all(|(hash, key, _)| key == format!("{hash:040}").as_bytes()));
            let sum = |from: u64, to: u64| -> f64 {
                let requests = log.requests().filter(|(hash, ..)| (from..to).contains(hash));
                requests.map(|(.., weight)| f64::from(weight)).sum()
            };
            estimates[0].push(sum(0, 900));
            estimates[1].push(sum(1700, 1800));
        }
        for (estimates, want) in estimates.iter().zip([900.0, 500.0]) {
            let (mean, error) = mean(estimates);
            assert!((mean - want).abs() < 3.5 * error + 1.0, "{mean} +- {error}, not {want}");
        }
    }

    #[test]
    fn a_cleared_log_keeps_every_sample_again() {
        let mut log = seeded(64, 1);
        for _ in 0..1000 {
            log.request(1, b"k", 7);
            log.timing(Command::Get, 1, 7);
        }
        log.clear();
        log.request(2, b"l", 7);
        log.timing(Command::Get, 1, 7);
        let kept: Vec<_> = log.requests().collect();
        assert_eq!(kept, vec![(2, &b"l"[..], 7)]);
        assert_eq!((log.timings().len(), log.timings()[0].weight), (1, 7));
    }
}
