//! The engine and a plain map that get the same commands; every answer is compared.
//!
//! The clock is injected and the memory large enough that nothing is evicted, so each answer has
//! exactly one right value. The commands are chosen by a seed (`engine_vs_model`) or by a fuzzer
//! (`fuzz/fuzz_targets/engine_vs_model.rs`).
#![allow(
    dead_code,
    missing_docs,
    missing_debug_implementations,
    unreachable_pub,
    private_interfaces,
    reason = "a part of two test programs"
)]

use std::collections::BTreeMap;

use engine::{
    Arithmetic, Cas, Condition, Counted, DEAD, Delete, Deleted, Direction, MetaGet, Miss, Mode,
    NewValue, Settings, Shared, Verdict, Vivify, Worker,
};
use store::{Config, Store};

pub mod lease;

const STARTED_AT_UNIX: u64 = 1_700_000_000;

/// Bytes of a value that is certainly chained, and therefore no number. Values here have that many,
/// or far fewer.
const CHAINED_BYTES: usize = 20_000;

/// The model's knowledge of an item.
#[derive(Clone, Debug, PartialEq)]
struct Entry {
    flags: u32,
    value: Vec<u8>,
    deadline: u32,
    cas: u64,
    is_stale: bool,
    is_won: bool,
    is_fetched: bool,
}

/// The source of choices: a seed (splitmix64) or a fuzzer's bytes.
pub enum Random {
    Seed(u64),
    Bytes(std::vec::IntoIter<u8>),
}

impl Random {
    fn next(&mut self) -> u64 {
        let state = match self {
            Self::Seed(state) => state,
            Self::Bytes(bytes) => {
                return bytes.take(8).fold(0, |word, byte| word << 8 | u64::from(byte));
            }
        };
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = *state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        match self {
            // One byte for a small choice, so that a fuzzer's change of a byte changes one choice.
            Self::Bytes(bytes) if bound <= 256 => u64::from(bytes.next().unwrap_or(0)) % bound,
            _ => self.next() % bound,
        }
    }

    /// `true` if a fuzzer's bytes are used up.
    pub fn is_exhausted(&self) -> bool {
        matches!(self, Self::Bytes(bytes) if bytes.len() == 0)
    }

    fn small(&mut self, bound: u32) -> u32 {
        u32::try_from(self.below(u64::from(bound))).unwrap()
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    fn some<T>(&mut self, one_in: u64, make: impl FnOnce(&mut Self) -> T) -> Option<T> {
        self.one_in(one_in).then(|| make(self))
    }
}

/// The engine, the model, and their common second.
pub struct World {
    worker: Worker,
    model: BTreeMap<Vec<u8>, Entry>,
    pub now_secs: u32,
    leases: lease::Leases,
    flush_at_secs: Option<u32>,
    pub random: Random,
    pub last_cas: u64,
}

impl World {
    pub fn new(random: Random, config: Config) -> Self {
        let settings = Settings {
            cas_enabled: true,
            flush_enabled: true,
            started_at_unix: STARTED_AT_UNIX,
            leases: lease::SETTINGS,
        };
        let shared = Shared::new(Store::new(config).unwrap(), settings);
        let worker = Worker::join(&shared).unwrap();
        worker.begin_turn(2);
        Self {
            worker,
            model: BTreeMap::new(),
            leases: lease::Leases::default(),
            now_secs: 2,
            flush_at_secs: None,
            random,
            last_cas: 0,
        }
    }

    fn tick(&mut self) {
        self.now_secs += self.random.small(4);
        if self.flush_at_secs.is_some_and(|at| at <= self.now_secs) {
            self.flush_at_secs = None;
            self.invalidate(b"");
        }
        self.worker.quiesce();
        self.worker.begin_turn(self.now_secs);
    }

    fn live(&mut self, key: &[u8]) -> Option<&mut Entry> {
        let now_secs = self.now_secs;
        self.model.get_mut(key).filter(|item| item.deadline == 0 || item.deadline > now_secs)
    }

    fn put(&mut self, key: &[u8], entry: Entry) {
        self.model.insert(key.to_vec(), entry);
        self.leases.created(key);
    }

