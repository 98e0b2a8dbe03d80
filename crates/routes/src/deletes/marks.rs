//! Marks of servers with pending deletes. Other servers keep them, where every router of the fleet
//! sees them.
//!
//! ```text
//!     router A --set holdall-owed:S--> peers of S <--get holdall-owed:S-- router B
//!       keeps a delete for S                             asks S for no values
//! ```
//!
//! A router whose deletes do not reach a server S writes the mark to S's peers every second, and
//! reads the marks of all servers as often. A mark expires: [`SETTLED_SECS`] after the last router
//! has executed its kept deletes, or [`OWED_SECS`] after a router has died with its spool. If a
//! peer is down when the deletes are executed, the router retries while the peer's mark may live.
//!
//! The mark's value names the router that wrote it last. A router that was killed after its deletes
//! were executed, but before it shortened its marks, finds its name there after a restart, and
//! shortens them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::Target;
use upstream::{Command, DestinationId, Outcome, Request, Sink, Ticket, Upstream};

/// The prefix of a mark's key; the server's name follows.
const PREFIX: &str = "holdall-owed:";

/// The interval at which marks are written and read.
const EVERY: Duration = Duration::from_secs(1);

/// The lifetime of the mark of a server with pending deletes.
const OWED_SECS: i64 = 60;

/// The lifetime of the mark that a router leaves when its deletes are executed. It exceeds two
/// intervals, so a router with other deletes rewrites it in time.
const SETTLED_SECS: i64 = 3;

/// A shortened mark has ended after this time, however the peer's clock rounds.
const ENDED: Duration = Duration::from_secs(5);

/// The value of the mark of a router without a name.
const NAMELESS: &[u8] = b"1";

/// The maximum length of a key.
const KEY_MAX: usize = 250;

/// The upper half of the tickets of reads, and of writes.
const READS: Ticket = 0xffff_ffff;
const WRITES: Ticket = 0xffff_fffe;

/// An answer of a peer in the current round.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Answer {
    None,
    Asked,
    Clear,
    Marked,
}

/// A server that keeps another's mark.
#[derive(Debug)]
struct Peer {
    id: DestinationId,
    answer: Answer,
    /// The end of the mark for pending deletes that this router wrote there and has not shortened
    /// since.
    owed_until: Option<Instant>,
    /// The time at which this router last shortened its mark there.
    shortened_at: Option<Instant>,
}

/// An outstanding request for a mark.
#[derive(Debug)]
struct Asked {
    /// The server that the mark describes.
    name: String,
    /// The place of the peer in the server's list.
    place: usize,
    /// The mark that a write shortens.
    owed_until: Option<Instant>,
}

/// A server that has peers.
#[derive(Debug)]
struct Server {
    key: Vec<u8>,
    id: DestinationId,
    peers: Vec<Peer>,
    /// The time of the last sight of the mark, while it counts.
    seen_at: Option<Instant>,
}

/// The marks of all servers, as this router knows and writes them.
#[derive(Debug)]
pub(super) struct Marks {
    /// The name of this router.
    name: Option<Vec<u8>>,
    servers: BTreeMap<String, Server>,
    /// The number of servers without peers.
    unmarkable: u64,
    /// By the lower half of their tickets.
    asked: BTreeMap<u32, Asked>,
    last_number: u32,
    /// Whether marks count, including those of other routers.
    heeds: bool,
    write_at: Instant,
    read_at: Instant,
}

impl Marks {
    /// Creates an empty set. Without `heeds`, marks of other routers do not count. `name` is this
    /// router's unique name, which stays the same across restarts.
    pub(super) fn new(name: Option<Vec<u8>>, heeds: bool, now: Instant) -> Self {
        let (servers, asked) = (BTreeMap::new(), BTreeMap::new());
        Self {
            name,
            servers,
            unmarkable: 0,
            asked,
            last_number: 0,
            heeds,
            write_at: now,
            read_at: now,
        }
    }

