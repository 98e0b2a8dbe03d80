//! The event loop of one worker.
//!
//! ```text
//!     wait -> turn(now) -> for eight events at a time: read each once, then serve each, one write
//!                       -> for each connection that yielded before: serve again
//!                       -> timeouts, buffers over their limit, connections for other workers
//! ```
//!
//! # Laws
//!
//! 1. A connection is served at most once per turn from its socket and once from the ready list; so
//!    one that always has more to do delays the others only by its fair share.
//! 2. While output is pending, the connection is not served and not read: a peer that reads nothing
//!    costs the bytes of one read and those that did not fit into its socket.
//! 3. The poller is armed only for the event of the connection's state, so it never returns in
//!    vain.
//!
//! The methods of [`Worker`] are in six files: here the loop and the life of connections, in
//! `traffic` their bytes, in `unread` those in the kernel, in `timeouts`, `places` and `moving` the
//! reasons for which the loop ends or moves them. All keep one rule: a connection's slot, timer,
//! handle and charged bytes change together.

mod moving;
mod places;
mod timeouts;
mod traffic;
mod unread;

use std::collections::VecDeque;
use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::event::epoll;
use rustix::time::Timespec;
use socket2::SockRef;

use crate::config::{BufferBudget, CONNECTIONS_MORE, Config};
use crate::conn::{Conn, Served};
use crate::conn_id::ConnId;
use crate::conn_id::Token;
use crate::conn_table::{ConnTable, NO_GENERATION};
use crate::control::{ConnHandle, ConnState, Shared, WorkerShared, add};
use crate::datagrams::{DatagramSocket, Datagrams};
use crate::io::{FLUSH_BYTES, INPUT_MAX};
use crate::mailbox::{MESSAGES_KEPT, Message};
use crate::peer::{ListenAddress, Peer};
use crate::placement::Placement;
use crate::service::{CloseReason, DatagramFate, Flow, Occupation, Service};
use crate::timer_wheel::TimerWheel;
use crate::tls::{OPENED_BYTES_MAX, Scratch, Tls, TlsAcceptor};
use moving::Consolidator;
use unread::{LISTED_BYTES, Looks};

/// Events taken from the poller at once.
const EVENTS: usize = 256;

/// Connections read before the first of them is served.
const GROUP: usize = 8;

/// Scratch that has grown beyond this is freed after the turn, in bytes.
const SCRATCH_KEPT: usize = 2 * FLUSH_BYTES;

/// The time for which the kernel keeps the replies of a closed connection while its client takes
/// none of them: without it, for as long as the client's system answers. Each byte taken restarts
/// it.
const UNTAKEN_MAX: Duration = Duration::from_secs(10);

/// Reads whose bytes are dropped when a connection is closed: as much as the kernel mostly holds.
const DROPPED_READS_MAX: usize = 64;

const EVENTFD: Token = Token { slot: u32::MAX, generation: NO_GENERATION };

/// The descriptor of [`Service::outside`].
const OUTSIDE: Token = Token { slot: u32::MAX - 1, generation: NO_GENERATION };

pub(crate) struct Worker<S: Service> {
    index: usize,
    shared: Arc<Shared>,
    config: Config,
    budget: Arc<dyn BufferBudget>,
    service: S,
    poller: OwnedFd,
    udp: Vec<DatagramSocket>,
    /// The ports of the UDP listeners.
    udp_ports: Vec<u16>,
    conns: ConnTable<Conn<S::Session>>,
    /// Served again in the next turn, or in this one's second part.
    ready: Vec<Token>,
    wheel: Option<TimerWheel>,
    /// Bytes held by connections' buffers, and by the kernel if those count.
    buffered: usize,
    looks: Looks,
    draining: Option<Instant>,
    now_ms: u64,
    /// One for each connection of a group.
    read_buffers: Vec<Vec<u8>>,
    scratch: Vec<u8>,
    /// Made when the first datagram comes.
    datagrams: Option<Datagrams>,
    tls: Option<TlsWorker>,
    /// Connections whose clients had to log in when they were noted, oldest first. Some may have
    /// ended or logged in since.
    unauthenticated: VecDeque<Token>,
    /// Set if there are other workers and connections are gathered.
    consolidator: Option<Consolidator>,
}

