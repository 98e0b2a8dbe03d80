//! The services that running routes use: requests to servers, background tasks, the clock.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::OnceLock;
use std::task::{Context as TaskContext, Poll, Waker};

use crate::asides::{Asides, Charge, Need};
use crate::deletes::{Deletes, Mailbox};
use crate::task::Tasks;
use crate::timer::Timers;
use narrow::to_u32;
use upstream::{
    Count, DestinationId, Event, Exchange, Failure, Outcome, OwnedReply, Reply, Request, Sink,
    Ticket, Traffic, Upstream,
};
use upstream::{SendCell, SendRefCell};

mod sleep;

pub use sleep::Sleep;

/// Marks the tickets of tasks. The others belong to callers of [`crate::Core::submit`].
pub(crate) const TASK_TICKET: Ticket = 1 << 63;

/// With [`TASK_TICKET`]: a request that is counted separately. Other tickets leave this bit clear,
/// too.
const ASIDE_TICKET: Ticket = 1 << 62;

/// The state that running routes use. Each worker has one.
pub struct Context {
    pub(crate) upstream: SendRefCell<Upstream>,
    traffic: Arc<Traffic>,
    pub(crate) tasks: Tasks,
    pub(crate) asides: Arc<Asides>,
    /// Set by a route whose store or delete takes several steps, before the first: its last request
    /// is sent only after earlier replies. See [`Submitted::InSteps`](crate::Submitted::InSteps).
    pub(crate) takes_steps: SendCell<bool>,
    waits: SendRefCell<Waits>,
    /// The queue of failed deletes, and the mailbox for their outcomes.
    deletes: OnceLock<(Deletes, Arc<Mailbox>)>,
    /// Root tasks that have ended.
    pub(crate) finished: SendRefCell<Vec<(Ticket, OwnedReply)>>,
    /// The state of xorshift64, in one word. Equal seeds give equal runs of the simulations, in any
    /// version.
    random: SendCell<u64>,
    unix_secs: SendCell<u64>,
    host_id: u32,
    pub(crate) timers: Timers,
    /// The last hash's choice; `NOTHING`: no hash has chosen since.
    chosen: SendCell<u32>,
    log: SendRefCell<Option<Log>>,
}

/// Takes a line for the log.
type Log = Arc<dyn Fn(&str) + Send + Sync>;

const NOTHING: u32 = u32::MAX;

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("tasks", &self.tasks.len()).finish_non_exhaustive()
    }
}

#[derive(Default)]
struct Waits {
    waits: Vec<Wait>,
    free: Vec<u32>,
}

enum Wait {
    Free,
    /// Sent; the waker is that of the task, once it has waited.
    Asked(Option<Waker>),
    /// Answered, and not yet fetched.
    Answered(OwnedReply),
    /// The waiter is gone. The answer is dropped when it arrives.
    Abandoned,
}

impl Context {
    pub(crate) fn new(upstream: Upstream, host_id: u32, seed: u64) -> Self {
        Self {
            traffic: Arc::clone(upstream.traffic()),
            upstream: SendRefCell::new(upstream),
            tasks: Tasks::default(),
            asides: Arc::default(),
            takes_steps: SendCell::default(),
            waits: SendRefCell::default(),
            deletes: OnceLock::new(),
            finished: SendRefCell::default(),
            random: SendCell::new(seed | 1),
            unix_secs: SendCell::new(0),
            host_id,
            timers: Timers::default(),
            chosen: SendCell::new(NOTHING),
            log: SendRefCell::default(),
        }
    }

    /// Counts of the requests that this worker received and of its work.
    #[inline]
    #[must_use]
    pub fn traffic(&self) -> &Arc<Traffic> {
        &self.traffic
    }

    /// Asks a server when the future is first polled.
    pub fn ask<'a>(&'a self, id: DestinationId, request: Request<'a>) -> Asking<'a> {
        Asking { cx: self, id, request, waiting: None }
    }

    /// Keeps failed deletes from now on.
    pub(crate) fn set_deletes(&self, deletes: Deletes, mailbox: Arc<Mailbox>) {
        // The first queue stays.
        let _ = self.deletes.set((deletes, mailbox));
    }

    /// Returns true if failed deletes are kept.
    #[inline]
    pub(crate) fn keeps_deletes(&self) -> bool {
        self.deletes.get().is_some()
    }

