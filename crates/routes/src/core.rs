//! Everything that one worker needs to answer requests: the tree of routes, its servers, and the
//! tasks between them.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use crate::asides::AsideBudget;
use crate::context::{Context, Split, TASK_TICKET};
use crate::deletes::{Deletes, Mailbox};
use crate::join;
use crate::own_reply::{add_words, own_reply};
use crate::route::{self, Answer, Pick, RouteRef};
use proto::answer::MetaCode;
use upstream::{
    DestinationId, Failure, Outcome, OwnedReply, Reply, Request, Sink, Ticket, Trail, Upstream,
};

/// Follows `SERVER_ERROR`: not every server executed the delete yet, but each will.
const KEPT_FOR_LATER: &[u8] = b"kept for later";

/// The answer to a flush of nothing but a routing prefix.
const NO_PREFIX: &[u8] = b"a flush goes to all clusters and needs a prefix of keys";

/// A tree, and the servers that it keeps in use.
#[derive(Debug)]
pub struct Tree {
    /// The route at which requests start.
    pub root: RouteRef,
    /// Servers to release with the tree, each as often as it was acquired.
    pub destinations: Vec<DestinationId>,
    /// Keys on servers may have routing prefixes.
    pub keeps_prefixes: bool,
}

/// The immediate result of a request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Submitted {
    /// This is the reply.
    Done(OwnedReply),
    /// The sink receives the reply later.
    Pending,
    /// As [`Pending`](Self::Pending), and the last request to a server is sent only after earlier
    /// replies. A later request for the key, sent before the reply, may overtake it.
    InSteps,
}

/// The tree of one worker, with its servers and tasks.
#[derive(Debug)]
pub struct Core {
    cx: Arc<Context>,
    tree: Arc<Tree>,
    /// Replaced trees that may still have tasks or outstanding answers.
    retired: Vec<Arc<Tree>>,
    /// A second descriptor of the poller, which can be used without a borrow.
    poller: OwnedFd,
}

impl Core {
    /// Creates a core. `build` makes the tree with the servers of `upstream`.
    ///
    /// # Errors
    ///
    /// If no descriptor is available.
    pub fn new(
        mut upstream: Upstream,
        host_id: u32,
        seed: u64,
        build: impl FnOnce(&mut Upstream) -> Tree,
    ) -> io::Result<Self> {
        let poller = upstream.poller().try_clone_to_owned()?;
        let tree = Arc::new(build(&mut upstream));
        let cx = Arc::new(Context::new(upstream, host_id, seed));
        Ok(Self { cx, tree, retired: Vec::new(), poller })
    }

    /// Hands failed deletes to a spooler from now on, and answers them like deletes that found
    /// nothing.
    ///
    /// # Errors
    ///
    /// If no descriptor is available.
    pub fn keep_deletes(&self, deletes: Deletes) -> io::Result<()> {
        let mailbox = Arc::new(Mailbox::new()?);
        self.cx.upstream.borrow().watch_wake(mailbox.fd())?;
        self.cx.set_deletes(deletes, mailbox);
        Ok(())
    }

    /// Charges routes' work behind a reply to this budget, which other workers may share. By
    /// default, each worker has a budget of 64 MiB.
    pub fn share_asides(&self, budget: Arc<AsideBudget>) {
        self.cx.asides.share(budget);
    }

    /// Takes a new tree. Requests that run in the old one finish there.
    pub fn replace(&mut self, build: impl FnOnce(&mut Upstream) -> Tree) {
        let tree = Arc::new(build(&mut self.cx.upstream.borrow_mut()));
        self.retired.push(std::mem::replace(&mut self.tree, tree));
    }

