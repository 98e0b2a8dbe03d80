//! Replays the deletes of one server, or of one and then another. It sends a window of the oldest,
//! and acknowledges those that all servers have executed.

use std::time::{Duration, Instant};

use proto::base64;
use spool::{Record, Spool};

use super::{Target, plain};
use upstream::{
    Command, DestinationId, Failure, Outcome, OwnedRequest, Request, Ticket, Upstream, is_sendable,
};

/// Maximum number of unanswered deletes. A server that just came back also has other requests to
/// serve.
const WINDOW: usize = 64;

/// Bytes of such deletes.
const WINDOW_BYTES: usize = 64 * 1024;

/// The first and the maximum wait after a failure. A knocked-out server refuses without a packet.
const WAIT_MIN: Duration = Duration::from_millis(20);
const WAIT_MAX: Duration = Duration::from_millis(500);

/// The spool's replacement for dropped deletes.
const FLUSH: Command = Command::FlushAll;

/// The outcome of one delete.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Done {
    Asked,
    /// Sent as the plain delete of its key.
    AskedPlain,
    Executed,
    Refused,
    Failed,
}

impl Done {
    const fn is_open(self) -> bool {
        matches!(self, Self::Asked | Self::AskedPlain)
    }
}

/// The deletes of one name in the spool.
#[derive(Debug)]
pub(super) struct Replay {
    /// The name in the spool.
    pub(super) name: String,
    /// The servers, in the order in which they receive deletes.
    pub(super) targets: Vec<Target>,
    pub(super) ids: Vec<DestinationId>,
    /// The server whose turn it is.
    turn: usize,
    records: Vec<Record>,
    done: Vec<Done>,
    retry_at: Instant,
    wait: Duration,
    /// The server that did not answer a delete, now or before a restart of the program.
    missing: Option<usize>,
    /// Set once the log has reported a delete that waits because its server is not sent it, or
    /// does not let this program execute it.
    is_told: bool,
    /// The reason of the last refusal in this window.
    refusal: String,
    /// The time at which the log last reported refusals.
    reported_at: Option<Instant>,
}

/// The result of a window.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Settled {
    pub(super) executed: u64,
    pub(super) refused: u64,
    /// The reason of one of the refusals.
    pub(super) refusal: String,
}

/// The interval of reports about refused deletes.
const REPORTS: Duration = Duration::from_secs(60);

/// The texts of servers that refuse the connection and not the request. They accept the same delete
/// once the sender has the login.
const REFUSALS_OF_SENDER: [&[u8]; 2] = [b"unauthenticated", b"authentication failure"];

impl Replay {
    pub(super) fn new(
        name: String,
        targets: Vec<Target>,
        ids: Vec<DestinationId>,
        now: Instant,
    ) -> Self {
        let (records, done) = (Vec::new(), Vec::new());
        let (turn, missing, is_told) = (0, None, false);
        let (retry_at, wait, refusal, reported_at) = (now, WAIT_MIN, String::new(), None);
        Self {
            name,
            targets,
            ids,
            turn,
            records,
            done,
            retry_at,
            wait,
            missing,
            is_told,
            refusal,
            reported_at,
        }
    }

    /// The name of the server with pending deletes that did not answer.
    pub(super) fn missing(&self) -> Option<&str> {
        self.targets.get(self.missing?).map(|target| target.name.as_str())
    }

    /// Marks the server without a failure first: a previous run may have marked it already.
    pub(super) fn mark_at_once(&mut self) {
        self.missing = Some(self.turn);
    }

    /// Returns true if the server of this name is the first to execute these deletes.
    pub(super) fn is_first(&self, name: &str) -> bool {
        self.targets.first().is_some_and(|target| target.name == name)
    }

    /// Returns true if no delete is outstanding.
    pub(super) fn is_idle(&self) -> bool {
        self.done.is_empty()
    }

    /// The time of the next attempt, if no delete is outstanding.
    pub(super) fn due(&self) -> Option<Instant> {
        self.is_idle().then_some(self.retry_at)
    }

