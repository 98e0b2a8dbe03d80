//! One connection: the loop's side of it, as in crate `net` for a socket.

use net::{CloseReason, ConnId, Flow, INPUT_MAX, Input, Output, Peer, Service, SimulatedSocket};
use testkit::Rng;

use super::client::Client;
use super::keys::Seen;
use crate::session::{Session, Worker};

/// A client, its socket and its session.
#[derive(Debug)]
pub(super) struct Connection {
    client: Client,
    socket: SimulatedSocket,
    session: Option<Session>,
    /// Bytes on their way to the server.
    sent: Vec<u8>,
    /// Bytes that were received and not consumed.
    left: Vec<u8>,
    state: State,
    /// The client takes few bytes at a time.
    is_slow: bool,
}

/// The next action of the loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Blocked,
    Closing,
    Reading,
    Ready,
    Waiting,
}

impl Connection {
    /// A connection of `client`.
    pub(super) fn new(worker: &mut Worker, number: u32, client: Client, is_slow: bool) -> Self {
        Self {
            client,
            socket: SimulatedSocket::new(number),
            session: Some(worker.open(&Peer::local())),
            sent: Vec::new(),
            left: Vec::new(),
            state: State::Reading,
            is_slow,
        }
    }

    /// Its name, by which the service refers to it.
    pub(super) fn name(&self) -> ConnId {
        self.socket.conn
    }

    /// Every request has its reply, or the connection was closed.
    pub(super) fn is_done(&self) -> bool {
        self.session.is_none() || self.client.is_done()
    }

    /// The client acts, then the loop.
    pub(super) fn turn(&mut self, worker: &mut Worker, rng: &mut Rng, scratch: &mut Vec<u8>) {
        if self.session.is_none() {
            return;
        }
        if rng.one_in(150) {
            return self.hang_up(worker);
        }
        if !rng.one_in(3) {
            self.client.ask(&mut self.sent);
        }
        self.socket.room += match (self.is_slow, rng.below(4)) {
            (true, 0) => 1 + rng.below(4000),
            (true, _) | (false, 0) => 0,
            (false, _) => 1 << 20,
        };
        let some = if rng.one_in(4) { rng.below(50) } else { rng.below(INPUT_MAX) };
        let came = some.min(self.sent.len()).min(INPUT_MAX - self.left.len());
        match self.state {
            State::Blocked if self.socket.take_pending() => self.serve(worker, scratch),
            State::Closing if self.socket.take_pending() => panic!("closed: {:?}", self.client),
            State::Reading if came > 0 => {
                self.left.extend(self.sent.drain(..came));
                self.serve(worker, scratch);
            }
            State::Ready => self.serve(worker, scratch),
            State::Blocked | State::Closing | State::Reading | State::Waiting => {}
        }
        self.client.hear(&mut self.socket.taken);
    }

    /// The service has the answer that the connection waits for.
    pub(super) fn resume(&mut self, worker: &mut Worker, scratch: &mut Vec<u8>) {
        if self.session.is_some() && self.state == State::Waiting {
            self.serve(worker, scratch);
            self.client.hear(&mut self.socket.taken);
        }
    }

    /// The account of large values needs the memory that the client holds.
    pub(super) fn drop_by_server(&mut self, worker: &mut Worker) {
        if let Some(session) = self.session.take() {
            worker.close(session, CloseReason::SlowClient);
            self.client.lose();
        }
    }

    /// Ends the run, and returns the client's observations.
    pub(super) fn close(mut self, worker: &mut Worker) -> Vec<Seen> {
        if let Some(session) = self.session.take() {
            assert!(self.socket.taken.is_empty(), "a reply too many: {:?}", self.client);
            worker.close(session, CloseReason::Eof);
        }
        self.client.end()
    }

    /// The client disconnects at any point, and connects again.
    fn hang_up(&mut self, worker: &mut Worker) {
        if let Some(session) = self.session.take() {
            worker.close(session, CloseReason::Eof);
        }
        self.client.lose();
        self.session = Some(worker.open(&Peer::local()));
        self.sent.clear();
        self.left.clear();
        self.socket.pending.clear();
        self.socket.taken.clear();
        self.state = State::Reading;
    }

    fn serve(&mut self, worker: &mut Worker, scratch: &mut Vec<u8>) {
        let Some(session) = &mut self.session else { return };
        let left = std::mem::take(&mut self.left);
        let mut input = Input::new(&left);
        let mut output = Output::to_simulated(scratch, &mut self.socket);
        let flow = worker.serve(session, &mut input, &mut output);
        output.flush();
        self.left.extend_from_slice(input.bytes());
        if flow == Flow::CloseNow && worker.is_revoked(session) {
            return self.drop_by_server(worker);
        }
        self.state = match flow {
            Flow::CloseNow => panic!("closed at once: {:?}", self.client),
            Flow::Close => State::Closing,
            _ if !self.socket.pending.is_empty() => State::Blocked,
            Flow::Blocked => State::Blocked,
            Flow::NeedInput => State::Reading,
            Flow::Wait => State::Waiting,
            Flow::Yield => State::Ready,
        };
    }
}