/// A worker's TLS state.
struct TlsWorker {
    acceptor: Arc<TlsAcceptor>,
    scratch: Scratch,
    /// The buffer for decrypted reads.
    plain: Vec<u8>,
    /// The connections opened last, and when: only these may have unfinished handshakes.
    opened: VecDeque<(Token, u64)>,
    /// Bytes of the sessions whose handshake is done.
    session_bytes: usize,
}

impl TlsWorker {
    /// Counts the session of a connection whose handshake is done.
    fn charge<S>(&mut self, conn: &mut Conn<S>) {
        conn.session_charged = conn.tls.as_ref().map_or(0, |tls| tls.session_bytes());
        self.session_bytes += conn.session_charged.unsigned_abs();
    }
}

impl<S: Service> Worker<S> {
    pub(crate) fn new(
        index: usize,
        shared: Arc<Shared>,
        config: Config,
        budget: Arc<dyn BufferBudget>,
        udp: Vec<(Arc<ListenAddress>, UdpSocket)>,
        make: impl FnOnce() -> S,
    ) -> io::Result<Self> {
        let poller = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let eventfd = shared.workers[index].mailbox.eventfd();
        epoll::add(&poller, eventfd, data(EVENTFD), epoll::EventFlags::IN)?;
        let udp: Vec<_> = udp
            .into_iter()
            .map(|(address, socket)| DatagramSocket::new(&address, socket))
            .collect();
        for (slot, socket) in (0u32..).zip(&udp) {
            let token = Token { slot, generation: NO_GENERATION };
            epoll::add(&poller, socket, data(token), epoll::EventFlags::IN)?;
        }
        let mut udp_ports: Vec<u16> = udp.iter().filter_map(DatagramSocket::port).collect();
        udp_ports.dedup();
        let now_ms = shared.ms(Instant::now());
        let service = make();
        if let Some(outside) = service.outside() {
            epoll::add(&poller, outside, data(OUTSIDE), epoll::EventFlags::IN)?;
        }
        let consolidator = match config.placement {
            Placement::Consolidated(consolidation) if shared.workers.len() > 1 => {
                Some(Consolidator::new(consolidation, now_ms))
            }
            _ => None,
        };
        let conns = ConnTable::with_room(config.connections_expected());
        let tls = config.tls.clone();
        let shortest = config.shortest_timeout(tls.is_some());
        let wheel = shortest.map(|shortest| TimerWheel::new(shortest, now_ms));
        Ok(Self {
            index,
            shared,
            config,
            budget,
            service,
            poller,
            udp,
            udp_ports,
            conns,
            ready: Vec::new(),
            wheel,
            buffered: 0,
            looks: Looks::default(),
            draining: None,
            now_ms,
            read_buffers: (0..GROUP).map(|_| vec![0; INPUT_MAX]).collect(),
            scratch: Vec::with_capacity(SCRATCH_KEPT),
            datagrams: None,
            tls: tls.map(|acceptor| TlsWorker {
                acceptor,
                scratch: Scratch::new(),
                plain: vec![0; INPUT_MAX + OPENED_BYTES_MAX],
                opened: VecDeque::new(),
                session_bytes: 0,
            }),
            unauthenticated: VecDeque::new(),
            consolidator,
        })
    }