    fn value(&mut self) -> Vec<u8> {
        let random = &mut self.random;
        match random.below(10) {
            0..4 => random.next().to_string().into_bytes(),
            4 => u64::MAX.to_string().into_bytes(),
            5 => Vec::new(),
            6 => b"12  ".to_vec(),
            7 => {
                let len = CHAINED_BYTES + random.small(40_000) as usize;
                vec![random.next().to_le_bytes()[0]; len]
            }
            _ => {
                let len = random.small(200) as usize;
                (0..len).map(|_| random.next().to_le_bytes()[0]).collect()
            }
        }
    }

    fn deadline(&mut self) -> u32 {
        match self.random.below(6) {
            0 => DEAD,
            1 | 2 => self.now_secs + 1 + self.random.small(6),
            _ => 0,
        }
    }

    /// A cas unique: that of the item, a lower, a higher, or none.
    fn compare(&mut self, key: &[u8]) -> Option<u64> {
        let cas = self.live(key).map_or(1, |item| item.cas);
        match self.random.below(9) {
            0 | 1 => Some(cas),
            2 => Some(cas.saturating_sub(1 + self.random.below(3)).max(1)),
            3 => Some(cas + 1_000_000),
            4 if self.random.one_in(4) => Some(0),
            _ => None,
        }
    }

    /// A new item's cas unique is the requested one, or greater than that of the item before it. If
    /// that had none, it is greater than every one so far. It is 0 if it need not have one.
    fn check_cas(&mut self, cas: u64, needs_cas: bool, explicit: Option<u64>, old: Option<u64>) {
        match (explicit, cas, old) {
            (Some(explicit), ..) => assert_eq!(cas, explicit),
            (None, 0, _) => assert!(!needs_cas),
            (None, _, Some(0)) => assert!(cas > self.last_cas, "{cas} after {}", self.last_cas),
            (None, _, old) => assert!(cas > old.unwrap_or(0), "{cas} after {old:?}"),
        }
        self.last_cas = self.last_cas.max(cas);
    }

    /// The cas unique shown to a reader: if the item had none, it has got this one, and this one is
    /// new.
    fn check_shown(&mut self, key: &[u8], cas: u64) {
        let last_cas = self.last_cas;
        let Some(entry) = self.live(key) else { return };
        if entry.cas == 0 {
            assert!(cas > last_cas, "{cas} after {last_cas}");
            entry.cas = cas;
            self.last_cas = cas;
        }
    }

    /// A random choice whether a reader asks for the cas unique.
    fn wants_cas(&mut self) -> Cas {
        if self.random.one_in(3) { Cas::Needed } else { Cas::Any }
    }

    fn store(&mut self, key: &[u8]) {
        let value = self.value();
        let mode = [Mode::Add, Mode::Append, Mode::Prepend, Mode::Replace, Mode::Set, Mode::Set]
            [self.random.small(6) as usize];
        let cas = self.random.some(5, |random| 1 + random.below(50));
        let new = NewValue {
            flags: self.random.small(1000),
            deadline: self.deadline(),
            value_len: value.len(),
            base64_key: false,
            has_cas: cas.is_some() || self.random.one_in(2),
        };
        let lease = self.random.one_in(4).then(|| self.some_token(key));
        let condition = Condition {
            mode,
            compare: self.compare(key),
            invalidate: self.random.one_in(3),
            cas,
            vivify_deadline: self.random.some(3, |_| 0),
            lease,
            gives_back: lease.is_some() && self.random.one_in(3),
        };
        let is_concat = matches!(mode, Mode::Append | Mode::Prepend);
        let hashed = self.worker.key(key);
        let stored = if is_concat {
            self.worker.concat(hashed, &new, &condition, &value)
        } else {
            let mut draft = self.worker.draft(hashed, &new).unwrap();
            for part in value.chunks(7000) {
                draft.push(part).unwrap();
            }
            self.worker.store(hashed, &new, &condition, draft)
        };
        let (want, entry) = self.store_in_model(key, &new, &condition, value);
        assert_eq!(stored.verdict, want, "{condition:?}");
        if let Some(mut entry) = entry {
            let old = self.live(key).map(|item| item.cas);
            self.check_cas(stored.cas, new.has_cas, condition.cas, old);
            assert_eq!(stored.value_len, entry.value.len());
            entry.cas = stored.cas;
            self.put(key, entry);
        } else {
            assert_eq!((stored.verdict, stored.cas, stored.value_len), (want, 0, 0));
        }
    }

