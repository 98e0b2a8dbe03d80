//! The spooler's thread, turn by turn.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};
use std::{fs, io};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;
use spool::Spool;

use super::marks::Marks;
use super::replay::Replay;
use super::unkept::Unkept;
use super::{Shared, THEN, Target, import};
use upstream::system::now;
use upstream::{Failure, Outcome, Registry, Reply, Sink, Ticket, Upstream};

/// The interval of the search for deletes that became too old, and for mcrouter's files.
const LOOK_AROUND: Duration = Duration::from_secs(60);

/// The wait after a failure to read the spool.
const READ_AGAIN: Duration = Duration::from_secs(1);

/// The state that the thread owns.
pub(super) struct Work<L> {
    spool: Spool,
    import: Option<PathBuf>,
    upstream: Upstream,
    shared: Arc<Shared>,
    targets: BTreeMap<String, Target>,
    marks: Marks,
    /// Replays by the upper half of their tickets.
    replays: Vec<Option<Replay>>,
    unkept: Unkept,
    look_around_at: Instant,
    /// Holds gets of servers that have pending deletes.
    holds_gets: bool,
    log: L,
}

/// Answers to deletes and to requests about marks, with the values of marks.
#[derive(Default)]
struct Answers(Vec<MarkAnswer>);

/// One answer.
struct MarkAnswer {
    ticket: Ticket,
    outcome: Outcome,
    /// The mark's value, the reason why no request was sent, or that of the server's refusal.
    value: Vec<u8>,
    /// No server received the request.
    is_own: bool,
}

impl Sink for Answers {
    fn answer(&mut self, ticket: Ticket, reply: &Reply<'_>) {
        let Reply { outcome, is_own, .. } = *reply;
        let is_refused = outcome == Outcome::Failed(Failure::ClientError);
        let has_value = outcome == Outcome::Found || is_refused;
        let value = if has_value { reply.value.to_owned() } else { Vec::new() };
        self.0.push(MarkAnswer { ticket, outcome, value, is_own });
    }
}

impl<L: Fn(&str)> Work<L> {
    pub(super) fn new(
        mut spool: Spool,
        import: Option<PathBuf>,
        registry: Registry,
        worker: u32,
        holds_gets: bool,
        shared: Arc<Shared>,
        log: L,
    ) -> io::Result<Self> {
        // A server whose deletes are lost must not keep the values they were meant to delete.
        spool.leave_behind(super::flush_record());
        let now = now();
        let upstream = Upstream::in_background(worker, registry, now)?;
        let (targets, replays) = (BTreeMap::new(), Vec::new());
        let marks = Marks::new(name_of(spool.folder()), holds_gets, now);
        let mut work = Self {
            spool,
            import,
            upstream,
            shared,
            targets,
            marks,
            replays,
            unkept: Unkept::default(),
            look_around_at: now,
            holds_gets,
            log,
        };
        work.count();
        Ok(work)
    }

    /// Starts the replays of these servers, before they receive requests.
    pub(super) fn begin(&mut self, targets: Vec<Target>) {
        let now = now();
        self.expire_and_import(now);
        self.take_targets(targets);
        self.begin_replays(now);
        // A previous run may have left a mark, which must end with these deletes.
        self.replays.iter_mut().flatten().for_each(Replay::mark_at_once);
        self.count();
    }

    /// Runs until the handle is dropped.
    pub(super) fn run(mut self) {
        while !self.turn() {
            self.wait();
        }
    }

    /// Does the pending work. Returns true if that was the last.
    pub(super) fn turn(&mut self) -> bool {
        let (now, mut answers) = (now(), Answers::default());
        self.upstream.turn(now);
        if now >= self.look_around_at {
            self.expire_and_import(now);
        }
        let is_ending = self.take_inbox(now);
        self.upstream.on_events(&mut answers);
        self.replay(now, &mut answers);
        self.mark(now);
        self.upstream.flush(&mut answers);
        while self.take_answers(now, &mut answers) {
            self.upstream.flush(&mut answers);
        }
        self.settle(now);
        self.count();
        self.unkept.line(now).iter().for_each(|line| (self.log)(line));
        is_ending
    }