    /// Serves until stopped and, when draining, until the connections and the service's own work
    /// are done.
    pub(crate) fn run(mut self) {
        let mut events = Vec::with_capacity(EVENTS);
        let (mut turn, mut mail, mut due) = (Vec::new(), Vec::new(), Vec::new());
        let (mut resumed, mut group) = (Vec::new(), Vec::with_capacity(GROUP));
        while !self.is_done() {
            events.clear();
            self.wait(&mut events);
            std::mem::swap(&mut turn, &mut self.ready);
            for event in &events {
                match Token::from_u64(event.data.u64()) {
                    EVENTFD => self.own().mailbox.take(&mut mail),
                    OUTSIDE => self.service.on_outside(),
                    Token { slot, generation: NO_GENERATION } => self.on_datagrams(slot),
                    token => group.push(token),
                }
                if group.len() == GROUP {
                    self.on_group(&mut group);
                }
            }
            self.on_group(&mut group);
            for message in mail.drain(..) {
                self.on_message(message);
            }
            mail.shrink_to(MESSAGES_KEPT);
            for token in turn.drain(..) {
                self.on_ready(token);
            }
            self.after_turn(&mut resumed);
            self.on_due(&mut due);
            self.consolidate();
            self.look_at_unread();
            if self.buffered > self.config.buffer_bytes_max {
                self.shed();
            }
            if self.scratch.capacity() > SCRATCH_KEPT {
                self.scratch = Vec::with_capacity(SCRATCH_KEPT);
            }
        }
        self.end();
    }

    /// Serves the connections whose answers have come, until there are none, and closes those that
    /// the service drops.
    fn after_turn(&mut self, resumed: &mut Vec<ConnId>) {
        loop {
            self.service.after_turn(resumed);
            if resumed.is_empty() {
                break;
            }
            for ConnId(token) in resumed.drain(..) {
                self.resume(token);
            }
        }
        self.service.take_dropped(resumed);
        for ConnId(token) in resumed.drain(..) {
            self.close(token, CloseReason::SlowClient);
        }
    }

    /// Serves a connection after an event outside its socket; one that waits for the socket is
    /// served then.
    fn resume(&mut self, token: Token) {
        let state = self.conns.get_mut(token).map(|conn| conn.state);
        if matches!(state, Some(ConnState::Reading | ConnState::Waiting)) {
            self.serve_left(token);
        }
    }

    fn is_done(&self) -> bool {
        let has_work = || self.conns.len() > 0 || self.service.has_work();
        self.draining.is_some_and(|deadline| !has_work() || deadline <= Instant::now())
    }

    /// Polls, without waiting when connections are ready, and reads the clock.
    fn wait(&mut self, events: &mut Vec<epoll::Event>) {
        let is_busy = !self.ready.is_empty() || self.service.is_holding();
        let wait_ms = if is_busy { Some(0) } else { self.wait_ms() };
        if wait_ms != Some(0) {
            self.service.before_park();
        }
        let timeout = wait_ms.and_then(|ms| Timespec::try_from(Duration::from_millis(ms)).ok());
        let spare = rustix::buffer::spare_capacity(events);
        // An interrupted wait has found nothing.
        let _ = epoll::wait(&self.poller, spare, timeout.as_ref());
        let now = Instant::now();
        self.now_ms = self.shared.ms(now);
        add(&self.own().counters.turns, 1);
        self.service.begin_turn(now);
    }

    /// Milliseconds until a timeout needs a check; `None` when none does.
    fn wait_ms(&self) -> Option<u64> {
        let due = self.wheel.as_ref().and_then(|wheel| wheel.wait_ms(self.now_ms));
        let drained = self
            .draining
            .map(|end| self.shared.ms(end).saturating_sub(self.now_ms).saturating_add(1));
        // One millisecond more, as the wait is rounded down.
        let wanted = self
            .service
            .deadline()
            .map(|end| self.shared.ms(end).saturating_add(1).saturating_sub(self.now_ms));
        due.into_iter().chain(drained).chain(wanted).min()
    }

    fn own(&self) -> &WorkerShared {
        &self.shared.workers[self.index]
    }