    /// The descriptor that is readable when [`Self::on_events`] must be called.
    #[must_use]
    pub fn poller(&self) -> BorrowedFd<'_> {
        self.poller.as_fd()
    }

    /// Sets the time to `now`. Call it once per turn, before the first request.
    pub fn turn(&mut self, now: Instant) {
        self.cx.upstream.borrow_mut().turn(now);
        let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        self.cx.set_unix_secs(unix.map_or(0, |since| since.as_secs()));
    }

    /// Answers a request, now or later; `ticket` has its highest bit clear.
    #[inline]
    pub fn submit(&mut self, request: &Request<'_>, ticket: Ticket) -> Submitted {
        debug_assert_eq!(ticket & TASK_TICKET, 0);
        let mut picked = *request;
        match self.tree.root.pick(&self.cx, &mut picked) {
            Pick::Ask(id) => match self.cx.upstream.borrow_mut().ask(id, &picked, ticket) {
                Ok(()) => Submitted::Pending,
                Err(failure) => Submitted::Done(failure.into()),
            },
            Pick::Answer(outcome) => Submitted::Done(own_reply(outcome, request)),
            Pick::Run => {
                self.cx.takes_steps.set(false);
                self.run(request, ticket);
                if self.cx.takes_steps.get() { Submitted::InSteps } else { Submitted::Pending }
            }
        }
    }

    fn run(&self, request: &Request<'_>, ticket: Ticket) {
        let (cx, tree, request) =
            (Arc::clone(&self.cx), Arc::clone(&self.tree), request.to_owned());
        self.start(async move {
            let (trail, began_us) = (Trail::default(), cx.now_us());
            let asked = Request { trail: Some(&trail), ..request.get() };
            let mut reply = cx.asides.with_late(tree.root.route(&cx, asked)).await;
            if asked.tells_kept && trail.is_kept() {
                // Overwrites changes by routes, and the replies of other servers.
                reply = OwnedReply {
                    value: KEPT_FOR_LATER.to_vec(),
                    ..OwnedReply::from(Failure::TryAgain)
                };
            }
            trail.finish(reply.outcome, cx.now_us().saturating_sub(began_us));
            give_back_key(&mut reply, &request.get());
            add_words(&mut reply, &request.get());
            cx.finished.borrow_mut().push((ticket, reply));
        });
    }

    /// Sends a flush to every server of the tree, and answers with the worst reply. Unless servers
    /// store keys with their routing prefixes, they also get the flush without one.
    pub fn submit_to_all(&mut self, request: &Request<'_>, ticket: Ticket) {
        let rest = route::without_prefix(request.key).filter(|_| !self.tree.keeps_prefixes);
        if rest.is_some_and(<[u8]>::is_empty) {
            let reply = Reply::failed(Failure::ClientError, NO_PREFIX).to_owned();
            self.cx.finished.borrow_mut().push((ticket, reply));
            return;
        }
        let mut ids = self.tree.destinations.clone();
        ids.sort_unstable();
        // Each server gets the request once, however many pools it is in.
        ids.dedup_by_key(|id| id.place());
        let rest = rest.map(|key| Request { key, ..*request }.to_owned());
        let (cx, request) = (Arc::clone(&self.cx), request.to_owned());
        self.start(async move {
            // The client's own comes last: of equally bad replies, the last is returned.
            let requests = rest.iter().chain(std::iter::once(&request));
            let mut asked: Vec<Answer<'_>> = Vec::new();
            for request in requests {
                asked.extend(
                    ids.iter().map(|id| -> Answer<'_> { Box::pin(cx.ask(*id, request.get())) }),
                );
            }
            let replies = join::all(asked).await;
            let worst = replies.into_iter().max_by_key(|reply| reply.outcome.severity());
            let is_meta = request.get().op.is_meta();
            let done = if is_meta { Outcome::Meta(MetaCode::Hd) } else { Outcome::Ok };
            let reply = worst.unwrap_or_else(|| own_reply(done, &request.get()));
            cx.finished.borrow_mut().push((ticket, reply));
        });
    }

    /// Starts a task and polls it at once, so that it sends its first requests. A request that only
    /// chooses is sent at once, and would otherwise overtake earlier requests of its client.
    fn start(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.cx.spawn(task);
        self.cx.tasks.run();
    }

    /// Starts or stops reporting exchanges to sinks.
    pub fn watch(&self, is_watched: bool) {
        self.cx.upstream.borrow().set_watched(is_watched);
    }

    /// Reads servers' replies. Replies to [`Self::submit`]ted requests go to `sink`.
    pub fn on_events(&mut self, sink: &mut dyn Sink) {
        let mut split = Split { cx: &self.cx, other: &mut *sink };
        let is_woken = self.cx.upstream.borrow_mut().on_events(&mut split);
        if is_woken {
            self.cx.take_kept(sink);
        }
    }

    /// Runs tasks and timers, and sends the queued requests. Call it once per turn, after all
    /// submits.
    pub fn settle(&mut self, sink: &mut dyn Sink) {
        loop {
            self.run_tasks(sink);
            let mut split = Split { cx: &self.cx, other: sink };
            self.cx.upstream.borrow_mut().flush(&mut split);
            // A failure may have woken a task.
            if !self.cx.tasks.is_ready() {
                return;
            }
        }
    }

    /// Does the work of [`Self::settle`] but sends nothing. The next turn, which must follow at
    /// once, sends more requests in the same writes.
    pub fn hold(&mut self, sink: &mut dyn Sink) {
        self.run_tasks(sink);
    }

    fn run_tasks(&mut self, sink: &mut dyn Sink) {
        self.cx.timers.fire(self.cx.now_us());
        self.cx.tasks.run();
        for (ticket, reply) in self.cx.finished.borrow_mut().drain(..) {
            sink.answer(ticket, &reply.get());
        }
        self.release_retired(sink);
    }

    /// Releases the servers of trees that are no longer in use. A server that is in no other tree
    /// first answers its outstanding requests.
    fn release_retired(&mut self, sink: &mut dyn Sink) {
        let (cx, retired) = (&self.cx, &mut self.retired);
        retired.retain_mut(|tree| {
            let Some(tree) = Arc::get_mut(tree) else { return true };
            let mut split = Split { cx, other: sink };
            tree.destinations.retain(|id| {
                let mut upstream = cx.upstream.borrow_mut();
                let is_awaited = upstream.is_awaited_by_one(*id);
                if !is_awaited {
                    upstream.release(*id, &mut split);
                }
                is_awaited
            });
            !tree.destinations.is_empty()
        });
    }

    /// Fails all unanswered requests. No client waits for the answers.
    fn fail_all(&mut self) {
        let trees = self.retired.iter().chain([&self.tree]);
        for id in trees.flat_map(|tree| &tree.destinations) {
            let mut split = Split { cx: &self.cx, other: &mut Nobody };
            self.cx.upstream.borrow_mut().release(*id, &mut split);
        }
    }

    /// The latest time at which [`Self::settle`] must be called.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        let upstream = self.cx.upstream.borrow();
        let timer = self.cx.timers.next_us().and_then(|at_us| upstream.instant(at_us));
        upstream.deadline().into_iter().chain(timer).min()
    }

    /// Returns true if routes still run requests, including those whose clients have their replies.
    #[must_use]
    pub fn has_tasks(&self) -> bool {
        self.cx.tasks.len() > 0
    }

    /// Sets the log of the routes.
    pub fn set_log(&self, log: impl Fn(&str) + Send + Sync + 'static) {
        self.cx.set_log(Arc::new(log));
    }

    /// The context that routes use.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.cx
    }

    /// The tree for new requests.
    #[must_use]
    pub fn tree(&self) -> &Tree {
        &self.tree
    }
}

