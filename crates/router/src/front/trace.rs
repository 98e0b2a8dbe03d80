//! Traced requests: one in N, and those before which a client announces its trace.
//!
//! A request that is traced has a span here, from its arrival to its reply, and causes one for each
//! server that it asks (`upstream`). A client announces a trace by `mn traceparent <context>`; it
//! is that of the command that follows, of all keys of it. The announced trace decides: one that is
//! not sampled has no spans, whatever the rate here.

use std::collections::HashMap;
use std::sync::Arc;

use net::Input;
use proto::meta;
use proto::text::Words;
use spans::{Context, Kind, OpenSpan, Sampler, Spans, key_hash};
use upstream::{Command, Outcome, Request, Ticket};

use super::{Front, Session, Step};

/// Decides which requests of a worker are traced.
#[derive(Debug)]
pub(super) struct Tracer {
    spans: Option<Arc<Spans>>,
    sampler: Sampler,
    /// What the client announced for the request that is being read.
    parent: Option<Context>,
}

/// Spans of requests that wait for their replies.
#[derive(Debug, Default)]
pub(super) struct Open(HashMap<Ticket, (Command, OpenSpan)>);

impl Open {
    /// The request is answered.
    #[inline]
    pub(super) fn answered(&mut self, ticket: Ticket, outcome: Outcome) {
        if !self.0.is_empty() {
            self.end(ticket, outcome);
        }
    }

    #[cold]
    fn end(&mut self, ticket: Ticket, outcome: Outcome) {
        if let Some((op, mut span)) = self.0.remove(&ticket) {
            outcome.describe(op, &mut span);
            span.end();
        }
    }
}

impl Tracer {
    /// Traces one request in `one_in`, none of its own accord where that is 0. Without `spans` none
    /// at all.
    pub(super) fn new(spans: Option<Arc<Spans>>, one_in: u32) -> Self {
        let one_in = if spans.is_some() { one_in } else { 0 };
        Self { spans, sampler: Sampler::new(one_in), parent: None }
    }

    /// Contexts that clients announce are taken.
    pub(super) const fn takes_contexts(&self) -> bool {
        self.spans.is_some()
    }

    /// Counts a request. True if it is traced.
    #[inline]
    pub(super) fn is_due(&mut self) -> bool {
        self.sampler.is_due()
    }

    /// From here on the requests belong to this trace. Returns the sampler that chose before.
    fn follow(&mut self, context: Context) -> Sampler {
        self.parent = Some(context);
        std::mem::replace(&mut self.sampler, Sampler::new(u32::from(context.is_sampled)))
    }
}

impl Front {
    /// Takes a context that `mn` announces with these words.
    pub(super) fn announce(&self, session: &mut Session, words: Words<'_>) {
        let announced = meta::announced_context(words).filter(|_| self.tracer.takes_contexts());
        if let Some(context) = announced.and_then(Context::parse) {
            session.trace = Some(Box::new(context));
        }
    }

    /// Takes a step in the trace that the client has announced, which ends with its command.
    #[cold]
    pub(super) fn step_in_trace(&mut self, session: &mut Session, input: &mut Input<'_>) -> Step {
        let Some(context) = session.trace.take() else { return self.step_once(session, input) };
        let waiting = input.bytes().len();
        let usual = self.tracer.follow(*context);
        let step = self.step_once(session, input);
        (self.tracer.sampler, self.tracer.parent) = (usual, None);
        let is_incomplete = input.bytes().len() == waiting;
        let goes_on = session.is_sending() || session.line.is_some() || is_incomplete;
        if goes_on && session.trace.is_none() {
            session.trace = Some(context);
        }
        step
    }

    /// Submits a request that is traced.
    #[cold]
    pub(super) fn submit_traced(&mut self, request: &Request<'_>, ticket: Ticket) {
        let Some(spans) = &self.tracer.spans else { return self.ask_core(request, ticket) };
        let parent = self.tracer.parent.as_ref();
        let mut span = OpenSpan::begin(spans, parent, Kind::Server, request.op.name());
        span.set("holdall.key.hash", key_hash(request.key));
        let context = *span.context();
        self.queues.open.0.insert(ticket, (request.op, span));
        self.ask_core(&Request { trace: Some(&context), ..*request }, ticket);
    }
}