    /// Keeps all deletes that have arrived, together. Returns true if those were the last.
    fn take_inbox(&mut self, now: Instant) -> bool {
        self.shared.wake.clear();
        let (kept, targets, is_ending) = {
            let mut inbox = self.shared.inbox();
            inbox.bytes = 0;
            let targets = std::mem::take(&mut inbox.targets);
            (std::mem::take(&mut inbox.kept), targets, inbox.is_ending)
        };
        let mut waiting = Vec::new();
        for (targets, tell) in targets {
            self.take_targets(targets);
            waiting.push(tell);
        }
        let secs = unix_secs();
        let staged: Vec<_> = kept
            .into_iter()
            .map(|kept| {
                let result = self.spool.append(&kept.destination, &kept.record, secs);
                (kept, result)
            })
            .collect();
        let failed = self.spool.commit(now);
        // Before any caller hears that a delete is kept, so that the counts already include it.
        self.begin_replays(now);
        self.count();
        for tell in waiting {
            // A receiver that is gone needs no message.
            let _ = tell.send(());
        }
        for (kept, staged) in staged {
            let failure = failed.iter().find(|failed| *failed.destination == *kept.destination);
            match (staged, failure) {
                (Err(reason), _) => self.unkept.add(&kept.destination, reason),
                (Ok(_), Some(failure)) => self.unkept.add(&kept.destination, &failure.error),
                (Ok(_), None) => {}
            }
            let is_kept = staged.is_ok() && failure.is_none();
            let counters = &self.shared.counters;
            let counter = if is_kept { &counters.kept } else { &counters.failed };
            // Relaxed: a thread that reads the answer from the mailbox sees the count, since the
            // mailbox's lock orders the two. The other counts are only for display.
            counter.fetch_add(1, Ordering::Relaxed);
            kept.mailbox.put(kept.ticket, is_kept);
        }
        is_ending
    }

    fn take_targets(&mut self, targets: Vec<Target>) {
        self.targets = targets.into_iter().map(|target| (target.name.clone(), target)).collect();
        // No task waits for answers about marks of removed servers.
        let mut nobody = Answers::default();
        let owes = |name: &str| owes(&self.replays, name);
        self.marks.set_targets(&self.targets, &owes, &mut self.upstream, &mut nobody);
    }

    /// Marks servers with pending deletes, and reads the marks of other routers.
    fn mark(&mut self, now: Instant) {
        let owed = self.replays.iter().flatten().filter_map(Replay::missing).map(str::to_owned);
        for (name, id) in self.marks.turn(now, owed, &mut self.upstream) {
            self.upstream.set_dirty(id, owes(&self.replays, &name));
        }
    }

    /// Sends deletes to every server whose turn it is.
    fn replay(&mut self, now: Instant, sink: &mut dyn Sink) {
        let secs = unix_secs();
        let mut ended = Vec::new();
        for (number, place) in (0_u32..).zip(&mut self.replays) {
            let Some(replay) = place else { continue };
            if !replay.is_idle() {
                continue;
            }
            if targets(&self.targets, &replay.name).as_ref() != Some(&replay.targets) {
                ended.extend(place.take());
            } else if replay.due().is_some_and(|due| due <= now) {
                match replay.ask(&mut self.spool, &mut self.upstream, number, secs) {
                    Ok(true) => {}
                    Ok(false) => ended.extend(place.take()),
                    Err(error) => {
                        (self.log)(&format!("warning: the spool for {}: {error}", replay.name));
                        replay.put_off(now + READ_AGAIN);
                    }
                }
            }
        }
        if !ended.is_empty() {
            // Those whose servers have new settings continue before the others are released.
            self.begin_replays(now);
        }
        for replay in ended {
            self.end(&replay, sink);
        }
    }

    /// Releases a server's gets, unless there are other deletes for it.
    fn end(&mut self, replay: &Replay, sink: &mut dyn Sink) {
        let first = |replay: &Replay| replay.targets.first().map(|target| target.address.clone());
        let is_marked =
            replay.targets.first().is_some_and(|target| self.marks.is_marked(&target.name));
        let is_due =
            is_marked || self.replays.iter().flatten().any(|other| first(other) == first(replay));
        if let Some(id) = replay.ids.first().filter(|_| !is_due) {
            self.upstream.set_dirty(*id, false);
        }
        for id in &replay.ids {
            self.upstream.release(*id, sink);
        }
    }

    /// Starts replays for servers that have become known, or that have newly kept deletes.
    fn begin_replays(&mut self, now: Instant) {
        for (name, _) in self.spool.destinations() {
            let Some(targets) = targets(&self.targets, name) else { continue };
            if self.replays.iter().flatten().any(|replay| replay.name == name) {
                continue;
            }
            let at = |target: &Target| self.upstream.destination(&target.address, &target.settings);
            let ids: Vec<_> = targets.iter().map(at).collect();
            // No value of a server with pending deletes may be copied to another.
            if let Some(id) = ids.first() {
                let is_marked = targets.first().is_some_and(|one| self.marks.is_marked(&one.name));
                self.upstream.set_dirty(*id, self.holds_gets || ids.len() > 1 || is_marked);
            }
            let replay = Some(Replay::new(name.to_owned(), targets, ids, now));
            match self.replays.iter_mut().find(|place| place.is_none()) {
                Some(place) => *place = replay,
                None => self.replays.push(replay),
            }
        }
    }

