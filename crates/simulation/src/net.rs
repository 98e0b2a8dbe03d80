//! The simulated network: bytes arrive later, in other pieces, or never, and servers fail.
//!
//! All events are drawn from one seeded sequence, in order: equal seeds are equal runs.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use testkit::Rng;

use super::handshake::Rules;
use super::server::{Server, Session};
use upstream::Address;
use upstream::system::simulated::SocketId;

/// The address of server `number`.
pub fn address(number: usize) -> Address {
    Address::Tcp(([10, 0, 0, 1], 11_000 + u16::try_from(number).unwrap_or(0)).into())
}

/// A temporary failure of a server, or of the path to it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Trouble {
    /// No failure.
    None,
    /// It is gone: connections are reset, and new ones refused.
    Dead,
    /// Nothing arrives in either direction, until it ends.
    Cut,
    /// Like `Cut`, but packets are lost: they arrive when the sender's system resends them.
    Drops,
    /// It has forgotten its connections, without a reset.
    Forgets,
    /// It accepts everything, and answers when this has ended.
    Silent,
    /// Its socket accepts nothing more.
    Full,
    /// All delays are longer.
    Slow,
    /// New connections end after some bytes.
    Breaks,
    /// It lies: see the module `lies`.
    Lies,
    /// It refuses logins.
    Refuses,
    /// This host has no free descriptor.
    NoSockets,
    /// Datagrams are lost, duplicated and reordered.
    Loses,
}

impl Trouble {
    const ALL: [Self; 12] = [
        Self::Dead,
        Self::Cut,
        Self::Drops,
        Self::Forgets,
        Self::Silent,
        Self::Full,
        Self::Slow,
        Self::Breaks,
        Self::Lies,
        Self::Refuses,
        Self::NoSockets,
        Self::Loses,
    ];

    /// Draws whether a datagram is lost.
    fn loses(self, rng: &mut Rng) -> bool {
        match self {
            Self::Cut | Self::Drops | Self::Dead => true,
            Self::Loses => rng.one_in(4),
            _ => false,
        }
    }
}

/// A server and its state in the network.
struct Place {
    server: Server,
    trouble: Trouble,
    /// When the trouble ends.
    until_us: u64,
    /// Additional latency of the path to it, in microseconds.
    far_us: u64,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    Dialing,
    Open,
    Failed(Errno),
    Datagrams,
}

/// The maximum latency of a healthy path, in microseconds.
const LATENCY_US: usize = 400;

/// Linux's first retransmission timeouts, of a SYN and of data, in microseconds.
const DIALED_AGAIN_US: u64 = 1_000_000;
const SENT_AGAIN_US: u64 = 200_000;

struct Link {
    place: usize,
    state: State,
    /// The client has closed it.
    is_closed: bool,
    /// Received and unread bytes, followed by the end.
    inbox: VecDeque<u8>,
    end: Option<Result<(), Errno>>,
    datagrams: VecDeque<Vec<u8>>,
    /// Bytes that the server has not read, and the maximum in transit.
    unsent: usize,
    room: usize,
    /// The arrival time of the last piece, in each direction: nothing overtakes it.
    up_us: u64,
    down_us: u64,
    /// The time of the retransmission of lost bytes, in each direction: later ones wait for it.
    up_again_us: u64,
    down_again_us: u64,
    /// Bytes until it breaks, in each direction.
    breaks_up: Option<usize>,
    breaks_down: Option<usize>,
    /// The server's end; `None`: the server does not know the connection.
    session: Option<Session>,
    watch: Option<(u32, u64, bool)>,
}

enum Event {
    Dialed(SocketId),
    Up(SocketId, Vec<u8>),
    Down(SocketId, Vec<u8>),
    /// The server's end closes, in order or by a reset.
    End(SocketId, Result<(), Errno>),
    /// A trouble starts or ends at a server.
    Turn(usize),
}

