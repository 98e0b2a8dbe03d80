//! The samples of one worker since its log was last taken.
//!
//! # When the log is full
//!
//! A log of many different keys shows that the sample is larger than necessary: [`Log::thin`]
//! halves it, and the server's threshold with it, so that a whole sample of fewer keys remains. A
//! log of few keys shows that these are requested very often: then the rest is dropped until the
//! log is taken. That loses only repetitions.
//!
//! A key that is read again while its last access is among the newest few is counted there:
//! otherwise a hot key in the sample would fill the log.

use crate::latency::Command;
use crate::prefixes::PREFIX_BYTES_MAX;
use narrow::{saturating_u32, to_u16};

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
    requests: Vec<Request>,
    timings: Vec<Timing>,
    /// Prefixes of the accesses and keys of the requests.
    names: Vec<u8>,
    /// The places in `accesses` of keys that may have been read recently.
    recent: [u16; RECENT],
    dropped: u64,
    /// Accesses were left out.
    is_partial: bool,
}

/// Bytes of names for each access that a log has room for.
const NAME_BYTES: usize = 32;

/// Places for recently read keys.
const RECENT: usize = 64;

/// Accesses that may lie between two reads that count as one.
const NEAR: usize = 16;

impl Log {
    /// A log of at most `capacity` (up to 65,535) samples of each kind.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self {
            capacity: capacity.min(usize::from(u16::MAX)),
            accesses: Vec::new(),
            requests: Vec::new(),
            timings: Vec::new(),
            names: Vec::new(),
            recent: [0; RECENT],
            dropped: 0,
            is_partial: false,
        }
    }

    /// Memory of a full one, in bytes.
    #[must_use]
    pub const fn bytes_max(capacity: usize) -> usize {
        capacity * (size_of::<Access>() + size_of::<Request>() + size_of::<Timing>() + NAME_BYTES)
    }

    /// Notes an operation on a key of the sample; `prefix` is the part of the key that it counts
    /// under.
    ///
    /// # Errors
    ///
    /// The log was full; the operation is noted if that made room.
    pub fn access(
        &mut self,
        hash: u64,
        (tick_ms, kind): (u32, Kind),
        (bytes, deadline): (u32, u32),
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
        let (name_at, name_len) = self.name(&prefix[..prefix.len().min(PREFIX_BYTES_MAX + 1)]);
        // Below the capacity, which is 16 bits.
        self.recent[slot] = to_u16(self.accesses.len());
        let repeats = 0;
        self.accesses.push(Access {
            hash,
            tick_ms,
            bytes,
            deadline,
            kind,
            repeats,
            name_at,
            name_len,
        });
        result
    }

    /// Notes the key of an operation that was sampled by time and stands for `weight` operations.
    pub fn request(&mut self, hash: u64, key: &[u8], weight: u32) {
        if self.requests.len() >= self.capacity {
            self.dropped += 1;
            return;
        }
        let (name_at, name_len) = self.name(key);
        if usize::from(name_len) == key.len() {
            self.requests.push(Request { hash, weight, name_at, name_len });
        } else {
            self.dropped += 1;
        }
    }

    /// Notes a request's time; it stands for `weight` requests.
    pub fn timing(&mut self, command: Command, nanos: u64, weight: u32) {
        if self.timings.len() >= self.capacity {
            self.dropped += 1;
            return;
        }
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
        self.requests.clear();
        self.timings.clear();
        self.names.clear();
        self.recent = [0; RECENT];
        self.dropped = 0;
        self.is_partial = false;
    }

    pub(crate) fn accesses(&self) -> impl Iterator<Item = (Access, &[u8])> {
        let name = |access: &Access| self.name_of(access.name_at, access.name_len);
        self.accesses.iter().map(move |access| (*access, name(access)))
    }

    /// Hash, key and weight of each.
    pub(crate) fn requests(&self) -> impl Iterator<Item = (u64, &[u8], u32)> {
        let key = |request: &Request| self.name_of(request.name_at, request.name_len);
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

    /// Keeps a name; an empty one if there is no room.
    fn name(&mut self, name: &[u8]) -> (u32, u8) {
        let at = self.names.len();
        let (Ok(start), Ok(len)) = (u32::try_from(at), u8::try_from(name.len())) else {
            return (0, 0);
        };
        if at + name.len() > self.capacity * NAME_BYTES {
            return (0, 0);
        }
        self.names.extend_from_slice(name);
        (start, len)
    }

    fn name_of(&self, at: u32, len: u8) -> &[u8] {
        self.names.get(at as usize..).and_then(|rest| rest.get(..len.into())).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hit(log: &mut Log, hash: u64) -> Result<(), Full> {
        log.access(hash, (0, Kind::Hit), (100, 0), b"p")
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

    #[test]
    fn keys_are_kept_while_there_is_space() {
        let mut log = Log::new(10);
        log.request(1, &[b'k'; 250], 7);
        log.request(2, &[b'l'; 250], 7);
        let kept: Vec<_> =
            log.requests().map(|(hash, key, weight)| (hash, key.len(), weight)).collect();
        assert_eq!((kept, log.dropped()), (vec![(1, 250, 7)], 1));
        log.clear();
        assert_eq!(log.requests().count(), 0);
    }
}