    /// Sends the oldest deletes, or sends the next server those that the previous one has executed.
    /// Returns false if there are none.
    pub(super) fn ask(
        &mut self,
        spool: &mut Spool,
        upstream: &mut Upstream,
        number: u32,
        secs: u64,
    ) -> std::io::Result<bool> {
        if self.turn == 0 {
            self.records = spool.read(&self.name, WINDOW, WINDOW_BYTES, secs)?;
        }
        let Some(id) = self.ids.get(self.turn).copied() else { return Ok(false) };
        for (index, record) in (0_u64..).zip(&self.records) {
            let done = match parse(&record.body) {
                None => {
                    "the record is unreadable".clone_into(&mut self.refusal);
                    Done::Refused
                }
                Some(request) => {
                    let ticket = u64::from(number) << 32 | index;
                    ask(upstream, id, &request.get(), ticket, Done::Asked)
                }
            };
            self.done.push(done);
            if done == Done::Failed {
                break;
            }
        }
        Ok(!self.records.is_empty())
    }

    /// Records the answer to one of them, with the server's text. A delete that waits for a login
    /// stays; the first time, its server's name is returned. One without the right to its key does
    /// not wait: a client could hold the gets of all other keys by it.
    pub(super) fn answered(&mut self, index: usize, outcome: Outcome, text: &[u8]) -> Option<&str> {
        let done = self.done.get_mut(index)?;
        *done = match outcome.failure() {
            None => Done::Executed,
            Some(Failure::ClientError) if REFUSALS_OF_SENDER.contains(&text) => {
                *done = Done::Failed;
                return self.waits();
            }
            Some(Failure::ClientError) => {
                self.refusal = String::from_utf8_lossy(text).into_owned();
                Done::Refused
            }
            Some(_) => Done::Failed,
        };
        None
    }

    /// A line for the log about refused deletes, at most one a minute.
    pub(super) fn report(&mut self, settled: &Settled, now: Instant) -> Option<String> {
        let is_due = |at| now.saturating_duration_since(at) >= REPORTS;
        if settled.refused == 0 || !self.reported_at.is_none_or(is_due) {
            return None;
        }
        self.reported_at = Some(now);
        Some(format!(
            "warning: the spool for {}: the server refuses deletes, which are dropped and counted \
             as refused: {}",
            self.name, settled.refusal
        ))
    }

    /// The name of the server whose deletes wait until an operator changes something, for the log,
    /// which reports it once.
    fn waits(&mut self) -> Option<&str> {
        let is_first = !std::mem::replace(&mut self.is_told, true);
        self.targets.get(self.turn).filter(|_| is_first).map(|target| target.name.as_str())
    }

    /// Handles a delete that was not sent, because its server does not accept that command or is
    /// not known to. The plain delete of the key is sent instead, which more servers accept: the
    /// acknowledgement promised only that the value goes. If that cannot be sent either, the delete
    /// has failed and stays; the first time, its server's name is returned.
    pub(super) fn refused_here(&mut self, ticket: Ticket, upstream: &mut Upstream) -> Option<&str> {
        let index = (ticket & 0xffff_ffff) as usize;
        let (done, record) = (self.done.get_mut(index)?, self.records.get(index)?);
        let request = parse(&record.body).filter(|_| *done == Done::Asked);
        let delete = request.as_ref().map(OwnedRequest::get).filter(|one| one.op != FLUSH);
        if let Some((delete, id)) = delete.zip(self.ids.get(self.turn)) {
            *done = ask(upstream, *id, &plain(&delete), ticket, Done::AskedPlain);
            return None;
        }
        *done = Done::Failed;
        self.waits()
    }

    /// Once every answer has come, passes the leading successful deletes to the next server, or
    /// acknowledges them. The rest is retried.
    pub(super) fn settle(&mut self, spool: &mut Spool, now: Instant) -> Option<Settled> {
        if self.done.is_empty() || self.done.iter().any(|done| done.is_open()) {
            return None;
        }
        let good = self.done.iter().take_while(|done| **done != Done::Failed).count();
        if good < self.done.len() {
            self.missing = Some(self.turn);
        }
        let count =
            |wanted| self.done.iter().take(good).filter(|done| **done == wanted).count() as u64;
        let mut settled = Settled {
            executed: 0,
            refused: count(Done::Refused),
            refusal: std::mem::take(&mut self.refusal),
        };
        if good > 0 && self.turn + 1 < self.ids.len() {
            self.turn += 1;
            self.records.truncate(good);
            self.done.clear();
            return Some(settled);
        }
        self.turn = 0;
        settled.executed = count(Done::Executed);
        if let Some(last) = good.checked_sub(1).and_then(|last| self.records.get(last)) {
            spool.acknowledge(&self.name, last.number);
            (self.wait, self.is_told) = (WAIT_MIN, false);
        }
        if good < self.done.len() {
            self.put_off(now);
        }
        self.done.clear();
        self.records.clear();
        Some(settled)
    }