    /// Sets the servers in use. Known marks of remaining servers stay valid; the other servers get
    /// gets again, unless this router itself `owes` them deletes.
    pub(super) fn set_targets(
        &mut self,
        targets: &BTreeMap<String, Target>,
        owes: &dyn Fn(&str) -> bool,
        upstream: &mut Upstream,
        sink: &mut dyn Sink,
    ) {
        self.asked.clear();
        self.unmarkable = 0;
        let mut before = std::mem::take(&mut self.servers);
        for (name, target) in targets {
            let key = [PREFIX, name].concat().into_bytes();
            let is_key = key.len() <= KEY_MAX && key.iter().all(u8::is_ascii_graphic);
            let known: Vec<_> = target.peers.iter().filter_map(|peer| targets.get(peer)).collect();
            if !is_key || known.is_empty() {
                self.unmarkable += 1;
                continue;
            }
            let mut at = |target: &Target| upstream.destination(&target.address, &target.settings);
            let id = at(target);
            let old = before.get(name);
            let known_as = |id| old?.peers.iter().find(|peer| peer.id == id);
            let peers = known.into_iter().map(|peer| {
                let id = at(peer);
                let (owed_until, shortened_at) =
                    known_as(id).map_or((None, None), |peer| (peer.owed_until, peer.shortened_at));
                Peer { id, answer: Answer::None, owed_until, shortened_at }
            });
            let peers = peers.collect();
            let seen_at = old.and_then(|server| server.seen_at);
            self.servers.insert(name.clone(), Server { key, id, peers, seen_at });
        }
        // After the new ones have acquired theirs, so that a connection in use stays open.
        for (name, server) in &mut before {
            if server.seen_at.is_some() && !self.servers.contains_key(name) {
                upstream.set_dirty(server.id, owes(name));
            }
            let peers = server.peers.drain(..).map(|peer| peer.id);
            for id in std::iter::once(server.id).chain(peers) {
                upstream.release(id, sink);
            }
        }
    }

    /// The time at which marks are due for a write and a read; `None` if no server has peers.
    pub(super) fn due(&self) -> Option<Instant> {
        (!self.servers.is_empty()).then_some(self.write_at.min(self.read_at))
    }

    /// True if another router has pending deletes for the server, or this one had a moment ago.
    pub(super) fn is_marked(&self, name: &str) -> bool {
        self.servers.get(name).is_some_and(|server| server.seen_at.is_some())
    }

    /// The number of servers for which [`Self::is_marked`] is true.
    pub(super) fn count(&self) -> u64 {
        self.servers.values().filter(|server| server.seen_at.is_some()).count() as u64
    }

    /// The number of servers whose mark no server can keep.
    pub(super) fn unmarkable(&self) -> u64 {
        self.unmarkable
    }

    /// Writes the marks of the servers in `owed` once per interval, and reads all marks. Releases
    /// the held gets of servers that are no longer marked.
    pub(super) fn turn(
        &mut self,
        now: Instant,
        owed: impl Iterator<Item = String>,
        upstream: &mut Upstream,
    ) -> Vec<(String, DestinationId)> {
        if self.servers.is_empty() {
            return Vec::new();
        }
        if self.write_at <= now {
            self.write_at = now + EVERY;
            self.write(now, &owed.collect(), upstream);
        }
        if self.read_at > now {
            return Vec::new();
        }
        self.read_at = now + EVERY;
        self.read(now, upstream)
    }

