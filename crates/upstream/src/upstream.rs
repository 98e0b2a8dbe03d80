//! All servers that one worker uses, their sockets in one poller, and their timeouts.
//!
//! A turn of the loop that owns this is: [`Upstream::on_events`] when [`Upstream::poller`] is
//! readable, any number of [`Upstream::ask`], then one [`Upstream::flush`], which sends what was
//! asked in the turn with one write a server.
//!
//! Servers stay in a list of their own, not in a ready-made slab: a place that is free keeps its
//! generation, by which late events of an old socket are known.

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

/// What the poller says of [`Upstream::watch_wake`]: no server has this number.
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
    /// Places of servers that nobody uses any more.
    free: Vec<u32>,
    by_address: BTreeMap<(Address, u64), Vec<u32>>,
    dirty: Vec<u32>,
    timers: BinaryHeap<Reverse<(u64, u32)>>,
    start: Instant,
    now_us: u64,
    buffer: Vec<u8>,
    told: Vec<u64>,
    window: Option<Sliding>,
    /// Somebody watches exchanges.
    is_watched: Arc<SendCell<bool>>,
    /// Where spans of traced requests go.
    spans: Option<Arc<Spans>>,
}

impl std::fmt::Debug for Upstream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Upstream").field("destinations", &self.destinations.len()).finish()
    }
}

impl Upstream {
    /// No servers yet, for the worker of this number.
    ///
    /// # Errors
    ///
    /// When there is no descriptor for the poller.
    pub fn new(worker: u32, registry: Registry, now: Instant) -> io::Result<Self> {
        let traffic = registry.add_worker();
        Self::counted_in(traffic, worker, registry, now)
    }

    /// The same for a worker that serves no client: its requests are not among those that the
    /// registry counts and times; its connections are.
    ///
    /// # Errors
    ///
    /// When there is no descriptor for the poller.
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

    /// No more than `window` says may be outstanding, over all servers.
    pub fn set_window(&mut self, window: Window) {
        self.set_window_with(window, Waiting::default());
    }

    /// Bounds what may be outstanding, and what may wait for that.
    pub fn set_window_with(&mut self, window: Window, waiting: Waiting) {
        self.window = Some(Sliding::new(window, waiting));
    }

    /// Requests that may be outstanding, are, and wait for that; without a window `None`.
    #[must_use]
    pub fn window(&self) -> Option<(f64, u32, usize)> {
        self.window.as_ref().map(Sliding::report)
    }

    /// Readable when [`Self::on_events`] is to be called.
    #[inline]
    #[must_use]
    pub fn poller(&self) -> BorrowedFd<'_> {
        self.poller.as_fd()
    }

    /// [`Self::poller`] is readable when this is, too.
    ///
    /// # Errors
    ///
    /// When the kernel has no memory for it.
    pub fn watch_wake(&self, wake: BorrowedFd<'_>) -> io::Result<()> {
        self.poller.watch_fd(wake, WAKE)
    }

    /// The time is `now`: once a turn.
    #[inline]
    pub fn turn(&mut self, now: Instant) {
        self.now_us = self.us(now);
    }

    fn us(&self, time: Instant) -> u64 {
        let since = time.saturating_duration_since(self.start);
        micros(since)
    }

    /// The server at `address`, used by these settings. Equal arguments give one server, until
    /// [`Self::release`] has ended each use.
    pub fn destination(&mut self, address: &Address, settings: &Settings) -> DestinationId {
        self.destination_in(address, settings, "")
    }

    /// The server at `address` as a member of a pool: it shares the connection with its other
    /// pools, and has latencies for each.
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
            // What waits for room in the window names its server by the place.
            let is_named = self.window.as_ref().is_some_and(|window| !window.is_empty());
            let free = if is_named { None } else { self.free.pop() };
            let id = match free.and_then(|id| Some((id, self.destinations.get_mut(id as usize)?))) {
                Some((id, gone)) => {
                    // Events of the connections before are not this one's.
                    made.last_generation = gone.last_generation.wrapping_add(1);
                    *gone = made;
                    id
                }
                None => {
                    self.destinations.push(made);
                    // Places are used again, and servers in use are far fewer than 2^32.
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

    /// These servers, which are in use, are a pool that fails open: when `upper` of them are
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

    /// The pool hears how the server does that has this place in it.
    pub fn watch_failures(&mut self, id: DestinationId, pool: Weak<Ejection>, place: usize) {
        if let Some(destination) = self.destinations.get_mut(id.place as usize) {
            // Those of configurations that are gone go now.
            destination.ejections.retain(|(pool, _)| pool.strong_count() > 0);
            destination.ejections.push((pool, place));
        }
    }

    /// The server has values that are known to be old: nobody asks it for values until it has none.
    pub fn set_dirty(&self, id: DestinationId, is_dirty: bool) {
        if let Some(destination) = self.destinations.get(id.place as usize) {
            destination.health.set_dirty(is_dirty);
        }
    }

    /// `true` if nobody asks the server for values: it has some that are known to be old.
    #[must_use]
    pub fn is_dirty(&self, id: DestinationId) -> bool {
        self.destinations.get(id.place as usize).is_some_and(|one| one.health.is_dirty())
    }

    /// `true` if the server has one user, for whom it has not answered all that it was asked, or is
    /// to be asked when the window has room: a [`release`](Self::release) would cut that off.
    #[must_use]
    pub fn is_awaited_by_one(&self, id: DestinationId) -> bool {
        let waits = || self.window.as_ref().is_some_and(|window| window.has_waiting_for(id));
        let destination = self.destinations.get(id.place as usize);
        destination.is_some_and(|one| one.users == 1 && (one.is_awaited() || waits()))
    }

    /// One user less; without any, the connection is closed, and what was asked fails.
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
            // Its place is another's when nothing can name it any more.
            self.free.push(id);
            self.by_address.retain(|_, ids| {
                ids.retain(|other| *other != id);
                !ids.is_empty()
            });
        }
    }

    /// Asks a server; its answer, or a failure, goes to a sink with this ticket, unless asking
    /// fails at once.
    ///
    /// # Errors
    ///
    /// Why the server is not asked; the sink hears nothing.
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

    /// A connection was begun: the poller tells when it is made.
    fn watch(&self, id: u32) {
        let destination = &self.destinations[id as usize];
        let Some(socket) = destination.socket() else { return };
        self.poller.watch(socket, event_data(id, destination.generation), true);
    }

    /// What is due earlier than any timer of it gets a timer.
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

    /// Takes what the servers have sent. True when another thread has something to say.
    pub fn on_events(&mut self, sink: &mut dyn Sink) -> bool {
        self.within_window(sink, Self::take_events)
    }

    /// Does `work` with a sink that the window sees.
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

    /// Does all that is due, and sends the requests that were made since the last call.
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

    /// What has waited for room in the window is asked, as far as there is room.
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

    /// Whoever was asked or has answered is dirty, and gets its timer here.
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

    /// The latest time at which [`Self::flush`] is to be called, whatever happens.
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

/// In an event's data: it is of the socket for datagrams.
const DATAGRAMS: u64 = 1 << 63;

/// What an event's data keeps of a generation.
const GENERATIONS: u32 = 0x7fff_ffff;

fn event_data(id: u32, generation: u32) -> u64 {
    u64::from(generation & GENERATIONS) << 32 | u64::from(id)
}