    /// The verdict, and the new item without its cas unique.
    fn store_in_model(
        &mut self,
        key: &[u8],
        new: &NewValue,
        condition: &Condition,
        value: Vec<u8>,
    ) -> (Verdict, Option<Entry>) {
        let fresh = |value, deadline| Entry {
            flags: new.flags,
            value,
            deadline,
            cas: 0,
            is_stale: false,
            is_won: false,
            is_fetched: false,
        };
        let stored = |entry| (Verdict::Stored, Some(entry));
        let is_concat = matches!(condition.mode, Mode::Append | Mode::Prepend);
        if is_concat && condition.lease.is_some() {
            return (Verdict::NotStored, None);
        }
        if let Some(token) = condition.lease.filter(|_| condition.gives_back) {
            self.leases.give_back(key, token);
            return (Verdict::NotStored, None);
        }
        let now_secs = self.now_secs;
        if self.live(key).is_none() {
            if condition.compare.is_some() && condition.mode != Mode::Add {
                return (if is_concat { Verdict::NotStored } else { Verdict::NotFound }, None);
            }
            let lease = condition.lease;
            if lease.is_some_and(|token| !self.leases.redeem(key, token)) {
                return (Verdict::NotStored, None);
            }
            return match (condition.mode, condition.vivify_deadline) {
                (Mode::Add, _) if self.leases.is_held(key, now_secs) => (Verdict::NotStored, None),
                (Mode::Add | Mode::Set, _) => stored(fresh(value, new.deadline)),
                (Mode::Append | Mode::Prepend, Some(deadline)) => stored(fresh(value, deadline)),
                _ => (Verdict::NotStored, None),
            };
        }
        let Some(old) = self.live(key).cloned() else { unreachable!() };
        if condition.mode == Mode::Add || condition.lease.is_some() {
            return (Verdict::NotStored, None);
        }
        let mut entry = fresh(value, new.deadline);
        if let Some(unique) = condition.compare
            && (unique != old.cas || unique == 0)
        {
            let is_newer = match old.cas {
                // It will get one above all known ones. The store may have given out some more.
                0 => {
                    let is_newer = !self.worker.shared().store().is_older_cas(unique);
                    assert!(!is_newer || unique > self.last_cas);
                    is_newer
                }
                cas => unique > cas,
            };
            if is_concat || !condition.invalidate || unique == 0 || is_newer {
                return (Verdict::Exists, None);
            }
            (entry.deadline, entry.is_stale, entry.is_won) = (old.deadline, true, old.is_won);
        }
        if is_concat {
            let (first, second) = match condition.mode {
                Mode::Append => (&old.value, &entry.value),
                _ => (&entry.value, &old.value),
            };
            entry.value = [&first[..], &second[..]].concat();
            (entry.flags, entry.deadline) = (old.flags, old.deadline);
            (entry.is_stale, entry.is_won) = (old.is_stale, old.is_stale && old.is_won);
        }
        stored(entry)
    }

    fn delete(&mut self, key: &[u8]) {
        let how = Delete {
            compare: self.compare(key),
            invalidate: self.random.one_in(3),
            empty_flags: self.random.some(4, |random| random.small(9)),
            base64_key: false,
            deadline: Some(self.deadline()).filter(|deadline| *deadline != 0),
            cas: self.random.some(5, |random| 1 + random.below(50)),
            hold_off_secs: if self.random.one_in(4) { self.random.small(4) } else { 0 },
        };
        let (hold_off_secs, now_secs) = (how.hold_off_secs, self.now_secs);
        let deleted = self.worker.delete(self.worker.key(key), &how);
        let Some(old) = self.live(key).cloned() else {
            assert_eq!(deleted, Deleted::NotFound);
            return self.leases.deleted(key, None, hold_off_secs, now_secs);
        };
        if how.compare.is_some_and(|unique| unique == 0 || unique != old.cas) {
            assert_eq!(deleted, Deleted::Exists);
            return;
        }
        let Deleted::Done { cas, .. } = deleted else { panic!("{deleted:?} for {how:?}") };
        let mut entry = old.clone();
        if let Some(flags) = how.empty_flags {
            entry = Entry { flags, value: Vec::new(), deadline: 0, is_fetched: false, ..entry };
            (entry.is_stale, entry.is_won) = (false, false);
        } else if !how.invalidate {
            self.model.remove(key);
            return self.leases.deleted(key, Some(old), hold_off_secs, now_secs);
        }
        self.leases.deleted(key, None, hold_off_secs, now_secs);
        if how.invalidate {
            (entry.is_stale, entry.is_won) = (true, false);
        }
        entry.deadline = how.deadline.unwrap_or(entry.deadline);
        let keeps_item = how.empty_flags.is_none();
        let needs_cas = how.cas.is_some() || keeps_item && old.cas != 0;
        self.check_cas(cas, needs_cas, how.cas, Some(old.cas));
        entry.cas = cas;
        self.put(key, entry);
    }

