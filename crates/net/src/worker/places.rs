//! Places for connections over the limit: those whose clients have not logged in give way.

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;

use super::Worker;
use crate::conn_id::Token;
use crate::mailbox::Message;
use crate::peer::Peer;
use crate::service::{CloseReason, Service};

/// A client has this long for its login before its connection gives way to another.
pub(super) const LOGIN_MS: u64 = 1000;

impl<S: Service> Worker<S> {
    /// Opens a connection over the limit in the place of one without a login, of this worker or of
    /// `others` after it; refuses it if there is none, or if this worker ends, as the others do.
    pub(super) fn on_extra(&mut self, socket: OwnedFd, peer: Peer, others: usize) {
        // SeqCst pairs with the store in `set_max_connections`. The count includes this connection.
        let most = self.shared.accept.max_connections.load(Ordering::SeqCst);
        let is_over = self.shared.connections() > most;
        let oldest = if is_over { self.oldest_unauthenticated() } else { None };
        if let Some(token) = oldest {
            self.close(token, CloseReason::NoLogin);
        } else if is_over && others > 0 && self.draining.is_none() {
            return self.pass_on(Message::Extra(socket, peer, others - 1));
        } else if is_over {
            self.shared.accept.refuse(&socket, &peer.listener);
            drop(socket);
            return self.count_off();
        }
        self.shared.accept.accept(&peer.listener);
        self.on_message(Message::Accepted(socket, peer));
    }

    /// Gives the next worker a connection that is not open.
    fn pass_on(&self, message: Message) {
        let next = &self.shared.workers[(self.index + 1) % self.shared.workers.len()];
        // First subtract, then add, as for a connection that moves. SeqCst like all writes of the
        // count, which the acceptor pairs with `is_waiting`.
        self.own().connections.fetch_sub(1, Ordering::SeqCst);
        next.connections.fetch_add(1, Ordering::SeqCst);
        next.mailbox.post(message);
    }

    /// Notes a new connection, or one whose client is no longer logged in. This also forgets noted
    /// ones, so that there are no more than were noted while the first of them was without a login.
    pub(super) fn note_unauthenticated(&mut self, token: Token) {
        if self.config.login_timeout.is_none() || !self.is_unauthenticated(token) {
            return;
        }
        self.forget_authenticated();
        // Without memory for the note, the connection keeps its place until the login's deadline.
        if self.unauthenticated.try_reserve(1).is_ok() {
            self.unauthenticated.push_back(token);
        }
    }

    /// The connection that has been without a login for longest, if it had time for one.
    fn oldest_unauthenticated(&mut self) -> Option<Token> {
        self.forget_authenticated();
        let &token = self.unauthenticated.front()?;
        let since_ms = self.conns.get_mut(token)?.unauthenticated_since_ms?;
        (self.now_ms.saturating_sub(since_ms) >= LOGIN_MS).then_some(token)
    }

    /// Forgets the first noted connections that have ended or whose clients have logged in.
    fn forget_authenticated(&mut self) {
        while let Some(&token) = self.unauthenticated.front()
            && !self.is_unauthenticated(token)
        {
            self.unauthenticated.pop_front();
        }
    }

    fn is_unauthenticated(&mut self, token: Token) -> bool {
        let conn = self.conns.get_mut(token);
        conn.is_some_and(|conn| self.service.is_unauthenticated(&conn.session))
    }
}
