//! The thread that drives a [`Core`]: takes what callers ask, and gives answers to their slots.
//!
//! A turn: sleep until the bell rings, a server speaks, or something is due; take what servers sent; take the inbox; send.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;

use super::lane::{Job, Lane};
use super::slot::Slot;
use crate::core::{Core, Submitted};
use crate::deletes::Spooler;
use crate::pipeline::{Sink, Ticket};
use crate::reply::{Failure, Outcome, OwnedReply, Reply};
use crate::system::now;

/// Starts the thread; `core` is made on it, and the outcome of that awaited.
///
/// # Errors
///
/// When there is no thread, or no descriptor.
pub(crate) fn start(
    lane: Arc<Lane>,
    spooler: Option<Arc<Spooler>>,
    core: impl FnOnce() -> std::io::Result<Core> + Send + 'static,
) -> std::io::Result<JoinHandle<()>> {
    let (tell, told) = std::sync::mpsc::channel();
    let builder = thread::Builder::new().name("holdall-client".to_owned());
    let thread = builder.spawn(move || match core() {
        Ok(core) => {
            // Whoever asked is still there.
            let _ = tell.send(Ok(()));
            Driver::new(lane, core).run();
            // Whatever was handed to it is answered by then.
            drop(spooler);
        }
        Err(error) => drop(tell.send(Err(error))),
    })?;
    told.recv().unwrap_or_else(|_| Err(std::io::Error::other("the driver thread ended")))?;
    Ok(thread)
}

/// See the head of this file.
pub(super) struct Driver {
    lane: Arc<Lane>,
    core: Core,
    tickets: Tickets,
    expiries: BinaryHeap<Reverse<Expiry>>,
    /// Those that wait for everything to be answered.
    resting: Vec<Arc<Slot>>,
    /// Empty, kept for its memory.
    jobs: Vec<Job>,
}

impl Driver {
    pub(super) fn new(lane: Arc<Lane>, core: Core) -> Self {
        let (tickets, expiries, resting, jobs) = Default::default();
        Self { lane, core, tickets, expiries, resting, jobs }
    }

    fn run(&mut self) {
        loop {
            let has_rung = self.may_sleep() && self.sleep();
            if self.turn(has_rung) {
                return;
            }
        }
    }

    /// Whether nobody has asked anything meanwhile.
    pub(super) fn may_sleep(&mut self) -> bool {
        let answered = std::mem::take(&mut self.tickets.answered);
        self.lane.may_sleep(answered)
    }

    /// Does what there is to do. True when that was the last.
    pub(super) fn turn(&mut self, has_rung: bool) -> bool {
        self.core.turn(now());
        self.core.on_events(&mut self.tickets);
        let is_closed = self.lane.take(&mut self.jobs, has_rung);
        let mut jobs = std::mem::take(&mut self.jobs);
        jobs.drain(..).for_each(|job| self.take(job));
        self.jobs = jobs;
        self.core.settle(&mut self.tickets);
        self.expire();
        if self.tickets.live > 0 {
            return false;
        }
        self.resting.drain(..).for_each(|slot| slot.answer(0, OwnedReply::of(Outcome::Ok)));
        is_closed
    }

    /// When there is something to do, whatever comes.
    pub(super) fn due(&self) -> Option<Instant> {
        let next = self.expiries.peek().map(|Reverse(expiry)| expiry.at);
        next.into_iter().chain(self.core.deadline()).min()
    }

