//! The memcached front: passes requests of clients to the tree of routes, and returns the answers.
//!
//! ```text
//!     net -> Front::serve -> proto       -> queue slot + ticket -> routes::Core -> servers
//!     net <- Front::serve <- queue <------- format <---- answer <- routes::Core <- servers
//! ```
//!
//! Each worker has one [`Front`]. The requests of one turn, of all connections, go to each server
//! in one write. The methods of `Front` are in one file for each protocol, and in files for stores,
//! logins and rights: each reads different requests, and all fill one queue.

mod account;
mod admission;
mod batch;
mod binary;
mod compressed;
mod format;
mod login;
mod packet;
mod permit;
mod queue;
mod slot;
mod spares;
mod store;
mod text;
mod trace;
mod watch;

use std::fmt::Arguments;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Instant;

use access::Refusals;
use net::{CloseReason, ConnId, Flow, Input, Occupation, Output, Peer, Service};
use proto::text::GetLine;
use routes::{Core, Submitted};
use spans::Context;
use upstream::{Event, Request, Ticket};

use crate::shared::Shared;
use ::watch::hub::{Events, Watching};
use account::Account;
use batch::Batch;
use compressed::Unpacked;
use queue::Queues;
use slot::Slot;
use store::Receiving;
use trace::Tracer;

/// Maximum number of a connection's requests before the others have their turn.
const REQUESTS_PER_TURN: usize = 256;

/// One worker's front.
#[derive(Debug)]
pub(crate) struct Front {
    pub(crate) core: Core,
    pub(crate) shared: Arc<Shared>,
    queues: Queues,
    /// The generation of the configuration in `core`.
    generation: u64,
    /// Memory is short, so connections are closed.
    is_short: bool,
    batch: Batch,
    /// Refused logins whose answers are due later.
    refusals: Refusals,
    /// The words of the current meta command; kept for its memory.
    words: Vec<u8>,
    tracer: Tracer,
}

/// One client connection.
#[derive(Debug)]
pub(crate) struct Session {
    queue: u32,
    /// A hash of the client's address.
    client: u32,
    /// The client's address; `None` for a unix socket.
    remote: Option<SocketAddr>,
    /// The number of the configuration's listener that the client connected to.
    listener: u16,
    /// A retrieval line whose keys are still in the input.
    line: Option<GetLine>,
    receiving: Option<Box<Receiving>>,
    /// A compressed block of which requests are still to be served.
    unpacked: Option<Box<Unpacked>>,
    /// Bytes of a refused data block to drop.
    swallow: u64,
    /// Close when everything owed has left.
    closes: bool,
    /// Set once the connection watches: it receives events, and its input is not read.
    watching: Option<Box<Watching>>,
    /// It has requested to watch.
    asks_to_watch: Option<Events>,
    /// Its protocol, by its first byte.
    dialect: Option<Dialect>,
    /// Its login, if clients must log in.
    client_login: Option<Box<login::Client>>,
    /// The announced trace of its next command.
    trace: Option<Box<Context>>,
}

impl Session {
    /// Returns true if a data block, or the rest of one, is outstanding.
    const fn is_sending(&self) -> bool {
        self.receiving.is_some() || self.swallow > 0
    }

    /// Returns true if a request is incomplete, or partly unserved.
    const fn is_asking(&self) -> bool {
        self.line.is_some() || self.is_sending() || self.unpacked.is_some()
    }

    /// Logs a fault of the connection.
    #[cold]
    fn fault(&self, what: Arguments<'_>) {
        match self.remote {
            Some(remote) => logging::fault(Some(remote.ip()), format_args!("{remote}: {what}")),
            None => logging::fault(None, format_args!("unix socket: {what}")),
        }
    }
}

/// The protocols that clients speak.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Dialect {
    Binary,
    Text,
}

/// The action after a step.
enum Step {
    /// Continue.
    Next,
    /// The input has no further complete request.
    Stop(Flow),
}

impl Front {
    /// Creates the front of this worker, with the configuration of this number.
    pub(crate) fn new(core: Core, shared: Arc<Shared>, worker: usize, generation: u64) -> Self {
        let traffic = Arc::clone(core.context().traffic());
        let account = Account::new(Arc::clone(&shared.budget), worker);
        let one_in = shared.options.trace_sample.unwrap_or(0);
        let tracer = Tracer::new(shared.registry.spans(), one_in);
        let queues = Queues::new(watch::Reporter::new(&shared.watchers), account, traffic);
        Self {
            core,
            shared,
            queues,
            generation,
            is_short: false,
            batch: Batch::default(),
            refusals: Refusals::default(),
            words: Vec::new(),
            tracer,
        }
    }