/// The simulated network of one run.
pub struct Net {
    /// The choices of the run.
    pub rng: Rng,
    base: Instant,
    now_us: u64,
    number: u64,
    events: BTreeMap<(u64, u64), Event>,
    links: BTreeMap<SocketId, Link>,
    places: Vec<Place>,
    pollers: u32,
    /// Troubles start and end.
    is_wild: bool,
    /// The kinds of troubles.
    troubles: Vec<Trouble>,
    /// The maximum duration of a trouble.
    trouble_us: usize,
}

impl std::fmt::Debug for Net {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Net").field("now_us", &self.now_us).finish_non_exhaustive()
    }
}

impl Net {
    /// A network of `servers` healthy servers.
    pub fn new(seed: u64, servers: usize) -> Self {
        let place =
            |_| Place { server: Server::default(), trouble: Trouble::None, until_us: 0, far_us: 0 };
        Self {
            rng: Rng::new(seed),
            base: Instant::now(),
            now_us: 0,
            number: 0,
            events: BTreeMap::new(),
            links: BTreeMap::new(),
            places: (0..servers).map(place).collect(),
            pollers: 0,
            is_wild: false,
            troubles: Vec::new(),
            trouble_us: 0,
        }
    }

    pub(crate) fn now(&self) -> Instant {
        self.base + Duration::from_micros(self.now_us)
    }

    /// The present microsecond.
    #[must_use]
    pub fn now_us(&self) -> u64 {
        self.now_us
    }

    /// The microsecond of `time`.
    pub(crate) fn us_of(&self, time: Instant) -> u64 {
        u64::try_from(time.saturating_duration_since(self.base).as_micros()).unwrap_or(u64::MAX)
    }

    /// All servers.
    pub fn servers(&self) -> impl Iterator<Item = &Server> {
        self.places.iter().map(|place| &place.server)
    }

    /// All servers, to change them.
    pub fn servers_mut(&mut self) -> impl Iterator<Item = &mut Server> {
        self.places.iter_mut().map(|place| &mut place.server)
    }

    /// Sets the requirements at the start of connections to servers.
    pub fn shut(&mut self, rules: &Rules) {
        self.servers_mut().for_each(|server| server.rules = rules.clone());
    }

    /// The numbers of calls that servers executed more than once.
    pub fn executed_twice(&self) -> Vec<u64> {
        let mut executed = BTreeMap::<u64, u32>::new();
        for (number, count) in self.servers().flat_map(|server| &server.executed) {
            *executed.entry(*number).or_default() += count;
        }
        executed.into_iter().filter(|(_, count)| *count > 1).map(|(number, _)| number).collect()
    }

    /// Starts failures of all kinds except `without`, each of at most `trouble_us` microseconds.
    pub fn go_wild(&mut self, trouble_us: usize, without: &[Trouble]) {
        self.is_wild = true;
        self.trouble_us = trouble_us;
        self.troubles = Trouble::ALL.into_iter().filter(|one| !without.contains(one)).collect();
        for place in 0..self.places.len() {
            let at_us = self.now_us + self.below(trouble_us);
            self.at(at_us, Event::Turn(place));
        }
    }

