//! Concurrent routes whose reply does not wait for all of them. The others still run to completion.

use std::sync::Arc;

use super::all::{is_refused, words_of_copy};
use super::{Answer, RouteRef};
use crate::context::Context;
use crate::join;
use upstream::{OwnedReply, OwnedRequest, Request, Trail};

/// The routes, and the outstanding replies.
pub(super) struct Race<'a> {
    cx: &'a Arc<Context>,
    /// The trail of the client's request, and that of the routes, which may outlive it.
    trails: Option<(&'a Trail, Arc<Trail>)>,
    answers: Vec<Answer<'static>>,
    /// The size of the largest request.
    bytes: usize,
}

impl<'a> Race<'a> {
    /// An empty race on behalf of `request`.
    pub(super) fn new(cx: &'a Arc<Context>, request: &Request<'a>) -> Self {
        let trails = request.trail.map(|trail| (trail, Arc::default()));
        Self { cx, trails, answers: Vec::new(), bytes: 0 }
    }

    /// A race between these routes. The first one decides a delete with a cas unique: its reply
    /// comes before the others are asked, and is the only one if the unique differs.
    pub(super) async fn among(
        routes: &[RouteRef],
        cx: &'a Arc<Context>,
        request: Request<'a>,
    ) -> Self {
        let mut race = Self::new(cx, &request);
        let words = words_of_copy(&request);
        let (routes, words) = match (routes.split_first(), &words) {
            (Some((first, others)), Some(words)) => {
                cx.takes_steps.set(true);
                let reply = first.route(cx, request).await;
                let is_refused = is_refused(&reply);
                race.answers.push(Box::pin(async { reply }));
                (if is_refused { &[] } else { others }, &words[..])
            }
            _ => (routes, request.words),
        };
        let request = Arc::new(Request { words, ..request }.to_owned());
        for route in routes {
            race.ask(route, &request);
        }
        race
    }

    /// Adds `route`, which is polled at the next wait for a reply.
    pub(super) fn ask(&mut self, route: &RouteRef, request: &Arc<OwnedRequest>) {
        self.bytes = self.bytes.max(request.bytes());
        let (route, request) = (Arc::clone(route), Arc::clone(request));
        let cx = Arc::clone(self.cx);
        let trail = self.trails.as_ref().map(|(_, trail)| Arc::clone(trail));
        self.answers.push(Box::pin(async move {
            let asked = Request { trail: trail.as_deref(), ..request.get() };
            route.route(&cx, asked).await
        }));
    }

    /// The first reply that `is_wanted`, or else the last. The others continue in the background.
    pub(super) async fn first(
        mut self,
        mut is_wanted: impl FnMut(&OwnedReply) -> bool,
    ) -> Option<OwnedReply> {
        let mut last = None;
        while let Some(reply) = self.next().await {
            if is_wanted(&reply) {
                self.leave();
                return Some(reply);
            }
            last = Some(reply);
        }
        last
    }

    /// Returns the next reply; `None` when none is left.
    pub(super) async fn next(&mut self) -> Option<OwnedReply> {
        let reply = join::next(&mut self.answers).await;
        if let Some((clients, own)) = &self.trails {
            clients.follow(own);
        }
        reply
    }

    /// Ends the wait, if there is room. The others continue in the background.
    pub(super) fn leave(self) {
        let answers = self.answers;
        if !answers.is_empty() {
            let bytes = self.bytes.saturating_mul(answers.len());
            self.cx.spawn_aside(bytes, async move { drop(join::all(answers).await) });
        }
    }
}
