//! `FailoverRoute`: uses the next child when one fails. With an expiry time for the others it is
//! the gutter of section 3.3 of the paper (`FailoverWithExptimeRoute`).

use std::sync::Arc;

use hashing::key::HASH_STOP;

use super::all::{is_refused, words_of_copy};
use super::destination::DestinationRoute;
use super::lease_pairs::LeasePairs;
use super::order::Order;
use super::{Answer, Route, RouteRef};
use crate::context::Context;
use crate::deletes;
use proto::answer::MetaCode;
use upstream::SendCell;
use upstream::{Command, CommandClass, Event, Failure, Outcome, OwnedReply, Request, Trail};

/// The failures that lead to the next child.
#[derive(Clone, Debug)]
pub struct FailoverErrors {
    /// Of get-like commands.
    pub gets: Vec<Failure>,
    /// Of update-like and arithmetic ones.
    pub updates: Vec<Failure>,
    /// Of deletes.
    pub deletes: Vec<Failure>,
}

impl Default for FailoverErrors {
    /// mcrouter's set: all except the client's own errors.
    fn default() -> Self {
        let all: Vec<_> = Failure::ALL.into_iter().filter(|failure| failure.fails_over()).collect();
        Self { gets: all.clone(), updates: all.clone(), deletes: all }
    }
}

impl FailoverErrors {
    fn contain(&self, class: CommandClass, failure: Failure) -> bool {
        let list = match class {
            CommandClass::Get => &self.gets,
            CommandClass::Delete => &self.deletes,
            CommandClass::Arithmetic | CommandClass::Other | CommandClass::Update => &self.updates,
        };
        list.contains(&failure)
    }
}

/// A bucket of tokens that requests fill and failovers empty.
#[derive(Debug)]
pub struct FailoverLimit {
    rate: f64,
    burst: f64,
    tokens: SendCell<f64>,
}

impl FailoverLimit {
    /// Adds `rate` tokens per request, up to `burst`, and starts with `burst`.
    #[must_use]
    pub fn new(rate: f64, burst: f64) -> Self {
        Self { rate, burst, tokens: SendCell::new(burst) }
    }

    fn request(&self) {
        self.tokens.set((self.tokens.get() + self.rate).min(self.burst));
    }

    fn take(&self) -> bool {
        let left = self.tokens.get() - 1.0;
        if left >= 0.0 {
            self.tokens.set(left);
        }
        left >= 0.0
    }
}

/// Asks the next child when one fails.
#[derive(Debug)]
pub struct FailoverRoute {
    /// The children; the first one is the primary.
    pub children: Vec<RouteRef>,
    /// The order of the others.
    pub order: Order,
    /// The failures that cause a failover.
    pub errors: FailoverErrors,
    /// The limit on the number of failovers.
    pub limit: Option<FailoverLimit>,
    /// Follows the hash stop of keys from the second try on (`:failover=1`), so that a server in
    /// both places keeps them apart.
    pub tag: Option<Vec<u8>>,
    /// The children that granted leases: a lease-set returns there.
    pub pairs: Option<Arc<LeasePairs>>,
}

impl FailoverRoute {
    async fn tried(&self, cx: &Arc<Context>, request: Request<'_>) -> (usize, OwnedReply) {
        if let Some(limit) = &self.limit {
            limit.request();
        }
        let tagged = self.tag.as_ref().and_then(|tag| tagged(request.key, tag));
        let class = request.op.class();
        let request = Request { fails_over: request.fails_over || self.yields(class), ..request };
        let mut last = (0, OwnedReply::from(Failure::LocalError));
        let mut tries = self.order.tries(self.children.len(), cx);
        let (mut is_first, mut count_tries) = (true, 0);
        // A knocked-out server received no request, so leaving it costs nothing.
        let mut is_free = true;
        let (mut yielded, mut refused) = (Vec::new(), Vec::new());
        // A delete's words once a child has executed or kept it.
        let mut copy = None;
        while let Some(index) = tries.next(&request) {
            if !is_free && self.limit.as_ref().is_some_and(|limit| !limit.take()) {
                cx.traffic().event(Event::FailoverLimited);
                break;
            }
            let Some(child) = self.children.get(index) else { break };
            count_tries += 1;
            let key = tagged.as_deref().filter(|_| !is_first).unwrap_or(request.key);
            cx.forget_chosen();
            let trail = (class == CommandClass::Delete).then(Trail::default);
            let answer = child.route(
                cx,
                Request {
                    key,
                    is_aside: request.is_aside || !is_first,
                    trail: trail.as_ref().or(request.trail),
                    words: copy.as_deref().unwrap_or(request.words),
                    ..request
                },
            );
            if is_first {
                tries.first_chose(cx.chosen());
            }
            is_first = false;
            let reply = answer.await;
            let failure = reply.outcome.failure();
            // The delete is done, or will be, where no get currently reads the key.
            let is_elsewhere = failure.is_none() && is_read_elsewhere(&request, trail.as_ref());
            is_free = failure == Some(Failure::Tko) || is_elsewhere;
            // A unique that differs may be that of the next child.
            if is_elsewhere && is_refused(&reply) {
                refused.push(index);
            } else if is_elsewhere {
                copy = words_of_copy(&request);
            }
            last = (index, reply);
            let goes_on = tries.note(index, failure);
            let fails = failure.is_some_and(|failure| self.errors.contain(class, failure));
            if !goes_on || !fails && !is_elsewhere {
                break;
            }
            if failure == Some(Failure::TryAgain) {
                yielded.push(index);
            }
        }
        if count_tries > 1 {
            let failure = last.1.outcome.failure();
            self.count(cx, failure.is_some_and(|failure| self.errors.contain(class, failure)));
        }
        if !yielded.is_empty() && has_changed(request.op, last.1.outcome) {
            self.forget(cx, &request, &yielded).await;
        }
        // The child that gets read has executed the delete, so the item there was the client's.
        refused.retain(|index| *index != last.0);
        if last.1.outcome.failure().is_none() && !is_refused(&last.1) {
            self.forget(cx, &request, &refused).await;
        }
        last
    }