    /// Sends ready replies. Returns false if the output is full.
    #[inline]
    fn drain(&mut self, session: &Session, output: &mut Output<'_>) -> bool {
        self.queues.drain(session.queue, output)
    }

    /// Serves the input until something is missing.
    fn go_on(
        &mut self,
        session: &mut Session,
        input: &mut Input<'_>,
        output: &mut Output<'_>,
    ) -> Flow {
        self.queues.get(session.queue).serve(output.conn_id());
        let mut requests_left = REQUESTS_PER_TURN;
        loop {
            if !self.drain(session, output) {
                return Flow::Blocked;
            }
            let is_empty = self.queues.is_empty(session.queue);
            if session.closes {
                return if is_empty { Flow::Close } else { Flow::Wait };
            }
            if self.queues.is_full(session.queue) {
                return Flow::Wait;
            }
            if let Some(watching) = &session.watching {
                return if is_empty { watching.serve(input, output) } else { Flow::Wait };
            }
            if input.bytes().is_empty() && session.unpacked.is_none() {
                return Flow::NeedInput;
            }
            if !session.is_sending() && !self.queues.admits(session.queue) {
                return Flow::Wait;
            }
            if requests_left == 0 {
                return Flow::Yield;
            }
            requests_left -= 1;
            let step = self.step(session, input);
            if let Some(events) = session.asks_to_watch.take() {
                self.watch(session, events, output);
            }
            if let Step::Stop(flow) = step {
                // Replies that needed no server.
                return if self.drain(session, output) { flow } else { Flow::Blocked };
            }
        }
    }

    fn step(&mut self, session: &mut Session, input: &mut Input<'_>) -> Step {
        if let Some(unpacked) = session.unpacked.take() {
            return self.step_inside(session, unpacked);
        }
        match session.trace {
            None => self.step_once(session, input),
            Some(_) => self.step_in_trace(session, input),
        }
    }

    #[inline(always)]
    fn step_once(&mut self, session: &mut Session, input: &mut Input<'_>) -> Step {
        if session.swallow > 0 {
            let count = (input.bytes().len() as u64).min(session.swallow);
            // At most the available bytes.
            input.consume(usize::try_from(count).unwrap_or(0));
            session.swallow -= count;
            return if session.swallow > 0 { Step::Stop(Flow::NeedInput) } else { Step::Next };
        }
        if session.receiving.is_some() {
            return self.receive(session, input);
        }
        if let Some(line) = session.line {
            return self.keys(session, line, input);
        }
        self.read(session, input)
    }

    /// Reads one request.
    #[inline(always)]
    fn read(&mut self, session: &mut Session, input: &mut Input<'_>) -> Step {
        let is_packet = input.bytes().first() == Some(&proto::binary::REQUEST_MAGIC);
        let first = if is_packet { Dialect::Binary } else { Dialect::Text };
        match session.dialect.get_or_insert(first) {
            Dialect::Text => self.command(session, input),
            Dialect::Binary => self.packet(session, input),
        }
    }

    /// Submits a request, and answers at once if possible.
    #[inline(never)]
    fn submit(&mut self, queue: u32, slot: Slot, request: &Request<'_>) {
        // Longer values are refused: `store::VALUE_BYTES_MAX`.
        let asked_bytes = u32::try_from(request.value.len()).unwrap_or(0);
        let slot = slot.asking(asked_bytes).base64(request.base64);
        // Servers see the key without its routing prefix, unless their pool keeps it.
        let is_kept = request.key.first() == Some(&b'/') || slot.wants_key();
        let client_key = if is_kept { request.key } else { b"" };
        let ticket = self.queues.push(queue, slot, client_key);
        self.batch.asked();
        if self.tracer.is_due() {
            self.submit_traced(request, ticket);
        } else {
            self.ask_core(request, ticket);
        }
    }

    #[inline(always)]
    fn ask_core(&mut self, request: &Request<'_>, ticket: Ticket) {
        match self.core.submit(request, ticket) {
            Submitted::Done(reply) => {
                upstream::Sink::answer(&mut self.queues, ticket, &reply.get());
            }
            Submitted::InSteps => self.queues.hold_input(ticket),
            Submitted::Pending => {}
        }
    }

    /// Replaces the tree after a new configuration.
    fn reload(&mut self) {
        let current = self.shared.current();
        if current.generation != self.generation {
            self.generation = current.generation;
            self.core.replace(|upstream| (current.build)(upstream));
        }
    }
}

impl Service for Front {
    type Session = Session;

    fn begin_turn(&mut self, now: Instant) {
        self.is_short = reserve::is_low();
        if self.is_short {
            self.queues.give_back_spares();
        }
        self.batch.turn();
        self.queues.account.turn(now);
        self.queues.admission.turn(now);
        if let Some(is_watched) = self.queues.reporter.turn(now) {
            self.core.watch(is_watched);
        }
        self.core.turn(now);
        if self.shared.generation() != self.generation {
            self.reload();
        }
    }

