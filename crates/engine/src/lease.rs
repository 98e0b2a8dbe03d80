//! Leases and stale values (*Scaling Memcache at Facebook*, 3.2.1), and the hold-off of deletes
//! (4.3).
//!
//! ```text
//!     lease_get -> hit
//!               -> miss: a token for one reader in an interval; the others wait.
//!                        Either reply may carry the stale value
//!     store with the token -> stored, if there was no store, delete or flush of the key since
//!     token given back     -> the next reader gets one at once
//! ```
//!
//! Until the first lease read or hold-off there is no table, and a delete keeps no stale value, so
//! a server without leases pays one branch. The laws that make leases safe are in
//! `lease_tokens_and_holdoffs`.

use std::sync::Arc;

use store::{Change, Item, Liveness, Section};

use crate::key::Key;
use crate::lease_tokens_and_holdoffs::{self as table, Grant, Table};
use crate::shared::Shared;
use crate::stats::Counter;
use crate::worker::{Worker, live};

/// The token that means "no token" on the wire: wait, and ask again.
pub const LEASE_WAIT: u64 = table::WAIT;

/// A lease read that missed.
#[derive(Clone, Copy, Debug)]
pub struct LeaseMiss<'s> {
    /// The right to fill the key; `None`: another client has it.
    pub token: Option<u64>,
    /// The recently deleted value.
    pub stale: Option<Item<'s>>,
}

impl Worker {
    /// `lease-get`: the live item, marked as used, or the result of a miss.
    ///
    /// # Errors
    ///
    /// A miss; counted.
    pub fn lease_get<'s>(
        &self,
        section: &'s Section<'_>,
        key: Key<'_>,
    ) -> Result<Item<'s>, LeaseMiss<'s>> {
        loop {
            if section.find(key.hash, key.bytes).is_some_and(|item| is_live(&item))
                && let Ok(item) = self.get(section, &key)
            {
                return Ok(item);
            }
            if let Some(miss) = self.lease_miss(section, key) {
                self.count(Counter::GetMisses);
                self.note_miss(&key);
                return Err(miss);
            }
        }
    }

    /// The answer to a reader that found nothing. `None` if an item exists by now.
    pub fn lease_miss<'s>(&self, section: &'s Section<'_>, key: Key<'_>) -> Option<LeaseMiss<'s>> {
        let table = self.shared.lease_table();
        let invalidations = self.shared.store().invalidations();
        let mut grant = None;
        section.update(key.hash, key.bytes, |present| {
            if live(present).is_none() {
                grant = Some(table.ask(key.hash, self.now_secs(), invalidations));
            }
            self.remove_found(present)
        });
        self.shared.charge_leases(table);
        let token = match grant? {
            Grant::Token(token) => Some(token),
            Grant::Wait => None,
        };
        self.count(if token.is_some() { Counter::LeaseIssued } else { Counter::LeaseWaits });
        Some(LeaseMiss { token, stale: self.stale(section, key) })
    }

    /// The key's deleted value, while it is readable as stale.
    pub fn stale<'s>(&self, section: &'s Section<'_>, key: Key<'_>) -> Option<Item<'s>> {
        self.shared.lease_table();
        let found = section.find(key.hash, key.bytes);
        let stale = found.filter(|item| item.liveness() == Liveness::Deleted);
        if stale.is_some() {
            self.count(Counter::StaleHits);
        }
        stale
    }

    /// `true` if a value may be stored with this token: it is the key's, and nothing has
    /// invalidated the key since. The token is used up. Under the key's lock.
    pub(crate) fn redeem(&self, key: Key<'_>, token: u64) -> bool {
        let given = self.shared.leases().and_then(|table| table.redeem(key.hash, token));
        let is_good =
            given.is_some_and(|count| !self.shared.store().invalidated_since(key.bytes, count));
        self.count(if is_good { Counter::LeaseSets } else { Counter::LeaseSetRejected });
        is_good
    }

    /// The holder of this token will not fill the key: its next reader gets another at once, if
    /// this is the last one given. Called under the key's lock.
    pub(crate) fn give_back(&self, key: Key<'_>, token: u64) {
        if self.shared.leases().is_some_and(|table| table.give_back(key.hash, token)) {
            self.count(Counter::LeaseReleased);
        }
    }

    /// `true` if a hold-off forbids an add of the key; counted. Called under the key's lock.
    pub(crate) fn is_held(&self, key: Key<'_>) -> bool {
        let is_held =
            self.shared.leases().is_some_and(|table| table.is_held(key.hash, self.now_secs()));
        if is_held {
            self.count(Counter::HoldoffRefused);
        }
        is_held
    }

    /// An item is being created or deleted: holders of tokens for the key have read an older state.
    /// Called under the key's lock.
    #[inline]
    pub(crate) fn void_lease(&self, key: Key<'_>) {
        if let Some(table) = self.shared.leases() {
            table.void(key.hash);
        }
    }

    /// Forbids adds of the key for `secs` seconds, and for less than one more. Called under its
    /// lock. `false` if there is no room to remember that.
    pub(crate) fn hold_off(&self, key: Key<'_>, secs: u32) -> bool {
        let now_secs = self.now_secs();
        let until = now_secs.saturating_add(secs).saturating_add(1);
        let table = self.shared.lease_table();
        let is_held = table.hold(key.hash, until, now_secs);
        self.shared.charge_leases(table);
        self.count(if is_held { Counter::Holdoffs } else { Counter::HoldoffNoMemory });
        is_held
    }

    /// The change that deletes an item: it is removed, or kept as stale for a time.
    pub(crate) fn removal(&self) -> Change {
        match (self.shared.leases(), self.shared.stale_secs()) {
            (None, _) | (_, 0) => Change::Remove,
            (Some(_), secs) => Change::RemoveSoon { until: self.now_secs().saturating_add(secs) },
        }
    }

    /// `flush_prefix`: invalidates every item stored before under keys that start with the prefix.
    /// An empty prefix covers every key.
    ///
    /// # Errors
    ///
    /// See [`FlushPrefixError`]; it is also counted.
    pub fn flush_prefix(&self, prefix: &[u8]) -> Result<(), FlushPrefixError> {
        self.count(Counter::CmdFlushPrefix);
        if !self.shared.settings().flush_enabled {
            return Err(FlushPrefixError::NotAllowed);
        }
        self.participant.flush_prefix(prefix).map_err(|_| FlushPrefixError::TooMany)
    }
}

