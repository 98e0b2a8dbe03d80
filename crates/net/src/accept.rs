//! The acceptor: one thread that takes connections from the listeners and gives each to a worker
//! ([`crate::placement`]).
//!
//! It is in one of two states. *Open*: every listener is armed. *Waiting*: descriptors have run
//! out, or connections are at their limit and clients have to queue. The listeners are off, so that
//! a level-triggered poller does not spin, and the thread sleeps until a worker closes a
//! connection. Without descriptors it also retries periodically, since other code may free them.
//!
//! Relaxed is enough for the counts of `stats`, and for the count of connections by which a worker
//! is chosen: a slightly old one makes the choice only a little worse.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::{SocketAddrAny, SocketFlags};
use rustix::time::Timespec;

use crate::config::Config;
use crate::control::{Shared, WorkerShared};
use crate::mailbox::Message;
use crate::peer::Peer;
use crate::placement::Placement;
use crate::sockets::StreamListener;

/// The wait for a descriptor before the next attempt.
const BACK_OFF: Duration = Duration::from_millis(10);

/// The maximum number of connections taken from one listener before the next.
const BATCH: usize = 64;

/// The maximum number of connections over the limit for which workers look for a place. They take
/// descriptors that the owner of the process keeps free for other files.
const EXTRA_MAX: usize = 16;

const EVENTFD: u64 = u64::MAX;

pub(crate) struct Acceptor {
    shared: Arc<Shared>,
    listeners: Vec<StreamListener>,
    poller: OwnedFd,
    placement: Placement,
    /// Clients have to log in, so that connections without a login give way to others.
    wants_login: bool,
    /// Since when the listeners are off, and the latest end.
    waiting: Option<Waiting>,
}

struct Waiting {
    since: Instant,
    patience: Option<Duration>,
}

/// The place of the next connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// One that is free.
    Free,
    /// That of a connection whose client has not logged in, if there is one.
    Another,
    /// None.
    None,
}

/// The result of an attempt to accept.
enum Accepted {
    /// A connection was handed on or refused, or has ended: the next one may succeed.
    One,
    /// The queue is empty.
    Done,
    /// No room for another connection: turn the listeners off.
    Full(Option<Duration>),
}

impl Acceptor {
    pub(crate) fn new(
        shared: Arc<Shared>,
        listeners: Vec<StreamListener>,
        config: &Config,
    ) -> Result<Self, Errno> {
        let poller = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let eventfd = epoll::EventData::new_u64(EVENTFD);
        epoll::add(&poller, shared.accept.eventfd.as_fd(), eventfd, epoll::EventFlags::IN)?;
        for (index, listener) in listeners.iter().enumerate() {
            let data = epoll::EventData::new_u64(index as u64);
            epoll::add(&poller, listener, data, epoll::EventFlags::IN)?;
        }
        let (placement, wants_login) = (config.placement, config.login_timeout.is_some());
        Ok(Self { shared, listeners, poller, placement, wants_login, waiting: None })
    }

    /// Accepts until the server ends; closes the listeners.
    pub(crate) fn run(mut self) {
        let mut events = Vec::with_capacity(64);
        while !self.is_ending() {
            events.clear();
            let timeout = self.waiting.as_ref().and_then(|waiting| waiting.patience);
            let timeout = timeout.and_then(|patience| Timespec::try_from(patience).ok());
            let spare = rustix::buffer::spare_capacity(&mut events);
            // An interrupted wait is a wait that found nothing.
            let _ = epoll::wait(&self.poller, spare, timeout.as_ref());
            if events.iter().any(|event| event.data.u64() == EVENTFD) {
                self.shared.accept.eventfd.drain();
            }
            if self.waiting.is_some() {
                self.resume();
            }
            for event in &events {
                if self.waiting.is_none() {
                    self.accept_from(event.data.u64());
                }
            }
        }
    }

    fn accept_from(&mut self, source: u64) {
        let Some(listener) = usize::try_from(source).ok().and_then(|i| self.listeners.get(i))
        else {
            return;
        };
        for _ in 0..BATCH {
            // A client closed by the shutdown that connects again is for a successor: this process
            // would not read its request.
            if self.is_ending() {
                return;
            }
            match self.accept_one(listener) {
                Accepted::One => {}
                Accepted::Done => return,
                Accepted::Full(patience) => return self.wait(patience),
            }
        }
    }