    /// Keeps a failed delete of the server named `destination`. Returns true when it is on disk.
    pub(crate) async fn keep(
        &self,
        destination: &Arc<str>,
        pool: &str,
        request: &Request<'_>,
    ) -> bool {
        let Some((deletes, mailbox)) = self.deletes.get() else { return false };
        let number = self.waits.borrow_mut().add();
        let ticket = TASK_TICKET | u64::from(number);
        if !deletes.keep(destination, pool, request, mailbox, ticket) {
            self.waits.borrow_mut().remove(number);
            return false;
        }
        let began_us = self.now_us();
        let is_kept = Waiting { cx: self, number: Some(number) }.await.outcome == Outcome::Ok;
        let took_us = self.now_us().saturating_sub(began_us);
        self.traffic.event(Event::Spooled);
        self.traffic.add(Count::Event(Event::SpooledWell), u64::from(is_kept));
        self.traffic.add(Count::Event(Event::SpooledUs), took_us);
        is_kept
    }

    /// Wakes the tasks whose deletes have been kept, or could not be.
    pub(crate) fn take_kept(self: &Arc<Self>, sink: &mut dyn Sink) {
        let Some((_, mailbox)) = self.deletes.get() else { return };
        let mut split = Split { cx: self, other: sink };
        for (ticket, is_kept) in mailbox.take() {
            let outcome = if is_kept { Outcome::Ok } else { Outcome::Failed(Failure::LocalError) };
            split.answer(ticket, &Reply::of(outcome));
        }
    }

    /// Runs `task` in parallel with the caller.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(Box::pin(task));
    }

    /// Runs `task` behind the reply to the request that causes it. Without room for its bytes, that
    /// request waits for it.
    pub(crate) fn spawn_aside(
        &self,
        bytes: usize,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        match self.asides.charge(bytes, Need::MustBeDone) {
            Some(charge) => self.spawn_charged(charge, task),
            None => self.asides.wait_for(task),
        }
    }

    /// Reserves room for a copy that may be missing. Without room, the copy is counted as dropped.
    pub(crate) fn copy_room(&self, bytes: usize) -> Option<Charge> {
        let charge = self.asides.charge(bytes, Need::MayBeMissing);
        if charge.is_none() {
            self.traffic.event(Event::CopyDropped);
        }
        charge
    }

    /// Runs `task` behind the reply to the request that causes it, in room already reserved.
    pub(crate) fn spawn_charged(
        &self,
        charge: Charge,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        let asides = Arc::clone(&self.asides);
        self.spawn(async move {
            asides.with_late(task).await;
            drop(charge);
        });
    }

    /// Returns a number below `bound` (0 for 0): xorshift64*, for choices that need not be
    /// unpredictable.
    #[must_use]
    pub fn random_below(&self, bound: usize) -> usize {
        let mut state = self.random.get();
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        self.random.set(state);
        let number = state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33;
        usize::try_from(number).unwrap_or(0).checked_rem(bound).unwrap_or(0)
    }

    /// Seconds since 1970, as of this turn.
    #[must_use]
    pub fn unix_secs(&self) -> u64 {
        self.unix_secs.get()
    }

    pub(crate) fn set_unix_secs(&self, secs: u64) {
        self.unix_secs.set(secs);
    }

    /// Microseconds since the start, as of this turn.
    #[must_use]
    pub fn now_us(&self) -> u64 {
        self.upstream.borrow().now_us()
    }

    /// Returns a future that is ready when [`Self::now_us`] has reached `at_us`.
    pub fn sleep_until(&self, at_us: u64) -> Sleep<'_> {
        Sleep::new(self, at_us)
    }

    /// The number of this worker.
    #[must_use]
    pub fn worker(&self) -> u32 {
        self.upstream.borrow().worker()
    }

    /// See [`Upstream::window`].
    #[must_use]
    pub fn window(&self) -> Option<(f64, u32, usize)> {
        self.upstream.borrow().window()
    }

    /// Writes a line to the log.
    pub fn log(&self, line: &str) {
        let log = self.log.borrow().clone();
        if let Some(log) = log {
            log(line);
        }
    }

    pub(crate) fn set_log(&self, log: Log) {
        *self.log.borrow_mut() = Some(log);
    }

    /// Records that a hash has chosen this place.
    #[inline]
    pub(crate) fn choose(&self, place: u32) {
        self.chosen.set(place);
    }

    /// Returns the last hash's choice since [`Self::forget_chosen`].
    pub(crate) fn chosen(&self) -> Option<u32> {
        Some(self.chosen.get()).filter(|place| *place != NOTHING)
    }

    pub(crate) fn forget_chosen(&self) {
        self.chosen.set(NOTHING);
    }

    /// The number of this host, used to choose among replicas.
    #[must_use]
    pub fn host_id(&self) -> u32 {
        self.host_id
    }
}