    fn arithmetic(&mut self, key: &[u8]) {
        let direction = if self.random.one_in(2) { Direction::Incr } else { Direction::Decr };
        let how = Arithmetic {
            direction,
            delta: if self.random.one_in(2) { self.random.below(20) } else { self.random.next() },
            compare: self.compare(key),
            cas: self.random.some(5, |random| 1 + random.below(50)),
            shows_cas: self.random.one_in(2),
            deadline: self.random.some(5, |_| 0),
            vivify: self.random.some(3, |random| Vivify {
                initial: random.next(),
                deadline: 0,
                base64_key: false,
            }),
        };
        let counted = self.worker.arithmetic(self.worker.key(key), &how);
        let Some(old) = self.live(key).cloned() else {
            let Some(vivify) = how.vivify else { return assert_eq!(counted, Counted::NotFound) };
            let Counted::Done { number, cas, is_created: true, .. } = counted else {
                panic!("{counted:?}")
            };
            assert_eq!(number, vivify.initial);
            self.check_cas(cas, how.shows_cas, how.cas, None);
            let entry = Entry {
                flags: 0,
                value: number.to_string().into_bytes(),
                deadline: 0,
                cas,
                is_stale: false,
                is_won: false,
                is_fetched: false,
            };
            self.put(key, entry);
            return;
        };
        if how.compare.is_some_and(|unique| unique != 0 && unique != old.cas) {
            return assert_eq!(counted, Counted::Exists);
        }
        // The part before the first blank counts, whatever follows.
        let blank = |byte: &u8| matches!(byte, b' ' | 9..=13);
        let word = old.value.iter().skip_while(|byte| blank(byte)).take_while(|byte| !blank(byte));
        let text = String::from_utf8(word.copied().collect()).ok();
        let present = text.and_then(|text| text.parse::<u64>().ok());
        let (Some(present), true) = (present, old.value.len() < CHAINED_BYTES) else {
            return assert_eq!(counted, Counted::NonNumeric);
        };
        let Counted::Done { number, cas, deadline_before, is_created: false } = counted else {
            panic!("{counted:?} for {present}")
        };
        let want = match direction {
            Direction::Decr => present.saturating_sub(how.delta),
            Direction::Incr => present.wrapping_add(how.delta),
        };
        assert_eq!((number, deadline_before), (want, old.deadline));
        self.check_cas(cas, how.shows_cas, how.cas, Some(old.cas));
        let entry = Entry {
            value: format!("{want:<0$}", old.value.len()).into_bytes(),
            deadline: how.deadline.unwrap_or(old.deadline),
            cas,
            ..old
        };
        self.put(key, entry);
    }

    fn meta_get(&mut self, key: &[u8]) {
        let mut how = MetaGet {
            wants_cas: self.wants_cas(),
            vivify_deadline: self.random.some(3, |_| 0),
            recache_secs: self.random.some(3, |random| random.small(8)),
            deadline: self.random.some(4, |_| 0),
            no_bump: self.random.one_in(3),
            no_claim: self.random.one_in(4),
            cas: self.random.some(5, |random| 1 + random.below(50)),
            base64_key: false,
            recache_after_touch: false,
        };
        let hashed = self.worker.key(key);
        let now_secs = self.now_secs;
        let old = self.live(key).cloned();
        let seen = |hit: &engine::MetaHit<'_>| {
            let mut value = Vec::new();
            hit.item.for_each_piece(|piece| value.extend_from_slice(piece));
            let marks = (hit.is_winner, hit.is_won, hit.is_stale, hit.is_fetched);
            (value, hit.item.cas(), hit.deadline_before, hit.deadline, marks)
        };
        let got = if how.vivify_deadline.is_some() {
            Some(self.worker.meta_get_or_create(hashed, &how, seen).unwrap())
        } else {
            loop {
                let section = self.worker.section();
                match self.worker.meta_get(&section, hashed, &how) {
                    Err(Miss::NoCas) => {
                        drop(section);
                        how.wants_cas = self.worker.give_cas(&hashed);
                        assert_eq!(how.wants_cas, Cas::Needed);
                    }
                    found => break found.ok().map(|hit| seen(&hit)),
                }
            }
        };
        if let (Some((_, cas, ..)), Some(_), Cas::Needed) = (&got, &old, how.wants_cas) {
            self.check_shown(key, *cas);
        }
        let old = old.and_then(|_| self.live(key).cloned());
        let Some(mut entry) = old else {
            if how.vivify_deadline.is_none() {
                return assert_eq!(got, None);
            }
            let (value, cas, _, deadline, marks) = got.unwrap();
            assert_eq!((value.len(), deadline, marks), (0, 0, (true, false, false, false)));
            self.check_cas(cas, true, how.cas, None);
            let (flags, is_won) = (0, true);
            let entry = Entry {
                flags,
                value,
                deadline,
                cas,
                is_stale: false,
                is_won,
                is_fetched: !how.no_bump,
            };
            self.put(key, entry);
            return;
        };
        let is_late = how
            .recache_secs
            .is_some_and(|secs| entry.deadline != 0 && entry.deadline - now_secs < secs);
        let is_winner = !entry.is_won && !how.no_claim && (entry.is_stale || is_late);
        let deadline = how.deadline.unwrap_or(entry.deadline);
        let marks = (is_winner, entry.is_won, entry.is_stale, entry.is_fetched);
        assert_eq!(got, Some((entry.value.clone(), entry.cas, entry.deadline, deadline, marks)));
        entry.is_won |= is_winner;
        entry.is_fetched |= !how.no_bump;
        entry.deadline = deadline;
        self.put(key, entry);
    }

