//! All servers of one worker, their sockets in one poller, and their timeouts.
//!
//! A turn of the owner's loop is: [`Upstream::on_events`] when [`Upstream::poller`] is readable,
//! any number of [`Upstream::ask`], then one [`Upstream::flush`], which sends the turn's requests
//! with one write per server.
//!
//! The list of servers is not a ready-made slab, because a free place keeps its generation, which
//! identifies late events of an old socket.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use crate::address::Address;
use crate::destination::{Destination, Worker};
use crate::destination_id::DestinationId;
use crate::ejection::Ejection;
use crate::micros::micros;
use crate::registry::Registry;
use crate::reply::Reply;
use crate::request::Request;
use crate::send_cell::SendCell;
use crate::settings::Settings;
use crate::sink::{Sink, Ticket};
use crate::system::Poller;
use crate::traffic::{Count, Traffic};
use crate::window::{Sliding, Through, Waiting, Window};
use narrow::to_u32;
use proto::Failure;
use spans::Spans;

/// Bytes read from a server at once.
const READ_BYTES: usize = 128 * 1024;

/// The poller's data for [`Upstream::watch_wake`]: no server has this number.
const WAKE: u64 = u64::MAX;

/// All servers of one worker.
pub struct Upstream {
    poller: Poller,
    worker: u32,
    registry: Registry,
    traffic: Arc<Traffic>,
    /// See [`Self::in_background`].
    is_background: bool,
    destinations: Vec<Destination>,
    /// Places of servers without users.
    free: Vec<u32>,
    by_address: BTreeMap<(Address, u64), Vec<u32>>,
    dirty: Vec<u32>,
    timers: BinaryHeap<Reverse<(u64, u32)>>,
    start: Instant,
    now_us: u64,
    buffer: Vec<u8>,
    told: Vec<u64>,
    window: Option<Sliding>,
    /// Set while exchanges are watched.
    is_watched: Arc<SendCell<bool>>,
    /// The queue for spans of traced requests.
    spans: Option<Arc<Spans>>,
}

impl std::fmt::Debug for Upstream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Upstream").field("destinations", &self.destinations.len()).finish()
    }
}

impl Upstream {
    /// Creates an upstream without servers, for the worker of this number.
    ///
    /// # Errors
    ///
    /// If no descriptor is available for the poller.
    pub fn new(worker: u32, registry: Registry, now: Instant) -> io::Result<Self> {
        let traffic = registry.add_worker();
        Self::counted_in(traffic, worker, registry, now)
    }

    /// The same for a worker without clients: the registry does not count or time its requests, but
    /// counts its connections.
    ///
    /// # Errors
    ///
    /// If no descriptor is available for the poller.
    pub fn in_background(worker: u32, registry: Registry, now: Instant) -> io::Result<Self> {
        let upstream = Self::counted_in(Arc::default(), worker, registry, now)?;
        Ok(Self { is_background: true, ..upstream })
    }

    fn counted_in(
        traffic: Arc<Traffic>,
        worker: u32,
        registry: Registry,
        now: Instant,
    ) -> io::Result<Self> {
        Ok(Self {
            poller: Poller::new()?,
            worker,
            traffic,
            is_background: false,
            spans: registry.spans(),
            registry,
            destinations: Vec::new(),
            free: Vec::new(),
            by_address: BTreeMap::new(),
            dirty: Vec::new(),
            timers: BinaryHeap::new(),
            start: now,
            now_us: 0,
            buffer: vec![0; READ_BYTES],
            told: Vec::new(),
            window: None,
            is_watched: Arc::default(),
        })
    }

    /// Reports exchanges to sinks from now on, or no longer.
    #[inline]
    pub fn set_watched(&self, is_watched: bool) {
        self.is_watched.set(is_watched);
    }

    /// Limits the outstanding requests over all servers to `window`.
    pub fn set_window(&mut self, window: Window) {
        self.set_window_with(window, Waiting::default());
    }

    /// Limits outstanding requests, and those that wait for room.
    pub fn set_window_with(&mut self, window: Window, waiting: Waiting) {
        self.window = Some(Sliding::new(window, waiting));
    }

    /// The window, the outstanding and the waiting requests; `None` without a window.
    #[must_use]
    pub fn window(&self) -> Option<(f64, u32, usize)> {
        self.window.as_ref().map(Sliding::report)
    }