    /// Returns true if deletes may have been queued that must now be sent.
    fn take_answers(&mut self, now: Instant, answers: &mut Answers) -> bool {
        let (mut marked, mut asks_again) = (Vec::new(), false);
        for MarkAnswer { ticket, outcome, value, is_own } in answers.0.drain(..) {
            if self.marks.answered(now, ticket, outcome, &value, &mut marked) {
                continue;
            }
            let (number, index) = ((ticket >> 32) as usize, (ticket & 0xffff_ffff) as usize);
            let Some(Some(replay)) = self.replays.get_mut(number) else { continue };
            let waits = match is_own {
                true => replay.refused_here(ticket, &mut self.upstream),
                false => replay.answered(index, outcome, &value),
            };
            if let Some(name) = waits {
                let why = String::from_utf8_lossy(&value);
                (self.log)(&format!("warning: the spool for {name}: a delete waits: {why}"));
            } else {
                asks_again |= is_own;
            }
        }
        for id in marked {
            self.upstream.set_dirty(id, true);
        }
        asks_again
    }

    fn settle(&mut self, now: Instant) {
        for replay in self.replays.iter_mut().flatten() {
            if let Some(settled) = replay.settle(&mut self.spool, now) {
                replay.report(&settled, now).iter().for_each(|line| (self.log)(line));
                let counters = &self.shared.counters;
                counters.replayed.fetch_add(settled.executed, Ordering::Relaxed);
                counters.refused.fetch_add(settled.refused, Ordering::Relaxed);
            }
        }
    }

    fn expire_and_import(&mut self, now: Instant) {
        self.look_around_at = now + LOOK_AROUND;
        let secs = unix_secs();
        self.spool.expire(secs);
        if let Some(folder) = &self.import {
            let free = self.spool.bytes_free();
            for line in import::all(folder, &mut self.spool, free, secs) {
                (self.log)(&line);
            }
        }
    }

    /// Publishes the counts, and logs damage of the spool.
    fn count(&mut self) {
        for damage in self.spool.take_damage() {
            (self.log)(&format!("warning: the spool: {damage}"));
        }
        let (counts, counters) = (self.spool.counts(), &self.shared.counters);
        let store = |counter: &AtomicU64, value| counter.store(value, Ordering::Relaxed);
        store(&counters.pending, counts.pending);
        store(&counters.bytes, counts.bytes);
        store(&counters.expired, counts.expired);
        store(&counters.lost, counts.lost);
        store(&counters.marked, self.marks.count());
        store(&counters.unmarkable, self.marks.unmarkable());
    }

    /// The time of the next work if no event comes.
    pub(super) fn due(&self) -> Option<Instant> {
        let retries = self.replays.iter().flatten().filter_map(Replay::due);
        let times = [Some(self.look_around_at), self.upstream.deadline(), self.spool.sync_due()];
        let times = times.into_iter().chain([self.marks.due(), self.unkept.due()]);
        times.into_iter().flatten().chain(retries).min()
    }

    /// Waits for an event or the next due time.
    fn wait(&self) {
        let wait = self.due().map_or(LOOK_AROUND, |due| due.saturating_duration_since(now()));
        let mut fds = [
            PollFd::from_borrowed_fd(self.upstream.poller(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.shared.wake.fd(), PollFlags::IN),
        ];
        // An interrupted wait is only shorter.
        let _ = poll(&mut fds, Timespec::try_from(wait).ok().as_ref());
    }
}

/// A name for the program with this spool, which survives restarts on this machine. Without
/// `/proc`, or without the folder, there is none. It reveals nothing about the machine.
fn name_of(folder: &Path) -> Option<Vec<u8>> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let at = fs::metadata(folder).ok()?;
    let mut hasher = DefaultHasher::new();
    (boot, at.dev(), at.ino()).hash(&mut hasher);
    Some(format!("{:016x}", hasher.finish()).into_bytes())
}

/// Returns true if one of the replays holds the gets of this server.
fn owes(replays: &[Option<Replay>], name: &str) -> bool {
    replays.iter().flatten().any(|replay| replay.is_first(name))
}

/// The servers of a name in the spool, in order; `None` while one of them is unknown.
fn targets(known: &BTreeMap<String, Target>, name: &str) -> Option<Vec<Target>> {
    let whole = known.get(name).map(|target| vec![target.clone()]);
    whole.or_else(|| name.split(THEN).map(|server| known.get(server).cloned()).collect())
}

fn unix_secs() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}