    fn on_message(&mut self, message: Message) {
        match message {
            Message::Accepted(socket, peer)
                if self.service.is_short_of_memory() || !self.make_room() =>
            {
                drop(socket);
                self.shared.accept.reject(&peer.listener);
                self.count_off();
            }
            Message::Moved(socket, ..) if !self.make_room() => {
                drop(socket);
                self.count_off();
            }
            Message::Extra(socket, peer, others) => self.on_extra(socket, peer, others),
            Message::Accepted(socket, peer) => {
                let tls = self.begin_tls(&peer);
                self.open(socket, peer, tls);
            }
            Message::Moved(socket, peer, tls) => {
                let token = self.open(socket, peer, Ok(tls));
                // Some of the other worker's output may still be in the kernel.
                self.count_sent(token, LISTED_BYTES);
            }
            Message::Drain(deadline) => self.drain(deadline),
            Message::Stop => self.draining = Some(Instant::now()),
            Message::Wake(token) => self.resume(token),
        }
    }

    /// Makes room for one more connection; false when there is no memory for it.
    fn make_room(&mut self) -> bool {
        self.conns.has_room() || self.conns.try_grow(CONNECTIONS_MORE)
    }

    fn open(
        &mut self,
        socket: OwnedFd,
        peer: Peer,
        tls: Result<Option<Box<Tls>>, rustls::Error>,
    ) -> Token {
        let session = self.service.open(&peer);
        let (tls, is_refused) = match tls {
            Ok(tls) => (tls, false),
            Err(_) => (None, true),
        };
        let handle = Arc::new(ConnHandle::new(peer, self.now_ms));
        let mut conn = Conn::new(socket, session, tls, Arc::clone(&handle));
        conn.unauthenticated_since_ms =
            self.service.is_unauthenticated(&conn.session).then_some(self.now_ms);
        let in_handshake = conn.tls.as_ref().map(|tls| tls.handshake_deadline_ms().is_some());
        if in_handshake == Some(false)
            && let Some(tls) = &mut self.tls
        {
            tls.charge(&mut conn);
            conn.rested_ms = self.now_ms;
        }
        let bytes = conn_bytes(&conn);
        let token = self.conns.insert(conn);
        self.set_handle(token.slot, Some(handle));
        self.budget.charge(bytes);
        let Some(conn) = self.conns.get_mut(token) else { return token };
        let flags = epoll::EventFlags::IN;
        if is_refused || epoll::add(&self.poller, conn.as_fd(), data(token), flags).is_err() {
            self.close(token, CloseReason::SocketError);
            return token;
        }
        self.arm_timer(token.slot);
        self.note_unauthenticated(token);
        match in_handshake {
            Some(true) => self.limit_handshakes(token),
            Some(false) => self.limit_sessions(token),
            None => {}
        }
        if self.draining.is_some() {
            self.read(token);
        }
        token
    }

    fn close(&mut self, token: Token, reason: CloseReason) {
        let Some(mut conn) = self.take(token) else { return };
        if let Some(tls) = &mut self.tls
            && conn.state != ConnState::Leaving
        {
            conn.send_close_notify(&mut tls.scratch);
        }
        if matches!(reason, CloseReason::Drain | CloseReason::InputOverflow | CloseReason::Service)
        {
            // Otherwise the kernel resets the connection and drops its unsent replies. A client
            // that sends more later can still cause that.
            for _ in 0..DROPPED_READS_MAX {
                if !matches!(conn.drop_unread(&mut self.read_buffers[0]), Ok(1..)) {
                    break;
                }
            }
        }
        let counters = &self.own().counters;
        match reason {
            CloseReason::Idle => add(&counters.idle_kicks, 1),
            CloseReason::SlowClient => add(&counters.slow_kicks, 1),
            CloseReason::Crowded => add(&counters.tls_kicks, 1),
            _ => {}
        }
        let (socket, session, ..) = conn.into_parts();
        if reason == CloseReason::SlowClient {
            // The kernel would keep the rest of the replies until the client takes them, or for
            // minutes. If this fails, it does so.
            let _ = SockRef::from(&socket).set_linger(Some(Duration::ZERO));
        } else {
            // Only TCP has this, and only there the kernel keeps replies of closed sockets.
            let _ = SockRef::from(&socket).set_tcp_user_timeout(Some(UNTAKEN_MAX));
        }
        self.service.close(session, reason);
        drop(socket);
        self.count_off();
    }