    /// Writes the marks of the servers in `owed`, and shortens leftover marks of others.
    fn write(&mut self, now: Instant, owed: &BTreeSet<String>, upstream: &mut Upstream) {
        for (name, server) in &mut self.servers {
            let is_owed = owed.contains(name);
            // Only an existing mark is shortened: a peer may have lost it.
            let (op, exptime) =
                if is_owed { (Command::Set, OWED_SECS) } else { (Command::Touch, SETTLED_SECS) };
            let value = self.name.as_deref().unwrap_or(NAMELESS);
            let request =
                Request { exptime, value, is_aside: true, ..Request::new(op, &server.key) };
            for (place, peer) in server.peers.iter_mut().enumerate() {
                let left = peer.owed_until.filter(|until| *until > now);
                peer.owed_until = if is_owed { Some(now + OWED) } else { left };
                if peer.owed_until.is_none() {
                    continue;
                }
                self.last_number = self.last_number.wrapping_add(1);
                let ticket = WRITES << 32 | Ticket::from(self.last_number);
                // After a failure the next round tries again.
                if upstream.ask(peer.id, &request, ticket).is_ok() && !is_owed {
                    let asked = Asked { name: name.clone(), place, owed_until: peer.owed_until };
                    self.asked.insert(self.last_number, asked);
                }
            }
        }
    }

    /// Ends a round and starts the next.
    fn read(&mut self, now: Instant, upstream: &mut Upstream) -> Vec<(String, DestinationId)> {
        let mut cleared = Vec::new();
        for (name, server) in &mut self.servers {
            let says = |answer| server.peers.iter().any(|peer| peer.answer == answer);
            // If no peer answers, the mark counts for its maximum lifetime.
            let lives = |seen: Instant| now.saturating_duration_since(seen) < OWED;
            let stays = says(Answer::Marked) || !says(Answer::Clear);
            if server.seen_at.is_some_and(|seen| !stays || !lives(seen)) {
                server.seen_at = None;
                cleared.push((name.clone(), server.id));
            }
            for (place, peer) in server.peers.iter_mut().enumerate() {
                if peer.answer == Answer::Asked {
                    continue;
                }
                peer.answer = Answer::None;
                // A mark is stale for at most its lifetime.
                let get = Request {
                    is_aside: true,
                    takes_old: true,
                    ..Request::new(Command::Get, &server.key)
                };
                self.last_number = self.last_number.wrapping_add(1);
                let ticket = READS << 32 | Ticket::from(self.last_number);
                if upstream.ask(peer.id, &get, ticket).is_ok() {
                    peer.answer = Answer::Asked;
                    let asked = Asked { name: name.clone(), place, owed_until: None };
                    self.asked.insert(self.last_number, asked);
                }
            }
        }
        cleared
    }

    /// Handles the answer to one of its tickets; returns false for other tickets. A server that the
    /// answer shows to be newly marked goes into `marked`.
    pub(super) fn answered(
        &mut self,
        now: Instant,
        ticket: Ticket,
        outcome: Outcome,
        value: &[u8],
        marked: &mut Vec<DestinationId>,
    ) -> bool {
        let is_read = ticket >> 32 == READS;
        if !is_read && ticket >> 32 != WRITES {
            return false;
        }
        let Some(asked) = self.asked.remove(&narrow::low_u32(ticket)) else { return true };
        let Some(server) = self.servers.get_mut(&asked.name) else { return true };
        let Some(peer) = server.peers.get_mut(asked.place) else { return true };
        if !is_read {
            // Not if another mark has been written since.
            let is_short = matches!(outcome, Outcome::Touched | Outcome::NotFound);
            if is_short && peer.owed_until == asked.owed_until {
                peer.owed_until = None;
                peer.shortened_at = Some(now);
            }
            return true;
        }
        peer.answer = match outcome {
            Outcome::Found => Answer::Marked,
            Outcome::NotFound => Answer::Clear,
            _ => Answer::None,
        };
        let is_own = || self.name.as_deref() == Some(value);
        let may_last = peer.shortened_at.is_none_or(|at| now > at + ENDED);
        if peer.answer == Answer::Marked && peer.owed_until.is_none() && may_last && is_own() {
            // The mark dates from before a restart. It is shortened now, or rewritten.
            peer.owed_until = Some(now + OWED);
            self.write_at = now;
        }
        if peer.answer == Answer::Marked && self.heeds {
            if server.seen_at.is_none() {
                marked.push(server.id);
            }
            server.seen_at = Some(now);
        }
        true
    }
}

/// [`OWED_SECS`] as a duration.
const OWED: Duration = Duration::from_secs(OWED_SECS.unsigned_abs());