    fn get(&mut self, key: &[u8]) {
        let hashed = self.worker.key(key);
        let deadline = self.random.some(4, |_| ()).map(|()| self.deadline());
        let cas = self.wants_cas();
        let got = loop {
            let section = self.worker.section();
            let found = match deadline {
                None if cas == Cas::Any => self.worker.get(&section, &hashed),
                None => self.worker.gets(&section, &hashed, cas),
                Some(deadline) => self.worker.get_and_touch(&section, hashed, deadline, cas),
            };
            if matches!(found, Err(Miss::NoCas)) {
                drop(section);
                assert_eq!(self.worker.give_cas(&hashed), Cas::Needed);
                continue;
            }
            break found.ok().map(|item| {
                let mut value = Vec::new();
                item.for_each_piece(|piece| value.extend_from_slice(piece));
                (value, item.flags(), self.worker.cas_of(&item))
            });
        };
        if let (Some((_, _, shown)), Cas::Needed) = (&got, cas) {
            self.check_shown(key, *shown);
        }
        let want = self.live(key).map(|item| {
            item.is_fetched = true;
            item.deadline = deadline.unwrap_or(item.deadline);
            (item.value.clone(), item.flags, item.cas)
        });
        assert!(got == want, "got {} want {}", got.is_some(), want.is_some());
    }

    fn touch(&mut self, key: &[u8]) {
        let deadline = self.deadline();
        let cas = self.wants_cas();
        let touched = self.worker.touch(self.worker.key(key), deadline, cas);
        if let (Ok(touched), Cas::Needed) = (touched, cas) {
            self.check_shown(key, touched.cas);
        }
        let want = self.live(key).map(|item| {
            item.is_fetched = true;
            item.deadline = deadline;
            (item.flags, if cas == Cas::Needed { item.cas } else { 0 })
        });
        assert_eq!(touched.ok().map(|touched| (touched.flags, touched.cas)), want);
    }

    fn flush(&mut self) {
        let exptime = i64::from(self.random.small(3)) * 5;
        self.worker.flush_all(exptime).unwrap();
        self.flush_at_secs = None;
        if exptime == 0 {
            self.invalidate(b"");
        } else {
            self.flush_at_secs = Some(self.now_secs + u32::try_from(exptime).unwrap());
        }
    }

    /// Sends one command to both.
    ///
    /// # Panics
    ///
    /// If their answers differ.
    pub fn step(&mut self) {
        let key = format!("key{}", self.random.below(12)).into_bytes();
        match self.random.below(100) {
            0 => self.flush(),
            1 | 2 => self.flush_prefix(),
            3..17 => self.tick(),
            17..27 => self.lease_get(&key),
            27 | 28 => self.read_stale(&key),
            29..45 => self.store(&key),
            45..55 => self.delete(&key),
            55..67 => self.arithmetic(&key),
            67..82 => self.meta_get(&key),
            82..95 => self.get(&key),
            _ => self.touch(&key),
        }
    }
}