    /// Ends all failures: delayed bytes arrive, and connections that servers have forgotten end.
    pub fn heal(&mut self) {
        self.is_wild = false;
        for place in 0..self.places.len() {
            self.begin(place, Trouble::None, self.now_us);
        }
        let now_us = self.now_us;
        let events = std::mem::take(&mut self.events).into_iter();
        // Lost bytes still wait for their time: see `happen`.
        self.events =
            events.map(|((at_us, number), event)| ((at_us.min(now_us), number), event)).collect();
        for link in self.links.values_mut() {
            (link.up_us, link.down_us) = (link.up_us.min(now_us), link.down_us.min(now_us));
        }
        let forgotten = self.links.iter().filter(|(_, link)| {
            link.session.is_none() && matches!(link.state, State::Open) && !link.is_closed
        });
        for id in forgotten.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.end_later(id, Err(Errno::CONNRESET));
        }
        for link in self.links.values_mut() {
            (link.breaks_up, link.breaks_down, link.room) = (None, None, usize::MAX);
        }
    }

    fn below(&mut self, bound: usize) -> u64 {
        self.rng.below(bound) as u64
    }

    fn at(&mut self, at_us: u64, event: Event) {
        self.number += 1;
        self.events.insert((at_us, self.number), event);
    }

    /// The time of the next event, in microseconds.
    pub(crate) fn next_us(&self) -> Option<u64> {
        self.events.first_key_value().map(|((at_us, _), _)| *at_us)
    }

    /// Returns true if a watched socket is ready.
    pub(crate) fn is_ready(&self) -> bool {
        self.links.values().any(|link| link.watch.is_some_and(|(_, _, out)| is_ready(link, out)))
    }

    /// Advances the time to `us` and runs the events until then.
    pub(crate) fn pass_to(&mut self, us: u64) {
        while let Some(entry) = self.events.first_entry()
            && entry.key().0 <= us
        {
            let ((at_us, number), event) = entry.remove_entry();
            self.now_us = self.now_us.max(at_us);
            self.happen(number, event);
        }
        self.now_us = self.now_us.max(us);
    }

    fn happen(&mut self, number: u64, event: Event) {
        let (id, is_down) = match &event {
            Event::Turn(place) => return self.turn(*place),
            Event::Dialed(id) | Event::Up(id, _) => (*id, false),
            Event::Down(id, _) | Event::End(id, _) => (*id, true),
        };
        let Some(link) = self.links.get_mut(&id) else { return };
        let place = &self.places[link.place];
        let is_held = match place.trouble {
            Trouble::Cut | Trouble::Drops => true,
            Trouble::Silent => is_down,
            Trouble::Full => matches!(event, Event::Up(..)),
            _ => false,
        };
        let mut at_us = if is_held { place.until_us } else { self.now_us };
        if place.trouble == Trouble::Drops && link.state == State::Datagrams {
            return;
        }
        let again_us = if is_down { &mut link.down_again_us } else { &mut link.up_again_us };
        if place.trouble == Trouble::Drops && *again_us < at_us {
            let is_dialing = link.state == State::Dialing;
            let first_us = if is_dialing { DIALED_AGAIN_US } else { SENT_AGAIN_US };
            *again_us = again(self.now_us, first_us, at_us);
        }
        at_us = at_us.max(*again_us);
        if self.now_us < at_us {
            // With its old number, so that the order stays.
            self.events.insert((at_us, number), event);
            return;
        }
        match event {
            Event::Dialed(id) => self.dialed(id),
            Event::Up(id, bytes) => self.up(id, &bytes),
            Event::Down(id, bytes) => self.down(id, bytes),
            Event::End(id, end) => {
                if let Some(link) = self.links.get_mut(&id) {
                    link.end = link.end.or(Some(end));
                }
            }
            Event::Turn(_) => {}
        }
    }

    /// Ends a trouble, or starts another.
    fn turn(&mut self, place: usize) {
        if !self.is_wild {
            return;
        }
        let is_well = self.places[place].trouble == Trouble::None;
        let trouble = if is_well { *self.rng.pick(&self.troubles.clone()) } else { Trouble::None };
        let until_us = self.now_us + 1 + self.below(self.trouble_us);
        self.begin(place, trouble, until_us);
        self.at(until_us, Event::Turn(place));
    }

    /// Adds latency, in microseconds, to the path to server `place`.
    pub fn move_away(&mut self, place: usize, far_us: u64) {
        self.places[place].far_us = far_us;
    }

    /// The number of sockets made so far.
    pub fn dials(&self) -> usize {
        self.links.len()
    }

    /// Starts a trouble of server `place`, which ends at `until_us`.
    pub fn begin(&mut self, place: usize, trouble: Trouble, until_us: u64) {
        self.places[place].server.lies = trouble == Trouble::Lies;
        self.places[place].server.refuses = trouble == Trouble::Refuses;
        (self.places[place].trouble, self.places[place].until_us) = (trouble, until_us);
        let ids: Vec<_> =
            self.links.iter().filter(|(_, link)| link.place == place).map(|(id, _)| *id).collect();
        for id in ids {
            match trouble {
                Trouble::Dead => self.reset(id),
                Trouble::Forgets => self.links.get_mut(&id).into_iter().for_each(|link| {
                    if link.state == State::Open {
                        link.session = None;
                    }
                }),
                _ => {}
            }
        }
    }

    /// Drops the server's end; bytes in transit are lost.
    fn reset(&mut self, id: SocketId) {
        let Some(link) = self.links.get_mut(&id) else { return };
        if link.state == State::Open {
            link.session = None;
            link.end = link.end.or(Some(Err(Errno::CONNRESET)));
        }
    }

    fn latency(&mut self, place: usize) -> u64 {
        let base = 20 + self.below(LATENCY_US) + self.places[place].far_us;
        match self.places[place].trouble {
            Trouble::Slow => base + self.below(30_000),
            _ => base,
        }
    }

    fn end_later(&mut self, id: SocketId, end: Result<(), Errno>) {
        let Some(link) = self.links.get(&id) else { return };
        let at_us = link.down_us.max(self.now_us);
        let at_us = at_us + self.latency(self.links[&id].place);
        if let Some(link) = self.links.get_mut(&id) {
            link.down_us = at_us;
        }
        self.at(at_us, Event::End(id, end));
    }

    // The operations of the client's end.

    pub(crate) fn new_poller(&mut self) -> u32 {
        self.pollers += 1;
        self.pollers
    }

    fn open(&mut self, address: &Address, state: State) -> Result<SocketId, Errno> {
        let place = (0..self.places.len()).find(|place| *address == self::address(*place));
        let place = place.ok_or(Errno::NETUNREACH)?;
        if self.places[place].trouble == Trouble::NoSockets {
            return Err(Errno::MFILE);
        }
        let breaks = self.places[place].trouble == Trouble::Breaks;
        let mut draw = |one_in| (breaks && self.rng.one_in(one_in)).then(|| self.rng.below(400));
        let (breaks_up, breaks_down) = (draw(2), draw(2));
        let is_narrow = self.is_wild && self.rng.one_in(4);
        let room = if is_narrow { 64 + self.rng.below(4096) } else { usize::MAX };
        let id = u32::try_from(self.links.len()).expect("fewer links than 4 billion");
        let now_us = self.now_us;
        self.links.insert(
            id,
            Link {
                place,
                state,
                is_closed: false,
                inbox: VecDeque::new(),
                end: None,
                datagrams: VecDeque::new(),
                unsent: 0,
                room,
                up_us: now_us,
                down_us: now_us,
                up_again_us: now_us,
                down_again_us: now_us,
                breaks_up,
                breaks_down,
                session: Some(self.places[place].server.session()),
                watch: None,
            },
        );
        Ok(id)
    }

    pub(crate) fn connect(&mut self, address: &Address) -> Result<SocketId, Errno> {
        let id = self.open(address, State::Dialing)?;
        let place = self.links[&id].place;
        let at_us = self.now_us + self.latency(place);
        self.at(at_us, Event::Dialed(id));
        Ok(id)
    }

    pub(crate) fn datagrams(&mut self, address: &Address) -> Result<SocketId, Errno> {
        self.open(address, State::Datagrams)
    }

    fn dialed(&mut self, id: SocketId) {
        let Some(link) = self.links.get_mut(&id) else { return };
        let is_dead = self.places[link.place].trouble == Trouble::Dead;
        link.state = if is_dead { State::Failed(Errno::CONNREFUSED) } else { State::Open };
    }

    pub(crate) fn connected(&mut self, id: SocketId) -> Result<(), Errno> {
        match self.links[&id].state {
            State::Failed(errno) => Err(errno),
            State::Dialing | State::Open | State::Datagrams => Ok(()),
        }
    }

    pub(crate) fn watch(&mut self, id: SocketId, poller: u32, data: u64, output: bool) {
        if let Some(link) = self.links.get_mut(&id) {
            link.watch = Some((poller, data, output));
        }
    }

    /// A poller's reports on its sockets, in a random order.
    pub(crate) fn ready(&mut self, poller: u32) -> Vec<u64> {
        let told = self.links.values().filter_map(|link| match link.watch {
            Some((mine, data, output)) if mine == poller && is_ready(link, output) => Some(data),
            _ => None,
        });
        let mut told: Vec<_> = told.collect();
        if !told.is_empty() {
            let by = self.rng.below(told.len());
            told.rotate_left(by);
        }
        told
    }

    pub(crate) fn read(&mut self, id: SocketId, buffer: &mut [u8]) -> Result<usize, Errno> {
        let Some(link) = self.links.get_mut(&id) else { return Err(Errno::BADF) };
        if link.inbox.is_empty() {
            return match link.end {
                None => Err(Errno::AGAIN),
                Some(Ok(())) => Ok(0),
                Some(Err(errno)) => Err(errno),
            };
        }
        let mut len = buffer.len().min(link.inbox.len());
        if self.rng.one_in(3) {
            len = 1 + self.rng.below(len);
        }
        buffer.iter_mut().zip(link.inbox.drain(..len)).for_each(|(to, byte)| *to = byte);
        Ok(len)
    }

    pub(crate) fn send(&mut self, id: SocketId, bytes: &[u8]) -> Result<usize, Errno> {
        let Some(link) = self.links.get_mut(&id) else { return Err(Errno::BADF) };
        if link.end.is_some_and(|end| end.is_err()) {
            return Err(Errno::PIPE);
        }
        let mut len = bytes.len().min(link.room.saturating_sub(link.unsent));
        if len == 0 {
            return Err(Errno::AGAIN);
        }
        if self.rng.one_in(10) {
            len = 1 + self.rng.below(len);
        }
        link.unsent += len;
        for piece in pieces(&mut self.rng, &bytes[..len]) {
            let place = self.links[&id].place;
            let at_us = self.now_us + self.latency(place);
            let Some(link) = self.links.get_mut(&id) else { return Err(Errno::BADF) };
            link.up_us = link.up_us.max(at_us);
            let at_us = link.up_us;
            self.at(at_us, Event::Up(id, piece));
        }
        Ok(len)
    }

    /// Delivers bytes to the server, which answers.
    fn up(&mut self, id: SocketId, bytes: &[u8]) {
        let Some(link) = self.links.get_mut(&id) else { return };
        link.unsent = link.unsent.saturating_sub(bytes.len());
        let place = link.place;
        if link.state == State::Datagrams {
            let replies = self.places[place].server.datagram(bytes, self.now_us, &mut self.rng);
            return self.answer_datagrams(id, &replies);
        }
        let mut taken = bytes;
        let mut is_broken = false;
        if let Some(left) = &mut link.breaks_up {
            is_broken = bytes.len() > *left;
            taken = &bytes[..bytes.len().min(*left)];
            *left -= taken.len();
        }
        let is_known = link.session.is_some() && self.places[place].trouble != Trouble::Dead;
        let Some(session) = link.session.as_mut().filter(|_| is_known) else {
            // The server does not know this connection, and occasionally does not reset it, either.
            if matches!(link.state, State::Open) && !self.rng.one_in(3) {
                self.end_later(id, Err(Errno::CONNRESET));
            }
            return;
        };
        let (now_us, rng) = (self.now_us, &mut self.rng);
        let answer = self.places[place].server.serve(session, taken, now_us, rng);
        if !answer.bytes.is_empty() {
            self.answer(id, &answer.bytes);
        }
        if answer.ends || is_broken {
            if let Some(link) = self.links.get_mut(&id) {
                link.session = None;
            }
            let end = if is_broken && self.rng.one_in(2) { Err(Errno::CONNRESET) } else { Ok(()) };
            self.end_later(id, end);
        }
    }

    fn answer(&mut self, id: SocketId, bytes: &[u8]) {
        for piece in pieces(&mut self.rng, bytes) {
            let place = self.links[&id].place;
            let at_us = self.now_us + self.latency(place);
            let Some(link) = self.links.get_mut(&id) else { return };
            link.down_us = link.down_us.max(at_us);
            let at_us = link.down_us;
            self.at(at_us, Event::Down(id, piece));
        }
    }

    fn down(&mut self, id: SocketId, mut bytes: Vec<u8>) {
        let Some(link) = self.links.get_mut(&id) else { return };
        if link.state == State::Datagrams {
            link.datagrams.push_back(bytes);
            return;
        }
        if link.end.is_some() {
            return;
        }
        let mut is_broken = false;
        if let Some(left) = &mut link.breaks_down {
            is_broken = bytes.len() > *left;
            bytes.truncate(*left);
            *left -= bytes.len();
        }
        link.inbox.extend(bytes);
        if is_broken {
            link.session = None;
            link.end = Some(if self.rng.one_in(2) { Ok(()) } else { Err(Errno::CONNRESET) });
        }
    }

    pub(crate) fn send_datagram(&mut self, id: SocketId, bytes: &[u8]) -> Result<(), Errno> {
        let place = self.links[&id].place;
        let at_us = self.now_us + self.latency(place);
        if self.places[place].trouble.loses(&mut self.rng) {
            return if self.rng.one_in(4) { Err(Errno::AGAIN) } else { Ok(()) };
        }
        self.at(at_us, Event::Up(id, bytes.to_vec()));
        Ok(())
    }

    fn answer_datagrams(&mut self, id: SocketId, replies: &[Vec<u8>]) {
        let place = self.links[&id].place;
        for datagram in replies {
            if self.places[place].trouble.loses(&mut self.rng) {
                continue;
            }
            let copies = if self.places[place].trouble == Trouble::Loses && self.rng.one_in(4) {
                2
            } else {
                1
            };
            for _ in 0..copies {
                let is_orderly = self.places[place].trouble != Trouble::Loses;
                let at_us = self.now_us + self.latency(place);
                let Some(link) = self.links.get_mut(&id) else { return };
                link.down_us = link.down_us.max(at_us);
                let at_us = if is_orderly { link.down_us } else { at_us };
                self.at(at_us, Event::Down(id, datagram.clone()));
            }
        }
    }

    pub(crate) fn receive_datagram(
        &mut self,
        id: SocketId,
        buffer: &mut [u8],
    ) -> Result<usize, Errno> {
        let Some(link) = self.links.get_mut(&id) else { return Err(Errno::BADF) };
        let datagram = link.datagrams.pop_front().ok_or(Errno::AGAIN)?;
        let len = datagram.len().min(buffer.len());
        buffer[..len].copy_from_slice(&datagram[..len]);
        Ok(len)
    }

    /// Closes the client's end: sent bytes still arrive, but answers are dropped.
    pub(crate) fn close(&mut self, id: SocketId) {
        if let Some(link) = self.links.get_mut(&id) {
            (link.is_closed, link.watch) = (true, None);
            link.inbox.clear();
            link.end = link.end.or(Some(Err(Errno::CONNRESET)));
        }
    }
}

/// The first retransmission at or after `until_us`; each waits twice as long as the previous one.
fn again(lost_us: u64, first_us: u64, until_us: u64) -> u64 {
    let (mut at_us, mut wait_us) = (lost_us + first_us, first_us);
    while at_us < until_us {
        wait_us *= 2;
        at_us += wait_us;
    }
    at_us
}

/// Returns true if a poller reports it.
fn is_ready(link: &Link, output: bool) -> bool {
    match link.state {
        State::Dialing => false,
        State::Failed(_) => true,
        State::Datagrams => !link.datagrams.is_empty(),
        State::Open => {
            let has_room = link.unsent < link.room;
            !link.inbox.is_empty() || link.end.is_some() || output && has_room
        }
    }
}

/// Cuts the bytes anywhere; half of the time, it does not cut them.
fn pieces(rng: &mut Rng, bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut pieces = Vec::new();
    let mut rest = bytes;
    while rest.len() > 1 && pieces.len() < 8 && rng.one_in(2) {
        let (piece, behind) = rest.split_at(1 + rng.below(rest.len() - 1));
        pieces.push(piece.to_vec());
        rest = behind;
    }
    pieces.push(rest.to_vec());
    pieces
}