    /// Takes one connection and hands it on, or refuses it.
    fn accept_one(&self, listener: &StreamListener) -> Accepted {
        let place = self.place();
        if place != Place::Free && self.shared.accept.rejection.is_none() {
            return Accepted::Full(None);
        }
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        match rustix::net::acceptfrom_with(listener, flags) {
            Ok((socket, _)) if place == Place::None => {
                self.shared.accept.refuse(&socket, &listener.address);
                Accepted::One
            }
            Ok((socket, remote)) => {
                self.hand_over(socket, remote, listener, place);
                Accepted::One
            }
            // The peer gave up while it queued, or a signal came: the next one may succeed.
            Err(Errno::CONNABORTED | Errno::INTR | Errno::PROTO | Errno::PERM) => Accepted::One,
            Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                Accepted::Full(Some(BACK_OFF))
            }
            Err(_) => Accepted::Done,
        }
    }

    fn is_ending(&self) -> bool {
        // SeqCst pairs with the store in `stop_accepting`, which rings the eventfd after it.
        self.shared.accept.is_ending.load(Ordering::SeqCst)
    }

    fn is_full(&self) -> bool {
        self.place() != Place::Free
    }

    fn place(&self) -> Place {
        // SeqCst pairs with the store in `set_max_connections`.
        let most = self.shared.accept.max_connections.load(Ordering::SeqCst);
        match self.shared.connections() {
            open if open < most => Place::Free,
            open if self.wants_login && open < most.saturating_add(EXTRA_MAX) => Place::Another,
            _ => Place::None,
        }
    }

    fn hand_over(
        &self,
        socket: OwnedFd,
        remote: Option<SocketAddrAny>,
        listener: &StreamListener,
        place: Place,
    ) {
        let Some(worker) = self.worker() else { return };
        let accept = &self.shared.accept;
        let Some(counts) = accept.counts(&listener.address) else { return };
        let remote = remote.and_then(|remote| remote.try_into().ok());
        let peer = Peer { remote, listener: Arc::clone(&listener.address), fd: socket.as_raw_fd() };
        // SeqCst like all writes of the count, see `Shared::connections`. The worker subtracts it
        // later: the mailbox's lock orders that after this.
        worker.connections.fetch_add(1, Ordering::SeqCst);
        let is_extra = place == Place::Another;
        // Counted before the worker can have it: a client that requests statistics on it counts
        // itself. A worker counts those over the limit that it opens.
        counts.accepted.fetch_add(u64::from(!is_extra), Ordering::Relaxed);
        let message = if is_extra {
            Message::Extra(socket, peer, self.shared.workers.len() - 1)
        } else {
            Message::Accepted(socket, peer)
        };
        if !worker.mailbox.try_post(message) {
            counts.accepted.fetch_sub(u64::from(!is_extra), Ordering::Relaxed);
            // SeqCst pairs with the addition above.
            worker.connections.fetch_sub(1, Ordering::SeqCst);
            counts.rejected.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The worker that gets the next connection.
    fn worker(&self) -> Option<&WorkerShared> {
        let workers = &self.shared.workers;
        match self.placement {
            Placement::Even => {
                workers.iter().min_by_key(|worker| worker.connections.load(Ordering::Relaxed))
            }
            Placement::Consolidated(consolidation) => {
                workers.get(consolidation.place(&self.shared.loads(self.shared.ms(Instant::now()))))
            }
        }
    }

    /// Turns the listeners off until there may be room.
    fn wait(&mut self, patience: Option<Duration>) {
        let accept = &self.shared.accept;
        // SeqCst pairs with the worker that subtracts a connection and then reads `is_waiting`.
        accept.is_waiting.store(true, Ordering::SeqCst);
        // Checked once more after announcing: a connection closed in between rang no eventfd.
        if patience.is_none() && !self.is_full() {
            accept.is_waiting.store(false, Ordering::SeqCst);
            return;
        }
        accept.disabled.fetch_add(1, Ordering::Relaxed);
        self.waiting = Some(Waiting { since: Instant::now(), patience });
        self.arm(epoll::EventFlags::empty());
    }

    /// Turns the listeners on again if there may be room.
    fn resume(&mut self) {
        let Some(waiting) = &self.waiting else { return };
        if waiting.patience.is_none() && self.is_full() {
            return;
        }
        let accept = &self.shared.accept;
        let off_us = u64::try_from(waiting.since.elapsed().as_micros()).unwrap_or(u64::MAX);
        accept.disabled_us.fetch_add(off_us, Ordering::Relaxed);
        // SeqCst as in `wait`. A worker that still sees true rings the eventfd in vain.
        accept.is_waiting.store(false, Ordering::SeqCst);
        self.waiting = None;
        self.arm(epoll::EventFlags::IN);
    }

    fn arm(&self, flags: epoll::EventFlags) {
        for (index, listener) in self.listeners.iter().enumerate() {
            let data = epoll::EventData::new_u64(index as u64);
            // Changing the flags of a registered descriptor cannot fail.
            let changed = epoll::modify(&self.poller, listener, data, flags);
            debug_assert!(changed.is_ok());
        }
    }
}