    /// Counts a connection that has ended.
    fn count_off(&self) {
        // SeqCst pairs with the acceptor, which stores `is_waiting` and then counts connections:
        // one of the two sees the other's change.
        self.own().connections.fetch_sub(1, Ordering::SeqCst);
        if self.shared.accept.is_waiting.load(Ordering::SeqCst) {
            self.shared.accept.eventfd.notify();
        }
    }

    /// Removes a connection from all structures but the poller.
    fn take(&mut self, token: Token) -> Option<Conn<S::Session>> {
        let conn = self.conns.remove(token)?;
        self.set_handle(token.slot, None);
        self.charge_buffers(conn.charged, 0);
        self.budget.charge(-conn_bytes(&conn));
        if let Some(tls) = &mut self.tls {
            tls.session_bytes -= conn.session_charged.unsigned_abs();
        }
        Some(conn)
    }

    fn set_handle(&self, slot: u32, handle: Option<Arc<ConnHandle>>) {
        let mut conn_handles =
            self.own().conn_handles.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = slot as usize;
        let missing = (slot + 1).saturating_sub(conn_handles.len());
        // Without memory for it, the connection is not listed.
        if missing > 0 && conn_handles.try_reserve_exact(missing.max(CONNECTIONS_MORE)).is_ok() {
            conn_handles.resize(slot + 1, None);
        }
        if let Some(place) = conn_handles.get_mut(slot) {
            *place = handle;
        }
    }

    /// Puts the connection into the state that its session's answer requires.
    fn after(&mut self, token: Token, served: &Served) {
        let Served { flow, outcome } = *served;
        let counters = &self.shared.workers[self.index].counters;
        add(&counters.writes, outcome.sent.writes);
        let is_draining = self.draining.is_some();
        let Some(conn) = self.conns.get_mut(token) else { return };
        conn.handle.set_last_ms(self.now_ms);
        let state = match flow {
            _ if outcome.failed => return self.close(token, CloseReason::SocketError),
            Flow::CloseNow => return self.close(token, CloseReason::Service),
            Flow::Close if outcome.blocked => ConnState::Closing,
            Flow::Close => return self.close(token, CloseReason::Service),
            _ if outcome.blocked => ConnState::Writing,
            Flow::NeedInput
                if (is_draining || conn.is_at_end)
                    && self.service.has_pending_replies(&conn.session) =>
            {
                ConnState::Waiting
            }
            Flow::NeedInput if conn.is_at_end => return self.close(token, CloseReason::Eof),
            Flow::NeedInput if is_draining && !conn.has_unread() => {
                return self.close(token, CloseReason::Drain);
            }
            Flow::NeedInput if is_draining => {
                conn.end_output(self.tls.as_mut().map(|tls| &mut tls.scratch));
                ConnState::Leaving
            }
            Flow::NeedInput if conn.input_len() >= INPUT_MAX => {
                return self.close(token, CloseReason::InputOverflow);
            }
            Flow::NeedInput => ConnState::Reading,
            Flow::Wait => ConnState::Waiting,
            Flow::Yield => {
                add(&counters.conn_yields, 1);
                ConnState::Ready
            }
            // Blocked, but all bytes have been sent: there is room again.
            Flow::Blocked => ConnState::Ready,
        };
        conn.set_state(state);
        let occupation = self.service.occupation(&conn.session);
        conn.handle.set_mid_request(occupation == Occupation::Request);
        if conn.session_charged > 0
            && state == ConnState::Reading
            && conn.buffered() == 0
            && occupation == Occupation::None
            && !self.service.has_pending_replies(&conn.session)
        {
            conn.rested_ms = self.now_ms;
        }
        let (was, is) = (conn.charged, conn.buffered() + conn.unread.bytes);
        conn.charged = is;
        let interest = match state {
            ConnState::Writing | ConnState::Closing => epoll::EventFlags::OUT,
            ConnState::Waiting => epoll::EventFlags::empty(),
            ConnState::Leaving | ConnState::Reading | ConnState::Ready => epoll::EventFlags::IN,
        };
        if conn.interest != interest {
            conn.interest = interest;
            // Changing the flags of a registered descriptor cannot fail.
            let changed = epoll::modify(&self.poller, conn.as_fd(), data(token), interest);
            debug_assert!(changed.is_ok());
        }
        if state == ConnState::Ready {
            self.ready.push(token);
        }
        self.charge_buffers(was, is);
        self.count_sent(token, outcome.sent.bytes);
    }

