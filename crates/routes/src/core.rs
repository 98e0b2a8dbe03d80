//! The tree of routes, the servers under it, and the tasks between: all that one worker needs to
//! answer requests.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use crate::asides::AsideBudget;
use crate::context::{Context, Split, TASK_TICKET};
use crate::deletes::{Deletes, Mailbox};
use crate::join;
use crate::own_reply::{add_words, own_reply};
use crate::route::{Answer, Pick, RouteRef};
use upstream::{
    DestinationId, Failure, Outcome, OwnedReply, Request, Sink, Ticket, Trail, Upstream,
};

/// Behind `SERVER_ERROR`: the delete was not executed by every server, and will be.
const KEPT_FOR_LATER: &[u8] = b"kept for later";

/// A tree, and the servers that it holds on to.
#[derive(Debug)]
pub struct Tree {
    /// The route at which requests begin.
    pub root: RouteRef,
    /// Servers to be released when the tree goes, each as often as it was asked for.
    pub destinations: Vec<DestinationId>,
}

/// The immediate result of a request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Submitted {
    /// This is the reply.
    Done(OwnedReply),
    /// The sink will hear.
    Pending,
}

/// The tree of one worker, with its servers and tasks.
#[derive(Debug)]
pub struct Core {
    cx: Arc<Context>,
    tree: Arc<Tree>,
    /// Trees that were replaced, and may still have tasks or await answers.
    retired: Vec<Arc<Tree>>,
    /// A second descriptor of the poller, which needs no borrowing.
    poller: OwnedFd,
}

impl Core {
    /// Serves by `build`, which makes the tree with the servers of `upstream`.
    ///
    /// # Errors
    ///
    /// When there is no descriptor.
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

    /// From here on, deletes that fail are handed to a spooler, and answered as if they had found
    /// nothing.
    ///
    /// # Errors
    ///
    /// When there is no descriptor.
    pub fn keep_deletes(&self, deletes: Deletes) -> io::Result<()> {
        let mailbox = Arc::new(Mailbox::new()?);
        self.cx.upstream.borrow().watch_wake(mailbox.fd())?;
        self.cx.set_deletes(deletes, mailbox);
        Ok(())
    }

    /// From here on, what routes do behind a reply takes of this budget, which other workers may
    /// share. Without one, a worker has one of 64 MiB.
    pub fn share_asides(&self, budget: Arc<AsideBudget>) {
        self.cx.asides.share(budget);
    }

    /// Takes a new tree; requests that run in the old one end there.
    pub fn replace(&mut self, build: impl FnOnce(&mut Upstream) -> Tree) {
        let tree = Arc::new(build(&mut self.cx.upstream.borrow_mut()));
        self.retired.push(std::mem::replace(&mut self.tree, tree));
    }

    /// Readable when [`Self::on_events`] is to be called.
    #[must_use]
    pub fn poller(&self) -> BorrowedFd<'_> {
        self.poller.as_fd()
    }

    /// The time is `now`: once a turn, before the first request.
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
                self.run(request, ticket);
                Submitted::Pending
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
                // Whatever a route made of it, also of the replies of other servers.
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

    /// Asks every server of the tree, and answers with the worst reply.
    pub fn submit_to_all(&mut self, request: &Request<'_>, ticket: Ticket) {
        let mut ids = self.tree.destinations.clone();
        ids.sort_unstable();
        // A server is asked once, however many pools it is in.
        ids.dedup_by_key(|id| id.place());
        let (cx, request) = (Arc::clone(&self.cx), request.to_owned());
        self.start(async move {
            let asked = ids.iter().map(|id| -> Answer<'_> { Box::pin(cx.ask(*id, request.get())) });
            let replies = join::all(asked.collect()).await;
            let worst = replies.into_iter().max_by_key(|reply| reply.outcome.severity());
            let reply = worst.unwrap_or_else(|| OwnedReply::of(Outcome::Ok));
            cx.finished.borrow_mut().push((ticket, reply));
        });
    }

    /// Starts a task and has it ask its first servers at once: a request that only chooses asks at
    /// once, and would otherwise overtake those that its client sent before it.
    fn start(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.cx.spawn(task);
        self.cx.tasks.run();
    }

    /// From here on, sinks are told of exchanges, or not.
    pub fn watch(&self, is_watched: bool) {
        self.cx.upstream.borrow().set_watched(is_watched);
    }

    /// Takes what servers have sent; what belongs to [`Self::submit`]ted requests goes to `sink`.
    pub fn on_events(&mut self, sink: &mut dyn Sink) {
        let mut split = Split { cx: &self.cx, other: &mut *sink };
        let is_woken = self.cx.upstream.borrow_mut().on_events(&mut split);
        if is_woken {
            self.cx.take_kept(sink);
        }
    }

    /// Runs tasks, keeps the time, and sends what was asked; once a turn, when everything has been
    /// submitted.
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

    /// Runs what [`Self::settle`] runs, but sends nothing: the next turn, which must follow at
    /// once, has more to send in the same writes.
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

    /// Lets go of the servers of trees that nobody uses any more. One that is in no other tree
    /// answers first what it was asked.
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

    /// The latest time at which [`Self::settle`] is to be called.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        let upstream = self.cx.upstream.borrow();
        let timer = self.cx.timers.next_us().and_then(|at_us| upstream.instant(at_us));
        upstream.deadline().into_iter().chain(timer).min()
    }

    /// True if requests go on in routes, those whose clients have their replies included.
    #[must_use]
    pub fn has_tasks(&self) -> bool {
        self.cx.tasks.len() > 0
    }

    /// Routes tell people by `log`.
    pub fn set_log(&self, log: impl Fn(&str) + Send + Sync + 'static) {
        self.cx.set_log(Arc::new(log));
    }

    /// The context that routes use.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.cx
    }

    /// The tree that new requests take.
    #[must_use]
    pub fn tree(&self) -> &Tree {
        &self.tree
    }
}

/// Whatever a route made of the key on the way, the client reads the one that it asked for.
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

impl Drop for Core {
    /// Tasks hold on to the context that holds them: with one that has not ended, sockets would
    /// stay open.
    fn drop(&mut self) {
        self.cx.tasks.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a library for applications relies on: it is handed from thread to thread.
    #[test]
    fn a_core_may_be_sent() {
        fn is_sent<T: Send>() {}
        is_sent::<Core>();
    }
}