impl Waits {
    fn add(&mut self) -> u32 {
        if let Some(number) = self.free.pop() {
            self.waits[number as usize] = Wait::Asked(None);
            return number;
        }
        self.waits.push(Wait::Asked(None));
        to_u32(self.waits.len() - 1)
    }

    fn remove(&mut self, number: u32) -> Wait {
        self.free.push(number);
        std::mem::replace(&mut self.waits[number as usize], Wait::Free)
    }
}

/// The future answer of a server; made by [`Context::ask`].
#[derive(Debug)]
#[must_use = "nothing is asked before it is polled"]
pub struct Asking<'a> {
    cx: &'a Context,
    id: DestinationId,
    request: Request<'a>,
    waiting: Option<Waiting<'a>>,
}

impl Future for Asking<'_> {
    type Output = OwnedReply;

    fn poll(mut self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<OwnedReply> {
        if self.waiting.is_none() {
            let cx = self.cx;
            let number = cx.waits.borrow_mut().add();
            let aside = if self.request.is_aside { ASIDE_TICKET } else { 0 };
            let ticket = TASK_TICKET | aside | u64::from(number);
            let mut upstream = cx.upstream.borrow_mut();
            if let Some(trail) = self.request.trail
                && upstream.is_dirty(self.id)
            {
                trail.note_held();
            }
            let asked = upstream.ask(self.id, &self.request, ticket);
            drop(upstream);
            if let Err(failure) = asked {
                cx.waits.borrow_mut().remove(number);
                return Poll::Ready(failure.into());
            }
            self.waiting = Some(Waiting { cx, number: Some(number) });
        }
        match &mut self.waiting {
            Some(waiting) => Pin::new(waiting).poll(task),
            None => Poll::Pending,
        }
    }
}

/// A task's wait for the answer that its ticket names.
#[derive(Debug)]
struct Waiting<'a> {
    cx: &'a Context,
    /// `None` once it is answered.
    number: Option<u32>,
}

impl Future for Waiting<'_> {
    type Output = OwnedReply;

    fn poll(mut self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<OwnedReply> {
        let Some(number) = self.number else { return Poll::Pending };
        let mut waits = self.cx.waits.borrow_mut();
        match &mut waits.waits[number as usize] {
            Wait::Answered(_) => {
                let answered = waits.remove(number);
                drop(waits);
                self.number = None;
                match answered {
                    Wait::Answered(reply) => Poll::Ready(reply),
                    Wait::Abandoned | Wait::Asked(_) | Wait::Free => Poll::Pending,
                }
            }
            wait => {
                *wait = Wait::Asked(Some(task.waker().clone()));
                Poll::Pending
            }
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let Some(number) = self.number else { return };
        let mut waits = self.cx.waits.borrow_mut();
        match waits.waits[number as usize] {
            Wait::Answered(_) => drop(waits.remove(number)),
            Wait::Abandoned | Wait::Asked(_) | Wait::Free => {
                waits.waits[number as usize] = Wait::Abandoned;
            }
        }
    }
}

/// Gives tasks their answers, and the rest to `other`.
pub(crate) struct Split<'a> {
    pub(crate) cx: &'a Arc<Context>,
    pub(crate) other: &'a mut dyn Sink,
}

impl Sink for Split<'_> {
    fn exchanged(&mut self, exchange: &Exchange<'_>, reply: &Reply<'_>) {
        self.other.exchanged(exchange, reply);
    }

    fn answer(&mut self, ticket: Ticket, reply: &Reply<'_>) {
        if let Some(failure) = reply.outcome.failure() {
            self.cx.traffic.failed(failure, ticket & ASIDE_TICKET != 0);
        }
        if ticket & TASK_TICKET == 0 {
            self.other.answer(ticket, reply);
            return;
        }
        let mut waits = self.cx.waits.borrow_mut();
        // A task's ticket is a place in `waits`.
        let number = (ticket & 0xffff_ffff) as u32;
        let Some(wait) = waits.waits.get_mut(number as usize) else { return };
        match std::mem::replace(wait, Wait::Free) {
            Wait::Asked(waker) => {
                *wait = Wait::Answered(reply.to_owned());
                if let Some(waker) = waker {
                    waker.wake();
                }
            }
            Wait::Abandoned => waits.free.push(number),
            // Every ticket is answered once.
            Wait::Free | Wait::Answered(_) => debug_assert!(false, "answered twice"),
        }
    }
}