/// Restores the key that the client sent, whatever routes made of it.
fn give_back_key(reply: &mut OwnedReply, request: &Request<'_>) {
    match reply.outcome {
        Outcome::Found | Outcome::Lease | Outcome::MetaInfo => {
            reply.key.clear();
            reply.key.extend_from_slice(request.key);
        }
        Outcome::Meta(code) => {
            let mut words = Vec::with_capacity(reply.words.len());
            reply.get().write_words(&mut words, code, request.key, request.base64);
            reply.words = words;
        }
        _ => {}
    }
}

/// Takes answers that nobody waits for.
struct Nobody;

impl Sink for Nobody {
    fn answer(&mut self, _: Ticket, _: &Reply<'_>) {}
}

impl Drop for Core {
    /// Clears the tasks, because they hold the context that holds them. An unfinished task would
    /// keep sockets open. The spooler, which outlives its workers, keeps the deletes that are still
    /// unanswered: their clients may have a reply.
    fn drop(&mut self) {
        if self.cx.keeps_deletes() {
            self.fail_all();
            self.cx.tasks.run();
        }
        self.cx.tasks.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Libraries for applications rely on this: they move a core between threads.
    #[test]
    fn a_core_is_send() {
        fn is_sent<T: Send>() {}
        is_sent::<Core>();
    }
}