/// The reason why a prefix is not invalidated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushPrefixError {
    /// Under `-F`.
    NotAllowed,
    /// Other prefixes have taken all its places since the cleaner's last purge.
    TooMany,
}

fn is_live(item: &Item<'_>) -> bool {
    item.liveness() == Liveness::Live
}

/// Numbers of the table, for `stats`.
#[derive(Clone, Copy, Debug, Default)]
pub struct LeaseStats {
    /// Bytes of the table; 0 until the first use.
    pub table_bytes: u64,
    /// Tokens that were evicted before they were used.
    pub lost: u64,
}

impl Shared {
    /// The table, if there is one yet.
    #[inline]
    pub(crate) fn leases(&self) -> Option<&Table> {
        self.leases.get()
    }

    /// The table, made at its first use.
    fn lease_table(&self) -> &Table {
        if let Some(table) = self.leases() {
            return table;
        }
        // Others wait while it is made, so that takes nothing from the store.
        let (limit, mut is_new) = (self.store().memory().limit, false);
        let table = self.leases.get_or_init(|| {
            is_new = true;
            Table::new(limit, Arc::clone(&self.lease_interval_secs))
        });
        if is_new {
            self.store().charge_fixed(table.bytes());
        }
        table
    }

    /// Charges the memory by which the table has grown.
    fn charge_leases(&self, table: &Table) {
        let bytes = table.take_growth();
        if bytes > 0 {
            self.store().charge_fixed(bytes);
        }
    }

    /// Numbers of the lease table.
    #[must_use]
    pub fn lease_stats(&self) -> LeaseStats {
        self.leases().map_or_else(LeaseStats::default, |table| LeaseStats {
            table_bytes: table.bytes(),
            lost: table.lost(),
        })
    }
}