    /// A child with values known to be old leaves changes to the next one.
    fn yields(&self, class: CommandClass) -> bool {
        self.children.len() > 1 && self.errors.contain(class, Failure::TryAgain)
    }

    /// Deletes the key at these children, because another child has changed the item.
    async fn forget(&self, cx: &Arc<Context>, request: &Request<'_>, children: &[usize]) {
        let delete = Request {
            value: b"",
            is_aside: true,
            unkept: false,
            fails_over: false,
            ..deletes::plain(request)
        };
        for child in children.iter().filter_map(|index| self.children.get(*index)) {
            drop(child.route(cx, delete).await);
        }
    }

    /// Counts a request that went to another child, and its failure if all failed.
    fn count(&self, cx: &Context, is_failed: bool) {
        let (tried, failed) = self.order.events();
        for event in [Event::Failover].into_iter().chain(tried) {
            cx.traffic().event(event);
        }
        for event in [Event::FailoverFailed].into_iter().chain(failed).filter(|_| is_failed) {
            cx.traffic().event(event);
        }
    }

    /// With leases, a token of one child is not shown to another.
    async fn paired(
        &self,
        pairs: &LeasePairs,
        cx: &Arc<Context>,
        request: Request<'_>,
    ) -> OwnedReply {
        if request.op == Command::LeaseSet
            && let Some((child, number)) = pairs.take(request.key, request.number, cx.unix_secs())
            && let Some(child) = self.children.get(child)
        {
            cx.traffic().event(Event::LeaseSetRedirected);
            return child.route(cx, Request { number, ..request }).await;
        }
        let (child, mut reply) = self.tried(cx, request).await;
        let is_token = reply.outcome == Outcome::Lease && reply.number > HOT_MISS;
        if is_token && (child > 0 || LeasePairs::is_ours(reply.number)) {
            reply.number = pairs.add(request.key, child, reply.number, cx.unix_secs());
        }
        reply
    }
}

/// The lease token that asks to wait.
const HOT_MISS: u64 = 1;

impl Route for FailoverRoute {
    fn name(&self) -> String {
        self.order.name().to_owned()
    }

    fn route<'a>(&'a self, cx: &'a Arc<Context>, request: Request<'a>) -> Answer<'a> {
        match &self.pairs {
            Some(pairs) if matches!(request.op, Command::LeaseGet | Command::LeaseSet) => {
                Box::pin(self.paired(pairs, cx, request))
            }
            _ => Box::pin(async move { self.tried(cx, request).await.1 }),
        }
    }

    fn next(&self, _cx: &Context, _request: &mut Request<'_>) -> Vec<RouteRef> {
        self.children.clone()
    }

    fn server<'a>(
        &'a self,
        cx: &Context,
        request: &mut Request<'_>,
    ) -> Option<&'a DestinationRoute> {
        self.children.first().and_then(|first| first.server(cx, request))
    }
}

/// The key with the tag, unless it becomes too long.
fn tagged(key: &[u8], tag: &[u8]) -> Option<Vec<u8>> {
    let mut tagged = key.to_vec();
    if memchr::memmem::find(key, HASH_STOP).is_none() {
        tagged.extend_from_slice(HASH_STOP);
    }
    tagged.extend_from_slice(tag);
    (tagged.len() <= proto::KEY_BYTES_MAX).then_some(tagged)
}

/// Returns true if the delete that a child has answered must continue, because gets of the key do.
/// The client's trail also records it.
fn is_read_elsewhere(request: &Request<'_>, trail: Option<&Trail>) -> bool {
    let Some(trail) = trail else { return false };
    if let Some(clients) = request.trail {
        clients.follow(trail);
    }
    trail.is_read_elsewhere()
}

/// Returns true if the command has changed the item, judged by this answer.
const fn has_changed(op: Command, outcome: Outcome) -> bool {
    let changes = !matches!(op.class(), CommandClass::Delete | CommandClass::Get);
    changes
        && matches!(
            outcome,
            Outcome::Meta(MetaCode::Hd | MetaCode::Va)
                | Outcome::Number
                | Outcome::StaleStored
                | Outcome::Stored
                | Outcome::Touched
        )
}
