//! Idle timeouts, and the closing of connections that use too much of the buffers.

use std::cmp::Reverse;
use std::time::Duration;

use super::Worker;
use super::places::LOGIN_MS;
use crate::conn::Conn;
use crate::conn_id::Token;
use crate::control::ConnState;
use crate::peer::ListenAddress;
use crate::service::{CloseReason, Occupation, Service};
use crate::tls::{Broken, SESSION_BYTES};

/// Of one worker's connections, only this many of the last opened may have unfinished handshakes.
const HANDSHAKES_MAX: usize = 256;

/// If there is one session too many, one in this number of the maximum is closed.
const SESSIONS_SHARE: usize = 64;

/// Sessions of clients that have not logged in may take one in this number of the maximum from idle
/// sessions of others. Beyond that, they only take each other's places.
const UNAUTHENTICATED_SHARE: usize = 8;

/// A session that was used within this time is not closed for others.
const IDLE_MS: u64 = 1000;

/// A longer request does not keep a place that others need.
const REQUEST_MS: u64 = 5000;

/// A younger handshake is not closed for others: a crowd that comes at once is served.
const YOUNG_MS: u64 = 1000;

impl<S: Service> Worker<S> {
    pub(super) fn arm_timer(&mut self, slot: u32) {
        let (Some(wheel), Some(shortest)) =
            (&mut self.wheel, self.config.shortest_timeout(self.tls.is_some()))
        else {
            return;
        };
        if !self.conns.set_timer(slot, true) {
            wheel.insert(slot, self.now_ms.saturating_add(ms(shortest)));
        }
    }

    /// Checks the connections whose timer is due.
    pub(super) fn on_due(&mut self, due: &mut Vec<u32>) {
        let Some(wheel) = &mut self.wheel else { return };
        wheel.advance(self.now_ms, due);
        for slot in due.drain(..) {
            let Some((token, conn)) = self.conns.occupant(slot) else {
                self.conns.set_timer(slot, false);
                continue;
            };
            if let Some(deadline_ms) = conn.tls.as_ref().and_then(|tls| tls.handshake_deadline_ms())
            {
                if deadline_ms <= self.now_ms {
                    self.conns.set_timer(slot, false);
                    let reason = "the handshake took too long".to_owned();
                    self.on_broken(token, &Broken { reason, in_handshake: true });
                } else if let Some(wheel) = &mut self.wheel {
                    wheel.insert(slot, deadline_ms);
                }
                continue;
            }
            let login_ms = self.login_deadline_ms(token);
            if login_ms.is_some_and(|login_ms| login_ms <= self.now_ms) && self.end_login(token) {
                self.conns.set_timer(slot, false);
                self.close(token, CloseReason::NoLogin);
                continue;
            }
            let Some((_, conn)) = self.conns.occupant(slot) else { continue };
            let (limit, reason) = self.patience(conn);
            let last_ms = conn.handle.last_ms();
            let deadline_ms = limit.map(|limit| last_ms.saturating_add(ms(limit)));
            if deadline_ms.is_some_and(|deadline_ms| deadline_ms <= self.now_ms) {
                self.conns.set_timer(slot, false);
                self.close(token, reason);
            } else if let Some(wheel) = &mut self.wheel {
                wheel.insert(
                    slot,
                    deadline_ms.into_iter().chain(login_ms).min().unwrap_or(u64::MAX),
                );
            }
        }
    }

    /// The time for which the connection may move no byte, and the reason for closing it then.
    fn patience(&self, conn: &Conn<S::Session>) -> (Option<Duration>, CloseReason) {
        match conn.state {
            ConnState::Writing | ConnState::Closing => {
                (self.config.stall_timeout, CloseReason::SlowClient)
            }
            ConnState::Reading | ConnState::Ready if !self.may_be_silent(conn) => {
                (self.config.idle_timeout, CloseReason::Idle)
            }
            // The end of the drain is that of one that leaves.
            ConnState::Reading | ConnState::Ready | ConnState::Waiting | ConnState::Leaving => {
                (None, CloseReason::Idle)
            }
        }
    }

    /// True if the idle timeout does not apply to this client, as in memcached: a watcher has
    /// nothing to send, and a client of a unix socket lives on this host.
    fn may_be_silent(&self, conn: &Conn<S::Session>) -> bool {
        let is_local = matches!(*conn.handle.peer.listener, ListenAddress::Unix(_));
        is_local || self.service.occupation(&conn.session) == Occupation::Listening
    }

    /// Ends the time for the client's login. True if no answer to an attempt is pending; otherwise
    /// the client stays for that answer, but cannot attempt another login.
    fn end_login(&mut self, token: Token) -> bool {
        let Some(conn) = self.conns.get_mut(token) else { return true };
        let has_pending_replies = self.service.has_pending_replies(&conn.session);
        if has_pending_replies {
            self.service.end_login_time(&mut conn.session);
        }
        !has_pending_replies
    }

    /// The deadline of the client's login; `None` if it has logged in, or need not.
    fn login_deadline_ms(&mut self, token: Token) -> Option<u64> {
        let limit = self.config.login_timeout?;
        let conn = self.conns.get_mut(token)?;
        let is_unauthenticated = self.service.is_unauthenticated(&conn.session);
        // After a login that another failed attempt ended, the time counts from when this is seen.
        let since_ms =
            conn.unauthenticated_since_ms.filter(|_| is_unauthenticated).unwrap_or(self.now_ms);
        let was_noted = conn.unauthenticated_since_ms.is_some();
        conn.unauthenticated_since_ms = is_unauthenticated.then_some(since_ms);
        if is_unauthenticated && !was_noted {
            self.note_unauthenticated(token);
        }
        is_unauthenticated.then(|| since_ms.saturating_add(ms(limit)))
    }