    fn before_park(&mut self) {}

    fn open(&mut self, peer: &Peer) -> Session {
        let queue = self.queues.open();
        let address = peer.remote.map(|remote| remote.ip().to_string());
        let client = address.map_or(0, |address| hashing::spooky_hash32(address.as_bytes(), 0));
        Session {
            queue,
            client,
            remote: peer.remote,
            listener: self.shared.listeners.of(&peer.listener),
            line: None,
            receiving: None,
            unpacked: None,
            swallow: 0,
            closes: false,
            watching: None,
            asks_to_watch: None,
            dialect: None,
            client_login: self
                .shared
                .logins
                .as_deref()
                .map(|logins| Box::new(login::Client::new(logins, peer))),
            trace: None,
        }
    }

    fn serve(
        &mut self,
        session: &mut Session,
        input: &mut Input<'_>,
        output: &mut Output<'_>,
    ) -> Flow {
        if self.is_short || self.queues.get(session.queue).is_broken() {
            return Flow::CloseNow;
        }
        if session.client_login.is_some()
            && let Some(flow) = self.continue_login(session, output)
        {
            return flow;
        }
        let flow = self.go_on(session, input, output);
        self.queues.recount(session.queue);
        flow
    }

    fn datagram(&mut self, _: &Peer, _: &[u8], _: &mut Vec<u8>) -> net::DatagramFate {
        net::DatagramFate::Dropped
    }

    fn tls_failed(&mut self, session: &Session, reason: &str) {
        session.fault(format_args!("TLS: {reason}"));
    }

    fn close(&mut self, session: Session, reason: CloseReason) {
        match reason {
            CloseReason::NoLogin => {
                session.fault(format_args!("closed: it did not log in in time"));
            }
            CloseReason::SlowClient => {
                session.fault(format_args!("closed: it does not read its replies"));
            }
            _ => {}
        }
        self.queues.close(session.queue);
    }

    fn outside(&self) -> Option<BorrowedFd<'_>> {
        Some(self.core.poller())
    }

    fn on_outside(&mut self) {
        self.core.on_events(&mut self.queues);
    }

    fn deadline(&self) -> Option<Instant> {
        let admission = self.queues.admission.deadline();
        self.core.deadline().into_iter().chain(self.refusals.deadline()).chain(admission).min()
    }

    fn after_turn(&mut self, resumed: &mut Vec<ConnId>) {
        if self.batch.is_held() {
            self.core.hold(&mut self.queues);
        } else {
            self.core.settle(&mut self.queues);
        }
        if let Some((_, _, waiting)) = self.core.context().window() {
            self.core.context().traffic().set(Event::Waiting, waiting as u64);
        }
        self.queues.admit_waiting();
        if self.queues.resumed.is_empty()
            && self.queues.settle()
            && let Some(control) = self.shared.control.get()
        {
            // The clients to close may be other workers'.
            control.wake();
        }
        resumed.append(&mut self.queues.resumed);
        self.refusals.take_due(resumed);
    }

    fn is_unauthenticated(&self, session: &Session) -> bool {
        session.client_login.as_ref().is_some_and(|client| client.login.is_missing())
    }

    fn end_login_time(&mut self, session: &mut Session) {
        if let Some(client) = &mut session.client_login {
            client.end_time();
        }
    }

    fn is_short_of_memory(&self) -> bool {
        reserve::is_low()
    }

    fn take_dropped(&mut self, dropped: &mut Vec<ConnId>) {
        dropped.append(&mut self.queues.account.dropped);
    }

    fn is_holding(&self) -> bool {
        self.batch.has_held()
    }

    fn may_move(&self, session: &Session) -> bool {
        // The next request shows the protocol again, but not the user.
        let Session { closes, watching, asks_to_watch, client_login, trace, .. } = session;
        let watches = watching.is_some() || asks_to_watch.is_some();
        !session.is_asking() && !closes && !watches && client_login.is_none() && trace.is_none()
    }

    fn moved(&mut self, session: Session) {
        self.queues.close(session.queue);
    }

    fn occupation(&self, session: &Session) -> Occupation {
        if session.watching.is_some() {
            Occupation::Listening
        } else if session.is_asking() || session.closes {
            Occupation::Request
        } else {
            Occupation::None
        }
    }

    fn has_work(&self) -> bool {
        // Routes' work during and after a reply: deletes that fail are to be kept.
        self.core.has_tasks()
    }

    fn has_pending_replies(&self, session: &Session) -> bool {
        let is_pending = session.client_login.as_ref().is_some_and(|client| client.is_pending());
        is_pending || !self.queues.is_empty(session.queue)
    }
}
