//! The model's leases, stale values, hold-offs and invalidations of prefixes.

use std::collections::BTreeMap;

use engine::{LeaseMiss, LeaseSettings};

use super::{Entry, World};

/// Shorter than the defaults, so that a run meets their ends.
pub const SETTINGS: LeaseSettings = LeaseSettings { interval_secs: 3, stale_secs: 4 };

/// Invalidations after which a token counts as void, whatever they covered.
const INVALIDATIONS_MAX: u32 = 8;

/// The state of keys, present or not.
#[derive(Default)]
pub struct Leases {
    /// A lease read or a hold-off has been seen: from now on, deletes keep stale values.
    is_used: bool,
    keys: BTreeMap<Vec<u8>, Lease>,
    /// Deleted values, and the second from which they are gone.
    stale: BTreeMap<Vec<u8>, (Entry, u32)>,
}

#[derive(Clone, Copy, Default)]
struct Lease {
    token: Option<u64>,
    /// The last token, void or not.
    last: u64,
    /// The last token has filled the key, or was given back.
    is_used: bool,
    issued_secs: Option<u32>,
    held_until: u32,
    invalidations: u32,
}

impl Leases {
    /// Notes that an item of the key was created.
    pub fn created(&mut self, key: &[u8]) {
        self.stale.remove(key);
        self.void(key);
    }

    /// Notes that the key was deleted; `old` is its item before.
    pub fn deleted(&mut self, key: &[u8], old: Option<Entry>, hold_off_secs: u32, now_secs: u32) {
        self.void(key);
        if hold_off_secs > 0 {
            self.is_used = true;
            let lease = self.keys.entry(key.to_vec()).or_default();
            lease.held_until = lease.held_until.max(now_secs + hold_off_secs + 1);
        }
        if let Some(old) = old.filter(|_| self.is_used) {
            let until = now_secs + SETTINGS.stale_secs;
            let until = if old.deadline == 0 { until } else { until.min(old.deadline) };
            self.stale.insert(key.to_vec(), (old, until));
        }
    }

    fn void(&mut self, key: &[u8]) {
        if let Some(lease) = self.keys.get_mut(key) {
            lease.token = None;
        }
    }

    pub fn is_held(&self, key: &[u8], now_secs: u32) -> bool {
        self.keys.get(key).is_some_and(|lease| lease.held_until > now_secs)
    }

    /// `true` if a value may be stored with this token, which is used up.
    pub fn redeem(&mut self, key: &[u8], token: u64) -> bool {
        let Some(lease) = self.keys.get_mut(key) else { return false };
        if lease.token != Some(token) {
            return false;
        }
        (lease.token, lease.is_used) = (None, true);
        lease.invalidations < INVALIDATIONS_MAX
    }

    /// The holder of the last token, void or not, will not use it: the next is due.
    pub fn give_back(&mut self, key: &[u8], token: u64) {
        let Some(lease) = self.keys.get_mut(key) else { return };
        if lease.last == token && !lease.is_used {
            (lease.token, lease.issued_secs, lease.is_used) = (None, None, true);
        }
    }

    /// Invalidates everything under a prefix.
    pub fn invalidate(&mut self, prefix: &[u8]) {
        self.stale.retain(|key, _| !key.starts_with(prefix));
        for (key, lease) in &mut self.keys {
            lease.invalidations += if key.starts_with(prefix) { INVALIDATIONS_MAX } else { 1 };
        }
    }

    fn stale(&self, key: &[u8], now_secs: u32) -> Option<Vec<u8>> {
        let (entry, until) = self.stale.get(key)?;
        (*until > now_secs).then(|| entry.value.clone())
    }

    /// A miss: whether a token is due, and the stale value.
    fn miss(&mut self, key: &[u8], now_secs: u32) -> (bool, Option<Vec<u8>>) {
        self.is_used = true;
        let lease = self.keys.get(key).copied().unwrap_or_default();
        let is_recent =
            lease.issued_secs.is_some_and(|issued| now_secs - issued <= SETTINGS.interval_secs);
        (!is_recent, self.stale(key, now_secs))
    }

    fn given(&mut self, key: &[u8], token: u64, now_secs: u32) {
        let lease = self.keys.entry(key.to_vec()).or_default();
        let issued_secs = Some(now_secs);
        let (token, last, is_used) = (Some(token), token, false);
        *lease = Lease { token, last, is_used, issued_secs, invalidations: 0, ..*lease };
    }

    /// Another key's token, or none.
    fn any_token(&self, number: u64) -> u64 {
        let pick = usize::try_from(number % 16).unwrap();
        self.keys.values().nth(pick).map_or(number, |lease| lease.last)
    }
}

impl World {
    /// A token to store with: the key's last one, another's, or one that was never given.
    pub fn some_token(&mut self, key: &[u8]) -> u64 {
        match (self.random.below(3), self.leases.keys.get(key)) {
            (1.., Some(lease)) => lease.last,
            _ => {
                let number = self.random.next();
                self.leases.any_token(number)
            }
        }
    }

    pub fn lease_get(&mut self, key: &[u8]) {
        let hashed = self.worker.key(key);
        let section = self.worker.section();
        let value = |item: store::Item<'_>| {
            let mut value = Vec::new();
            item.for_each_piece(|piece| value.extend_from_slice(piece));
            value
        };
        let got = self
            .worker
            .lease_get(&section, hashed)
            .map(value)
            .map_err(|LeaseMiss { token, stale }| (token, stale.map(value)));
        drop(section);
        let now_secs = self.now_secs;
        if let Some(item) = self.live(key) {
            item.is_fetched = true;
            assert!(got.is_ok_and(|value| value == item.value));
            return;
        }
        let (is_due, stale) = self.leases.miss(key, now_secs);
        let (token, shown) = got.unwrap_err();
        assert_eq!(token.is_some(), is_due, "a token for {}", key.escape_ascii());
        assert!(shown == stale, "stale: got {} want {}", shown.is_some(), stale.is_some());
        if let Some(token) = token {
            assert!(token > engine::LEASE_WAIT);
            self.leases.given(key, token, now_secs);
        }
    }

    pub fn read_stale(&mut self, key: &[u8]) {
        let hashed = self.worker.key(key);
        let section = self.worker.section();
        let got = self.worker.stale(&section, hashed).map(|item| {
            let mut value = Vec::new();
            item.for_each_piece(|piece| value.extend_from_slice(piece));
            value
        });
        drop(section);
        self.leases.is_used = true;
        let want = self.leases.stale(key, self.now_secs);
        assert!(got == want, "stale: got {} want {}", got.is_some(), want.is_some());
    }

    pub fn flush_prefix(&mut self) {
        let prefix =
            [&b"key"[..], b"key1", b"key11", b"key5", b"other"][self.random.small(5) as usize];
        self.worker.flush_prefix(prefix).unwrap();
        self.invalidate(prefix);
    }

    /// Invalidates everything under a prefix; the empty one covers everything.
    pub fn invalidate(&mut self, prefix: &[u8]) {
        self.model.retain(|key, _| !key.starts_with(prefix));
        self.leases.invalidate(prefix);
    }
}