    /// Closes the oldest connections with unfinished handshakes, if many were opened after them.
    /// Handshakes count towards no budget, so that clients without a login evict nothing; their
    /// number is bounded instead.
    pub(super) fn limit_handshakes(&mut self, opened: Token) {
        let Some(tls) = &mut self.tls else { return };
        tls.opened.push_back((opened, self.now_ms));
        while let Some(tls) = &mut self.tls
            && tls.opened.len() > HANDSHAKES_MAX
            && let Some(&(token, since_ms)) = tls.opened.front()
        {
            let conn = self.conns.get_mut(token);
            let in_handshake = conn
                .and_then(|conn| conn.tls.as_ref())
                .is_some_and(|tls| tls.handshake_deadline_ms().is_some());
            if in_handshake && self.now_ms.saturating_sub(since_ms) < YOUNG_MS {
                return;
            }
            tls.opened.pop_front();
            if in_handshake {
                let reason = "others came, and the handshake was not done".to_owned();
                self.on_broken(token, &Broken { reason, in_handshake });
            }
        }
    }

    /// Closes TLS sessions if there are too many: first of clients that have not logged in, then
    /// those without a request for longest. If all others are in use, the new one is closed.
    pub(super) fn limit_sessions(&mut self, newcomer: Token) {
        let most_bytes = self.config.session_bytes_max;
        let excess =
            self.tls.as_ref().map_or(0, |tls| tls.session_bytes.saturating_sub(most_bytes));
        if excess == 0 {
            return;
        }
        // A session has at least these bytes.
        let each = SESSION_BYTES.unsigned_abs();
        let (too_many, most) = (excess.div_ceil(each), most_bytes / each);
        let mut leaving = self.sessions_that_may_go(newcomer, most_bytes / UNAUTHENTICATED_SHARE);
        // Some more than needed, so that not every new session costs a check of all.
        let count = too_many.max(most / SESSIONS_SHARE).min(leaving.len());
        if count == 0 {
            return self.close(newcomer, CloseReason::Crowded);
        }
        leaving
            .select_nth_unstable_by_key(count - 1, |&(is_known, since_ms, _)| (is_known, since_ms));
        for (.., token) in leaving.drain(..count) {
            self.close(token, CloseReason::Crowded);
        }
    }

    /// The sessions that may be closed for a new one: with true, since when it has been idle, the
    /// session of a client that has logged in or need not; with false, since when it has had no
    /// login, that of another client, whose requests, all refused, do not keep it. If such clients
    /// have at most `unauthenticated_bytes_max`, each has some time for its login.
    fn sessions_that_may_go(
        &self,
        newcomer: Token,
        unauthenticated_bytes_max: usize,
    ) -> Vec<(bool, u64, Token)> {
        let mut known = Vec::new();
        let (mut unauthenticated, mut unauthenticated_bytes) = (Vec::new(), 0);
        for (token, conn) in self.conns.iter().filter(|(_, conn)| conn.session_charged > 0) {
            if self.service.is_unauthenticated(&conn.session) {
                let since_ms = conn.unauthenticated_since_ms.unwrap_or(self.now_ms);
                unauthenticated_bytes += conn.session_charged.unsigned_abs();
                unauthenticated.push((false, since_ms, token));
            } else if token != newcomer && self.may_give_way(conn) {
                known.push((true, conn.rested_ms, token));
            }
        }
        let is_share_full = unauthenticated_bytes > unauthenticated_bytes_max;
        let may_go = |&(_, since_ms, token): &(bool, u64, Token)| {
            let had_time = self.now_ms.saturating_sub(since_ms) >= LOGIN_MS;
            token != newcomer && (is_share_full || had_time)
        };
        known.extend(unauthenticated.into_iter().filter(may_go));
        known
    }

    /// True if the connection is idle, or in the middle of a request for so long that others come
    /// first, however many bytes it sends slowly.
    fn may_give_way(&self, conn: &Conn<S::Session>) -> bool {
        let patience_ms = match self.service.occupation(&conn.session) {
            Occupation::None if conn.state == ConnState::Reading && conn.buffered() == 0 => IDLE_MS,
            Occupation::None | Occupation::Request => REQUEST_MS,
            Occupation::Listening => return false,
        };
        self.now_ms.saturating_sub(conn.rested_ms) >= patience_ms
    }

    /// Closes connections that hold buffers until an eighth is free: first those without a login,
    /// then those that hold most for longest without progress.
    #[cold]
    pub(super) fn shed(&mut self) {
        // Some clients have read the kernel's bytes in the meantime.
        self.look_at_all_unread();
        if self.buffered <= self.config.buffer_bytes_max {
            return;
        }
        let holders = self.conns.iter().filter(|(_, conn)| conn.charged > 0);
        let mut holders: Vec<(bool, u64, usize, Token)> = holders
            .map(|(token, conn)| {
                let cost = self.held_ms(conn).saturating_mul(conn.charged as u64);
                (self.service.is_unauthenticated(&conn.session), cost, conn.charged, token)
            })
            .collect();
        // A client that has just received something goes last, regardless of its size.
        holders.sort_unstable_by_key(|&(is_unauthenticated, cost, bytes, _)| {
            Reverse((is_unauthenticated, cost, bytes))
        });
        let target = self.config.buffer_bytes_max / 8 * 7;
        for (.., token) in holders {
            if self.buffered <= target {
                break;
            }
            self.close(token, CloseReason::SlowClient);
        }
    }
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