    /// Postpones the next attempt.
    pub(super) fn put_off(&mut self, now: Instant) {
        self.retry_at = now + self.wait;
        self.wait = (self.wait * 2).min(WAIT_MAX);
    }
}

/// Sends a delete to a server. It is then `asked`, or has failed.
fn ask(
    upstream: &mut Upstream,
    id: DestinationId,
    request: &Request<'_>,
    ticket: Ticket,
    asked: Done,
) -> Done {
    match upstream.ask(id, request, ticket) {
        Ok(()) => asked,
        Err(_) => Done::Failed,
    }
}

/// The request of a record, as some server accepts it. `None` if no server can have its key.
fn parse(record: &[u8]) -> Option<OwnedRequest> {
    let request = read(record)?;
    let whole = request.get();
    if is_sendable(&whole) {
        return Some(request);
    }
    let plain = plain(&whole);
    is_sendable(&plain).then(|| plain.to_owned())
}

/// The delete of a record, or the flush.
fn read(record: &[u8]) -> Option<OwnedRequest> {
    let line = record.get(record.iter().position(|byte| *byte == b'\n')? + 1..)?;
    let line = line.strip_suffix(b"\r\n")?;
    if line == b"flush_all" {
        return Some(Request::new(FLUSH, b"").to_owned());
    }
    let (word, rest) = line.split_at(line.iter().position(|byte| *byte == b' ')?);
    let rest = rest.trim_ascii_start();
    let (key, words) =
        rest.split_at(rest.iter().position(|byte| *byte == b' ').unwrap_or(rest.len()));
    let words = words.trim_ascii_start();
    if key.is_empty() {
        return None;
    }
    match word {
        // mcrouter keeps a client's number, which servers ignore; a hold-off is an `md` here.
        b"delete" => {
            let is_number = words.is_empty() || str::from_utf8(words).ok()?.parse::<i64>().is_ok();
            is_number.then(|| Request::new(Command::Delete, key).to_owned())
        }
        b"md" => {
            let base64 = words.split(|byte| *byte == b' ').any(|word| word == b"b");
            let mut buffer = proto::key::KeyBuf::default();
            let key = if base64 { base64::decode(key, &mut buffer)? } else { key };
            Some(Request { words, base64, ..Request::new(Command::MetaDelete, key) }.to_owned())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_parses_to_the_kept_delete() {
        let requests = [
            Request::new(Command::Delete, b"k"),
            Request::new(Command::MetaDelete, b"k"),
            Request { words: b"I T30 O1", ..Request::new(Command::MetaDelete, b"k") },
            Request { words: b"b I", base64: true, ..Request::new(Command::MetaDelete, b"k\n \0") },
        ];
        for request in requests {
            let record = super::super::record("a\npool", &request);
            assert_eq!(parse(&record).as_ref().map(OwnedRequest::get), Some(request));
        }
        let held = Request { exptime: 10, ..Request::new(Command::Delete, b"k") };
        let same = Request { words: b"H10", ..Request::new(Command::MetaDelete, b"k") };
        let record = super::super::record("a\npool", &held);
        assert_eq!(parse(&record).as_ref().map(OwnedRequest::get), Some(same));
        let numbered = parse(b"A\ndelete k 10\r\n");
        let plain = Request::new(Command::Delete, b"k");
        assert_eq!(numbered.as_ref().map(OwnedRequest::get), Some(plain));
        // No server accepts the flag.
        let unknown = parse(b"A\nmd k W\r\n");
        assert_eq!(unknown.as_ref().map(OwnedRequest::get), Some(plain));
        let flush = parse(&super::super::flush_record());
        assert_eq!(
            flush.as_ref().map(OwnedRequest::get),
            Some(Request::new(Command::FlushAll, b""))
        );
        for bad in ["", "A\n", "A\ndelete k", "A\ndelete \r\n", "A\nset k\r\n", "A\ndelete k x\r\n"]
        {
            assert_eq!(parse(bad.as_bytes()), None, "{bad}");
        }
    }
}