    /// Readable when [`Self::on_events`] must be called.
    #[inline]
    #[must_use]
    pub fn poller(&self) -> BorrowedFd<'_> {
        self.poller.as_fd()
    }

    /// Makes [`Self::poller`] readable whenever `wake` is.
    ///
    /// # Errors
    ///
    /// If the kernel has no memory for it.
    pub fn watch_wake(&self, wake: BorrowedFd<'_>) -> io::Result<()> {
        self.poller.watch_fd(wake, WAKE)
    }

    /// Sets the time to `now`. Call it once per turn.
    #[inline]
    pub fn turn(&mut self, now: Instant) {
        self.now_us = self.us(now);
    }

    fn us(&self, time: Instant) -> u64 {
        let since = time.saturating_duration_since(self.start);
        micros(since)
    }

    /// The server at `address` with these settings. Equal arguments give one server, until
    /// [`Self::release`] has ended each use.
    pub fn destination(&mut self, address: &Address, settings: &Settings) -> DestinationId {
        self.destination_in(address, settings, "")
    }

    /// The server at `address` as a member of a pool. All its pools share the connection, but have
    /// separate latencies.
    pub fn destination_in(
        &mut self,
        address: &Address,
        settings: &Settings,
        pool: &str,
    ) -> DestinationId {
        let key = (address.clone(), micros(settings.timeout));
        let ids = self.by_address.entry(key).or_default();
        let found = ids.iter().copied().find(|id| {
            self.destinations.get(*id as usize).is_some_and(|found| found.settings == *settings)
        });
        let id = found.unwrap_or_else(|| {
            let health = self.registry.health(address);
            let counters = self.registry.counters(address, settings, self.is_background);
            let (address, settings) = (address.clone(), settings.clone());
            let watched = Arc::clone(&self.is_watched);
            let traffic = Arc::clone(&self.traffic);
            let spans = self.spans.clone();
            let who = Worker { number: self.worker, traffic, is_watched: watched, spans };
            let mut made = Destination::new(address, settings, health, counters, who);
            // Requests that wait for room in the window name their server by the place.
            let is_named = self.window.as_ref().is_some_and(|window| !window.is_empty());
            let free = if is_named { None } else { self.free.pop() };
            let id = match free.and_then(|id| Some((id, self.destinations.get_mut(id as usize)?))) {
                Some((id, gone)) => {
                    // Events of previous connections are not this one's.
                    made.last_generation = gone.last_generation.wrapping_add(1);
                    *gone = made;
                    id
                }
                None => {
                    self.destinations.push(made);
                    // Places are reused, and there are far fewer servers in use than 2^32.
                    to_u32(self.destinations.len() - 1)
                }
            };
            ids.push(id);
            id
        });
        let destination = &mut self.destinations[id as usize];
        destination.users += 1;
        DestinationId { place: id, pool: destination.counters.latencies().pool(pool) }
    }

    /// Makes these servers, which are in use, a pool that fails open when `upper` of them are
    /// knocked out, until fewer than `lower` are.
    pub fn track(&mut self, pool: &[(&Address, Settings)], lower: u32, upper: u32) {
        let addresses: Vec<_> = pool.iter().map(|(address, _)| (*address).clone()).collect();
        let tracker = self.registry.fail_open(&addresses, lower, upper);
        for (address, settings) in pool {
            for destination in &mut self.destinations {
                if destination.users > 0
                    && destination.address == **address
                    && destination.settings == *settings
                {
                    destination.fail_open = Some(Arc::clone(&tracker));
                }
            }
        }
    }

    /// Reports the server's failures and answers to the pool, as its member at this place.
    pub fn watch_failures(&mut self, id: DestinationId, pool: Weak<Ejection>, place: usize) {
        if let Some(destination) = self.destinations.get_mut(id.place as usize) {
            // Drops pools of removed configurations.
            destination.ejections.retain(|(pool, _)| pool.strong_count() > 0);
            destination.ejections.push((pool, place));
        }
    }

    /// Sets whether the server has values known to be old. Such a server receives no gets.
    pub fn set_dirty(&self, id: DestinationId, is_dirty: bool) {
        if let Some(destination) = self.destinations.get(id.place as usize) {
            destination.health.set_dirty(is_dirty);
        }
    }

    /// Returns true if the server receives no gets, because it has values that are known to be old.
    #[must_use]
    pub fn is_dirty(&self, id: DestinationId) -> bool {
        self.destinations.get(id.place as usize).is_some_and(|one| one.health.is_dirty())
    }

    /// Returns true if the server has one user, and has unanswered requests or some that wait for
    /// the window: a [`release`](Self::release) would cut them off.
    #[must_use]
    pub fn is_awaited_by_one(&self, id: DestinationId) -> bool {
        let waits = || self.window.as_ref().is_some_and(|window| window.has_waiting_for(id));
        let destination = self.destinations.get(id.place as usize);
        destination.is_some_and(|one| one.users == 1 && (one.is_awaited() || waits()))
    }

    /// Removes one user. Without users, the connection is closed, and its requests fail.
    pub fn release(&mut self, id: DestinationId, sink: &mut dyn Sink) {
        let DestinationId { place: id, .. } = id;
        let Some(destination) = self.destinations.get_mut(id as usize) else { return };
        destination.users = destination.users.saturating_sub(1);
        if destination.users == 0 {
            match &mut self.window {
                Some(window) => destination.end(self.now_us, &mut Through { window, sink }),
                None => destination.end(self.now_us, sink),
            }
            let Destination { address, settings, counters, .. } = destination;
            self.registry.forget(address, settings, counters);
            // The place is reused once nothing can name it.
            self.free.push(id);
            self.by_address.retain(|_, ids| {
                ids.retain(|other| *other != id);
                !ids.is_empty()
            });
        }
    }

    /// Sends a request to a server. Its answer, or a failure, goes to a sink with this ticket,
    /// unless this call fails.
    ///
    /// # Errors
    ///
    /// The reason why the request is not sent; the sink receives nothing.
    #[inline]
    pub fn ask(
        &mut self,
        id: DestinationId,
        request: &Request<'_>,
        ticket: Ticket,
    ) -> Result<(), Failure> {
        let (op, is_aside) = (request.op, request.is_aside);
        self.traffic.count(if is_aside { Count::SentAside(op) } else { Count::Sent(op) });
        let asked = match &mut self.window {
            None => self.ask_now(id, request, ticket),
            Some(window) if window.is_open() => self.ask_in_window(id, request, ticket),
            Some(window) => window.wait(id, request, ticket, self.now_us),
        };
        if let Err(failure) = asked {
            self.traffic.failed(failure, is_aside);
        }
        asked
    }

    fn ask_in_window(
        &mut self,
        id: DestinationId,
        request: &Request<'_>,
        ticket: Ticket,
    ) -> Result<(), Failure> {
        self.ask_now(id, request, ticket)?;
        if let Some(window) = &mut self.window {
            window.asked();
        }
        Ok(())
    }

    #[inline]
    fn ask_now(
        &mut self,
        id: DestinationId,
        request: &Request<'_>,
        ticket: Ticket,
    ) -> Result<(), Failure> {
        let DestinationId { place: id, pool } = id;
        let Some(destination) = self.destinations.get_mut(id as usize) else {
            return Err(Failure::LocalError);
        };
        let was = destination.last_generation;
        let asked = destination.ask(request, ticket, pool, self.now_us);
        if !destination.is_dirty {
            destination.is_dirty = true;
            self.dirty.push(id);
        }
        let has_socket = destination.datagrams.as_ref().is_some_and(|udp| !udp.is_watched);
        if was != destination.last_generation {
            self.watch(id);
        }
        if has_socket {
            self.watch_datagrams(id);
        }
        asked
    }

    fn watch_datagrams(&mut self, id: u32) {
        let destination = &mut self.destinations[id as usize];
        let Some(datagrams) = &mut destination.datagrams else { return };
        datagrams.is_watched = true;
        self.poller.watch(datagrams.socket(), DATAGRAMS | u64::from(id), false);
    }

    /// Watches a new connection; the poller reports when it is made.
    fn watch(&self, id: u32) {
        let destination = &self.destinations[id as usize];
        let Some(socket) = destination.socket() else { return };
        self.poller.watch(socket, event_data(id, destination.generation), true);
    }

    /// Sets a timer for events that are due before any existing timer.
    #[inline]
    fn arm(&mut self, id: u32) {
        let destination = &mut self.destinations[id as usize];
        if let Some(due_us) = destination.due_us()
            && destination.timer_us.is_none_or(|timer_us| due_us < timer_us)
        {
            destination.timer_us = Some(due_us);
            self.timers.push(Reverse((due_us, id)));
        }
    }

    /// Reads the servers' replies. Returns true if another thread has a message.
    pub fn on_events(&mut self, sink: &mut dyn Sink) -> bool {
        self.within_window(sink, Self::take_events)
    }

    /// Runs `work` with a sink that reports to the window.
    fn within_window<T>(
        &mut self,
        sink: &mut dyn Sink,
        work: fn(&mut Self, &mut dyn Sink) -> T,
    ) -> T {
        match self.window.take() {
            None => work(self, sink),
            Some(mut window) => {
                let result = work(self, &mut Through { window: &mut window, sink });
                self.window = Some(window);
                result
            }
        }
    }

    fn take_events(&mut self, sink: &mut dyn Sink) -> bool {
        let mut is_woken = false;
        let mut told = std::mem::take(&mut self.told);
        self.poller.take(&mut told);
        for bits in told.drain(..) {
            is_woken |= bits == WAKE;
            let (id, generation) = ((bits & 0xffff_ffff) as u32, (bits >> 32) as u32);
            let Some(destination) = self.destinations.get_mut(id as usize) else { continue };
            let was = destination.last_generation;
            if bits & DATAGRAMS != 0 {
                destination.on_datagrams(&mut self.buffer, self.now_us, sink);
            } else if !destination.is_told(|of| of & GENERATIONS == generation) {
                continue;
            } else {
                destination.on_event(&mut self.buffer, self.now_us, sink);
            }
            let was_dirty = std::mem::replace(&mut destination.is_dirty, true);
            if was != destination.last_generation {
                self.watch(id);
            }
            if !was_dirty {
                self.dirty.push(id);
            }
        }
        self.told = told;
        is_woken
    }

    /// Handles all due timeouts, and sends the requests made since the last call.
    pub fn flush(&mut self, sink: &mut dyn Sink) {
        self.within_window(sink, Self::do_due);
        loop {
            self.ask_waiting(sink);
            self.within_window(sink, Self::send);
            // Failures make room as well.
            if !self.window.as_ref().is_some_and(Sliding::has_next) {
                return;
            }
        }
    }

    /// Sends requests that wait for room in the window, as far as there is room.
    fn ask_waiting(&mut self, sink: &mut dyn Sink) {
        while let Some(ticket) = self.window.as_mut().and_then(|one| one.give_up(self.now_us)) {
            sink.answer(ticket, &Reply::failed(Failure::Busy, b""));
        }
        while let Some((id, request, ticket)) = self.window.as_mut().and_then(Sliding::next) {
            if let Err(failure) = self.ask_in_window(id, &request.get(), ticket) {
                sink.answer(ticket, &Reply::failed(failure, b""));
            }
        }
    }

    fn do_due(&mut self, sink: &mut dyn Sink) {
        while let Some(Reverse((at_us, id))) = self.timers.peek().copied()
            && at_us <= self.now_us
        {
            self.timers.pop();
            let destination = &mut self.destinations[id as usize];
            if destination.timer_us == Some(at_us) {
                destination.timer_us = None;
                let was = destination.last_generation;
                destination.on_due(self.now_us, sink);
                if destination.is_dirty {
                    self.dirty.push(id);
                }
                if was != destination.last_generation {
                    self.watch(id);
                }
                self.arm(id);
            }
        }
    }

    /// Sends to servers with new requests or replies, and sets their timers.
    fn send(&mut self, sink: &mut dyn Sink) {
        while let Some(id) = self.dirty.pop() {
            let destination = &mut self.destinations[id as usize];
            let was = destination.last_generation;
            let wants_output = destination.flush(self.now_us, sink) || destination.is_connecting();
            if was != destination.last_generation {
                destination.polls_output = true;
                self.watch(id);
                self.arm(id);
                continue;
            }
            if wants_output != destination.polls_output {
                destination.polls_output = wants_output;
                self.poll_for(id, wants_output);
            }
            self.arm(id);
        }
    }

    fn poll_for(&self, id: u32, output: bool) {
        let destination = &self.destinations[id as usize];
        let Some(socket) = destination.socket() else { return };
        self.poller.change(socket, event_data(id, destination.generation), output);
    }

    /// The latest time at which [`Self::flush`] must be called.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        let timer = self.timers.peek().map(|Reverse((at_us, _))| *at_us);
        let window = self.window.as_ref().and_then(Sliding::due_us);
        self.instant(timer.into_iter().chain(window).min()?)
    }

    /// The time `us` microseconds after the start.
    #[inline]
    #[must_use]
    pub fn instant(&self, us: u64) -> Option<Instant> {
        self.start.checked_add(Duration::from_micros(us))
    }

    /// Counts of the requests that this worker received and of its work.
    #[inline]
    pub fn traffic(&self) -> &Arc<Traffic> {
        &self.traffic
    }

    /// The number of the worker.
    #[inline]
    #[must_use]
    pub fn worker(&self) -> u32 {
        self.worker
    }

    /// Microseconds since the start, as of this turn.
    #[inline]
    #[must_use]
    pub fn now_us(&self) -> u64 {
        self.now_us
    }
}

/// In an event's data: marks the socket for datagrams.
const DATAGRAMS: u64 = 1 << 63;

/// The part of a generation in an event's data.
const GENERATIONS: u32 = 0x7fff_ffff;

fn event_data(id: u32, generation: u32) -> u64 {
    u64::from(generation & GENERATIONS) << 32 | u64::from(id)
}