    /// Waits for something to happen. True when the bell rang.
    fn sleep(&self) -> bool {
        let left = self.due().map(|end| end.saturating_duration_since(now()));
        let timeout = left.and_then(|left| Timespec::try_from(left).ok());
        let mut fds = [
            PollFd::from_borrowed_fd(self.lane.bell(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.core.poller(), PollFlags::IN),
        ];
        // An interrupted wait is a wait that found nothing.
        let _ = poll(&mut fds, timeout.as_ref());
        !fds[0].revents().is_empty()
    }

    fn take(&mut self, job: Job) {
        match job {
            Job::Ask { request, slot, index } => {
                let ticket = self.tickets.add(slot, index);
                if let Submitted::Done(reply) = self.core.submit(&request.get(), ticket) {
                    self.tickets.close(ticket, reply);
                }
            }
            Job::AskAll { request, slot } => {
                let ticket = self.tickets.add(slot, 0);
                self.core.submit_to_all(&request.get(), ticket);
            }
            Job::Expire { at, slot } => self.expiries.push(Reverse(Expiry { at, slot })),
            Job::Replace(plan) => self.core.replace(|upstream| plan.tree(upstream)),
            Job::Rest(slot) => self.resting.push(slot),
        }
    }

    /// Fails the calls whose time is over.
    fn expire(&mut self) {
        let now = now();
        while let Some(Reverse(expiry)) = self.expiries.peek()
            && (expiry.at <= now || expiry.slot.strong_count() == 0)
        {
            if let Some(slot) = expiry.slot.upgrade() {
                slot.fail(Failure::DeadlineExceeded);
            }
            self.expiries.pop();
        }
    }
}

impl Drop for Driver {
    /// At the end nobody waits any more; after a panic, everybody fails.
    fn drop(&mut self) {
        self.lane.end();
        let waiting = self.tickets.places.drain(..).filter_map(|place| place.waits);
        waiting.for_each(|(slot, _)| slot.fail(Failure::Shutdown));
        self.resting.iter().for_each(|slot| slot.fail(Failure::Shutdown));
    }
}

struct Expiry {
    at: Instant,
    slot: Weak<Slot>,
}

impl PartialEq for Expiry {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}

impl Eq for Expiry {}

impl PartialOrd for Expiry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Expiry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.at.cmp(&other.at)
    }
}

/// Who waits for which ticket. A ticket is a place and the place's generation, so one that was answered names nobody.
#[derive(Default)]
struct Tickets {
    places: Vec<Place>,
    free: Vec<u32>,
    live: usize,
    /// Since the driver last said so.
    answered: usize,
}

struct Place {
    generation: u32,
    waits: Option<(Arc<Slot>, usize)>,
}

/// Generations are 31 bits, since the highest bit of a ticket is the core's.
const GENERATION_MASK: u32 = u32::MAX >> 1;

impl Tickets {
    fn add(&mut self, slot: Arc<Slot>, index: usize) -> Ticket {
        self.live += 1;
        let number = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place { generation: 0, waits: None });
            u32::try_from(self.places.len() - 1).unwrap_or(u32::MAX)
        });
        let place = &mut self.places[number as usize];
        place.generation = place.generation.wrapping_add(1) & GENERATION_MASK;
        place.waits = Some((slot, index));
        u64::from(place.generation) << 32 | u64::from(number)
    }

    fn close(&mut self, ticket: Ticket, reply: OwnedReply) {
        let (number, generation) = ((ticket & 0xffff_ffff) as u32, (ticket >> 32) as u32);
        let Some(place) = self.places.get_mut(number as usize) else { return };
        if place.generation != generation {
            return;
        }
        let Some((slot, index)) = place.waits.take() else { return };
        self.free.push(number);
        self.live -= 1;
        self.answered += 1;
        slot.answer(index, reply);
    }
}

impl Sink for Tickets {
    fn answer(&mut self, ticket: Ticket, reply: &Reply<'_>) {
        // The caller knows the key, and the pipeline has compared it.
        self.close(ticket, Reply { key: b"", ..*reply }.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_that_was_answered_names_nobody() {
        let mut tickets = Tickets::default();
        let (first, second) = (Slot::new(1), Slot::new(1));
        let old = tickets.add(Arc::clone(&first), 0);
        tickets.answer(old, &Reply::of(Outcome::Stored));
        let new = tickets.add(Arc::clone(&second), 0);
        assert_eq!(old & 0xffff_ffff, new & 0xffff_ffff);
        tickets.answer(old, &Reply::of(Outcome::Found));
        assert_eq!((tickets.live, tickets.answered, Arc::strong_count(&second)), (1, 1, 2));
        tickets.answer(new, &Reply::of(Outcome::Deleted));
        assert_eq!((tickets.live, tickets.answered, Arc::strong_count(&second)), (0, 2, 1));
    }
}
