//! twemproxy's `auto_eject_hosts`: the servers of a pool that are in use, as seen by one worker. It
//! uses no socket, and the clock is an argument.
//!
//! A server that fails `limit` times without an answer in between is ejected for `retry_us`; its
//! keys go to the others, by the same hash over fewer servers. A failure is a connection that could
//! not be made or has ended, or a request that was not sent because the server is knocked out.
//!
//! Source: `server_failure`, `server_ok` and `server_pool_update` of twemproxy's `nc_server.c`.

use crate::send_cell::{SendCell, SendRefCell};

/// The servers of one pool that are in use, as seen by one worker.
#[derive(Debug)]
pub struct Ejection {
    limit: u32,
    retry_us: u64,
    members: SendRefCell<Vec<Member>>,
    /// A server was ejected since the last [`Self::live`].
    is_changed: SendCell<bool>,
    /// The time at which the first ejected server returns; `None`: none is ejected.
    returns_us: SendCell<Option<u64>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Member {
    /// Failures since the last answer.
    failures: u32,
    /// Ejected until then.
    until_us: Option<u64>,
}

impl Ejection {
    /// Creates a pool of `servers` servers, all in use. Each leaves after `limit` failures, for
    /// `retry_us` microseconds.
    #[must_use]
    pub fn new(servers: usize, limit: u32, retry_us: u64) -> Self {
        Self {
            limit,
            retry_us,
            members: SendRefCell::new(vec![Member::default(); servers]),
            is_changed: SendCell::new(false),
            returns_us: SendCell::new(None),
        }
    }

    /// Records a failure of the server at this place.
    pub fn failed(&self, place: usize, now_us: u64) {
        let mut members = self.members.borrow_mut();
        let Some(member) = members.get_mut(place) else { return };
        member.failures += 1;
        if member.failures >= self.limit {
            *member = Member { failures: 0, until_us: Some(now_us.saturating_add(self.retry_us)) };
            self.is_changed.set(true);
        }
    }

    /// Records an answer of the server at this place.
    pub fn answered(&self, place: usize) {
        let mut members = self.members.borrow_mut();
        if let Some(member) = members.get_mut(place).filter(|member| member.failures != 0) {
            *member = Member::default();
        }
    }

    /// Returns true if [`Self::live`] would now return another result.
    #[inline]
    #[must_use]
    pub fn is_due(&self, now_us: u64) -> bool {
        self.is_changed.get() || self.returns_us.get().is_some_and(|at_us| now_us > at_us)
    }

    /// The places of the servers in use.
    #[must_use]
    pub fn live(&self, now_us: u64) -> Vec<usize> {
        let mut members = self.members.borrow_mut();
        for member in members.iter_mut() {
            member.until_us = member.until_us.filter(|until_us| *until_us > now_us);
        }
        self.is_changed.set(false);
        self.returns_us.set(members.iter().filter_map(|member| member.until_us).min());
        let places = members.iter().enumerate();
        places.filter(|(_, member)| member.until_us.is_none()).map(|(place, _)| place).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consecutive_failures_eject_for_a_time() {
        let pool = Ejection::new(3, 2, 1000);
        pool.failed(1, 10);
        pool.answered(1);
        pool.failed(1, 20);
        assert!(!pool.is_due(20));
        pool.failed(1, 30);
        assert!(pool.is_due(30));
        assert_eq!(pool.live(30), [0, 2]);
        pool.failed(0, 40);
        assert!(!pool.is_due(1030), "not before its time is over");
        assert!(pool.is_due(1031));
        assert_eq!(pool.live(1031), [0, 1, 2]);
        // It has as many tries as before.
        pool.failed(1, 1040);
        assert!(!pool.is_due(1040));
        pool.failed(1, 1050);
        assert_eq!(pool.live(1050), [0, 2]);
    }

    #[test]
    fn all_servers_can_be_ejected() {
        let pool = Ejection::new(2, 1, 1000);
        pool.failed(0, 0);
        pool.failed(1, 500);
        assert!(pool.live(600).is_empty());
        assert!(!pool.is_due(1000) && pool.is_due(1001));
        assert_eq!(pool.live(1001), [0]);
        assert_eq!(pool.live(1501), [0, 1]);
    }
}