    fn charge_buffers(&mut self, was: usize, is: usize) {
        if was == is {
            return;
        }
        self.buffered = self.buffered + is - was;
        // Relaxed: for `stats`, and only this thread writes it.
        self.own().counters.buffered_bytes.store(self.buffered as u64, Ordering::Relaxed);
        self.budget.charge(is.cast_signed() - was.cast_signed());
    }

    /// Answers a batch of datagrams of one socket; the next turn answers the rest.
    fn on_datagrams(&mut self, slot: u32) {
        let Some(socket) = self.udp.get_mut(slot as usize) else { return };
        let batch = self.datagrams.get_or_insert_with(Datagrams::new);
        let counters = &self.shared.workers[self.index].counters;
        add(&counters.reads, 1);
        for index in 0..socket.receive(batch) {
            let start = batch.reply_bytes();
            let Some((datagram, remote, replies)) = batch.request(index) else { break };
            add(&counters.bytes_read, datagram.len() as u64);
            if is_of_server(remote.port(), &self.udp_ports) {
                add(&counters.udp_dropped, 1);
                continue;
            }
            let fate = self.service.datagram(&socket.peer(remote), datagram, replies);
            add(&counters.udp_requests, u64::from(fate != DatagramFate::Dropped));
            add(&counters.udp_dropped, u64::from(fate != DatagramFate::Replied));
            add(&counters.bytes_written, (batch.reply_bytes() - start) as u64);
            socket.reply(batch, start, remote);
            if batch.is_full() {
                add(&counters.writes, socket.send(batch));
            }
        }
        add(&counters.writes, socket.send(batch));
    }

    /// Gives every connection one last read, and closes those with nothing left to do.
    fn drain(&mut self, deadline: Instant) {
        self.draining = Some(deadline);
        self.udp.clear();
        let reading = self.conns.iter().filter(|(_, conn)| conn.state == ConnState::Reading);
        let reading: Vec<Token> = reading.map(|(token, _)| token).collect();
        for token in reading {
            self.read(token);
        }
    }

    /// Closes the rest, including accepted connections that are not yet open.
    fn end(mut self) {
        let left: Vec<Token> = self.conns.iter().map(|(token, _)| token).collect();
        for token in left {
            self.close(token, CloseReason::Drain);
        }
        self.service.before_park();
    }
}

/// True if a datagram's source port is a server's, not a client's: a port where this server (and
/// others like it) listens, or one that the system gives to no client. It could answer the answer.
fn is_of_server(port: u16, own: &[u16]) -> bool {
    port < PORT_OF_CLIENTS_MIN || own.contains(&port)
}

/// Lower ports are for the services of privileged processes.
const PORT_OF_CLIENTS_MIN: u16 = 1024;

fn data(token: Token) -> epoll::EventData {
    epoll::EventData::new_u64(token.to_u64())
}

/// Bytes of a connection in addition to its buffers.
fn conn_bytes<S>(conn: &Conn<S>) -> isize {
    let bytes = size_of::<Conn<S>>() + size_of::<ConnHandle>() + 64;
    bytes.cast_signed() + conn.session_charged
}
